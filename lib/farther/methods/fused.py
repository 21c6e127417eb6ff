"""Several scores as one."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from farther.methods.arrays import Array, cast
from farther.methods.base import (
    METHODS,
    Annotation,
    FitError,
    Method,
    Publication,
    RegionsLike,
    count_rows,
    refuse_other_than_regions,
    register,
)
from farther.methods.rows import RegionRows, Rows

#: Most scores that are stored of each part: of more validation detections, evenly spaced quantiles.
MOST_KNOTS = 1024

#: Smallest distance of two stored scores, as a share of the range of the central 90%: a rounding
#: error of a score then changes its share little.
SMALLEST_GAP = 1e-4

#: Distance of a share from 0 and 1 below which its log-odds stay as they are.
SMALLEST_SHARE = 1e-6


@dataclass(frozen=True)
class Knots:
    """A distribution of scores as the corners of its cumulative distribution function.

    Args:
        scores: Rising, ndarray of shape (J,).
        shares: Share of the distribution at or below each, ndarray of shape (J,).
    """

    scores: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray) -> Knots:
        """The knots of n scores; the shares are at least 1 / (n + 1) and at most n / (n + 1)."""
        scores = np.sort(scores)
        count = len(scores)
        low, high = np.quantile(scores, [0.05, 0.95])
        gap = SMALLEST_GAP * (high - low)
        places = np.unique(np.linspace(0, count - 1, MOST_KNOTS).round().astype(int))
        kept = [places[0]]
        for place in places[1:]:
            if scores[place] - scores[kept[-1]] > gap:
                kept.append(place)
        # A share counts all scores before the next knot.
        first_above = np.searchsorted(scores, scores[kept[1:]], side="left")
        ranks = np.append(first_above, count)
        return cls(scores[kept], ranks / (count + 1))


@register("fused")
class Fused(Method):
    """Several scores together, each as the share of ID validation detections below it.

    The share is a conformal p-value of the detection being in-distribution, interpolated linearly
    between the stored scores. Without `learn_validation` the detections that the parts are fitted
    to take the place of the validation detections. With `fit.labels: annotated` all parts are
    fitted to the detections that the one which reads their classes needs.

    Formula:
        score = the combination of p_k = #{i : s_k(x_i) ≤ s_k(x)} / (n + 1), x_i the n validation
        detections and s_k the score of part k: mean (1/K) Σ_k p_k; fisher Σ_k log p_k; simes
        min_k K p_(k) / k, p_(1) ≤ … ≤ p_(K); logistic Σ_k w_k log(p_k / (1 − p_k))

    Args:
        of: The parts, at least two: names of methods or, in params.yaml, of entries of section
            `methods`; or {name: parameters}.
        by: How the shares are combined. "fisher" trusts a single small share most, "mean" none by
            itself; "simes" holds for dependent scores too; "logistic" learns the weights w.
        ood_split: Name of the OOD split that "logistic" learns from, on which no result is
            reported (`use: validation`), such as ID images with pasted objects.

    Attributes:
        weights_: w, ndarray of shape (K,); ones unless they are learned.
        knots_: Number of stored scores of each part.
        scores_, shares_: The stored scores of all parts and their shares, one part after the other,
            ndarrays of shape (ΣJ,).

    References:
        Bates et al., "Testing for Outliers with Conformal p-values", 2021, arXiv:2104.08279. Code:
        https://github.com/msesia/conditional-conformal-pvalues

        Magesh et al., "Principled Out-of-Distribution Detection via Multiple Testing", 2022,
        arXiv:2206.09522.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(logits=[[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
        >>> both = create("fused", of=["energy", "msp"], by="mean").fit(train)
        >>> both.score(train)  # the lowest of three, the middle one and the highest
        array([0.25, 0.5 , 0.75])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Testing for Outliers with Conformal p-values",
        2021,
        "https://arxiv.org/abs/2104.08279",
        code="https://github.com/msesia/conditional-conformal-pvalues",
    )
    title: ClassVar[str] = "Fused"
    aliases: ClassVar[tuple[str, ...]] = ("Conformal fusion",)
    of: dict[str, dict[str, Any]] | tuple[str, ...]
    by: Literal["mean", "fisher", "simes", "logistic"] = "fisher"
    ood_split: str | None = None

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise ValueError("'of' needs two methods or more")
        if not isinstance(self.of, dict) and len(set(self.parts.values())) < len(self.of):
            raise ValueError("'of' names a method twice: give each its own name and parameters")
        if self.by == "logistic" and self.ood_split is None:
            raise ValueError("'by: logistic' learns from an OOD split: name it as 'ood_split'")
        if self.by != "logistic" and self.ood_split is not None:
            raise ValueError(f"'ood_split' goes with 'by: logistic', not with {self.by!r}")
        self._parts = self._new_parts()
        if len(self._annotations) > 1:
            raise ValueError(f"'of' needs classes in different ways: {sorted(self._annotations)}")

    def __copy__(self) -> Fused:
        """A copy whose parts can get other fitted attributes, as tensors in the place of arrays."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        copied._parts = {name: copy.copy(part) for name, part in self._parts.items()}
        return copied

    @property
    def parts(self) -> dict[str, str]:
        """Name of each part → its method."""
        method_by_part = {}
        for name, params in self._params_by_part().items():
            method_by_part[name] = METHODS.canonical(str(params.get("method", name)))
        return method_by_part

    def _params_by_part(self) -> dict[str, Mapping[str, Any]]:
        if isinstance(self.of, dict):
            return dict(self.of)
        return {name: {} for name in self.of}

    def _new_parts(self) -> dict[str, Method]:
        """The parts, not fitted.

        Raises:
            ParameterError: a name or a parameter is unknown.
            ValueError: a part cannot be fused.
        """
        parts = {}
        for name, params in self._params_by_part().items():
            of_method = {key: value for key, value in params.items() if key != "method"}
            part = METHODS.create(self.parts[name], **of_method)
            reason = _why_not_fused(part)
            if reason:
                raise ValueError(f"{name!r} cannot be fused: {reason}")
            parts[name] = part
        return parts

    def _fitted_parts(self) -> dict[str, Method]:
        """The parts with their fitted attributes, arrays or tensors, which are attributes here."""
        for name, part in self._parts.items():
            prefix = _prefix(name)
            for attribute, value in list(vars(self).items()):
                if attribute.startswith(prefix):
                    setattr(part, attribute.removeprefix(prefix), value)
        return self._parts

    @property
    def _annotations(self) -> set[Annotation]:
        """What the parts need of annotated classes, where they need them."""
        return {part.annotation for part in self._parts.values()} - {"unused"}

    @property
    def annotation(self) -> Annotation:  # type: ignore[override]
        """See `Method.annotation`."""
        for annotation in self._annotations:
            return annotation
        return "unused"

    @property
    def inputs(self) -> frozenset[str]:
        """See `Method.inputs`."""
        inputs: frozenset[str] = frozenset()
        for part in self._parts.values():
            inputs |= part.inputs
        return inputs

    @property
    def wants_split(self) -> str | None:
        """See `Method.wants_split`."""
        return self.ood_split

    @property
    def wants_validation(self) -> bool:
        """See `Method.wants_validation`."""
        return True

    def no_torch_form(self) -> str:
        """See `Method.no_torch_form`."""
        for name, part in self._parts.items():
            reason = part.no_torch_form()
            if reason:
                return f"its part {name!r}: {reason}"
        return ""

    def _fit(self, regions: RegionsLike) -> None:
        for name, part in self._new_parts().items():
            part.fit(regions)
            for attribute, value in part._state().items():
                setattr(self, f"{_prefix(name)}{attribute}", value)
        self.weights_ = np.ones(len(self.parts))
        self._learn_shares(regions)

    def learn_validation(self, regions: RegionsLike) -> None:
        """See `Method.learn_validation`."""
        refuse_other_than_regions(regions)
        if count_rows(regions) == 0:
            raise FitError(f"{self.name}: there are no ID validation detections")
        self._learn_shares(regions)

    def _learn_shares(self, regions: RegionsLike) -> None:
        """Stores the distribution of the scores of each part."""
        knots = []
        for name, part in self._fitted_parts().items():
            scores = [np.zeros(0)]
            for block in self._blocks(regions):
                # Detections that are labelled unknown are below all others, whatever their score.
                known = block[~block.is_labelled_unknown]
                scores.append(part._score(RegionRows(known)))
            scores_of_part = np.concatenate(scores)
            if not len(scores_of_part):
                raise FitError(f"{self.name}: there are no detections to rank {name!r} by")
            knots.append(Knots.of(scores_of_part))
        self.knots_ = [len(of_part.scores) for of_part in knots]
        self.scores_ = np.concatenate([of_part.scores for of_part in knots])
        self.shares_ = np.concatenate([of_part.shares for of_part in knots])

    def learn_split(self, known: RegionsLike, unknown: RegionsLike) -> None:
        """See `Method.learn_split`."""
        # scikit-learn takes a second.
        from sklearn.linear_model import LogisticRegression

        log_odds = [self._log_odds_of(known), self._log_odds_of(unknown)]
        counts = [len(rows) for rows in log_odds]
        if min(counts) == 0:
            raise FitError(
                f"{self.name}: {counts[0]} known and {counts[1]} unknown detections (the split "
                f"{self.ood_split!r}) are too few to learn from"
            )
        regression = LogisticRegression(class_weight="balanced", max_iter=1000)
        regression.fit(np.concatenate(log_odds), np.repeat([1, 0], counts))
        self.weights_ = regression.coef_[0]

    def _log_odds_of(self, regions: RegionsLike) -> np.ndarray:
        """Log-odds of the shares of all rows, shape (n, K)."""
        refuse_other_than_regions(regions)
        missing = self.missing(regions)
        if count_rows(regions) and missing:
            raise FitError(f"{self.name}: {self.ood_split!r} lacks {', '.join(missing)}")
        blocks = [np.zeros((0, len(self.parts)))]
        for block in self._blocks(regions):
            blocks.append(self._log_odds(self._shares(RegionRows(block))))
        return np.concatenate(blocks)

    def _shares(self, rows: Rows) -> Array:
        """The share of validation detections below each row, by part, shape (n, K)."""
        shares = []
        first = 0
        for part, count in zip(self._fitted_parts().values(), self.knots_, strict=True):
            knots = slice(first, first + count)
            shares.append(
                _interpolated(part._score(rows), self.scores_[knots], self.shares_[knots])
            )
            first += count
        return rows.xp.stack(shares, axis=1)

    @staticmethod
    def _log_odds(shares: Array) -> Array:
        above = shares.clip(SMALLEST_SHARE, 1 - SMALLEST_SHARE)
        ratio = above / (1 - above)
        return np.log(ratio) if isinstance(ratio, np.ndarray) else ratio.log()

    def _score(self, rows: Rows) -> Array:
        shares = self._shares(rows)
        if self.by == "mean":
            return rows.xp.mean(shares, axis=1)
        if self.by == "fisher":
            return rows.xp.sum(rows.xp.log(shares), axis=1)
        if self.by == "logistic":
            return self._log_odds(shares) @ self.weights_
        # The k of p_(k) is the number of shares that are not larger.
        not_larger = cast(shares[:, None, :] <= shares[:, :, None], shares.dtype)
        bounds = len(self.parts) * shares / rows.xp.sum(not_larger, axis=2)
        return rows.xp.min(bounds, axis=1)


def _prefix(part: str) -> str:
    """Beginning of the names of the fitted attributes of a part."""
    return f"{part}__"


def _why_not_fused(part: Method) -> str:
    """Why a method cannot be a part; "" where it can."""
    if not part.computes:
        return "its scores are not computed from regions"
    if part.fixed_threshold is not None:
        return "it has a threshold of its own"
    if part.wants_truth:
        return "it learns from true classes; set what it learns, as temperature: 1.5"
    if part.wants_pass is not None or part.wants_split is not None or part.wants_validation:
        return "it learns from more than the training detections"
    return ""


def _interpolated(scores: Array, knots: Array, shares: Array) -> Array:
    """Linear interpolation of the shares at the knots, which is constant beyond their ends.

    Args:
        scores: Shape (n,).
        knots: Rising, shape (J,).
        shares: Shape (J,).
    """
    if isinstance(scores, np.ndarray):
        return np.interp(scores, knots, shares)
    if len(knots) == 1:
        return scores * 0 + shares
    # Of each piece between two knots, how much of it lies below the score.
    parts = (scores[:, None] - knots[:-1]) / (knots[1:] - knots[:-1])
    return shares[0] + parts.clamp(0, 1) @ (shares[1:] - shares[:-1])
