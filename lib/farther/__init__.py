"""farther: what does an object detector do when it meets an object it was never taught?

    >>> import farther
    >>> method = farther.methods.create("energy", temperature=1.0)

The parts load when they are first used: `farther.tables`, `datasets`, `detectors`, `methods`, `metrics`, `scoring`,
`evaluation`, `curation`, `similarity`, `report`, `monitor`, `tools`; and `farther.Monitor`.
"""

import importlib
from importlib.util import find_spec
from typing import Any

if find_spec("fcntl") is None:
    raise ImportError("farther needs the file locks of Linux and macOS (flock); on Windows, use it in WSL")

__version__ = "0.1.0"

_PARTS = (
    "curation",
    "datasets",
    "detectors",
    "errors",
    "evaluation",
    "images",
    "methods",
    "metrics",
    "monitor",
    "report",
    "scoring",
    "similarity",
    "tables",
    "tools",
)


def __getattr__(name: str) -> Any:
    if name == "Monitor":
        return importlib.import_module("farther.monitor").Monitor
    if name in _PARTS:
        return importlib.import_module(f"farther.{name}")
    raise AttributeError(f"module 'farther' has no attribute {name!r}; it has {', '.join(_PARTS)}")


def __dir__() -> list[str]:
    return [*_PARTS, "Monitor", "__version__"]
