"""Full disks, read-only folders and killed processes.

    python benchmarks/resilience.py --times 4 --seed 3      as root
    python benchmarks/resilience.py --times 1 --until "ingest voc" --images 20
        the first stages only, and a small import

A small project runs undisturbed. A second one lies on a tmpfs that is filled before each stage, so
that there is space for a random share of what the stage writes. The stage must end with status 1
and a message that names a file and the space; no partial file may lie beside finished outputs; with
enough space the rerun must end in the bytes of the undisturbed project. The same is measured with
the tmpfs mounted read-only, and with `kill -9` of a large import and of the worker processes of a
network. Prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import yaml
from tests.disturbed import processes
from tests.disturbed.disturb import load
from tests.disturbed.valid import pipeline
from tests.disturbed.valid.files import delete

from farther.command.doctor.machine import dvc_locks
from farther.incremental.keyed import EMPTY

#: Stages that are disturbed, and their names in the table.
DISTURBED = {
    "ingest voc": "ingest",
    "infer voc-faster_rcnn": "infer (network)",
    "infer imported": "infer (imported)",
    "fit": "fit",
    "score": "score",
    "evaluate": "evaluate",
    "choose": "choose",
    "report": "report",
}
STAGES = (
    "demo", "ingest voc", "ingest coco", "derive blank voc_blank", "curate",
    "infer voc-faster_rcnn", "infer imported", "fit", "score", "evaluate", "choose", "report",
)  # fmt: skip
#: Detections per image of the import that is killed.
DETECTIONS = 100


def prepare(folder: Path) -> Path:
    """Creates a project with a run of a network, and one whose detections are imported."""
    pipeline.small_demo(folder)
    params = pipeline.params()
    params["detectors"]["imported"] = {
        "adapter": "coco_results",
        "benchmark": "voc",
        "weights": "results.json",
        "params": {"score_tolerance": None},
    }
    write_params(folder, params)
    return folder


def write_params(project: Path, params: dict) -> None:
    """Writes the project's params.yaml."""
    (project / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def write_results(project: Path) -> None:
    """Writes the detections of the network as another program would write them."""
    from farther.tables import Images, Regions

    results = []
    known: tuple[str, ...] = ()
    for folder in sorted((project / "artifacts/regions/voc-faster_rcnn").iterdir()):
        if not folder.is_dir():
            continue
        regions = Regions.read(folder)
        images = Images.read(project / f"artifacts/splits/voc/{folder.name}/images.parquet")
        files = dict(zip(images.image_id, images.file, strict=True))
        known = regions.header.known_classes
        size = regions.box[:, 2:] - regions.box[:, :2]
        for row in range(len(regions)):
            if regions.label[row] >= len(known):
                continue
            results.append(
                {
                    "file_name": files[regions.image_id[row]],
                    "category_id": int(regions.label[row]),
                    "bbox": [*map(float, regions.box[row, :2]), *map(float, size[row])],
                    "score": float(regions.score[row]),
                }
            )
    (project / "results.json").write_text(json.dumps(results))

    params = yaml.safe_load((project / "params.yaml").read_text())
    params["detectors"]["imported"]["params"]["categories"] = dict(enumerate(known))
    write_params(project, params)


# --------------------------------------------------------------------------------------------------
# disks


@contextmanager
def tmpfs(folder: Path, size: int) -> Iterator[Path]:
    """A file system of `size` bytes that is mounted inside the context."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path, free_bytes: int) -> Path:
    """Writes a file that leaves `free_bytes` of a disk."""
    ballast = disk / "ballast"
    size = max(shutil.disk_usage(disk).free - free_bytes, 1)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    return ballast


def half_written(calm: dict[str, str], before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Files beside finished outputs that neither project holds.

    Records list what is finished and grow, and marks of empty folders go, so they may have a
    content in between.

    Args:
        calm: Digest by name of the files of the undisturbed project.
        before, after: Those of the disturbed project, before and after the disturbance.
    """
    names = []
    for name, digest in after.items():
        if digest in (before.get(name), calm.get(name)):
            continue
        if ".work/" in name or name.startswith("records/") or Path(name).name == EMPTY:
            continue
        names.append(name)
    return names


def last_line(folder: Path) -> str:
    """Last line of a project's log that tells what happened, empty if there is none."""
    for line in reversed(folder.with_suffix(".log").read_text().strip().splitlines()):
        if not line.startswith("What was made of the other runs"):
            return line.removeprefix("SystemExit: ")
    return ""


@dataclass(frozen=True)
class Disturbance:
    """The end of a stage on a full or read-only disk.

    Attributes:
        status: Exit status.
        message: Last line of the log.
        is_explained: Whether it ended without an error, or with a message that names the cause.
        half_written: Files with a partial content.
    """

    status: int
    message: str
    is_explained: bool
    half_written: list[str]

    def problems(self) -> list[str]:
        """Partial files, or the message that does not name the cause."""
        if self.is_explained:
            return self.half_written
        return [f"{self.status} {self.message}"]


#: Messages that name the cause, by disturbance.
CAUSES = {
    "full": "no space left on device",
    "read-only": "read-only file system",
}


def disturb(calm: Path, project: Path, stage: str, change: str, rng: random.Random) -> Disturbance:
    """Runs a stage on a full or read-only disk."""
    disk = project / "artifacts"
    before = processes.content(disk)
    if change == "full":
        needed = sum(file.stat().st_size for file in new_files(calm, before))
        free_bytes = rng.randrange(0, max(needed, 4096)) // 4096 * 4096
        ballast = fill(disk, free_bytes)
    else:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    try:
        status = run(project, partial(pipeline.run_stage, stage))
    finally:
        if change == "full":
            ballast.unlink()
        else:
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)

    message = last_line(project)
    names_cause = status == 1 and re.search(CAUSES[change], message) is not None
    return Disturbance(
        status,
        message,
        is_explained=status == 0 or names_cause,
        half_written=half_written(
            processes.content(calm / "artifacts"), before, processes.content(disk)
        ),
    )


