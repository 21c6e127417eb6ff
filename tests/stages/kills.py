"""Kills stages with `kill -9` at random changes, and compares reruns with an undisturbed run.

Usage: kills.py FOLDER KILLS SEED; prints a line of JSON for each stage.

A process that has imported the packages is forked for each run, which saves seconds each time. The
place of a kill is the number of a change of files (a file opened for writing, renamed, deleted, …),
not a time.
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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import yaml

from farther.command.doctor.machine import dvc_locks
from farther.detectors.inference import NETWORK_RECORD
from farther.pipeline.stages import STAGES as TABLE
from farther.pipeline.stages import Stage
from farther.tables.writing import locked

ROOT = Path(__file__).parents[2]
#: Arguments of the commands of stages that are repeated, by the section that they are repeated
#: over.
ARGUMENTS = {
    "datasets": ("voc", "coco", "openimages"),
    "enrich": ("voc",),
    "derived": ("blank voc_blank", "paste voc_pasted", "corrupt voc_shifted"),
    "detectors": ("voc-faster_rcnn",),
}


def commands(stage: Stage) -> list[str]:
    """Names of a stage with the arguments that its script is run with."""
    if stage.section is None:
        return [stage.name]
    return [f"{stage.name} {arguments}" for arguments in ARGUMENTS[stage.section]]


#: All stages but `code`, which runs first.
STAGES = tuple(command for stage in TABLE[1:] for command in commands(stage))
#: Stages that do all of their work again, in seconds: they are run twice only where they are
#: killed.
SLOW = ("demo", "derive corrupt voc_shifted")
#: Packages that the stages import; PyTorch and Polars must not start threads before a fork.
PACKAGES = (
    "dvc.cli", "dvc.commands.repro", "dvc.repo",
    "farther.detectors", "farther.detectors.faster_rcnn", "farther.evaluation.detector",
    "farther.report", "farther.similarity", "farther.evaluation.cost",
    "farther_demo.world", "farther.derived", "jinja2", "open_clip", "scipy.stats",
    "sklearn.covariance", "torch", "torchvision", "tqdm",
)  # fmt: skip
#: Events of Python that change files.
CHANGES = {
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.truncate",
    "os.link",
    "os.symlink",
    "shutil.rmtree",
}


def params() -> dict:
    """The demo's parameters with one small benchmark."""
    made = yaml.safe_load((ROOT / "params.yaml").read_text())
    others = {name: {"train": 2, "val": 2, "test": 2} for name in ("bdd", "drawings")}
    few = {
        "voc": {"train": 8, "val": 6, "test": 6},
        "coco": 16,
        **others,
        "openimages": 8,
        "drawings_unknown": 2,
    }
    made["demo"].update(few)
    made["datasets"] = {name: made["datasets"][name] for name in ("voc", "coco", "openimages")}
    made["enrich"] = {"voc": {"pools": [{"dataset": "openimages", "subset": "validation"}]}}
    names = {"paste": "voc_pasted", "corrupt": "voc_shifted", "blank": "voc_blank"}
    made["derived"] = {kind: {name: made["derived"][kind][name]} for kind, name in names.items()}
    for kind, name in names.items():
        made["derived"][kind][name]["images"]["most"] = 6
    made["derived"]["corrupt"]["voc_shifted"].update(
        severities=[1], corruptions=["gaussian_noise", "contrast"]
    )
    voc = made["benchmarks"]["voc"]
    del voc["shifted"]
    voc["splits"] = {
        name: entry for name, entry in voc["splits"].items() if entry["dataset"] == "coco"
    }
    made["benchmarks"] = {"voc": voc}
    run = made["detectors"]["voc-faster_rcnn"]
    run.pop("passes", None)
    run["proposals"] = {"rpn": {}}
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
    for name in ("stages", "data", "extensions"):
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
    """Calls `changed` before each change of a file in a folder by this process, from now on."""
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

    def act() -> None:
        name, *arguments = stage.split()
        script = str(ROOT / "stages" / f"{name}.py")
        sys.argv = [script, *arguments]
        sys.stdout = sys.stderr = folder.with_suffix(".log").open("a", buffering=1)
        runpy.run_path(script, run_name="__main__")

    return counted(folder, act, kill_at)


