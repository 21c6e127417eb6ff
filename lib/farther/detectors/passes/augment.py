"""Views of the image: mirrored and scaled; and members of an ensemble. Their detections are matched to the run's."""

from __future__ import annotations

from dataclasses import asdict, replace
from dataclasses import dataclass as plain_dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field, PositiveFloat
from pydantic.dataclasses import dataclass
from torchvision.ops import box_iou

from farther.detectors.base import Detector, Fraction
from farther.detectors.faster_rcnn import FasterRCNN
from farther.detectors.passes.base import Pass, register_pass
from farther.detectors.passes.moments import Moments
from farther.detectors.settings import to_numpy
from farther.errors import DataError, ParameterError
from farther.registry import STRICT
from farther.tables import Regions
from farther.tables.files import digest


@plain_dataclass(frozen=True)
class Views:
    """An image, prepared once for each view, the plain one first, and its width in pixels."""

    prepared: list[Any]
    width: int


@register_pass("augment")
@dataclass(config=STRICT, kw_only=True)
class Augment(Pass):
    """Moments over views of the image: as it is, mirrored left to right, and scaled (test-time augmentation).

    With Faster R-CNN and Mask R-CNN the rows of a view are the same proposals, mirrored and scaled
    as the image. Other detectors detect in each view, and a region takes from it the detection
    whose box, turned back, overlaps it most, of whatever label, if by `iou` or more; views without
    one do not count for it. Columns: see `farther.detectors.passes.moments.Moments`, over the
    views.

    Args:
        flip: Whether each scale is also looked at mirrored.
        scales: Factors by which the network's input is scaled besides 1, such as 0.83; only for
            Faster R-CNN, Mask R-CNN and YOLO.
        iou: See above.

    Raises:
        ParameterError: there is no view but the plain one.
    """

    flip: bool = True
    scales: tuple[PositiveFloat, ...] = ()
    iou: Fraction = 0.5

    def __post_init__(self) -> None:
        if not self.views():
            raise ParameterError(
                "pass 'augment': no view but the plain one; set `flip: true` or give `scales`"
            )

    def views(self) -> list[tuple[bool, float]]:
        """Mirrored or not, and scale, of each view but the plain one."""
        return [
            view for view in product((False, True), (1.0, *self.scales)) if view[0] <= self.flip
        ][1:]

    @property
    def forward_passes(self) -> int:
        """See `Pass.forward_passes`."""
        return len(self.views())

    def check(self, detector: Detector) -> None:
        """See `Pass.check`."""
        if not _has_proposals(detector):
            for scale in self.scales:
                detector.scaled(scale)

    def prepare(self, detector: Detector, image: np.ndarray) -> Views:
        """See `Pass.prepare`."""
        prepared = [detector.prepare(image)]
        if not _has_proposals(detector):
            for flip, scale in self.views():
                seen = detector if scale == 1 else detector.scaled(scale)
                prepared.append(
                    seen.prepare(np.ascontiguousarray(image[:, ::-1]) if flip else image)
                )
        return Views(prepared, image.shape[1])

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`."""
        moments = Moments(self.header(detector))
        if _has_proposals(detector):
            replay: Any = detector.replay([views.prepared[0] for views in prepared])
            found = replay.regions(image_ids)
            moments.add(found.logits, found.box)
            for flip, scale in self.views():
                outputs = replay.view(flip=flip, scale=scale)
                moments.add(to_numpy(outputs.logits), to_numpy(outputs.boxes))
        else:
            widths = {
                image_id: views.width for image_id, views in zip(image_ids, prepared, strict=True)
            }
            by_view = zip(*(views.prepared for views in prepared), strict=True)
            found = detector.forward(list(next(by_view)), image_ids)
            moments.add(found.logits, found.box)
            for (flip, _), of_view in zip(self.views(), by_view, strict=True):
                seen = detector.forward(list(of_view), image_ids)
                box = seen.box.copy()
                if flip:
                    width = np.array([widths[image_id] for image_id in seen.image_id], np.float32)
                    box[:, 0], box[:, 2] = width - seen.box[:, 2], width - seen.box[:, 0]
                add_matched(moments, found, seen.with_columns(box=box), self.iou)
        return moments.regions(found)


@register_pass("ensemble")
@dataclass(config=STRICT, kw_only=True)
class Ensemble(Pass):
    """Moments over the run's detector and further checkpoints of the same kind (deep ensembles).

    A region takes from each member the detection whose box overlaps it most, of whatever label, if
    by `iou` or more; members without one do not count for it. Columns: see
    `farther.detectors.passes.moments.Moments`, over the members, of which the run's own detector is
    the first.

    Args:
        members: Files of the other checkpoints, which the run's adapter loads with the run's
            parameters.
        iou: See above.

    References:
        Lakshminarayanan et al., "Simple and Scalable Predictive Uncertainty Estimation using Deep
        Ensembles", 2017, arXiv:1612.01474.
    """

    members: Annotated[tuple[Path, ...], Field(min_length=1)]
    iou: Fraction = 0.5

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
            other = member.header()
            if (other.classes, other.activation) != (header.classes, header.activation):
                raise DataError(
                    "its classes or its activation differ from those of the run's checkpoint",
                    file=file,
                )

    def identity(self) -> dict[str, Any]:
        """See `Pass.identity`: the content of the members counts, their names do not."""
        contents = [digest(file) for file in self.members]
        return {"kind": self.name, **asdict(self), "members": contents}

    def detectors(self, detector: Detector) -> list[Detector]:
        """The members; their networks are loaded once and then kept."""
        kept = vars(self).get("_detectors")
        if kept is None:
            kept = vars(self)["_detectors"] = [
                replace(detector, weights=file) for file in self.members
            ]
        return kept

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`."""
        found = detector.forward(prepared, image_ids)
        moments = Moments(self.header(detector))
        moments.add(found.logits, found.box)
        for member in self.detectors(detector):
            add_matched(moments, found, member.forward(prepared, image_ids), self.iou)
        return moments.regions(found)


def add_matched(moments: Moments, found: Regions, seen: Regions, iou: float) -> None:
    """Adds to each region the detection of another output whose box overlaps it most, if by `iou` or more."""
    rows, matches = [], []
    for image_id in found.frame["image_id"].unique(maintain_order=True):
        mine = np.flatnonzero(found.image_id == image_id)
        theirs = np.flatnonzero(seen.image_id == image_id)
        if len(theirs):
            overlaps = box_iou(
                torch.tensor(found.box[mine]), torch.tensor(seen.box[theirs])
            ).numpy()
            best = overlaps.argmax(1)
            near = overlaps[np.arange(len(mine)), best] >= iou
            rows.append(mine[near])
            matches.append(theirs[best[near]])
    if rows:
        chosen = np.concatenate(matches)
        moments.add(seen.logits[chosen], seen.box[chosen], np.concatenate(rows))


def _has_proposals(detector: Detector) -> bool:
    """True if the rows of a view are the same proposals."""
    return isinstance(detector, FasterRCNN)
