"""Images, objects and detections of a run's split, with the outcomes from stage `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from farther.errors import DataError
from farther.evaluation.files import RunFiles, RunSplit
from farther.metrics.matching.boxes import is_among
from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.report.results import Run
from farther.tables import (
    ImageAttributes,
    Images,
    ObjectOutcomes,
    Objects,
    RegionOutcomes,
    RegionsFolder,
    Scores,
)
from farther.tables.files import is_file
from farther.tables.parquet import collected
from farther.tables.unknown_proposals import UnknownProposalTable

#: Columns that identify an object, and a region.
OBJECT = ["image_id", "object_id"]
REGION = ["image_id", "region_id"]


@dataclass(frozen=True)
class SplitOutcomes:
    """A split of a run.

    Args:
        split: Its name.
        threshold: The operating threshold t*.
        taus: Method → its threshold; of methods that have outcomes.
        detector: Makes the run self-aware.
        files: The run's files.
        classes: Names of the detector's classes.
        images: The images that the detector could read, in the order of the split's table.
        objects: Their objects.
        attributes: Attributes of the images, as `farther.tables.ImageAttributes`.
        detections: Their detections: image_id, region_id, box, label and confidence.
        proposals: Source of proposals → their columns; see
            `farther.tables.unknown_proposals.UnknownProposalTable`.
    """

    split: str
    threshold: float
    taus: Mapping[str, float]
    detector: SelfAwareDetector
    files: RunFiles
    classes: tuple[str, ...]
    images: pl.DataFrame
    objects: pl.DataFrame
    attributes: pl.DataFrame
    detections: pl.DataFrame
    proposals: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    @classmethod
    def read(cls, run: Run, split: str, artifacts: Path) -> SplitOutcomes:
        """Reads a split of a run whose evaluation is on this machine."""
        if run.description is None:
            raise ValueError(f"{run.name} has no evaluation")
        files = RunFiles(run.name, run.benchmark, artifacts)
        threshold = float(run.detector["threshold"] or 0)
        folder = RegionsFolder(files.regions(split), min_score=threshold)
        taus = {}
        for name in _methods(run, files, split):
            taus[name] = float(run.value("", name, "threshold", "tau") or 0)
        is_readable = _is_readable(folder)
        return cls(
            split=split,
            threshold=threshold,
            taus=taus,
            detector=run.description.self_awareness.detector,
            files=files,
            classes=folder.header.classes,
            images=Images.read(files.images(split)).frame.filter(is_readable),
            objects=Objects.read(files.objects(split)).frame.filter(is_readable),
            attributes=_read_attributes(files, split).frame.filter(is_readable),
            detections=collected(folder.scan().select(*REGION, "box", "label", confidence="score")),
            proposals=_read_proposals(run, files, split),
        )

    def of_images(self, images: pl.DataFrame) -> SplitOutcomes:
        """The same with some of the images only."""
        proposals = {}
        for name, rows in self.proposals.items():
            proposals[name] = _rows_of_images(rows, images)
        return replace(
            self,
            images=images,
            objects=_rows_of_images(self.objects, images),
            detections=_rows_of_images(self.detections, images),
            proposals=proposals,
        )

    @property
    def self_aware(self) -> SelfAwareDetector | None:
        """The run made self-aware (`farther.evaluation.self_awareness`).

        None where it has no image threshold.
        """
        if self.detector.image_threshold is None:
            return None
        return self.detector

    def uncertainty(self, detector: SelfAwareDetector) -> pl.DataFrame:
        """Uncertainty of each image, columns image_id and uncertainty, from all stored regions."""
        regions = RunSplit(self.files, self.split).regions()
        names = self.images["image_id"].to_list()
        uncertainty = detector.uncertainty(regions[is_among(regions.image_id, names)], names)
        return pl.DataFrame(
            {"image_id": names, "uncertainty": uncertainty},
            schema_overrides={"image_id": pl.String},
        )

    @property
    def methods(self) -> list[str]:
        """The run's methods that have outcomes in this split."""
        return list(self.taus)

    def tau(self, method: str) -> float:
        """The threshold of a method: detections with a lower score are flagged as unknown."""
        return self.taus[method]

    def detections_of(self, method: str) -> pl.DataFrame:
        """`detections` with the method's score, the outcome, and `is_unknown`.

        `is_unknown` is true where a detection is flagged as unknown.
        """
        scores_file = self.files.scores(method, self.split)
        outcomes_file = self.files.region_outcomes(method, self.split)
        scores = Scores.read(scores_file).frame
        outcomes = RegionOutcomes.read(outcomes_file).frame
        detections = _joined(self.detections, scores, REGION, "score", scores_file)
        detections = _joined(detections, outcomes, REGION, "outcome", outcomes_file)
        return detections.with_columns(is_unknown=pl.col("score") < self.tau(method))

    def objects_of(self, method: str) -> pl.DataFrame:
        """`objects` with the outcome and `region_id`: the detection that decided it, or −1."""
        file = self.files.object_outcomes(method, self.split)
        outcomes = ObjectOutcomes.read(file).frame.drop("category")
        return _joined(self.objects, outcomes, OBJECT, "outcome", file)


