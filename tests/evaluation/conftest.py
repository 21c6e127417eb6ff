"""Fixtures of the tests of evaluation.

`objects`, `regions` and `world` are the small tables of the metrics' tests.
"""

from tests.evaluation.evaluated_runs import evaluated_run as evaluated_run
from tests.evaluation.evaluated_runs import files as files
from tests.evaluation.self_aware_runs import changed_run as changed_run
from tests.evaluation.self_aware_runs import run as run
from tests.evaluation.self_aware_runs import shifted_results as shifted_results
from tests.evaluation.self_aware_runs import shifted_run as shifted_run
from tests.evaluation.self_aware_runs import small_run as small_run
from tests.metrics.conftest import objects as objects
from tests.metrics.conftest import regions as regions
from tests.metrics.conftest import world as world
