"""The tables that the stages exchange: `images`, `objects`, `regions`, `scores`."""

from farther.tables.annotations import (
    ClassPairs,
    ImageAttributes,
    ImageClasses,
    Images,
    ObjectOutcomes,
    Objects,
    RegionOutcomes,
    Scores,
    SortedClasses,
    TrueClasses,
)
from farther.tables.columns import BOX, VECTOR, Column, OptionalColumn
from farther.tables.header import Header
from farther.tables.regions import Regions, RegionsFolder, RegionsWriter, scan_regions
from farther.tables.table import Table

__all__ = [
    "BOX",
    "VECTOR",
    "ClassPairs",
    "Column",
    "Header",
    "ImageAttributes",
    "ImageClasses",
    "Images",
    "ObjectOutcomes",
    "Objects",
    "OptionalColumn",
    "RegionOutcomes",
    "Regions",
    "RegionsFolder",
    "RegionsWriter",
    "Scores",
    "SortedClasses",
    "Table",
    "TrueClasses",
    "scan_regions",
]