def new_files(calm: Path, before: dict[str, str]) -> list[Path]:
    """Files of the undisturbed project that the other one does not have yet."""
    artifacts = calm / "artifacts"
    return [artifacts / name for name in processes.content(artifacts) if name not in before]


def run(project: Path, act: Callable[[], None]) -> int:
    """Runs a function in a project, in a process with a log beside it; returns its status."""

    def act_with_log() -> None:
        os.chdir(project)
        log = project.with_suffix(".log").open("a", buffering=1)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        sys.stderr = log
        act()

    return processes.forked(act_with_log)


def repro(project: Path) -> int:
    """Runs `dvc repro` in a project; returns its status."""
    return run(project, dvc_repro)


def dvc_repro() -> None:
    """Runs `dvc repro` as a command does."""
    os.setsid()
    folder = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([folder, os.environ["PATH"]])
    try:
        pipeline.dvc_repro()
    except SystemExit as end:
        os._exit(int(end.code or 0))


def prepare_repro(folder: Path, stages: Path) -> Path:
    """Creates a project with two stages `ingest` under DVC, and the datasets of another one."""
    shutil.copytree(stages, folder, symlinks=True)
    for path in (folder / "artifacts").iterdir():
        if path.name not in ("demo", "code.json"):
            delete(path)
    assert run(folder, pipeline.ingest_under_dvc) == 0
    return folder


def different(calm: Path, disturbed: Path) -> list[str]:
    """Files that differ between two projects, or that only one of them has."""
    return processes.differences(
        processes.project_content(calm), processes.project_content(disturbed)
    )


def run_stage(project: Path, stage: str) -> None:
    """Runs a stage that must succeed."""
    status = run(project, partial(pipeline.run_stage, stage))
    assert status == 0, (stage, last_line(project))


