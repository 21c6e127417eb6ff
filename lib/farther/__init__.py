"""farther: what does an object detector do when it meets an object it was never taught?

    >>> import farther
    >>> method = farther.methods.create("energy", temperature=1.0)

The parts load when they are first used: `farther.tables`, `datasets`, `detectors`, `methods`,
`metrics`, `scoring`, `evaluation`, `curation`, `similarity`, `derived`, `report`, `monitor`,
`review`, `publication`, `projects`; and `farther.Monitor`, `farther.record` and `farther.compare`
(two detectors of a project on the same images). `Method`,
`Detector`, `Reader`, `Metric` and `register` are what extensions are made of: see
`farther.naming.extensions`.
"""

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from farther.command.comparison import compare as compare
    from farther.datasets.base import Reader as Reader
    from farther.detectors.base import Detector as Detector
    from farther.detectors.recording import record as record
    from farther.methods.base import Method as Method
    from farther.metrics.user_defined import UserDefinedMetric as Metric  # noqa: F401
    from farther.monitor import Monitor as Monitor
    from farther.naming.extensions import register as register

if find_spec("fcntl") is None:
    raise ImportError(
        "farther needs the file locks of Linux and macOS (flock); on Windows, use it in WSL"
    )

__version__ = "1.0.0"

_PARTS = (
    "curation",
    "datasets",
    "derived",
    "detectors",
    "errors",
    "evaluation",
    "images",
    "methods",
    "metrics",
    "monitor",
    "projects",
    "publication",
    "report",
    "review",
    "scoring",
    "similarity",
    "tables",
)

#: Where each name is defined that is no part.
_CLASSES = {
    "Detector": ("detectors.base", "Detector"),
    "Method": ("methods.base", "Method"),
    "Metric": ("metrics.user_defined", "UserDefinedMetric"),
    "Monitor": ("monitor", "Monitor"),
    "Reader": ("datasets.base", "Reader"),
    "compare": ("command.comparison", "compare"),
    "record": ("detectors.recording", "record"),
    "register": ("naming.extensions", "register"),
}


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        module, found = _CLASSES[name]
        return getattr(importlib.import_module(f"farther.{module}"), found)
    if name in _PARTS:
        return importlib.import_module(f"farther.{name}")
    raise AttributeError(f"module 'farther' has no attribute {name!r}; it has {', '.join(_PARTS)}")


def __dir__() -> list[str]:
    return [*_PARTS, *_CLASSES, "__version__"]
