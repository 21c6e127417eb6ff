"""Unknown objects that a run's detections miss and its proposals recover."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from farther.detectors.proposal_sources import NetworkSource, SecondDetector, Source
from farther.errors import DataError
from farther.evaluation import intervals
from farther.evaluation.files import RunFiles, RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import (
    Interval,
    MetricValues,
    ProposalDrawings,
    SourceDrawings,
    Stored,
    read_results,
)
from farther.evaluation.reviewed_images import (
    REVIEWED,
    check_reviewed,
    reviewed_file,
    with_unlabelled,
)
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.with_proposals import (
    MethodWithProposals,
    ResultsWithProposals,
    UnknownProposals,
)
from farther.metrics.matching.boxes import AREA_RANGES, image_numbers, is_among, pairs
from farther.metrics.open_set.outcomes import MatchingRules
from farther.metrics.open_set.proposals import (
    Recovery,
    apart_from_detections,
    average_recall,
    best_of_each_image,
    thresholds,
)
from farther.metrics.statistics import bootstrap
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.weighting import plain
from farther.tables import Regions, RegionsFolder
from farther.tables.folders import listed

#: Points of the curve that the report draws, per source and distance.
POINTS = 60


class FrocPoint(Stored):
    """A point of a FROC curve.

    Args:
        alarms: False alarms per ID image.
        recovered, still_missed: Shares of the unknown objects.
        interval: 95% interval of `still_missed`.
    """

    alarms: float
    recovered: float | None
    still_missed: float | None
    interval: Interval = None


class RecoveredObjects(MetricValues):
    """Unknown objects of a split, or of all splits of a distance.

    `values` has `objects`, `missed`, `still_missed` and `recovered` at τ_o, and AR@k (`ar@10`,
    `ar@100`, by size).

    Args:
        froc: The FROC curve at each rate of the settings.
        curve: False alarms per ID image and share still missed, for drawing.
        by_size: Size → number of objects, and the shares missed and still missed.
        by_category: Category → number of objects, and the shares missed and still missed.
    """

    froc: list[FrocPoint] = Field(default_factory=list)
    curve: list[tuple[float, float]] = Field(default_factory=list)
    by_size: dict[str, dict[str, float | None]] = Field(default_factory=dict)
    by_category: dict[str, dict[str, float | None]] = Field(default_factory=dict)


class SourceResults(Stored):
    """A source of proposals, which are called unknown by their objectness alone.

    Args:
        kind: Kind of the source.
        rule: "objectness": in all ID images; "reviewed": without those in which reviewers saw
            unlabelled objects.
        threshold: τ_o, chosen on the calibration split for the rate of false alarms of the
            settings; None where all proposals are called unknown.
        alarms: False alarms per image of the ID test split at τ_o.
        alarms_interval: Its 95% interval.
        proposals: Proposals per image of the ID test split that lie on no detection.
        splits: Recovered objects by OOD split.
        distances: Recovered objects by distance: near, far, farther.
        methods: Method → OOD split → metrics of detections and proposals together, which are stored
            apart (`farther.evaluation.with_proposals.ResultsWithProposals`); {} where the rule is
            "reviewed".
    """

    kind: str
    rule: Literal["objectness", "reviewed"] = "objectness"
    threshold: float | None
    alarms: float
    alarms_interval: Interval = None
    proposals: float
    splits: dict[str, RecoveredObjects]
    distances: dict[str, RecoveredObjects]
    methods: dict[str, dict[str, MethodWithProposals]] = Field(default_factory=dict)


class RecoveredRun(Stored):
    """The content of `recovered/<run>/results.json`.

    Args:
        asked_alarms: The rate of false alarms that τ_o is chosen for.
        iou: Smallest IoU of a match.
        sources: Results by source. A source that is also measured without ID images that show
            unlabelled objects has a second entry, "<source>, reviewed".
    """

    asked_alarms: float
    iou: float
    sources: dict[str, SourceResults]

    @property
    def drawings(self) -> ProposalDrawings:
        """What is drawn of them."""
        sources = {}
        for name, source in self.sources.items():
            curves = {}
            for distance, objects in source.distances.items():
                curves[distance] = objects.curve
            sources[name] = SourceDrawings(kind=source.kind, rule=source.rule, curves=curves)
        return ProposalDrawings(asked_alarms=self.asked_alarms, sources=sources)

    def summary(self) -> str:
        """Fraction of missed objects with and without each source, over all distances."""
        sentences = []
        for name, source in self.sources.items():
            objects = 0.0
            missed = 0.0
            still_missed = 0.0
            for distance in source.distances.values():
                count = distance.values["objects"] or 0
                objects += count
                missed += (distance.values["missed"] or 0) * count
                still_missed += (distance.values["still_missed"] or 0) * count
            if objects:
                before = missed / objects
                after = still_missed / objects
                sentences.append(
                    f"{name}: {before:.1%} of {objects:.0f} unknown objects missed, "
                    f"{after:.1%} with proposals"
                )
        return "; ".join(sentences) or "no unknown objects, or all are crowds or difficult"


def read_recovered(files: RunFiles) -> RecoveredRun | None:
    """Results of a run's proposals, by themselves and with each method; None without proposals.

    Args:
        files: Paths of the run's files.

    Raises:
        DataError: a file is damaged.
    """
    if not files.recovered.is_file():
        return None
    recovered = read_results(RecoveredRun, files.recovered, "run `farther repro evaluate`")
    advice = "run `farther repro evaluate`"
    for file in listed(files.all_with_proposals, "*.json"):
        results = read_results(ResultsWithProposals, file, advice)
        for source, splits in results.sources.items():
            recovered.sources[source].methods[file.stem] = splits
    return recovered


@dataclass(frozen=True)
class SourceOnSplit:
    """A split with the proposals of one source.

    Args:
        split: Images and objects of the split.
        detections: Detections at or above t*.
        proposals: All proposals.
        iou: IoU from which on a proposal lies on a detection.
        left_out: Images that do not count for false alarms.
    """

    split: RunSplit
    detections: Regions
    proposals: Regions
    iou: float
    left_out: Collection[str] = frozenset()

    @property
    def images(self) -> frozenset[str]:
        """The images that count for false alarms."""
        return self.split.images.difference(self.left_out)

    @cached_property
    def alarms(self) -> Regions:
        """The proposals that lie on no detection, in the images that count."""
        alarms = self.proposals[apart_from_detections(self.proposals, self.detections, self.iou)]
        if not self.left_out:
            return alarms
        return alarms[~is_among(alarms.image_id, self.left_out)]

    def recovery(self) -> Recovery:
        """The unknown objects, and the proposals that find them; see `Recovery`."""
        rules = MatchingRules(self.iou, known_classes=self.split.known_classes)
        return Recovery.of(self.split.objects, self.detections, self.proposals, rules)

    def average_recall(self) -> dict[str, float | None]:
        """AR@k of the proposals; see `farther.metrics.open_set.proposals.average_recall`."""
        return average_recall(
            self.split.objects, self.proposals, known_classes=self.split.known_classes
        )

    def called_unknown(self, tau: float) -> UnknownProposals:
        """The proposals above τ_o that lie on no detection."""
        return UnknownProposals.of(self.split, self.detections, self.proposals, tau, self.iou)


def evaluate_proposals(
    files: RunFiles,
    sources: Mapping[str, Source],
    settings: EvaluationSettings,
    others: Callable[[str], RunFiles] | None = None,
    tables: Path | None = None,
) -> RecoveredRun:
    """Evaluates a run's sources of proposals on all OOD splits with annotated objects.

    Args:
        files: Paths of the run's files.
        sources: Its sources, by name.
        settings: How runs are evaluated.
        others: Files of another run, by its name; needed for `second_detector`.
        tables: Folder for the proposals that are called unknown, `<source>/<split>.parquet`; see
            `UnknownProposalTable`.

    Raises:
        DataError: an input is absent or wrong.
    """
    inputs = RunInputs(files, files.roles, settings)
    calibration_split = RunSplit(files, settings.calibration_split)
    splits: dict[str, RunSplit] = {calibration_split.name: calibration_split}
    for split in (inputs.id_split, *inputs.tested):
        splits[split.name] = split
    detections_by_split = {name: split.regions(inputs.threshold) for name, split in splits.items()}
    unlabelled_images = _unlabelled_images(files, splits, settings)

    results_by_source = {}
    for name, source in sources.items():
        on_splits = {}
        for split_name, split in splits.items():
            proposals = read_proposals(files, name, source, split_name, others)
            detections = detections_by_split[split_name]
            on_splits[split_name] = SourceOnSplit(split, detections, proposals, settings.iou)

        results = _evaluate_source(source.name, on_splits, files, settings)
        results_by_source[name] = results

        if tables is not None:
            stored_splits = [inputs.id_split, *inputs.tested]
            with_boxes = [split.name for split in stored_splits if split.has_boxes]
            _write_called(tables / name, on_splits, with_boxes, results.threshold)

        if unlabelled_images is not None:
            reviewed_splits = {}
            for split_name, on_split in on_splits.items():
                left_out = unlabelled_images.get(split_name, ())
                reviewed_splits[split_name] = replace(on_split, left_out=left_out)
            reviewed = _evaluate_source(source.name, reviewed_splits, files, settings)
            reviewed.rule = REVIEWED
            results_by_source[f"{name}, {REVIEWED}"] = reviewed

    return RecoveredRun(
        asked_alarms=settings.proposals.alarms,
        iou=settings.iou,
        sources=results_by_source,
    )


def _unlabelled_images(
    files: RunFiles, splits: Mapping[str, RunSplit], settings: EvaluationSettings
) -> dict[str, set[str]] | None:
    """ID images in which reviewers saw unlabelled objects, by split; None without such images.

    Raises:
        DataError: decisions are about images that a split does not have, or are damaged.
    """
    decisions = reviewed_file(files.benchmark, files.root.parent)
    id_splits = (settings.calibration_split, settings.id_split)
    check_reviewed(decisions, {name: splits[name].table.image_id for name in id_splits})
    return with_unlabelled(decisions, id_splits)


def _write_called(
    folder: Path,
    on_splits: Mapping[str, SourceOnSplit],
    splits: Sequence[str],
    threshold: float | None,
) -> None:
    """Writes the proposals that are called unknown, `<split>.parquet`, of some splits.

    Args:
        folder: Folder of the source.
        on_splits: The splits with the source's proposals.
        splits: Names of the splits to write.
        threshold: τ_o; None where all proposals are called unknown.
    """
    tau = -np.inf if threshold is None else threshold
    for split_name in splits:
        on_split = on_splits[split_name]
        table = on_split.called_unknown(tau).table(on_split.split)
        table.write(folder / f"{split_name}.parquet")


def read_proposals(
    files: RunFiles,
    name: str,
    source: Source,
    split: str,
    others: Callable[[str], RunFiles] | None = None,
) -> Regions:
    """The proposals of a source in a split: those stored, or another run's detections.

    Args:
        files: Paths of the run's files.
        name: Name of the source.
        source: The source.
        split: Name of the split.
        others: Files of another run, by its name; needed for `second_detector`.

    Raises:
        DataError: their folder is absent or damaged.
    """
    if isinstance(source, NetworkSource):
        return _read(files.proposals(name, split))
    if not isinstance(source, SecondDetector):
        return class_agnostic_nms(_read(files.proposals(name, split)), source)
    if others is None:
        raise DataError(f"the files of run {source.run!r} are needed")
    return class_agnostic_nms(_read(others(source.run).regions(split)), source)


def _read(path: Path) -> Regions:
    """Regions of a folder without logits and further columns."""
    folder = RegionsFolder(path)
    batches = []
    for batch in folder.batches([]):
        without_logits = batch.frame.drop("logits", strict=False)
        batches.append(batch.with_frame(without_logits))
    if not batches:
        return Regions.empty(folder.header)
    return Regions.concatenate(batches)


def class_agnostic_nms(regions: Regions, source: Source) -> Regions:
    """Detections as proposals: the best of each image after NMS across classes.

    Args:
        regions: Detections.
        source: Largest number per image, overlap, and the smallest side.
    """
    sides = regions.box[:, 2:] - regions.box[:, :2]
    large = regions[sides.min(axis=1) >= source.smallest]
    _, (image,) = image_numbers(large.image_id)
    proposals = large[_rows_after_nms(large, image, source.iou)]
    return proposals[best_of_each_image(proposals, source.most)]


def _rows_after_nms(regions: Regions, image: np.ndarray, iou: float) -> np.ndarray:
    """Rows of the regions that NMS within each image leaves, ascending.

    As `torchvision.ops.nms` of boxes in float64, without PyTorch, whose import takes longer.

    Args:
        regions: The regions.
        image: Number of the image of each, ndarray of shape (N,).
        iou: A region that overlaps a better one that stays by more is left out.
    """
    rank = np.empty(len(regions), np.int64)
    rank[np.argsort(-regions.score.astype(np.float64), kind="stable")] = np.arange(len(regions))
    is_crowd = np.zeros(len(regions), bool)
    overlapping = pairs(regions.box, image, regions.box, image, is_crowd, iou)
    is_worse = rank[overlapping.target] > rank[overlapping.region]
    overlapping = overlapping[is_worse & (overlapping.overlap > iou)]
    overlapping = overlapping[np.argsort(rank[overlapping.region], kind="stable")]

    # When its pairs come, a region can be left out by no further one: better ones came before.
    stays = [True] * len(regions)
    for better, worse in zip(overlapping.region.tolist(), overlapping.target.tolist(), strict=True):
        if stays[better]:
            stays[worse] = False
    return np.flatnonzero(stays)


@dataclass(frozen=True)
class _FalseAlarms:
    """Proposals of a source in the images of the ID test split that lie on no detection.

    Args:
        objectness: ndarray of shape (F,).
        image_id: Their images, object array of shape (F,).
        images: Number of the ID images that count.
        draws: Draws of the ID images; None without replicates.
        tau: τ_o, above which a proposal is called unknown.
    """

    objectness: np.ndarray
    image_id: np.ndarray
    images: int
    draws: ImageDraws | None
    tau: float

    @property
    def per_image(self) -> float:
        """False alarms per image at τ_o."""
        return float((self.objectness > self.tau).sum()) / self.images

    def per_image_interval(self) -> Interval:
        """95% interval of `per_image`; None without replicates.

        Without a false alarm it is that of the share of images with one.
        """
        if self.draws is None:
            return None
        alarms = self.draws.rows(self.image_id[self.objectness > self.tau])
        images = self.images if self.per_image == 0 else None
        return bootstrap.interval(alarms.total() / self.images, value=self.per_image, images=images)

    def thresholds(self, rates: Sequence[float]) -> np.ndarray:
        """τ_o at each rate of false alarms per image, ndarray of shape (rates,)."""
        return thresholds(self.objectness, rates, self.images)[:, 0]

    def drawn_thresholds(self, rates: Sequence[float], draws: ImageDraws) -> np.ndarray:
        """τ_o at each rate in each replicate, ndarray of shape (rates, B)."""
        columns = draws.places(self.image_id)
        return thresholds(self.objectness, rates, self.images, draws.weights, columns)


def _evaluate_source(
    kind: str,
    on_splits: Mapping[str, SourceOnSplit],
    files: RunFiles,
    settings: EvaluationSettings,
) -> SourceResults:
    """Results of a source whose proposals are read."""
    roles = files.roles
    false_alarms = _false_alarms(on_splits, settings)
    with_boxes = {}
    for name in roles.test:
        if name in on_splits and on_splits[name].split.has_boxes:
            with_boxes[name] = on_splits[name]
    recoveries = {name: on_split.recovery() for name, on_split in with_boxes.items()}

    results_by_split = {}
    for name, on_split in with_boxes.items():
        images = on_split.split.images
        results = _recovered_objects(recoveries[name], images, false_alarms, settings)
        values = {**results.values, **on_split.average_recall()}
        results_by_split[name] = results.model_copy(update={"values": values})

    results_by_distance = {}
    for distance in dict.fromkeys(roles.distance[name] for name in with_boxes):
        members = [name for name in with_boxes if roles.distance[name] == distance]
        names_of_images: list[str] = []
        for name in members:
            images = with_boxes[name].split.images
            names_of_images.extend(f"{name}/{image}" for image in images)
        joined = Recovery.joined([(name, recoveries[name]) for name in members])
        results_by_distance[distance] = _recovered_objects(
            joined, names_of_images, false_alarms, settings
        )

    return SourceResults(
        kind=kind,
        threshold=None if np.isinf(false_alarms.tau) else false_alarms.tau,
        alarms=false_alarms.per_image,
        alarms_interval=false_alarms.per_image_interval(),
        proposals=len(false_alarms.objectness) / false_alarms.images,
        splits=results_by_split,
        distances=results_by_distance,
    )


def _false_alarms(
    on_splits: Mapping[str, SourceOnSplit], settings: EvaluationSettings
) -> _FalseAlarms:
    """False alarms on the ID test split, with τ_o chosen on the calibration split."""
    calibration = on_splits[settings.calibration_split]
    rates = [settings.proposals.alarms]
    tau = thresholds(calibration.alarms.score, rates, len(calibration.images))[0, 0]

    id_split = on_splits[settings.id_split]
    return _FalseAlarms(
        objectness=id_split.alarms.score,
        image_id=id_split.alarms.image_id,
        images=len(id_split.images),
        draws=settings.draws(id_split.images),
        tau=float(tau),
    )


def _recovered_objects(
    recovery: Recovery,
    images: Collection[str],
    false_alarms: _FalseAlarms,
    settings: EvaluationSettings,
) -> RecoveredObjects:
    """Results on the unknown objects of some images.

    Args:
        recovery: The objects.
        images: Names of the images.
        false_alarms: False alarms on the ID test split.
        settings: How runs are evaluated.
    """
    tau = false_alarms.tau
    rates = settings.proposals.rates
    values = {"objects": len(recovery.missed), **_shares(recovery, tau)}
    images_with_objects = len(np.unique(recovery.image_id))
    replicates: dict[str, np.ndarray] = {}
    rate_shares = [_shares(recovery, rate_tau) for rate_tau in false_alarms.thresholds(rates)]
    rate_intervals: list[Interval] = [None] * len(rates)
    draws = settings.draws(images, settings.seed + 1)
    if draws is not None and false_alarms.draws is not None:
        columns = draws.places(recovery.image_id)
        replicates = recovery.missed_shares(
            np.full(settings.replicates, tau), draws.weights, columns
        )
        drawn_thresholds = false_alarms.drawn_thresholds(rates, false_alarms.draws)
        for number, rate_thresholds in enumerate(drawn_thresholds):
            rate_replicates = recovery.missed_shares(rate_thresholds, draws.weights, columns)
            rate_intervals[number] = bootstrap.interval(
                rate_replicates["still_missed"],
                value=rate_shares[number]["still_missed"],
                images=images_with_objects,
            )

    froc = []
    for rate, shares, interval in zip(rates, rate_shares, rate_intervals, strict=True):
        point = FrocPoint(
            alarms=rate,
            recovered=shares["recovered"],
            still_missed=shares["still_missed"],
            interval=interval,
        )
        froc.append(point)

    by_size = {}
    for size in AREA_RANGES:
        by_size[size] = _group_shares(recovery[recovery.size == size], tau)
    by_category = {}
    for category in np.unique(recovery.category.astype(str)):
        of_category = recovery[recovery.category == category]
        by_category[str(category)] = _group_shares(of_category, tau)

    return RecoveredObjects(
        values=values,
        **intervals.of_metrics(
            values,
            replicates,
            dict.fromkeys(("missed", "still_missed", "recovered"), images_with_objects),
        ),
        froc=froc,
        curve=_curve(recovery, false_alarms, max(rates)),
        by_size=by_size,
        by_category=by_category,
    )


def _shares(recovery: Recovery, tau: float) -> dict[str, float | None]:
    """Shares of objects that are missed, still missed and recovered at τ_o."""
    return plain(recovery.missed_shares(np.array([tau])))


def _group_shares(recovery: Recovery, tau: float) -> dict[str, float | None]:
    """Number of a group of objects, and the shares missed without and with proposals."""
    shares = _shares(recovery, tau)
    return {
        "objects": len(recovery.missed),
        "missed": shares["missed"],
        "still_missed": shares["still_missed"],
    }


def _curve(
    recovery: Recovery, false_alarms: _FalseAlarms, largest_rate: float
) -> list[tuple[float, float]]:
    """Alarms per image and share still missed, from no alarms to the largest rate."""
    if not len(recovery.missed):
        return []
    rates = [0.0]
    if largest_rate:
        smallest_rate = min(0.01, largest_rate / 10)
        rates.extend(np.geomspace(smallest_rate, largest_rate, POINTS - 1).tolist())

    points = []
    for rate, tau in zip(rates, false_alarms.thresholds(rates), strict=True):
        still_missed = _shares(recovery, tau)["still_missed"]
        assert still_missed is not None  # there are objects
        points.append((round(rate, 5), round(still_missed, 6)))
    return points
