"""Datasets in their own formats, read into the two tables `images` and `objects`.

A format is a module here that registers a reader: `create("coco", root="…").read("val2017")`.
`farther.datasets.ingest` adds what only the image files contain (size, digest), checks, and writes
the tables.
"""

from farther.datasets.base import Annotations, DataWarning, Expected, Reader
from farther.datasets.class_names import ClassNames
from farther.datasets.presence import Checked, Missing, check_subset, image_roots, missing
from farther.datasets.readers import create, names

__all__ = [
    "Annotations",
    "Checked",
    "ClassNames",
    "DataWarning",
    "Expected",
    "Missing",
    "Reader",
    "check_subset",
    "create",
    "image_roots",
    "missing",
    "names",
]
