"""What the proposals of a run find of the unknown objects that its detections miss."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from farther.detectors.proposals import NetworkSource, SecondDetector, Source
from farther.errors import DataError
from farther.evaluation import intervals
from farther.evaluation.files import RunFiles, RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import Interval, MetricValues, Stored, read_results
from farther.evaluation.reviewed_images import (
    REVIEWED,
    check_reviewed,
    reviewed_file,
    with_unlabelled,
)
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.with_proposals import CalledIn, MethodWithProposals, ResultsWithProposals
from farther.metrics.matching.boxes import AREA_RANGES, image_numbers, is_among
from farther.metrics.open_set.outcomes import MatchingRules
from farther.metrics.open_set.proposals import (
    Recovery,
    average_recall,
    beside,
    best_of_each_image,
    thresholds,
)
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.metrics.weighting import plain
from farther.tables import Regions, RegionsFolder
from farther.tables.folders import listed

#: Points of the curve that the report draws, per source and distance.
POINTS = 60


class FrocPoint(Stored):
    """A FROC curve at a rate of false alarms: shares of unknown objects that are recovered, and still missed."""

    alarms: float
    recovered: float | None
    still_missed: float | None
    interval: Interval = None


class RecoveredObjects(MetricValues):
    """Unknown objects of a split, or of all splits of a distance.

    `values` has `objects`, `missed`, `still_missed` and `recovered` at τ_o, and AR@k (`ar@10`,
    `ar@100`, by size).

    Args:
        froc: At each rate asked for.
        curve: Alarms per ID image and share still missed, for drawing.
        by_size: {size: objects, missed and still missed, as shares}.
        by_category: The same of each category.
    """

    froc: list[FrocPoint] = Field(default_factory=list)
    curve: list[tuple[float, float]] = Field(default_factory=list)
    by_size: dict[str, dict[str, float | None]] = Field(default_factory=dict)
    by_category: dict[str, dict[str, float | None]] = Field(default_factory=dict)


class SourceResults(Stored):
    """A source of proposals, which are called unknown by their objectness alone.

    Args:
        kind: Of the source.
        rule: "objectness": in all ID images; "reviewed": without those in which reviewers saw
            unlabelled objects.
        threshold: τ_o, chosen on the calibration split for the rate of false alarms asked for;
            None: all proposals.
        alarms: False alarms per image of the ID test split at τ_o.
        alarms_interval: Its 95% interval.
        proposals: Proposals per image of the ID test split that lie on no detection.
        splits: By OOD split.
        distances: By distance: near, far, farther.
        methods: Method → OOD split → metrics of detections and proposals together, which are stored
            apart (`farther.evaluation.with_proposals.KeptMethod`); {} where the rule is "reviewed".
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
    """The content of `recovered/<run>/results.json`: the rate that τ_o is chosen for, a match's IoU, and each source.

    A source that is also measured without ID images that show unlabelled objects has a second
    entry, "<source>, reviewed".
    """

    asked_alarms: float
    iou: float
    sources: dict[str, SourceResults]


def read_recovered(files: RunFiles) -> RecoveredRun | None:
    """What a run's proposals find, by themselves and with each method; None where it has none.

    Args:
        files: Paths of the run's files.

    Raises:
        DataError: a file is damaged.
    """
    if not files.recovered.is_file():
        return None
    recovered = read_results(
        RecoveredRun, files.recovered, f"run `farther repro proposals@{files.run}`"
    )
    advice = f"run `farther repro with_proposals@{files.run}`"
    for file in listed(files.all_with_proposals, "*.json"):
        results = read_results(ResultsWithProposals, file, advice)
        for source, splits in results.sources.items():
            recovered.sources[source].methods[file.stem] = splits
    return recovered


