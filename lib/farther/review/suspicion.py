"""Evidence for unlabelled objects of ID classes.

It comes from detections without a label, and from class names that fit an image by CLIP.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from farther.tables import BOX, Column, RegionsFolder, Table

#: Least score of the detections that are shown and counted.
MIN_SCORE = 0.1


class SuspectDetections(Table):
    """One row per detection of the checking run on the images of a catalogue.

    Columns:
        image: The image's row.
        box: xmin, ymin, xmax, ymax in pixels.
        score: The detector's confidence.
        name: The ID class.
        unlabelled: Evidence for an unlabelled object: the score times the share that labels do not
            explain (see `explained`).
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
) -> SuspectDetections:
    """The detections of a regions folder on the images of a source.

    Args:
        folder: The regions.
        id_class: ID class of each class of the detector that counts.
        images: The source's images: `image_id` and `image`, the row. Others in the folder are left
            out.
        labels: `image` and `label` of their labelled objects.
        boxes: ndarray of shape (number of labels, 4): box of each `label`.
    """
    id_class_of_label = pl.Series([id_class.get(name) for name in folder.classes], dtype=pl.String)
    parts = [SuspectDetections.empty()]
    for regions in folder.above(MIN_SCORE).batches([]):
        names = id_class_of_label.gather(regions.frame["label"])
        of_id_class = (
            regions.frame.select("image_id", name=names)
            .with_row_index("region")
            .drop_nulls("name")
            .join(images, on="image_id", maintain_order="left")
        )
        rows = of_id_class["region"].to_numpy()
        box = regions.box[rows]
        score = regions.score[rows]
        detection, label = pairs(of_id_class, labels)
        unexplained = 1 - explained(box, boxes[label], detection)
        parts.append(
            SuspectDetections(
                image=of_id_class["image"],
                box=box,
                score=score,
                name=of_id_class["name"],
                unlabelled=score * unexplained,
            )
        )
    return SuspectDetections.concatenate(parts)


def pairs(rows: pl.DataFrame, labels: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of a row of a frame with a column `image` and a `label` of its image.

    Returns:
        Indices of the rows, ascending, and labels; both of shape (number of pairs,).
    """
    numbered = rows.select("image").with_row_index("row")
    joined = numbered.join(labels, on="image", maintain_order="left")
    return joined["row"].to_numpy(), joined["label"].to_numpy()


def explained(box: np.ndarray, labelled: np.ndarray, detection: np.ndarray) -> np.ndarray:
    """Share of each detection that the labels of its image explain.

    A detection is explained by a labelled object with a large IoU, and by labelled objects that
    together cover it (a share of its area, at most 1): a zebra may be detected as a horse, and a
    herd of zebras as one horse. The combined value is 1 - sqrt((1 - IoU) (1 - share)).

    Args:
        box: ndarray of shape (N, 4).
        labelled: ndarray of shape (M, 4): boxes of labelled objects.
        detection: ndarray of shape (M,): the detection that each of them is compared with.

    Returns:
        ndarray of shape (N,), 0 (nothing is labelled there) to 1.

    Example:
        >>> explained(np.array([[0, 0, 2, 2]]), np.array([[0, 0, 2, 1.0]]), np.array([0])).tolist()
        [0.5]
    """
    box = box.astype(np.float64)
    labelled = labelled.astype(np.float64)
    area = np.prod(box[:, 2:] - box[:, :2], axis=1)
    labelled_area = np.prod(labelled[:, 2:] - labelled[:, :2], axis=1)
    low = np.maximum(box[detection, :2], labelled[:, :2])
    high = np.minimum(box[detection, 2:], labelled[:, 2:])
    intersection = np.prod(np.clip(high - low, 0, None), axis=1)
    union = area[detection] + labelled_area - intersection

    iou = np.divide(intersection, union, out=np.zeros(len(detection)), where=union > 0)
    largest_iou = np.zeros(len(box))
    np.maximum.at(largest_iou, detection, iou)

    covered = np.zeros(len(box))
    np.add.at(covered, detection, intersection)
    share = np.divide(covered, area, out=np.zeros(len(box)), where=area > 0)
    return 1 - np.sqrt((1 - largest_iou) * (1 - np.minimum(share, 1)))


def surplus(
    images: np.ndarray, id_names: np.ndarray, labelled: np.ndarray, image: np.ndarray
) -> np.ndarray:
    """Cosine of each image with the best ID class name, minus that with the best labelled name.

    Args:
        images: ndarray of shape (N, D): CLIP embeddings, rows of length 1.
        id_names: ndarray of shape (C, D): embeddings of the names of the ID classes.
        labelled: ndarray of shape (M, D): embeddings of the names of labelled objects.
        image: ndarray of shape (M,): the image of each labelled object.

    Returns:
        ndarray of shape (N,): difference of cosines; for an image without labels the first cosine.
    """
    best_id = (images @ id_names.T).max(axis=1)
    best_labelled = np.full(len(images), -np.inf)
    np.maximum.at(best_labelled, image, np.einsum("md,md->m", images[image], labelled))
    return best_id - np.where(np.isfinite(best_labelled), best_labelled, 0)
