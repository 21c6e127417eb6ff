"""Kills commands with `kill -9` at random changes of files and compares what reruns write.

Places are numbers of changes of files, as in tests/stages/kills.py, which does the same for the
pipeline's stages. `disturb.py` is the program.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/fuzz"), str(ROOT / "tests/stages")]

import in_process  # noqa: E402
import kills  # noqa: E402
import targets  # noqa: E402

#: Imported before a fork; PyTorch and Polars must not start threads before.
PACKAGES = (
    "cv2", "dvc.cli", "dvc.commands.repro", "dvc.repo", "faiss", "farther.command",
    "farther.command.repro", "farther.derived", "farther.detectors.faster_rcnn",
    "farther.monitor.onnx.export", "farther.monitor.predict", "farther.publication",
    "huggingface_hub", "onnxruntime", "scipy.stats", "supervision", "torch.onnx",
    "tests.monitor.conftest",
)  # fmt: skip
#: Exit status of a command that was refused.
REFUSED = 3
#: Frames of the video, which are three shards, and their width and height.
FRAMES = 12
SIZE = (64, 48)
#: Stages that `repro --jobs` runs of each of two runs: some that follow each other, or all.
STAGES = ("infer", *in_process.OF_RUN)
if not os.environ.get("FARTHER_TEST_ALL"):
    STAGES = ("infer", "fit", "score")
#: Outputs of the stages of a run, deleted to begin anew.
RUN_OUTPUTS = (
    "choices", "dials", "evaluation", "fitted", "metrics", "outcomes", "passes", "plots",
    "proposals", "records/choices", "records/evaluation", "records/fitted", "records/outcomes",
    "records/passes", "records/proposals", "records/recovered", "records/regions",
    "records/scores", "records/with_proposals",
    "recovered", "regions", "scores", "thresholds", "truth", "with_proposals",
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command that is killed.

    Args:
        project: Name of the project that it runs in.
        act: Runs it in the current folder.
        output: The file or folder that it writes.
    """

    project: str
    act: Callable[[], None]
    output: str


# --------------------------------------------------------------------------------------------------
# projects


def _make_derived_project() -> None:
    """Images that are large enough to be corrupted."""
    import results

    write = targets.write

    def write_larger_images(files: dict[str, Any]) -> None:
        files_to_write = dict(files)
        for name in files:
            if name.startswith("pets/") and name.endswith(".png"):
                files_to_write[name] = SIZE
        write(files_to_write)

    targets.write = write_larger_images
    results.derive_files()


def _make_curated_project() -> None:
    targets.project("infer")


def _make_deployed_project() -> None:
    """A small run, its bundle, photographs and a video."""
    import cv2
    import networks
    import numpy as np

    networks._faster_rcnn()
    _deployed_run().monitor("knn")
    shutil.move("bundles/knn", "bundle")

    width, height = SIZE
    writer = cv2.VideoWriter("clip.avi", cv2.VideoWriter_fourcc(*"MJPG"), 25, SIZE)
    for number in range(FRAMES):
        rng = np.random.default_rng(number)
        writer.write(rng.integers(0, 255, (height, width, 3), np.uint8))
    writer.release()


def _deployed_run() -> Any:
    """The run in the current folder, which is made if it does not exist."""
    from tests.monitor.conftest import Deployed, make

    folder = Path()
    entry = {
        "adapter": "faster_rcnn",
        "weights": "a.safetensors",
        "params": {"score_threshold": 0.01},
        "benchmark": "x",
    }
    methods = {"knn": {"k": 2}}
    if Path("artifacts").is_dir():
        return Deployed(folder, entry, methods, operating=0.01)
    return make(folder, entry, methods, operating=0.01)


PROJECTS = {
    "derived": _make_derived_project,
    "curated": _make_curated_project,
    "deployed": _make_deployed_project,
}


def make_projects(folder: Path) -> None:
    """Makes each project in a process of its own."""

    def make(project: Path, build: Callable[[], None]) -> None:
        os.chdir(project)
        build()

    for name, build in PROJECTS.items():
        project = folder / name
        project.mkdir(parents=True)
        assert kills.forked(partial(make, project, build)) == 0, name


# --------------------------------------------------------------------------------------------------
# commands


def _bundle() -> None:
    from farther.monitor import write_bundle

    write_bundle(_deployed_run().source("knn"), "out", onnx=True)


def _predict(source: str) -> None:
    """Predicts with small shards: the command has shards of 512 images."""
    from farther.monitor import Bundle, Monitor
    from farther.monitor.predict import PredictSettings, predict
    from farther.monitor.sources import open_source

    settings = PredictSettings(out=Path("out"), shard_images=4, overwrite=True)
    settings.check()
    monitor = Monitor(Bundle.load("bundle"), "cpu")
    predict(monitor, open_source(source), settings, log=_discard)


def _discard(_line: str) -> None:
    """A log that nobody reads."""


def _farther(*words: str) -> None:
    from farther.command import main

    assert main(["--traceback", *words]) == 0


