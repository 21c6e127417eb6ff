"""Whether two sets of figures differ by more than chance, where both are of the same images.

Two methods of one run, one method of two detectors, or the same at two commits: each is computed on the same draws of
images, so that what makes an image easy or hard for both falls out of their difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from farther.errors import DataError
from farther.evaluation.evaluate import EvaluationSettings
from farther.evaluation.files import RunFiles, RunSplit, aligned_scores
from farther.metrics import bootstrap, open_set
from farther.metrics.true_classes import not_of_known
from farther.tables import Regions
from farther.tables.files import read_json


@dataclass(frozen=True)
class Replicates:
    """Figures of one method in one OOD split of one run, on drawn images.

    Args:
        id_images, images: Names of the images that were drawn from: of the ID split and the OOD split.
        figures: {figure: ndarray of shape (B,)}.
    """

    id_images: frozenset[str]
    images: frozenset[str]
    figures: dict[str, np.ndarray]


class Drawn:
    """The files of a run, from which replicates of its figures are computed; what methods share is read once.

    Args:
        files: Where they lie.
        settings: How the run was evaluated; the number of replicates and the seed are those of the draws.

    Raises:
        DataError: the operating threshold is absent or damaged.
    """

    def __init__(self, files: RunFiles, settings: EvaluationSettings):
        self.files = files
        self.settings = settings
        self.threshold = _number(files.threshold)
        self._splits: dict[str, RunSplit] = {}

    def replicates(self, method: str, split: str) -> Replicates:
        """The figures of a method in an OOD split, for each draw; those of `farther.evaluation.evaluate`.

        Raises:
            DataError: a file that is needed is absent or damaged, or files do not belong together.
        """
        settings = self.settings
        tau = _number(self.files.fitted(method) / "threshold.json")
        sides = [self._side(method, name) for name in (settings.id_split, split)]
        known, tested = (self._split(name) for name in (settings.id_split, split))
        draws = [
            bootstrap.ImageDraws(one.images, settings.replicates, settings.seed + place)
            for place, one in enumerate((known, tested))
        ]
        (id_regions, id_scores), (regions, scores) = sides
        classes = regions.header.known_classes
        outcome = open_set.Split(tested.objects, regions, settings.iou, settings.protocol, classes).judge(scores < tau)
        foreign = not_of_known(tested.objects, regions, classes, settings.iou)
        ood_side = regions.image_id[foreign], scores[foreign]
        figures = {
            **bootstrap.ood_figures(draws[0], id_regions.image_id, id_scores, draws[1], *ood_side),
            **bootstrap.open_set_figures(draws[1], outcome, -scores),
        }
        return Replicates(known.images, tested.images, figures)

    def _side(self, method: str, split: str) -> tuple[Regions, np.ndarray]:
        """Regions of a split at or above t*, and the method's scores of them."""
        read = self._split(split)
        regions = read.regions(self.threshold)
        return regions, aligned_scores(regions, self.files.scores(method, split), len(read.folder))

    def _split(self, name: str) -> RunSplit:
        if name not in self._splits:
            self._splits[name] = RunSplit(self.files, name)
        return self._splits[name]


def compare(first: Replicates, second: Replicates) -> dict[str, dict[str, Any]]:
    """For each figure the 95% interval of second − first, and p; see `farther.metrics.bootstrap.compare`.

    Raises:
        DataError: the two are not of the same images, so nothing pairs them.
    """
    for what in ("id_images", "images"):
        ours, theirs = getattr(first, what), getattr(second, what)
        if ours != theirs:
            kind = "ID" if what == "id_images" else "OOD"
            problem = f"{len(ours ^ theirs)} {kind} images are in one and not in the other, so they are not paired"
            raise DataError(problem)
    return {
        name: bootstrap.compare(second.figures[name], first.figures[name])
        for name in first.figures
        if name in second.figures
    }


def _number(file: Path) -> float:
    """The threshold that a JSON file holds."""
    value = read_json(file)
    found = value.get("threshold") if isinstance(value, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise DataError(f"expected a number, found {found!r}", file=file, field="threshold")
    return float(found)
