"""Writes a dataset of the demo world to a folder."""

from __future__ import annotations

import csv
import multiprocessing
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path

from tqdm import tqdm

from farther.cores import count_cores
from farther.curation.sources import smallest
from farther.errors import FartherError, ParameterError
from farther.tables.writing import write_aside
from farther_demo.recipes import CROPS, ID_DATASETS, OOD_SOURCES, UNKNOWN, DemoWorld
from farther_demo.scene import Record, record, scene
from farther_demo.writers import FORMATS, Writer

NAMES = (*ID_DATASETS, *OOD_SOURCES, CROPS)

#: Scenes per process below which starting another one does not pay.
PER_PROCESS = 200

Task = tuple[str, int]
"""Subset and number of a scene."""

ATTRIBUTION = """\
The pictures in this folder are composed from drawings of OpenMoji, the open-source emoji and icon project
(https://openmoji.org), recoloured, cut, turned and combined. OpenMoji's licence is CC BY-SA 4.0
(https://creativecommons.org/licenses/by-sa/4.0/); these pictures are available under the same licence.
"""


def generate_all(folder: Path, world: DemoWorld) -> None:
    """Writes each dataset of the demo world into a folder of its name, in several processes where it pays.

    Raises:
        FartherError: such a folder contains something other than a demo dataset.
    """
    scenes = sum(len(tasks) for name in NAMES for tasks in _tasks(name, world).values())
    processes = min(count_cores(), scenes // PER_PROCESS)
    with (
        multiprocessing.get_context("spawn").Pool(processes)
        if processes > 1
        else nullcontext() as pool
    ):
        for name in NAMES:
            generate(name, folder / name, world, pool)


def generate(
    name: str, folder: Path, world: DemoWorld | None = None, pool: Pool | None = None
) -> Mapping[str, int]:
    """Writes a dataset of the demo world; returns the number of scenes by subset.

    Each scene depends only on the seed, the dataset, the subset and its number, so it does not
    matter which process composes it. An interrupted run starts again from the first scene.

    Args:
        name: One of `NAMES`.
        folder: What is written.
        world: Sizes and seed.
        pool: Processes that compose scenes; by default this one does.

    Raises:
        ParameterError: the dataset is unknown.
        FartherError: `folder` contains something other than a demo dataset.
    """
    if name not in NAMES:
        raise ParameterError(f"unknown demo dataset {name!r}. Known: {', '.join(NAMES)}")
    world = world or DemoWorld()
    if folder.exists() and any(folder.iterdir()) and not (folder / "ATTRIBUTION.txt").is_file():
        raise FartherError(
            f"{folder} contains something other than a demo dataset; choose another folder or empty it"
        )
    tasks = _tasks(name, world)
    with write_aside(folder) as aside:
        aside.mkdir()
        _write(name, aside, world, tasks, pool)
    return {subset: len(written) for subset, written in tasks.items()}


def subset_counts(name: str, world: DemoWorld) -> dict[str, int]:
    """Number of scenes in each subset of a dataset."""
    if name in (*ID_DATASETS, CROPS):
        unknown = {UNKNOWN: world.drawings_unknown} if name == CROPS else {}
        return asdict(getattr(world, name)) | unknown
    subset = {"coco": "val", "openimages": "validation"}[name]
    return {subset: getattr(world, name)}


def _tasks(name: str, world: DemoWorld) -> dict[str, list[Task]]:
    return {
        subset: _written(name, world, subset, count)
        for subset, count in subset_counts(name, world).items()
    }


def _written(name: str, world: DemoWorld, subset: str, count: int) -> list[Task]:
    """The scenes of a subset that are written: all, or those that a benchmark's `most` would select."""
    tasks = [(subset, index) for index in range(count)]
    most = getattr(world.most, subset, None) if name in (*ID_DATASETS, CROPS) else None
    if most is None:
        return tasks
    made = FORMATS[name]
    named = {made.image_id(Path(made.image_file(*task))): task for task in tasks}
    return [named[image_id] for image_id in smallest(named, most)]


def _write(
    name: str, folder: Path, world: DemoWorld, subsets: Mapping[str, list[Task]], pool: Pool | None
) -> None:
    (folder / "ATTRIBUTION.txt").write_text(ATTRIBUTION, encoding="utf-8")
    tasks = [task for written in subsets.values() for task in written]
    for images in {(folder / FORMATS[name].image_file(*task)).parent for task in tasks}:
        images.mkdir(parents=True)
    writer = FORMATS[name].writer(folder, tuple(subsets))
    compose = partial(_compose, name, folder, world)
    records = map(compose, tasks) if pool is None else pool.imap(compose, tasks, chunksize=16)
    progress = tqdm(
        records, total=len(tasks), desc=f"demo {name}", unit="scene", mininterval=1, disable=None
    )
    try:
        if name in OOD_SOURCES:
            _write_planted(folder / "planted.csv", name, progress, writer)
        else:
            for one in progress:
                writer.add(one)
    finally:
        writer.close()


def _write_planted(path: Path, name: str, records: Iterable[Record], writer: Writer) -> None:
    """Passes records on to the writer, and writes the ID classes that are really visible in each scene."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("image_id", "category", "labelled"))
        for one in records:
            writer.add(one)
            image = Path(FORMATS[name].image_file(one.subset, one.index)).stem
            rows.writerows((image, category, int(labelled)) for category, labelled in one.known)


def _compose(name: str, folder: Path, world: DemoWorld, task: Task) -> Record:
    """Composes a scene, writes its image and returns its annotations."""
    subset, index = task
    one = scene(world, name, subset, index)
    one.image.save(folder / FORMATS[name].image_file(subset, index), quality=world.jpeg_quality)
    return record(one, subset, index)
