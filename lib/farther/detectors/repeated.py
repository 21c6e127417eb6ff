"""A detector that detects in several passes with dropout, or with several networks, and merges what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from scipy.cluster.hierarchy import fcluster, linkage
from torchvision.ops import box_iou

from farther.detectors.base import Count, Detector, Fraction, register, registry
from farther.detectors.networks.replay import Dropout, FreeReplay
from farther.detectors.passes.moments import Moments
from farther.errors import DataError, ParameterError
from farther.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import is_file
from farther.tables.folders import listed

#: Mean probabilities are at least this, so that their logarithm is finite.
SMALLEST_PROBABILITY = 1e-12


@register("repeated")
@dataclass(config=STRICT, kw_only=True)
class Repeated(Detector):
    """Another adapter's detector, run several times on each image; the detections of all passes are merged.

    Dropout sampling as Miller et al. 2018 (arXiv:1710.06677) have it: each pass with dropout
    detects, and detections that overlap and have the same label become one. As Dhamija et al. 2020
    (the elephant in the room of open-set detection) have it, with `merge: candidates`: the outputs
    of each proposal are averaged over 30 passes at rate 0.5, and then detections are selected.
    Proposals, anchors or queries are those of a pass without dropout.

    An ensemble: `weights` is a folder of checkpoints of one kind, each of which detects once.

    Rows have the mean box, the mean probabilities p̄ as `logits` (log p̄, or for sigmoids log p̄ /
    (1 − p̄)), the score p̄ of the label, `predictive_entropy`, `mutual_information` and
    `box_variance` over the merged detections (see `farther.detectors.passes.moments.Moments`), and
    their number in `detections`. There are neither features nor a last layer.

    Args:
        of: The adapter.
        params: Its parameters besides `weights`, `device`, `precision` and `features_dtype`.
        kind: "dropout", or "ensemble".
        passes: Number of passes with dropout.
        rate: Probability that a value is dropped; see the pass `dropout`.
        seed: Seed of the masks.
        where: Names of the modules whose outputs are masked; none for the usual place, see the pass
            `dropout`.
        merge: "clusters" of detections, or "candidates": averages of all proposals, anchors or
            queries before detections are selected.
        iou: Any two detections of a cluster overlap by this IoU. Miller et al. 2018 found 0.95 to
            be best; members of an ensemble agree less, 0.5 is usual.
        min_detections: Clusters of fewer detections are left out.

    Raises:
        ParameterError: the adapter is unknown, its parameters do not fit, or it cannot detect with
            dropout.
    """

    of: str
    params: dict[str, Any] = field(default_factory=dict)
    kind: Literal["dropout", "ensemble"] = "dropout"
    passes: Count = 30
    rate: Annotated[float, Field(ge=0, lt=1)] = 0.5
    seed: int = 0
    where: tuple[str, ...] = ()
    merge: Literal["clusters", "candidates"] = "clusters"
    iou: Fraction = 0.95
    min_detections: Count = 1

    def __post_init__(self) -> None:
        kind = registry.get(self.of)
        if not issubclass(kind, Detector) or (
            self.kind == "dropout" and kind.replay is Detector.replay
        ):
            raise ParameterError(
                f"detector 'repeated': parameter 'of': {self.of!r} cannot detect in several passes"
            )
        if self.kind == "ensemble" and self.merge != "clusters":
            raise ParameterError(
                "detector 'repeated': parameter 'merge': an ensemble has only clusters"
            )

    @cached_property
    def members(self) -> list[Detector]:
        """The detectors: one, or those of an ensemble in the order of their file names.

        Raises:
            DataError: the folder has no checkpoint.
            ParameterError: see `Registry.create`.
        """
        files = self.content() if self.kind == "ensemble" else (self.weights,)
        names = [f.name for f in fields(Detector) if f.name != "weights"]
        shared = {name: getattr(self, name) for name in names}
        return [registry.create(self.of, weights=file, **shared, **self.params) for file in files]  # type: ignore[misc]

    def content(self) -> tuple[Path, ...]:
        """See `Detector.content`: the checkpoint, or those of the members."""
        if self.kind == "dropout":
            return super().content()
        files = tuple(file for file in listed(self.weights, "*") if is_file(file))
        if not files:
            raise DataError(
                "an ensemble needs a folder with its members' checkpoints", file=self.weights
            )
        return files

    @property
    def code_modules(self) -> tuple[str, ...]:
        """See `Detector.code_modules`: that of the members, too."""
        return (*super().code_modules, registry.get(self.of).__module__)

    @property
    def network(self) -> Any:
        """See `Detector.network`: those of all members."""
        return [member.network for member in self.members]

    @cached_property
    def _header(self) -> Header:
        first, *others = [member.header() for member in self.members]
        for other in others:
            if (other.classes, other.activation) != (first.classes, first.activation):
                raise DataError(
                    "members differ in their classes or in the activation of the logits",
                    file=self.weights,
                )
        if first.whole_images:
            raise ParameterError(
                f"detector 'repeated': parameter 'of': {self.of!r} classifies whole images"
            )
        return replace(first, detector=self.identity, weight=None, bias=None)

    def header(self) -> Header:
        """See `Adapter.header`."""
        return self._header

    def prepare(self, image: np.ndarray) -> Any:
        """See `Detector.prepare`."""
        return self.members[0].prepare(image)

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Detector.forward`."""
        passes = [
            Dropout(self.rate, self.seed, number, image_ids, self.where)
            for number in range(self.passes)
        ]
        if self.kind == "ensemble":
            found = of_members(
                [member.forward(prepared, image_ids) for member in self.members], image_ids
            )
        else:
            replay: Any = self.members[0].replay(prepared)
            if self.merge == "candidates":
                merged = merge_candidates(self._header, replay, passes)
                return regions(self._header, merged, image_ids)
            found = detections(self._header, replay, passes)
        merged = [merge_clusters(self._header, one, self.iou, self.min_detections) for one in found]
        return regions(self._header, merged, image_ids)


