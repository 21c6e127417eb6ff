"""A second score where the first is undecided."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from farther.methods.arrays import Array
from farther.methods.base import (
    FitError,
    Publication,
    RegionsLike,
    register,
    scores_labelled_unknown,
)
from farther.methods.combined import Combined, Knots, Named
from farther.methods.rows import RegionRows, Rows
from farther.tables import Regions


class FirstOpinion(NamedTuple):
    """What the first method says of N detections.

    Attributes:
        score: Their scores without the second method, ndarray of shape (N,).
        is_undecided: Whether the second method is to be asked, ndarray of shape (N,), bool.
    """

    score: np.ndarray
    is_undecided: np.ndarray


@register("cascade")
class Cascade(Combined):
    """A cheap score, and a second one for the detections about which the first is undecided.

    Each score becomes the share of ID validation detections below it, as in `fused`. The first is
    undecided in a band of shares, around that at which decisions fall: τ keeps 95% of the ID
    validation detections, so it lies at 0.05. Detections outside of the band keep the first's
    share. Those in the band are ordered by the second: its share of the validation detections that
    are in the band, too, is mapped into the band. So the score stays one share of validation
    detections, and any threshold can be taken on it. With `share: 1` it is the second's.

    The second is computed for the detections in the band alone, on the CPU and in a deployed
    detector: what it costs counts by `asked_`. In PyTorch and ONNX both are computed for all.

    Without `learn_validation` the detections that the parts are fitted to take the place of the
    validation detections.

    Formula:
        score = p_1 outside of the band a ≤ p_1 ≤ b, a + (b − a) q_2 in it, where p_1 = #{i :
        s_1(x_i) ≤ s_1(x)} / (n + 1) and q_2 = #{i ∈ B : s_2(x_i) ≤ s_2(x)} / (|B| + 1), s_1 and s_2
        the scores, x_i the n validation detections and B those in the band; a = max(0, around −
        share / 2) and b = a + share, both moved to the middle between two shares of validation
        detections

    Args:
        first: The score of all detections: name of a method or, in params.yaml, of an entry of
            section `methods`; or {name: parameters}.
        then: The score of those in the band, as `first`; it may score a pass.
        share: Share of the ID validation detections that are in the band.
        around: The share in the middle of the band: 1 − `fit.keep`. Where the band would begin
            below 0, it begins at 0.

    Attributes:
        band_: a and b, ndarray of shape (2,).
        asked_: Share of the validation detections in the band, `detections`, and of the images with
            detections that have one in the band, `images`.
        knots_: Number of stored scores of each part.
        scores_, shares_: The stored scores of both parts and their shares, one part after the
            other, ndarrays of shape (ΣJ,).

    References:
        Viola and Jones, "Rapid Object Detection using a Boosted Cascade of Simple Features", CVPR
        2001, https://doi.org/10.1109/CVPR.2001.990517

        Bates et al., "Testing for Outliers with Conformal p-values", 2021, arXiv:2104.08279.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> train = toy_regions(logits=[[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [0.0, 4.0]])
        >>> both = create("cascade", first="energy", then="msp", share=0.5).fit(train)
        >>> both.band_
        array([0. , 0.5])
        >>> both.score(train).round(2)  # the second orders the lower two
        array([0.17, 0.33, 0.6 , 0.8 ])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Rapid Object Detection using a Boosted Cascade of Simple Features",
        2001,
        "https://doi.org/10.1109/CVPR.2001.990517",
    )
    title: ClassVar[str] = "Cascade"
    names_methods: ClassVar[tuple[str, ...]] = ("first", "then")
    first: Named
    then: Named
    share: Annotated[float, Field(gt=0, le=1)] = 0.2
    around: Annotated[float, Field(ge=0, le=1)] = 0.05

    def __post_init__(self) -> None:
        self._set_parts({**_named("first", self.first), **_named("then", self.then)})
        if len(self._parts) < 2:
            raise ValueError("'first' and 'then' have the same name: give one a name of its own")
        of_pass = self._parts[0].pass_name
        if of_pass is not None:
            raise ValueError(
                f"'first' scores the pass {of_pass!r}, which would run for all detections: only "
                "'then' can score a pass"
            )

    def _fit(self, regions: RegionsLike) -> None:
        self._fit_parts(regions)
        self._learn_band(regions)

    def learn_validation(self, regions: RegionsLike) -> None:
        """See `Method.learn_validation`."""
        self._check_validation(regions)
        self._learn_band(regions)

    def _learn_band(self, regions: RegionsLike) -> None:
        """Takes the band, and the distributions of the scores."""
        first, second = self._fitted_parts()
        scores_of_first = self._ranked_by(first, regions)
        knots = Knots.of(scores_of_first)
        self.band_ = self._band(knots.shares)
        is_in_band = self._is_in_band(knots.share_below(scores_of_first))
        if not is_in_band.any():
            raise FitError(
                f"{self.name}: none of {len(is_in_band)} ID validation detections is in the band "
                f"of {first.name!r}: many have the same score, or `share` is too small"
            )

        row = 0
        scores_in_band = []
        images: set[str] = set()
        asked_images: set[str] = set()
        for block in self._known(regions):
            in_band = block[is_in_band[row : row + len(block)]]
            row += len(block)
            images.update(block.image_id)
            asked_images.update(in_band.image_id)
            if len(in_band):
                scores_in_band.append(second.score(RegionRows(in_band)))
        self.asked_ = {
            "detections": float(is_in_band.mean()),
            "images": len(asked_images) / len(images),
        }
        self._set_knots([knots, Knots.of(np.concatenate(scores_in_band))])

    def _band(self, shares: np.ndarray) -> np.ndarray:
        """The band's ends, ndarray of shape (2,): between two shares of the knots."""
        low = max(0.0, min(self.around - self.share / 2, 1 - self.share))
        high = low + self.share
        ends = np.array([0.0, *shares, 1.0])
        middles = (ends[1:] + ends[:-1]) / 2
        band = np.array([0.0, 1.0])
        if low > 0:
            band[0] = middles[np.searchsorted(shares, low, side="left")]
        if high < 1:
            band[1] = middles[np.searchsorted(shares, high, side="right")]
        return band

    def _is_in_band(self, shares: Array) -> Array:
        return (shares >= self.band_[0]) & (shares <= self.band_[1])

    def first_opinion(self, regions: Regions) -> FirstOpinion:
        """What the first method says, for callers that compute the second's columns when asked.

        `score` of the undecided detections alone, with these columns, gives their scores.

        Args:
            regions: N detections, without the columns of the second's pass.

        Raises:
            FitError: the method was not fitted.
        """
        self._check_fitted()
        if not len(regions):
            return FirstOpinion(np.zeros(0), np.zeros(0, dtype=bool))
        shares = self._share_of_first(RegionRows(regions))
        is_known = ~regions.is_labelled_unknown
        scores = np.where(is_known, shares, scores_labelled_unknown(regions))
        return FirstOpinion(scores, is_known & self._is_in_band(shares))

    def _share_of_first(self, rows: Rows) -> Array:
        first, _ = self._fitted_parts()
        return self._knots()[0].share_below(first.score(rows))

    def _place_in_band(self, rows: Rows) -> Array:
        """The share of detections in the band, by the second method."""
        _, second = self._fitted_parts()
        low = self.band_[0]
        width = self.band_[1] - low
        return low + width * self._knots()[1].share_below(second.score(rows))

    def _score(self, rows: Rows) -> Array:
        shares = self._share_of_first(rows)
        is_undecided = self._is_in_band(shares)
        if not isinstance(rows, RegionRows):
            return rows.xp.where(is_undecided, self._place_in_band(rows), shares)
        if is_undecided.any():
            in_band = RegionRows(rows.regions[is_undecided])
            shares[is_undecided] = self._place_in_band(in_band)
        return shares


def _named(parameter: str, value: Named) -> dict[str, dict]:
    """{name of a method or entry: its parameters}.

    Raises:
        ValueError: there is more than one.
    """
    if isinstance(value, str):
        return {value: {}}
    if len(value) != 1:
        raise ValueError(f"{parameter!r} needs one method, found {len(value)}: {sorted(value)}")
    return value
