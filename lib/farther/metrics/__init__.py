"""Metrics as plain functions of arrays and tables, in one folder per subject.

Each module is imported when it is first used.

>>> import farther
>>> farther.metrics.ood.evaluate([0.9, 0.8], [0.1, 0.2])["auroc"]
1.0
"""

import importlib
import pkgutil
from types import ModuleType

_MODULES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_MODULES)}"
    )


def __dir__() -> list[str]:
    return list(_MODULES)
