"""Test-time augmentation and deep ensembles, whose detections are matched to the run's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field, PositiveFloat
from pydantic.dataclasses import dataclass
from torchvision.ops import box_iou

from farther.detectors.base import Detector, Fraction, recomputable
from farther.detectors.faster_rcnn import FasterRCNN
from farther.detectors.passes.base import Pass, register_pass
from farther.detectors.passes.moments import Moments
from farther.detectors.settings import to_numpy
from farther.errors import DataError, ParameterError
from farther.naming.registry import STRICT
from farther.tables import Regions
from farther.tables.files import digest


@plain_dataclass(frozen=True)
class View:
    """A view of an image: mirrored left to right or not, and the factor of its scale."""

    flip: bool
    scale: float


@plain_dataclass(frozen=True)
class PreparedViews:
    """An image, prepared for each view, the original first, and its width in pixels."""

    prepared: list[Any]
    width: int


@register_pass("augment")
@dataclass(config=STRICT, kw_only=True)
class Augment(Pass):
    """Moments over views of the image: original, mirrored, and scaled (test-time augmentation).

    With Faster R-CNN and Mask R-CNN the rows of a view are the same proposals, mirrored and scaled
    as the image. Other detectors detect in each view, and each region is matched to the detection
    of any label whose box, mirrored back, overlaps it most, if by at least `iou`; views without one
    do not count for it. Columns: see `farther.detectors.passes.moments.Moments`, over the views.

    Args:
        flip: Whether each scale is also used mirrored.
        scales: Factors by which the network's input is scaled besides 1, such as 0.83; only for
            Faster R-CNN, Mask R-CNN and YOLO.
        iou: Smallest IoU of a region with the detection of a view that it is matched to.

    Raises:
        ParameterError: there is no view but the original.
    """

    flip: bool = True
    scales: tuple[PositiveFloat, ...] = ()
    iou: Fraction = 0.5

    def __post_init__(self) -> None:
        if not self.views():
            raise ParameterError(
                "pass 'augment': no view but the plain one; set `flip: true` or give `scales`"
            )

    def views(self) -> list[View]:
        """All views but the original."""
        views = [View(False, scale) for scale in self.scales]
        if self.flip:
            views.append(View(True, 1.0))
            views.extend(View(True, scale) for scale in self.scales)
        return views

    @property
    def forward_passes(self) -> int:
        """See `Pass.forward_passes`."""
        return len(self.views())

    def check(self, detector: Detector) -> None:
        """See `Pass.check`."""
        if not _has_proposals(detector):
            for scale in self.scales:
                detector.scaled(scale)

    def prepare(self, detector: Detector, image: np.ndarray) -> PreparedViews:
        """See `Pass.prepare`."""
        prepared = [detector.prepare(image)]
        if not _has_proposals(detector):
            mirrored = np.ascontiguousarray(image[:, ::-1])
            for view in self.views():
                scaled = detector if view.scale == 1 else detector.scaled(view.scale)
                prepared.append(scaled.prepare(mirrored if view.flip else image))
        return PreparedViews(prepared, image.shape[1])

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`."""
        if _has_proposals(detector):
            return self._forward_proposals(detector, prepared, image_ids)
        return self._forward_detections(detector, prepared, image_ids)

    def _forward_proposals(
        self, detector: Detector, prepared: Sequence[PreparedViews], image_ids: list[str]
    ) -> Regions:
        """Moments over the same proposals in each view."""
        replay: Any = recomputable(detector).replay([views.prepared[0] for views in prepared])
        regions = replay.regions(image_ids)
        moments = Moments(self.header(detector))
        moments.add(regions.logits, regions.box)
        for view in self.views():
            outputs = replay.view(flip=view.flip, scale=view.scale)
            moments.add(to_numpy(outputs.logits), to_numpy(outputs.boxes))
        return moments.regions(regions)

    def _forward_detections(
        self, detector: Detector, prepared: Sequence[PreparedViews], image_ids: list[str]
    ) -> Regions:
        """Moments over the matched detections of each view."""
        regions = detector.forward([views.prepared[0] for views in prepared], image_ids)
        moments = Moments(self.header(detector))
        moments.add(regions.logits, regions.box)

        width_of_image = {}
        for image_id, views in zip(image_ids, prepared, strict=True):
            width_of_image[image_id] = views.width
        for number, view in enumerate(self.views(), start=1):
            inputs = [views.prepared[number] for views in prepared]
            detections = detector.forward(inputs, image_ids)
            if view.flip:
                detections = _mirrored(detections, width_of_image)
            add_matched(moments, regions, detections, self.iou)
        return moments.regions(regions)


