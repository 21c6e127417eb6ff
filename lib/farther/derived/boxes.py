"""Cut-outs by box, for datasets without outlines: the box's pixels with a fading edge."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from pydantic.dataclasses import dataclass

from farther.curation.sources import LabelledImages, TablesFolder
from farther.derived.base import Share
from farther.derived.cutouts import AnnotatedSource, CutOut, CutOuts, register
from farther.images import read as pictures
from farther.naming.registry import STRICT
from farther.tables.files import inside


@register("boxes")
@dataclass(config=STRICT, kw_only=True)
class BoxCutOuts(AnnotatedSource):
    """Objects of an ingested dataset with some of their surroundings.

    The image files are in `root`.

    Args:
        dataset, subset: Dataset and subset of the objects.
        tables: Folder of the tables that `ingest` wrote.
        edge: Share of the box's shorter side over which each edge fades.
    """

    dataset: str
    subset: str
    tables: Path = Path("artifacts/tables")
    edge: Share = 0.15

    def read(self) -> CutOuts:
        """The dataset's single objects; see `CutOutSource`.

        Raises:
            ParameterError: the dataset or subset is unknown.
            DataError: a table is damaged.
        """
        folder = TablesFolder(self.tables)
        source = folder.source(self.dataset, self.subset)
        images = source.images
        objects = source.objects
        size = np.stack([images.width, images.height], axis=1)[source.image_row]
        is_single = ~(objects.is_crowd | objects.is_difficult)
        is_usable = self.usable(objects.box, source.image_row, size, is_single)

        entries = []
        for row in np.flatnonzero(is_usable).tolist():
            file = images.file[source.image_row[row]]
            name = f"{file}, object {objects.object_id[row]}"
            entries.append(CutOut(objects.category[row], name, row))
        return CutOuts(folder.categories(self.dataset), entries, partial(self._picture, source))

    def _picture(self, source: LabelledImages, cutout: CutOut) -> Image.Image:
        """The RGBA image of a cut-out."""
        file = source.images.file[source.image_row[cutout.row]]
        pixels = pictures.load(inside(self.root, file), self.max_pixels)
        box = source.objects.box[cutout.row]
        left, top, right, bottom = np.round(box).astype(int).tolist()
        picture = Image.fromarray(pixels[top:bottom, left:right])
        alpha = fading(picture.width, picture.height, self.edge)
        picture.putalpha(Image.fromarray(alpha))
        return picture


def fading(width: int, height: int, edge: float) -> np.ndarray:
    """Alpha that rises inwards, uint8 of shape (height, width).

    Args:
        width, height: Size in pixels.
        edge: Share of the shorter side over which alpha rises from 0 to 255.
    """
    rise = max(edge * min(width, height), 1e-9)
    x = _distance_to_end(width)
    y = _distance_to_end(height)
    distance = np.minimum(x[None, :], y[:, None])
    alpha = np.clip(distance / rise, 0, 1)
    return np.round(255 * alpha).astype(np.uint8)


def _distance_to_end(count: int) -> np.ndarray:
    """Distance of the centre of each pixel of a line to the nearer end, shape (count,)."""
    index = np.arange(count)
    return np.minimum(index, index[::-1]) + 0.5
