"""Datasets derived from the images of an ID dataset, written in COCO's format.

`paste` adds objects of unknown classes, `corrupt` shifts the images, `blank` takes the objects out.
"""

from farther.derived.base import KINDS, Derived, Scenes, Selection, derived
from farther.derived.cutouts import CutOut, CutOuts, Source, create, names, register
from farther.derived.paste import Paste, Unknowns, generate, unknowns
from farther.derived.pasting import Canvas, Pasting, Shape

__all__ = [
    "KINDS",
    "Canvas",
    "CutOut",
    "CutOuts",
    "Derived",
    "Paste",
    "Pasting",
    "Scenes",
    "Selection",
    "Shape",
    "Source",
    "Unknowns",
    "create",
    "derived",
    "generate",
    "names",
    "register",
    "unknowns",
]
