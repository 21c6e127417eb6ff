"""The trainer of detection transformers, with a further loss for training from scratch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from dataclasses import dataclass as plain_dataclass
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, l1_loss
from torchvision.ops import box_iou, generalized_box_iou_loss
from transformers import PreTrainedModel
from transformers.image_processing_utils import BaseImageProcessor

from farther.detectors.hub import make_processor, prepare
from farther.detectors.networks.detection import autocast
from farther.detectors.networks.detr import (
    DetrBlueprint,
    build_network,
    find_checkpoint,
    in_float32,
    keep_exact,
    load_network,
    save_checkpoint,
)
from farther.detectors.networks.detr_inference import replay
from farther.detectors.settings import BoxSelection
from farther.errors import ParameterError, first_line
from farther.naming.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import digest
from farther_training.ranges import Count
from farther_training.recipe import DetrRecipe
from farther_training.run import Run, evaluate_on, make_optimizer, write_state
from farther_training.samples import Sample, Samples
from farther_training.trainers import Job, Task, Trained, count_parameters, register


@register("detr")
@dataclass(config=STRICT, kw_only=True)
class DetrJob(Job):
    """Trains a detection transformer of transformers: from a checkpoint or from scratch.

    Args:
        initial_weights: A checkpoint to fine-tune: a folder, a file or a model of the hub, as for
            the detector `detr`. Its configuration is used; layers that depend on the classes or the
            number of queries start from scratch.
        revision: Branch, tag or commit of a model on the hub.
        queries: Number of object queries, instead of the checkpoint's. FMIYC used 100.
        network: For a network that starts from scratch: its configuration, as in transformers'
            `config.json`.
        processor: For such a network: the preprocessing, as in `preprocessor_config.json`.
        recipe: Hyperparameters.

    Raises:
        ValueError: parameters of a checkpoint and of a network that starts from scratch are mixed,
            or neither is given.
    """

    revision: str | None = None
    queries: Count | None = None
    network: dict[str, Any] | None = None
    processor: dict[str, Any] | None = None
    recipe: Annotated[DetrRecipe, Field(default_factory=DetrRecipe)]

    def __post_init__(self) -> None:
        set_names = []
        for name in ("initial_weights", "network", "processor", "queries", "revision"):
            if getattr(self, name) is not None:
                set_names.append(name)
        starts_from_scratch = set_names == ["network", "processor"]
        has_configuration = "network" in set_names or "processor" in set_names
        is_fine_tuned = "initial_weights" in set_names and not has_configuration
        if not starts_from_scratch and not is_fine_tuned:
            raise ValueError(
                "expected either 'initial_weights' (with 'revision' and 'queries', if need be), "
                f"or 'network' and 'processor'; given: {', '.join(set_names) or 'neither'}"
            )

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        network, blueprint, origin = self._start(task.training.classes)
        network = network.to(task.device, memory_format=torch.channels_last)
        trained = train(network, blueprint, task, self.recipe)
        save_checkpoint(self.weights, trained.state_dict(), blueprint, task.notes)
        saved_network = load_network(find_checkpoint(self.weights)).to(task.device)
        keep_exact(saved_network)
        kind = blueprint.config["model_type"]
        return Trained(
            evaluate=lambda samples: evaluate(saved_network, blueprint, samples, self.recipe),
            parameters=count_parameters(saved_network),
            origin=origin,
            kind=f"Detection transformer, `{kind}`",
            facts={
                "model_type": kind,
                "classes": list(task.training.classes),
                "network": blueprint.config,
                "processor": blueprint.processor,
            },
            sections={"Network": "network", "Images": "processor"},
            packages=("transformers",),
        )

    def _start(self, classes: tuple[str, ...]) -> tuple[PreTrainedModel, DetrBlueprint, str | None]:
        """The network to train, its configuration, and the digest of its initial weights."""
        if self.initial_weights is None:
            blueprint = DetrBlueprint(self.network or {}, self.processor or {}, classes)
            return untrained(blueprint, self.recipe.seed), blueprint, None
        checkpoint = find_checkpoint(self.initial_weights, revision=self.revision)
        config = dict(checkpoint.blueprint.config)
        if self.queries is not None:
            config["num_queries"] = self.queries
        blueprint = DetrBlueprint(config, checkpoint.blueprint.processor, classes)
        torch.manual_seed(self.recipe.seed)
        adapted = replace(checkpoint, blueprint=blueprint, class_rows=None)
        network = load_network(adapted, tolerated="class heads")
        return network, blueprint, digest(*checkpoint.files)


class DetrRun(Run[PreTrainedModel, DetrRecipe]):
    """A training run of a detection transformer; see `Run`."""

    def __init__(
        self,
        network: PreTrainedModel,
        blueprint: DetrBlueprint,
        recipe: DetrRecipe,
        task: Task,
        identity: str,
    ):
        # The backbone has a separate learning rate.
        backbone_parameters = []
        other_parameters = []
        for name, parameter in network.named_parameters():
            if name.startswith("model.backbone"):
                backbone_parameters.append(parameter)
            else:
                other_parameters.append(parameter)
        ratio = recipe.backbone_learning_rate / recipe.learning_rate
        groups = [(1.0, other_parameters), (ratio, backbone_parameters)]
        optimizer = make_optimizer(recipe, groups)
        super().__init__(network, optimizer, recipe, task, identity)
        self.blueprint = blueprint
        self.device = next(network.parameters()).device
        keep_exact(self.network)
        keep_exact(self.averaged)
        # Matching needs costs that NumPy can read, and boxes need full precision.
        self.network.loss_function = in_float32(self.network.loss_function, self.device.type)
        self.processor = make_processor(blueprint.processor)

    def compute_losses(self, batch: list[Sample]) -> dict[str, Tensor]:
        """See `losses`."""
        prepared = make_batch(self.processor, batch, self.device)
        one_to_many = self.recipe.one_to_many_at(self.step / self.steps)
        return losses(self.network, prepared, self.recipe.precision, one_to_many)

    def evaluate(self, samples: Samples) -> dict[str, Any]:
        """See `evaluate`."""
        return evaluate(self.averaged, self.blueprint, samples, self.recipe)

    @property
    def best_file(self) -> Path:
        """File of the weights of the best epoch, for a recipe with patience."""
        return self.state_file.with_name("best.pt")

    def after_epoch(self) -> None:
        """Saves the averaged weights if the last epoch is the best so far."""
        map50 = self.log[-1].get("val_map50")
        if self.recipe.patience is None or map50 is None:
            return
        if all(map50 > row.get("val_map50", -1) for row in self.log[:-1]):
            write_state(self.best_file, self.averaged.state_dict())

    def has_ended(self) -> bool:
        """True if mAP50 has not increased for `patience` epochs."""
        evaluated_rows = [row for row in self.log if "val_map50" in row]
        if self.recipe.patience is None or not evaluated_rows:
            return False
        best_row = max(evaluated_rows, key=itemgetter("val_map50"))
        return self.log[-1]["epoch"] - best_row["epoch"] >= self.recipe.patience


def untrained(blueprint: DetrBlueprint, seed: int) -> PreTrainedModel:
    """A network with random weights that are suitable to start training from.

    transformers' initial weights are meant to be replaced by a checkpoint: normalisations start
    near 0 and block the signal. Here they start at 1, convolutions as in He et al.
    (arXiv:1502.01852) and linear layers as in Glorot and Bengio (2010). Layers that must start at 0
    (offsets of boxes and of sampling points) and biases do not change.
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
        # A proposal's first box is its anchor, as in the authors' code.
        nn.init.zeros_(proposals.layers[-1].weight)
        nn.init.zeros_(proposals.layers[-1].bias)
    return network


