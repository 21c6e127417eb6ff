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
from farther.tables.arguments import (
    array_of,
    booleans,
    floats,
    instance,
    number,
    texts,
    whole_number,
)

#: Bins of the expected calibration error, as Guo et al. (2017) take them.
BINS = 15

#: Classes that count as guesses of top-5 accuracy.
GUESSES = 5


@dataclass(frozen=True)
class Classified:
    """Images with a label of a known class, and a classifier's predictions; columns of length N.

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

    def __post_init__(self) -> None:
        images = texts(self.images, "images")
        shape = (len(images),)
        object.__setattr__(self, "images", images)
        is_correct = booleans(self.is_correct, "is_correct", shape=shape)
        object.__setattr__(self, "is_correct", is_correct)
        for name in ("confidence", "nll", "is_in_top5"):
            values = floats(getattr(self, name), name, shape=shape, nan=name != "confidence")
            object.__setattr__(self, name, values)

    @classmethod
    def of(cls, objects: Objects, regions: Regions) -> Classified:
        """The labelled images of a split.

        Args:
            objects: Image labels; those that are not classes of the classifier are left out.
            regions: One per image.

        Raises:
            DataError: an image has two regions, or a labelled image has none.
        """
        labels = _labelled_rows(objects, regions)
        row = labels["row"].to_numpy()
        label = labels["label"].to_numpy()
        logits = regions.logits[row].astype(np.float64)
        nll = np.full(len(row), np.nan)
        if regions.activation == "softmax":
            nll = _negative_log_likelihood(logits, label)
        by_image = (
            labels.with_columns(
                correct=pl.Series(regions.label[row] == label),
                confidence=pl.Series(regions.score[row].astype(np.float64)),
                nll=pl.Series(nll),
                in_top5=pl.Series(_is_in_top5(logits, label, _class_columns(regions))),
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
            images=by_image["image_id"].to_numpy().astype(object),
            is_correct=by_image["correct"].to_numpy(),
            confidence=by_image["confidence"].to_numpy(),
            nll=by_image["nll"].to_numpy(),
            is_in_top5=by_image["in_top5"].to_numpy(),
        )


def _class_columns(regions: Regions) -> Mapping[str, int]:
    """Class → its column of the logits, without the background."""
    return {
        name: column
        for column, name in enumerate(regions.classes)
        if column != regions.background_index
    }


def _labelled_rows(objects: Objects, regions: Regions) -> pl.DataFrame:
    """One row per image label that is a class of the classifier.

    Args:
        objects, regions: See `Classified.of`.

    Returns:
        Columns `image_id`, `label` (column of the logits), `row` (of the image's region).

    Raises:
        DataError: an image has two regions, or a labelled image has none.
    """
    column_by_class = _class_columns(regions)
    labels = pl.DataFrame(
        {
            "image_id": objects.image_id.astype(str),
            "label": [column_by_class.get(name) for name in objects.category],
        },
        schema_overrides={"label": pl.Int64},
    ).drop_nulls()
    rows = pl.DataFrame({"image_id": regions.image_id.astype(str)}).with_row_index("row")
    if len(rows) != rows["image_id"].n_unique():
        raise DataError("a classifier has one region per image, found two of one", field="image_id")
    labelled = labels.join(rows, on="image_id", how="left", maintain_order="left")
    if labelled["row"].null_count():
        image = labelled.filter(pl.col("row").is_null())["image_id"][0]
        raise DataError(f"the labelled image {image!r} has no region", field="image_id")
    return labelled


def _negative_log_likelihood(logits: np.ndarray, label: np.ndarray) -> np.ndarray:
    """−ln of the softmax probability of each row's label, ndarray of shape (N,).

    Args:
        logits: ndarray of shape (N, C).
        label: Column of each row's label, ndarray of shape (N,).
    """
    highest = logits.max(axis=1, keepdims=True)
    log_sum = highest[:, 0] + np.log(np.exp(logits - highest).sum(axis=1))
    return log_sum - logits[np.arange(len(logits)), label]


def _is_in_top5(
    logits: np.ndarray, label: np.ndarray, column_by_class: Mapping[str, int]
) -> np.ndarray:
    """Whether each row's label is among the five classes of the highest logits.

    Of equal logits the first is the higher one.

    Args:
        logits: ndarray of shape (N, C).
        label: Column of each row's label, ndarray of shape (N,).
        column_by_class: Columns of the K classes, which leave out a background column.

    Returns:
        ndarray of shape (N,): 1 or 0; NaN where K is at most five.
    """
    class_columns = sorted(column_by_class.values())
    if len(class_columns) <= GUESSES:
        return np.full(len(logits), np.nan)
    class_logits = logits[:, class_columns]
    position = np.searchsorted(class_columns, label)
    own = class_logits[np.arange(len(class_logits)), position][:, None]
    is_higher = class_logits > own
    is_earlier = np.arange(len(class_columns)) < position[:, None]
    rank = (is_higher | ((class_logits == own) & is_earlier)).sum(axis=1)
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

    >>> classified = Classified(
    ...     images=np.array(["a", "b"], dtype=object),
    ...     is_correct=np.array([True, False]),
    ...     confidence=np.array([0.9, 0.6]),
    ...     nll=np.array([0.1, 1.0]),
    ...     is_in_top5=np.array([1.0, 1.0]),
    ... )
    >>> values = metrics(classified)
    >>> values["accuracy"].item(), round(values["nll"].item(), 3), round(values["ece"].item(), 3)
    (0.5, 0.55, 0.35)
    >>> values["accuracy_top5"].item()
    1.0
    """
    count = len(instance(classified, Classified, "classified").images)
    bins = whole_number(bins, "bins", at_least=1)
    image_weights, column = columns(weights, count)
    image_weights = image_weights.astype(np.float64)

    def summed(values: np.ndarray) -> np.ndarray:
        per_column = np.bincount(column, values, minlength=image_weights.shape[1])
        return image_weights @ per_column

    # Bins are open below and closed above, as in Guo et al.
    bin_index = np.ceil(classified.confidence * bins).astype(np.int64) - 1
    bin_index = np.clip(bin_index, 0, bins - 1)
    gap_per_bin = np.zeros((image_weights.shape[1], bins))
    np.add.at(gap_per_bin, (column, bin_index), classified.is_correct - classified.confidence)
    total_gap = np.abs(image_weights @ gap_per_bin).sum(axis=1)

    total = summed(np.ones(count))
    return {
        "accuracy": ratio(summed(classified.is_correct.astype(np.float64)), total),
        "accuracy_top5": ratio(summed(classified.is_in_top5), total),
        "nll": ratio(summed(classified.nll), total),
        "ece": ratio(total_gap, total),
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
    if accuracy is None or correct_auroc is None:
        return None
    return _fractions(accuracy, "accuracy") * _fractions(correct_auroc, "correct_auroc")


def _fractions(values: Any, name: str) -> Any:
    """A number, or one per replicate, NaN where it is not defined."""
    array = array_of(values, name)
    if array.ndim:
        return floats(array, name, nan=True)
    return number(array, name)


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
        DataError: a score is not finite, or `category` has another length.

    >>> category = np.array(["fox", "fox", "owl"])
    >>> macro_auroc(np.array([2.0, 3.0]), np.array([1.0, 1.0, 2.5]), category)
    0.75
    """
    id_scores = floats(id_scores, "id_scores")
    ood_scores = floats(ood_scores, "ood_scores")
    category = texts(category, "category", length=len(ood_scores))
    aurocs = []
    for name in sorted(set(category)):
        rows = category == name
        class_weights = None if ood_weights is None else ood_weights[rows]
        aurocs.append(ood.auroc(id_scores, ood_scores[rows], id_weights, class_weights))
    if id_weights is None:
        return value(mean_of_defined(defined(aurocs)))
    return mean_of_defined(np.array(aurocs).reshape(len(aurocs), len(id_weights.of_images)))
