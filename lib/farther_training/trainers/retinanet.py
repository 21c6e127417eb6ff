"""The trainer of RetinaNet (Lin et al. 2017, arXiv:1708.02002)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torchvision.models.detection import RetinaNet

from farther.detectors.networks.detection import as_floats, autocast
from farther.detectors.networks.retinanet import (
    FROZEN,
    RetinaNetBlueprint,
    build_retinanet,
    load_retinanet,
    save_retinanet,
)
from farther.detectors.settings import to_numpy
from farther.naming.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import digest
from farther_training.detection import DetectorRun, bytes_of, fitting_weights, network_input
from farther_training.ranges import Count
from farther_training.recipe import Recipe, RetinaNetRecipe
from farther_training.run import evaluate_on
from farther_training.samples import Sample, Samples
from farther_training.trainers import (
    Job,
    Task,
    Trained,
    count_parameters,
    digest_of_weights,
    register,
)

#: Largest number of detections per image that are evaluated.
MAX_DETECTIONS = 100


@register("retinanet")
@dataclass(config=STRICT, kw_only=True)
class RetinaNetJob(Job):
    """Trains a RetinaNet of torchvision, with the focal loss.

    Args:
        architecture: "resnet50_fpn", or "small", which is trained from scratch; see
            `farther.detectors.networks.retinanet`.
        min_size, max_size: Shorter side of scaled images in pixels, and largest longer side.
        initial_weights: A detector's or a classifier's (torchvision's `resnet50`); `resnet50_fpn`
            needs them.
        recipe: Hyperparameters.
    """

    architecture: str = "resnet50_fpn"
    min_size: Count = 800
    max_size: Count = 1333
    recipe: Annotated[RetinaNetRecipe, Field(default_factory=RetinaNetRecipe)]

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        blueprint = RetinaNetBlueprint(
            self.architecture, task.training.classes, self.min_size, self.max_size
        )
        is_frozen = blueprint.architecture in FROZEN
        untrained = build_retinanet(blueprint)
        initial = fitting_weights(
            self.initial_weights, untrained, blueprint.architecture, is_frozen=is_frozen
        )
        network = train(blueprint, task, self.recipe, initial)
        save_retinanet(self.weights, network.state_dict(), blueprint, task.notes)
        saved_network = load_retinanet(self.weights, blueprint).to(task.device)
        return Trained(
            evaluate=lambda samples: evaluate(saved_network, samples, self.recipe),
            parameters=count_parameters(network),
            origin=digest_of_weights(self.initial_weights),
            kind=f"RetinaNet, architecture `{self.architecture}`",
            scaling=(
                f"Images are scaled to {self.min_size} pixels on the shorter side, "
                f"at most {self.max_size} on the longer one."
            ),
            facts={**asdict(blueprint), "classes": list(blueprint.classes)},
            packages=("torchvision",),
        )


class RetinaNetRun(DetectorRun[RetinaNet, RetinaNetRecipe]):
    """A training run of a RetinaNet; see `DetectorRun`."""

    def compute_losses(self, batch: list[Sample]) -> dict[str, Tensor]:
        """See `losses`."""
        terms = losses(self.network, batch, self.recipe)
        return {"loss": torch.stack(list(terms.values())).sum(), **terms}

    def evaluate(self, samples: Samples) -> dict[str, Any]:
        """See `evaluate`."""
        return evaluate(self.averaged, samples, self.recipe)


def train(
    blueprint: RetinaNetBlueprint,
    task: Task,
    recipe: RetinaNetRecipe,
    initial: Mapping[str, Tensor] | None = None,
) -> RetinaNet:
    """Trains a network, or resumes a killed run; returns the averaged network.

    Raises:
        TrainingError: the loss is not finite.
        DataError: an image cannot be read.
    """
    config = json.dumps([asdict(recipe), asdict(blueprint)])
    identity = digest(config, task.training.digest(), *bytes_of(initial))

    torch.manual_seed(recipe.seed)
    network = build_retinanet(blueprint).to(task.device, memory_format=torch.channels_last)
    if initial is not None:
        network.load_state_dict(initial, strict=False)
    return RetinaNetRun(network, recipe, task, identity).go()


def losses(network: RetinaNet, batch: list[Sample], recipe: Recipe) -> dict[str, Tensor]:
    """Focal loss of the classes and L1 loss of the boxes of a batch; their sum is minimised.

    Args:
        network: In training mode.
        batch: The samples.
        recipe: Its `precision` is that of the layers; the losses are computed in float32.
    """
    images, targets = network_input(network, batch, first_label=0)
    with autocast(images.tensors.device, recipe.precision):
        levels = list(network.backbone(images.tensors).values())
        outputs = {name: output.float() for name, output in network.head(levels).items()}
    anchors = network.anchor_generator(images, levels)
    terms = network.compute_loss(targets, outputs, anchors)
    return {"loss_classifier": terms["classification"], "loss_boxes": terms["bbox_regression"]}


def evaluate(network: RetinaNet, samples: Samples, recipe: Recipe) -> dict[str, Any]:
    """Metrics of a network in evaluation mode; see `farther.metrics.closed_set.evaluate`."""
    header = Header(classes=samples.classes, activation="sigmoid")
    device = next(network.parameters()).device

    @torch.inference_mode()
    def detect(images: list[np.ndarray], names: list[str]) -> Regions:
        # torchvision decodes boxes in the precision of the layers.
        with autocast(device, "float32"):
            detections_by_image = network([as_floats(image, device) for image in images])
        boxes = []
        scores = []
        labels = []
        image_ids = []
        for image_id, detections in zip(names, detections_by_image, strict=True):
            # The highest scores come first.
            count = min(MAX_DETECTIONS, len(detections["scores"]))
            boxes.append(detections["boxes"][:count])
            scores.append(detections["scores"][:count])
            labels.append(detections["labels"][:count])
            image_ids += [image_id] * count
        return Regions(
            header=header,
            image_id=image_ids,
            region_id=np.arange(len(image_ids)),
            box=to_numpy(torch.cat(boxes)),
            score=to_numpy(torch.cat(scores)),
            label=to_numpy(torch.cat(labels)).astype(np.int16),
        )

    return evaluate_on(samples, recipe.batch_size, recipe.workers, detect)
