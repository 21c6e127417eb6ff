"""Evidence for unlabelled objects of ID classes: detections without a label, and class names that fit by CLIP."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from farther.tables import BOX, Column, RegionsFolder, Table

#: Least score of the detections that are shown and counted.
MIN_SCORE = 0.1


class WatcherDetections(Table):
    """One row per detection of the watching run on the images of a catalogue.

    Columns:
        image: The image's row. box: xmin, ymin, xmax, ymax in pixels. score: The detector's
        confidence. name: The ID class. unlabelled: Evidence for an unlabelled object: the score
        times the share that labels do not explain (see
            `explained`).
    """

    image = Column(pl.Int64)
    box = Column(BOX)
    score = Column(pl.Float32)
    name = Column(pl.String)
    unlabelled = Column(pl.Float64)


def detections(
    folder: RegionsFolder,
    id_class: Mapping[str, str],
    images: pl.DataFrame,
    labels: pl.DataFrame,
    boxes: np.ndarray,
) -> WatcherDetections:
    """The detections of a regions folder on the images of a source.

    Args:
        folder: The regions.
        id_class: ID class of each class of the detector that counts.
        images: The source's images: `image_id` and `image`, the row. Others in the folder are left
            out.
        labels: `image` and `label` of their labelled objects.
        boxes: ndarray of shape (number of labels, 4): box of each `label`.
    """
    parts = [WatcherDetections.empty()]
    names = pl.Series([id_class.get(name) for name in folder.classes], dtype=pl.String)
    for regions in folder.above(MIN_SCORE).batches([]):
        named = regions.frame.select(
            "image_id", name=names.gather(regions.frame["label"])
        ).with_row_index("region")
        found = named.drop_nulls("name").join(images, on="image_id", maintain_order="left")
        rows = found["region"].to_numpy()
        box, score = regions.box[rows], regions.score[rows]
        place, label = pairs(found, labels)
        free = 1 - explained(box, boxes[label], place)
        part = WatcherDetections(
            image=found["image"], box=box, score=score, name=found["name"], unlabelled=score * free
        )
        parts.append(part)
    return WatcherDetections.concatenate(parts)


def pairs(rows: pl.DataFrame, labels: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of a row of a frame with a column `image` and a `label` of its image.

    Returns:
        Indices of the rows, ascending, and labels; both of shape (number of pairs,).
    """
    joined = (
        rows.select("image").with_row_index("place").join(labels, on="image", maintain_order="left")
    )
    return joined["place"].to_numpy(), joined["label"].to_numpy()


def explained(box: np.ndarray, labelled: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Share of each detection that the labels of its image explain.

    A detection is explained by a labelled object with a large IoU, and by labelled objects that
    together cover it (a share of its area, at most 1): a zebra may be detected as a horse, and a
    herd of zebras as one horse. The combined value is 1 - sqrt((1 - IoU) (1 - share)).

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
    sides = np.minimum(box[place, 2:], labelled[:, 2:]) - np.maximum(
        box[place, :2], labelled[:, :2]
    )
    shared = np.prod(np.clip(sides, 0, None), axis=1)
    union = ours[place] + theirs - shared
    iou, covered = np.zeros(len(box)), np.zeros(len(box))
    np.maximum.at(iou, place, np.divide(shared, union, out=np.zeros(len(place)), where=union > 0))
    np.add.at(covered, place, shared)
    share = np.minimum(np.divide(covered, ours, out=np.zeros(len(box)), where=ours > 0), 1)
    return 1 - np.sqrt((1 - iou) * (1 - share))


def surplus(
    images: np.ndarray, id_names: np.ndarray, labelled: np.ndarray, place: np.ndarray
) -> np.ndarray:
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
