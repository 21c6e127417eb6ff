"""Images, objects and detections of a run's split, with the outcomes that the stage `evaluate` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from farther.errors import DataError
from farther.evaluation.files import RunFiles, RunSplit
from farther.metrics.matching.boxes import is_among
from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.report.results import Run
from farther.tables import Images, ObjectOutcomes, Objects, RegionOutcomes, RegionsFolder, Scores
from farther.tables.called import CalledProposals

OBJECT, REGION = ["image_id", "object_id"], ["image_id", "region_id"]


@dataclass(frozen=True)
class SplitOutcomes:
    """A split of a run, of the images that the detector could read, in the order of the split's table.

    `detections` has the columns image_id, region_id, box, label and confidence; `proposals` of each
    source of proposals those of `farther.tables.called.CalledProposals`. `taus` are the thresholds
    of the methods that have outcomes, and `detector` makes the run self-aware.
    """

    split: str
    threshold: float
    taus: Mapping[str, float]
    detector: SelfAwareDetector
    files: RunFiles
    classes: tuple[str, ...]
    images: pl.DataFrame
    objects: pl.DataFrame
    detections: pl.DataFrame
    proposals: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    @classmethod
    def read(cls, run: Run, split: str, artifacts: Path) -> SplitOutcomes:
        """Reads a split of a run whose evaluation is on this machine."""
        evaluation = run.evaluation
        if evaluation is None:
            raise ValueError(f"{run.name} has no evaluation")
        files = RunFiles(run.name, run.benchmark, artifacts)
        folder = RegionsFolder(files.regions(split), min_score=evaluation.threshold)
        called = {
            name: files.called(name, split)
            for name in (run.recovered.sources if run.recovered else ())
        }
        taus = {}
        for name in run.methods:
            if files.object_outcomes(name, split).exists():
                taus[name] = evaluation.methods[name].tau
        readable = ~pl.col("image_id").is_in([failure["image_id"] for failure in folder.failures])
        return cls(
            split=split,
            threshold=evaluation.threshold,
            taus=taus,
            detector=evaluation.self_awareness.detector,
            files=files,
            classes=folder.header.classes,
            images=Images.read(files.images(split)).frame.filter(readable),
            objects=Objects.read(files.objects(split)).frame.filter(readable),
            detections=folder.scan().select(*REGION, "box", "label", confidence="score").collect(),
            proposals={
                name: CalledProposals.read(file).frame
                for name, file in called.items()
                if file.exists()
            },
        )

    def of_images(self, images: pl.DataFrame) -> SplitOutcomes:
        """The same with some of the images alone."""
        objects, detections, *proposals = (
            rows.join(images, on="image_id", how="semi", maintain_order="left")
            for rows in (self.objects, self.detections, *self.proposals.values())
        )
        named = dict(zip(self.proposals, proposals, strict=True))
        return replace(self, images=images, objects=objects, detections=detections, proposals=named)

    @property
    def self_aware(self) -> SelfAwareDetector | None:
        """The run made self-aware, if it takes an image threshold (`farther.evaluation.self_awareness`)."""
        return self.detector if self.detector.image_threshold is not None else None

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
        """`detections` with the method's score, the outcome, and `is_unknown`: flagged as unknown."""
        scores, outcomes = (
            self.files.scores(method, self.split),
            self.files.region_outcomes(method, self.split),
        )
        scored = _joined(self.detections, Scores.read(scores).frame, REGION, "score", scores)
        found = _joined(scored, RegionOutcomes.read(outcomes).frame, REGION, "outcome", outcomes)
        return found.with_columns(is_unknown=pl.col("score") < self.tau(method))

    def objects_of(self, method: str) -> pl.DataFrame:
        """`objects` with the outcome and `region_id`, the detection that decided it (−1 for none)."""
        file = self.files.object_outcomes(method, self.split)
        outcomes = ObjectOutcomes.read(file).frame.drop("category")
        return _joined(self.objects, outcomes, OBJECT, "outcome", file)


def read_run_outcomes(run: Run, artifacts: Path) -> dict[str, SplitOutcomes]:
    """Split → its outcomes; {} where the run is not evaluated, or its detections are not on this machine."""
    folders = [artifacts / part / run.name for part in ("regions", "scores", "outcomes")]
    if not run.is_evaluated or not run.evaluation or not all(folder.is_dir() for folder in folders):
        return {}
    return {split.name: SplitOutcomes.read(run, split.name, artifacts) for split in run.splits}


def _joined(
    left: pl.DataFrame, right: pl.DataFrame, on: list[str], needed: str, file: Path
) -> pl.DataFrame:
    """`left` with the columns of `right`, rows in the order of `left`; every row must have a match in `right`."""
    found = left.join(right, on=on, how="left", maintain_order="left")
    absent = found.filter(pl.col(needed).is_null())
    if len(absent):
        image, number = absent.select(on).row(0)
        problem = f"{on[1]} {number} of image {image!r} has no {needed}: run `farther repro`"
        raise DataError(problem, file=file, field=needed)
    return found
