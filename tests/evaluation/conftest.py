"""Fixtures of the tests of evaluation.

`objects`, `regions` and `world` are the small tables of the metrics' tests.
"""

import importlib.util
from pathlib import Path

from tests.evaluation.evaluated_runs import evaluated_run as evaluated_run
from tests.evaluation.evaluated_runs import files as files
from tests.evaluation.self_aware_runs import changed_run as changed_run
from tests.evaluation.self_aware_runs import run as run
from tests.evaluation.self_aware_runs import shifted_results as shifted_results
from tests.evaluation.self_aware_runs import shifted_run as shifted_run
from tests.evaluation.self_aware_runs import small_run as small_run

_SPEC = importlib.util.spec_from_file_location(
    "metrics_conftest", Path(__file__).parents[1] / "metrics/conftest.py"
)
_tables = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_tables)

objects = _tables.objects
regions = _tables.regions
world = _tables.world
