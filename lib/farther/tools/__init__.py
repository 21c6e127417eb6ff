"""Everything around the benchmark: demo world, training, publication, derived data, enrichment, review."""

import importlib
import pkgutil
from types import ModuleType

_MODULES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_MODULES)}")


def __dir__() -> list[str]:
    return list(_MODULES)
