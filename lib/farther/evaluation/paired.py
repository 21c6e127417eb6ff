"""Differences between two sets of results on the same images, beyond chance.

Two methods of one run, one method of two detectors, or the same at two commits: each is computed on the same draws of
images, so that image difficulty cancels out of their difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from farther.errors import DataError
from farther.evaluation.files import RunFiles, RunSplit, aligned_scores
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.threshold import read_threshold
from farther.metrics import bootstrap, ood, open_set
from farther.metrics.matching import not_of_known
from farther.metrics.outcomes import Settings, Split
from farther.tables import Regions


@dataclass(frozen=True)
class Replicates:
    """Replicates of the metrics of one method in one OOD split of one run.

    Args:
        id_images, images: Names of the images that were drawn from: of the ID split and of the OOD split.
        metrics: {metric: ndarray of shape (B,)}.
    """

    id_images: frozenset[str]
    images: frozenset[str]
    metrics: dict[str, np.ndarray]


class Drawn:
    """The files of a run, from which replicates of its metrics are computed; tables that methods share are read once.

    Args:
        files: Paths of the run's files.
        settings: How the run was evaluated; gives the number of replicates and the seed of the draws.

    Raises:
        DataError: the operating threshold is absent or damaged.
    """

    def __init__(self, files: RunFiles, settings: EvaluationSettings):
        self.files = files
        self.settings = settings
        self.threshold = read_threshold(files.threshold)
        self._splits: dict[str, RunSplit] = {}

    def replicates(self, method: str, split: str) -> Replicates:
        """Replicates of a method's metrics in an OOD split; those of `farther.evaluation.evaluate`.

        Raises:
            DataError: a file that is needed is absent or damaged, or files do not belong together.
        """
        settings = self.settings
        tau = read_threshold(self.files.fitted(method) / "threshold.json")
        known, tested = (self._split(name) for name in (settings.id_split, split))
        id_draws, draws = (
            bootstrap.ImageDraws(one.images, settings.replicates, settings.seed + place)
            for place, one in enumerate((known, tested))
        )
        (id_regions, id_scores), (regions, scores) = (self._scored(method, one) for one in (known, tested))
        matching = Settings(settings.iou, settings.protocol, tested.known_classes)
        outcome = Split.of(tested.objects, regions, matching).match(scores < tau)
        is_ood = not_of_known(tested.objects, regions, tested.known_classes, settings.iou)
        metrics = {
            **ood.evaluate(
                id_scores, scores[is_ood], id_draws.rows(id_regions.image_id), draws.rows(regions.image_id[is_ood])
            ),
            **open_set.metrics(outcome, -scores, draws.of(outcome.split.images)),
        }
        return Replicates(known.images, tested.images, metrics)

    def _scored(self, method: str, split: RunSplit) -> tuple[Regions, np.ndarray]:
        """Regions of a split at or above t*, and the method's scores of them."""
        regions = split.regions(self.threshold)
        return regions, aligned_scores(regions, self.files.scores(method, split.name), len(split.folder))

    def _split(self, name: str) -> RunSplit:
        if name not in self._splits:
            self._splits[name] = RunSplit(self.files, name)
        return self._splits[name]


def compare(first: Replicates, second: Replicates) -> dict[str, dict[str, Any]]:
    """For each metric the 95% interval of second − first, and p; see `farther.metrics.bootstrap.compare`.

    Raises:
        DataError: the two are of different images, so they are not paired.
    """
    for what in ("id_images", "images"):
        ours, theirs = getattr(first, what), getattr(second, what)
        if ours != theirs:
            kind = "ID" if what == "id_images" else "OOD"
            problem = f"{len(ours ^ theirs)} {kind} images are in one and not in the other, so they are not paired"
            raise DataError(problem)
    return {
        name: bootstrap.compare(second.metrics[name], first.metrics[name])
        for name in first.metrics
        if name in second.metrics
    }
