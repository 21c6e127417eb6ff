"""The tables that the stages exchange: `images`, `objects`, `regions`, `scores`."""

from farther.tables.annotations import Images, Objects, Scores, TrueClasses
from farther.tables.columns import Column, ColumnTable
from farther.tables.regions import Header, Regions, RegionsFolder, RegionsWriter

__all__ = [
    "Column",
    "ColumnTable",
    "Header",
    "Images",
    "Objects",
    "Regions",
    "RegionsFolder",
    "RegionsWriter",
    "Scores",
    "TrueClasses",
]
