"""Evidence for unlabelled objects of ID classes: detections without a label, and class names that fit by CLIP."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from farther.tables import BOX, Column, Objects, RegionsFolder, Table

#: Least score of the detections that are shown and counted.
MIN_SCORE = 0.1


class Grouped:
    """Rows of a table grouped by image.

    Args:
        image: ndarray of shape (number of rows,): the image of each row, 0 … count - 1.
        count: Number of images.
    """

    def __init__(self, image: np.ndarray, count: int):
        self.order = np.argsort(image, kind="stable")
        self.starts = np.searchsorted(image[self.order], np.arange(count + 1))

    def rows(self, image: int) -> np.ndarray:
        """Rows of an image, in the table's order."""
        return self.order[self.starts[image] : self.starts[image + 1]]

    def pairs(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of an image and one of its rows; `images`, shape (N,), may contain an image repeatedly.

        Returns:
            Indices into `images`, ascending, and rows of the table; both of shape (number of pairs,).
        """
        counts = self.starts[images + 1] - self.starts[images]
        place = np.repeat(np.arange(len(images)), counts)
        within = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
        return place, self.order[self.starts[images][place] + within]


class Detections(Table):
    """One row per detection on the images of one or several sources.

    Columns:
        image: The image's row.
        box: xmin, ymin, xmax, ymax in pixels.
        score: The detector's confidence.
        name: The ID class.
        unlabelled: Evidence for an unlabelled object: the score times the share that labels do not explain (see
            `explained`).
    """

    image = Column(pl.Int64)
    box = Column(BOX)
    score = Column(pl.Float32)
    name = Column(pl.String)
    unlabelled = Column(pl.Float64)


def detections(
    folder: RegionsFolder, id_class: Mapping[str, str], image_id: np.ndarray, objects: Objects, by_image: Grouped
) -> Detections:
    """The detections of a regions folder on the images of a source.

    Args:
        image_id: ndarray of shape (number of images,), str: the source's images. Others in the folder are left out.
    """
    parts = []
    rows = pl.DataFrame({"image_id": pl.Series(image_id, dtype=pl.String)}).with_row_index("row")
    names = np.array([id_class.get(name, "") for name in folder.classes], dtype=object)
    for regions in folder.above(MIN_SCORE).batches([]):
        joined = regions.frame.select("image_id").join(rows, on="image_id", how="left", maintain_order="left")
        image = joined["row"].cast(pl.Int64).fill_null(-1).to_numpy()
        found = np.flatnonzero((image >= 0) & (names[regions.label] != ""))
        image, box, score = image[found].astype(np.int64), regions.box[found], regions.score[found]
        place, row = by_image.pairs(image)
        free = 1 - explained(box, objects.box[row], place)
        name = names[regions.label[found]]
        parts.append(Detections(image=image, box=box, score=score, name=name, unlabelled=score * free))
    return Detections.concatenate(parts) if parts else Detections.empty()


def explained(box: np.ndarray, labelled: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Share of each detection that the labels of its image explain.

    A detection is explained by a labelled object with a large IoU, and by labelled objects that together cover it (a
    share of its area, at most 1): a zebra may be detected as a horse, and a herd of zebras as one horse. The combined
    value is 1 - sqrt((1 - IoU) (1 - share)).

    Args:
        box: ndarray of shape (N, 4).
        labelled: ndarray of shape (M, 4): boxes of labelled objects.
        place: ndarray of shape (M,): the detection that each of them is compared with.

    Returns:
        ndarray of shape (N,), 0 (nothing is labelled there) to 1.

    Example:
        >>> explained(np.array([[0, 0, 2, 2]]), np.array([[0, 0, 2, 1.0]]), np.array([0])).tolist()
        [0.5]
    """
    box, labelled = box.astype(np.float64), labelled.astype(np.float64)
    ours = np.prod(box[:, 2:] - box[:, :2], axis=1)
    theirs = np.prod(labelled[:, 2:] - labelled[:, :2], axis=1)
    sides = np.minimum(box[place, 2:], labelled[:, 2:]) - np.maximum(box[place, :2], labelled[:, :2])
    shared = np.prod(np.clip(sides, 0, None), axis=1)
    union = ours[place] + theirs - shared
    iou, covered = np.zeros(len(box)), np.zeros(len(box))
    np.maximum.at(iou, place, np.divide(shared, union, out=np.zeros(len(place)), where=union > 0))
    np.add.at(covered, place, shared)
    share = np.minimum(np.divide(covered, ours, out=np.zeros(len(box)), where=ours > 0), 1)
    return 1 - np.sqrt((1 - iou) * (1 - share))


def surplus(images: np.ndarray, id_names: np.ndarray, labelled: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Cosine of each image with the best ID class name, minus that with the best name labelled in it.

    Args:
        images: ndarray of shape (N, D): CLIP embeddings, rows of length 1.
        id_names: ndarray of shape (C, D): embeddings of the names of the ID classes.
        labelled: ndarray of shape (M, D): embeddings of the names of labelled objects.
        place: ndarray of shape (M,): the image of each labelled object.

    Returns:
        ndarray of shape (N,): difference of cosines; for an image without labels the first cosine.
    """
    best = np.full(len(images), -np.inf)
    np.maximum.at(best, place, np.einsum("md,md->m", images[place], labelled))
    return (images @ id_names.T).max(axis=1) - np.where(np.isfinite(best), best, 0)
