"""ID images whose objects are blanked out: pseudo-OOD images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic.dataclasses import dataclass as checked
from tqdm import tqdm

from farther.derived.base import KINDS, CocoFile, Derived, Scenes, refuse_failures, write_summary
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.writing import write_aside

#: Name of the dataset's only subset.
SUBSET = "blank"


@KINDS.register("blank")
@checked(config=STRICT, kw_only=True)
class Blank(Derived):
    """ID images with all annotated boxes filled with zeros, so that no known object is left; without annotations.

    A detector should be as uncertain about them as about images without known objects. From them and their originals
    the threshold on an image's uncertainty is taken where there is no OOD data.

    References:
        Oksuz et al., "Towards Building Self-Aware Object Detectors via Reliable Uncertainty Quantification and
        Calibration" (SAOD), 2023, Section 4, arXiv:2307.00934.
    """

    def write(self, scenes: Scenes, out: Path) -> dict[str, Any]:
        """Writes the dataset and returns counts; see `Derived.write`."""
        images, failures, blanked = scenes.source.images, [], 0
        with write_aside(out) as aside:
            (aside / SUBSET).mkdir(parents=True)
            coco = CocoFile(scenes.categories, "ID images whose objects are blanked out")
            for row in tqdm(range(len(scenes)), desc="blank", unit="image", leave=False, disable=None):
                image_id = images.image_id[row]
                try:
                    pixels = scenes.pixels(row)
                except DataError as error:
                    failures.append({"name": image_id, "reason": f"{images.file[row]}: {error.problem}"})
                    continue
                boxes = scenes.objects(row).box
                blanked += len(boxes)
                file = f"{len(coco.images) + 1:06d}{self.suffix}"
                self.save(without(pixels, boxes), aside / SUBSET / file)
                coco.add_image(image_id, file, pixels.shape[1], pixels.shape[0])
            refuse_failures(scenes.root, failures, len(scenes), self.max_failures, "images")
            coco.write(aside, SUBSET)
            return write_summary(aside, {"images": len(coco.images), "blanked": blanked}, failures)


def without(pixels: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """An image in which each pixel that a box touches is black.

    >>> without(np.full((2, 4, 3), 7, np.uint8), np.array([[0.5, 0.0, 1.5, 1.0]]))[..., 0].tolist()
    [[0, 0, 7, 7], [7, 7, 7, 7]]
    """
    found = pixels.copy()
    for left, top, right, bottom in boxes:
        found[max(int(top), 0) : int(np.ceil(bottom)), max(int(left), 0) : int(np.ceil(right))] = 0
    return found
