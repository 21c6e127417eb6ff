"""Kills, full disks, quotas, another process, a rerun: outputs are whole, and the same bytes.

FARTHER_TEST_PAIRS and FARTHER_TEST_SEED choose the number of pairs of a target and a moment that
are drawn, and what draws them; with FARTHER_TEST_ALL=1 there are all.
"""

import json

import pytest
from tests.disturbed.conftest import disturb, number
from tests.support.cases import SEED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcomes() -> list[dict]:
    """Outcomes of pairs of a target and a moment; of each, what is wrong is empty."""
    pairs = number("FARTHER_TEST_PAIRS", 16, 10**6)
    done = disturb("--cases", "0", "--pairs", pairs, "--seed", str(SEED))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(outcomes) >= min(int(pairs), 60)
    return outcomes


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
