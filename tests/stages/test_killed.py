"""`kill -9` at random changes of stages and `dvc repro`: a rerun writes the undisturbed bytes.

A rerun of a stage that was not disturbed leaves every file as it is.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.drawn(2, "disturbed")]

#: Number of kills, and the seed of their places.
KILLS, SEED = (
    int(os.environ.get(f"FARTHER_TEST_{name}", usual))
    for name, usual in (("KILLS", 8), ("SEED", 0))
)


@pytest.fixture(scope="module")
def stages(tmp_path_factory, commands) -> list[dict]:
    folder = tmp_path_factory.mktemp("killed")
    command = [
        commands / "python",
        Path(__file__).with_name("kills.py"),
        folder,
        str(KILLS),
        str(SEED),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    logs = "\n".join(log.read_text()[-2000:] for log in folder.glob("*.log"))
    assert done.returncode == 0, f"{done.stderr[-3000:]}\n{logs}"
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_killed_stages_that_run_again_end_in_the_same_bytes(stages):
    assert sum(len(stage["kills"]) for stage in stages) == KILLS
    assert {stage["stage"]: stage["differ"] for stage in stages if stage["differ"]} == {}


def test_killed_stages_that_run_again_leave_nothing_else(stages):
    assert {stage["stage"]: stage["hidden"] for stage in stages if stage["hidden"]} == {}


def test_stages_that_run_twice_write_nothing_and_delete_nothing(stages):
    twice = {stage["stage"]: stage["rewritten"] for stage in stages if "rewritten" in stage}
    assert len(twice) >= 11
    assert {stage: files for stage, files in twice.items() if files} == {}


def test_a_stage_whose_output_another_process_writes_is_refused_and_names_both(stages):
    *ran, _ = stages
    assert len(ran) >= 13
    for stage in ran:
        name, output, owner = stage["stage"], stage["output"], stage["owner"]
        assert stage["refused"].startswith(f"{name}: {output}: process {owner} on "), stage[
            "refused"
        ]
        assert stage["refused"].endswith("is writing it: wait until it has ended, or end it")
