"""A full disk or a quota while commands write: one message names the file, no output is partial."""

import pytest
from tests.disturbed.conftest import LIMITS

pytestmark = [pytest.mark.slow, pytest.mark.drawn(2, "disturbed")]


@pytest.fixture(scope="module")
def commands(disturbed) -> list[dict]:
    return [outcome for outcome in disturbed if "kind" in outcome]


def test_a_command_that_the_disk_stops_says_so_once_and_names_the_file(commands):
    assert len(commands) >= 4
    for command in commands:
        assert len(command["said"]) == LIMITS, command
        for message in command["said"]:
            assert "\n" not in message
            assert any(
                problem in message
                for problem in ("no space left on device", "file too large", "not whole")
            )
            assert message.startswith(("out", "/"))


def test_nothing_half_written_is_left_or_taken_for_whole(commands):
    for problem in ("left", "torn"):
        assert {
            command["command"]: command[problem] for command in commands if command[problem]
        } == {}


def test_with_room_again_a_rerun_writes_the_same_bytes(commands):
    assert {
        command["command"]: command["differ"] for command in commands if command["differ"]
    } == {}
