"""ID images whose objects are blanked out: pseudo-OOD images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass as checked

from farther.derived.base import KINDS, Scenes
from farther.derived.changed import Change, ChangedImages
from farther.registry import STRICT

#: Name of the dataset's only subset.
SUBSET = "blank"


@KINDS.register("blank")
@checked(config=STRICT, kw_only=True)
class Blank(ChangedImages):
    """ID images with all annotated boxes filled with zeros, so that no known object is left; without annotations.

    A detector should be as uncertain about them as about images without known objects. From them
    and their originals the threshold on an image's uncertainty is taken where there is no OOD data.

    References:
        Oksuz et al., "Towards Building Self-Aware Object Detectors via Reliable Uncertainty
        Quantification and Calibration" (SAOD), 2023, Section 4, arXiv:2307.00934.
    """

    TITLE: ClassVar[str] = "ID images whose objects are blanked out"
    KEEPS_OBJECTS: ClassVar[bool] = False

    def subsets(self) -> list[str]:
        """Names of the subsets."""
        return [SUBSET]

    def changes(self, scenes: Scenes) -> list[Change]:
        """Each image once, without its objects."""
        boxes = [scenes.objects(row).box for row in range(len(scenes))]
        return [
            Change(SUBSET, row, SUBSET, partial(without, boxes=one))
            for row, one in enumerate(boxes)
        ]

    def counts(self, scenes: Scenes, made: Sequence[Change], folder: Path) -> dict[str, Any]:
        """Numbers of images and of objects that were blanked out."""
        return {"images": len(made), "blanked": sum(len(scenes.objects(one.row)) for one in made)}


def without(pixels: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """An image in which each pixel that a box touches is black.

    >>> without(np.full((2, 4, 3), 7, np.uint8), np.array([[0.5, 0.0, 1.5, 1.0]]))[..., 0].tolist()
    [[0, 0, 7, 7], [7, 7, 7, 7]]
    """
    found = pixels.copy()
    for left, top, right, bottom in boxes:
        found[max(int(top), 0) : int(np.ceil(bottom)), max(int(left), 0) : int(np.ceil(right))] = 0
    return found
