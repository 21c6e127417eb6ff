"""Kills stages with `kill -9` at random changes of files and compares what reruns write.

The reruns must end in the files of an undisturbed run.

Usage: kills.py FOLDER KILLS SEED; prints a line of JSON for each stage.

A process that has imported the packages is forked for each run, which saves seconds each time. The
place of a kill is the number of a change of files (a file opened for writing, renamed, deleted, …),
not a time.
"""

import gc
import hashlib
import importlib
import json
import os
import random
import runpy
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

import yaml

from farther.command.doctor.machine import dvc_locks
from farther.detectors.split_inference import NETWORK_RECORD
from farther.pipeline.stages import STAGES as TABLE
from farther.pipeline.stages import Stage
from farther.tables.writing import locked

ROOT = Path(__file__).parents[2]
sys.path.insert(1, str(ROOT))

from tests.stages import in_process  # noqa: E402
from tests.stages.changes import count_changes, count_together  # noqa: E402
from tests.support.dvc_commands import dvc  # noqa: E402

#: Folder beside the artifacts that the stage `enrich` writes to.
CANDIDATES = "data/candidates"
#: Arguments of the commands of repeated stages, by the section that they are repeated over.
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
    "dvc.cli", "dvc.commands.repro", "dvc.repo", "farther.detectors",
    "farther.detectors.faster_rcnn", "farther.evaluation.detector", "farther.report",
    "farther.similarity", "farther.evaluation.cost", "farther_demo.world", "farther.derived",
    "jinja2", "open_clip", "scipy.stats", "sklearn.covariance", "torch", "torchvision", "tqdm",
)  # fmt: skip


def params() -> dict:
    """The demo's parameters with one small benchmark."""
    settings = yaml.safe_load((ROOT / "params.yaml").read_text())
    settings["demo"].update(
        {
            "voc": {"train": 8, "val": 6, "test": 6},
            "coco": 16,
            "bdd": {"train": 2, "val": 2, "test": 2},
            "drawings": {"train": 2, "val": 2, "test": 2},
            "openimages": 8,
            "drawings_unknown": 2,
        }
    )
    settings["datasets"] = _selected(settings["datasets"], ("voc", "coco", "openimages"))
    settings["enrich"] = {"voc": {"pools": [{"dataset": "openimages", "subset": "validation"}]}}
    settings["derived"] = _derived_params(settings["derived"])
    settings["benchmarks"] = {"voc": _benchmark_params(settings["benchmarks"]["voc"])}

    detector = settings["detectors"]["voc-faster_rcnn"]
    detector.pop("passes", None)
    detector["proposals"] = {"rpn": {}}
    settings["detectors"] = {"voc-faster_rcnn": detector}

    settings["methods"] = _selected(settings["methods"], ("msp", "knn"))
    settings["inference"].update(workers=1, shard_images=4)
    settings["embed"]["images"].update(workers=0, shard_images=8)
    settings["evaluate"]["replicates"] = 100
    settings["cost"] = {"images": 2}
    settings["report"] = {}
    return settings


def _selected(section: dict, names: Collection[str]) -> dict:
    return {name: section[name] for name in names}


def _derived_params(derived: dict) -> dict:
    """One derived dataset of each kind, of at most six images."""
    small = {}
    for kind, dataset in (
        ("paste", "voc_pasted"),
        ("corrupt", "voc_shifted"),
        ("blank", "voc_blank"),
    ):
        settings = derived[kind][dataset]
        settings["images"]["most"] = 6
        small[kind] = {dataset: settings}

    small["corrupt"]["voc_shifted"].update(
        severities=[1], corruptions=["gaussian_noise", "contrast"]
    )
    return small


def _benchmark_params(benchmark: dict) -> dict:
    """A benchmark with its OOD splits from COCO only."""
    del benchmark["shifted"]
    splits = benchmark["splits"]
    benchmark["splits"] = {}
    for name, split in splits.items():
        if split["dataset"] == "coco":
            benchmark["splits"][name] = split
    return benchmark


