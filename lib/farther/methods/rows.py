"""Rows as scores read them: columns as arrays of one library.

From a block of regions or from tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any, Literal

import numpy as np

from farther.methods.arrays import Array, log_sum_exp
from farther.tables import Header, Regions
from farther.tables.regions import LAYER

Background = Literal["drop", "keep"]
Activation = Literal["softmax", "detector"]

#: Logits of so many classes are laid out class by class.
MAX_CLASSES_TRANSPOSED = 128

#: Detections labelled unknown have scores from −2 to −1 times this: below all others, the most
#: confident lowest.
LABELLED_UNKNOWN = 1e30


def class_columns(header: Header, background: Background) -> np.ndarray:
    """Indices of the logits columns that count as classes, ndarray of shape (C,)."""
    left_out = [*header.unknown_columns]
    if background == "drop" and header.background_index is not None:
        left_out.append(header.background_index)
    return np.delete(np.arange(len(header.classes)), left_out)


class Rows(ABC):
    """N rows: their columns as arrays of one library, and the header that they share.

    What the methods of a `Rows` give is a copy that the caller may overwrite, unless they say
    otherwise.

    Attributes:
        header: All that the rows share.
        xp: The functions of the array API standard for the columns.
        dtype: Type of the numbers that scores are computed in.
    """

    header: Header
    xp: ModuleType
    dtype: Any

    @staticmethod
    def of(rows: Rows | Regions) -> Rows:
        """The rows of a block of regions; rows as they are."""
        if isinstance(rows, Rows):
            return rows
        return RegionRows(rows)

    @abstractmethod
    def array(self, name: str) -> Array:
        """A column as it was given, not to be overwritten."""

    @abstractmethod
    def of_pass(self, name: str) -> Rows:
        """The rows of a pass whose columns these have beside their own: `Regions.of_pass`."""

    @abstractmethod
    def vectors(self, name: str) -> Array:
        """A column in `dtype`: of vectors, shape (N, D), or of numbers, shape (N,)."""

    @abstractmethod
    def number(self, value: Any) -> Any:
        """A number that calculations with the columns round to `dtype`, not to float32."""

    @abstractmethod
    def counted(self, columns: Array, background: Background) -> Array:
        """The columns that count as classes: a copy.

        Of an array with one column per logits column, shape (N, K).
        """

    @abstractmethod
    def classes(self, background: Background) -> int:
        """C, the number of logits columns that count as classes."""

    @property
    @abstractmethod
    def weight(self) -> Array:
        """Weight of the last layer, shape (K, D), one row per logits column.

        It must not be overwritten.
        """

    @property
    @abstractmethod
    def bias(self) -> Array:
        """Bias of the last layer, shape (K,): not to be overwritten."""

    def logits(self, background: Background = "drop", activation: Activation = "softmax") -> Array:
        """Logits z of the classes, shape (N, C)."""
        z = self._logits(background)
        if activation == "detector" and self.header.activation == "exp":
            return self._before_sigmoid(z)
        return z

    def _logits(self, background: Background) -> Array:
        return self.counted(self.vectors("logits"), background)

    @staticmethod
    @abstractmethod
    def _before_sigmoid(z: Array) -> Array:
        """Logits from logarithms of their sigmoids."""

    def energy(self, background: Background = "drop") -> Array:
        """log Σ_c exp(z_c), shape (N,)."""
        return log_sum_exp(self._logits(background))

    def is_sigmoid(self, activation: Activation) -> bool:
        """True if each class is to be treated as a binary decision."""
        return activation == "detector" and self.header.activation in ("sigmoid", "exp")

    @abstractmethod
    def last_layer(self, background: Background) -> tuple[Array, Array]:
        """Weight W (C, D) and bias b (C,) of the classes in the last layer."""

    @property
    def features(self) -> Array:
        """Input h of the last layer, shape (N, D)."""
        return self.vectors("features")

    def latent(self, layer: str | None = None) -> Array:
        """Activations of a layer by its name, or of the column `latent`, shape (N, C)."""
        return self.vectors("latent" if layer is None else f"{LAYER}{layer}")

    @property
    def label(self) -> Array:
        """Predicted class of each row, an index of a logits column, shape (N,)."""
        return self.array("label")

    @property
    def score(self) -> Array:
        """The detector's confidence, shape (N,)."""
        return self.array("score")


