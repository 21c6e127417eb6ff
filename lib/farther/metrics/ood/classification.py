"""Metrics of a classifier: whole images as regions, image labels as objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.metrics import ood
from farther.metrics.weighting import (
    ImageWeights,
    RowWeights,
    columns,
    defined,
    mean_of_defined,
    ratio,
    value,
)
from farther.tables import Objects, Regions

#: Bins of the expected calibration error, as Guo et al. (2017) take them.
BINS = 15

#: Classes that count as guesses of top-5 accuracy.
GUESSES = 5


@dataclass(frozen=True)
class Classified:
    """Images with a label of a known class, and a classifier's predictions for them; columns of one length N.

    Args:
        images: Names. Object array of `str`.
        is_correct: Whether the class with the highest confidence is a label of the image. bool.
        confidence: Of that class, float64.
        nll: −ln of the largest softmax probability among the image's labels, float64; NaN where the
            classifier's confidences are not a softmax.
        is_in_top5: 1 where a label of the image is among the five classes with the highest logits,
            else 0, float64; NaN where the classifier has five classes or fewer, since every label
            would be.
    """

    images: np.ndarray
    is_correct: np.ndarray
    confidence: np.ndarray
    nll: np.ndarray
    is_in_top5: np.ndarray

    @classmethod
    def of(cls, objects: Objects, regions: Regions) -> Classified:
        """The labelled images of a split.

        Args:
            objects: Image labels; those that are not classes of the classifier are left out.
            regions: One per image.

        Raises:
            DataError: an image has two regions, or a labelled image has none.
        """
        place = {
            name: column
            for column, name in enumerate(regions.classes)
            if column != regions.background_index
        }
        labels = pl.DataFrame(
            {
                "image_id": objects.image_id.astype(str),
                "of": [place.get(name) for name in objects.category],
            },
            schema_overrides={"of": pl.Int64},
        ).drop_nulls()
        rows = pl.DataFrame({"image_id": regions.image_id.astype(str)}).with_row_index("row")
        if len(rows) != rows["image_id"].n_unique():
            raise DataError(
                "a classifier has one region per image, found two of one", field="image_id"
            )
        found = labels.join(rows, on="image_id", how="left", maintain_order="left")
        if found["row"].null_count():
            absent = found.filter(pl.col("row").is_null())["image_id"][0]
            raise DataError(f"the labelled image {absent!r} has no region", field="image_id")
        row = found["row"].to_numpy()
        logits = regions.logits[row].astype(np.float64)
        if regions.activation == "softmax":
            highest = logits.max(axis=1, keepdims=True)
            total = highest[:, 0] + np.log(np.exp(logits - highest).sum(axis=1))
            nll = total - logits[np.arange(len(row)), found["of"].to_numpy()]
        else:
            nll = np.full(len(row), np.nan)
        in_top5 = _is_in_top5(
            logits[:, sorted(place.values())], _positions(found["of"].to_numpy(), place)
        )
        by_image = (
            found.with_columns(
                in_top5=pl.Series(in_top5),
                correct=pl.Series(regions.label[row] == found["of"].to_numpy()),
                confidence=pl.Series(regions.score[row].astype(np.float64)),
                nll=pl.Series(nll),
            )
            .group_by("image_id")
            .agg(
                pl.col("correct").any(),
                pl.col("confidence").first(),
                pl.col("nll").min(),
                pl.col("in_top5").max(),
            )
            .sort("image_id")
        )
        return cls(
            by_image["image_id"].to_numpy().astype(object),
            *(by_image[name].to_numpy() for name in ("correct", "confidence", "nll", "in_top5")),
        )


def _positions(columns_of_labels: np.ndarray, column_by_class: Mapping[str, int]) -> np.ndarray:
    """Positions of columns of logits among those of the classes, which leave out a background column."""
    return np.searchsorted(sorted(column_by_class.values()), columns_of_labels)


def _is_in_top5(logits: np.ndarray, true_class: np.ndarray) -> np.ndarray:
    """Whether each row's true class is among the five highest logits; of equal logits the first is the higher one.

    Args:
        logits: Of the classes, ndarray of shape (N, K).
        true_class: Column of each row's true class, ndarray of shape (N,).

    Returns:
        ndarray of shape (N,): 1 or 0; NaN where K is at most five.
    """
    count, classes = logits.shape
    if classes <= GUESSES:
        return np.full(count, np.nan)
    own = logits[np.arange(count), true_class][:, None]
    is_higher = logits > own
    is_first_of_equals = (logits == own) & (np.arange(classes) < true_class[:, None])
    rank = (is_higher | is_first_of_equals).sum(axis=1)
    return (rank < GUESSES).astype(np.float64)


def metrics(
    classified: Classified, weights: ImageWeights | None = None, bins: int = BINS
) -> dict[str, np.ndarray]:
    """Accuracy and calibration of a classifier.

    Args:
        classified: Its labelled images.
        weights: Of these images in B replicates, shape (B, N); each counts once when None.
        bins: Number of equally wide bins of confidence.

    Returns:
        ndarrays of shape (B,), or (1,) without weights; NaN where no image is labelled.

        accuracy: Share of images whose class with the highest confidence is right.
        accuracy_top5: Share of images with a label among the five classes of the highest logits;
            NaN where the classifier has five classes or fewer.
        nll: Mean of −ln of the softmax probability of the label; NaN where the confidences are not
            a softmax.
        ece: Expected calibration error: mean over images of |accuracy − mean confidence| of the
            image's bin (Naeini et al., 2015; Guo et al., 2017, arXiv:1706.04599, Eq. 3).

    >>> found = metrics(
    ...     Classified(
    ...         np.array(["a", "b"], dtype=object),
    ...         np.array([True, False]),
    ...         np.array([0.9, 0.6]),
    ...         np.array([0.1, 1.0]),
    ...         np.array([1.0, 1.0]),
    ...     )
    ... )
    >>> found["accuracy"].item(), round(found["nll"].item(), 3), round(found["ece"].item(), 3)
    (0.5, 0.55, 0.35)
    >>> found["accuracy_top5"].item()
    1.0
    """
    count = len(classified.images)
    of_images, column = columns(weights, count)
    of_images = of_images.astype(np.float64)

    def summed(values: np.ndarray) -> np.ndarray:
        return of_images @ np.bincount(column, values, minlength=of_images.shape[1])

    total = summed(np.ones(count))
    # Bins are open below and closed above, as in Guo et al.
    number = np.clip(np.ceil(classified.confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.zeros((of_images.shape[1], bins))
    np.add.at(gaps, (column, number), classified.is_correct - classified.confidence)
    return {
        "accuracy": ratio(summed(classified.is_correct.astype(np.float64)), total),
        "accuracy_top5": ratio(summed(classified.is_in_top5), total),
        "nll": ratio(summed(classified.nll), total),
        "ece": ratio(np.abs(of_images @ gaps).sum(axis=1), total),
    }


def oscr(accuracy: Any, correct_auroc: Any) -> Any:
    """Area under the curve of the correct classification rate over the false positive rate.

    At a threshold the correct classification rate is the share of ID images that are accepted with
    the right class, so the area is the accuracy times the AUROC of correctly classified ID images
    against OOD images (Dhamija et al., 2018, arXiv:1811.04110, Section 4, with any score in place
    of the confidence).

    Args:
        accuracy: Of the ID images; a number, or an ndarray of shape (B,).
        correct_auroc: Of the correctly classified ones against OOD images, of the same shape; None
            gives None.
    """
    return None if accuracy is None or correct_auroc is None else accuracy * correct_auroc


def macro_auroc(
    id_scores: np.ndarray,
    ood_scores: np.ndarray,
    category: np.ndarray,
    id_weights: RowWeights | None = None,
    ood_weights: RowWeights | None = None,
) -> Any:
    """Mean over the unknown classes of the AUROC of ID images against the images of one of them.

    Each unknown class counts the same, however many images it has, as in open-set recognition.

    Args:
        id_scores: ndarray of shape (N,).
        ood_scores: ndarray of shape (M,).
        category: Class of each OOD image, ndarray of shape (M,).
        id_weights, ood_weights: see `farther.metrics.ood.evaluate`.

    Returns:
        A fraction, None without ID or OOD images; with weights an ndarray of shape (B,). In a
        replicate without images of a class, the others are averaged.

    Raises:
        DataError: a score is NaN.

    >>> macro_auroc(
    ...     np.array([2.0, 3.0]), np.array([1.0, 1.0, 2.5]), np.array(["fox", "fox", "owl"])
    ... )
    0.75
    """
    each = []
    for name in np.unique(category):
        rows = category == name
        each.append(
            ood.auroc(
                id_scores,
                ood_scores[rows],
                id_weights,
                None if ood_weights is None else ood_weights[rows],
            )
        )
    if id_weights is None:
        return value(mean_of_defined(defined(each)))
    return mean_of_defined(np.array(each).reshape(len(each), len(id_weights.of_images)))