def train(
    network: PreTrainedModel, blueprint: DetrBlueprint, task: Task, recipe: DetrRecipe
) -> PreTrainedModel:
    """Trains a network from its present weights, or resumes a killed run.

    Returns the averaged network.

    Raises:
        TrainingError: the loss is not finite.
        DataError: an image cannot be read.
        ParameterError: the image processor is unknown, or the recipe does not fit the network.
    """
    weights = [tensor.cpu().numpy().tobytes() for tensor in network.state_dict().values()]
    config = json.dumps([asdict(recipe), asdict(blueprint)])
    identity = digest(config, task.training.digest(), *weights)
    run = DetrRun(network, blueprint, recipe, task, identity)
    averaged = run.go()
    if recipe.patience is not None:
        averaged.load_state_dict(torch.load(run.best_file, map_location="cpu", weights_only=True))
    return averaged


def evaluate(
    network: PreTrainedModel, blueprint: DetrBlueprint, samples: Samples, recipe: DetrRecipe
) -> dict[str, Any]:
    """Metrics of a network in evaluation mode; see `farther.metrics.closed_set.evaluate`."""
    columns, background = blueprint.columns()
    header = Header(
        classes=columns, background_index=background, activation=blueprint.family.activation
    )
    processor = make_processor(blueprint.processor)
    selection = BoxSelection(
        score_threshold=0.01, iou=1.0, max_detections=100, per_query=blueprint.family.per_query
    )

    def detect(images: list[np.ndarray], names: list[str]) -> Regions:
        prepared = [prepare(processor, image) for image in images]
        with torch.inference_mode():
            detections = replay(network, header, prepared, selection, recipe.precision)
            return detections.regions(names)

    return evaluate_on(samples, recipe.batch_size, recipe.workers, detect)


