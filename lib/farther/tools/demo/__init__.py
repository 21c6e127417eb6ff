"""The demo world: a benchmark in miniature, drawn from OpenMoji, that anyone can generate.

Two ID datasets (`voc`, `bdd`) and two OOD sources (`coco`, `openimages`), each in its original's own format.
"""

from farther.tools.demo.parameters import DemoWorld, Subsets
from farther.tools.demo.world import NAMES, generate

__all__ = ["NAMES", "DemoWorld", "Subsets", "generate"]
