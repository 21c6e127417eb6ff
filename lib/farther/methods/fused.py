"""Several scores as one."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from farther.methods.arrays import Array, cast
from farther.methods.base import (
    FitError,
    Publication,
    RegionsLike,
    count_rows,
    refuse_other_than_regions,
    register,
)
from farther.methods.combined import Combined, Knots
from farther.methods.rows import RegionRows, Rows

#: Distance of a share from 0 and 1 below which its log-odds stay as they are.
SMALLEST_SHARE = 1e-6


@register("fused")
class Fused(Combined):
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
    names_methods: ClassVar[tuple[str, ...]] = ("of",)
    of: dict[str, dict[str, Any]] | tuple[str, ...]
    by: Literal["mean", "fisher", "simes", "logistic"] = "fisher"
    ood_split: str | None = None

    def __post_init__(self) -> None:
        params_by_part = self.of
        if not isinstance(params_by_part, dict):
            params_by_part = {name: {} for name in params_by_part}
        if len(self.of) < 2:
            raise ValueError("'of' needs two methods or more")
        if self.by == "logistic" and self.ood_split is None:
            raise ValueError("'by: logistic' learns from an OOD split: name it as 'ood_split'")
        if self.by != "logistic" and self.ood_split is not None:
            raise ValueError(f"'ood_split' goes with 'by: logistic', not with {self.by!r}")
        self._set_parts(params_by_part)
        is_list = not isinstance(self.of, dict)
        if is_list and len(set(self.parts.values())) < len(self.of):
            raise ValueError("'of' names a method twice: give each its own name and parameters")

    @property
    def wants_split(self) -> str | None:
        """See `Method.wants_split`."""
        return self.ood_split

    def _fit(self, regions: RegionsLike) -> None:
        self._fit_parts(regions)
        self.weights_ = np.ones(len(self._parts))
        self._learn_shares(regions)

    def learn_validation(self, regions: RegionsLike) -> None:
        """See `Method.learn_validation`."""
        self._check_validation(regions)
        self._learn_shares(regions)

    def _learn_shares(self, regions: RegionsLike) -> None:
        """Stores the distribution of the scores of each part."""
        parts = self._fitted_parts()
        self._set_knots([Knots.of(self._ranked_by(part, regions)) for part in parts])

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
        blocks = [np.zeros((0, len(self._parts)))]
        for block in self._blocks(regions):
            blocks.append(self._log_odds(self._shares(RegionRows(block))))
        return np.concatenate(blocks)

    def _shares(self, rows: Rows) -> Array:
        """The share of validation detections below each row, by part, shape (n, K)."""
        shares = []
        for part, knots in zip(self._fitted_parts(), self._knots(), strict=True):
            shares.append(knots.share_below(part.score(rows)))
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
        bounds = len(self._parts) * shares / rows.xp.sum(not_larger, axis=2)
        return rows.xp.min(bounds, axis=1)
