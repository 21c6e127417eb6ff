"""Kills stages with `kill -9` at drawn places and compares what reruns write with an undisturbed run.

Usage: kills.py FOLDER KILLS SEED; prints JSON, a list of what was done for each stage.

A process that has imported the packages is forked for each run, which saves seconds each time. The place of a kill is
the number of a change of files (a file opened for writing, renamed, deleted, …), not a time.
"""

import gc
import hashlib
import json
import os
import random
import runpy
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
STAGES = (
    "demo voc", "demo coco", "ingest voc", "ingest coco", "derive blank voc_blank", "ingest voc_blank", "curate voc",
    "embed", "stratify voc", "infer voc-faster_rcnn", "evaluate voc-faster_rcnn", "cost", "report",
)  # fmt: skip
#: Packages that the stages import; PyTorch and Polars must not start threads before a fork.
PACKAGES = (
    "altair", "farther.detectors", "farther.detectors.faster_rcnn", "farther.evaluation.detector", "farther.report",
    "farther.similarity", "farther.tools.cost", "farther.tools.demo.world", "farther.tools.derived", "jinja2",
    "open_clip", "scipy.stats", "sklearn.covariance", "torch", "torchvision", "tqdm", "vl_convert",
)  # fmt: skip
#: Events of Python that change files.
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "shutil.rmtree"}


def params() -> dict:
    """The demo's parameters with one small benchmark."""
    made = yaml.safe_load((ROOT / "params.yaml").read_text())
    few = {"voc": {"train": 12, "val": 8, "test": 8}, "coco": 20}
    made["demo"].update(few)
    made["datasets"] = {name: made["datasets"][name] for name in ("voc", "coco", "voc_blank")}
    blank = made["derived"]["blank"]["voc_blank"]
    blank["images"]["most"] = 6
    made["derived"] = {"paste": {}, "corrupt": {}, "blank": {"voc_blank": blank}}
    voc = made["benchmarks"]["voc"]
    del voc["shifted"]
    voc["splits"] = {name: entry for name, entry in voc["splits"].items() if entry["dataset"] == "coco"}
    made["benchmarks"] = {"voc": voc}
    run = made["detectors"]["voc-faster_rcnn"]
    run.pop("passes", None)
    made["detectors"] = {"voc-faster_rcnn": run}
    made["methods"] = {name: made["methods"][name] for name in ("msp", "knn")}
    made["inference"].update(workers=1, shard_images=4)
    made["embed"]["images"].update(workers=0, shard_images=8)
    made["evaluate"]["replicates"] = 10
    made["cost"] = {"images": 2}
    made["report"] = {}
    return made


def prepare(folder: Path) -> Path:
    """A project with the stages and no artifacts."""
    folder.mkdir(parents=True)
    for name in ("stages", "data"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "params.yaml").write_text(yaml.safe_dump(params(), sort_keys=False))
    return folder


def forked(act: Callable[[], None]) -> int:
    """Exit status of a forked process; negative for a signal."""
    gc.freeze()
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        act()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def count_changes(folder: Path, changed: Callable[[], None]) -> None:
    """Calls `changed` before each change of a file in a folder that this process makes, for good."""
    me, place = os.getpid(), str(folder.resolve())

    def hook(event: str, arguments: tuple) -> None:
        if os.getpid() != me or not (event in CHANGES or (event == "open" and _writes(arguments))):
            return
        name = arguments[0]
        if isinstance(name, (str, bytes, os.PathLike)):
            path = os.path.abspath(os.fsdecode(name))  # noqa: PTH100
            if path.startswith(place):
                changed()

    sys.addaudithook(hook)


def _writes(arguments: tuple) -> bool:
    return bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def run(folder: Path, stage: str, kill_at: int | None = None) -> tuple[int, int]:
    """Exit status of a stage, and the number of changes it made."""
    reading, writing = os.pipe()

    def act() -> None:
        os.chdir(folder)
        os.cpu_count = lambda: 1
        count = 0

        def changed() -> None:
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        count_changes(folder, changed)
        name, *arguments = stage.split()
        script = str(ROOT / "stages" / f"{name}.py")
        sys.argv = [script, *arguments]
        with folder.with_suffix(".log").open("a") as sys.stdout:
            sys.stderr = sys.stdout
            runpy.run_path(script, run_name="__main__")
        os.write(writing, str(count).encode())

    status = forked(act)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return status, int(pipe.read() or 0)


def content(artifacts: Path) -> dict[str, str]:
    """Digest of each file but those with measured times, hidden ones included."""
    files = (Path(above, name) for above, _, names in os.walk(artifacts) for name in names)
    return {
        str(file.relative_to(artifacts)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file != artifacts / "cost.json"
    }


def main(folder: Path, kills: int, seed: int) -> list[dict]:
    """Runs the stages undisturbed in one project and with kills in another one."""
    calm, disturbed = prepare(folder / "calm"), prepare(folder / "disturbed")
    drawn = random.Random(seed)
    each = [kills // len(STAGES) + (number < kills % len(STAGES)) for number in range(len(STAGES))]
    drawn.shuffle(each)
    done = []
    for place in (calm, disturbed):
        assert run(place, "code_digests")[0] == 0
    for stage, number in zip(STAGES, each, strict=True):
        status, changes = run(calm, stage)
        assert status == 0, stage
        at = [drawn.randint(1, changes) for _ in range(number)]
        statuses = [run(disturbed, stage, kill_at)[0] for kill_at in at]
        last, _ = run(disturbed, stage)
        if stage == "cost":
            shutil.copy(calm / "artifacts/cost.json", disturbed / "artifacts")
        expected, found = content(calm / "artifacts"), content(disturbed / "artifacts")
        differ = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        done.append(
            {
                "stage": stage,
                "changes": changes,
                "kills": [[place, status] for place, status in zip(at, statuses, strict=True)],
                "status": last,
                "differ": differ,
                "hidden": sorted(name for name in found if "/." in f"/{name}"),
            }
        )
    return done


if __name__ == "__main__":
    for package in PACKAGES:
        __import__(package)
    import torch

    torch.set_num_threads(1)
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
