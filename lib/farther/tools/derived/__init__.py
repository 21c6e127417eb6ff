"""Synthetic unknowns: objects of classes that a detector was never taught, put into scenes of its ID dataset.

FMIYC names a split with synthetic objects as future work. Here each image is an image of an ID split with some objects
more: what changes between the two is the unknown object alone.
"""

from farther.tools.derived.cutouts import CutOut, CutOuts, Source, create, names, register
from farther.tools.derived.generate import ScenesOfID, Unknowns, generate, unknowns
from farther.tools.derived.parameters import Pasting, Scenes, Synthetic, synthetic
from farther.tools.derived.pasting import Canvas, Shape

__all__ = [
    "Canvas",
    "CutOut",
    "CutOuts",
    "Pasting",
    "Scenes",
    "ScenesOfID",
    "Shape",
    "Source",
    "Synthetic",
    "Unknowns",
    "create",
    "generate",
    "names",
    "register",
    "synthetic",
    "unknowns",
]