def prepare(folder: Path) -> Path:
    """Creates a project with the stages and no artifacts."""
    (folder / "data").mkdir(parents=True)
    for name in ("stages", "extensions"):
        (folder / name).symlink_to(ROOT / name)
    for source in (ROOT / "data").iterdir():
        if source.name == "candidates":  # stage `enrich` writes there
            shutil.copytree(source, folder / CANDIDATES)
        else:
            (folder / "data" / source.name).symlink_to(source)
    (folder / "params.yaml").write_text(yaml.safe_dump(params(), sort_keys=False))
    return folder


# --------------------------------------------------------------------------------------------------
# forks that count their changes


def _has_processes(group: int) -> bool:
    """Whether a process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def forked(act: Callable[[], None]) -> int:
    """Runs a function in a forked process; returns its exit status, negative for a signal.

    Returns when the processes of its group have ended, too, if it leads one: a killed process is
    there for a moment, and DVC takes its locks for held meanwhile.
    """
    gc.freeze()
    child = os.fork()
    if child:
        _, wait_status = os.waitpid(child, 0)
        while _has_processes(child):
            time.sleep(0.01)
        return os.waitstatus_to_exitcode(wait_status)

    status = 1
    try:
        act()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def counted(folder: Path, act: Callable[[], None], kill_at: int | None = None) -> tuple[int, int]:
    """Runs a function in a forked process; returns its exit status and the changes it made.

    Args:
        folder: The folder that the function runs in, whose changes are counted.
        act: The function.
        kill_at: Number of the change before which the process is killed.
    """
    reading, writing = os.pipe()

    def count_and_act() -> None:
        os.chdir(folder)
        os.sched_getaffinity = _first_core
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
        changes = int(pipe.read() or 0)
    return status, changes


def _first_core(_pid: int) -> set[int]:
    """Replaces `os.sched_getaffinity`: one core, so that the order of the changes is the same."""
    return {0}


def run(folder: Path, stage: str, kill_at: int | None = None) -> tuple[int, int]:
    """Runs a stage; returns its exit status, and the number of changes it made."""

    def act() -> None:
        name, *arguments = stage.split()
        script = str(ROOT / "stages" / f"{name}.py")
        sys.argv = [script, *arguments]
        log = folder.with_suffix(".log").open("a", buffering=1)
        sys.stdout = log
        sys.stderr = log
        runpy.run_path(script, run_name="__main__")

    return counted(folder, act, kill_at)


# --------------------------------------------------------------------------------------------------
# comparisons of artifacts


def content(artifacts: Path) -> dict[str, str]:
    """SHA-256 of each file but the one with measured times, hidden files included."""
    digests = {}
    for folder, _, names in os.walk(artifacts):
        for name in names:
            file = Path(folder, name)
            if file != artifacts / "times.json":
                digest = hashlib.sha256(file.read_bytes()).hexdigest()
                digests[str(file.relative_to(artifacts))] = digest
    return digests


def identities(artifacts: Path) -> dict[str, tuple[int, int]]:
    """Inode and modification time of each file but the one with measured times.

    A file that is written anew has others, even where its content is the same.
    """
    identity_by_name = {}
    for file in artifacts.rglob("*"):
        if file.is_file() and file != artifacts / "times.json":
            status = file.stat()
            name = str(file.relative_to(artifacts))
            identity_by_name[name] = (status.st_ino, status.st_mtime_ns)
    return identity_by_name


def differences(first: dict, second: dict) -> list[str]:
    """Names that are missing in one of two dicts, or have another value there."""
    names = first.keys() | second.keys()
    return sorted(name for name in names if first.get(name) != second.get(name))


def rewritten(folder: Path, rerun: Callable[[], object]) -> list[str]:
    """Artifacts of a project that a rerun writes or deletes although nothing changed."""
    before = identities(folder / "artifacts")
    rerun()
    after = identities(folder / "artifacts")
    return differences(before, after)


def compared(calm: Path, disturbed: Path) -> dict[str, list[str]]:
    """Files that differ between the projects, and hidden files of the disturbed one.

    The record of a network is not counted among the hidden files.
    """
    calm_content = content(calm / "artifacts")
    disturbed_content = content(disturbed / "artifacts")
    differ = differences(calm_content, disturbed_content)
    for name in differences(content(calm / CANDIDATES), content(disturbed / CANDIDATES)):
        differ.append(f"{CANDIDATES}/{name}")

    hidden = []
    for name in disturbed_content:
        path = Path(name)
        is_hidden = any(part.startswith(".") for part in path.parts)
        if is_hidden and path.name != NETWORK_RECORD:
            hidden.append(name)
    return {"differ": differ, "hidden": sorted(hidden)}


# --------------------------------------------------------------------------------------------------
# kills of stages


def killed(
    attempt: Callable[[int], int], reset: Callable[[], None], changes: int, rng: random.Random
) -> int:
    """Kills an attempt at a random change, and returns the number of the change.

    An attempt that resumes makes fewer changes and may end before: then all begins anew.
    """
    while True:
        kill_at = rng.randint(1, changes)
        status = attempt(kill_at)
        if status == -signal.SIGKILL:
            return kill_at
        assert status == 0, status
        reset()


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
    status, _ = run(folder, stage, kill_at)
    return status


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def cpu() -> int:
    """Seconds of CPU so far."""
    return round(sum(os.times()[:4]))


def copy_artifacts(calm: Path, disturbed: Path) -> None:
    """Copies the files of the undisturbed project that the other one lacks, or has otherwise."""
    for name in ("artifacts", CANDIDATES):
        calm_content = content(calm / name)
        for file in differences(calm_content, content(disturbed / name)):
            if file in calm_content:
                target = disturbed / name / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(calm / name / file, target)


def kill_stages(calm: Path, disturbed: Path, kills: int, rng: random.Random) -> Iterator[dict]:
    """Runs each stage undisturbed in one project, and with kills in another.

    The other gets copies of what stages that are not killed write; with FARTHER_TEST_ALL it runs
    these, too.
    """
    kills_per_stage, remainder = divmod(kills, len(STAGES))
    counts = [kills_per_stage + (number < remainder) for number in range(len(STAGES))]
    rng.shuffle(counts)
    # Run in this process, which then knows the code: so do those that are forked from it.
    in_process.run(calm, "code_digests")
    shutil.copytree(calm / "artifacts", disturbed / "artifacts")

    for stage, count in zip(STAGES, counts, strict=True):
        refused = refusal(disturbed, stage)
        status, changes = run(calm, stage)
        assert status == 0, stage

        attempt = partial(_status, disturbed, stage)
        reset = partial(_delete, disturbed / refused["output"])
        places = [killed(attempt, reset, changes, rng) for _ in range(count)]
        if places or os.environ.get("FARTHER_TEST_ALL"):
            status, _ = run(disturbed, stage)
            assert status == 0, stage
        else:
            copy_artifacts(calm, disturbed)

        if stage == "choose":
            # The report shows the measured times.
            shutil.copy(calm / "artifacts/times.json", disturbed / "artifacts")
        outcome = {"stage": stage, "changes": changes, "kills": places, "cpu": cpu()}
        if stage not in SLOW:
            outcome["rewritten"] = rewritten(calm, partial(run, calm, stage))
        yield {**outcome, **refused, **compared(calm, disturbed)}


# --------------------------------------------------------------------------------------------------
# kills of DVC and of farther's commands


def prepare_repro(folder: Path, stages: Path) -> Path:
    """Creates a project with two stages `ingest` under DVC, and the demo's datasets."""
    folder.mkdir()
    shutil.copytree(stages / "artifacts/demo", folder / "artifacts/demo")
    for name in ("params.yaml", "artifacts/code.json"):
        shutil.copy(stages / name, folder / name)
    (folder / "stages").symlink_to(ROOT / "stages")
    datasets = _selected(params()["datasets"], ("voc", "coco"))
    under_dvc(folder, {"ingest": datasets})
    count_in_processes(folder)
    return folder


