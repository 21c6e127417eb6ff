"""Softmax probability at a temperature."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveFloat
from pydantic.dataclasses import dataclass

from farther.errors import DataError
from farther.methods.base import register
from farther.methods.logits import LogitsMethod, log_sum_exp, sigmoid, softmax
from farther.registry import STRICT


@register("temperature_scaling")
@dataclass(config=STRICT, kw_only=True)
class TemperatureScaling(LogitsMethod):
    """The largest class probability at a temperature.

    The default temperature is ODIN's; its other half, a step along the gradient of the image, needs the network and is
    not done here. OpenOOD's temperature minimises the negative log likelihood of the *true* classes of validation
    images. Regions know the predicted class only, and its likelihood is greatest at T = 0; so `fit` does not choose T.
    Where true classes are known, from detections matched with annotations, `fit_temperature` does.

    Formula:
        score = max_c p_c, with p = softmax(c / T); with `activation="detector"` on a sigmoid head,
        max_c sigmoid(c_c / T)

    Source:
        Guo et al., "On Calibration of Modern Neural Networks", 2017; Liang et al., "Enhancing The Reliability of
        Out-of-distribution Image Detection in Neural Networks", 2018 ("TS" of the realistic benchmark).

    Args:
        temperature: T, above 0.
    """

    temperature: PositiveFloat = 1000.0

    def _softmax_score(self, logits: np.ndarray) -> np.ndarray:
        return softmax(logits / self.temperature).max(axis=1)

    def _sigmoid_score(self, logits: np.ndarray) -> np.ndarray:
        return sigmoid(logits.max(axis=1) / self.temperature)


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
