"""Means over several outputs of a network for the same regions, and how much the outputs differ."""

from __future__ import annotations

import numpy as np
from scipy.special import entr, expit, softmax

from farther.detectors.passes.base import KEPT
from farther.errors import DataError
from farther.tables import Header, Regions

#: Variances of coordinates that no pass moves, as of corners that are clipped to the image, in
#: pixels².
SMALLEST_VARIANCE = 1e-6


class Moments:
    """Sums over S outputs for N regions: logits z_s, class probabilities p_s, entropies H(p_s), and boxes.

    Probabilities are those of the detector's own activation. With a softmax, over all columns, the
    background's included, H(p) = − Σ_c p_c log p_c. With a sigmoid each class is a binary variable
    (as in Haussmann et al. 2020, arXiv:2004.04699), and H is the sum of their entropies, − Σ_c p_c
    log p_c + (1 − p_c) log(1 − p_c), as if they were independent; a background column that is never
    trained does not count.

    Its columns:
        logits: Mean of z_s. mean_probabilities: p̄ = mean of p_s. predictive_entropy: H(p̄).
        mutual_information: H(p̄) − mean of H(p_s), 0 or more: of class and weights (BALD; Houlsby
        et al. 2011,
            arXiv:1112.5745; Gal et al. 2017, arXiv:1703.02910).
        box_variance: Variance of each coordinate over the outputs (divided by S), in pixels², at
        least
            `SMALLEST_VARIANCE`.

    Args:
        header: Of the regions.
    """

    def __init__(self, header: Header):
        self._header = header
        self._counts: np.ndarray = np.zeros(0)
        self._sums: dict[str, np.ndarray] = {}

    def add(self, logits: np.ndarray, boxes: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Adds one output.

        Args:
            logits: Shape (N, K), or (M, K) with `rows`.
            boxes: Shape (N, 4), or (M, 4), in pixels.
            rows: The regions that it is about, shape (M,), each once; None for all. The first
                output is about all.

        Raises:
            DataError: a value is not finite.
        """
        z, boxes = logits.astype(np.float64), boxes.astype(np.float64)
        if not (np.isfinite(z).all() and np.isfinite(boxes).all()):
            raise DataError("a pass gives numbers that are not finite", field="logits")
        p = self.probabilities(z)
        if not self._sums:
            self._counts, self._origin = np.zeros(len(z)), boxes
            self._sums = {
                name: np.zeros_like(of)
                for name, of in (("z", z), ("p", p), ("d", boxes), ("d2", boxes))
            }
            self._sums["h"] = np.zeros(len(z))
        rows = np.arange(len(self._counts)) if rows is None else rows
        shift = boxes - self._origin[rows]
        self._counts[rows] += 1
        for name, values in (
            ("z", z),
            ("p", p),
            ("h", self._entropy(p)),
            ("d", shift),
            ("d2", shift**2),
        ):
            self._sums[name][rows] += values

    def columns(self) -> dict[str, np.ndarray]:
        """The columns, float32."""
        mean = {name: (total.T / self._counts).T for name, total in self._sums.items()}
        entropy = self._entropy(mean["p"])
        variance = mean["d2"] - mean["d"] ** 2
        columns = {
            "logits": mean["z"],
            "mean_probabilities": mean["p"],
            "predictive_entropy": entropy,
            "mutual_information": (entropy - mean["h"]).clip(min=0),
            "box_variance": variance.clip(min=SMALLEST_VARIANCE),
        }
        return {name: values.astype(np.float32) for name, values in columns.items()}

    def regions(self, found: Regions) -> Regions:
        """The rows of a run with the columns; `found` are its regions."""
        kept = {name: found.frame[name] for name in KEPT}
        return Regions(header=self._header, **kept, **self.columns())

    @property
    def boxes(self) -> np.ndarray:
        """Mean of the boxes, shape (N, 4), float32."""
        return (self._origin + self._sums["d"] / self._counts[:, None]).astype(np.float32)

    def probabilities(self, z: np.ndarray) -> np.ndarray:
        """Probabilities p of logits z, by the detector's activation."""
        if self._header.activation == "softmax":
            return softmax(z, axis=1)
        return np.exp(z) if self._header.activation == "exp" else expit(z)

    def _entropy(self, p: np.ndarray) -> np.ndarray:
        """H of the rows, in nats."""
        if self._header.activation == "softmax":
            return entr(p).sum(axis=1)
        if self._header.background_index is not None:
            p = np.delete(p, self._header.background_index, axis=1)
        return (entr(p) + entr(1 - p)).sum(axis=1)
