"""MC dropout and ensembles as a detector: several inferences, whose detections are merged."""

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

from farther.detectors.base import (
    Count,
    Detector,
    Fraction,
    ReplayDetector,
    recomputable,
    register,
    registry,
)
from farther.detectors.networks.replay import CandidateReplay, Dropout
from farther.detectors.passes.moments import Moments
from farther.errors import DataError, ParameterError
from farther.naming.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import is_file
from farther.tables.folders import listed

#: Mean probabilities are at least this, so that their logarithm is finite.
SMALLEST_PROBABILITY = 1e-12


@register("repeated")
@dataclass(config=STRICT, kw_only=True)
class Repeated(Detector):
    """Another adapter's detector, run several times on each image, with merged detections.

    Dropout sampling of Miller et al. 2018 (arXiv:1710.06677): each pass with dropout detects, and
    detections that overlap and have the same label are merged. With `merge: candidates`, that of
    Dhamija et al. 2020 (the elephant in the room of open-set detection): the outputs of each
    proposal are averaged over 30 passes at rate 0.5, and then detections are selected. Proposals,
    anchors or queries are those of a pass without dropout.

    An ensemble: `weights` is a folder of checkpoints of one kind, each of which detects once.

    Rows have the mean box, the mean probabilities p̄ as `logits` (log p̄, or for sigmoids log p̄ /
    (1 − p̄)), the score p̄ of the label, `predictive_entropy`, `mutual_information` and
    `box_variance` over the merged detections (see `farther.detectors.passes.moments.Moments`), and
    their number in `detections`. There are neither features nor a last layer.

    Args:
        of: The adapter.
        params: Parameters of the adapter except `weights`, `device`, `precision` and
            `features_dtype`.
        kind: "dropout", or "ensemble".
        passes: Number of passes with dropout.
        rate: Probability that a value is dropped; see the pass `dropout`.
        seed: Seed of the masks.
        where: Names of the modules whose outputs are masked; empty for the default place, see the
            pass `dropout`.
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
        adapter = registry.get(self.of)
        needed = ReplayDetector if self.kind == "dropout" else Detector
        if not issubclass(adapter, needed):
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
        shared = {}
        for parameter in fields(Detector):
            if parameter.name != "weights":
                shared[parameter.name] = getattr(self, parameter.name)
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
        """See `Detector.code_modules`; includes the members' adapter."""
        return (*super().code_modules, registry.get(self.of).__module__)

    @property
    def network(self) -> Any:
        """See `Detector.network`: the networks of all members."""
        return [member.network for member in self.members]

    @cached_property
    def _header(self) -> Header:
        headers = [member.header() for member in self.members]
        first = headers[0]
        for header in headers[1:]:
            if header.classes != first.classes or header.activation != first.activation:
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
        if self.kind == "ensemble":
            members_regions = [member.forward(prepared, image_ids) for member in self.members]
            detections_by_image = detections_of_members(members_regions, image_ids)
        else:
            passes = [
                Dropout(self.rate, self.seed, number, image_ids, self.where)
                for number in range(self.passes)
            ]
            replay: Any = recomputable(self.members[0]).replay(prepared)
            if self.merge == "candidates":
                merged = merge_candidates(self._header, replay, passes)
                return merged_regions(self._header, merged, image_ids)
            detections_by_image = detections_of_passes(self._header, replay, passes)

        merged = [
            merge_clusters(self._header, detections, self.iou, self.min_detections)
            for detections in detections_by_image
        ]
        return merged_regions(self._header, merged, image_ids)


@plain_dataclass(frozen=True)
class ImageDetections:
    """N detections of one pass or one member in one image.

    Args:
        logits: Shape (N, K).
        boxes: Corners, shape (N, 4).
        labels: Shape (N,).
    """

    logits: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray


@plain_dataclass
class Merged:
    """N merged detections of one image.

    Args:
        labels: Shape (N,).
        counts: Number of detections that each was merged from, shape (N,).
        moments: Moments of their logits and boxes.
    """

    labels: np.ndarray
    counts: np.ndarray
    moments: Moments


def clusters(boxes: np.ndarray, labels: np.ndarray, iou: float) -> np.ndarray:
    """Clusters of detections of which any two share the label and overlap by at least `iou`.

    Clusters are joined as long as all pairs of the result overlap so much (complete linkage), the
    closest first.

    Args:
        boxes: Corners, shape (N, 4).
        labels: Shape (N,).
        iou: Smallest IoU of two detections of a cluster.

    Returns:
        Number of each detection's cluster, from 0, shape (N,), int64.
    """
    cluster_of_row = np.zeros(len(labels), np.int64)
    cluster_count = 0
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        clusters_from_1 = np.ones(len(rows), np.int64)
        if len(rows) > 1:
            label_boxes = torch.from_numpy(boxes[rows].astype(np.float64))
            distances = 1 - box_iou(label_boxes, label_boxes).numpy()
            condensed = distances[np.triu_indices(len(rows), 1)]
            tree = linkage(condensed, "complete")
            clusters_from_1 = fcluster(tree, 1 - iou + 1e-9, "distance")
        cluster_of_row[rows] = cluster_count + clusters_from_1 - 1
        cluster_count += int(clusters_from_1.max())
    return cluster_of_row


