"""Rules by which proposals are called unknown, beside a threshold on their objectness alone.

A method keeps those that it rejects as well; a `Combination` weighs objectness, size and a method's score by a logistic
regression, learnt on ID validation images and on unknown objects of a split that results leave out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from farther.curation.decisions import DecisionsFile
from farther.evaluation.files import RunFiles
from farther.evaluation.threshold import read_threshold
from farther.methods.base import Method
from farther.methods.loading import load, not_applicable
from farther.metrics.matching.boxes import areas, image_numbers, is_among, pairs
from farther.tables import Images, Objects, Regions

#: Of each ID validation image, the number of false alarms that a combination learns from: its best ones.
ALARMS = 5


@dataclass(frozen=True)
class Rejecting:
    """An OOD method that proposals are scored with.

    Args:
        name: Entry of params.yaml's section `methods`.
        method: Fitted to the run's detections.
        tau: Its threshold τ: what scores below it is rejected.
    """

    name: str
    method: Method
    tau: float

    @classmethod
    def read(cls, files: RunFiles, name: str, proposals: Regions) -> Rejecting | None:
        """The method of a run; None where it does not apply to it, or needs what its proposals do not have.

        Raises:
            DataError: `evaluate` did not fit it, or its files are damaged.
        """
        folder = files.fitted(name)
        if not_applicable(folder) is not None:
            return None
        method = load(folder)
        fits = all(proposals.has(column) for column in method.columns)
        return cls(name, method, read_threshold(folder / "threshold.json")) if fits else None

    def scores(self, proposals: Regions) -> np.ndarray:
        """Scores of proposals, ndarray of shape (P,); lower is less known."""
        return self.method.score(proposals) if len(proposals) else np.zeros(0)

    def rejected(self, proposals: Regions) -> Regions:
        """The proposals that score below τ."""
        return proposals[self.scores(proposals) < self.tau]


@dataclass(frozen=True)
class Combination:
    """p = 1 / (1 + exp(−b − w·x)): x is the log-odds of the objectness, log √(share of the image), and a score.

    Args:
        intercept: b.
        weights: w, of the log-odds, the size, and the method's score in standard deviations, if there is one.
        centre, spread: Mean and standard deviation of each x.
        method: Gives the score.
    """

    intercept: float
    weights: tuple[float, ...]
    centre: tuple[float, ...]
    spread: tuple[float, ...]
    method: Rejecting | None = None

    @classmethod
    def fit(
        cls, unknown: tuple[Regions, Images], alarms: tuple[Regions, Images], method: Rejecting | None
    ) -> Combination | None:
        """Learns from proposals and the images they are in; both groups weigh the same. None where one is empty.

        Args:
            unknown: Proposals on unknown objects; see `on_unknown`.
            alarms: False alarms.
            method: Whose score is weighed, too.
        """
        from sklearn.linear_model import LogisticRegression

        if not len(unknown[0]) or not len(alarms[0]):
            return None
        x = np.concatenate([_inputs(*unknown, method), _inputs(*alarms, method)])
        y = np.repeat([1, 0], [len(unknown[0]), len(alarms[0])])
        centre, spread = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
        learnt = LogisticRegression(class_weight="balanced").fit((x - centre) / spread, y)
        weights, centres, spreads = (tuple(each.tolist()) for each in (learnt.coef_[0], centre, spread))
        return cls(float(learnt.intercept_[0]), weights, centres, spreads, method)

    def rescored(self, proposals: Regions, images: Images) -> Regions:
        """Proposals whose score is the probability p in place of the objectness.

        Args:
            proposals: Their score is the objectness.
            images: Has the sizes of their images.
        """
        from scipy.special import expit

        x = (_inputs(proposals, images, self.method) - self.centre) / self.spread
        return proposals.with_columns(score=expit(self.intercept + x @ self.weights).astype(np.float32))


def _inputs(proposals: Regions, images: Images, method: Rejecting | None) -> np.ndarray:
    """What a combination weighs, ndarray of shape (P, 2 or 3)."""
    _, (image, of_table) = image_numbers(proposals.image_id, images.image_id)
    size = np.ones(int(of_table.max(initial=-1)) + 1)
    size[of_table] = images.width.astype(np.float64) * images.height
    inside = np.clip(proposals.score.astype(np.float64), 1e-6, 1 - 1e-6)
    share = np.clip(areas(proposals.box) / size[image], 1e-9, 1)
    x = [np.log(inside / (1 - inside)), np.log(share) / 2]
    return np.stack([*x, *([] if method is None else [method.scores(proposals)])], axis=1)


def reviewed_file(benchmark: str, root: str | Path = ".") -> Path:
    """The file of decisions about the ID images of a benchmark; see `farther.review.suspects`."""
    return Path(root) / "data" / "decisions" / f"{benchmark}.id.csv"


def with_unlabelled(file: Path, splits: Collection[str]) -> dict[str, set[str]] | None:
    """{split: images in which most of their reviewers saw an object that is not labelled}; None where none did.

    Raises:
        DataError: the file is damaged; names row and field.
    """
    if not file.is_file():
        return None
    share = (pl.col("decision") == "remove").mean()
    votes = DecisionsFile(file).read().current.group_by("subset", "image_id").agg(share=share)
    seen = votes.filter(pl.col("share") > 0.5)
    found = {split: set(seen.filter(subset=split)["image_id"]) for split in splits}
    return found if any(found.values()) else None


def on_unknown(proposals: Regions, objects: Objects, known_classes: tuple[str, ...], iou: float) -> Regions:
    """The best proposal on each unknown object.

    Args:
        proposals: Those that lie on no detection.
        objects: Ground truth; crowds and objects of known classes do not count.
        known_classes: Categories that the detector was trained on.
        iou: Least overlap.
    """
    unknown = objects[~objects.is_crowd & ~is_among(objects.category, known_classes)]
    _, (image, of_object) = image_numbers(proposals.image_id, unknown.image_id)
    on = pairs(proposals.box, image, unknown.box, of_object, np.zeros(len(unknown), dtype=bool), iou)
    order = np.lexsort((-proposals.score[on.region], on.target))
    _, first = np.unique(on.target[order], return_index=True)
    return proposals[np.unique(on.region[order][first])]
