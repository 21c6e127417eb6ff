"""Rules by which proposals are called unknown, beside a threshold on their objectness alone.

A method keeps those that it rejects as well; a `Combination` weighs objectness, size and a method's score by a logistic
regression, learnt on ID validation images and on unknown objects of a split that results leave out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import polars as pl
from pydantic import Field, PositiveFloat, model_validator

from farther.curation.decisions import DecisionsFile
from farther.evaluation.files import RunFiles
from farther.evaluation.results import Stored
from farther.evaluation.threshold import read_threshold
from farther.methods.base import Method
from farther.methods.loading import load, not_applicable
from farther.metrics.matching.boxes import areas, image_numbers, is_among, pairs
from farther.tables import Images, Objects, Regions
from farther.tables.files import is_present

#: Of each ID validation image, the number of false alarms that a combination learns from: its best ones.
ALARMS = 5

#: Names of rules: a combination, and results without ID images in which reviewers saw objects that are not labelled.
LOGISTIC, REVIEWED = "logistic", "reviewed"


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


class Combination(Stored):
    """p = 1 / (1 + exp(−b − w·x)): x is the log-odds of the objectness, log √(share of the image), and a score.

    Args:
        intercept: b.
        weights: w, of the log-odds, the size, and the method's score in standard deviations, if there is one.
        centre, spread: Mean and standard deviation of each x.
    """

    intercept: float
    weights: Annotated[tuple[float, ...], Field(min_length=2, max_length=3)]
    centre: tuple[float, ...]
    spread: tuple[PositiveFloat, ...]

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if not len(self.weights) == len(self.centre) == len(self.spread):
            raise ValueError("weights, centre and spread must have as many numbers each")
        return self

    @classmethod
    def fit(cls, unknown: np.ndarray, alarms: np.ndarray) -> Combination | None:
        """Learns from x of proposals on unknown objects, shape (U, 2 or 3), and of false alarms, shape (F, 2 or 3).

        Both groups weigh the same. None where one is empty.
        """
        from sklearn.linear_model import LogisticRegression

        if not len(unknown) or not len(alarms):
            return None
        x, y = np.concatenate([unknown, alarms]), np.repeat([1, 0], [len(unknown), len(alarms)])
        centre, spread = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
        learnt = LogisticRegression(class_weight="balanced").fit((x - centre) / spread, y)
        weights, centres, spreads = (tuple(each.tolist()) for each in (learnt.coef_[0], centre, spread))
        return cls(intercept=float(learnt.intercept_[0]), weights=weights, centre=centres, spread=spreads)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """p, ndarray of shape (P,), of x, ndarray of shape (P, 2 or 3)."""
        from scipy.special import expit

        return expit(self.intercept + ((x - self.centre) / self.spread) @ self.weights)


@dataclass(frozen=True)
class Rule:
    """Which proposals take part, and what their score is: objectness, or the probability of a combination.

    Args:
        method: Proposals that it does not reject take no part; beside a combination it only gives a score.
        combination: Weighs objectness, size and the score of `method`, if there is one.
    """

    method: Rejecting | None = None
    combination: Combination | None = None

    @classmethod
    def learnt(
        cls, unknown: tuple[Regions, Images], alarms: tuple[Regions, Images], method: Rejecting | None = None
    ) -> Rule | None:
        """With a combination that is learnt; None where there is nothing to learn from.

        Args:
            unknown: Proposals on unknown objects, see `on_unknown`, and the images that they are in.
            alarms: False alarms, and the images that they are in.
            method: Whose score is weighed, too.
        """
        asked = cls(method)
        x = [asked._inputs(found, pixels_of(found, images)) for found, images in (unknown, alarms)]
        combination = Combination.fit(*x)
        return None if combination is None else cls(method, combination)

    @property
    def name(self) -> str:
        """As in `recovered/<run>/results.json`: "objectness", a method, "logistic", or that "with" a method."""
        names = [] if self.method is None else [self.method.name]
        if self.combination is not None:
            return " with ".join([LOGISTIC, *names])
        return names[0] if names else "objectness"

    def applied(self, proposals: Regions, pixels: np.ndarray) -> Regions:
        """The proposals that take part, with their score under this rule.

        Args:
            proposals: Their score is the objectness.
            pixels: Of each one's image, ndarray of shape (P,).
        """
        if self.combination is not None:
            p = self.combination.probabilities(self._inputs(proposals, pixels))
            return proposals.with_columns(score=p.astype(np.float32))
        return proposals if self.method is None else self.method.rejected(proposals)

    def _inputs(self, proposals: Regions, pixels: np.ndarray) -> np.ndarray:
        """What a combination weighs, ndarray of shape (P, 2 or 3)."""
        inside = np.clip(proposals.score.astype(np.float64), 1e-6, 1 - 1e-6)
        share = np.clip(areas(proposals.box) / pixels, 1e-9, 1)
        scores = [] if self.method is None else [self.method.scores(proposals)]
        return np.stack([np.log(inside / (1 - inside)), np.log(share) / 2, *scores], axis=1)


def method_of(rule: str) -> str | None:
    """The method that a rule's name has, see `Rule.name`; None where it has none."""
    return None if rule in ("objectness", LOGISTIC, REVIEWED) else rule.removeprefix(f"{LOGISTIC} with ")


def pixels_of(proposals: Regions, images: Images) -> np.ndarray:
    """Number of pixels of each proposal's image, ndarray of shape (P,)."""
    _, (image, of_table) = image_numbers(proposals.image_id, images.image_id)
    pixels = np.ones(int(of_table.max(initial=-1)) + 1)
    pixels[of_table] = images.width.astype(np.float64) * images.height
    return pixels[image]


def reviewed_file(benchmark: str, root: str | Path = ".") -> Path:
    """The file of decisions about the ID images of a benchmark; see `farther.review.suspects`."""
    return Path(root) / "data" / "decisions" / f"{benchmark}.id.csv"


def with_unlabelled(file: Path, splits: Collection[str]) -> dict[str, set[str]] | None:
    """{split: images in which most of their reviewers saw an object that is not labelled}; None where none did.

    Raises:
        DataError: the file is damaged; names row and field.
    """
    if not is_present(file):
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