@plain_dataclass
class Merged:
    """N detections of one image.

    Args:
        labels: Shape (N,).
        counts: Number of detections that each was merged from, shape (N,).
        moments: Of their logits and boxes.
    """

    labels: np.ndarray
    counts: np.ndarray
    moments: Moments


def clusters(boxes: np.ndarray, labels: np.ndarray, iou: float) -> np.ndarray:
    """Number of each detection's cluster, from 0, shape (N,): all pairs in it share the label and overlap by `iou`.

    Clusters are joined as long as all pairs of the result overlap so much (complete linkage), the
    closest first.

    Args:
        boxes: Shape (N, 4), corners.
        labels: Shape (N,).
        iou: Smallest IoU of two detections of one cluster.
    """
    found = np.zeros(len(labels), np.int64)
    start = 0
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        of_label = np.ones(len(rows), np.int64)
        if len(rows) > 1:
            at = torch.from_numpy(boxes[rows].astype(np.float64))
            distances = 1 - box_iou(at, at).numpy()
            upper = np.triu_indices(len(rows), 1)
            of_label = fcluster(linkage(distances[upper], "complete"), 1 - iou + 1e-9, "distance")
        found[rows] = start + of_label - 1
        start += int(of_label.max())
    return found


def merge_clusters(
    header: Header, found: Sequence[dict[str, np.ndarray]], iou: float, fewest: int
) -> Merged:
    """Merges detections of one image that overlap and share the label (Miller et al. 2018, arXiv:1710.06677).

    Args:
        header: Of the detections.
        found: Of each pass, `logits` (N, K), `boxes` (N, 4) and `labels` (N,).
        iou: See `clusters`.
        fewest: Clusters of fewer detections are left out.
    """
    logits, boxes, labels = (
        np.concatenate([one[name] for one in found]) for name in ("logits", "boxes", "labels")
    )
    numbers, counts = np.unique(
        clusters(boxes, labels, iou), return_inverse=True, return_counts=True
    )[1:]
    kept = np.flatnonzero(counts >= fewest)
    place = np.full(len(counts), -1)
    place[kept] = np.arange(len(kept))
    moments = Moments(header)
    order = np.argsort(numbers, kind="stable")
    rank = np.empty(len(numbers), np.int64)  # of a detection within its cluster
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = np.zeros(len(kept), np.int64)
    for number in range(int(counts[kept].max(initial=1))):
        rows = np.flatnonzero((rank == number) & (place[numbers] >= 0))
        rows = rows[np.argsort(place[numbers[rows]])]
        moments.add(logits[rows], boxes[rows], place[numbers[rows]] if number else None)
        first = rows if number == 0 else first
    return Merged(labels[first], counts[kept], moments)


