"""Training a detection transformer: seeded, and resumed where a killed run stopped."""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import PreTrainedModel

from farther.detectors.networks.detr import DetrBlueprint, build_network, in_float32, keep_exact
from farther.detectors.networks.detr_inference import Selection, detect_regions, make_processor, prepare
from farther.metrics import closed_set
from farther.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import digest, write_aside
from farther.training import faster_rcnn
from farther.training.detr_losses import losses, make_batch
from farther.training.faster_rcnn import AugmentedSamples, TrainingError, batches_of_epoch, write_log
from farther.training.recipe import Count, Fraction, Positive, Recipe
from farther.training.samples import Sample, Samples


@dataclass(config=STRICT, kw_only=True)
class DetrRecipe(Recipe):
    """Parameters of a training run; those not named here are `Recipe`'s.

    The defaults are FMIYC's for Pascal VOC, Appendix G and Table 26 (for BDD100k both learning rates are twice as
    high): a checkpoint trained on COCO is fine-tuned until the validation figures stop rising.

    Args:
        backbone_learning_rate: Of the backbone, at its highest.
        patience: Epochs without a better mAP50 on the validation images after which training ends; the weights of the
            best epoch are kept. None trains to the end and keeps the last.
        one_to_many: Weight of `farther.training.detr_losses.one_to_many_loss` at the start, for networks that start
            from nothing.
        one_to_many_until: Fraction of the run in which that weight falls to 0, in a straight line.
    """

    epochs: Count = 60
    batch_size: Count = 8
    optimizer: Literal["sgd", "adamw"] = "adamw"
    learning_rate: Positive = 2e-5
    backbone_learning_rate: Positive = 2e-6
    clip_norm: Positive | None = 0.1
    seed: int = 40
    patience: Count | None = 16
    one_to_many: Annotated[float, Field(ge=0)] = 0.0
    one_to_many_until: Fraction = 0.5

    def one_to_many_at(self, progress: float) -> float:
        """Weight after a fraction of the run."""
        return self.one_to_many * max(0.0, 1 - progress / self.one_to_many_until) if self.one_to_many_until else 0.0


class Run(faster_rcnn.Run):
    """The state of a training run; kept and continued as that of a Faster R-CNN is.

    Args:
        network: What is trained, with the weights it starts from.
        blueprint: How it was built.
        recipe: How it is trained.
        steps: Of the whole run.
        state_file: Where the state is kept while the run is unfinished.
        identity: What the run depends on; a state of another identity is not continued.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        blueprint: DetrBlueprint,
        recipe: DetrRecipe,
        steps: int,
        state_file: Path,
        identity: str,
    ):
        # Not the base's own start, which builds a Faster R-CNN; the attributes are the same.
        self.recipe: DetrRecipe = recipe
        self.steps, self.state_file, self.identity = steps, state_file, identity
        self.averaged = copy.deepcopy(network).eval()
        self.network = network
        self.device = next(network.parameters()).device
        for one in (self.network, self.averaged):
            keep_exact(one)
        # Matching needs costs that NumPy can read, and boxes all their digits.
        self.network.loss_function = in_float32(self.network.loss_function, self.device.type)
        self.processor = make_processor(blueprint.processor)
        self.optimizer = make_optimizer(network, recipe)
        self.step = 0
        self.losses: dict[str, list[float]] = defaultdict(list)
        self.log: list[dict[str, float]] = []

    def learn_from(self, samples: list[Sample]) -> None:
        """One step, its losses noted; all that is random in it depends on the seed and the step's number alone.

        Raises:
            TrainingError: the loss is not finite.
        """
        torch.manual_seed((self.recipe.seed << 32) + self.step)
        rate = self.recipe.learning_rate_at(self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["ratio"]
        self.network.train()
        batch = make_batch(self.processor, samples, self.device)
        found = losses(self.network, batch, self.recipe.precision, self.recipe.one_to_many_at(self.step / self.steps))
        values = {name: loss.item() for name, loss in found.items()}
        if not np.isfinite(values["loss"]):
            problem = f"step {self.step}: the loss is not finite: {values}"
            raise TrainingError(f"{problem}. Lower learning_rate or clip_norm")
        self.optimizer.zero_grad()
        found["loss"].backward()
        if self.recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        self.step += 1
        self._average()
        for name, value in values.items():
            self.losses[name].append(value)

    @property
    def best_file(self) -> Path:
        """Where the weights of the best epoch are kept, for a recipe with patience."""
        return self.state_file.with_name("best.pt")

    def keep_best(self) -> None:
        """Keeps the averaged weights if the epoch that was logged last is the best so far."""
        figure = self.log[-1].get("val_map50")
        if self.recipe.patience is None or figure is None:
            return
        if all(figure > row.get("val_map50", -1) for row in self.log[:-1]):
            with write_aside(self.best_file) as aside:
                torch.save(self.averaged.state_dict(), aside)

    def out_of_patience(self) -> bool:
        """Whether the figures have not risen for too long."""
        figures = {row["epoch"]: row["val_map50"] for row in self.log if "val_map50" in row}
        if self.recipe.patience is None or not figures:
            return False
        return self.log[-1]["epoch"] - max(figures, key=lambda epoch: figures[epoch]) >= self.recipe.patience


def make_optimizer(network: PreTrainedModel, recipe: DetrRecipe) -> torch.optim.Optimizer:
    """AdamW, or SGD with Nesterov's momentum; the backbone has its own rate, and only matrices and kernels decay."""
    slow = recipe.backbone_learning_rate / recipe.learning_rate
    groups = []
    for ratio, in_backbone in ((1.0, False), (slow, True)):
        named = [p for n, p in network.named_parameters() if n.startswith("model.backbone") == in_backbone]
        learned = [p for p in named if p.requires_grad]
        for decay, some in (
            (recipe.weight_decay, [p for p in learned if p.ndim > 1]),
            (0.0, [p for p in learned if p.ndim <= 1]),
        ):
            groups.append({"params": some, "weight_decay": decay, "ratio": ratio})
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.learning_rate)
    return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.momentum > 0)