#: Number of tokens assigned to each object in `one_to_many_loss`.
TOKENS_PER_OBJECT = 6
#: Weights of score, distance and overlap as in RT-DETR's loss, and the exponent that reduces easy
#: negatives.
SCORE_WEIGHT = 1.0
DISTANCE_WEIGHT = 5.0
OVERLAP_WEIGHT = 2.0
NEGATIVE_WEIGHT = 0.75
FOCUS = 2.0


@plain_dataclass(frozen=True)
class Batch:
    """Images and objects in the network's format.

    Args:
        pixels: Shape (B, 3, H, W).
        mask: Shape (B, H, W): 1 inside the image, 0 in the padding.
        labels: Per image `class_labels` (N,) and `boxes` (N, 4): centre and size, as fractions of
            the image.
    """

    pixels: Tensor
    mask: Tensor
    labels: list[dict[str, Tensor]]


def make_batch(
    processor: BaseImageProcessor, samples: Sequence[Sample], device: torch.device
) -> Batch:
    """Samples, preprocessed as for inference; images of several shapes are padded to one."""
    images = [np.ascontiguousarray(sample.pixels) for sample in samples]
    try:
        prepared = processor(images=images, input_data_format="channels_last", return_tensors="pt")
    except (ValueError, RuntimeError) as error:
        problem = f"the image processor cannot make one batch of these images: {first_line(error)}"
        raise ParameterError(f"{problem}. Let it resize to one size, or pad") from None
    pixels = prepared["pixel_values"].to(device)
    mask = prepared.get("pixel_mask")
    if mask is None:
        mask = torch.ones_like(pixels[:, 0])
    labels = []
    for sample in samples:
        class_labels = torch.from_numpy(sample.labels).to(device)
        labels.append({"class_labels": class_labels, "boxes": _fractions(sample).to(device)})
    return Batch(pixels, mask.to(device), labels)


def _fractions(sample: Sample) -> Tensor:
    """Centre and size of the boxes of a sample, as fractions of the image, (N, 4)."""
    height, width = sample.pixels.shape[:2]
    corners = torch.from_numpy(sample.boxes).float() / torch.tensor([width, height, width, height])
    low = corners[:, :2]
    high = corners[:, 2:]
    return torch.cat([(low + high) / 2, high - low], dim=1)