@dataclass(frozen=True)
class Proposed:
    """A split with the proposals of one source that lie on no detection.

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
        """The images that count."""
        return self.split.images.difference(self.left_out)

    @cached_property
    def alarms(self) -> Regions:
        """The proposals that lie on no detection."""
        alarms = self.proposals[beside(self.proposals, self.detections, self.iou)]
        return alarms[~is_among(alarms.image_id, self.left_out)] if self.left_out else alarms

    def recovery(self) -> Recovery:
        """Its unknown objects; see `Recovery`."""
        rules = MatchingRules(self.iou, known_classes=self.split.known_classes)
        return Recovery.of(self.split.objects, self.detections, self.proposals, rules)

    def called(self, tau: float) -> CalledIn:
        """The proposals on no detection that are above τ_o."""
        return CalledIn.of(self.split, self.detections, self.proposals, tau, self.iou)


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
            `CalledProposals`.

    Raises:
        DataError: an input is absent or wrong.
    """
    inputs = RunInputs(files, files.roles, settings)
    splits: dict[str, RunSplit] = {
        settings.calibration_split: RunSplit(files, settings.calibration_split)
    }
    splits |= {split.name: split for split in (inputs.id_split, *inputs.tested)}
    detections = {name: split.regions(inputs.threshold) for name, split in splits.items()}

    id_splits = (settings.calibration_split, settings.id_split)
    decisions = reviewed_file(files.benchmark, files.root.parent)
    check_reviewed(
        decisions, {name: splits[name].table.image_id for name in id_splits if name in splits}
    )
    unlabelled = with_unlabelled(decisions, id_splits)

    results_by_source = {}
    for name, source in sources.items():
        proposed_by_split = {}
        for split_name, split in splits.items():
            proposals = read_proposals(files, name, source, split_name, others)
            proposed = Proposed(split, detections[split_name], proposals, settings.iou)
            proposed_by_split[split_name] = proposed

        results = _source(source.name, proposed_by_split, files, settings)
        results_by_source[name] = results

        if tables is not None:
            called_splits = (inputs.id_split, *inputs.tested)
            with_boxes = [split.name for split in called_splits if split.has_boxes]
            _write_called(tables / name, proposed_by_split, with_boxes, results.threshold)

        if unlabelled is not None:
            reviewed_by_split = {}
            for split_name, proposed in proposed_by_split.items():
                left_out = unlabelled.get(split_name, ())
                reviewed_by_split[split_name] = replace(proposed, left_out=left_out)
            reviewed = _source(source.name, reviewed_by_split, files, settings)
            reviewed.rule = REVIEWED
            results_by_source[f"{name}, {REVIEWED}"] = reviewed

    return RecoveredRun(
        asked_alarms=settings.proposals.alarms,
        iou=settings.iou,
        sources=results_by_source,
    )


def _write_called(
    folder: Path,
    proposed_by_split: Mapping[str, Proposed],
    splits: Sequence[str],
    threshold: float | None,
) -> None:
    """Writes the proposals that are called unknown, `<split>.parquet`, of some splits.

    Args:
        folder: Of the source.
        proposed_by_split: The splits with the source's proposals.
        splits: Names of the splits to write.
        threshold: τ_o; None where all proposals are called unknown.
    """
    tau = -np.inf if threshold is None else threshold
    for split_name in splits:
        proposed = proposed_by_split[split_name]
        table = proposed.called(tau).table(proposed.split)
        table.write(folder / f"{split_name}.parquet")


def read_proposals(
    files: RunFiles,
    name: str,
    source: Source,
    split: str,
    others: Callable[[str], RunFiles] | None = None,
) -> Regions:
    """The proposals of a source in a split: those stored, or what another run detects there.

    Args:
        files: Paths of the run's files.
        name: Of the source.
        source: The source.
        split: Name of the split.
        others: Files of another run, by its name; needed for `second_detector`.

    Raises:
        DataError: their folder is absent or damaged.
    """
    if isinstance(source, NetworkSource):
        return _read(files.proposals(name, split))
    if not isinstance(source, SecondDetector):
        return suppressed(_read(files.proposals(name, split)), source)
    if others is None:
        raise DataError(f"the files of run {source.run!r} are needed")
    return suppressed(_read(others(source.run).regions(split)), source)


def _read(path: Path) -> Regions:
    """Regions of a folder without logits and further columns."""
    folder = RegionsFolder(path)
    parts = []
    for batch in folder.batches([]):
        without_logits = batch.frame.drop("logits", strict=False)
        parts.append(batch.with_frame(without_logits))
    if not parts:
        return Regions.empty(folder.header)
    return Regions.concatenate(parts)


def suppressed(regions: Regions, source: Source) -> Regions:
    """Detections as proposals: the better one of two that overlap, whatever their classes, the best of each image.

    Args:
        regions: Detections.
        source: Largest number per image, overlap, and the smallest side.
    """
    import torch
    from torchvision.ops import batched_nms

    sides = regions.box[:, 2:] - regions.box[:, :2]
    large = regions[sides.min(axis=1) >= source.smallest]
    _, (image,) = image_numbers(large.image_id)
    box, score = (
        torch.from_numpy(large.box.astype(np.float64)),
        torch.from_numpy(large.score.astype(np.float64)),
    )
    kept = large[np.sort(batched_nms(box, score, torch.from_numpy(image), source.iou).numpy())]
    return kept[best_of_each_image(kept, source.most)]


