"""The trainer of Faster R-CNN, with or without virtual outliers (VOS).

VOS is described in Du et al. 2022, arXiv:2202.01197.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.roi_heads import fastrcnn_loss, maskrcnn_loss

from farther.detectors.networks.architectures import (
    BACKGROUND,
    FasterRCNNBlueprint,
    architecture_of,
    build_network,
    load_network,
    save_checkpoint,
)
from farther.detectors.networks.detection import autocast
from farther.detectors.networks.faster_rcnn import FasterRCNNReplay, run_rpn
from farther.detectors.networks.heads import ENERGY_HEAD, VARIANCE_HEAD, EnergyHead, VarianceHead
from farther.naming.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import digest
from farther_training.box_losses import variance_loss
from farther_training.detection import DetectorRun, Target, bytes_of, fitting_weights, network_input
from farther_training.ranges import Count
from farther_training.recipe import FasterRCNNRecipe, Recipe
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
from farther_training.virtual_outliers import OutlierQueue, check_filled, outlier_loss


@register("faster_rcnn")
@dataclass(config=STRICT, kw_only=True)
class FasterRCNNJob(Job):
    """Trains a Faster R-CNN of torchvision, optionally with VOS or variances of boxes.

    Args:
        architecture: See `farther.detectors.networks.architectures`.
        min_size, max_size: Shorter side of scaled images in pixels, and largest longer side.
        initial_weights: See `initial_weights`.
        recipe: Hyperparameters.
    """

    #: Name of the network in the card.
    title: ClassVar[str] = "Faster R-CNN"
    #: Beginnings of the names of weights that are learned, and not needed for detection.
    unread_weights: ClassVar[tuple[str, ...]] = ()

    architecture: str = "resnet50_fpn"
    min_size: Count = 800
    max_size: Count = 1333
    recipe: Annotated[FasterRCNNRecipe, Field(default_factory=FasterRCNNRecipe)]

    def learn(self, task: Task) -> Trained:
        """See `Job.learn`."""
        blueprint = FasterRCNNBlueprint(
            self.architecture, task.training.classes, self.min_size, self.max_size
        )
        initial = initial_weights(self.initial_weights, blueprint, self.build)
        network = train(blueprint, task, self.recipe, initial, build=self.build)
        notes = {**task.notes, "box_loss": self.recipe.box_loss}
        save_checkpoint(self.weights, network.state_dict(), blueprint, notes)
        saved_network = load_network(self.weights, blueprint, self.unread_weights).to(task.device)
        return Trained(
            evaluate=lambda samples: evaluate(saved_network, samples, self.recipe),
            parameters=count_parameters(network),
            origin=digest_of_weights(self.initial_weights),
            kind=f"{self._kind}, architecture `{self.architecture}`",
            scaling=(
                f"Images are scaled to {self.min_size} pixels on the shorter side, "
                f"at most {self.max_size} on the longer one."
            ),
            facts={**asdict(blueprint), "classes": list(blueprint.classes)},
            packages=("torchvision",),
        )

    def build(self, blueprint: FasterRCNNBlueprint) -> FasterRCNN:
        """An untrained network, without the heads that the recipe adds."""
        return build_network(blueprint)

    @property
    def _kind(self) -> str:
        """Kind of network, for the card."""
        additions = []
        if self.recipe.virtual_outliers is not None:
            additions.append("virtual outliers (VOS)")
        if self.recipe.box_loss != "smooth_l1":
            additions.append(f"variances of boxes ({self.recipe.box_loss})")
        if not additions:
            return self.title
        return f"{self.title} with {' and '.join(additions)}"


#: Further weighted losses by name, from the features (M, D), labels (M,) and logits (M, K) of the
#: sampled proposals (label 0 is the background).
ExtraLosses = Callable[[Tensor, Tensor, Tensor], dict[str, Tensor]]

#: Builds an untrained network.
Build = Callable[[FasterRCNNBlueprint], FasterRCNN]


class FasterRCNNRun(DetectorRun[FasterRCNN, FasterRCNNRecipe]):
    """A training run of a Faster R-CNN; see `Run`.

    It has an `EnergyHead` if the recipe has virtual outliers.
    """

    def __init__(
        self,
        network: FasterRCNN,
        recipe: FasterRCNNRecipe,
        task: Task,
        identity: str,
        extra_losses: Sequence[ExtraLosses],
    ):
        super().__init__(network, recipe, task, identity)
        self.extra_losses = (self.virtual_outlier_losses, *extra_losses)
        self.queue: OutlierQueue | None = None
        if recipe.virtual_outliers is not None:
            last = network.roi_heads.box_predictor.cls_score
            self.queue = OutlierQueue(
                recipe.virtual_outliers, last.out_features - 1, last.in_features
            )
            self.queue.to(last.weight.device)

    def compute_losses(self, batch: list[Sample]) -> dict[str, Tensor]:
        """See `losses`."""
        terms = losses(self.network, batch, self.recipe, self.extra_losses)
        return {"loss": torch.stack(list(terms.values())).sum(), **terms}

    def virtual_outlier_losses(
        self, features: Tensor, labels: Tensor, logits: Tensor
    ) -> dict[str, Tensor]:
        """VOS's loss, as `ExtraLosses`.

        Empty before its start, or while no class has filled its queue.
        """
        known = labels > 0
        if self.queue is None or not known.any():
            return {}
        self.queue.push(features.detach()[known], labels[known] - 1)
        if self.step < self.queue.params.start * self.steps or not len(self.queue.full):
            return {}
        head: EnergyHead = self.network.get_submodule(ENERGY_HEAD)
        last = self.network.roi_heads.box_predictor.cls_score

        def classify(features: Tensor) -> Tensor:
            return last(features)[:, 1:]

        loss = outlier_loss(self.queue, head, classify, logits[known, 1:])
        return {"loss_virtual_outliers": loss}

    def evaluate(self, samples: Samples) -> dict[str, Any]:
        """See `evaluate`."""
        return evaluate(self.averaged, samples, self.recipe)

    def extra_state(self) -> dict[str, Any]:
        """The queue of features."""
        if self.queue is None:
            return {}
        return dict(self.queue.state_dict())

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """See `State.load_extra_state`."""
        if self.queue is not None:
            self.queue.load_state_dict(state)


def train(
    blueprint: FasterRCNNBlueprint,
    task: Task,
    recipe: FasterRCNNRecipe,
    initial: Mapping[str, Tensor] | None = None,
    extra_losses: Sequence[ExtraLosses] = (),
    build: Build = build_network,
) -> FasterRCNN:
    """Trains a network, or resumes a killed run; returns the averaged network.

    Args:
        blueprint: Description of the network.
        task: Images, device and files.
        recipe: Hyperparameters.
        initial: Weights to start from.
        extra_losses: Further losses.
        build: Builds the network, without the heads that the recipe adds.

    Raises:
        TrainingError: the loss is not finite, or no class has enough objects for virtual outliers.
        DataError: an image cannot be read.
    """
    config = json.dumps([asdict(recipe), asdict(blueprint)])
    identity = digest(config, task.training.digest(), *bytes_of(initial))

    torch.manual_seed(recipe.seed)
    network = build(blueprint).to(task.device, memory_format=torch.channels_last)
    if initial is not None:
        network.load_state_dict(initial, strict=False)
    if recipe.virtual_outliers is not None:
        network.add_module(ENERGY_HEAD, EnergyHead(len(blueprint.classes)).to(task.device))
    if recipe.box_loss != "smooth_l1":
        last = network.roi_heads.box_predictor.cls_score
        variance_head = VarianceHead(last.in_features, last.out_features)
        network.add_module(VARIANCE_HEAD, variance_head.to(task.device))

    run = FasterRCNNRun(network, recipe, task, identity, extra_losses)
    averaged = run.go()
    if run.queue is not None:
        check_filled(run.queue)
    return averaged


def evaluate(network: FasterRCNN, samples: Samples, recipe: Recipe) -> dict[str, Any]:
    """Metrics of a network in evaluation mode; see `farther.metrics.closed_set.evaluate`."""
    header = Header(classes=(BACKGROUND, *samples.classes), background_index=0)

    @torch.inference_mode()
    def detect(images: list[np.ndarray], names: list[str]) -> Regions:
        detections = FasterRCNNReplay.detect(network, header, images, recipe.precision)
        return detections.regions(names)

    return evaluate_on(samples, recipe.batch_size, recipe.workers, detect)


def losses(
    network: FasterRCNN,
    batch: list[Sample],
    recipe: FasterRCNNRecipe,
    extra_losses: Sequence[ExtraLosses] = (),
) -> dict[str, Tensor]:
    """Losses of a batch (Ren et al. 2015, arXiv:1506.01497, Equation 1, for both stages).

    Their sum is minimised.

    Args:
        network: With a `VarianceHead`, if the recipe's `box_loss` trains variances. A Mask R-CNN,
            which has a mask branch, also learns masks, which are the objects' boxes, filled.
        recipe: Its `precision` is that of the layers; the losses are computed in float32.
    """
    device = next(network.parameters()).device
    images, targets = network_input(network, batch, first_label=1)
    if network.roi_heads.has_mask():
        add_box_masks(targets, images.image_sizes)
    heads = network.roi_heads
    with autocast(device, recipe.precision):
        levels = {name: level.float() for name, level in network.backbone(images.tensors).items()}
        first_stage = run_rpn(network, images, levels)

    anchors = first_stage.anchors
    anchor_labels, matched_boxes = network.rpn.assign_targets_to_anchors(anchors, targets)
    anchor_deltas = network.rpn.box_coder.encode(matched_boxes, anchors)
    objectness_loss, rpn_box_loss = network.rpn.compute_loss(
        first_stage.objectness, first_stage.deltas, anchor_labels, anchor_deltas
    )

    with autocast(device, recipe.precision):
        sampled, indices, labels, target_deltas = heads.select_training_samples(
            first_stage.proposals, targets
        )
        pooled = heads.box_roi_pool(levels, sampled, images.image_sizes)
        features = heads.box_head(pooled)
    features = features.float()
    logits, deltas = heads.box_predictor(features)
    classifier_loss, box_loss = fastrcnn_loss(logits, deltas, labels, target_deltas)
    if recipe.box_loss != "smooth_l1":
        log_variances = network.get_submodule(VARIANCE_HEAD)(features)
        box_loss = variance_loss(recipe.box_loss, deltas, log_variances, labels, target_deltas)

    terms = {
        "loss_classifier": classifier_loss,
        "loss_boxes": box_loss,
        "loss_objectness": objectness_loss,
        "loss_rpn_boxes": rpn_box_loss,
    }
    if heads.has_mask():
        with autocast(device, recipe.precision):
            terms["loss_masks"] = mask_loss(
                network, levels, images, sampled, labels, indices, targets
            )
    for extra_loss in extra_losses:
        terms |= extra_loss(features, torch.cat(labels), logits)
    return terms


def add_box_masks(targets: list[Target], sizes: Sequence[tuple[int, int]]) -> None:
    """Adds "masks" to the targets of each image, uint8 (N, H, W): the objects' boxes, filled.

    Args:
        targets: With "boxes" in pixels.
        sizes: Height and width of each image.
    """
    for target, (height, width) in zip(targets, sizes, strict=True):
        boxes = target["boxes"]
        # A pixel belongs to a box that contains its centre.
        x = torch.arange(width, device=boxes.device) + 0.5
        y = torch.arange(height, device=boxes.device) + 0.5
        within_x = (x >= boxes[:, 0, None]) & (x < boxes[:, 2, None])
        within_y = (y >= boxes[:, 1, None]) & (y < boxes[:, 3, None])
        target["masks"] = (within_y[:, :, None] & within_x[:, None, :]).to(torch.uint8)


def mask_loss(
    network: FasterRCNN,
    levels: dict[str, Tensor],
    images: ImageList,
    sampled: list[Tensor],
    labels: list[Tensor],
    indices: list[Tensor],
    targets: list[Target],
) -> Tensor:
    """Binary cross-entropy of the masks of the objects' proposals.

    See He et al. 2017, arXiv:1703.06870, Section 3.

    Args:
        network: With a mask branch.
        levels: Of the feature pyramid.
        images: As the backbone took them.
        sampled: Sampled proposals of each image, (P, 4).
        labels: Columns of their objects, 0 for none, (P,).
        indices: Rows of their objects, (P,).
        targets: Labels and masks of the objects.
    """
    heads = network.roi_heads
    matched_proposals = []
    matched_objects = []
    for proposals, columns, objects in zip(sampled, labels, indices, strict=True):
        matched = torch.where(columns > 0)[0]
        matched_proposals.append(proposals[matched])
        matched_objects.append(objects[matched])
    pooled = heads.mask_roi_pool(levels, matched_proposals, images.image_sizes)
    logits = heads.mask_predictor(heads.mask_head(pooled)).float()
    masks = [target["masks"] for target in targets]
    object_labels = [target["labels"] for target in targets]
    return maskrcnn_loss(logits, matched_proposals, masks, object_labels, matched_objects)


def initial_weights(
    path: Path | None, blueprint: FasterRCNNBlueprint, build: Build = build_network
) -> dict[str, Tensor] | None:
    """Weights of a file that fit a network; see `farther_training.detection.fitting_weights`."""
    is_frozen = architecture_of(blueprint).is_frozen
    return fitting_weights(path, build(blueprint), blueprint.architecture, is_frozen=is_frozen)
