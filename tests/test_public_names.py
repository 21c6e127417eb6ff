"""Names that outside code relies on, each in a process that has run a plain `import farther`."""

import subprocess
import sys

import pytest
from tests.support.cases import drawn_cases

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
    "review",
    "Monitor.load",
    "record",
)


#: Imports farther alone, then tries each name in a process of its own, forked from there; prints
#: those that fail. Libraries are imported before: they know nothing of farther, and each process
#: would import them again.
TRY_EACH = """
import os, sys
import numpy, polars, pyarrow.parquet, pydantic, scipy.stats, torch, torchvision, PIL.Image, yaml
import farther
for name in sys.argv[1:]:
    if not (child := os.fork()):
        try:
            eval(f"farther.{name}")
        except BaseException as error:
            print(f"{name}: {error!r}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.slow
def test_public_names_work_after_a_plain_import():
    used = [f"methods.create('knn', k=5).{name}" for name in ("fit", "score", "save")]
    names = drawn_cases([*NAMES, *used], 10)
    command = [sys.executable, "-c", TRY_EACH, *names, "no_such_name"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.count("\n") == 1
    assert printed.startswith("no_such_name: AttributeError(")


def test_a_platform_without_file_locks_is_refused_by_name():
    code = "import sys; sys.modules['fcntl'] = None; import farther"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip().endswith(
        "farther needs the file locks of Linux and macOS (flock); on Windows, use it in WSL"
    )
