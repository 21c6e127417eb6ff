"""The tables of images, objects, scores, true classes and outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.tables.arguments import booleans, integers
from farther.tables.columns import BOX, Column
from farther.tables.conversions import Record, indexed, records_of, repeated
from farther.tables.table import Table

#: Category of the crowd that stands for the objects of an image which nobody annotated.
UNLABELLED = "unlabelled"


def label_of(category: str, *, is_crowd: bool) -> str:
    """Text at the box of an object.

    >>> label_of("fox", is_crowd=False), label_of("fox", is_crowd=True)
    ('fox', 'fox (group)')
    >>> label_of(UNLABELLED, is_crowd=True)
    'not annotated'
    """
    if not is_crowd:
        return category
    if category == UNLABELLED:
        return "not annotated"
    return f"{category} (group)"


def why_ignored(is_crowd: np.ndarray, is_difficult: np.ndarray) -> str:
    """What all of some objects are, where none of them counts; "" where one does.

    Metrics ignore crowds and difficult objects: they are neither found nor missed.

    Args:
        is_crowd, is_difficult: bool arrays, one per object.

    >>> why_ignored(np.array([True, False]), np.array([False, True]))
    'crowds (iscrowd) or difficult'
    >>> why_ignored(np.array([True, False]), np.array([False, False]))
    ''
    """
    if not len(is_crowd) or not (is_crowd | is_difficult).all():
        return ""
    if is_crowd.all():
        return "crowds (iscrowd)"
    if is_difficult.all():
        return "difficult"
    return "crowds (iscrowd) or difficult"


class Images(Table):
    """One row per image.

    Columns:
        image_id: Its name, unique in the table.
        dataset: Name of the dataset it comes from.
        file: Path of the file within the dataset's root folder, with forward slashes.
        width, height: Size in pixels, as displayed: turned as the EXIF orientation of the file
            says.
        digest: Digest of the file's content (`farther.tables.files.digest`): a changed image
            changes the table.
    """

    image_id = Column(pl.String, unique=True)
    dataset = Column(pl.String)
    file = Column(pl.String)
    width = Column(pl.Int32)
    height = Column(pl.Int32)
    digest = Column(pl.String)


class Objects(Table):
    """One row per annotated object.

    Columns:
        image_id: The image that shows it.
        object_id: Its number, unique in the table.
        box: xmin, ymin, xmax, ymax in pixels of the image, edges (not pixel indices): a one-pixel
            object is 1 wide.
        category: Name of its class in its dataset.
        is_crowd: The box holds several objects (COCO's iscrowd, OpenImages' IsGroupOf), never found
            or missed alone. A crowd of category `UNLABELLED`, as large as the image, stands for
            what nobody annotated in it.
        is_difficult: The annotators marked it as hard to recognise (Pascal VOC).
    """

    image_id = Column(pl.String)
    object_id = Column(pl.Int64, unique=True)
    box = Column(BOX)
    category = Column(pl.String)
    is_crowd = Column(pl.Boolean, default=False)
    is_difficult = Column(pl.Boolean, default=False)

    @property
    def is_unlabelled(self) -> np.ndarray:
        """Rows that stand for what nobody annotated in an image, ndarray of shape (N,), bool."""
        is_unlabelled = (pl.col("category") == UNLABELLED) & pl.col("is_crowd")
        return self.frame.select(is_unlabelled).to_series().to_numpy()

    @classmethod
    def from_dicts(
        cls,
        targets: Sequence[Mapping[str, Any]],
        classes: Sequence[str] | Mapping[int, str] | None = None,
        image_ids: Sequence[str] | None = None,
    ) -> Self:
        """Objects of one dict of arrays per image, such as `target` in torchmetrics.

        Args:
            targets: `boxes` and `labels` of each image, as for torchmetrics'
                `MeanAveragePrecision`, and `iscrowd` where there are crowds. Labels are names of
                classes, or indices into `classes`. Other keys are not read.
            classes: Names of the classes; by default, the numbers are the names.
            image_ids: Names of the images; "0", "1", … by default.

        Raises:
            DataError: a label is not among `classes`, or arrays differ in length.

        >>> target = {"boxes": [[0, 0, 10, 10], [20, 0, 30, 10]], "labels": ["fox", "cat"]}
        >>> Objects.from_dicts([target]).category.tolist()
        ['fox', 'cat']
        """
        records = records_of(targets, "targets", ("boxes", "labels"))
        labels_by_image, names = indexed([record.array("labels") for record in records], classes)
        counts = [len(labels) for labels in labels_by_image]
        boxes_by_image = [np.zeros((0, 4), np.float32)]
        crowds_by_image = [np.zeros(0, bool)]
        for record, count in zip(records, counts, strict=True):
            boxes_by_image.append(record.floats("boxes", (count, 4)))
            crowds_by_image.append(_are_crowds(record, count))
        labels = np.concatenate([np.zeros(0, np.int64), *labels_by_image])
        return cls(
            image_id=repeated(image_ids, counts),
            object_id=np.arange(sum(counts)),
            box=np.concatenate(boxes_by_image),
            category=np.array(names, dtype=object)[labels],
            is_crowd=np.concatenate(crowds_by_image),
        )


def _are_crowds(record: Record, count: int) -> np.ndarray:
    """Objects of an image that are crowds, ndarray of shape (count,), bool.

    Args:
        record: Its `iscrowd` may be booleans, or 0 and 1 as in COCO.
        count: Number of objects.
    """
    if "iscrowd" not in record.values:
        return np.zeros(count, dtype=bool)
    array = record.array("iscrowd")
    if array.dtype == bool:
        return booleans(array, record.name("iscrowd"), shape=(count,))
    are_crowds = integers(array, record.name("iscrowd"), shape=(count,))
    if not np.isin(are_crowds, (0, 1)).all():
        raise DataError("expected 0 or 1", field=record.name("iscrowd"))
    return are_crowds.astype(bool)


class Scores(Table):
    """A method's score, one row per region.

    Columns:
        image_id, region_id: The region.
        score: Higher means more in-distribution.
    """

    image_id = Column(pl.String)
    region_id = Column(pl.Int64)
    score = Column(pl.Float64)


class TrueClasses(Table):
    """True class of each detection in annotated images, one row per detection.

    Columns:
        image_id, region_id: The detection.
        category: Class of the object that it overlaps; empty where it overlaps none.
    """

    image_id = Column(pl.String)
    region_id = Column(pl.Int64)
    category = Column(pl.String)


#: Outcomes of an object: found (detected and flagged unknown), misclassified (detected as a known
#: class), missed (no detection matched), not_counted (crowds and difficult objects, and known
#: objects in OOD splits). In the ID test split, where the objects are known: correct (kept as its
#: own class), wrong_class (kept as another one only), flagged (flagged as unknown), or missed.
OBJECT_OUTCOMES = (
    "found",
    "misclassified",
    "missed",
    "not_counted",
    "correct",
    "wrong_class",
    "flagged",
)

#: Outcomes of a detection: found (flagged unknown and matched to an unknown object), misclassified
#: (kept as a known class on an unknown object), false_unknown (flagged unknown without an unknown
#: object), known (kept as a known class elsewhere), ignored (in a crowd, or not counted by the
#: protocol).
REGION_OUTCOMES = ("found", "misclassified", "false_unknown", "known", "ignored")


class RegionOutcomes(Table):
    """Outcome of each detection (region at or above t*) for one method.

    In the order of the regions table. Stored as `outcomes/<run>/<method>/<split>.parquet`; see
    `farther.evaluation.files.RunFiles`.

    Columns:
        image_id, region_id: The detection.
        outcome: One of `REGION_OUTCOMES`.
        object_id: The unknown object that it was matched to (found), or that it overlaps most
            (misclassified); else −1.
        iou: Overlap with that object as the protocol computes it; 0 without an object.
    """

    image_id = Column(pl.String)
    region_id = Column(pl.Int64)
    outcome = Column(pl.String, among=REGION_OUTCOMES)
    object_id = Column(pl.Int64)
    iou = Column(pl.Float64)


class ObjectOutcomes(Table):
    """Outcome of each object of a split for one method, counted or not.

    In the order of the objects table. Stored as `outcomes/<run>/<method>/<split>.objects.parquet`.

    Columns:
        image_id, object_id, category: The object.
        outcome: One of `OBJECT_OUTCOMES`.
        region_id: The detection that decided: the one that was matched, or the most confident one
            that is kept as a wrong class; −1 where there is none.
    """

    image_id = Column(pl.String)
    object_id = Column(pl.Int64)
    category = Column(pl.String)
    outcome = Column(pl.String, among=OBJECT_OUTCOMES)
    region_id = Column(pl.Int64)


class SortedClasses(Table):
    """One row per class of a dataset that a benchmark takes images of other classes from.

    Stored as `splits/<benchmark>/classes.parquet`.

    Columns:
        dataset, category: The class.
        oodness: 0: it is an ID class; 1: it overlaps with one; 2: it is near to one; 3: neither. In
            Recalcati et al., "Toward a Realistic Benchmark for Out-of-Distribution Detection",
            2023, people decide this.
        rule: The rule that decided; "" for none.
        id_class: The ID class of that rule, or else the most similar one; "" where neither is
            known.
        similarity: Similarity to `nearest` by name; -1 without a hierarchy.
        nearest: The most similar ID class by name; "" without a hierarchy.
    """

    dataset = Column(pl.String)
    category = Column(pl.String)
    oodness = Column(pl.Int16)
    rule = Column(pl.String)
    id_class = Column(pl.String)
    similarity = Column(pl.Float64)
    nearest = Column(pl.String)


class ImageAttributes(Table):
    """Labels of images other than their objects, such as the weather.

    Stored as `tables/<dataset>/<subset>/attributes.parquet`, for datasets that have such labels.

    Columns:
        image_id: The image.
        attribute: Name of the attribute, such as `weather`, `scene` or `timeofday`.
        value: Value of the attribute for the image, such as `rainy`.
    """

    image_id = Column(pl.String)
    attribute = Column(pl.String)
    value = Column(pl.String)


class ImageClasses(Table):
    """The class that decides on the OODness of each image of a split.

    Stored as `splits/<benchmark>/<split>/classes.parquet`, for splits whose images are chosen by
    rules.

    Columns:
        image_id: The image.
        category: The class of lowest OODness that it shows, as its dataset calls it; "" without
            objects.
        oodness: That of the class, see `SortedClasses`; 3 without objects.
    """

    image_id = Column(pl.String, unique=True)
    category = Column(pl.String)
    oodness = Column(pl.Int16)


class ClassPairs(Table):
    """Similarity of each class of other datasets to each ID class, by their names.

    Stored as `splits/<benchmark>/similarities.parquet`, for benchmarks whose rules use a hierarchy.

    Columns:
        category, id_class: The two classes.
        path, wu_palmer, leacock_chodorow: See `farther.datasets.hierarchy.NameSimilarity`.
    """

    category = Column(pl.String)
    id_class = Column(pl.String)
    path = Column(pl.Float32)
    wu_palmer = Column(pl.Float32)
    leacock_chodorow = Column(pl.Float32)