def on_disk(folder: Path, stages: Sequence[str], times: int, rng: random.Random) -> Iterator[dict]:
    """Runs each stage undisturbed, and on a disk that is full or read-only."""
    calm = prepare(folder / "calm")
    disturbed = prepare(folder / "disturbed")
    with tmpfs(disturbed / "artifacts", 400 * 2**20):
        for project in (calm, disturbed):
            run_stage(project, "code_digests")

        for stage in stages:
            run_stage(calm, stage)
            if stage == "infer voc-faster_rcnn":
                # In a fork, as Polars must not start threads before another one.
                assert processes.forked(partial(write_results, calm)) == 0

            failures = {"full": 0, "read-only": 0}
            problems: list[str] = []
            if stage in DISTURBED:
                for change in ["full"] * times + ["read-only"]:
                    disturbance = disturb(calm, disturbed, stage, change, rng)
                    failures[change] += disturbance.status != 0
                    problems += disturbance.problems()

            run_stage(disturbed, stage)
            if stage == "infer voc-faster_rcnn":
                for name in ("results.json", "params.yaml"):
                    shutil.copy(calm / name, disturbed / name)
            if stage in DISTURBED:
                yield {
                    "stage": DISTURBED[stage],
                    **failures,
                    "wrong": problems,
                    "after": different(calm, disturbed),
                }


def repro_on_disk(folder: Path, times: int, rng: random.Random) -> dict:
    """Runs `dvc repro` of two stages, with its cache on the same disk."""
    calm = prepare_repro(folder / "repro-calm", folder / "calm")
    status = repro(calm)
    assert status == 0
    needed = 0
    for name in ("artifacts/tables", ".dvc/cache"):
        for file in (calm / name).rglob("*"):
            if file.is_file():
                needed += file.stat().st_size

    failures = {"full": 0, "read-only": 0}
    problems: list[str] = []
    original = prepare_repro(folder / "repro", folder / "calm").rename(folder / "kept")
    with tmpfs(folder / "repro", 200 * 2**20) as disturbed:  # the log is beside it, on another disk
        shutil.copytree(original, disturbed, symlinks=True, dirs_exist_ok=True)
        before = processes.content(disturbed / "artifacts")
        for change in ["full"] * times + ["read-only"]:
            if change == "full":
                ballast = fill(disturbed, rng.randrange(0, needed))
            else:
                cache = disturbed / ".dvc/cache"
                cache.mkdir(exist_ok=True)
                subprocess.run(["mount", "--bind", cache, cache], check=True)
                subprocess.run(["mount", "-o", "remount,bind,ro", cache], check=True)
            delete_locks(disturbed)
            status = repro(disturbed)
            if change == "full":
                ballast.unlink()
            else:
                subprocess.run(["umount", cache], check=True)
            failures[change] += status != 0
            problems += half_written(
                processes.content(calm / "artifacts"),
                before,
                processes.content(disturbed / "artifacts"),
            )

        delete_locks(disturbed)
        status = repro(disturbed)
        assert status == 0, last_line(disturbed)
        after = different(calm, disturbed)
    return {"stage": "dvc repro", **failures, "wrong": problems, "after": after}


def delete_locks(project: Path) -> None:
    """Deletes the locks of a DVC that was stopped, as `farther doctor` advises."""
    for finding in dvc_locks(project):
        Path(finding.more["remedy"].removeprefix("rm ")).unlink()


# --------------------------------------------------------------------------------------------------
# kills


def write_large(folder: Path, count: int, rng: random.Random) -> None:
    """Writes a split of `count` images, and detections in them."""
    from farther.tables import Images

    image_ids = [f"i{n}" for n in range(count)]
    images = Images(
        image_id=image_ids,
        dataset=["d"] * count,
        file=[f"{image_id}.png" for image_id in image_ids],
        digest=["x"] * count,
        width=[640] * count,
        height=[480] * count,
    )
    images.write(folder / "splits/test/images.parquet")

    detections = []
    for _ in range(count * DETECTIONS):
        detections.append(
            {
                "image_id": rng.choice(image_ids),
                "category_id": rng.choice(["cat", "dog"]),
                "bbox": [rng.randrange(500), 3, 40, 50],
                "score": rng.random(),
            }
        )
    (folder / "found.json").write_text(json.dumps(detections))


def import_large(folder: Path, out: str) -> None:
    """Imports the detections of `write_large` into a folder."""
    from farther import detectors
    from farther.detectors.imported import import_splits

    adapter: Any = detectors.create(
        "coco_results", weights=folder / "found.json", classes=("cat", "dog")
    )
    import_splits(
        adapter, folder / "splits", folder / out, folder / f"work-{out}", 100, log=_discard
    )


def _discard(_line: str) -> None:
    """A log that nobody reads."""