def untrained(blueprint: DetrBlueprint, seed: int) -> PreTrainedModel:
    """A network whose random weights training can start from.

    transformers draws weights for networks that a checkpoint fills in at once: normalisations start near 0 there, and
    no signal gets through. Here they start at 1, convolutions as He et al. (2015) and linear layers as Glorot and
    Bengio (2010) draw them. Layers that must start at 0 (offsets of boxes and of sampling points) and biases stay as
    they are.
    """
    torch.manual_seed(seed)
    network = build_network(blueprint, attention="eager")
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear) and module.weight.any():
            nn.init.xavier_uniform_(module.weight)
    proposals = getattr(network.model, "enc_bbox_head", None)
    if proposals is not None:
        # A proposal's first box is its anchor, as in the authors' own code.
        nn.init.zeros_(proposals.layers[-1].weight)
        nn.init.zeros_(proposals.layers[-1].bias)
    return network


def train(
    network: PreTrainedModel,
    blueprint: DetrBlueprint,
    training: Samples,
    validation: Samples,
    recipe: DetrRecipe,
    state_file: Path,
    log_file: Path,
) -> PreTrainedModel:
    """Trains a network, or goes on with a run that was killed.

    Args:
        network: What to train, on its device, with the weights to start from.
        blueprint: How it was built.
        training: What it learns from.
        validation: What its mAP is watched on.
        recipe: How.
        state_file: Where the state of an unfinished run is kept, and beside it the best weights.
        log_file: CSV to write: epoch, step, learning rate, mean losses, mAP50 on the validation images.

    Returns:
        The averaged network, in evaluation mode.

    Raises:
        TrainingError: the loss is not finite.
        DataError: an image cannot be read.
        ParameterError: the image processor is unknown, or the recipe does not fit the network.
    """
    sizes = np.stack([training.images.width, training.images.height], axis=1)
    per_epoch = len(batches_of_epoch(sizes, recipe.batch_size, recipe.seed, 0))
    start = [t.cpu().numpy().tobytes() for t in network.state_dict().values()]
    identity = digest(json.dumps([asdict(recipe), asdict(blueprint)]), training.digest(), *start)
    run = Run(network, blueprint, recipe, per_epoch * recipe.epochs, state_file, identity)
    run.resume()
    if recipe.cache_images:
        training.cache()
        validation.cache()
    size = min(recipe.batch_size, len(training))
    with tqdm(total=run.steps * size, initial=run.step * size, unit="image", smoothing=0.05) as bar:
        for epoch in range(run.step // per_epoch, recipe.epochs):
            if run.out_of_patience():
                break
            batches = batches_of_epoch(sizes, recipe.batch_size, recipe.seed, epoch)
            for samples in _load(training, recipe, epoch, batches[run.step - epoch * per_epoch :]):
                run.learn_from(samples)
                bar.update(len(samples))
                bar.set_postfix(epoch=epoch + 1, loss=f"{np.mean(run.losses['loss'][-50:]):.3f}", refresh=False)
                if run.step % recipe.checkpoint_steps == 0 and run.step % per_epoch:
                    run.save()
            is_looked_at = (epoch + 1) % recipe.evaluate_epochs == 0 or epoch + 1 == recipe.epochs
            run.end_epoch(epoch + 1, evaluate(run.averaged, blueprint, validation, recipe) if is_looked_at else {})
            run.keep_best()
            write_log(log_file, run.log)
            run.save()
    if recipe.patience is not None:
        run.averaged.load_state_dict(torch.load(run.best_file, map_location="cpu", weights_only=True))
    return run.averaged


def _load(training: Samples, recipe: Recipe, epoch: int, batches: Sequence[list[int]]) -> Iterator[list[Sample]]:
    made = AugmentedSamples(training, recipe.augmentation, recipe.seed, epoch)
    yield from DataLoader(made, batch_sampler=batches, num_workers=recipe.workers, collate_fn=list)


def evaluate(
    network: PreTrainedModel, blueprint: DetrBlueprint, samples: Samples, recipe: DetrRecipe
) -> dict[str, Any]:
    """Figures of a network on the images of a subset; see `farther.metrics.closed_set.evaluate`.

    Args:
        network: In evaluation mode.
        recipe: Batch size and precision are used.
    """
    columns, background = blueprint.columns()
    header = Header(classes=columns, background_index=background, activation=blueprint.family.activation)
    processor = make_processor(blueprint.processor)
    chosen = Selection(score_threshold=0.01, iou=1.0, max_detections=100, per_query=blueprint.family.per_query)
    found = [Regions.empty(header)]
    for first in range(0, len(samples), recipe.batch_size):
        rows = range(first, min(first + recipe.batch_size, len(samples)))
        names = [samples.images.image_id[row] for row in rows]
        images = [prepare(processor, samples.pixels(row)) for row in rows]
        found.append(detect_regions(network, header, images, names, chosen, recipe.precision))
    return closed_set.evaluate(samples.objects, Regions.concatenate(found[1:]), samples.classes)
