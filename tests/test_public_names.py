"""Names that outside code relies on, each in a fresh process that runs a plain `import farther`."""

import subprocess
import sys

import pytest

NAMES = (
    "tables.Regions",
    "tables.Regions.read",
    "tables.Regions.write",
    "tables.Objects",
    "methods.create",
    "methods.load",
    "methods.names",
    "metrics.ood.evaluate",
    "metrics.open_set.evaluate",
    "metrics.closed_set.evaluate",
    "metrics.self_awareness.evaluate",
    "metrics.self_awareness.lrp_thresholds",
    "metrics.wilderness.evaluate",
    "detectors.create",
    "datasets.create",
    "curation.curate",
    "similarity.near_duplicates",
    "tools.review",
    "Monitor.load",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_works_after_a_plain_import(name):
    subprocess.run([sys.executable, "-c", f"import farther; farther.{name}"], check=True)


@pytest.mark.parametrize("method", ["fit", "score", "save"])
def test_a_created_method_can_be_fitted_scored_with_and_saved(method):
    subprocess.run([sys.executable, "-c", f"import farther; farther.methods.create('knn', k=5).{method}"], check=True)
