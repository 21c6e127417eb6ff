"""ID images whose proposals may be objects that no one labelled: false alarms only by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.curation import Benchmark, Fates, read_rules
from farther.curation.decisions import IMAGE
from farther.curation.fates import NO_OBJECT
from farther.datasets import image_roots
from farther.detectors.proposal_sources import Source, read_sources
from farther.errors import ParameterError
from farther.evaluation.files import RunFiles, RunSplit
from farther.evaluation.recovery import read_proposals, read_recovered
from farther.evaluation.threshold import read_threshold
from farther.metrics.open_set.proposals import apart_from_detections
from farther.review.catalogue import SIMILARITY, Catalogue, largest_evidence
from farther.review.suspicion import SuspectDetections
from farther.tables import Images, Objects, Regions

#: Fates of the images, and their titles.
COUNTS = "farther"
LEFT_OUT = "removed"
FATE_TITLES = {
    COUNTS: "counts for false alarms",
    LEFT_OUT: "left out: an object is not labelled",
}


@dataclass(frozen=True)
class FalseAlarms:
    """The false alarms of a source of proposals.

    Args:
        files: Files of the run.
        name: Name of the source.
        source: The source.
        min_score: The run's operating threshold; a proposal that lies on a detection is none.
        tau: τ_o: proposals with a lower objectness are none; None for all proposals.
        iou: IoU with a detection from which on a proposal lies on it.
    """

    files: RunFiles
    name: str
    source: Source
    min_score: float
    tau: float | None
    iou: float

    def read(self, split: str) -> Regions:
        """The false alarms in an ID split."""
        proposals = read_proposals(self.files, self.name, self.source, split, self._files_of)
        detections = RunSplit(self.files, split).regions(self.min_score)
        alarms = proposals[apart_from_detections(proposals, detections, self.iou)]
        if self.tau is None:
            return alarms
        return alarms[alarms.score > self.tau]

    def _files_of(self, run: str) -> RunFiles:
        return RunFiles(run, self.files.benchmark, self.files.root)


def read_suspects(
    name: str,
    benchmark: Benchmark,
    params: Mapping[str, Any],
    splits: Sequence[str],
    run: str,
    root: str | Path = ".",
) -> Catalogue:
    """The images of a benchmark's ID splits.

    Their "detections" are proposals at τ_o that lie on no detection: false alarms.

    Args:
        name: The benchmark's name.
        benchmark: Its parameters.
        params: All sections of params.yaml.
        splits: Names of the ID splits.
        run: The run whose proposals are shown: those of its first source.
        root: The project's folder, which contains `artifacts`.

    Raises:
        ParameterError: the run is on another benchmark, or has no proposals.
        DataError: a table is absent or damaged.
    """
    artifacts = Path(root) / "artifacts"
    entry = params["detectors"][run]
    files = RunFiles(run, name, artifacts)
    sources = read_sources(run, entry.get("proposals"))
    recovered = read_recovered(files)
    if entry["benchmark"] != name or not sources or recovered is None:
        raise ParameterError(
            f"run {run!r} has no proposals on benchmark {name!r}, or they are not evaluated"
        )
    source_name, source = next(iter(sources.items()))
    false_alarms = FalseAlarms(
        files=files,
        name=source_name,
        source=source,
        min_score=read_threshold(files.threshold),
        tau=recovered.sources[source_name].threshold,
        iou=recovered.iou,
    )

    images_by_split = {split: Images.read(files.images(split)) for split in splits}
    objects_by_split = {split: Objects.read(files.objects(split)) for split in splits}
    row_of_image: dict[tuple[str, str], int] = {}
    for split, images in images_by_split.items():
        for image_id in images.image_id:
            row_of_image[split, image_id] = len(row_of_image)
    labelled_images = []
    for split, objects in objects_by_split.items():
        labelled_images += [row_of_image[split, image_id] for image_id in objects.image_id]
    alarms = [SuspectDetections.empty()]
    for split in splits:
        alarms.append(_alarms_of_split(false_alarms, split, row_of_image))

    all_images = Images.concatenate(list(images_by_split.values()))
    detections = SuspectDetections.concatenate(alarms)
    queue = largest_evidence(detections, len(all_images))
    return Catalogue(
        name=name,
        benchmark=benchmark,
        run=run,
        id_classes=read_rules(benchmark).id_classes,
        roots=image_roots(params.get("datasets") or {}, artifacts / "tables", root),
        images=all_images,
        objects=Objects.concatenate(list(objects_by_split.values())),
        labels=pl.DataFrame({"image": labelled_images}, schema={"image": pl.Int64}).with_columns(
            label=pl.int_range(pl.len())
        ),
        fates=_fates(all_images, [split for split, _ in row_of_image]),
        kept=np.full(len(all_images), COUNTS, dtype=object),
        detections=detections,
        suspicion=(queue > 0).astype(float),
        queue=queue,
        similarity=pl.DataFrame(
            {name: pl.Series([None] * len(all_images), dtype=pl.Null) for name in SIMILARITY}
        ),
        fate_titles=FATE_TITLES,
    )


def _alarms_of_split(
    false_alarms: FalseAlarms, split: str, row_of_image: Mapping[tuple[str, str], int]
) -> SuspectDetections:
    alarms = false_alarms.read(split)
    images = [row_of_image[split, image_id] for image_id in alarms.image_id]
    return SuspectDetections(
        image=np.array(images, dtype=np.int64),
        box=alarms.box,
        score=alarms.score,
        name=np.full(len(alarms), f"proposal ({false_alarms.name})", dtype=object),
        unlabelled=alarms.score,
    )


def _fates(images: Images, splits: Sequence[str]) -> Fates:
    """Fates of images that all count, with their splits in the place of subsets."""
    key = {"dataset": images.dataset, "subset": list(splits), "image_id": images.image_id}
    count = len(images)
    return Fates(
        **{name: key[name] for name in IMAGE},
        fate=np.full(count, COUNTS, dtype=object),
        rule=np.full(count, "no one looked", dtype=object),
        category=np.full(count, "", dtype=object),
        object_id=np.full(count, NO_OBJECT),
    )
