"""User-defined metrics, computed for each method on each OOD split.

One is a class that a file in the project's folder `extensions/` registers; a line under
`evaluate.user_defined` of params.yaml asks for it:

    evaluate: {iou: 0.5, protocol: paper, user_defined: {objects_per_flag: {}}}

Its values are stored in `metrics/<run>/<split>/<method>.json` beside the others, which DVC
compares, and in the group `user_defined` of `results/<run>.parquet`. They have no intervals:
their formulas take no weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass as checked_dataclass

from farther.errors import ParameterError
from farther.metrics.open_set.outcomes import Outcome
from farther.naming.registry import STRICT, Parameters, Registry
from farther.tables import Regions


@dataclass(frozen=True)
class Case:
    """A method on an OOD split; with the regions at or above the operating threshold t*.

    Args:
        id_regions: N regions of the ID split that OOD splits are compared with.
        id_scores: The method's scores of them, shape (N,); higher means more in-distribution.
        regions: M regions of the OOD split.
        scores: The method's scores of them, shape (M,).
        tau: The method's threshold τ: a region with a lower score is flagged as unknown.
        outcome: The regions matched to the split's objects, which are `outcome.split.objects`.
    """

    id_regions: Regions
    id_scores: np.ndarray
    regions: Regions
    scores: np.ndarray
    tau: float
    outcome: Outcome


METRICS: Registry[UserDefinedMetric] = Registry(
    "metric", "farther.metrics", spelling="any", listed_by="farther list metrics"
)
register = METRICS.register


@checked_dataclass(config=STRICT, kw_only=True)
class UserDefinedMetric(Parameters, ABC):
    """A user-defined metric; its parameters are its fields. `farther.Metric` is this class."""

    REGISTRY: ClassVar[Registry[Any]] = METRICS

    @abstractmethod
    def compute(self, case: Case) -> float | None:
        """The value; None where it is not defined.

        Args:
            case: Regions, scores, τ and outcomes of a method on an OOD split.
        """


def create_all(
    parameters: Mapping[str, Mapping[str, Any]], taken: Collection[str]
) -> dict[str, UserDefinedMetric]:
    """Creates the user-defined metrics that params.yaml names.

    Args:
        parameters: Metric → its parameters.
        taken: Names of the other metrics in the same files.

    Raises:
        ParameterError: a name or a parameter is unknown, a name is taken, or a value does not
            fit.
    """
    clashing = sorted(set(parameters) & set(taken))
    if clashing:
        raise ParameterError(
            f"evaluate.user_defined: {', '.join(clashing)}: a metric of farther; "
            "choose another name"
        )
    return {name: METRICS.create(name, **values) for name, values in parameters.items()}
