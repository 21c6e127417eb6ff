"""Scores that another program computed."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np

from farther.errors import DataError
from farther.methods.base import FitError, Method, Publication, RegionsLike, register
from farther.methods.rows import RegionRows
from farther.tables import Regions

#: Largest difference between a coordinate of a region's box and that of its row in the file, in
#: pixels.
SAME_BOX = 0.5


@dataclass(frozen=True)
class SplitScores:
    """The scores of a split's images, or of the boxes in them.

    Args:
        image_id: Image of each row, object array of shape (N,).
        score: The file's scores, ndarray of shape (N,), float64.
        box: xmin, ymin, xmax, ymax in pixels, ndarray of shape (N, 4), float32; None for scores of
            whole images.
    """

    image_id: np.ndarray
    score: np.ndarray
    box: np.ndarray | None = None


@register("imported")
class ImportedScores(Method):
    """Scores that another program computed for the same images, or for the same boxes.

    A row of the file belongs to an image as imported detections do: by its id, its file, or the end
    of its path; for a detector, also to the region with the same box, to half a pixel. Every region
    needs a score.

    Formula:
        score = the file's; minus the file's with `higher="ood"`

    Args:
        file: CSV or Parquet with the columns `image`, `score`, for a detector also `xmin`, `ymin`,
            `xmax`, `ymax`, and `split` where a name of an image occurs in several; or the file of
            each split, which may be OpenOOD's saved scores (`.npz` with `conf` and `label`, in the
            order of its list).
        lists: The list of images that the scores in an `.npz` file are in the order of, for each
            split.
        higher: The side with the higher scores in the file: "id", or "ood" for uncertainties and
            anomaly scores.

    Attributes:
        split_: Names of the splits.
        key_: Hash of the split and the image of each row, ndarray of shape (N,), uint64, ascending.
        score_: ndarray of shape (N,), float64.
        box_: ndarray of shape (N, 4), float32; of shape (0, 4) for whole images.
        whole_images_: Whether each region is an image.
        remark_: Remarks on rows of the file that are of no image.

    References:
        Yang et al., "OpenOOD: Benchmarking Generalized Out-of-Distribution Detection", 2022,
        arXiv:2210.07242, whose code saves scores of methods with a training of their own.

    Example:
        >>> from farther.methods import create
        >>> from farther.methods.examples import toy_regions
        >>> regions = toy_regions(score=[0.5], whole_images=True)
        >>> theirs = create("imported", file="theirs.csv", higher="ood").fit(regions)
        >>> theirs = theirs.learn_scores({"near": SplitScores(regions.image_id, np.array([3.0]))})
        >>> theirs.for_split("near").score(regions)
        array([-3.])
    """

    publication: ClassVar[Publication | None] = Publication(
        "OpenOOD: Benchmarking Generalized Out-of-Distribution Detection",
        2022,
        "https://arxiv.org/abs/2210.07242",
    )
    title: ClassVar[str] = "Imported"
    needs: ClassVar[frozenset[str]] = frozenset({"score"})
    computes: ClassVar[bool] = False
    only_numpy: ClassVar[str] = "its scores were computed elsewhere, for images of known names"
    file: str | dict[str, str]
    lists: dict[str, str] | None = None
    higher: Literal["id", "ood"] = "id"

    def _fit(self, regions: RegionsLike) -> None:
        """Learns nothing from regions: see `learn_scores`."""
        self.whole_images_ = regions.header.whole_images

    def learn_scores(
        self, scores_by_split: Mapping[str, SplitScores], remarks: tuple[str, ...] = ()
    ) -> Self:
        """Takes the scores of the images of each split; called after `fit`.

        Args:
            scores_by_split: What the file has for each split.
            remarks: What the reader of the file has to say.

        Raises:
            FitError: the scores are of whole images, and the run has several regions per image.
        """
        keys = []
        scores = []
        boxes = []
        for split, rows in scores_by_split.items():
            if rows.box is None and not self.whole_images_:
                problem = "the scores are of images, but the run has detections in them"
                raise FitError(
                    f"{problem}: add the columns xmin, ymin, xmax and ymax to {self.file!r}"
                )
            keys.append(_keys(split, rows.image_id))
            scores.append(rows.score)
            if not self.whole_images_ and rows.box is not None:
                boxes.append(rows.box)
        key = np.concatenate([np.zeros(0, np.uint64), *keys])
        order = np.argsort(key, kind="stable")
        self.split_ = sorted(scores_by_split)
        self.key_ = key[order]
        self.score_ = np.concatenate([np.zeros(0), *scores])[order]
        self.box_ = np.zeros((0, 4), np.float32)
        if boxes:
            self.box_ = np.concatenate(boxes).astype(np.float32)[order]
        self.remark_ = list(remarks)
        return self

    def remarks(self) -> list[str]:
        """Rows of the file that are of no image."""
        return [*getattr(self, "remark_", [])]

    def for_split(self, split: str) -> Method:
        """See `Method.for_split`."""
        bound = copy.copy(self)
        vars(bound)["_split"] = split
        return bound

    def _score(self, rows: RegionRows) -> np.ndarray:
        regions = rows.regions
        split = vars(self).get("_split")
        if split is None or not hasattr(self, "key_"):
            raise FitError(
                "imported scores are of images of a split: see learn_scores and for_split"
            )
        keys = _keys(split, regions.image_id)
        first = np.searchsorted(self.key_, keys, side="left")
        last = np.searchsorted(self.key_, keys, side="right")
        self._refuse_absent(split, regions.image_id[first == last], len(regions))
        row_of_region = first
        if not self.whole_images_:
            row_of_region = self._rows_of_boxes(split, regions, first, last)
        score = self.score_[row_of_region]
        if self.higher == "ood":
            return -score
        return score

    def _rows_of_boxes(
        self, split: str, regions: Regions, first: np.ndarray, last: np.ndarray
    ) -> np.ndarray:
        """The row of each region, of those of its image from first to last.

        It is the one whose box is nearest.
        """
        rows = np.zeros(len(regions), np.int64)
        distance = np.zeros(len(regions))
        for number in range(len(regions)):
            candidates = self.box_[first[number] : last[number]]
            differences = np.abs(candidates - regions.box[number]).max(axis=1)
            nearest = int(differences.argmin())
            rows[number] = first[number] + nearest
            distance[number] = differences[nearest]
        self._refuse_absent(
            split, regions.image_id[distance > SAME_BOX], len(regions), "no box of theirs fits"
        )
        return rows

    def _refuse_absent(
        self, split: str, image_ids: np.ndarray, count: int, why: str = "no row is of it"
    ) -> None:
        if not len(image_ids):
            return
        problem = f"{len(image_ids):,} of {count:,} regions of split {split!r} have no score"
        example = f"as in image {image_ids[0]!r}: {why}; every region needs one"
        raise DataError(f"{problem}, {example}", file=_shown(self.file, split), field="score")


def _keys(split: str, image_ids: np.ndarray) -> np.ndarray:
    """Hash of split and image of each row, ndarray of shape (N,), uint64."""
    key_by_image: dict[str, int] = {}
    for image_id in image_ids:
        if image_id not in key_by_image:
            name = f"{split}\0{image_id}".encode()
            key_by_image[image_id] = int.from_bytes(
                hashlib.blake2b(name, digest_size=8).digest(), "big"
            )
    return np.array([key_by_image[image_id] for image_id in image_ids], dtype=np.uint64)


def _shown(file: str | dict[str, str], split: str) -> str:
    """The file of a split, for messages."""
    if isinstance(file, str):
        return file
    return file.get(split, split)
