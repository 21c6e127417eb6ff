"""`kill -9` of commands at random places: no partial output is read, a rerun gives equal bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

#: Number of kills, and the seed of their places.
KILLS, SEED = (
    int(os.environ.get(f"FARTHER_TEST_{name}", usual))
    for name, usual in (("KILLS", 8), ("SEED", 0))
)


@pytest.fixture(scope="module")
def commands(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("disturbed")
    command = [
        sys.executable,
        Path(__file__).with_name("commands.py"),
        folder,
        str(KILLS),
        str(SEED),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    print(done.stdout)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_killed_commands_that_run_again_end_in_the_same_bytes_and_leave_nothing_else(commands):
    assert sum(len(command["kills"]) for command in commands) == KILLS
    assert {
        command["command"]: command["differ"] for command in commands if command["differ"]
    } == {}


def test_what_is_written_at_once_is_there_whole_or_not_at_all(commands):
    assert {command["command"]: command["torn"] for command in commands if command["torn"]} == {}


def test_a_folder_that_a_killed_prediction_left_is_named_and_not_overwritten(commands):
    for command in commands:
        for said in command["said"]:
            assert (
                said
                == "out already exists and is not overwritten: name another folder, or delete it"
            )
