"""Files of every kind, damaged: each is read, or refused by an error that names it.

`FUZZ_CASES` and `FUZZ_SEED` choose the number of cases and their seed; see `run.py` for one case.
With FARTHER_TEST_ALL=1 there are more cases; each kind of damage is drawn without, too.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CASES = "600" if os.environ.get("FARTHER_TEST_ALL") else "310"


def test_a_damaged_file_is_read_or_refused_by_its_name_and_nothing_runs_hangs_or_dies():
    given = [
        "--cases",
        os.environ.get("FUZZ_CASES", CASES),
        "--seed",
        os.environ.get("FUZZ_SEED", "1"),
    ]
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run.py"), *given], capture_output=True, text=True
    )
    print(done.stdout)  # the table of targets
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
