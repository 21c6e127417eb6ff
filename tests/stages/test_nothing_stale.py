"""Every part of the library that a stage reaches changes the stage's digest when it is edited.

What a stage reaches is found by tracing it, by code that knows nothing of how digests are computed
(`traced.py`, `units.py`). Edits are sampled; with FARTHER_TEST_ALL=1 all are made. What an edit of
each kind changes is tested in tests/test_code.py, which is fast.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from tests.stages import kills
from tests.stages.units import Call, Library, Unit
from tests.support.cases import SEED

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
#: Number of edits; None for all.
EDITS = None if os.environ.get("FARTHER_TEST_ALL") else 60
#: The run of kills.py, which is left out where edits are sampled; one with extra inference, and
#: methods that need it.
SIMPLE_RUN, RUN = "voc-faster_rcnn", "voc-yolov8"
METHODS = ("confidence", "energy", "mahalanobis", "vim", "mutual_information", "mcm_on_crops")


def prepare(folder: Path) -> dict:
    """A small project with one run or two; returns its parameters."""
    kills.prepare(folder)
    params = kills.params()
    every = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["detectors"][RUN] = {**every["detectors"][RUN], "proposals": {"anchors": {}}}
    if EDITS:
        del params["detectors"][SIMPLE_RUN]
    params["methods"] |= {name: every["methods"][name] for name in METHODS}
    params["inference"]["workers"] = params["embed"]["images"]["workers"] = 0
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    return params


def all_stages(params: dict) -> list[str]:
    """The stages of the project, in order: those of kills.py, for each run."""
    stages = ["code_digests"]
    for stage in kills.STAGES:
        name, *arguments = stage.split()
        if SIMPLE_RUN in arguments:
            stages += [f"{name} {run}" for run in params["detectors"]]
        else:
            stages.append(stage)
    return stages


def digests_of(stage: str, params: dict) -> list[str]:
    """The digests of artifacts/code.json that the code of a stage is in, as dvc.yaml names them."""
    name, *arguments = stage.split()
    if name == "derive":
        cutouts = params["derived"][arguments[0]][arguments[1]].get("cutouts")
        return [f"derive.{arguments[0]}", *([f"derive.{cutouts['source']}"] if cutouts else [])]
    if name == "ingest":
        return [f"ingest.{params['datasets'][arguments[0]]['format']}"]
    if name == "infer":
        return [f"infer.{params['detectors'][arguments[0]]['adapter']}"]
    return [name]


@pytest.fixture(scope="module")
def reached(tmp_path_factory) -> dict[Unit, list[list[str]]]:
    """The parts that stages reach, and for each of these stages the digests that its code is in."""
    folder = tmp_path_factory.mktemp("traced") / "project"
    params = prepare(folder)
    stages = all_stages(params)
    command = [sys.executable, Path(__file__).with_name("traced.py"), folder, *stages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    calls = defaultdict(list)
    for line in (folder / "traced.jsonl").read_text().splitlines():
        record = json.loads(line)
        importing = record["importing"] and below_lib(record["importing"])
        call = Call(below_lib(record["file"]), record["line"], importing, tuple(record["names"]))
        calls[record["stage"]].append(call)
    library = Library(ROOT / "lib")
    units = defaultdict(list)
    for stage in stages[1:]:
        for unit in library.reached(calls[stage]):
            units[unit].append(digests_of(stage, params))
    shutil.rmtree(folder)
    return units


def below_lib(file: str) -> str:
    return Path(file).relative_to(ROOT / "lib").as_posix()


def test_an_edit_of_what_a_stage_reaches_changes_its_digest(reached, tmp_path):
    units = sorted(reached)
    print(f"FARTHER_TEST_SEED={SEED}: {EDITS or 'all'} of {len(units)} edits")
    if EDITS:
        units = random.Random(SEED).sample(units, EDITS)
    for name in ("lib", "stages"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    listed = []
    for unit in units:
        digests = sorted({digest for digests in reached[unit] for digest in digests})
        listed.append([unit.file, unit.kind, unit.name, unit.line, digests])
    (tmp_path / "units.json").write_text(json.dumps(listed))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "lib"), str(ROOT)])}
    command = [
        sys.executable,
        Path(__file__).with_name("edited.py"),
        tmp_path,
        tmp_path / "units.json",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(units)
    stale = []
    for unit, result in zip(units, results, strict=True):
        unchanged = set(result["unchanged"])
        missed = [digests for digests in reached[unit] if unchanged.issuperset(digests)]
        if missed and not result["excused"]:
            stale.append(
                f"{unit.file}, line {unit.line}, {unit.kind} {unit.name}: "
                f"{sorted(map(str, missed))}"
            )
    assert not stale, f"edits that rerun nothing (FARTHER_TEST_SEED={SEED}):\n" + "\n".join(stale)


def test_the_trace_reaches_what_is_known_to_be_used(reached):
    names = {(unit.file, unit.name) for unit in reached}
    expected = {
        ("farther/methods/energy.py", "_score"),
        ("farther/images/stream.py", "stream"),
        ("farther/metrics/catalogue/metrics.yaml", ""),
        ("farther/report/templates/base.html", ""),
        ("farther/keyed.py", "is_current"),
    }
    assert expected - names == set()
