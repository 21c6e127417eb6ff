"""Datasets derived from others: objects of unknown classes pasted into scenes of an ID dataset.

Each image is an image of an ID split with unknown objects added, so that the two differ in these objects alone. (FMIYC
names a split with synthetic objects as future work.)
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
