"""What methods that are made of others share: their parts, and scores as shares of ID detections.

A part is a method with its own parameters, or, with the key `pass`, one that scores the rows of a
pass of the run beside its detections.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from farther.methods.arrays import Array
from farther.methods.base import (
    METHODS,
    Annotation,
    FitError,
    Method,
    RegionsLike,
    count_rows,
    parameters,
    refuse_other_than_regions,
)
from farther.methods.rows import RegionRows, Rows
from farther.tables import Header, Regions
from farther.tables.regions import pass_column

#: A method as params.yaml names it: its name, or {name: parameters}.
Named = str | dict[str, dict[str, Any]]

#: Most scores that are stored of each part: of more validation detections, evenly spaced quantiles.
MOST_KNOTS = 1024

#: Smallest distance of two stored scores, as a share of the range of the central 90%: a rounding
#: error of a score then changes its share little.
SMALLEST_GAP = 1e-4


@dataclass(frozen=True)
class Knots:
    """A distribution of scores as the corners of its cumulative distribution function.

    Args:
        scores: Rising, shape (J,).
        shares: Share of the distribution at or below each, shape (J,).
    """

    scores: Array
    shares: Array

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

    def share_below(self, scores: Array) -> Array:
        """Share of the distribution at or below each of n scores, shape (n,).

        Between the knots it is interpolated, beyond their ends constant.
        """
        if isinstance(scores, np.ndarray):
            return np.interp(scores, self.scores, self.shares)
        if len(self.scores) == 1:
            return scores * 0 + self.shares
        # Of each piece between two knots, how much of it lies below the score.
        widths = self.scores[1:] - self.scores[:-1]
        pieces = (scores[:, None] - self.scores[:-1]) / widths
        return self.shares[0] + pieces.clamp(0, 1) @ (self.shares[1:] - self.shares[:-1])


@dataclass(frozen=True)
class Part:
    """A method that another one is made of.

    Args:
        name: Its name there.
        method: The method.
        pass_name: The pass whose rows it scores; None for the detections.
    """

    name: str
    method: Method
    pass_name: str | None

    @property
    def inputs(self) -> frozenset[str]:
        """The inputs of the method under the names that they have beside the detections' own."""
        if self.pass_name is None:
            return self.method.inputs
        inputs = set()
        for name in self.method.inputs:
            # The confidence and the class are the detections'.
            if name in ("score", "labels"):
                inputs.add(name)
            else:
                inputs.add(pass_column(self.pass_name, name))
        return frozenset(inputs)

    def score(self, rows: Rows) -> Array:
        """Scores of n rows, shape (n,)."""
        if self.pass_name is None:
            return self.method._score(rows)
        return self.method._score(rows.of_pass(self.pass_name))

    def of(self, regions: RegionsLike) -> RegionsLike:
        """The regions that the method learns from."""
        if self.pass_name is None:
            return regions
        return _OfPass(regions, self.pass_name)


class _OfPass:
    """The rows of a pass in regions that have its columns beside their own; see `RegionsLike`."""

    def __init__(self, regions: RegionsLike, pass_name: str):
        self._regions = regions
        self._pass_name = pass_name

    @property
    def header(self) -> Header:
        return self._regions.header.passes[self._pass_name]

    def has(self, column: str) -> bool:
        if column == "score":
            return True
        return self._regions.has(pass_column(self._pass_name, column))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        names = None
        if columns is not None:
            # The logits are always among the columns of regions.
            names = [pass_column(self._pass_name, name) for name in ["logits", *columns]]
        for batch in self._regions.batches(names):
            yield batch.of_pass(self._pass_name)


