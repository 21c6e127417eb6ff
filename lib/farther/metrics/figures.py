"""Figures of one's own, computed for each method on each OOD split.

One is a registered dataclass in a module of this package; a line under `evaluate.more` of params.yaml asks for it:

    evaluate: {iou: 0.5, protocol: paper, more: {objects_a_flag: {}}}

Its values stand in `metrics/<run>/<split>/<method>.json` beside the others', which DVC compares, and under `more` in
`evaluation/<run>.json`. They have no intervals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic.dataclasses import dataclass as checked_dataclass

from farther.errors import ParameterError
from farther.metrics.open_set import Outcome
from farther.registry import STRICT, Registry
from farther.tables import Regions


@dataclass(frozen=True)
class Case:
    """A method on an OOD split; only regions at or above the operating threshold t* are there.

    Args:
        id_regions: N regions of the ID split that OOD splits are compared with.
        id_scores: The method's scores of them, shape (N,); higher means more in-distribution.
        regions: M regions of the OOD split.
        scores: The method's scores of them, shape (M,).
        tau: The method's threshold τ: a region with a lower score is flagged as unknown.
        outcome: What became of the split's objects and regions; its `split` has the objects.
    """

    id_regions: Regions
    id_scores: np.ndarray
    regions: Regions
    scores: np.ndarray
    tau: float
    outcome: Outcome


@checked_dataclass(config=STRICT, kw_only=True)
class Figure(ABC):
    """A figure; its parameters are its fields."""

    @abstractmethod
    def compute(self, case: Case) -> float | None:
        """The value; None where it is not defined."""


FIGURES: Registry[Figure] = Registry("figure", "farther.metrics")
register = FIGURES.register


def create_all(wanted: Mapping[str, Mapping[str, Any]], taken: Collection[str]) -> dict[str, Figure]:
    """The figures that are asked for, by name.

    Args:
        wanted: The parameters of each.
        taken: Names that other figures in the same files have.

    Raises:
        ParameterError: a name or a parameter is unknown, a name is taken, or a value does not fit.
    """
    if twice := sorted(set(wanted) & set(taken)):
        raise ParameterError(f"evaluate.more: {', '.join(twice)}: computed anyway; give yours another name")
    return {name: FIGURES.create(name, **params) for name, params in wanted.items()}
