"""The machine, for `farther doctor`: disk, GPU, git and DVC; and how many images there are to process."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from farther.command.committed import uncommitted
from farther.command.output import size
from farther.command.project import Project
from farther.errors import DataError


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    Args:
        topic: "parameters", "packages", "datasets", "checkpoints", "disk", "GPU" or "repository".
        name: What was checked.
        state: "ok"; "missing" or "wrong": something will not run; "note": worth knowing.
        text: The result in a few words.
        more: Where it belongs, where it comes from, and the like.
        bytes: Approximate size of what is missing; 0 where that is unknown or nothing is missing.
    """

    topic: str
    name: str
    state: Literal["ok", "missing", "wrong", "note"]
    text: str
    more: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0


#: Detections per image assumed where none were counted: those at or above 0.05 in street scenes.
DETECTIONS = 20

#: Bytes of a stored region by adapter: logits of 20 classes, features, latent, box and ids; float32, compressed.
ROW = {"faster_rcnn": 5000, "mask_rcnn": 5000, "detr": 2100, "yolo": 1200, "retinanet": 1200, "fcos": 1200}
ROW["open_vocabulary"] = 2500
USUAL_ROW = 5000

#: Bytes of an image's only region, by adapter: a classifier's 1000 logits, features and latent.
IMAGE = {"classifier": 12000, "transformers_classifier": 10000, "open_clip_classifier": 9000}

#: GPU memory in GiB by adapter, for the network and for each image of a batch: usual input sizes, float32. Rough.
MEMORY = {
    "faster_rcnn": (0.6, 0.7),
    "mask_rcnn": (0.6, 0.7),
    "retinanet": (0.6, 0.6),
    "fcos": (0.6, 0.6),
    "detr": (0.6, 0.2),
    "yolo": (0.3, 0.1),
    "open_vocabulary": (1.2, 0.8),
    "classifier": (0.4, 0.1),
    "transformers_classifier": (0.6, 0.1),
    "open_clip_classifier": (0.8, 0.1),
}
GIB = 2**30

#: Where the demo's datasets are written.
DRAWN = "artifacts/demo"


def split_images(project: Project, benchmark: str) -> dict[str, int | None]:
    """Images of each split: counted where `curate` ran, else as many as its subset has; None if unknown."""
    from farther.tables.parquet import count_rows

    checked = project.benchmark(benchmark)
    sources = checked.id_sources
    sources |= {name: (split.dataset, split.subset) for name, split in checked.splits.items()}
    counts: dict[str, int | None] = {}
    for name, (dataset, subset) in sources.items():
        table = project.artifacts / "splits" / benchmark / name / "images.parquet"
        known = subset_images(project, dataset, subset)
        most = checked.most.get(name)
        if table.is_file() and made_with(project, f"curate@{benchmark}", f"benchmarks.{benchmark}"):
            counts[name] = count_rows(table)
        else:
            counts[name] = known if most is None else min(most, most if known is None else known)
    return counts


def subset_images(project: Project, dataset: str, subset: str) -> int | None:
    """Images of a subset: counted where `ingest` ran, else its size in the demo or as published; None if unknown."""
    from farther.datasets.sizes import images_of
    from farther.tables.parquet import count_rows

    params = project.section("datasets").get(dataset) or {}
    table = project.artifacts / "tables" / dataset / subset / "images.parquet"
    if table.is_file() and made_with(project, f"ingest@{dataset}", f"datasets.{dataset}"):
        return count_rows(table)
    if not str(params.get("root", "")).startswith(DRAWN):
        return images_of(params, subset)
    sizes = project.section("demo").get(dataset)
    return sizes.get(subset) if isinstance(sizes, dict) else sizes


def are_there(project: Project, run: str, benchmark: str) -> bool:
    """Whether the regions of a run are there, and of the detector and splits that the parameters name."""
    return (
        (project.artifacts / "regions" / run).is_dir()
        and made_with(project, f"infer@{run}", f"detectors.{run}")
        and made_with(project, f"curate@{benchmark}", f"benchmarks.{benchmark}")
    )


def disk(project: Project, data: Iterable[Finding]) -> list[Finding]:
    """Room for what is missing of the datasets, and for what the stages write."""
    need, unknown = 0, ""
    for run, entry in project.section("detectors").items():
        benchmark = str(entry.get("benchmark"))
        if benchmark in project.section("benchmarks") and not are_there(project, run, benchmark):
            counts = split_images(project, benchmark).values()
            if None in counts:
                unknown = " and more, as the size of a split is unknown"
            else:
                adapter = str(entry.get("adapter"))
                need += sum(count or 0 for count in counts) * IMAGE.get(
                    adapter, DETECTIONS * ROW.get(adapter, USUAL_ROW)
                )
    free = shutil.disk_usage(_existing(project.artifacts)).free
    text, more = f"{size(free)} free; the regions of all runs are there", {}
    if need or unknown:
        text = f"{size(free)} free, about {size(need)} needed for regions{unknown}"
        more = {"how": f"{DETECTIONS} detections per image assumed; `farther doctor --estimate` measures"}
    room = Finding("disk", str(project.artifacts), "ok" if free > need else "missing", text, more)
    return [*_room_for_data(data), room]


