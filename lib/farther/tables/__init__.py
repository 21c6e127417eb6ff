"""The tables that the stages exchange: `images`, `objects`, `regions`, `scores`, and the outcomes of an evaluation."""

from farther.tables.annotations import Images, Objects, Scores, TrueClasses
from farther.tables.columns import Column, ColumnTable
from farther.tables.outcomes import ObjectOutcomes, RegionOutcomes
from farther.tables.regions import Header, Regions, RegionsFolder, RegionsWriter

__all__ = [
    "Column",
    "ColumnTable",
    "Header",
    "Images",
    "ObjectOutcomes",
    "Objects",
    "RegionOutcomes",
    "Regions",
    "RegionsFolder",
    "RegionsWriter",
    "Scores",
    "TrueClasses",
]
