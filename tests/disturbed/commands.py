"""Kills commands with `kill -9` at random changes of files and compares what reruns write.

Usage: commands.py FOLDER KILLS SEED; prints a line of JSON for each command. Places are numbers of
changes of files, as in tests/stages/kills.py, which does the same for the pipeline's stages.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    "cv2", "dvc.cli", "dvc.commands.repro", "dvc.repo", "farther.command", "farther.command.repro",
    "farther.derived", "farther.detectors.faster_rcnn", "farther.monitor.onnx.export",
    "farther.monitor.predict", "farther.publication", "huggingface_hub", "onnxruntime",
    "supervision", "torch.onnx", "tests.monitor.conftest",
)  # fmt: skip
FRAMES, SIZE = 40, (64, 48)


@dataclass(frozen=True)
class Command:
    """What is killed.

    Args:
        project: Name of the project that it runs in.
        act: Runs it there.
        output: What it writes.
        whole: Whether the output is there whole or not at all; else a rerun says which folder to
            delete.
    """

    project: str
    act: Callable[[], None]
    output: str
    whole: bool = True


def _derived() -> None:
    """Images that are large enough to be corrupted."""
    import results

    write = targets.write
    targets.write = lambda files: write(
        {
            name: (64, 48) if name.startswith("pets/") and name.endswith(".png") else files[name]
            for name in files
        }
    )
    results.derive_files()


def _curated() -> None:
    targets.project("infer")


def _deployed() -> None:
    """A small run, its bundle, photographs and a video."""
    import cv2
    import networks
    import numpy as np

    networks._faster_rcnn()
    _source().monitor("knn")
    shutil.move("bundles/knn", "bundle")
    writer = cv2.VideoWriter("clip.avi", cv2.VideoWriter_fourcc(*"MJPG"), 25, SIZE)
    for number in range(FRAMES):
        writer.write(np.random.default_rng(number).integers(0, 255, (*SIZE[::-1], 3), np.uint8))
    writer.release()


def _source() -> Any:
    """The run in the current folder, made where it is not there yet."""
    from tests.monitor.conftest import Deployed, make

    entry = {
        "adapter": "faster_rcnn",
        "weights": "a.safetensors",
        "params": {"score_threshold": 0.01},
        "benchmark": "x",
    }
    given = Path(), entry, {"knn": {"k": 2}}, 0.01
    return Deployed(*given) if Path("artifacts").is_dir() else make(*given)


def _bundle() -> None:
    from farther.monitor import write_bundle

    write_bundle(_source().source("knn"), "out", onnx=True)


def _predict(source: str) -> None:
    """With small shards: the command takes shards of 512 images."""
    from farther.monitor import Bundle, Monitor
    from farther.monitor.predict import PredictSettings, check_free, predict
    from farther.monitor.sources import open_source

    check_free(Path("out"))
    monitor = Monitor(Bundle.load("bundle"), "cpu")
    predict(
        monitor,
        open_source(source),
        PredictSettings(out=Path("out"), shard_images=4),
        log=lambda _: None,
    )


def _farther(*words: str) -> None:
    from farther.command import main

    assert main(["--traceback", *words]) == 0


PROJECTS = {"derived": _derived, "curated": _curated, "deployed": _deployed}
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
    "predict, images": Command("deployed", partial(_predict, "train"), "out", whole=False),
    "predict, video": Command("deployed", partial(_predict, "clip.avi"), "out", whole=False),
}


def refusing(act: Callable[[], None], log: Path) -> None:
    """Runs a command; its refusal is written to a file, and the process ends with status 3."""
    from farther.errors import FartherError

    sys.stdout = sys.stderr = log.with_suffix(".out").open("a", buffering=1)
    try:
        act()
    except FartherError as error:
        log.write_text(str(error))
        os._exit(3)


def told(log: Path) -> str:
    """What a command was refused for, or printed."""
    return log.read_text() if log.exists() else log.with_suffix(".out").read_text()[-3000:]


def digests(folder: Path) -> dict[str, str]:
    """Digest of each file below a folder, hidden ones included."""
    files = (Path(above, name) for above, _, names in os.walk(folder) for name in names)
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def kill(
    command: Command, before: Path, folder: Path, number: int, drawn: random.Random
) -> dict[str, Any]:
    """Runs a command undisturbed in one copy of its project, and with kills in as many others."""
    calm = folder / "calm"
    shutil.copytree(before, calm, symlinks=True)
    status, changes = kills.counted(calm, partial(refusing, command.act, folder / "calm.said"))
    assert status == 0, told(folder / "calm.said")
    expected, places, said, differ, torn = digests(calm), [], [], [], []
    for trial in range(number):
        place, copy, log = drawn.randint(1, changes), folder / f"{trial}", folder / f"{trial}.said"
        shutil.copytree(before, copy, symlinks=True)
        act = partial(refusing, command.act, log)
        status = kills.counted(copy, act, place)[0]
        assert status == -signal.SIGKILL, (place, changes, status)
        left = digests(copy / command.output)
        if command.whole and left and left != digests(calm / command.output):
            torn.append(place)
        status = kills.counted(copy, act)[0]
        if status == 3 and not command.whole:
            said.append(log.read_text())
            shutil.rmtree(copy / command.output)
            status = kills.counted(copy, act)[0]
        assert status == 0, told(log)
        found = digests(copy)
        differ += [
            f"{place}: {name}"
            for name in {*expected, *found}
            if expected.get(name) != found.get(name)
        ]
        places.append(place)
        shutil.rmtree(copy)
    shutil.rmtree(calm)
    return {
        "changes": changes,
        "kills": places,
        "torn": torn,
        "said": said,
        "differ": sorted(differ),
    }


def kill_jobs(folder: Path, number: int, drawn: random.Random) -> dict[str, Any]:
    """Kills `farther repro --jobs 2` with all of its processes: two runs of imported detections."""

    def make(copy: Path) -> None:
        os.chdir(copy)
        targets.project("infer")
        (copy / "clip").mkdir()
        (copy / "data/decisions").mkdir(parents=True)
        (copy / "data/decisions/.gitkeep").touch()
        params = {**targets.PARAMS, "embed": {"weights": "clip", "encoder": {}}}
        (copy / "params.yaml").write_text(json.dumps(params))
        (copy / "stages").symlink_to(ROOT / "stages")
        (copy / "artifacts/code.json").unlink()
        targets.stage("code_digests")
        kills.under_dvc(copy, dict.fromkeys(("infer", *in_process.OF_RUN), "${detectors}"))

    calm, disturbed = (folder / name for name in ("calm", "disturbed"))
    for copy in (calm, disturbed):
        copy.mkdir(parents=True)
        assert kills.forked(partial(make, copy)) == 0
    outputs = (
        "choices", "evaluation", "fitted", "metrics", "outcomes", "passes", "plots", "proposals",
        "records/choices", "records/evaluation", "records/fitted", "records/outcomes",
        "records/passes", "records/proposals", "records/recovered", "records/regions",
        "records/scores", "records/with_proposals",
        "recovered", "regions", "scores", "thresholds", "truth", "with_proposals",
    )  # fmt: skip
    made = tuple(f"artifacts/{name}" for name in outputs)
    found = kills.kill_repro(
        calm, disturbed, number, drawn, command=("repro", "--jobs", "2"), made=made
    )
    differ = [
        name for name in found["differ"] if not name.startswith(".work/logs/")
    ]  # what a stage printed
    return {
        "changes": found["changes"],
        "kills": found["kills"],
        "torn": [],
        "said": [],
        "differ": differ,
    }


def prepare(folder: Path) -> None:
    """Makes the projects."""
    for name, build in PROJECTS.items():
        (folder / name).mkdir(parents=True)
        made = partial(os.chdir, folder / name)
        assert kills.forked(lambda made=made, build=build: (made(), build())) == 0, name


def main(folder: Path, number: int, seed: int) -> Iterator[dict[str, Any]]:
    """Kills of each command, as many of each; those of `repro --jobs` take longest."""
    drawn = random.Random(seed)
    prepare(folder)
    share = len(COMMANDS) + 1
    for place, (name, command) in enumerate(COMMANDS.items()):
        count = number // share + (place < number % share)
        yield {
            "command": name,
            **kill(command, folder / command.project, folder / f"at {place}", count, drawn),
        }
    yield {"command": "repro --jobs", **kill_jobs(folder / "jobs", number // share, drawn)}


def load() -> None:
    """Imports what is imported before a fork."""
    for package in PACKAGES:
        __import__(package)
    import torch

    torch.set_num_threads(1)


if __name__ == "__main__":
    load()
    for done in main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])):
        print(json.dumps(done), flush=True)
