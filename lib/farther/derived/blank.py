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
from farther.naming.registry import STRICT

#: Name of the dataset's only subset.
SUBSET = "blank"


@KINDS.register("blank")
@checked(config=STRICT, kw_only=True)
class Blank(ChangedImages):
    """ID images with all annotated boxes filled with zeros, so that no known object is left.

    They have no annotations. A detector should be as uncertain about them as about images without
    known objects. Without OOD data, the threshold on an image's uncertainty is chosen on them and
    their originals.

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
        changes = []
        for row in range(len(scenes)):
            blank = partial(blanked, boxes=scenes.objects(row).box)
            changes.append(Change(SUBSET, row, SUBSET, blank))
        return changes

    def counts(self, scenes: Scenes, changes: Sequence[Change], folder: Path) -> dict[str, Any]:
        """Numbers of images and of objects that were blanked out."""
        object_count = sum(len(scenes.objects(change.row)) for change in changes)
        return {"images": len(changes), "blanked": object_count}


def blanked(pixels: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """An image in which each pixel that a box touches is black.

    >>> blanked(np.full((2, 4, 3), 7, np.uint8), np.array([[0.5, 0.0, 1.5, 1.0]]))[..., 0].tolist()
    [[0, 0, 7, 7], [7, 7, 7, 7]]
    """
    result = pixels.copy()
    for left, top, right, bottom in boxes:
        rows = slice(max(int(top), 0), int(np.ceil(bottom)))
        columns = slice(max(int(left), 0), int(np.ceil(right)))
        result[rows, columns] = 0
    return result
