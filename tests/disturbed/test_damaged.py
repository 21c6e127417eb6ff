"""Files of every kind, damaged: each is read, or refused by an error that names it.

`FUZZ_CASES` and `FUZZ_SEED` choose the number of cases and their seed; see `disturb.py` for one
case. With FARTHER_TEST_ALL=1 there are more cases; each kind of damage is drawn without, too.
"""

import os

import pytest
from tests.disturbed.conftest import disturb, number

pytestmark = pytest.mark.slow


def test_a_damaged_file_is_read_or_refused_by_its_name_and_nothing_runs_hangs_or_dies():
    seed = os.environ.get("FUZZ_SEED", "1")
    done = disturb("--cases", number("FUZZ_CASES", 310, 600), "--seed", seed)
    print(done.stdout)  # the table of targets
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
