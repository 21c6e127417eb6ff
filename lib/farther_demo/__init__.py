"""The demo world: a small benchmark composed of OpenMoji drawings.

Two ID datasets (`voc`, `bdd`) and two OOD sources (`coco`, `openimages`) for detectors, each in the
format of its original; one dataset of small images of one object (`drawings`), of known and unknown
classes, for classifiers.
"""

from farther_demo.recipes import DemoWorld, Subsets
from farther_demo.world import NAMES, generate, generate_all

__all__ = ["NAMES", "DemoWorld", "Subsets", "generate", "generate_all"]
