"""Every file of the library whose code a stage runs, or that it opens, is in the stage's digest.

What a stage reaches is found by tracing it, by code that knows nothing of digests (`traced.py`).
That an edit of a file changes the digests that it is in is tested in tests/test_code.py.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from tests.stages import kills

from farther.stage_digests import STAGE_CODE, StageDigests

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
#: The run of kills.py, and one with extra inference and methods that need it.
SIMPLE_RUN, RUN = "voc-faster_rcnn", "voc-yolov8"
METHODS = ("confidence", "energy", "mahalanobis", "vim", "mutual_information", "mcm_on_crops")
#: The stage whose work a script does that is no stage's name.
PART_OF = {"proposals": "evaluate", "with_proposals": "evaluate", "cost": "choose"}


def prepare(folder: Path) -> dict:
    """A small project with one run; returns its parameters."""
    kills.prepare(folder)
    params = kills.params()
    every = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["detectors"] = {RUN: {**every["detectors"][RUN], "proposals": {"anchors": {}}}}
    params["methods"] |= {name: every["methods"][name] for name in METHODS}
    params["inference"]["workers"] = params["embed"]["images"]["workers"] = 0
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    return params


def names_of(stage: str, params: dict) -> list[str]:
    """The names that a stage runs, of one with a digest per name."""
    name, *arguments = stage.split()
    if name == "derive":
        cutouts = params["derived"][arguments[0]][arguments[1]].get("cutouts")
        return [arguments[0], *([cutouts["source"]] if cutouts else [])]
    if name == "ingest":
        return [params["datasets"][arguments[0]]["format"]]
    if name == "infer":
        return [params["detectors"][arguments[0]]["adapter"]]
    return [""]


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> tuple[dict, dict[str, set[str]]]:
    """The parameters, and the files below the library's folder that each stage reaches."""
    folder = tmp_path_factory.mktemp("traced") / "project"
    params = prepare(folder)
    stages = ["code_digests", *(stage.replace(SIMPLE_RUN, RUN) for stage in kills.STAGES)]
    command = [sys.executable, Path(__file__).with_name("traced.py"), folder, *stages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    files = defaultdict(set)
    for line in (folder / "traced.jsonl").read_text().splitlines():
        record = json.loads(line)
        files[record["stage"]].add(Path(record["file"]).relative_to(ROOT / "lib").as_posix())
    del files["code_digests"]
    return params, files


def test_what_a_stage_reaches_is_in_its_digest(traced):
    params, files_by_stage = traced
    digests = StageDigests(params)
    missing = {}
    for stage, files in files_by_stage.items():
        name = stage.split()[0]
        counted = set()
        for registered in names_of(stage, params):
            counted |= digests.code_files(PART_OF.get(name, name), registered).keys()
        if files - counted:
            missing[stage] = sorted(files - counted)
    assert missing == {}


def test_all_stages_are_traced_and_reach_what_is_known_to_be_used(traced):
    _, files_by_stage = traced
    names = {stage.split()[0] for stage in files_by_stage}
    assert {PART_OF.get(name, name) for name in names} >= STAGE_CODE.keys() - {"demo", "train"}
    reached = set().union(*files_by_stage.values())
    assert {
        "farther/methods/energy.py",
        "farther/images/stream.py",
        "farther/metrics/catalogue/metrics.yaml",
        "farther/report/templates/base.html",
        "farther/keyed.py",
    } <= reached
