"""Write a whole demo dataset to a folder."""

from __future__ import annotations

import csv
import multiprocessing
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from farther.datasets.demo.parameters import DemoWorld
from farther.datasets.demo.recipes import ID_DATASETS, OOD_SOURCES
from farther.datasets.demo.records import Record, record
from farther.datasets.demo.scene import scene
from farther.errors import FartherError, ParameterError

NAMES = (*ID_DATASETS, *OOD_SOURCES)

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


def generate(
    name: str, folder: Path, world: DemoWorld | None = None, processes: int | None = None
) -> Mapping[str, int]:
    """Write one dataset of the demo world.

    Every scene depends on the seed, the dataset, the subset and its own number only, so the number of
    processes does not change a byte.

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
    folder = Path(folder)
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
    for file in {_image_path(name, folder, subset, 0).parent for subset in counts}:
        file.mkdir(parents=True)
    writer = _writer(name, folder, tuple(counts))
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
            image = Path(_format(name).image_file(one.subset, one.index)).stem
            rows.writerows((image, category, int(labelled)) for category, labelled in one.known)


def _composed(compose: Any, tasks: list[tuple[str, int]], processes: int) -> Iterator[Record]:
    """Records in the order of the tasks."""
    if processes == 1:
        yield from map(compose, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(compose, tasks, chunksize=16)


def _compose(name: str, folder: Path, world: DemoWorld, task: tuple[str, int]) -> Record:
    """Compose one scene, write its picture, describe it."""
    subset, index = task
    one = scene(world, name, subset, index)
    one.image.save(_image_path(name, folder, subset, index), quality=world.jpeg_quality)
    return record(one, subset, index)


def _format(name: str) -> Any:
    return import_module(f"{__package__}.{name}_writer")


def _image_path(name: str, folder: Path, subset: str, index: int) -> Path:
    return folder / _format(name).image_file(subset, index)


def _writer(name: str, folder: Path, subsets: tuple[str, ...]) -> Writer:
    module = _format(name)
    classes = {"voc": "VocWriter", "bdd": "BddWriter", "coco": "CocoWriter", "openimages": "OpenImagesWriter"}
    return getattr(module, classes[name])(folder, subsets)