def _room_for_data(data: Iterable[Finding]) -> Iterator[Finding]:
    need: dict[Path, int] = {}
    for finding in data:
        if finding.bytes:
            place = _existing(Path(finding.more["belongs at"].partition(" or ")[0]))
            need[place] = need.get(place, 0) + finding.bytes
    for place, count in need.items():
        free = shutil.disk_usage(place).free
        text = f"{size(free)} free, about {size(count)} of datasets missing"
        yield Finding("disk", str(place), "ok" if free > count else "missing", text)


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def gpu(project: Project) -> list[Finding]:
    """The GPUs, and whether their memory is enough for each adapter that is used."""
    try:
        import torch
    except ModuleNotFoundError:
        return [Finding("GPU", "none", "note", "PyTorch is not installed, so none can be used")]
    if not torch.cuda.is_available():
        text = "PyTorch finds none: the CPU is used, 10 to 100 times slower"
        return [Finding("GPU", "none", "note", text)]
    has = torch.cuda.get_device_properties(0).total_memory / GIB
    findings = [Finding("GPU", torch.cuda.get_device_name(0), "ok", f"{has:.0f} GiB")]
    batch = int(project.section("inference").get("batch_size", 16))
    for adapter in sorted({str(entry.get("adapter")) for entry in project.section("detectors").values()}):
        if adapter in MEMORY:
            network, image = MEMORY[adapter]
            need = network + image * batch
            text = f"about {need:.1f} GiB for a batch of {batch} (rough; --estimate measures), {has:.0f} GiB there"
            remedy = {} if need < has else {"remedy": "a smaller inference: batch_size"}
            findings.append(Finding("GPU", adapter, "missing" if remedy else "ok", text, remedy))
    return findings


def repository(project: Project) -> list[Finding]:
    """Whether git and DVC know the project, and what they have not recorded."""
    changed = uncommitted(project.folder)
    if changed is None:
        return [Finding("repository", "git", "note", "no repository here: DVC needs one (git init; dvc init)")]
    state = f"{len(changed)} changes not committed" if changed else "all committed"
    findings = [Finding("repository", "git", "note" if changed else "ok", state)]
    if not (project.folder / ".dvc").is_dir():
        return [*findings, Finding("repository", "DVC", "missing", "not initialised", {"remedy": "dvc init"})]
    lock = project.folder / "dvc.lock"
    text = "dvc.lock records an earlier run" if lock.is_file() else "nothing has run yet"
    return [*findings, Finding("repository", "DVC", "ok", text), *dvc_locks(project.folder)]


def dvc_locks(folder: Path) -> list[Finding]:
    """Files that a killed DVC or a full disk left damaged: until they are deleted, every command of DVC fails."""
    files = {folder / ".dvc" / "tmp" / name: whole for name, whole in (("rwlock", _is_rwlock), ("lock", _is_lock))}
    files[folder / "dvc.lock"] = _is_dvc_lock
    if any(_is_held(file) for file in (*files, folder / ".dvc/tmp/rwlock.lock")):
        return [Finding("repository", "DVC", "note", "another command of DVC is running")]
    return [
        Finding(
            "repository",
            "DVC",
            "wrong",
            f"{file} is damaged, as a killed DVC or a full disk leaves it",
            {"remedy": _remedy(file)},
        )
        for file, is_whole in files.items()
        if os.path.lexists(file) and not is_whole(file)
    ]


def _is_rwlock(file: Path) -> bool:
    from farther.tables.documents import read_json

    try:
        content = read_json(file)
    except DataError:
        return False
    return isinstance(content, dict) and all(isinstance(content.get(kind, {}), dict) for kind in ("read", "write"))


def _is_lock(file: Path) -> bool:
    """Whether a file holds the number of a process, or, with `core.hardlink_lock`, the name of a claim."""
    from farther.tables.files import read_text

    try:
        return re.fullmatch(r"\s*\d+\s*|.*\|.*\|.*", read_text(file), re.DOTALL) is not None
    except DataError:
        return False


def _is_dvc_lock(file: Path) -> bool:
    """Whether a file is what DVC writes as `dvc.lock`, which it does not replace at once."""
    from farther.tables.documents import read_yaml

    try:
        content = read_yaml(file)
    except DataError:
        return False
    return isinstance(content, dict) and "schema" in content and isinstance(content.get("stages", {}), dict)


def _remedy(file: Path) -> str:
    """What to run: `dvc.lock` is usually committed; without it DVC finds the outputs of earlier runs in its cache."""
    committed = file.name == "dvc.lock" and (file.parent / ".git").exists()
    return f"git checkout -- {file}" if committed else f"rm {file}"


def _is_held(file: Path) -> bool:
    """Whether another process has locked a file."""
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def made_with(project: Project, stage: str, *keys: str) -> bool:
    """Whether a stage last ran with these parameters as they are now.

    Args:
        project: Its `dvc.lock` is read; without one, stages were run by hand and their outputs count as current.
        stage: As DVC calls it: `curate@voc`.
        keys: Sections of the parameters, or entries of sections (`benchmarks.voc`).
    """
    lock = project.folder / "dvc.lock"
    if not lock.is_file():
        return True
    used = _recorded(lock.resolve(), lock.stat().st_mtime_ns).get(stage) or {}
    for key in keys:
        section, _, entry = key.partition(".")
        now = project.params.get(section)
        now = (now.get(entry) if isinstance(now, dict) else None) if entry else now
        if key not in used or used[key] != now:
            return False
    return True


@cache
def _recorded(lock: Path, changed: int) -> dict[str, Any]:
    """The parameters of each stage in a dvc.lock, read once for as long as it stays as it is."""
    from farther.tables.documents import read_yaml

    held = read_yaml(lock)
    stages = (held.get("stages") if isinstance(held, dict) else None) or {}
    return {name: (stage.get("params") or {}).get("params.yaml") for name, stage in stages.items()}