def large_import(folder: Path, count: int, times: int, rng: random.Random) -> dict:
    """Kills an import with `kill -9` at random moments; each rerun keeps the complete shards."""
    place = folder / "large"
    assert processes.forked(partial(write_large, place, count, rng)) == 0
    start = time.monotonic()
    assert processes.forked(partial(import_large, place, "calm")) == 0
    seconds = time.monotonic() - start

    killed = 0
    for _ in range(times):
        child = os.fork()
        if not child:
            import_large(place, "disturbed")
            os._exit(0)
        time.sleep(rng.random() * seconds)
        os.kill(child, signal.SIGKILL)
        _, wait_status = os.waitpid(child, 0)
        killed += os.waitstatus_to_exitcode(wait_status) == -signal.SIGKILL
    assert processes.forked(partial(import_large, place, "disturbed")) == 0

    differ = processes.differences(
        processes.content(place / "calm"), processes.content(place / "disturbed")
    )
    left = [str(path.relative_to(place)) for path in place.glob("work-*/**/*") if path.is_file()]
    return {
        "stage": f"import of {count * DETECTIONS:,} detections",
        "killed": killed,
        "wrong": [],
        "after": [*differ, *left],
    }


def killed_workers(folder: Path, times: int, rng: random.Random) -> dict:
    """Kills one of two processes that prepare images for the network with `kill -9`."""
    calm = folder / "calm"
    project = folder / "workers"
    log_file = project.with_suffix(".log")
    shutil.copytree(calm, project, symlinks=True)
    params = yaml.safe_load((project / "params.yaml").read_text())
    params["inference"]["workers"] = 2
    write_params(project, params)
    shutil.rmtree(project / "artifacts/regions")

    killed = 0
    problems: list[str] = []
    command = [sys.executable, str(processes.ROOT / "stages/infer.py"), "voc-faster_rcnn"]
    for _ in range(times):
        with log_file.open("w") as log:
            process = subprocess.Popen(command, cwd=project, stdout=log, stderr=log)
            workers = wait_for_children(process, 2)
            if len(workers) >= 2:
                os.kill(int(rng.choice(workers[-2:])), signal.SIGKILL)
            status = process.wait(120)
        if status != 0:
            killed += 1
            if "Traceback" in log_file.read_text():
                problems.append(last_line(project))
    assert subprocess.run(command, cwd=project, stdout=subprocess.DEVNULL).returncode == 0

    regions = "artifacts/regions/voc-faster_rcnn"
    return {
        "stage": "infer, a worker killed",
        "killed": killed,
        "wrong": problems,
        "after": processes.differences(
            processes.content(calm / regions), processes.content(project / regions)
        ),
    }


def wait_for_children(process: subprocess.Popen, count: int) -> list[str]:
    """Waits until a process has `count` children or ends; returns the ids of its children."""
    children: list[str] = []
    while process.poll() is None and len(children) < count:
        file = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        children = []
        if file.exists():
            children = file.read_text().split()
        time.sleep(0.01)
    return children


def print_row(row: dict) -> None:
    """Prints a row of the table, and its problems to stderr."""
    trials = " | ".join(str(row.get(name, "")) for name in ("full", "read-only", "killed"))
    counts = f"{len(row['wrong'])} | {len(row['after'])}"
    print(f"| {row['stage']} | {trials} | {counts} |", flush=True)
    for line in (*row["wrong"], *row["after"]):
        print(f"    {line[:300]}", file=sys.stderr, flush=True)


def main() -> None:
    """Prints a row of the table for each stage, and its problems to stderr."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument(
        "--until", choices=STAGES, default=STAGES[-1], metavar="STAGE", help="the last one to run"
    )
    parser.add_argument("--images", type=int, default=2_000, help="of the import that is killed")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    load()
    print(
        "| what | full disk | read-only | killed | no message, half-written "
        "| differs after the rerun, left over |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="farther-resilience-") as name:
        folder = Path(name).resolve()
        stages = STAGES[: STAGES.index(options.until) + 1]
        for row in on_disk(folder, stages, options.times, rng):
            print_row(row)
        print_row(repro_on_disk(folder, options.times, rng))
        print_row(large_import(folder, options.images, options.times, rng))
        if "infer voc-faster_rcnn" in stages:
            print_row(killed_workers(folder, options.times, rng))


if __name__ == "__main__":
    main()