DERIVED = "artifacts/derived"
PUBLISH = "benchmark publish pets out --format"
COMMANDS = {
    "paste": Command(
        "derived", partial(targets.stage, "derive", "paste", "pasted"), f"{DERIVED}/paste/pasted"
    ),
    "corrupt": Command(
        "derived",
        partial(targets.stage, "derive", "corrupt", "shifted"),
        f"{DERIVED}/corrupt/shifted",
    ),
    "publish, COCO": Command("curated", partial(_farther, *PUBLISH.split(), "coco"), "out"),
    "publish, Hugging Face": Command(
        "curated", partial(_farther, *PUBLISH.split(), "huggingface"), "out"
    ),
    "bundle --onnx": Command("deployed", _bundle, "out"),
    "predict, images": Command("deployed", partial(_predict, "train"), "out"),
    "predict, video": Command("deployed", partial(_predict, "clip.avi"), "out"),
}


# --------------------------------------------------------------------------------------------------
# kills


def refusing(act: Callable[[], None], log: Path) -> None:
    """Runs a command; if it is refused, writes the message to a file and exits with `REFUSED`."""
    from farther.errors import FartherError

    printed = log.with_suffix(".out").open("a", buffering=1)
    sys.stdout = printed
    sys.stderr = printed
    try:
        act()
    except FartherError as error:
        log.write_text(str(error))
        os._exit(REFUSED)


def log_text(log: Path) -> str:
    """The message of a command that was refused, or else the end of what it printed."""
    if log.exists():
        return log.read_text()
    return log.with_suffix(".out").read_text()[-3000:]


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file below a folder, hidden files included."""
    digest_by_name = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            digest_by_name[str(file.relative_to(folder))] = digest
    return digest_by_name


@dataclass
class Outcome:
    """The kills of a command, in the form that the tests read.

    Attributes:
        changes: Number of changes of files that the undisturbed command makes.
        kills: Numbers of the changes before which it was killed.
        torn: Kills that left partial output.
        differ: Files that differ after the rerun, each with its kill.
    """

    changes: int
    kills: list[int] = field(default_factory=list)
    torn: list[int] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Calm:
    """A copy of a project in which a command ran undisturbed.

    Args:
        folder: The copy.
        changes: Number of changes of files that the command made.
    """

    folder: Path
    changes: int


def run_calm(command: Command, project: Path, folder: Path) -> Calm:
    """Runs a command undisturbed in a copy of its project."""
    calm = folder / "calm"
    log = folder / "calm.said"
    shutil.copytree(project, calm, symlinks=True)
    status, changes = kills.counted(calm, partial(refusing, command.act, log))
    assert status == 0, log_text(log)
    return Calm(calm, changes)


def kill(command: Command, project: Path, calm: Calm, number: int, rng: random.Random) -> Outcome:
    """Kills a command in `number` copies of its project."""
    outcome = Outcome(calm.changes)
    for trial in range(number):
        kill_at = rng.randint(1, calm.changes)
        copy = calm.folder.with_name(f"killed {trial}")
        shutil.copytree(project, copy, symlinks=True)
        kill_once(command, copy, calm.folder, kill_at, outcome)
        shutil.rmtree(copy)
    outcome.differ.sort()
    return outcome


def kill_once(command: Command, copy: Path, calm: Path, kill_at: int, outcome: Outcome) -> None:
    """Kills a command in a copy of its project, reruns it, and adds what happened to `outcome`."""
    log = copy.with_name(f"{copy.name}.said")
    act = partial(refusing, command.act, log)
    status, _ = kills.counted(copy, act, kill_at)
    assert status == -signal.SIGKILL, (kill_at, outcome.changes, status)

    output = digests(copy / command.output)
    if output and output != digests(calm / command.output):
        outcome.torn.append(kill_at)

    status, _ = kills.counted(copy, act)
    assert status == 0, log_text(log)

    outcome.kills.append(kill_at)
    for name in kills.differences(digests(calm), digests(copy)):
        outcome.differ.append(f"{kill_at}: {name}")


def kill_jobs(folder: Path, number: int, rng: random.Random) -> Outcome:
    """Kills `farther repro --jobs 2` with all of its processes: two runs of imported detections."""
    calm = folder / "calm"
    disturbed = folder / "disturbed"
    calm.mkdir(parents=True)
    assert kills.forked(partial(_make_imported_project, calm)) == 0
    shutil.copytree(calm, disturbed, symlinks=True)
    for project in (calm, disturbed):
        kills.count_in_processes(project)

    killed = kills.kill_repro(
        calm,
        disturbed,
        number,
        rng,
        command=("repro", "--jobs", "2"),
        outputs=tuple(f"artifacts/{name}" for name in RUN_OUTPUTS),
    )
    outcome = Outcome(killed["changes"], killed["kills"])
    for name in killed["differ"]:
        # The output of a stage that was killed differs.
        if not name.startswith(".work/logs/"):
            outcome.differ.append(name)
    return outcome


def _make_imported_project(project: Path) -> None:
    """Two runs of imported detections, whose stages from `infer` on are under DVC."""
    os.chdir(project)
    targets.project("infer")
    (project / "clip").mkdir()
    (project / "data/decisions").mkdir(parents=True)
    (project / "data/decisions/.gitkeep").touch()
    params = {**targets.PARAMS, "embed": {"weights": "clip", "encoder": {}}}
    (project / "params.yaml").write_text(json.dumps(params))
    (project / "stages").symlink_to(ROOT / "stages")
    (project / "artifacts/code.json").unlink()
    targets.stage("code_digests")
    kills.under_dvc(project, dict.fromkeys(STAGES, "${detectors}"))


def load() -> None:
    """Imports `PACKAGES`, with PyTorch on one thread, and reads farther's code."""
    for package in PACKAGES:
        importlib.import_module(package)
    import torch

    torch.set_num_threads(1)
