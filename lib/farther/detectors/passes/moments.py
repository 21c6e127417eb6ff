"""Means and variances of several outputs of a network for the same regions."""

from __future__ import annotations

import numpy as np
from scipy.special import entr, expit, softmax

from farther.detectors.passes.base import KEYS, SHARED
from farther.errors import DataError
from farther.tables import Header, Regions

#: Variance of coordinates that are the same in all outputs, as of corners that are clipped to the
#: image, in pixels².
SMALLEST_VARIANCE = 1e-6


class Moments:
    """Moments of S outputs of a network for N regions: means, entropies and variances.

    Each output s gives logits z_s, class probabilities p_s and boxes. Probabilities are those of
    the detector's own activation. With a softmax over all columns, the background's included,
    H(p) = − Σ_c p_c log p_c. With a sigmoid each class is a binary variable (as in Haussmann et al.
    2020, arXiv:2004.04699), and H is the sum of their entropies, − Σ_c p_c log p_c + (1 − p_c)
    log(1 − p_c), as if they were independent; a background column that is never trained does not
    count.

    Columns:
        logits: Mean of z_s, shape (N, K).
        mean_probabilities: p̄ = mean of p_s, shape (N, K).
        predictive_entropy: H(p̄), shape (N,).
        mutual_information: H(p̄) − mean of H(p_s), at least 0, shape (N,): of class and weights
            (BALD; Houlsby et al. 2011, arXiv:1112.5745; Gal et al. 2017, arXiv:1703.02910).
        box_variance: Variance of each coordinate over the outputs (divided by S), in pixels², at
            least `SMALLEST_VARIANCE`, shape (N, 4).

    Args:
        header: Header of the regions.
    """

    def __init__(self, header: Header):
        self._header = header
        #: Number of outputs of each region.
        self._counts: np.ndarray = np.zeros(0)
        self._logits: np.ndarray = np.zeros(0)
        self._probabilities: np.ndarray = np.zeros(0)
        self._entropies: np.ndarray = np.zeros(0)
        #: Boxes of the first output; the others are summed as differences from these.
        self._first_boxes: np.ndarray = np.zeros(0)
        self._shifts: np.ndarray = np.zeros(0)
        self._squared_shifts: np.ndarray = np.zeros(0)
        self._is_empty = True

    def add(self, logits: np.ndarray, boxes: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Adds one output.

        Args:
            logits: Shape (N, K), or (M, K) with `rows`.
            boxes: Shape (N, 4), or (M, 4), in pixels.
            rows: Numbers of the regions that it is for, shape (M,), without duplicates; None for
                all regions, as in the first output.

        Raises:
            DataError: a value is not finite.
        """
        logits = logits.astype(np.float64)
        boxes = boxes.astype(np.float64)
        if not (np.isfinite(logits).all() and np.isfinite(boxes).all()):
            raise DataError("a pass gives numbers that are not finite", field="logits")
        if self._is_empty:
            self._start(logits, boxes)
        if rows is None:
            rows = np.arange(len(self._counts))

        probabilities = self.probabilities(logits)
        shifts = boxes - self._first_boxes[rows]
        self._counts[rows] += 1
        self._logits[rows] += logits
        self._probabilities[rows] += probabilities
        self._entropies[rows] += self._entropy(probabilities)
        self._shifts[rows] += shifts
        self._squared_shifts[rows] += shifts**2

    def _start(self, logits: np.ndarray, boxes: np.ndarray) -> None:
        """Sets all sums to 0; the arguments are the first output's."""
        self._counts = np.zeros(len(logits))
        self._logits = np.zeros_like(logits)
        self._probabilities = np.zeros_like(logits)
        self._entropies = np.zeros(len(logits))
        self._first_boxes = boxes
        self._shifts = np.zeros_like(boxes)
        self._squared_shifts = np.zeros_like(boxes)
        self._is_empty = False

    def columns(self) -> dict[str, np.ndarray]:
        """The columns, float32."""
        counts = self._counts
        mean_probabilities = self._probabilities / counts[:, None]
        entropy = self._entropy(mean_probabilities)
        mutual_information = entropy - self._entropies / counts
        mean_shift = self._shifts / counts[:, None]
        variance = self._squared_shifts / counts[:, None] - mean_shift**2
        columns = {
            "logits": self._logits / counts[:, None],
            "mean_probabilities": mean_probabilities,
            "predictive_entropy": entropy,
            "mutual_information": mutual_information.clip(min=0),
            "box_variance": variance.clip(min=SMALLEST_VARIANCE),
        }
        return {name: values.astype(np.float32) for name, values in columns.items()}

    def regions(self, regions: Regions) -> Regions:
        """The rows of a run's own regions, with the columns."""
        shared = {name: regions.frame[name] for name in (*KEYS, *SHARED)}
        return Regions(header=self._header, **shared, **self.columns())

    @property
    def boxes(self) -> np.ndarray:
        """Mean of the boxes, shape (N, 4), float32."""
        mean_shift = self._shifts / self._counts[:, None]
        return (self._first_boxes + mean_shift).astype(np.float32)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Probabilities p of logits z, shape (N, K), by the detector's activation."""
        if self._header.activation == "softmax":
            return softmax(logits, axis=1)
        if self._header.activation == "exp":
            return np.exp(logits)
        return expit(logits)

    def _entropy(self, probabilities: np.ndarray) -> np.ndarray:
        """H of each row, in nats, shape (N,)."""
        if self._header.activation == "softmax":
            return entr(probabilities).sum(axis=1)
        if self._header.background_index is not None:
            probabilities = np.delete(probabilities, self._header.background_index, axis=1)
        return (entr(probabilities) + entr(1 - probabilities)).sum(axis=1)
