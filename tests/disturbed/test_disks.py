"""A full disk or a quota while commands write: one message names the file, no output is partial."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

#: Number of limits for each command and kind, and the seed of their sizes.
LIMITS, SEED = (
    int(os.environ.get(f"FARTHER_TEST_{name}", usual))
    for name, usual in (("LIMITS", 1), ("SEED", 0))
)
#: What lets a process mount a file system that no other process sees, where the machine allows it.
MOUNTING = ["unshare", "--map-root-user", "--mount"]


def may_mount() -> bool:
    command = [*MOUNTING, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True).returncode == 0
    )


@pytest.fixture(scope="module")
def commands(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("disks")
    program = [sys.executable, Path(__file__).with_name("disks.py"), folder, str(LIMITS), str(SEED)]
    command = [*MOUNTING, *program] if may_mount() else program
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    print(done.stdout)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_a_command_that_the_disk_stops_says_so_once_and_names_the_file(commands):
    said = [message for command in commands for message in command["said"]]
    assert len(said) >= LIMITS * 3
    for message in said:
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