@parameters
class Combined(Method):
    """Base of the methods that are made of others.

    A subclass calls `_set_parts` when it is made, and `_fit_parts` and `_set_knots` when it learns.
    Its own fitted attributes include those of the parts, with a prefix.

    Attributes:
        knots_: Number of stored scores of each part.
        scores_, shares_: The stored scores of all parts and their shares, one part after the other,
            ndarrays of shape (ΣJ,).
    """

    def _set_parts(self, params_by_part: Mapping[str, Mapping[str, Any]]) -> None:
        """Makes the parts, not fitted.

        Args:
            params_by_part: Name of each → its parameters, the keys `method` and `pass` among them.

        Raises:
            ParameterError: a method or a parameter is unknown.
            ValueError: a method cannot be a part, or they need classes in different ways.
        """
        self._params_by_part = params_by_part
        self._parts = _created(params_by_part)
        annotations = self._annotations
        if len(annotations) > 1:
            problem = f"the parts need classes in different ways: {sorted(annotations)}"
            raise ValueError(problem)

    def __copy__(self) -> Self:
        """A copy whose parts can get other fitted attributes, as tensors in the place of arrays."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        copied._parts = []
        for part in self._parts:
            copied._parts.append(Part(part.name, copy.copy(part.method), part.pass_name))
        return copied

    @property
    def parts(self) -> dict[str, str]:
        """Name of each part → its method."""
        return {part.name: part.method.name for part in self._parts}

    @property
    def passes_beside(self) -> tuple[str, ...]:
        """See `Method.passes_beside`."""
        names = {part.pass_name for part in self._parts if part.pass_name is not None}
        return tuple(sorted(names))

    @property
    def _annotations(self) -> set[Annotation]:
        """What the parts need of annotated classes, where they need them."""
        return {part.method.annotation for part in self._parts} - {"unused"}

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
        for part in self._parts:
            inputs |= part.inputs
        return inputs

    @property
    def values_at_once(self) -> int:  # type: ignore[override]
        """See `Method.values_at_once`: the least of the parts'."""
        return min(part.method.values_at_once for part in self._parts)

    @property
    def wants_validation(self) -> bool:
        """See `Method.wants_validation`."""
        return True

    @property
    def only_float64(self) -> str:  # type: ignore[override]
        """See `Method.only_float64`."""
        for part in self._parts:
            if part.method.only_float64:
                return f"its part {part.name!r}: {part.method.only_float64}"
        return ""

    def no_torch_form(self) -> str:
        """See `Method.no_torch_form`."""
        for part in self._parts:
            reason = part.method.no_torch_form()
            if reason:
                return f"its part {part.name!r}: {reason}"
        return ""

    def remarks(self) -> list[str]:
        """See `Method.remarks`."""
        remarks = []
        for part in self._fitted_parts():
            remarks += [f"{part.name}: {remark}" for remark in part.method.remarks()]
        return remarks

    def _check(self, regions: RegionsLike) -> None:
        super()._check(regions)
        for part in self._fitted_parts():
            part.method._check(part.of(regions))

    def _fit_parts(self, regions: RegionsLike) -> None:
        """Fits new parts, whose fitted attributes become attributes here.

        Raises:
            FitError: a part cannot be fitted; says which.
        """
        for number, part in enumerate(_created(self._params_by_part)):
            try:
                part.method.fit(part.of(regions))
            except FitError as error:
                raise FitError(f"{self.name}, its part {part.name!r}: {error}") from None
            for attribute, value in part.method._state().items():
                setattr(self, f"{_prefix(number)}{attribute}", value)

    def _fitted_parts(self) -> list[Part]:
        """The parts with their fitted attributes, arrays or tensors, which are attributes here."""
        for number, part in enumerate(self._parts):
            prefix = _prefix(number)
            for attribute, value in list(vars(self).items()):
                if attribute.startswith(prefix):
                    setattr(part.method, attribute.removeprefix(prefix), value)
        return self._parts

    def _known(self, regions: RegionsLike) -> Iterator[Regions]:
        """The rows in blocks, without those that the detector labels as unknown.

        Those are below all others, whatever their score.
        """
        for block in self._blocks(regions, self.values_at_once):
            known = block[~block.is_labelled_unknown]
            if len(known):
                yield known

    def _ranked_by(self, part: Part, regions: RegionsLike) -> np.ndarray:
        """Scores of a part, of the rows of `_known`, shape (n,).

        Raises:
            FitError: there are none.
        """
        scores = [part.score(RegionRows(block)) for block in self._known(regions)]
        if not scores:
            raise FitError(f"{self.name}: there are no detections to rank {part.name!r} by")
        return np.concatenate(scores)

    def _check_validation(self, regions: RegionsLike) -> None:
        """Refuses validation detections that nothing can be learned from.

        Raises:
            FitError: there are none, or they lack a column.
        """
        refuse_other_than_regions(regions)
        if count_rows(regions) == 0:
            raise FitError(f"{self.name}: there are no ID validation detections")
        missing = self.missing(regions)
        if missing:
            raise FitError(f"{self.name}: ID validation detections lack {', '.join(missing)}")

    def _set_knots(self, knots: Sequence[Knots]) -> None:
        """Stores the distribution of the scores of each part."""
        self.knots_ = [len(of_part.scores) for of_part in knots]
        self.scores_ = np.concatenate([of_part.scores for of_part in knots])
        self.shares_ = np.concatenate([of_part.shares for of_part in knots])

    def _knots(self) -> list[Knots]:
        """The stored distribution of the scores of each part, arrays or tensors."""
        knots = []
        first = 0
        for count in self.knots_:
            rows = slice(first, first + count)
            knots.append(Knots(self.scores_[rows], self.shares_[rows]))
            first += count
        return knots


def _prefix(number: int) -> str:
    """Beginning of the names of the fitted attributes of a part, by its number."""
    return f"part{number}__"


def _created(params_by_part: Mapping[str, Mapping[str, Any]]) -> list[Part]:
    """The parts, not fitted; see `Combined._set_parts`."""
    parts = []
    for name, params in params_by_part.items():
        of_method = dict(params)
        method_name = str(of_method.pop("method", name))
        pass_name = of_method.pop("pass", None)
        if pass_name is not None and not isinstance(pass_name, str):
            raise ValueError(f"{name!r}: 'pass' is the name of a pass, found {pass_name!r}")
        method = METHODS.create(method_name, **of_method)
        reason = _why_no_part(method)
        if reason:
            raise ValueError(f"{name!r} cannot be a part: {reason}")
        parts.append(Part(name, method, pass_name))
    return parts


def _why_no_part(method: Method) -> str:
    """Why a method cannot be a part; "" where it can."""
    if method.parts:
        return "it is made of others itself; name those"
    if not method.computes:
        return "its scores are not computed from regions"
    if method.fixed_threshold is not None:
        return "it has a threshold of its own"
    if method.wants_truth:
        return "it learns from true classes; set what it learns, as temperature: 1.5"
    if method.wants_pass is not None or method.wants_split is not None or method.wants_validation:
        return "it learns from more than the training detections"
    return ""