def under_dvc(folder: Path, stages: dict[str, object]) -> Path:
    """Puts stages of the pipeline under DVC.

    Args:
        folder: The project.
        stages: The names or the entries that each stage is repeated over, if it is.
    """
    pipeline = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    selected = {}
    for name, entries in stages.items():
        selected[name] = pipeline["stages"][name]
        if "foreach" in selected[name]:
            selected[name]["foreach"] = entries
    pipeline["stages"] = selected
    (folder / "dvc.yaml").unlink(missing_ok=True)
    (folder / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    dvc("init", "--quiet", "--no-scm", folder=folder)
    dvc("config", "core.analytics", "false", folder=folder)
    return folder


def count_in_processes(folder: Path) -> None:
    """Has each process of Python that runs in a project count its changes."""
    (folder / "hook").mkdir()
    (folder / "hook/sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import changes\nsys.path.pop(0)\nchanges.count_together()\n"
    )


def printed(folder: Path) -> str:
    """The end of what `repro` printed in a project."""
    return folder.with_suffix(".log").read_text()[-4000:]


def repro(folder: Path, kill_at: int = 0, command: tuple[str, ...] = ()) -> tuple[int, int]:
    """Runs `dvc repro`, or a command of farther.

    Returns:
        Its exit status, and the number of changes that it and its stages made.
    """
    counter = folder.with_suffix(".count")
    counter.write_bytes(b"")

    def act() -> None:
        os.setsid()
        os.chdir(folder)
        os.environ.update(
            PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            PYTHONPATH=os.pathsep.join([str(folder / "hook"), str(ROOT / "lib")]),
            KILLS_FOLDER=str(folder),
            KILLS_AT=str(kill_at),
        )
        with folder.with_suffix(".log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        count_together()
        if command:
            main = importlib.import_module("farther.command").main
            os._exit(main(list(command)))
        sys.argv = ["dvc", "repro"]
        try:
            runpy.run_module("dvc", run_name="__main__")
        except SystemExit as end:
            os._exit(int(end.code or 0))

    status = forked(act)
    return status, counter.stat().st_size


def kill_repro(
    calm: Path,
    disturbed: Path,
    kills: int,
    rng: random.Random,
    *,
    command: tuple[str, ...] = (),
    outputs: tuple[str, ...] = ("artifacts/tables",),
) -> dict:
    """Runs `dvc repro`, or a command of farther, undisturbed in one project, with kills in another.

    Args:
        calm, disturbed: The projects.
        kills: Number of kills.
        rng: Draws their places.
        command: See `repro`.
        outputs: Files and folders that are deleted to begin anew.
    """
    status, changes = repro(calm, command=command)
    assert status == 0, printed(calm)
    deleted_locks = []

    def attempt(kill_at: int = 0) -> int:
        # Locks that a killed DVC left are deleted as `farther doctor` advises.
        for finding in dvc_locks(disturbed):
            assert finding.state == "wrong"
            lock = Path(finding.more["remedy"].removeprefix("rm "))
            deleted_locks.append(lock.name)
            lock.unlink()
        status, _ = repro(disturbed, kill_at, command)
        return status

    def reset() -> None:
        for name in (*outputs, "dvc.lock", ".dvc/cache"):
            _delete(disturbed / name)

    places = [killed(attempt, reset, changes, rng) for _ in range(kills)]
    status = attempt()
    assert status == 0, (places, printed(disturbed))

    comparison = compared(calm, disturbed)
    # Compared as mappings: stages that run at the same time may be written in another order.
    calm_lock = yaml.safe_load((calm / "dvc.lock").read_text())
    disturbed_lock = yaml.safe_load((disturbed / "dvc.lock").read_text())
    if calm_lock != disturbed_lock:
        comparison["differ"].append("dvc.lock")
    return {
        "stage": " ".join(command) or "dvc repro",
        "changes": changes,
        "kills": places,
        "cpu": cpu(),
        "deleted": deleted_locks,
        **comparison,
    }


def main(folder: Path, kills: int, seed: int) -> None:
    """Kills stages, and `dvc repro` for one kill in seven."""
    rng = random.Random(seed)
    kills_of_repro = kills // 7

    calm = prepare(folder / "calm")
    disturbed = prepare(folder / "disturbed")
    for outcome in kill_stages(calm, disturbed, kills - kills_of_repro, rng):
        print(json.dumps(outcome), flush=True)

    calm_repro = prepare_repro(folder / "repro-calm", calm)
    disturbed_repro = prepare_repro(folder / "repro-disturbed", calm)
    print(json.dumps(kill_repro(calm_repro, disturbed_repro, kills_of_repro, rng)))


if __name__ == "__main__":
    for package in PACKAGES:
        importlib.import_module(package)
    import torch

    torch.set_num_threads(1)
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]))
