"""Deviations of Gram matrices from the range seen in training."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, NonNegativeInt

from farther.methods.arrays import Array, at_least, cast
from farther.methods.base import FitError, Method, Publication, RegionsLike, register
from farther.methods.rows import Rows
from farther.tables import Regions
from farther.tables.regions import GRAM
from farther.terms import Protocol

#: Added to the absolute value of a bound that a deviation is divided by, as in the published code.
OFFSET = 1e-6


@register("gram")
class Gram(Method):
    """Minus the deviation of Gram matrices from the range of the predicted class.

    The range is that of training regions.

    The rows of the Gram matrices of a layer's activations, over the image or over the ROI-aligned
    box, for powers 1 to P, are what the detector's parameter `grams` stores: P values per channel,
    5 kB per region and layer of 256 channels in float32.

    Of the training images, a tenth is held out: the ranges are those of the other images' regions,
    and the deviations of a layer are divided by their mean over the regions held out.

    Formula:
        score = − Σ_l δ_l / E_l, δ_l = Σ_j (max(lo_j − g_j, 0) / |lo_j| + max(g_j − hi_j, 0) /
        |hi_j|), g the values of layer l, lo and hi their smallest and largest in training regions
        of the predicted class, E_l the mean of δ_l held out; with `protocol="published-code"`
        divided by the detector's confidence

    Args:
        layer: Layers l; the columns are `gram.<layer>`.
        held_out: Fraction of the training images that is held out.
        seed: Seed of the draw of these images.
        protocol: "paper"; "published-code" also divides by the detector's confidence, a
            classifier's largest probability.

    Attributes:
        low_, high_: lo and hi of each class, ndarrays of shape (K, J), J the number of values of
            all layers; classes without training regions have those of all classes.
        expected_: E_l, 1 where no region held out deviates, ndarray of shape (L,).

    References:
        Sastry and Oore, "Detecting Out-of-Distribution Examples with In-distribution Examples and
        Gram Matrices", 2020, arXiv:1912.12510. Code:
        https://github.com/VectorInstitute/gram-ood-detection

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> names = [f"image{number}" for number in range(40)]
        >>> train = toy_regions(image_id=names, **{"gram.layer1": [[1.0], [2.0]] * 20})
        >>> gram = create("gram", layer=["layer1"]).fit(
        ...     train
        ... )  # from 1 to 2, which no image held out exceeds
        >>> gram.score(toy_regions(**{"gram.layer1": [[1.5], [4.0]]})).round(3)  # (4 − 2) / 2
        array([-0., -1.])
    """

    publication: ClassVar[Publication | None] = Publication(
        "Detecting Out-of-Distribution Examples with In-distribution Examples and Gram Matrices",
        2020,
        "https://arxiv.org/abs/1912.12510",
        code="https://github.com/VectorInstitute/gram-ood-detection",
    )
    title: ClassVar[str] = "Gram matrices"
    needs: ClassVar[frozenset[str]] = frozenset({"gram", "labels"})
    layer: Annotated[tuple[str, ...], Field(min_length=1)]
    values_at_once: ClassVar[int] = (
        Method.values_at_once // 8
    )  # several arrays of that size stay in the cache
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    seed: NonNegativeInt = 0
    protocol: Protocol = "paper"

    @property
    def layers(self) -> tuple[str, ...]:
        """See `Method.layers`."""
        return tuple(f"{GRAM}{name}" for name in self.layer)

    def _fit(self, regions: RegionsLike) -> None:
        low = high = None
        classes = len(regions.header.classes)
        for block in self._part(regions, held_out=False):
            values = self._values(block)
            if low is None or high is None:
                low = np.full((classes, values.shape[1]), np.inf, np.float32)
                high = np.full((classes, values.shape[1]), -np.inf, np.float32)
            for c in np.unique(block.label):
                rows = values[block.label == c]
                low[c] = np.minimum(low[c], rows.min(axis=0))
                high[c] = np.maximum(high[c], rows.max(axis=0))
        if low is None or high is None:
            raise FitError(f"{self.name}: all training images are held out; there are too few")
        absent = np.isinf(low[:, 0])
        low[absent] = low.min(axis=0)
        high[absent] = high.max(axis=0)
        self.low_ = low
        self.high_ = high
        sums = np.zeros(len(self.layer))
        count = 0
        for block in self._part(regions, held_out=True):
            sums = sums + self._deviations(Rows.of(block)).sum(axis=0)
            count = count + len(block)
        if count == 0:
            raise FitError(f"{self.name}: no training image is held out; there are too few")
        self.expected_ = np.where(sums > 0, sums / count, 1.0)

    def _part(self, regions: RegionsLike, *, held_out: bool) -> Iterator[Regions]:
        """The regions of the images held out, or those of the others; names of images decide."""
        limit = self.held_out * 2**32
        for block in self._blocks(regions):
            hashes = [zlib.crc32(f"{self.seed}/{name}".encode()) for name in block.image_id]
            is_held_out = np.array(hashes) < limit
            rows = block[is_held_out == held_out]
            if len(rows):
                yield rows

    def _values(self, regions: Regions) -> np.ndarray:
        """g of all layers side by side, ndarray of shape (n, J), float32."""
        return np.concatenate(
            [np.asarray(regions.array(name), np.float32) for name in self.layers], axis=1
        )

    def _deviations(self, rows: Rows) -> Array:
        """δ_l, shape (n, L), float64."""
        xp = rows.xp
        label = rows.label
        deviations = []
        first = 0
        for name in self.layers:
            g = rows.vectors(name)
            columns = slice(first, first + int(g.shape[1]))
            first = columns.stop
            low = cast(self.low_[:, columns], rows.dtype)[label]
            high = cast(self.high_[:, columns], rows.dtype)[label]
            below = at_least(low - g, 0) / (xp.abs(low) + rows.number(OFFSET))
            above = at_least(g - high, 0) / (xp.abs(high) + rows.number(OFFSET))
            deviations.append(xp.sum(below + above, axis=1))
        return xp.stack(deviations, axis=1)

    def _score(self, rows: Rows) -> Array:
        total = rows.xp.sum(self._deviations(rows) / self.expected_, axis=1)
        if self.protocol == "paper":
            return -total
        return -total / at_least(rows.score, float(np.finfo(np.float32).tiny))
