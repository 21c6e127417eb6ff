"""Write a whole demo dataset to a folder."""

from __future__ import annotations

import csv
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from tqdm import tqdm

from farther.errors import FartherError, ParameterError
from farther.tools.demo import bdd_writer, coco_writer, openimages_writer, voc_writer
from farther.tools.demo.parameters import DemoWorld
from farther.tools.demo.recipes import ID_DATASETS, OOD_SOURCES
from farther.tools.demo.records import Record, record
from farther.tools.demo.scene import scene

NAMES = (*ID_DATASETS, *OOD_SOURCES)

Task = tuple[str, int]
"""Subset and number of a scene."""

ATTRIBUTION = """\
The pictures in this folder are composed from drawings of OpenMoji, the open-source emoji and icon project
(https://openmoji.org), recoloured, cut, turned and combined. OpenMoji's licence is CC BY-SA 4.0
(https://creativecommons.org/licenses/by-sa/4.0/); these pictures are available under the same licence.
"""


class Writer(Protocol):
    """Writes the annotation files of one format, scene by scene."""

    def add(self, record: Record) -> None:
        """Write what is known about one scene."""

    def close(self) -> None:
        """Finish the files."""


@dataclass(frozen=True)
class _Format:
    image_file: Callable[[str, int], str]
    """Path of an image inside the dataset, given its subset and number."""
    writer: Callable[[Path, tuple[str, ...]], Writer]


_FORMATS = {
    "voc": _Format(voc_writer.image_file, voc_writer.VocWriter),
    "bdd": _Format(bdd_writer.image_file, bdd_writer.BddWriter),
    "coco": _Format(coco_writer.image_file, coco_writer.CocoWriter),
    "openimages": _Format(openimages_writer.image_file, openimages_writer.OpenImagesWriter),
}


def generate(
    name: str, folder: Path, world: DemoWorld | None = None, processes: int | None = None
) -> Mapping[str, int]:
    """Write one dataset of the demo world.

    Every scene depends on the seed, the dataset, the subset and its own number only, so the number of
    processes does not change a byte. An interrupted run starts again from the first scene.

    Args:
        name: "voc", "bdd", "coco" or "openimages".
        folder: where it goes; it appears when the dataset is whole. What stood there before is replaced.
        world: sizes and counts.
        processes: how many to use; all cores by default.

    Returns:
        Number of scenes written, by subset.

    Raises:
        ParameterError: there is no such dataset.
        FartherError: `folder` holds something that is no demo dataset.
    """
    if name not in NAMES:
        raise ParameterError(f"no demo dataset {name!r}; there are {', '.join(NAMES)}")
    world = world or DemoWorld()
    if folder.exists() and any(folder.iterdir()) and not (folder / "ATTRIBUTION.txt").is_file():
        raise FartherError(f"{folder} holds something that is no demo dataset; choose another folder or empty it")
    aside = folder.with_name(folder.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    counts = subset_counts(name, world)
    _write(name, aside, world, counts, processes or os.cpu_count() or 1)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    return counts


def subset_counts(name: str, world: DemoWorld) -> dict[str, int]:
    """How many scenes each subset of a dataset has."""
    if name in ID_DATASETS:
        return asdict(getattr(world, name))
    return {"val" if name == "coco" else "validation": getattr(world, name)}


def _write(name: str, folder: Path, world: DemoWorld, counts: Mapping[str, int], processes: int) -> None:
    (folder / "ATTRIBUTION.txt").write_text(ATTRIBUTION, encoding="utf-8")
    tasks = [(subset, index) for subset, count in counts.items() for index in range(count)]
    for images in {(folder / _FORMATS[name].image_file(subset, 0)).parent for subset in counts}:
        images.mkdir(parents=True)
    writer = _FORMATS[name].writer(folder, tuple(counts))
    records = _composed(partial(_compose, name, folder, world), tasks, processes)
    progress = tqdm(records, total=len(tasks), desc=f"demo {name}", unit="scene", mininterval=1)
    try:
        if name in OOD_SOURCES:
            _write_planted(folder / "planted.csv", name, progress, writer)
        else:
            for one in progress:
                writer.add(one)
    finally:
        writer.close()


def _write_planted(path: Path, name: str, records: Iterable[Record], writer: Writer) -> None:
    """Pass records on to the writer, and write down which ID classes each scene really shows."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("image_id", "category", "labelled"))
        for one in records:
            writer.add(one)
            image = Path(_FORMATS[name].image_file(one.subset, one.index)).stem
            rows.writerows((image, category, int(labelled)) for category, labelled in one.known)


def _composed(compose: Callable[[Task], Record], tasks: list[Task], processes: int) -> Iterator[Record]:
    """Records in the order of the tasks."""
    if processes == 1:
        yield from map(compose, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(compose, tasks, chunksize=16)


def _compose(name: str, folder: Path, world: DemoWorld, task: Task) -> Record:
    """Compose one scene, write its picture, describe it."""
    subset, index = task
    one = scene(world, name, subset, index)
    one.image.save(folder / _FORMATS[name].image_file(subset, index), quality=world.jpeg_quality)
    return record(one, subset, index)
