"""Full disks, read-only folders and killed processes.

    python benchmarks/resilience.py --times 4 --seed 3      as root

A small project runs undisturbed. A second one lies on a tmpfs that is filled before each stage, so
that a drawn share of what the stage writes is left. The stage must end with status 1 and a message
that names a file and the space; nothing half-written may lie beside finished outputs; with space
again the rerun must end in the bytes of the undisturbed project. The same with the tmpfs mounted
read-only, and with `kill -9` of a large import and of the worker processes of a network. Prints a
table.
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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/stages"))

import kills
import yaml

#: Stages that are disturbed, and what they are called in the table.
DISTURBED = {
    "ingest voc": "ingest",
    "infer voc-faster_rcnn": "infer (network)",
    "infer imported": "infer (imported)",
    "fit voc-faster_rcnn": "fit",
    "score voc-faster_rcnn": "score",
    "evaluate voc-faster_rcnn": "evaluate",
    "report": "report",
}
STAGES = (
    "demo voc", "demo coco", "ingest voc", "ingest coco", "derive blank voc_blank",
    "ingest voc_blank", "curate voc",
    "infer voc-faster_rcnn", "fit voc-faster_rcnn", "score voc-faster_rcnn",
    "proposals voc-faster_rcnn", "evaluate voc-faster_rcnn", "choose voc-faster_rcnn",
    "infer imported", "fit imported", "score imported", "proposals imported", "evaluate imported",
    "choose imported", "report",
)  # fmt: skip
#: Images and detections of the import that is killed.
IMAGES, DETECTIONS = 2_000, 200_000


def prepare(folder: Path) -> Path:
    """A project with a run of a network, and one whose detections are imported."""
    kills.prepare(folder)
    made = kills.params()
    imported = {
        "adapter": "coco_results",
        "benchmark": "voc",
        "weights": "results.json",
        "params": {"score_tolerance": None},
    }
    made["detectors"]["imported"] = imported
    (folder / "params.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    return folder


def write_results(project: Path) -> None:
    """The detections of the network as another program would write them."""
    from farther.tables import Regions

    rows = []
    for split in sorted((project / "artifacts/regions/voc-faster_rcnn").iterdir()):
        if split.is_dir():
            regions = Regions.read(split)
            known = regions.header.known_classes
            size = regions.box[:, 2:] - regions.box[:, :2]
            for row in range(len(regions)):
                if regions.label[row] < len(known):
                    box = [*map(float, regions.box[row, :2]), *map(float, size[row])]
                    one = {
                        "image_id": str(regions.image_id[row]),
                        "category_id": int(regions.label[row]),
                        "bbox": box,
                    }
                    rows.append(one | {"score": float(regions.score[row])})
    (project / "results.json").write_text(json.dumps(rows))
    made = yaml.safe_load((project / "params.yaml").read_text())
    made["detectors"]["imported"]["params"]["categories"] = dict(enumerate(known))
    (project / "params.yaml").write_text(yaml.safe_dump(made, sort_keys=False))


@contextmanager
def tmpfs(folder: Path, size: int) -> Iterator[Path]:
    """A disk of that many bytes."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path, left: int) -> Path:
    """A file that leaves so many bytes."""
    ballast = disk / "ballast"
    free = shutil.disk_usage(disk).free
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free - left, 1))
    return ballast


def half_written(calm: dict[str, str], before: dict[str, str], found: dict[str, str]) -> list[str]:
    """Files beside finished outputs that neither project holds.

    Lists of what is finished grow, so they may have a content in between.
    """
    names = [name for name in found if found[name] not in (before.get(name), calm.get(name))]
    return [name for name in names if ".work/" not in name and not name.endswith("regions.json")]


def last_line(folder: Path) -> str:
    lines = folder.with_suffix(".log").read_text().strip().splitlines()
    return lines[-1].removeprefix("SystemExit: ") if lines else ""


