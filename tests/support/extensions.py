"""Extensions that a test imported, and how this process forgets them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from farther.datasets.base import FORMATS
from farther.detectors.base import registry as detectors
from farther.methods.base import METHODS
from farther.metrics.user_defined import METRICS
from farther.naming.extensions import FOLDER
from farther.pipeline.dvc_file import ROOT

#: Of methods, metrics, formats and detectors.
REGISTRIES = (METHODS, METRICS, FORMATS, detectors)


def forget_extensions() -> None:
    """Has this process import extensions anew, as a new process does.

    Two projects may have a module of one name: without this, the second one would get the first
    one's.
    """
    for folder in [*sys.path]:
        if Path(folder, FOLDER).is_dir() and Path(folder).resolve() != ROOT:
            sys.path.remove(folder)
    for name in [*sys.modules]:
        if _is_of_a_project(name):
            del sys.modules[name]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()

    for registry in REGISTRIES:
        for name, cls in [*registry._classes.items()]:
            if _is_of_a_project(cls.__module__):
                del registry._classes[name]


def _is_of_a_project(module: str) -> bool:
    return module.partition(".")[0] == FOLDER.name