def merge_candidates(header: Header, replay: FreeReplay, passes: Sequence[Dropout]) -> list[Merged]:
    """Averages all proposals, anchors or queries of each image over passes with dropout, and then detects."""
    merged = []
    for number, of_passes in enumerate(
        zip(*(replay.candidates(one) for one in passes), strict=True)
    ):
        moments = Moments(header)
        probabilities = sum(
            moments.probabilities(one.logits.double().cpu().numpy()) for one in of_passes
        ) / len(passes)
        mean = torch.stack([one.boxes for one in of_passes]).mean(0)
        scores = torch.from_numpy(probabilities).to(mean)
        kept = replay.select(number, scores, mean)
        for one in of_passes:
            boxes = replay.placed(number, one.boxes, kept.rows, kept.labels)
            moments.add(one.logits[kept.rows].cpu().numpy(), boxes.cpu().numpy())
        merged.append(
            Merged(kept.labels.cpu().numpy(), np.full(len(kept.rows), len(passes)), moments)
        )
    return merged


def detections(
    header: Header, replay: FreeReplay, passes: Sequence[Dropout]
) -> list[list[dict[str, np.ndarray]]]:
    """`logits`, `boxes` and `labels` of what each pass with dropout detects: of each image, one item per pass."""
    moments, found = Moments(header), []
    for candidates in (replay.candidates(one) for one in passes):
        of_pass = []
        for number, one in enumerate(candidates):
            probabilities = moments.probabilities(one.logits.double().cpu().numpy())
            kept = replay.select(number, torch.from_numpy(probabilities).to(one.boxes), one.boxes)
            columns = {"logits": one.logits[kept.rows], "boxes": kept.boxes, "labels": kept.labels}
            of_pass.append({name: values.cpu().numpy() for name, values in columns.items()})
        found.append(of_pass)
    return [list(of_image) for of_image in zip(*found, strict=True)]


def of_members(
    members: Sequence[Regions], image_ids: Sequence[str]
) -> list[list[dict[str, np.ndarray]]]:
    """`logits`, `boxes` and `labels` of what each member of an ensemble detects: of each image, one item per member."""
    found = []
    for image_id in image_ids:
        rows = [regions[np.asarray(regions.image_id) == image_id] for regions in members]
        found.append(
            [{"logits": one.logits, "boxes": one.box, "labels": one.label} for one in rows]
        )
    return found


def regions(header: Header, merged: Sequence[Merged], image_ids: Sequence[str]) -> Regions:
    """The merged detections of all images, best first: mean boxes, and mean probabilities as logits."""
    columns: dict[str, list[np.ndarray]] = {}
    names: list[str] = []
    for image_id, one in zip(image_ids, merged, strict=True):
        of_image = one.moments.columns()
        p = of_image.pop("mean_probabilities").astype(np.float64).clip(SMALLEST_PROBABILITY, 1)
        score = p[np.arange(len(p)), one.labels]
        odds = np.log(p) - (
            np.log1p(-p.clip(max=1 - 1e-7)) if header.activation == "sigmoid" else 0
        )
        of_image |= {"logits": odds, "box": one.moments.boxes, "score": score, "label": one.labels}
        of_image["detections"] = one.counts
        order = np.argsort(-score, kind="stable")
        names += [image_id] * len(order)
        for name, values in of_image.items():
            columns.setdefault(name, []).append(values[order])
    together = {name: np.concatenate(values) for name, values in columns.items()}
    return Regions(
        header=header, image_id=np.array(names, object), region_id=np.arange(len(names)), **together
    )