def counted(folder: Path, act: Callable[[], None], kill_at: int | None = None) -> tuple[int, int]:
    """Exit status of a forked process, and the number of its changes in a folder.

    Args:
        folder: The folder.
        act: What is done.
        kill_at: Number of the change before which the process is killed.
    """
    reading, writing = os.pipe()

    def count_and_act() -> None:
        os.chdir(folder)
        os.sched_getaffinity = lambda _: {0}
        count = 0

        def changed() -> None:
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        count_changes(folder, changed)
        act()
        os.write(writing, str(count).encode())

    status = forked(count_and_act)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return status, int(pipe.read() or 0)


def content(artifacts: Path) -> dict[str, str]:
    """Digest of each file but the one with measured times, hidden ones included."""
    files = (Path(above, name) for above, _, names in os.walk(artifacts) for name in names)
    return {
        str(file.relative_to(artifacts)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file != artifacts / "times.json"
    }


def identities(artifacts: Path) -> dict[str, tuple[int, int]]:
    """Inode and modification time of each file except the one with measured times.

    A file that is written anew has others.
    """
    files = (
        file for file in artifacts.rglob("*") if file.is_file() and file != artifacts / "times.json"
    )
    return {
        str(file.relative_to(artifacts)): (file.stat().st_ino, file.stat().st_mtime_ns)
        for file in files
    }


def rewritten(folder: Path, again: Callable[[], object]) -> list[str]:
    """Artifacts of a project that a further run writes or deletes although nothing changed."""
    before = identities(folder / "artifacts")
    again()
    after = identities(folder / "artifacts")
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def killed(
    attempt: Callable[[int], int], reset: Callable[[], None], changes: int, drawn: random.Random
) -> int:
    """Kills an attempt at a random change; returns the number of the change.

    An attempt that resumes makes fewer changes. One that ends before is begun anew.
    """
    while True:
        place = drawn.randint(1, changes)
        status = attempt(place)
        if status == -signal.SIGKILL:
            return place
        assert status == 0, status
        reset()


def compared(calm: Path, disturbed: Path) -> dict[str, list[str]]:
    """Files of two projects that differ, and unexpected hidden files of the disturbed project."""
    expected, found = content(calm / "artifacts"), content(disturbed / "artifacts")
    differ = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    hidden = sorted(
        name for name in found if "/." in f"/{name}" and Path(name).name != NETWORK_RECORD
    )
    return {"differ": differ, "hidden": hidden}


def refusal(folder: Path, stage: str) -> dict:
    """The message of a stage whose output this process writes."""
    name, *arguments = stage.split()
    script = runpy.run_path(str(ROOT / "stages" / f"{name}.py"))
    output = script.get("OUTPUT", "artifacts/demo/{}").format(*arguments)
    with locked(folder / output):
        status, _ = run(folder, stage)
    assert status == 1, stage
    message = folder.with_suffix(".log").read_text().splitlines()[-1]
    return {"output": output, "owner": os.getpid(), "refused": message.removeprefix("SystemExit: ")}


def _status(folder: Path, stage: str, kill_at: int) -> int:
    return run(folder, stage, kill_at)[0]


def _delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def cpu() -> int:
    """Seconds of CPU so far."""
    return round(sum(os.times()[:4]))


def kill_stages(calm: Path, disturbed: Path, kills: int, drawn: random.Random) -> Iterator[dict]:
    """Runs each stage undisturbed in one project, and with kills in the other one."""
    each = [kills // len(STAGES) + (number < kills % len(STAGES)) for number in range(len(STAGES))]
    drawn.shuffle(each)
    for place in (calm, disturbed):
        assert run(place, "code_digests")[0] == 0
    for stage, number in zip(STAGES, each, strict=True):
        refused = refusal(disturbed, stage)
        status, changes = run(calm, stage)
        assert status == 0, stage
        attempt, output = partial(_status, disturbed, stage), disturbed / refused["output"]
        places = [killed(attempt, partial(_delete, output), changes, drawn) for _ in range(number)]
        assert run(disturbed, stage)[0] == 0, stage
        if stage == "cost":
            shutil.copy(
                calm / "artifacts/times.json", disturbed / "artifacts"
            )  # the report shows them
        done = {"stage": stage, "changes": changes, "kills": places, "cpu": cpu()}
        if stage not in SLOW:
            done["rewritten"] = rewritten(calm, partial(run, calm, stage))
        yield {**done, **refused, **compared(calm, disturbed)}


def prepare_repro(folder: Path, stages: Path) -> Path:
    """A project with two stages `ingest` under DVC, and the demo's datasets."""
    folder.mkdir()
    shutil.copytree(stages / "artifacts/demo", folder / "artifacts/demo")
    for name in ("params.yaml", "artifacts/code.json"):
        shutil.copy(stages / name, folder / name)
    (folder / "stages").symlink_to(ROOT / "stages")
    made = params()
    return under_dvc(folder, {"ingest": {name: made["datasets"][name] for name in ("voc", "coco")}})


def under_dvc(folder: Path, stages: dict[str, object]) -> Path:
    """A project under DVC with some stages of the pipeline; its processes count changes."""
    from dvc.repo import Repo

    pipeline = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    pipeline["stages"] = {
        name: pipeline["stages"][name] | {"foreach": each} for name, each in stages.items()
    }
    (folder / "dvc.yaml").unlink(missing_ok=True)
    (folder / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    with Repo.init(folder, no_scm=True) as repo, repo.config.edit() as config:
        config["core"]["analytics"] = False
    (folder / "hook").mkdir()
    (folder / "hook/sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import kills\nsys.path.pop(0)\nkills.count_together()\n"
    )
    return folder


def count_together() -> None:
    """Counts the changes of this process and its parents, and kills all of them at a given one."""
    folder, kill_at = Path(os.environ["KILLS_FOLDER"]), int(os.environ["KILLS_AT"])
    counter = os.open(folder.with_suffix(".count"), os.O_WRONLY | os.O_APPEND)

    def changed() -> None:
        os.write(counter, b"-")
        if os.fstat(counter).st_size == kill_at:
            os.killpg(0, signal.SIGKILL)

    count_changes(folder, changed)


def repro(folder: Path, kill_at: int = 0, command: tuple[str, ...] = ()) -> tuple[int, int]:
    """Exit status of `dvc repro`, or of a command of farther, and the number of changes made."""
    counter = folder.with_suffix(".count")
    counter.write_bytes(b"")

    def act() -> None:
        os.setsid()
        os.chdir(folder)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        python = os.pathsep.join([str(folder / "hook"), str(ROOT / "lib")])
        os.environ.update(
            PATH=path, PYTHONPATH=python, KILLS_FOLDER=str(folder), KILLS_AT=str(kill_at)
        )
        with folder.with_suffix(".log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        count_together()
        main = __import__("farther.command" if command else "dvc.cli", fromlist=["main"]).main
        os._exit(main(list(command) or ["repro"]))

    return forked(act), counter.stat().st_size


def kill_repro(
    calm: Path,
    disturbed: Path,
    kills: int,
    drawn: random.Random,
    *,
    command: tuple[str, ...] = (),
    made: tuple[str, ...] = ("artifacts/tables",),
) -> dict:
    """Runs `dvc repro`, or a command of farther, in one project and with kills in another one.

    Args:
        calm, disturbed: The projects.
        kills: Number of kills.
        drawn: Chooses their places.
        command: See `repro`.
        made: What is deleted to begin anew.
    """
    status, changes = repro(calm, command=command)
    assert status == 0
    deleted = []

    def attempt(kill_at: int = 0) -> int:
        for finding in dvc_locks(disturbed):  # as `farther doctor` says
            assert finding.state == "wrong"
            file = Path(finding.more["remedy"].removeprefix("rm "))
            deleted.append(file.name)
            file.unlink()
        return repro(disturbed, kill_at, command)[0]

    def reset() -> None:
        for name in (*made, "dvc.lock", ".dvc/cache"):
            _delete(disturbed / name)

    places = [killed(attempt, reset, changes, drawn) for _ in range(kills)]
    assert attempt() == 0
    found = compared(calm, disturbed)
    locks = [yaml.safe_load((folder / "dvc.lock").read_text()) for folder in (calm, disturbed)]
    if (
        locks[0] != locks[1]
    ):  # as runs that are evaluated side by side may be written in another order
        found["differ"].append("dvc.lock")
    name = " ".join(command) or "dvc repro"
    return {
        "stage": name,
        "changes": changes,
        "kills": places,
        "cpu": cpu(),
        "deleted": deleted,
        **found,
    }


def main(folder: Path, kills: int, seed: int) -> None:
    """Kills stages, and `dvc repro` for one kill in seven."""
    drawn = random.Random(seed)
    calm, disturbed = (prepare(folder / name) for name in ("calm", "disturbed"))
    for done in kill_stages(calm, disturbed, kills - kills // 7, drawn):
        print(json.dumps(done), flush=True)
    calm, disturbed = (
        prepare_repro(folder / f"repro-{name}", calm) for name in ("calm", "disturbed")
    )
    print(json.dumps(kill_repro(calm, disturbed, kills // 7, drawn)))


if __name__ == "__main__":
    for package in PACKAGES:
        __import__(package)
    import torch

    torch.set_num_threads(1)
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]))
