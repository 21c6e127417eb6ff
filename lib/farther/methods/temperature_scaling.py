"""Softmax probability at a temperature."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass

from farther.errors import DataError
from farther.methods.base import FitError, RegionsLike, register
from farther.methods.logits import LogitsMethod, class_columns, class_logits, log_sum_exp, sigmoid, softmax
from farther.registry import STRICT


@register("temperature_scaling")
@dataclass(config=STRICT, kw_only=True)
class TemperatureScaling(LogitsMethod):
    """The largest class probability at a temperature that makes it honest.

    T is fitted where the true classes of ID validation detections are known: it minimises the negative log likelihood
    of those (as OpenOOD does on validation images). A detection that lies over no object counts as background with
    `background="keep"`, and is left out otherwise. Of a sigmoid head too the softmax is fitted.

    Formula:
        score = max_c p_c, with p = softmax(c / T); with `activation="detector"` on a sigmoid head,
        max_c sigmoid(c_c / T)

    Source:
        Guo et al., "On Calibration of Modern Neural Networks", 2017; "TS" of the realistic benchmark.

    Args:
        temperature: T, above 0; None fits it. 1000 is ODIN's, whose other half, a step along the gradient of the image,
            needs the network and is not done here (Liang et al. 2018).
    """

    title: ClassVar[str] = "Temperature scaling"
    temperature: PositiveFloat | None = None

    @property
    def wants_truth(self) -> bool:
        """See `Method.wants_truth`."""
        return self.temperature is None

    @property
    def learns(self) -> bool:
        """See `Method.learns`."""
        return self.temperature is None

    def learn_truth(self, regions: RegionsLike, true_column: np.ndarray) -> None:
        """See `Method.learn_truth`."""
        columns = class_columns(regions.header, self.background)
        place = np.full(len(regions.header.classes) + 1, -1)  # the last one is that of −1
        place[columns] = np.arange(len(columns))
        known = place[true_column] >= 0
        if not known.any():
            raise FitError(f"{self.name}: no ID validation detection lies over an object of a known class")
        logits = np.concatenate([class_logits(batch, self.background) for batch in regions.batches([]) if len(batch)])
        self.temperature_ = fit_temperature(logits[known], place[true_column][known])

    def _softmax_score(self, logits: np.ndarray) -> np.ndarray:
        return softmax(logits / self._divisor()).max(axis=1)

    def _sigmoid_score(self, logits: np.ndarray) -> np.ndarray:
        return sigmoid(logits.max(axis=1) / self._divisor())

    def _divisor(self) -> float:
        if self.temperature is not None:
            return self.temperature
        if not hasattr(self, "temperature_"):
            problem = "T is fitted to validation detections with known classes: call learn_truth, or give `temperature`"
            raise FitError(f"{self.name}: {problem}")
        return self.temperature_


def fit_temperature(logits: np.ndarray, true_class: np.ndarray) -> float:
    """The temperature at which softmax(logits / T) gives the true classes the greatest likelihood.

    The likelihood is concave in 1 / T, so the root of its slope is found by halving an interval of log T.

    Args:
        logits: ndarray of shape (N, C).
        true_class: Column of each row's true class, ndarray of shape (N,).

    Returns:
        T between 10⁻³ and 10³.

    Raises:
        DataError: there are no rows, or a class is no column.
    """
    logits = np.asarray(logits, dtype=np.float64)
    if len(logits) == 0 or len(true_class) != len(logits):
        raise DataError(f"expected a class for each of some rows, found {len(true_class)} for {len(logits)}")
    if np.min(true_class) < 0 or np.max(true_class) >= logits.shape[1]:
        raise DataError(f"expected 0 … {logits.shape[1] - 1}, found {np.min(true_class)} … {np.max(true_class)}")
    given = logits[np.arange(len(logits)), true_class].mean()
    low, high = np.log(1e-3), np.log(1e3)
    for _ in range(100):
        middle = (low + high) / 2
        scaled = logits / np.exp(middle)
        expected = (np.exp(scaled - log_sum_exp(scaled)[:, None]) * logits).sum(axis=1).mean()
        # too sure when the expected logit exceeds the true class's: a higher temperature is better
        low, high = (middle, high) if expected > given else (low, middle)
    return float(np.exp((low + high) / 2))
