"""A stage reads nothing that DVC does not know of: neither code nor data.

Every file of the library whose code it runs, or that it opens, is in its digest. What a stage
reaches is found by tracing it, by code that knows nothing of digests (`traced.py`).
That an edit of a file changes the digests that it is in is tested in
tests/incremental/test_code.py.

Where a project has nothing but what dvc.yaml says that a stage depends on, the stage writes the
same bytes. (What is opened by Rust and C++, as tables are, cannot be traced.)
"""

import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.disturbed.valid import pipeline

from farther.incremental.stage_digests import STAGE_CODE, StageDigests

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
#: The run of the small demo, and one with extra inference and methods that need it.
SIMPLE_RUN, RUN = "voc-faster_rcnn", "voc-yolov8"
METHODS = ("confidence", "energy", "mahalanobis", "vim", "mutual_information", "mcm_on_crops")


def prepare(folder: Path) -> dict:
    """A small project with one run; returns its parameters."""
    pipeline.small_demo(folder)
    params = pipeline.params()
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


def trace(*folders_and_stages: object) -> None:
    """Runs stages by `traced.py`."""
    command = [sys.executable, Path(__file__).with_name("traced.py"), *folders_and_stages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@dataclass(frozen=True)
class Traced:
    """A project whose stages ran.

    Args:
        folder: Its folder.
        params: Its parameters.
        stages: The commands, in their order.
        files: The files below the library's folder that each stage reaches.
    """

    folder: Path
    params: dict
    stages: tuple[str, ...]
    files: dict[str, set[str]]


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> Traced:
    folder = tmp_path_factory.mktemp("traced") / "project"
    params = prepare(folder)
    stages = tuple(stage.replace(SIMPLE_RUN, RUN) for stage in pipeline.STAGES)
    pairs = [part for stage in ("code_digests", *stages) for part in (folder, stage)]
    trace(*pairs)
    files = defaultdict(set)
    for line in (folder / "traced.jsonl").read_text().splitlines():
        record = json.loads(line)
        files[record["stage"]].add(Path(record["file"]).relative_to(ROOT / "lib").as_posix())
    del files["code_digests"]
    return Traced(folder, params, stages, files)


def test_what_a_stage_reaches_is_in_its_digest(traced):
    digests = StageDigests(traced.params)
    missing = {}
    for stage, files in traced.files.items():
        name = stage.split()[0]
        counted = set()
        for registered in names_of(stage, traced.params):
            counted |= digests.code_files(name, registered).keys()
        if files - counted:
            missing[stage] = sorted(files - counted)
    assert missing == {}


def test_all_stages_are_traced_and_reach_what_is_known_to_be_used(traced):
    names = {stage.split()[0] for stage in traced.files}
    assert names >= STAGE_CODE.keys() - {"demo", "train"}
    reached = set().union(*traced.files.values())
    assert {
        "farther/methods/energy.py",
        "farther/images/stream.py",
        "farther/metrics/catalogue/metrics.yaml",
        "farther/report/templates/base.html",
        "farther/incremental/keyed.py",
    } <= reached


#: Images, whose digests are in the tables that stages depend on, and where they are.
IMAGES = ("artifacts/demo", "artifacts/derived", "artifacts/tables")
ALWAYS_THERE = ("artifacts/code.json", *IMAGES)
#: What is no output: it has times.
WITHOUT_TIMES = ("artifacts/times.json", "artifacts/report/times.js")


def declared(stage: str, params: dict) -> tuple[list[str], list[str]]:
    """Paths that a stage depends on, and those of its outputs, as dvc.yaml has them."""
    name, *arguments = stage.split()
    content = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    if name == "derive":
        name = arguments.pop(0)
    body = content[name]
    item = params
    if "foreach" in body:
        for key in body["foreach"].strip("${}").split("."):
            item = item[key]
        item = item[arguments[0]]
        body = body["do"]

    def filled(path: str) -> str:
        path = path.replace("${key}", "".join(arguments))
        for reference in re.findall(r"\$\{([\w.]+)\}", path):
            value = {**params, "item": item}
            for key in reference.split("."):
                value = value[key]
            path = path.replace(f"${{{reference}}}", str(value))
        return path

    outputs = []
    for kind in ("outs", "metrics", "plots"):
        for output in body.get(kind, ()):
            outputs.append(filled(output if isinstance(output, str) else next(iter(output))))
    return [filled(path) for path in body.get("deps", ())], outputs


def contents(folder: Path, paths: list[str]) -> dict[str, bytes]:
    """The files below paths of a project."""
    found = {}
    for path in paths:
        place = folder / path
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            name = file.relative_to(folder).as_posix()
            if file.is_file() and name not in WITHOUT_TIMES:
                found[name] = file.read_bytes()
    return found


def copy_only(source: Path, target: Path, paths: list[str]) -> None:
    """A project with some paths alone below its artifacts."""
    for entry in source.iterdir():
        if entry.name == "artifacts":
            continue
        if entry.is_symlink() or entry.is_file():
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(entry, target / entry.name, follow_symlinks=False)
        else:
            shutil.copytree(entry, target / entry.name, symlinks=True)
    for path in paths:
        if not path.startswith("artifacts"):
            continue
        place = source / path
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir() and not (target / path).exists():
            shutil.copytree(place, target / path)
        elif place.is_file():
            shutil.copy2(place, target / path)


def test_a_stage_writes_the_same_where_there_is_nothing_that_dvc_yaml_does_not_declare(
    traced, tmp_path
):
    pairs = []
    stages = [stage for stage in traced.stages if stage.split()[0] != "demo"]
    for number, stage in enumerate(stages):
        dependencies, _ = declared(stage, traced.params)
        copy_only(traced.folder, tmp_path / str(number), [*ALWAYS_THERE, *dependencies])
        pairs += [tmp_path / str(number), stage]
    trace(*pairs)
    different = {}
    for number, stage in enumerate(stages):
        _, outputs = declared(stage, traced.params)
        before = contents(traced.folder, outputs)
        after = contents(tmp_path / str(number), outputs)
        names = [name for name in before if before[name] != after.get(name)]
        if names:
            different[stage] = names[:5]
    assert different == {}