def merge_clusters(
    header: Header, detections: Sequence[ImageDetections], iou: float, min_detections: int
) -> Merged:
    """Merges detections of one image that overlap and share the label.

    See Miller et al. 2018, arXiv:1710.06677.

    Args:
        header: Header of the detections.
        detections: Those of each pass.
        iou: See `clusters`.
        min_detections: Clusters of fewer detections are left out.
    """
    logits = np.concatenate([pass_detections.logits for pass_detections in detections])
    boxes = np.concatenate([pass_detections.boxes for pass_detections in detections])
    labels = np.concatenate([pass_detections.labels for pass_detections in detections])
    _, cluster_of_row, counts = np.unique(
        clusters(boxes, labels, iou), return_inverse=True, return_counts=True
    )

    # The merged detection of each cluster, −1 for clusters that are left out.
    large_clusters = np.flatnonzero(counts >= min_detections)
    merged_of_cluster = np.full(len(counts), -1)
    merged_of_cluster[large_clusters] = np.arange(len(large_clusters))
    merged_of_row = merged_of_cluster[cluster_of_row]

    # The n-th detections of all clusters are added to the moments together.
    rank = _rank_within(cluster_of_row, counts)
    moments = Moments(header)
    first_rows = np.zeros(len(large_clusters), np.int64)
    for number in range(int(counts[large_clusters].max(initial=1))):
        rows = np.flatnonzero((rank == number) & (merged_of_row >= 0))
        rows = rows[np.argsort(merged_of_row[rows])]
        if number == 0:
            first_rows = rows
            moments.add(logits[rows], boxes[rows])
        else:
            moments.add(logits[rows], boxes[rows], merged_of_row[rows])
    return Merged(labels[first_rows], counts[large_clusters], moments)


def _rank_within(cluster_of_row: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Rank of each detection within its cluster, from 0, shape (N,).

    Args:
        cluster_of_row: Number of each detection's cluster, shape (N,).
        counts: Number of detections of each cluster.
    """
    order = np.argsort(cluster_of_row, kind="stable")
    starts = np.cumsum(counts) - counts
    rank = np.empty(len(cluster_of_row), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(starts, counts)
    return rank


def merge_candidates(
    header: Header, replay: CandidateReplay, passes: Sequence[Dropout]
) -> list[Merged]:
    """Averages the candidates of each image over passes with dropout, and then detects.

    Candidates are all proposals, anchors or queries.
    """
    candidates_by_pass = [replay.candidates(dropout) for dropout in passes]
    merged = []
    for number, candidates in enumerate(zip(*candidates_by_pass, strict=True)):
        moments = Moments(header)
        probabilities = sum(
            moments.probabilities(pass_candidates.logits.double().cpu().numpy())
            for pass_candidates in candidates
        )
        mean_boxes = torch.stack([pass_candidates.boxes for pass_candidates in candidates]).mean(0)
        scores = torch.from_numpy(probabilities / len(passes)).to(mean_boxes)
        selected = replay.select(number, scores, mean_boxes)
        for pass_candidates in candidates:
            boxes = replay.placed(number, pass_candidates.boxes, selected.rows, selected.labels)
            moments.add(pass_candidates.logits[selected.rows].cpu().numpy(), boxes.cpu().numpy())
        labels = selected.labels.cpu().numpy()
        merged.append(Merged(labels, np.full(len(labels), len(passes)), moments))
    return merged


def detections_of_passes(
    header: Header, replay: CandidateReplay, passes: Sequence[Dropout]
) -> list[list[ImageDetections]]:
    """The detections of each pass with dropout: for each image, a list with one item per pass."""
    moments = Moments(header)
    detections_by_image: list[list[ImageDetections]] = []
    for dropout in passes:
        for number, candidates in enumerate(replay.candidates(dropout)):
            probabilities = moments.probabilities(candidates.logits.double().cpu().numpy())
            scores = torch.from_numpy(probabilities).to(candidates.boxes)
            selected = replay.select(number, scores, candidates.boxes)
            detections = ImageDetections(
                logits=candidates.logits[selected.rows].cpu().numpy(),
                boxes=selected.boxes.cpu().numpy(),
                labels=selected.labels.cpu().numpy(),
            )
            if number == len(detections_by_image):
                detections_by_image.append([])
            detections_by_image[number].append(detections)
    return detections_by_image


def detections_of_members(
    members: Sequence[Regions], image_ids: Sequence[str]
) -> list[list[ImageDetections]]:
    """The detections of each member: for each image, a list with one item per member."""
    detections_by_image = []
    for image_id in image_ids:
        detections = []
        for regions in members:
            rows = regions[np.asarray(regions.image_id) == image_id]
            detections.append(ImageDetections(rows.logits, rows.box, rows.label))
        detections_by_image.append(detections)
    return detections_by_image


def merged_regions(header: Header, merged: Sequence[Merged], image_ids: Sequence[str]) -> Regions:
    """The merged detections of all images, best first: mean boxes, and mean probabilities."""
    names: list[str] = []
    parts: dict[str, list[np.ndarray]] = {}
    for image_id, detections in zip(image_ids, merged, strict=True):
        columns = _merged_columns(header, detections)
        order = np.argsort(-columns["score"], kind="stable")
        names += [image_id] * len(order)
        for name, values in columns.items():
            parts.setdefault(name, []).append(values[order])
    columns = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return Regions(
        header=header, image_id=np.array(names, object), region_id=np.arange(len(names)), **columns
    )


def _merged_columns(header: Header, detections: Merged) -> dict[str, np.ndarray]:
    """Columns of the merged detections of one image."""
    columns = detections.moments.columns()
    probabilities = columns.pop("mean_probabilities").astype(np.float64)
    probabilities = probabilities.clip(SMALLEST_PROBABILITY, 1)
    logits = np.log(probabilities)
    if header.activation == "sigmoid":
        logits = logits - np.log1p(-probabilities.clip(max=1 - 1e-7))
    columns["logits"] = logits
    columns["box"] = detections.moments.boxes
    columns["score"] = probabilities[np.arange(len(probabilities)), detections.labels]
    columns["label"] = detections.labels
    columns["detections"] = detections.counts
    return columns
