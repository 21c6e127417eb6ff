"""Datasets of images that are each changed by themselves."""

from __future__ import annotations

import multiprocessing
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pydantic.dataclasses import dataclass as checked
from tqdm import tqdm

from farther.cores import count_cores
from farther.derived.base import CocoFile, Derived, Scenes
from farther.errors import DataError
from farther.images.read import load
from farther.registry import STRICT
from farther.tables.writing import write_aside

#: Images per process below which starting another one does not pay.
PER_PROCESS = 500


class Change(NamedTuple):
    """A new image: its subset, the row of the image that it is made of, the kind of change, and the function of pixels.

    Worker processes call the function: it must be picklable.
    """

    subset: str
    row: int
    kind: str
    function: Callable[[np.ndarray], np.ndarray]


@checked(config=STRICT, kw_only=True)
class ChangedImages(Derived):
    """A dataset whose images are those of the ID dataset, each changed by itself."""

    #: Description of a subset, whose name follows.
    TITLE: ClassVar[str]
    #: Whether the objects are still labelled.
    KEEPS_OBJECTS: ClassVar[bool]

    @abstractmethod
    def subsets(self) -> list[str]:
        """Names of the subsets."""

    @abstractmethod
    def changes(self, scenes: Scenes) -> list[Change]:
        """The images to make."""

    @abstractmethod
    def counts(self, scenes: Scenes, made: Sequence[Change], folder: Path) -> dict[str, Any]:
        """The counts of the images that were made; a file that says how is written to the folder."""

    def write(self, scenes: Scenes, out: Path) -> dict[str, Any]:
        """Writes the dataset and returns counts; see `Derived.write`."""
        images, failures, made = scenes.source.images, list[dict[str, str]](), list[Change]()
        changes = self.changes(scenes)
        with write_aside(out) as aside:
            files = {
                name: CocoFile(scenes.categories, f"{self.TITLE}: {name}")
                for name in self.subsets()
            }
            for name in files:
                (aside / name).mkdir(parents=True)
            work = [
                (
                    self,
                    scenes.file(one.row),
                    one.function,
                    aside / one.subset / f"{one.row + 1:06d}{self.suffix}",
                )
                for one in changes
            ]
            done = tqdm(_run(work), self.TITLE, len(work), unit="image", leave=False, disable=None)
            for one, (*_, file), size in zip(changes, work, done, strict=True):
                image_id = images.image_id[one.row]
                if isinstance(size, str):
                    reason = f"{images.file[one.row]}: {size}"
                    failures.append({"name": f"{one.subset}: {image_id}", "reason": reason})
                    continue
                made.append(one)
                files[one.subset].add_image(image_id, file.name, *size)
                if self.KEEPS_OBJECTS:
                    files[one.subset].add_objects(scenes.objects(one.row))
            for name, coco in files.items():
                coco.write(aside, name)
            return self.finish(aside, self.counts(scenes, made, aside), failures, len(work))


Work = tuple[ChangedImages, Path, Callable[[np.ndarray], np.ndarray], Path]


def _run(work: list[Work]) -> Iterator[tuple[int, int] | str]:
    """Width and height of each image written, in order, or why it was not; in several processes where it pays."""
    processes = min(count_cores(), len(work) // PER_PROCESS)
    if processes < 2:
        yield from map(_one, work)
        return
    with multiprocessing.get_context("forkserver").Pool(processes) as pool:
        yield from pool.imap(_one, work, chunksize=8)


def _one(work: Work) -> tuple[int, int] | str:
    params, source, function, out = work
    try:
        pixels = function(load(source))
        params.save(pixels, out)
    except DataError as error:
        return error.problem
    return pixels.shape[1], pixels.shape[0]