def _mirrored(regions: Regions, width_of_image: Mapping[str, int]) -> Regions:
    """Regions with their boxes mirrored left to right."""
    width = np.array([width_of_image[image_id] for image_id in regions.image_id], np.float32)
    box = regions.box.copy()
    box[:, 0] = width - regions.box[:, 2]
    box[:, 2] = width - regions.box[:, 0]
    return regions.with_columns(box=box)


@register_pass("ensemble")
@dataclass(config=STRICT, kw_only=True)
class Ensemble(Pass):
    """Moments over the run's detector and further checkpoints of the same kind (deep ensembles).

    Each region is matched to the detection of each member, of any label, whose box overlaps it
    most, if by at least `iou`; members without one do not count for it. Columns: see
    `farther.detectors.passes.moments.Moments`, over the members, of which the run's own detector is
    the first.

    Args:
        members: Files of the further checkpoints, which the run's adapter loads with the run's
            parameters.
        iou: Smallest IoU of a region with the detection of a member that it is matched to.

    References:
        Lakshminarayanan et al., "Simple and Scalable Predictive Uncertainty Estimation using Deep
        Ensembles", 2017, arXiv:1612.01474.
    """

    members: Annotated[tuple[Path, ...], Field(min_length=1)]
    iou: Fraction = 0.5

    def __post_init__(self) -> None:
        self._detectors: list[Detector] | None = None

    @property
    def forward_passes(self) -> int:
        """See `Pass.forward_passes`."""
        return len(self.members)

    def check(self, detector: Detector) -> None:
        """See `Pass.check`.

        Raises:
            DataError: a member is absent or damaged, or has other classes.
        """
        header = detector.header()
        for file, member in zip(self.members, self.detectors(detector), strict=True):
            member_header = member.header()
            has_same_classes = member_header.classes == header.classes
            has_same_activation = member_header.activation == header.activation
            if not (has_same_classes and has_same_activation):
                raise DataError(
                    "its classes or its activation differ from those of the run's checkpoint",
                    file=file,
                )

    def identity(self) -> dict[str, Any]:
        """See `Pass.identity`: the content of the members counts, their names do not."""
        contents = [digest(file) for file in self.members]
        return {"kind": self.name, **asdict(self), "members": contents}

    def detectors(self, detector: Detector) -> list[Detector]:
        """The members, which are created at the first call; their networks are loaded once."""
        if self._detectors is None:
            self._detectors = [replace(detector, weights=file) for file in self.members]
        return self._detectors

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`."""
        regions = detector.forward(prepared, image_ids)
        moments = Moments(self.header(detector))
        moments.add(regions.logits, regions.box)
        for member in self.detectors(detector):
            add_matched(moments, regions, member.forward(prepared, image_ids), self.iou)
        return moments.regions(regions)


def add_matched(moments: Moments, regions: Regions, detections: Regions, iou: float) -> None:
    """Adds the detection that overlaps each region most, if by at least `iou`, to its moments.

    Args:
        moments: Moments of the regions.
        regions: The run's own regions.
        detections: Detections of another output of the network in the same images.
        iou: Smallest IoU of a match.
    """
    matched_rows = []
    matches = []
    for image_id in regions.frame["image_id"].unique(maintain_order=True):
        region_rows = np.flatnonzero(regions.image_id == image_id)
        detection_rows = np.flatnonzero(detections.image_id == image_id)
        if len(detection_rows) == 0:
            continue
        region_boxes = torch.tensor(regions.box[region_rows])
        detection_boxes = torch.tensor(detections.box[detection_rows])
        overlaps = box_iou(region_boxes, detection_boxes).numpy()
        best = overlaps.argmax(axis=1)
        is_match = overlaps[np.arange(len(region_rows)), best] >= iou
        matched_rows.append(region_rows[is_match])
        matches.append(detection_rows[best[is_match]])
    if matches:
        rows = np.concatenate(matches)
        moments.add(detections.logits[rows], detections.box[rows], np.concatenate(matched_rows))


def _has_proposals(detector: Detector) -> bool:
    """True if the rows of a view are the same proposals."""
    return isinstance(detector, FasterRCNN)