class RegionRows(Rows):
    """The rows of a block of regions, as ndarrays.

    Args:
        regions: The block.
    """

    xp = np
    dtype = np.float64

    def __init__(self, regions: Regions):
        self.regions = regions
        self.header = regions.header

    def __len__(self) -> int:
        return len(self.regions)

    def array(self, name: str) -> np.ndarray:
        """See `Rows.array`."""
        column: np.ndarray = self.regions.array(name)  # type: ignore[assignment]  # the method needs it
        return column

    def of_pass(self, name: str) -> RegionRows:
        """See `Rows.of_pass`."""
        return RegionRows(self.regions.of_pass(name))

    def vectors(self, name: str) -> np.ndarray:
        """See `Rows.vectors`."""
        return self.array(name).astype(np.float64)

    def number(self, value: Any) -> Any:
        """See `Rows.number`."""
        return value

    def counted(self, columns: np.ndarray, background: Background) -> np.ndarray:
        """See `Rows.counted`."""
        counted = class_columns(self.header, background)
        if len(counted) == columns.shape[1] > MAX_CLASSES_TRANSPOSED:
            return columns.copy()  # a tenth of the time
        return columns[:, counted]

    def classes(self, background: Background) -> int:
        """See `Rows.classes`."""
        return len(class_columns(self.header, background))

    @property
    def weight(self) -> np.ndarray:
        """See `Rows.weight`."""
        if self.header.weight is None:
            raise ValueError("the header has no last layer")
        return self.header.weight

    @property
    def bias(self) -> np.ndarray:
        """See `Rows.bias`."""
        if self.header.bias is None:
            raise ValueError("the header has no last layer")
        return self.header.bias

    def last_layer(self, background: Background) -> tuple[np.ndarray, np.ndarray]:
        """See `Rows.last_layer`."""
        return last_layer_of(self.header, background)

    def _logits(self, background: Background) -> np.ndarray:
        """Of few classes, classes are contiguous in memory, not rows.

        This vectorises reductions over classes. Of many, rows are long enough.
        """
        if self.regions.logits.shape[1] > MAX_CLASSES_TRANSPOSED:
            return _class_logits(self.regions, background, "C")
        return _class_logits(self.regions, background, "F")

    @staticmethod
    def _before_sigmoid(z: np.ndarray) -> np.ndarray:
        z = np.minimum(z, -np.finfo(np.float32).tiny)
        return z - np.log(-np.expm1(z))

    def energy(self, background: Background = "drop") -> np.ndarray:
        """See `Rows.energy`."""
        return log_sum_exp(_class_logits(self.regions, background, "C"))


def last_layer_of(header: Header, background: Background) -> tuple[np.ndarray, np.ndarray]:
    """Weight W (C, D) and bias b (C,) of the classes in a header's last layer, float64.

    Raises:
        ValueError: the header has no last layer; methods that call this declare it in `needs`.
    """
    if header.weight is None or header.bias is None:
        raise ValueError("the header has no last layer")
    columns = class_columns(header, background)
    return header.weight[columns].astype(np.float64), header.bias[columns].astype(np.float64)


def _class_logits(regions: Regions, background: Background, order: Literal["C", "F"]) -> np.ndarray:
    logits = regions.logits
    index = regions.header.background_index
    if regions.header.unknown_columns:
        return logits[:, class_columns(regions.header, background)].astype(np.float64, order=order)
    if background == "keep" or index is None:
        return logits.astype(np.float64, order=order)
    known = np.empty((len(logits), logits.shape[1] - 1), order=order)
    known[:, :index] = logits[:, :index]
    known[:, index:] = logits[:, index + 1 :]
    return known
