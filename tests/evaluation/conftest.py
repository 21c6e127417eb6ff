"""The small tables of the metrics' tests: fixtures `objects`, `regions` and `world`."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "metrics_conftest", Path(__file__).parents[1] / "metrics/conftest.py"
)
_tables = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_tables)

objects, regions, world = _tables.objects, _tables.regions, _tables.world