def disturb(
    calm: Path, project: Path, stage: str, change: str, drawn: random.Random
) -> tuple[bool, list[str], str]:
    """Runs a stage on a full or read-only disk.

    Returns:
        Whether it ended with a message, the half-written files, and the message.
    """
    disk, before = project / "artifacts", kills.content(project / "artifacts")
    needed = sum(file.stat().st_size for file in new_files(calm, before))
    if change == "full":
        ballast = fill(disk, drawn.randrange(0, max(needed, 4096)) // 4096 * 4096)
    else:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    try:
        status = kills.run(project, stage)[0]
    finally:
        if change == "full":
            ballast.unlink()
        else:
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    message = last_line(project)
    wanted = (
        r"the disk is full: more than [\d,]+ bytes are needed"
        if change == "full"
        else "the file system is read-only"
    )
    said = status == 0 or (status == 1 and re.search(wanted, message) is not None)
    return (
        said,
        half_written(
            kills.content(calm / "artifacts"), before, kills.content(project / "artifacts")
        ),
        f"{status} {message}",
    )


def new_files(calm: Path, before: dict[str, str]) -> list[Path]:
    """Files of the undisturbed project that the other one does not have yet."""
    artifacts = calm / "artifacts"
    return [artifacts / name for name in kills.content(artifacts) if name not in before]


def on_disk(folder: Path, times: int, drawn: random.Random) -> Iterator[dict]:
    """Each stage, undisturbed and on a disk that is full or read-only."""
    calm = prepare(folder / "calm")
    disturbed = prepare(folder / "disturbed")
    with tmpfs(disturbed / "artifacts", 400 * 2**20):
        for place in (calm, disturbed):
            assert kills.run(place, "code_digests")[0] == 0
        for stage in STAGES:
            assert kills.run(calm, stage)[0] == 0, (stage, last_line(calm))
            if stage == "infer voc-faster_rcnn":
                assert (
                    kills.forked(partial(write_results, calm)) == 0
                )  # Polars must not start threads before a fork
            ended = {"full": 0, "read-only": 0}
            wrong: list[str] = []
            for change, count in (("full", times), ("read-only", 1)) if stage in DISTURBED else ():
                for _ in range(count):
                    said, half, message = disturb(calm, disturbed, stage, change, drawn)
                    ended[change] += not message.startswith("0 ")
                    wrong += half if said else [message]
            assert kills.run(disturbed, stage)[0] == 0, (stage, last_line(disturbed))
            if stage == "infer voc-faster_rcnn":
                for name in ("results.json", "params.yaml"):
                    shutil.copy(calm / name, disturbed / name)
            if stage in DISTURBED:
                found = kills.compared(calm, disturbed)
                yield {"stage": DISTURBED[stage], **ended, "wrong": wrong, **found}


def repro_on_disk(folder: Path, times: int, drawn: random.Random) -> dict:
    """`dvc repro` of two stages, with its cache on the same disk."""
    calm = kills.prepare_repro(folder / "repro-calm", folder / "calm")
    assert kills.repro(calm)[0] == 0
    needed = sum(
        file.stat().st_size
        for name in ("artifacts/tables", ".dvc/cache")
        for file in (calm / name).rglob("*")
        if file.is_file()
    )
    ended, wrong = {"full": 0, "read-only": 0}, []
    kept = kills.prepare_repro(folder / "repro", folder / "calm").rename(folder / "kept")
    with tmpfs(folder / "repro", 200 * 2**20) as disturbed:  # the log is beside it, on another disk
        shutil.copytree(kept, disturbed, symlinks=True, dirs_exist_ok=True)
        before = kills.content(disturbed / "artifacts")
        for change in ["full"] * times + ["read-only"]:
            if change == "full":
                ballast = fill(disturbed, drawn.randrange(0, needed))
            else:
                cache = disturbed / ".dvc/cache"
                cache.mkdir(exist_ok=True)
                subprocess.run(["mount", "--bind", cache, cache], check=True)
                subprocess.run(["mount", "-o", "remount,bind,ro", cache], check=True)
            for finding in kills.dvc_locks(disturbed):  # as `farther doctor` says
                Path(finding.more["remedy"].removeprefix("rm ")).unlink()
            status = kills.repro(disturbed)[0]
            if change == "full":
                ballast.unlink()
            else:
                subprocess.run(["umount", cache], check=True)
            ended[change] += status != 0
            wrong += half_written(
                kills.content(calm / "artifacts"), before, kills.content(disturbed / "artifacts")
            )
        for finding in kills.dvc_locks(disturbed):
            Path(finding.more["remedy"].removeprefix("rm ")).unlink()
        assert kills.repro(disturbed)[0] == 0, last_line(disturbed)
        found = kills.compared(calm, disturbed)
        if (calm / "dvc.lock").read_bytes() != (disturbed / "dvc.lock").read_bytes():
            found["differ"].append("dvc.lock")
    return {"stage": "dvc repro", **ended, "wrong": wrong, **found}


def write_large(place: Path, drawn: random.Random) -> None:
    """A split of many images, and detections in them."""
    from farther.tables import Images

    ids = [f"i{n}" for n in range(IMAGES)]
    rows = {
        "image_id": ids,
        "dataset": ["d"] * IMAGES,
        "file": [f"{n}.png" for n in ids],
        "digest": ["x"] * IMAGES,
    }
    Images(**rows, width=[640] * IMAGES, height=[480] * IMAGES).write(
        place / "splits/test/images.parquet"
    )
    found = [
        {
            "image_id": drawn.choice(ids),
            "category_id": drawn.choice(["cat", "dog"]),
            "bbox": [drawn.randrange(500), 3, 40, 50],
            "score": drawn.random(),
        }
        for _ in range(DETECTIONS)
    ]
    (place / "found.json").write_text(json.dumps(found))


def large_import(folder: Path, times: int, drawn: random.Random) -> dict:
    """Kills an import with `kill -9` at random moments; each rerun keeps the complete shards."""
    from farther import detectors
    from farther.detectors.imported import import_splits

    place = folder / "large"
    assert kills.forked(partial(write_large, place, drawn)) == 0

    def act(out: str) -> None:
        adapter = detectors.create(
            "coco_results", weights=place / "found.json", classes=("cat", "dog")
        )
        import_splits(
            adapter, place / "splits", place / out, place / f"work-{out}", 100, log=lambda _: None
        )

    start = time.monotonic()
    assert kills.forked(partial(act, "calm")) == 0
    seconds, done = time.monotonic() - start, 0
    for _ in range(times):
        pid = os.fork()
        if not pid:
            act("disturbed")
            os._exit(0)
        time.sleep(drawn.random() * seconds)
        os.kill(pid, signal.SIGKILL)
        done += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert kills.forked(partial(act, "disturbed")) == 0
    calm, disturbed = kills.content(place / "calm"), kills.content(place / "disturbed")
    differ = sorted(name for name in {*calm, *disturbed} if calm.get(name) != disturbed.get(name))
    left = [str(path.relative_to(place)) for path in place.glob("work-*/**/*") if path.is_file()]
    return {
        "stage": f"import of {DETECTIONS:,} detections",
        "killed": done,
        "wrong": [],
        "differ": differ,
        "hidden": left,
    }


def killed_workers(folder: Path, times: int, drawn: random.Random) -> dict:
    """`kill -9` of one of two processes that prepare images for the network."""
    calm = folder / "calm"
    project = folder / "workers"
    shutil.copytree(calm, project, symlinks=True)
    made = yaml.safe_load((project / "params.yaml").read_text())
    made["inference"]["workers"] = 2
    (project / "params.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    shutil.rmtree(project / "artifacts/regions")
    done, wrong = 0, []
    command = [sys.executable, str(kills.ROOT / "stages/infer.py"), "voc-faster_rcnn"]
    for _ in range(times):
        with project.with_suffix(".log").open("w") as log:
            process = subprocess.Popen(command, cwd=project, stdout=log, stderr=log)
            workers: list[str] = []
            while process.poll() is None and len(workers) < 2:
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
                workers = children.read_text().split() if children.exists() else []
                time.sleep(0.01)
            if len(workers) >= 2:
                os.kill(int(drawn.choice(workers[-2:])), signal.SIGKILL)
            status = process.wait(120)
        if status != 0:
            done += 1
            wrong += [last_line(project)] * ("Traceback" in project.with_suffix(".log").read_text())
    assert subprocess.run(command, cwd=project, stdout=subprocess.DEVNULL).returncode == 0
    folders = ("artifacts/regions/voc-faster_rcnn",)
    found = [kills.content(place / folders[0]) for place in (calm, project)]
    differ = sorted(
        name for name in {*found[0], *found[1]} if found[0].get(name) != found[1].get(name)
    )
    return {
        "stage": "infer, a worker killed",
        "killed": done,
        "wrong": wrong,
        "differ": differ,
        "hidden": [],
    }


def main() -> None:
    """Prints a row of the table for each stage, and what went wrong below it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    drawn = random.Random(given.seed)
    for package in kills.PACKAGES:
        __import__(package)
    import torch

    torch.set_num_threads(1)
    print(
        "| what | full disk | read-only | killed | no message, half-written "
        "| differs after the rerun, left over |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="farther-resilience-") as name:
        folder = Path(name).resolve()
        parts = [partial(on_disk, folder, given.times, drawn)]
        parts += [
            lambda part=part: iter([part(folder, given.times, drawn)])
            for part in (repro_on_disk, large_import, killed_workers)
        ]
        for part in parts:
            for row in part():
                bad, after = len(row["wrong"]), len(row["differ"]) + len(row["hidden"])
                tried = " | ".join(
                    str(row.get(name, "")) for name in ("full", "read-only", "killed")
                )
                print(f"| {row['stage']} | {tried} | {bad} | {after} |", flush=True)
                for line in (*row["wrong"], *row["differ"], *row["hidden"]):
                    print(f"    {line[:300]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