def losses(
    network: PreTrainedModel, batch: Batch, precision: str, one_to_many: float
) -> dict[str, Tensor]:
    """Losses of a batch; "loss" is minimised, the others are its parts.

    Args:
        network: In training mode, prepared by `DetrRun`: its loss computes in float32.
    """
    with autocast(batch.pixels.device, precision):
        output = network(pixel_values=batch.pixels, pixel_mask=batch.mask, labels=batch.labels)
    # Terms of the other decoder layers, of proposals and of denoising have numbers in their names.
    terms = {}
    for name, value in output.loss_dict.items():
        if name.startswith("loss") and name[-1].isalpha():
            terms[name] = value
    total = output.loss
    if one_to_many > 0:
        scores = output.get("enc_outputs_class")
        boxes = output.get("enc_outputs_coord_logits")
        if scores is None or boxes is None:
            raise ParameterError(
                f"one_to_many: {network.config.model_type} has no proposals of an encoder to teach"
            )
        extra_loss = one_to_many_loss(scores.float(), boxes.float().sigmoid(), batch.labels)
        terms["loss_one_to_many"] = extra_loss
        total = total + one_to_many * extra_loss
    return {"loss": total, **terms}


def one_to_many_loss(logits: Tensor, boxes: Tensor, labels: Sequence[dict[str, Tensor]]) -> Tensor:
    """Loss of the encoder's proposals with several tokens per object.

    DETR's losses match each object with one query. This avoids suppression, but gives little signal
    per step; an additional one-to-many matching speeds up the first epochs (H-DETR,
    arXiv:2207.13080; RT-DETRv3, arXiv:2409.08475). An object is assigned to the tokens with the
    highest √score · IoU, a token to its best object; the losses are those of RT-DETR (varifocal,
    L1, GIoU; arXiv:2304.08069).

    Args:
        logits: Shape (B, T, K), of T tokens.
        boxes: Shape (B, T, 4): centre and size, as fractions of the image.
    """
    score_loss = logits.new_zeros(())
    box_loss = logits.new_zeros(())
    assigned = 0
    for image_logits, image_boxes, image_labels in zip(logits, boxes, labels, strict=True):
        tokens, objects, overlaps = _assign(image_logits, image_boxes, image_labels)
        target = torch.zeros_like(image_logits)
        target[tokens, image_labels["class_labels"][objects]] = overlaps
        weight = torch.where(
            target > 0, target, NEGATIVE_WEIGHT * image_logits.detach().sigmoid() ** FOCUS
        )
        score_loss = score_loss + binary_cross_entropy_with_logits(
            image_logits, target, weight, reduction="sum"
        )
        predicted_boxes = image_boxes[tokens]
        object_boxes = image_labels["boxes"][objects]
        distance = l1_loss(predicted_boxes, object_boxes, reduction="sum")
        overlap = generalized_box_iou_loss(
            _corners(predicted_boxes), _corners(object_boxes), reduction="sum"
        )
        box_loss = box_loss + DISTANCE_WEIGHT * distance + OVERLAP_WEIGHT * overlap
        assigned += len(tokens)
    return (SCORE_WEIGHT * score_loss + box_loss) / max(1, assigned)


@torch.no_grad()
def _assign(
    logits: Tensor, boxes: Tensor, labels: dict[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Assigned tokens, their objects, and the IoU of their boxes: shape (M,) each."""
    overlaps = box_iou(_corners(boxes), _corners(labels["boxes"]))
    quality = logits.sigmoid()[:, labels["class_labels"]].sqrt() * overlaps
    best_tokens = quality.topk(min(TOKENS_PER_OBJECT, len(quality)), dim=0).indices
    candidates = torch.zeros_like(quality)
    candidates = candidates.scatter(0, best_tokens, quality.gather(0, best_tokens))
    if candidates.shape[1] == 0:
        no_rows = best_tokens.new_zeros(0)
        return no_rows, no_rows, candidates.new_zeros(0)
    best_quality, objects = candidates.max(dim=1)
    tokens = torch.where(best_quality > 0)[0]
    objects = objects[tokens]
    return tokens, objects, overlaps[tokens, objects]


def _corners(boxes: Tensor) -> Tensor:
    """Corners of boxes that are centre and size."""
    centre = boxes[..., :2]
    half = boxes[..., 2:] / 2
    return torch.cat([centre - half, centre + half], dim=-1)
