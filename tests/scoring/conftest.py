"""The regions of the methods' tests: fixture `make`."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "methods_conftest", Path(__file__).parents[1] / "methods/conftest.py"
)
_regions = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_regions)

make = _regions.make
