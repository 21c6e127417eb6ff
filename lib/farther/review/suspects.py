"""ID images whose proposals may be objects that nobody labelled: false alarms only by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.curation import Benchmark, Fates, read_rules
from farther.curation.decisions import IMAGE
from farther.curation.fates import NO_OBJECT
from farther.datasets import image_roots
from farther.detectors.proposals import read_sources
from farther.errors import ParameterError
from farther.evaluation.files import RunFiles, RunSplit
from farther.evaluation.proposals import read_proposals, read_recovered
from farther.evaluation.threshold import read_threshold
from farther.metrics.open_set.proposals import beside
from farther.review.catalogue import Catalogue
from farther.review.suspicion import WatcherDetections
from farther.tables import Images, Objects

#: What is said of the images.
COUNTS, LEFT_OUT = "farther", "removed"
WORDS = {COUNTS: "counts for false alarms", LEFT_OUT: "left out: an object is not labelled"}


class Suspects(Catalogue):
    """The images of a benchmark's ID splits; its "detections" are proposals at τ_o on no detection, false alarms.

    Args:
        benchmark: Its name and parameters.
        params: All sections of params.yaml.
        splits: Names of the ID splits.
        run: Whose proposals are shown: those of its first source.
        root: The project's folder, which contains `artifacts`.

    Raises:
        ParameterError: the run is on another benchmark, or has no proposals.
        DataError: a table is absent or damaged.
    """

    words = WORDS

    def __init__(
        self,
        benchmark: tuple[str, Benchmark],
        params: Mapping[str, Any],
        splits: tuple[str, ...],
        run: str,
        root: str | Path = ".",
    ):
        (self.name, self.benchmark), self.run = benchmark, run
        artifacts, entry = Path(root) / "artifacts", params["detectors"][run]
        files, sources = (
            RunFiles(run, self.name, artifacts),
            read_sources(run, entry.get("proposals")),
        )
        found = read_recovered(files)
        if entry["benchmark"] != self.name or not sources or found is None:
            raise ParameterError(
                f"run {run!r} has no proposals on benchmark {self.name!r}, or they are not evaluated"
            )
        self.id_classes = read_rules(self.benchmark).id_classes
        self.roots = image_roots(params.get("datasets") or {}, artifacts / "tables", root)
        parts = [
            (split, Images.read(files.images(split)), Objects.read(files.objects(split)))
            for split in splits
        ]
        self.images = Images.concatenate([images for _, images, _ in parts])
        self.objects = Objects.concatenate([objects for *_, objects in parts])
        place = pl.DataFrame(
            {
                "dataset": self.images.dataset,
                "subset": np.repeat(splits, [len(images) for _, images, _ in parts]),
                "image_id": self.images.image_id,
            }
        ).with_columns(image=pl.int_range(pl.len()))
        self.fates = Fates(
            **{name: place[name].to_numpy() for name in IMAGE},
            fate=np.full(len(place), COUNTS, dtype=object),
            rule=np.full(len(place), "no one looked", dtype=object),
            category=np.full(len(place), "", dtype=object),
            object_id=np.full(len(place), NO_OBJECT),
        )
        self.kept = np.full(len(place), COUNTS, dtype=object)
        rows = {(of["subset"], of["image_id"]): of["image"] for of in place.iter_rows(named=True)}
        shown = [rows[split, name] for split, _, objects in parts for name in objects.image_id]
        self._labels = pl.DataFrame({"image": shown}, schema={"image": pl.Int64}).with_columns(
            label=pl.int_range(pl.len())
        )
        name, source = next(iter(sources.items()))
        tau, threshold = found.sources[name].threshold, read_threshold(files.threshold)
        tables = [WatcherDetections.empty()]
        others = lambda other: RunFiles(other, self.name, artifacts)  # noqa: E731
        for split in splits:
            proposals = read_proposals(files, name, source, split, others)
            alarms = proposals[
                beside(proposals, RunSplit(files, split).regions(threshold), found.iou)
            ]
            alarms = alarms if tau is None else alarms[alarms.score > tau]
            image = np.array([rows[split, one] for one in alarms.image_id], dtype=np.int64)
            text = np.full(len(alarms), f"proposal ({name})", dtype=object)
            tables.append(
                WatcherDetections(
                    image=image,
                    box=alarms.box,
                    score=alarms.score,
                    name=text,
                    unlabelled=alarms.score,
                )
            )
        self.detections = WatcherDetections.concatenate(tables)
        self.queue = np.zeros(len(place))
        np.maximum.at(self.queue, self.detections.image, self.detections.unlabelled)
        self.suspicion = (self.queue > 0).astype(float)
        nothing = {name: pl.lit(None) for name in ("similarity", "id_class", "suggested", "margin")}
        self.frame = self.fates.frame.select(
            *IMAGE, "fate", "rule", image=pl.int_range(pl.len())
        ).with_columns(suspicion=self.suspicion, queue=self.queue, **nothing)
