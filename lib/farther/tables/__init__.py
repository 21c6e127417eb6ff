"""The tables that the stages exchange: `images`, `objects`, `regions`, `scores`.

Each name is imported when it is first used: what reads YAML and JSON needs no Polars.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from farther.tables.columns import BOX, VECTOR, Column
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

#: The module that each name is defined in, where it is not `annotations`.
_MODULES = {
    "BOX": "columns",
    "VECTOR": "columns",
    "Column": "columns",
    "Header": "header",
    "Regions": "regions",
    "RegionsFolder": "regions",
    "RegionsWriter": "regions",
    "scan_regions": "regions",
    "Table": "table",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'annotations')}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
