"""Datasets derived from the images of an ID dataset, written in COCO's format.

`paste` adds objects of unknown classes, `corrupt` shifts the images, `blank` takes the objects out.
"""

from farther.derived.base import Scenes, derived
from farther.derived.cutouts import CutOut, CutOuts, create, names
from farther.derived.paste import generate, unknowns
from farther.derived.pasting import Canvas, Pasting, Shape

__all__ = [
    "Canvas",
    "CutOut",
    "CutOuts",
    "Pasting",
    "Scenes",
    "Shape",
    "create",
    "derived",
    "generate",
    "names",
    "unknowns",
]