@dataclass(frozen=True)
class SplitSummary:
    """A split of a run as the index of the gallery lists it.

    Args:
        images: Number of images that the detector could read.
        methods: The run's methods that have outcomes in it.
        sources: Sources of proposals that have outcomes in it.
    """

    images: int
    methods: Sequence[str]
    sources: Sequence[str]

    @classmethod
    def read(cls, run: Run, split: str, artifacts: Path) -> SplitSummary:
        """Reads a split of a run whose evaluation is on this machine."""
        files = RunFiles(run.name, run.benchmark, artifacts)
        is_readable = _is_readable(RegionsFolder(files.regions(split)))
        return cls(
            images=len(Images.read(files.images(split)).frame.filter(is_readable)),
            methods=_methods(run, files, split),
            sources=_sources(run, files, split),
        )


def read_run_summaries(run: Run, artifacts: Path) -> dict[str, SplitSummary]:
    """Split → its summary; of the splits of `splits_with_outcomes`."""
    splits = splits_with_outcomes(run, artifacts)
    return {split: SplitSummary.read(run, split, artifacts) for split in splits}


def read_run_outcomes(run: Run, artifacts: Path) -> dict[str, SplitOutcomes]:
    """Split → its outcomes; of the splits of `splits_with_outcomes`."""
    splits = splits_with_outcomes(run, artifacts)
    return {split: SplitOutcomes.read(run, split, artifacts) for split in splits}


def splits_with_outcomes(run: Run, artifacts: Path) -> list[str]:
    """The run's OOD splits and, after them, the ID test split.

    The latter is left out where it has no outcomes, and all are where the run is not evaluated, or
    its detections are not on this machine.
    """
    if not _has_outcomes(run, artifacts):
        return []
    splits = [split.name for split in run.splits]
    files = RunFiles(run.name, run.benchmark, artifacts)
    if run.id_split is not None and _methods(run, files, run.id_split):
        splits.append(run.id_split)
    return splits


def _read_attributes(files: RunFiles, split: str) -> ImageAttributes:
    file = files.attributes(split)
    if not is_file(file):
        return ImageAttributes.empty()
    return ImageAttributes.read(file)


def _has_outcomes(run: Run, artifacts: Path) -> bool:
    """Whether a run is evaluated, and its detections are on this machine."""
    if not run.is_evaluated or run.description is None:
        return False
    folders = [artifacts / part / run.name for part in ("regions", "scores", "outcomes")]
    return all(folder.is_dir() for folder in folders)


def _is_readable(folder: RegionsFolder) -> pl.Expr:
    """Whether the detector could read an image."""
    unreadable = [failure["image_id"] for failure in folder.failures]
    return ~pl.col("image_id").is_in(unreadable)


def _methods(run: Run, files: RunFiles, split: str) -> list[str]:
    """The run's methods that have outcomes in a split."""
    return [name for name in run.methods if files.object_outcomes(name, split).exists()]


def _sources(run: Run, files: RunFiles, split: str) -> list[str]:
    """The sources of the run's proposals that have outcomes in a split."""
    return [source for source in run.sources if files.called(source, split).exists()]


def _read_proposals(run: Run, files: RunFiles, split: str) -> dict[str, pl.DataFrame]:
    """Source → its proposals on no detection; without sources whose file is absent."""
    proposals = {}
    for source in _sources(run, files, split):
        proposals[source] = UnknownProposalTable.read(files.called(source, split)).frame
    return proposals


def _rows_of_images(rows: pl.DataFrame, images: pl.DataFrame) -> pl.DataFrame:
    return rows.join(images, on="image_id", how="semi", maintain_order="left")


def _joined(
    left: pl.DataFrame, right: pl.DataFrame, on: list[str], needed: str, file: Path
) -> pl.DataFrame:
    """`left` with the columns of `right`, rows in the order of `left`.

    Args:
        left: A table.
        right: Another one.
        on: Columns that identify a row: the image, and a number in it.
        needed: Column of `right` that every row of `left` must get a value of.
        file: File of `right`, for messages.

    Raises:
        DataError: a row of `left` has no match in `right`.
    """
    joined = left.join(right, on=on, how="left", maintain_order="left")
    unmatched = joined.filter(pl.col(needed).is_null())
    if len(unmatched):
        image, number = unmatched.select(on).row(0)
        problem = f"{on[1]} {number} of image {image!r} has no {needed}: run `farther repro`"
        raise DataError(problem, file=file, field=needed)
    return joined
