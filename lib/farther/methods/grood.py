"""Gradients by a prototype of unknown objects."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from farther.methods.arrays import Array, as_float32, at_least, softmax, squared_norms
from farther.methods.base import Annotation, FitError, Method, Publication, RegionsLike, register
from farther.methods.linear_algebra import class_means
from farther.methods.logits import Background, class_columns, class_logits
from farther.methods.neighbours import nearest, nearest_tensors, ranked_square
from farther.methods.rows import Rows

#: Lower bound of the distance to the prototype of unknown objects.
SMALLEST = 1e-12


@register("grood")
class GROOD(Method):
    """The distance to the most similar training region, by how a region pulls on a prototype.

    Each class has its mean training feature as prototype, unknown objects have one more. A region
    is assigned to prototypes by its distances; the gradient of this assignment by the prototype of
    unknown objects is what is compared with those of training regions.

    The paper makes unknown examples by mixing the maps of an inner layer with a prototype of the
    second most likely class, and runs the rest of the network on them. Stored regions cannot do so:
    here the features themselves are mixed, half and half. Training regions whose largest logit is
    of another class than their label have no gradient, as in OpenOOD.

    Formula:
        score = −min_i ‖g − g_i‖, g = p_o (h − μ_o) / ‖h − μ_o‖, p = softmax(−‖h − μ_k‖) over the
        classes k and o; μ_o = mean of (h_i + μ_j) / 2, j the class of h_i's second largest logit

    Args:
        background: "drop" leaves the background logit out, "keep" counts it as one more class.

    Attributes:
        unknown_: μ_o, ndarray of shape (D,).
        prototypes_: μ_k − μ_o of the classes with regions, ndarray of shape (C, D).
        gradients_: g_i, ndarray of shape (M, D), float32.

    References:
        ElAraby et al., "GROOD: GRadient-Aware Out-of-Distribution Detection", 2025,
        arXiv:2312.14427. Code of OpenOOD: https://github.com/Jingkang50/OpenOOD

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> grood = create("grood").fit(toy_regions(features=[[4.0, 0.0], [0.0, 4.0]]))
        >>> grood.unknown_
        array([2., 2.])
        >>> grood.score(toy_regions(features=[[4.0, 0.0]]))
        array([-0.])
    """

    publication: ClassVar[Publication | None] = Publication(
        "GROOD: GRadient-Aware Out-of-Distribution Detection",
        2025,
        "https://arxiv.org/abs/2312.14427",
    )
    title: ClassVar[str] = "GROOD"
    aliases: ClassVar[tuple[str, ...]] = ("Gradient-aware out-of-distribution detection",)
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits", "labels"})
    annotation: ClassVar[Annotation] = "class"
    background: Background = "drop"

    def _fit(self, regions: RegionsLike) -> None:
        columns = class_columns(regions.header, self.background)
        if len(columns) < 2:
            raise FitError(f"{self.name}: one class has no second most likely one")
        counts, means = class_means(self._pass(regions), len(regions.header.classes))
        has_regions = counts > 0
        filled = np.where(has_regions[:, None], means, counts @ means / counts.sum())

        mixed = np.zeros(means.shape[1])
        for block in self._blocks(regions):
            second = columns[np.argsort(class_logits(block, self.background), axis=1)[:, -2]]
            mixed += (self._vectors(block) + filled[second]).sum(axis=0)
        self.unknown_ = mixed / (2 * counts.sum())
        self.prototypes_ = means[has_regions] - self.unknown_

        gradients = []
        for block in self._blocks(regions):
            largest = columns[np.argmax(class_logits(block, self.background), axis=1)]
            correct = block[largest == block.label]
            gradients.append(as_float32(self._gradients(Rows.of(correct))))
        self.gradients_ = np.concatenate(gradients)
        if not len(self.gradients_):
            raise FitError(f"{self.name}: no region has its largest logit at its own class")

    def _gradients(self, rows: Rows) -> Array:
        """g of each row, shape (n, D)."""
        xp = rows.xp
        h = self._vectors(rows)
        h -= self.unknown_
        squares = squared_norms(h)
        to_classes = squares[:, None] + squared_norms(self.prototypes_)
        to_classes = to_classes - 2 * (h @ self.prototypes_.T)
        distances = at_least(xp.concat([to_classes, squares[:, None]], axis=1), 0.0) ** 0.5
        of_unknown = softmax(-distances)[:, -1] / at_least(distances[:, -1], SMALLEST)
        return h * of_unknown[:, None]

    def _score(self, rows: Rows) -> Array:
        queries = as_float32(self._gradients(rows))
        if isinstance(queries, np.ndarray):
            near = nearest(self.gradients_, queries, 1)
        else:
            near = nearest_tensors(self.gradients_, queries, 1)
        return -(ranked_square(self.gradients_, queries, near, 0, rows.dtype) ** 0.5)
