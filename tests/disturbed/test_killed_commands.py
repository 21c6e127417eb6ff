"""`kill -9` of commands at random places: no partial output is read, a rerun gives equal bytes."""

import pytest
from tests.disturbed.conftest import KILLS

pytestmark = [pytest.mark.slow, pytest.mark.drawn(2, "disturbed")]


@pytest.fixture(scope="module")
def commands(disturbed) -> list[dict]:
    return [outcome for outcome in disturbed if "kills" in outcome]


def test_killed_commands_that_run_again_end_in_the_same_bytes_and_leave_nothing_else(commands):
    assert sum(len(command["kills"]) for command in commands) == KILLS
    assert {
        command["command"]: command["differ"] for command in commands if command["differ"]
    } == {}


def test_what_is_written_at_once_is_there_whole_or_not_at_all(commands):
    assert {command["command"]: command["torn"] for command in commands if command["torn"]} == {}