def _source(
    kind: str, tables: Mapping[str, Proposed], files: RunFiles, settings: EvaluationSettings
) -> SourceResults:
    """Results of a source whose proposals are read."""
    asked, roles = settings.proposals, files.roles
    calibration, id_split = tables[settings.calibration_split], tables[settings.id_split]
    tau = float(thresholds(calibration.alarms.score, [asked.alarms], len(calibration.images))[0, 0])
    alarms, images = id_split.alarms, len(id_split.images)
    id_draws = settings.draws(id_split.images)
    above = alarms.score > tau
    counted = [name for name in roles.test if name in tables and tables[name].split.has_boxes]
    recoveries = {name: tables[name].recovery() for name in counted}
    found = {}
    for name in counted:
        one = tables[name]
        results = _objects(
            recoveries[name], one.split.images, alarms, id_draws, images, tau, settings
        )
        recall = average_recall(
            one.split.objects, one.proposals, known_classes=one.split.known_classes
        )
        found[name] = results.model_copy(update={"values": {**results.values, **recall}})
    by_distance = {}
    for distance in dict.fromkeys(roles.distance[name] for name in counted):
        members = [name for name in counted if roles.distance[name] == distance]
        every = [f"{name}/{image}" for name in members for image in tables[name].split.images]
        joined = Recovery.joined([(name, recoveries[name]) for name in members])
        by_distance[distance] = _objects(joined, every, alarms, id_draws, images, tau, settings)
    drawn = None if id_draws is None else id_draws.rows(alarms.image_id[above]).total() / images
    return SourceResults(
        kind=kind,
        threshold=None if np.isinf(tau) else tau,
        alarms=float(above.sum()) / images,
        alarms_interval=None if drawn is None else intervals.within({"alarms": drawn})["alarms"],
        proposals=len(alarms) / images,
        splits=found,
        distances=by_distance,
    )


def _objects(
    objects: Recovery,
    names: Sequence[str] | frozenset[str],
    alarms: Regions,
    id_draws: ImageDraws | None,
    images: int,
    tau: float,
    settings: EvaluationSettings,
) -> RecoveredObjects:
    """What is recovered of some objects, in images of these names."""
    rates = settings.proposals.rates
    at_rates = thresholds(alarms.score, rates, images)[:, 0]
    values = plain(objects.found(np.array([tau])))
    froc = [plain(objects.found(np.array([one]))) for one in at_rates]
    within: dict[str, Interval] = {}
    of_rates: list[Interval] = [None] * len(rates)
    if id_draws is not None:
        draws = settings.draws(names, settings.seed + 1)
        assert draws is not None
        place = draws.places(objects.image_id)
        drawn = objects.found(np.full(settings.replicates, tau), draws.weights, place)
        within = intervals.within(drawn)
        each = thresholds(
            alarms.score, rates, images, id_draws.weights, id_draws.places(alarms.image_id)
        )
        for k, of_rate in enumerate(each):
            still = objects.found(of_rate, draws.weights, place)["still_missed"]
            of_rates[k] = intervals.within({"still_missed": still})["still_missed"]
    points = [
        FrocPoint(
            alarms=rate,
            recovered=one["recovered"],
            still_missed=one["still_missed"],
            interval=interval,
        )
        for rate, one, interval in zip(rates, froc, of_rates, strict=True)
    ]
    return RecoveredObjects(
        values={"objects": len(objects.missed), **values},
        intervals=within,
        froc=points,
        curve=_curve(objects, alarms.score, images, max(rates)),
        by_size={name: _part(objects[objects.size == name], tau) for name in AREA_RANGES},
        by_category={
            str(name): _part(objects[objects.category == name], tau)
            for name in np.unique(objects.category.astype(str))
        },
    )


def _part(objects: Recovery, tau: float) -> dict[str, float | None]:
    found = plain(objects.found(np.array([tau])))
    return {
        "objects": len(objects.missed),
        "missed": found["missed"],
        "still_missed": found["still_missed"],
    }


def _curve(
    objects: Recovery, alarms: np.ndarray, images: int, most: float
) -> list[tuple[float, float]]:
    """Alarms per image and share still missed, from none to the largest rate."""
    if not len(objects.missed):
        return []
    asked = [0.0, *(np.geomspace(min(0.01, most / 10), most, POINTS - 1).tolist() if most else ())]
    at = thresholds(alarms, asked, images)[:, 0]
    still = [plain(objects.found(np.array([one])))["still_missed"] for one in at]
    return [(round(rate, 5), round(share, 6)) for rate, share in zip(asked, still, strict=True)]
