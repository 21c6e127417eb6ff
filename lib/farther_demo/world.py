"""Writes a dataset of the demo world to a folder."""

from __future__ import annotations

import csv
import multiprocessing
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from multiprocessing.pool import Pool
from pathlib import Path

from tqdm import tqdm

from farther.curation.sources import smallest_by_digest
from farther.errors import FartherError, ParameterError
from farther.processes import count_cores
from farther.tables.writing import write_aside
from farther_demo.drawings import catalogue, keep_rendered, render
from farther_demo.placing import render_size
from farther_demo.recipes import CROPS, ID_DATASETS, OOD_SOURCES, UNKNOWN, DemoWorld
from farther_demo.scene import Record, record, scene
from farther_demo.writers import FORMATS, Writer

NAMES = (*ID_DATASETS, *OOD_SOURCES, CROPS)

#: Number of scenes per process below which a further process does not pay.
PER_PROCESS = 200

#: Number of scenes that a process takes at once.
SCENES_PER_CHUNK = 16

#: Number of drawings that a process renders at once.
DRAWINGS_PER_CHUNK = 16


@dataclass(frozen=True)
class Task:
    """Subset and number of a scene."""

    subset: str
    number: int


ATTRIBUTION = (
    "The pictures in this folder are composed from drawings of OpenMoji, the open-source emoji and "
    "icon project\n"
    "(https://openmoji.org), recoloured, cut, turned and combined. OpenMoji's licence is "
    "CC BY-SA 4.0\n"
    "(https://creativecommons.org/licenses/by-sa/4.0/); these pictures are available under the "
    "same licence.\n"
)


def generate_all(folder: Path, world: DemoWorld) -> None:
    """Writes each dataset of the demo world into a folder of its name.

    Several processes compose the scenes where that pays.

    Raises:
        FartherError: such a folder contains something other than a demo dataset.
    """
    scene_count = 0
    for name in NAMES:
        scene_count += sum(len(tasks) for tasks in _tasks_by_subset(name, world).values())
    processes = min(count_cores(), scene_count // PER_PROCESS)
    if processes < 2:
        for name in NAMES:
            generate(name, folder / name, world)
        return
    # Forked processes need not import everything, and have the drawings that this one has.
    forks = sys.platform == "linux"
    context = multiprocessing.get_context("fork" if forks else "spawn")
    if forks:
        with context.Pool(processes) as pool:
            _render_all(world, pool)
    with context.Pool(processes) as pool:
        for name in NAMES:
            generate(name, folder / name, world, pool)


def _render_all(world: DemoWorld, pool: Pool) -> None:
    """Renders the drawings of the scenes once, for processes that are forked later."""
    drawings = []
    for of_concept in catalogue().values():
        drawings += [*of_concept.train, *of_concept.test]
    size = render_size(world.size)
    pngs = pool.imap(partial(render, size=size), drawings, chunksize=DRAWINGS_PER_CHUNK)
    for drawing, png in zip(drawings, pngs, strict=True):
        keep_rendered(png, drawing, size)


def generate(
    name: str, folder: Path, world: DemoWorld | None = None, pool: Pool | None = None
) -> Mapping[str, int]:
    """Writes a dataset of the demo world; returns the number of scenes by subset.

    A scene depends on the seed, the dataset, the subset and its number only, so any process may
    compose it. An interrupted run starts again from the first scene.

    Args:
        name: One of `NAMES`.
        folder: The folder to write.
        world: Sizes and seed.
        pool: Processes that compose scenes; this process by default.

    Raises:
        ParameterError: the dataset is unknown.
        FartherError: `folder` contains something other than a demo dataset.
    """
    if name not in NAMES:
        raise ParameterError(f"unknown demo dataset {name!r}. Known: {', '.join(NAMES)}")
    world = world or DemoWorld()
    if folder.exists() and any(folder.iterdir()) and not (folder / "ATTRIBUTION.txt").is_file():
        raise FartherError(
            f"{folder} contains something other than a demo dataset; choose another folder or "
            "empty it"
        )
    tasks_by_subset = _tasks_by_subset(name, world)
    with write_aside(folder) as aside:
        aside.mkdir()
        _write(name, aside, world, tasks_by_subset, pool)
    return {subset: len(tasks) for subset, tasks in tasks_by_subset.items()}


def subset_counts(name: str, world: DemoWorld) -> dict[str, int]:
    """Number of scenes in each subset of a dataset."""
    if name == "coco":
        return {"val": world.coco}
    if name == "openimages":
        return {"validation": world.openimages}
    counts = asdict(getattr(world, name))
    if name == CROPS:
        counts[UNKNOWN] = world.drawings_unknown
    return counts


def _tasks_by_subset(name: str, world: DemoWorld) -> dict[str, list[Task]]:
    """The scenes of each subset that are written."""
    tasks_by_subset = {}
    for subset, count in subset_counts(name, world).items():
        tasks = [Task(subset, index) for index in range(count)]
        limit = getattr(world.most, subset, None)
        if limit is not None and name not in OOD_SOURCES:
            tasks = _selected(name, tasks, limit)
        tasks_by_subset[subset] = tasks
    return tasks_by_subset


def _selected(name: str, tasks: Sequence[Task], limit: int) -> list[Task]:
    """The scenes that a benchmark's `most` would select, at most `limit`."""
    dataset_format = FORMATS[name]
    task_by_id = {}
    for task in tasks:
        file = Path(dataset_format.image_file(task.subset, task.number))
        task_by_id[dataset_format.image_id(file)] = task
    return [task_by_id[image_id] for image_id in smallest_by_digest(task_by_id, limit)]


def _write(
    name: str,
    folder: Path,
    world: DemoWorld,
    tasks_by_subset: Mapping[str, list[Task]],
    pool: Pool | None,
) -> None:
    """Writes the images and the annotations of a dataset."""
    (folder / "ATTRIBUTION.txt").write_text(ATTRIBUTION, encoding="utf-8")
    tasks = list(chain(*tasks_by_subset.values()))
    for task in tasks:
        file = folder / FORMATS[name].image_file(task.subset, task.number)
        file.parent.mkdir(parents=True, exist_ok=True)

    writer = FORMATS[name].writer(folder, tuple(tasks_by_subset))
    compose = partial(_compose, name, folder, world)
    records: Iterable[Record]
    if pool is None:
        records = map(compose, tasks)
    else:
        records = pool.imap(compose, tasks, chunksize=SCENES_PER_CHUNK)
    progress = tqdm(
        records, total=len(tasks), desc=f"demo {name}", unit="scene", mininterval=1, disable=None
    )
    try:
        if name in OOD_SOURCES:
            _write_planted(folder / "planted.csv", name, progress, writer)
        else:
            for scene_record in progress:
                writer.add(scene_record)
    finally:
        writer.close()


def _write_planted(path: Path, name: str, records: Iterable[Record], writer: Writer) -> None:
    """Passes records on to the writer, and writes the ID classes that are visible in each scene."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("image_id", "category", "labelled"))
        for scene_record in records:
            writer.add(scene_record)
            image_file = FORMATS[name].image_file(scene_record.subset, scene_record.index)
            image_id = Path(image_file).stem
            for category, is_labelled in scene_record.known:
                rows.writerow((image_id, category, int(is_labelled)))


def _compose(name: str, folder: Path, world: DemoWorld, task: Task) -> Record:
    """Composes a scene, writes its image and returns its annotations."""
    composed = scene(world, name, task.subset, task.number)
    file = folder / FORMATS[name].image_file(task.subset, task.number)
    composed.image.save(file, quality=world.jpeg_quality)
    return record(composed, task.subset, task.number)
