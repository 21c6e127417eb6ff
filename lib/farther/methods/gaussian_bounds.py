"""Which of several Gaussians matter for the log density of a row under their mixture."""

from __future__ import annotations

import numpy as np

# Imported in functions: SciPy's linear algebra, which takes a third of a second.

#: Exponents by which a class falls behind the largest one that change no digit of a sum: e⁻⁴⁰ is
#: 4 · 10⁻¹⁸.
NEGLIGIBLE = 40.0
#: Unit roundoff of float32.
ROUNDING = 2.0**-24


class GaussianBounds:
    """Bounds of log densities by products in float32, which take half the time of float64.

    With L Lᵀ the covariance of a class, W = L⁻¹ and x = h − μ, the squared distance is ‖W x‖². Its
    root in float32 errs by at most (D + 4) u (‖W‖ ‖x‖ + ‖W x‖), whatever the order of the sums is;
    u is the unit roundoff, ‖W‖ the Frobenius norm. Where a class is ill-conditioned the bounds are
    far apart and leave more classes, never too few.

    Args:
        means: μ_c, ndarray of shape (C, D).
        factors: Lower Cholesky factors L_c, ndarray of shape (C, D, D).
        offsets: Log density of each class at its mean, weight included, ndarray of shape (C,).
    """

    def __init__(self, means: np.ndarray, factors: np.ndarray, offsets: np.ndarray):
        from scipy.linalg.lapack import dtrtri

        self._means = means
        self._offsets = offsets
        self._error = (means.shape[1] + 4) * ROUNDING
        #: Wᵀ of each class, upper triangular.
        self._inverses = []
        self._norms = []
        for factor in factors:
            inverse = dtrtri(factor.T.astype(np.float64), lower=False)[0]
            self._norms.append(float(np.linalg.norm(inverse)))
            self._inverses.append(inverse.astype(np.float32))

    def matter(self, h: np.ndarray) -> np.ndarray:
        """Mask of the classes of each row that may change its log density, shape (n, C).

        Args:
            h: ndarray of shape (n, D), float64.
        """
        upper = np.empty((len(h), len(self._means)))
        lower = np.empty_like(upper)
        for c, offset in enumerate(self._offsets):
            distance, error = self._distance(h, c)
            nearest = np.maximum(distance - error, 0)
            upper[:, c] = offset - 0.5 * nearest**2
            lower[:, c] = offset - 0.5 * (distance + error) ** 2
        floor = lower.max(axis=1) - NEGLIGIBLE
        return ~(upper < floor[:, None])  # true for NaN

    def _distance(self, h: np.ndarray, c: int) -> tuple[np.ndarray, np.ndarray]:
        """Mahalanobis distance of each row to a class and the bound of its error, shapes (n,)."""
        from scipy.linalg.blas import strmm

        x = (h - self._means[c]).astype(np.float32)
        norm = np.sqrt(np.vecdot(x, x).astype(np.float64))
        inverse = self._inverses[c]
        white = strmm(1.0, inverse, x.T, lower=False, trans_a=True, overwrite_b=True).T
        distance = np.sqrt(np.vecdot(white, white).astype(np.float64))
        return distance, self._error * (self._norms[c] * norm + distance)
