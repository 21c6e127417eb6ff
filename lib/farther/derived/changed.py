"""Datasets in which each image is a changed image of an ID dataset."""

from __future__ import annotations

import multiprocessing
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pydantic.dataclasses import dataclass as checked
from tqdm import tqdm

from farther.derived.base import CocoFile, Derived, Scenes
from farther.errors import DataError
from farther.images.folders import refuse_absent_folder
from farther.images.read import load
from farther.naming.registry import STRICT
from farther.processes import count_cores
from farther.tables.writing import write_aside

#: Number of images per process below which a further process does not pay.
PER_PROCESS = 500

#: Number of images that a process takes at once.
IMAGES_PER_CHUNK = 8


class Change(NamedTuple):
    """A new image.

    Attributes:
        subset: Its subset.
        row: Row of the image that it is made of.
        kind: The kind of change.
        function: From the pixels of the image to the new ones. Worker processes call it: it must be
            picklable.
    """

    subset: str
    row: int
    kind: str
    function: Callable[[np.ndarray], np.ndarray]


@checked(config=STRICT, kw_only=True)
class ChangedImages(Derived):
    """A dataset in which each image is a changed image of an ID dataset."""

    #: Description of a subset, whose name follows.
    TITLE: ClassVar[str]
    #: Whether the objects are still labelled.
    KEEPS_OBJECTS: ClassVar[bool]

    @abstractmethod
    def subsets(self) -> list[str]:
        """Names of the subsets."""

    @abstractmethod
    def changes(self, scenes: Scenes) -> list[Change]:
        """The images to write."""

    @abstractmethod
    def counts(self, scenes: Scenes, changes: Sequence[Change], folder: Path) -> dict[str, Any]:
        """Counts of the images that were written.

        Args:
            scenes: The ID images.
            changes: The images that were written.
            folder: The dataset's folder; a file with the origin of each image is written there.
        """

    def write(self, scenes: Scenes, out: Path) -> dict[str, Any]:
        """Writes the dataset and returns counts; see `Derived.write`."""
        images = scenes.source.images
        changes = self.changes(scenes)
        failures: list[dict[str, str]] = []
        written_changes: list[Change] = []
        with write_aside(out) as aside:
            coco_by_subset: dict[str, CocoFile] = {}
            for name in self.subsets():
                coco_by_subset[name] = CocoFile(scenes.categories, f"{self.TITLE}: {name}")
                (aside / name).mkdir(parents=True)

            tasks = [self._task(scenes, change, aside) for change in changes]
            results = tqdm(
                _run(tasks), self.TITLE, len(tasks), unit="image", leave=False, disable=None
            )
            for change, task, result in zip(changes, tasks, results, strict=True):
                image_id = images.image_id[change.row]
                if result.problem:
                    refuse_absent_folder(task.source)
                    name = f"{change.subset}: {image_id}"
                    reason = f"{images.file[change.row]}: {result.problem}"
                    failures.append({"name": name, "reason": reason})
                    continue
                written_changes.append(change)
                coco = coco_by_subset[change.subset]
                coco.add_image(image_id, task.out.name, result.width, result.height)
                if self.KEEPS_OBJECTS:
                    coco.add_objects(scenes.objects(change.row))

            for name, coco in coco_by_subset.items():
                coco.write(aside, name)
            counts = self.counts(scenes, written_changes, aside)
            return self.finish(aside, counts, failures, len(tasks))

    def _task(self, scenes: Scenes, change: Change, folder: Path) -> _Task:
        """The task to write an image to the folder of its subset."""
        name = f"{change.row + 1:06d}{self.suffix}"
        source = scenes.file(change.row)
        return _Task(self, source, change.function, folder / change.subset / name)


@dataclass(frozen=True)
class _Task:
    """An image to write.

    Args:
        params: Parameters of the dataset.
        source: File of the image that it is made of.
        function: From the pixels of that image to the new ones.
        out: The file to write.
    """

    params: ChangedImages
    source: Path
    function: Callable[[np.ndarray], np.ndarray]
    out: Path


@dataclass(frozen=True)
class _Result:
    """Size of an image that was written, or the problem because of which it was not."""

    width: int = 0
    height: int = 0
    problem: str = ""


def _run(tasks: Sequence[_Task]) -> Iterator[_Result]:
    """Runs tasks, in several processes where that pays; yields their results in order."""
    processes = min(count_cores(), len(tasks) // PER_PROCESS)
    if processes < 2:
        for task in tasks:
            yield _write_image(task)
        return
    with multiprocessing.get_context("forkserver").Pool(processes) as pool:
        yield from pool.imap(_write_image, tasks, chunksize=IMAGES_PER_CHUNK)


def _write_image(task: _Task) -> _Result:
    """Writes one image."""
    try:
        pixels = task.function(load(task.source, task.params.max_pixels))
        task.params.save(pixels, task.out)
    except DataError as error:
        return _Result(problem=error.problem)
    height, width = pixels.shape[:2]
    return _Result(width, height)
