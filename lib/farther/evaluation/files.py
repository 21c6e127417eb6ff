"""The tables of one run (a detector on a benchmark) that metrics read; `farther.evaluation.paths` has their paths."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from farther.errors import DataError
from farther.evaluation.paths import Roles as Roles
from farther.evaluation.paths import RunFiles as RunFiles
from farther.evaluation.results import SplitCounts
from farther.metrics.matching.boxes import image_numbers, is_among
from farther.metrics.wilderness import background_probability
from farther.tables import Images, Objects, Regions, RegionsFolder, Scores
from farther.tables.files import digest


class RunSplit:
    """One split of a run: its images and objects, and the detector's regions in them.

    Args:
        files: Paths of the run's files.
        split: The name of the split.
        logits: Whether regions keep their logits, which few metrics read and which take the most
            memory.

    Objects of images that the detector could not read are left out of `objects`, and counted in
    `summary`.

    Raises:
        DataError: a table or the regions folder is absent or wrong, or shows an image that the
            split does not have.
    """

    def __init__(self, files: RunFiles, split: str, *, logits: bool = False):
        self.name = split
        self.folder = RegionsFolder(files.regions(split))
        self._left_out = [] if logits or self.folder.header.whole_images else ["logits"]
        self.source = files.objects(split)
        self._files = {"images": files.images(split), "objects": self.source}
        images = Images.read(self._files["images"])
        objects = Objects.read(self.source)
        failed = {failure["image_id"] for failure in self.folder.failures}
        self.images = frozenset(images.image_id) - failed
        self.failed = len(images) - len(self.images)
        readable = np.fromiter(
            (name not in failed for name in objects.image_id), bool, len(objects)
        )
        self.objects = objects[readable]
        self._refuse_other_images(self.objects.image_id, self.source)

    def regions(self, threshold: float = 0.0) -> Regions:
        """The regions whose confidence is at least `threshold`, without the columns that only methods read.

        Raises:
            DataError: a shard is wrong, or shows an image that the split does not have.
        """
        return self._stored if threshold <= 0 else self._stored.above(threshold)

    @property
    def table(self) -> Images:
        """All images of the split, with their sizes."""
        return Images.read(self._files["images"])

    @property
    def files(self) -> dict[str, str]:
        """The file of each readable image."""
        images = self.table
        return {
            name: file
            for name, file in zip(images.image_id, images.file, strict=True)
            if name in self.images
        }

    @cached_property
    def _stored(self) -> Regions:
        parts = [
            batch.with_frame(batch.frame.drop(self._left_out, strict=False))
            for batch in self.folder.batches(())
        ]
        regions = Regions.concatenate(parts) if parts else Regions.empty(self.folder.header)
        self._refuse_other_images(regions.image_id, self.folder.path)
        return regions

    def read_margins(self) -> np.ndarray | None:
        """`background_probability.margins` of each stored region; None where they do not apply."""
        if not background_probability.applies(self.folder):
            return None
        each = (background_probability.margins(batch) for batch in self.folder.batches(()))
        return np.concatenate([np.zeros(0), *each])

    @property
    def known_classes(self) -> tuple[str, ...]:
        """The classes that the detector was trained on."""
        return self.folder.header.known_classes

    @property
    def shows_known(self) -> bool:
        """Whether objects of known classes are annotated."""
        return bool(is_among(self.objects.category, self.known_classes).any())

    @property
    def has_boxes(self) -> bool:
        """Whether any image was annotated, or is empty; False where all were given as `images` without boxes."""
        return not (len(self.objects) and self.objects.is_unlabelled.all())

    def summary(self, regions: Regions) -> SplitCounts:
        """Counts of the split, and the share of its images without any of `regions`."""
        seen = len(set(regions.image_id))
        return SplitCounts(
            images=len(self.images),
            failed_images=self.failed,
            objects=int(np.sum(~self.objects.is_unlabelled)),
            regions=len(regions),
            no_detection=1 - seen / len(self.images) if self.images else None,
            inputs=self.digests(),
        )

    def digests(self) -> dict[str, str]:
        """Digests of what was read: of files, of names of readable images, and of the columns of regions that count."""
        columns = [
            getattr(self._stored, name).tobytes() for name in ("region_id", "box", "score", "label")
        ]
        used = digest("\0".join(self._stored.image_id), *columns)
        readable = digest("\0".join(sorted(self.images)))
        return {name: digest(path) for name, path in self._files.items()} | {
            "readable": readable,
            "regions": used,
        }

    def _refuse_other_images(self, image_id: np.ndarray, source: Path) -> None:
        if not self.images.issuperset(image_id):
            row, other = next(
                (row, name) for row, name in enumerate(image_id) if name not in self.images
            )
            problem = (
                f"{other!r} is not a readable image of split '{self.name}'; run `farther repro`"
            )
            raise DataError(problem, file=source, row=row, field="image_id")


def aligned_scores(regions: Regions, path: Path, stored: int) -> np.ndarray:
    """A method's scores in the order of `regions`, ndarray of shape (N,).

    Args:
        path: A table of scores of all stored regions of the split.
        stored: Number of regions of the split.

    Raises:
        DataError: the table has another number of rows, scores a region twice, or lacks one.
    """
    advice = f"run `dvc repro score@{path.parent.parent.name}`"
    if not path.is_file():
        problem = f"no scores of split {path.stem!r}: {advice}, unless the method's pass leaves it out (`skip`)"
        raise DataError(problem, file=path)
    scores = Scores.read(path)
    if len(scores) != stored:
        problem = f"{len(scores)} scores, but {stored} regions: {advice}"
        raise DataError(problem, file=path)
    keys = ["image_id", "region_id"]
    if scores.frame.select(keys).equals(regions.frame.select(keys)):  # as they are written
        return scores.score
    _, (score_image, region_image) = image_numbers(scores.image_id, regions.image_id)
    # Numbers of regions may be as large as int64 is; their places among each other are not.
    numbers, place = np.unique(
        np.concatenate([scores.region_id, regions.region_id]), return_inverse=True
    )
    key = score_image.astype(np.int64) * len(numbers) + place[: len(scores)]
    wanted = region_image.astype(np.int64) * len(numbers) + place[len(scores) :]
    order = np.argsort(key, kind="stable")
    key = key[order]
    twice = np.flatnonzero(key[1:] == key[:-1])
    if len(twice):
        row = int(order[twice[0] + 1])
        problem = f"region {scores.region_id[row]} of {scores.image_id[row]!r} is scored twice"
        raise DataError(problem, file=path, row=row, field="region_id")
    place = np.minimum(np.searchsorted(key, wanted), max(len(key) - 1, 0))
    missing = np.flatnonzero(key[place] != wanted) if len(key) else np.arange(len(wanted))
    if len(missing):
        row = int(missing[0])
        problem = (
            f"region {regions.region_id[row]} of {regions.image_id[row]!r} has no score: {advice}"
        )
        raise DataError(problem, file=path, field="region_id")
    return scores.score[order[place]]
