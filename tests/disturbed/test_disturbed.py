"""Targets whose files are damaged, and targets that are interrupted; see `disturb.py`.

A damaged file is read, or refused by an error that names it. After kills, on full disks, beside
another process and in a rerun, outputs are whole, and the same bytes.

FARTHER_TEST_CASES and FARTHER_TEST_PAIRS choose the number of cases of damage, and of pairs of a
target and a moment; FARTHER_TEST_SEED draws the pairs. With FARTHER_TEST_ALL=1 there are more
cases, and all pairs.
"""

import json
import os
import subprocess

import pytest
from tests.disturbed.conftest import disturb
from tests.support.cases import SEED

pytestmark = pytest.mark.slow

CASES, PAIRS = 160, 14
if os.environ.get("FARTHER_TEST_ALL"):
    CASES, PAIRS = 600, 10**6
CASES = os.environ.get("FARTHER_TEST_CASES", CASES)
PAIRS = os.environ.get("FARTHER_TEST_PAIRS", PAIRS)


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess[str]:
    """The program after its end."""
    return disturb("--cases", str(CASES), "--pairs", str(PAIRS), "--drawn-by", str(SEED))


@pytest.fixture(scope="module")
def outcomes(done) -> list[dict]:
    """Outcomes of the interrupted targets: lists of files are empty where nothing is wrong."""
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_a_damaged_file_is_read_or_refused_by_its_name_and_nothing_runs_hangs_or_dies(done):
    print(done.stdout)  # the table of targets
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def test_as_many_targets_are_interrupted_as_are_drawn(outcomes):
    assert len(outcomes) >= min(int(PAIRS), 62)


def wrong(outcomes: list[dict], kind: str, *moments: str) -> list[dict]:
    """Outcomes with files of a kind, at some moments or at all."""
    return [
        outcome
        for outcome in outcomes
        if outcome[kind] and (not moments or outcome["moment"] in moments)
    ]


def test_a_rerun_writes_the_bytes_of_an_undisturbed_run(outcomes):
    assert wrong(outcomes, "differ", "killed", "full", "quota") == []


def test_what_is_written_at_once_is_there_whole_or_not_at_all(outcomes):
    assert wrong(outcomes, "torn") == []


def test_nothing_else_is_left(outcomes):
    assert wrong(outcomes, "left") == []


def test_a_target_that_the_disk_stops_says_so_once_and_names_the_file(outcomes):
    problems = ("no space left on device", "file too large", "not whole")
    for outcome in outcomes:
        if outcome["moment"] in ("full", "quota"):
            message = outcome["message"]
            assert "\n" not in message, outcome
            assert any(problem in message for problem in problems), outcome
            assert message.startswith(("out", "/")), outcome


def test_a_stage_whose_output_another_process_writes_is_refused_and_names_both(outcomes):
    assert wrong(outcomes, "differ", "owned") == []


def test_stages_that_run_twice_write_nothing_and_delete_nothing(outcomes):
    assert wrong(outcomes, "differ", "again") == []
