"""Cut-outs by box, for datasets without outlines: the box's pixels with a fading edge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from pydantic.dataclasses import dataclass

from farther.curation.sources import LabelledImages, TablesFolder
from farther.derived.base import Share
from farther.derived.cutouts import AnnotatedSource, CutOut, CutOuts, register
from farther.images import read as pictures
from farther.registry import STRICT
from farther.tables.files import inside


@register("boxes")
@dataclass(config=STRICT, kw_only=True)
class BoxCutOuts(AnnotatedSource):
    """Objects of an ingested dataset with some of their surroundings; the image files are in `root`.

    Args:
        dataset, subset: CutOutSource of the objects.
        tables: Folder that `ingest` wrote.
        edge: Share of the box's shorter side over which each edge fades.
    """

    dataset: str
    subset: str
    tables: Path = Path("artifacts/tables")
    edge: Share = 0.15

    def read(self) -> CutOuts:
        """The dataset's single objects; see `CutOutSource`. ParameterError if the dataset or subset is unknown."""
        folder = TablesFolder(self.tables)
        tables = folder.source(self.dataset, self.subset)
        images, objects, image = tables.images, tables.objects, tables.image_row
        size = np.stack([images.width, images.height], axis=1)[image]
        usable = self.usable(objects.box, image, size, ~(objects.is_crowd | objects.is_difficult))
        found = [
            CutOut(
                objects.category[row],
                f"{images.file[image[row]]}, object {objects.object_id[row]}",
                row,
            )
            for row in np.flatnonzero(usable).tolist()
        ]
        return CutOuts(
            folder.categories(self.dataset), found, lambda one: self._picture(tables, one.row)
        )

    def _picture(self, tables: LabelledImages, row: int) -> Image.Image:
        pixels = pictures.load(inside(self.root, tables.images.file[tables.image_row[row]]))
        left, top, right, bottom = np.round(tables.objects.box[row]).astype(int).tolist()
        picture = Image.fromarray(pixels[top:bottom, left:right])
        picture.putalpha(Image.fromarray(fading(picture.width, picture.height, self.edge)))
        return picture


def fading(width: int, height: int, edge: float) -> np.ndarray:
    """Alpha that rises inwards over a share `edge` of the shorter side; uint8 of shape (height, width)."""
    rise = max(edge * min(width, height), 1e-9)
    x, y = (np.minimum(np.arange(n), np.arange(n)[::-1]) + 0.5 for n in (width, height))
    rising = np.clip(np.minimum(x[None, :], y[:, None]) / rise, 0, 1)
    return np.round(255 * rising).astype(np.uint8)
