"""Softmax probability at a temperature."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import PositiveFloat

from farther.errors import DataError
from farther.methods.arrays import Array, log_sum_exp, sigmoid, softmax
from farther.methods.base import (
    FitError,
    Method,
    Publication,
    RegionsLike,
    count_rows,
    refuse_other_than_regions,
    register,
)
from farther.methods.logits import Activation, Background, class_columns, class_logits
from farther.methods.rows import Rows
from farther.tables import Header
from farther.tables.arguments import integers

#: The range of T.
LOWEST, HIGHEST = 1e-3, 1e3

#: Share of detections of one score from which on it is remarked.
MANY = 0.1


@register("temperature_scaling")
class TemperatureScaling(Method):
    """The largest class probability at the temperature that calibrates it.

    T minimises the negative log likelihood of the true classes of ID validation detections, as
    OpenOOD does on validation images. A detection that matches no object counts as background with
    `background="keep"`, and is left out otherwise. T is fitted to the softmax for sigmoid heads
    too. T is at most 10³. Where the most likely T is below 10⁻³, as where all of these detections
    have the right class, T is 1.

    Formula:
        score = max_c p_c, with p = softmax(z / T); with `activation="detector"` on a sigmoid head,
        max_c sigmoid(z_c / T)

    Args:
        temperature: T, above 0; None fits it. 1000 is ODIN's (Liang et al. 2018, arXiv:1706.02690),
            whose other half, a step of the image, is the pass that `pass` names; alone it is "TS"
            of Recalcati et al., 2023 (arXiv:2404.10474), and ranks nearly as the largest logit.
        background: "drop" leaves the background logit out, "keep" counts it as one more class.
        activation: "softmax" over the classes, or "detector": the head's own.

    Attributes:
        temperature_: T, where it is fitted.
        most_likely_: "within" the range of T, or where the likelihood still grows: "below" or
            "above" it.
        certain_: Share of the validation detections whose largest probability is 1 at T.

    References:
        Guo et al., "On Calibration of Modern Neural Networks", 2017, arXiv:1706.04599. Code:
        https://github.com/gpleiss/temperature_scaling

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> create("temperature_scaling", temperature=2.0).score(
        ...     toy_regions(logits=[[0.0, 2.0]])
        ... ).round(4)
        array([0.7311])
    """

    publication: ClassVar[Publication | None] = Publication(
        "On Calibration of Modern Neural Networks",
        2017,
        "https://arxiv.org/abs/1706.04599",
        code="https://github.com/gpleiss/temperature_scaling",
    )
    title: ClassVar[str] = "Temperature scaling"
    aliases: ClassVar[tuple[str, ...]] = ("TempScale", "TempScaling", "TS")
    published_entries: ClassVar[dict[str, tuple[str, str]]] = {
        "ODIN": (
            "odin: {method: temperature_scaling, temperature: 1000, pass: perturbed}",
            "perturbed: {kind: perturb, epsilon: 0.0014, temperature: 1000}",
        ),
        "i-ODIN": (
            "i_odin: {method: temperature_scaling, temperature: 1000, pass: one_value}",
            "one_value: {kind: perturb, epsilon: 0.0014, temperature: 1000, moved: largest}",
        ),
    }
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    temperature: PositiveFloat | None = None
    background: Background = "drop"
    activation: Activation = "softmax"

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
        refuse_other_than_regions(regions)
        true_column = _columns_of(true_column, count_rows(regions), regions.header)
        columns = class_columns(regions.header, self.background)
        position = np.full(
            len(regions.header.classes) + 1, -1
        )  # the last entry is that of column −1
        position[columns] = np.arange(len(columns))
        known = position[true_column] >= 0
        if not known.any():
            raise FitError(
                f"{self.name}: no ID validation detection matches an object of a known class"
            )
        z = np.concatenate(
            [
                class_logits(batch, self.background, self.activation)
                for batch in regions.batches([])
                if len(batch)
            ]
        )
        most_likely = fit_temperature(z[known], position[true_column][known])
        self.temperature_ = most_likely
        self.most_likely_ = "within"
        if most_likely <= LOWEST:
            self.temperature_ = 1.0
            self.most_likely_ = "below"
        elif most_likely >= HIGHEST:
            self.most_likely_ = "above"
        largest = softmax(z / self.temperature_).max(axis=1)
        self.certain_ = float(np.mean(largest == 1))

    def remarks(self) -> list[str]:
        """See `Method.remarks`."""
        if not hasattr(self, "most_likely_"):
            return []
        remarks = []
        if self.most_likely_ == "below":
            remarks.append(
                f"the most likely T is below {LOWEST:g}, as (nearly) all ID validation detections "
                "have the right class: T = 1 is taken"
            )
        if self.most_likely_ == "above":
            remarks.append(
                f"the most likely T is above {HIGHEST:g}, as the logits of the ID validation "
                f"detections tell little of their true classes, or are large: T = {HIGHEST:g} is "
                "taken"
            )
        if self.certain_ > MANY:
            remarks.append(
                f"at T = {self.temperature_:.3g}, the score of {self.certain_:.0%} of the ID "
                "validation detections is exactly 1: it does not rank them"
            )
        return remarks

    def _score(self, rows: Rows) -> Array:
        temperature = self.temperature
        if temperature is None:
            temperature = getattr(self, "temperature_", None)
        if temperature is None:
            problem = "T is fitted to validation detections with known classes"
            raise FitError(f"{self.name}: {problem}: call learn_truth, or give `temperature`")
        temperature = rows.number(temperature)
        z = rows.logits(self.background, self.activation)
        xp = rows.xp
        if rows.is_sigmoid(self.activation):
            return sigmoid(xp.max(z, axis=1) / temperature)
        return xp.max(softmax(z / temperature), axis=1)


def fit_temperature(logits: np.ndarray, true_class: np.ndarray) -> float:
    """The temperature at which softmax(z / T) maximises the likelihood of the true classes.

    The log likelihood is concave in 1 / T, so bisection of log T finds the root of its derivative.

    Args:
        logits: z, ndarray of shape (N, C).
        true_class: Column of each row's true class, ndarray of shape (N,).

    Returns:
        T between `LOWEST` and `HIGHEST`; one of these where the likelihood still grows there.

    Raises:
        DataError: there are no rows, or a class is out of range.
    """
    logits = np.asarray(logits, dtype=np.float64)
    if len(logits) == 0 or len(true_class) != len(logits):
        raise DataError(
            f"expected one class per row, found {len(true_class)} for {len(logits)} rows"
        )
    if np.min(true_class) < 0 or np.max(true_class) >= logits.shape[1]:
        raise DataError(
            f"expected 0 … {logits.shape[1] - 1}, found {np.min(true_class)} … {np.max(true_class)}"
        )
    of_true_class = logits[np.arange(len(logits)), true_class].mean()

    def is_over_confident(temperature: float) -> bool:
        """Whether the expected logit exceeds the true class's: a higher temperature is better."""
        scaled = logits / temperature
        probabilities = np.exp(scaled - log_sum_exp(scaled)[:, None])
        return bool((probabilities * logits).sum(axis=1).mean() > of_true_class)

    if not is_over_confident(LOWEST):
        return LOWEST
    if is_over_confident(HIGHEST):
        return HIGHEST
    low = np.log(LOWEST)
    high = np.log(HIGHEST)
    for _ in range(100):
        middle = (low + high) / 2
        if is_over_confident(float(np.exp(middle))):
            low = middle
        else:
            high = middle
    return float(np.exp((low + high) / 2))


def _columns_of(values: Any, count: int, header: Header) -> np.ndarray:
    """Logits columns, −1 for none, shape (count,); others are refused by their row."""
    columns = integers(values, "true_column", shape=(count,))
    last = len(header.classes) - 1
    is_wrong = (columns < -1) | (columns > last)
    if is_wrong.any():
        row = int(is_wrong.argmax())
        problem = f"expected a logits column, 0 to {last}, or -1 for none, found {columns[row]}"
        raise DataError(problem, row=row, field="true_column")
    return columns
