"""The tables of one run (a detector on a benchmark) that metrics read.

Their paths are in `farther.evaluation.paths`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.evaluation.paths import Roles as Roles
from farther.evaluation.paths import RunFiles as RunFiles
from farther.evaluation.results import SplitCounts
from farther.metrics.matching.boxes import image_numbers, is_among
from farther.metrics.wilderness import background_probability
from farther.tables import ImageAttributes, Images, Objects, Regions, RegionsFolder, Scores
from farther.tables.files import digest, is_file

#: Columns of regions whose content the digest of a split covers, besides the images' names.
DIGESTED_COLUMNS = ("region_id", "box", "score", "label")


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
        self.source = files.objects(split)
        self._images_file = files.images(split)
        self._attributes_file = files.attributes(split)
        self._keeps_logits = logits or self.folder.header.whole_images

        images = Images.read(self._images_file)
        objects = Objects.read(self.source)
        failed = {failure["image_id"] for failure in self.folder.failures}
        self.images = frozenset(images.image_id) - failed
        self.failed = len(images) - len(self.images)

        is_readable = np.fromiter(
            (name not in failed for name in objects.image_id), bool, len(objects)
        )
        self.objects = objects[is_readable]
        self._refuse_unknown_images(self.objects.image_id, self.source)

    def regions(self, threshold: float = 0.0) -> Regions:
        """The regions whose confidence is at least `threshold`.

        They are without the columns that only methods read.

        Raises:
            DataError: a shard is wrong, or shows an image that the split does not have.
        """
        if threshold <= 0:
            return self._stored_regions
        return self._stored_regions.above(threshold)

    @property
    def table(self) -> Images:
        """All images of the split, with their sizes."""
        return Images.read(self._images_file)

    @property
    def files(self) -> dict[str, str]:
        """The file of each readable image."""
        images = self.table.frame.filter(pl.col("image_id").is_in(list(self.images)))
        return dict(images.select("image_id", "file").iter_rows())

    @cached_property
    def attributes(self) -> dict[str, dict[str, str]]:
        """Attribute → image → its value, of the images that have it.

        Attributes with one value are left out: they divide nothing.
        """
        if not is_file(self._attributes_file):
            return {}
        attributes: dict[str, dict[str, str]] = {}
        for row in ImageAttributes.read(self._attributes_file).frame.iter_rows(named=True):
            if row["image_id"] in self.images:
                attributes.setdefault(row["attribute"], {})[row["image_id"]] = row["value"]
        return {
            name: value_by_image
            for name, value_by_image in sorted(attributes.items())
            if len(set(value_by_image.values())) > 1
        }

    @cached_property
    def _stored_regions(self) -> Regions:
        batches = []
        for batch in self.folder.batches(()):
            if not self._keeps_logits:
                without_logits = batch.frame.drop("logits", strict=False)
                batch = batch.with_frame(without_logits)
            batches.append(batch)

        if batches:
            regions = Regions.concatenate(batches)
        else:
            regions = Regions.empty(self.folder.header)
        self._refuse_unknown_images(regions.image_id, self.folder.path)
        return regions

    def read_margins(self) -> np.ndarray | None:
        """Class minus background probability of each stored region, ndarray of shape (N,).

        See `background_probability.margins`; None where they do not apply.
        """
        if not background_probability.applies(self.folder):
            return None
        margins = [background_probability.margins(batch) for batch in self.folder.batches(())]
        return np.concatenate([np.zeros(0), *margins])

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
        """Whether any image was annotated, or is empty.

        False where all images came as `images` without boxes.
        """
        return not (len(self.objects) and self.objects.is_unlabelled.all())

    def summary(self, regions: Regions) -> SplitCounts:
        """Counts of the split, and the share of its images without any of `regions`."""
        no_detection = None
        if self.images:
            images_with_regions = len(set(regions.image_id))
            no_detection = 1 - images_with_regions / len(self.images)

        return SplitCounts(
            images=len(self.images),
            failed_images=self.failed,
            objects=int(np.sum(~self.objects.is_unlabelled)),
            regions=len(regions),
            no_detection=no_detection,
            inputs=self.digests(),
        )

    def digests(self) -> dict[str, str]:
        """Hashes of the tables, of readable images' names, and of the regions' main columns."""
        columns = [getattr(self._stored_regions, name).tobytes() for name in DIGESTED_COLUMNS]
        digests = {
            "images": digest(self._images_file),
            "objects": digest(self.source),
            "readable": digest("\0".join(sorted(self.images))),
            "regions": digest("\0".join(self._stored_regions.image_id), *columns),
        }
        if is_file(self._attributes_file):
            digests["attributes"] = digest(self._attributes_file)
        return digests

    def _refuse_unknown_images(self, image_id: np.ndarray, source: Path) -> None:
        """Refuses rows of images that are not readable images of the split."""
        if self.images.issuperset(image_id):
            return
        for row, name in enumerate(image_id):
            if name not in self.images:
                problem = (
                    f"{name!r} is not a readable image of split '{self.name}'; run `farther repro`"
                )
                raise DataError(problem, file=source, row=row, field="image_id")


def aligned_scores(regions: Regions, path: Path, stored: int) -> np.ndarray:
    """A method's scores in the order of `regions`, ndarray of shape (N,).

    Args:
        regions: N regions of the split.
        path: A table of scores of all stored regions of the split.
        stored: Number of regions of the split.

    Raises:
        DataError: the table has another number of rows, scores a region twice, or lacks one.
    """
    advice = "run `farther repro score`"
    if not path.is_file():
        problem = (
            f"no scores of split {path.stem!r}: {advice}, "
            "unless the method's pass leaves it out (`skip`)"
        )
        raise DataError(problem, file=path)

    scores = Scores.read(path)
    if len(scores) != stored:
        problem = f"{len(scores)} scores, but {stored} regions: {advice}"
        raise DataError(problem, file=path)

    columns = ["image_id", "region_id"]
    if scores.frame.select(columns).equals(regions.frame.select(columns)):  # as they are written
        return scores.score

    keys = _row_keys(scores, regions)
    order = np.argsort(keys.of_scores, kind="stable")
    sorted_keys = keys.of_scores[order]
    _refuse_repeated(scores, sorted_keys, order, path)
    if not len(sorted_keys):
        missing_rows = np.arange(len(regions))
        _refuse_missing(regions, missing_rows, path, advice)
        return scores.score

    place = np.searchsorted(sorted_keys, keys.of_regions)
    place = np.minimum(place, len(sorted_keys) - 1)
    missing_rows = np.flatnonzero(sorted_keys[place] != keys.of_regions)
    _refuse_missing(regions, missing_rows, path, advice)
    return scores.score[order[place]]


@dataclass(frozen=True)
class _RowKeys:
    """One number per row: equal where image and region are the same.

    Args:
        of_scores: Of the table of scores, ndarray of shape (S,).
        of_regions: Of the regions, ndarray of shape (N,).
    """

    of_scores: np.ndarray
    of_regions: np.ndarray


def _row_keys(scores: Scores, regions: Regions) -> _RowKeys:
    _, (score_image, region_image) = image_numbers(scores.image_id, regions.image_id)
    # Numbers of regions may be as large as int64 allows; their ranks are not.
    region_ids = np.concatenate([scores.region_id, regions.region_id])
    distinct_ids, rank = np.unique(region_ids, return_inverse=True)
    return _RowKeys(
        of_scores=score_image.astype(np.int64) * len(distinct_ids) + rank[: len(scores)],
        of_regions=region_image.astype(np.int64) * len(distinct_ids) + rank[len(scores) :],
    )


def _refuse_repeated(
    scores: Scores, sorted_keys: np.ndarray, order: np.ndarray, path: Path
) -> None:
    repeated = np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])
    if len(repeated):
        row = int(order[repeated[0] + 1])
        problem = f"region {scores.region_id[row]} of {scores.image_id[row]!r} is scored twice"
        raise DataError(problem, file=path, row=row, field="region_id")


def _refuse_missing(regions: Regions, missing_rows: np.ndarray, path: Path, advice: str) -> None:
    if len(missing_rows):
        row = int(missing_rows[0])
        problem = (
            f"region {regions.region_id[row]} of {regions.image_id[row]!r} has no score: {advice}"
        )
        raise DataError(problem, file=path, field="region_id")
