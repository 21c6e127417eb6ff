"""Conversion of arrays and of other libraries' detections to regions, and back.

Other libraries are imported only by the `to_…` methods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from farther.errors import DataError, shorten
from farther.tables.arguments import array_of, class_names, floats, integers, number, texts
from farther.tables.header import unique_names
from farther.tables.library_results import label_numbers, ultralytics_boxes, weight_and_bias

# Imported in functions: the libraries that are converted to, which are optional.

#: The largest index of a class that the column `label` holds.
LARGEST_LABEL = int(np.iinfo(np.int16).max)


@dataclass(frozen=True)
class ImageDetections:
    """Detections of one image.

    Args:
        boxes: ndarray of shape (N, 4).
        scores: ndarray of shape (N,).
        labels: Indices of classes, ndarray of shape (N,).
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, boxes: Any, scores: Any, labels: Any, names: Sequence[str]) -> ImageDetections:
        """Detections of one image as a user gives them.

        Args:
            boxes, scores, labels: See the class.
            names: Of these three in what the user gave, for messages.

        Raises:
            DataError: they are not numbers, labels are not whole, or numbers of rows differ.
        """
        box = floats(boxes, names[0], shape=(None, 4), dtype=np.float32)
        score = floats(scores, names[1], shape=(len(box),), dtype=np.float32)
        label = integers(labels, names[2], shape=(len(box),))
        return cls(box, score, label)


class Conversions:
    """Constructors from arrays and from the results of other libraries, and conversions to them.

    Boxes are xmin, ymin, xmax, ymax in pixels. Tensors may be on any device and in any precision.
    Results of libraries have no logits: methods that need more than boxes, classes and scores do
    not apply.
    """

    @classmethod
    def from_dicts(
        cls,
        predictions: Any,
        classes: Sequence[str] | Mapping[int, str] | None = None,
        image_ids: Sequence[str] | None = None,
    ) -> Self:
        """Regions of one dict of arrays per image, such as `preds` in torchmetrics.

        Args:
            predictions: `boxes`, `scores` and `labels` of each image, as for torchmetrics'
                `MeanAveragePrecision`, and `logits` where there are some. Labels are names of
                classes, or indices into `classes`. Other keys are not read.
            classes: Names of all classes of the detector; left out, those that occur, or "0", "1",
                … for numbers, which metrics complete by those of the objects.
            image_ids: Names of the images; "0", "1", … by default.

        Raises:
            DataError: a label is not among `classes`, or arrays differ in length.
        """
        records = records_of(predictions, "predictions", ("boxes", "scores", "labels"))
        label_arrays = [record.array("labels") for record in records]
        labels, names = indexed(label_arrays, classes)
        detections_by_image = []
        logits_by_image = []
        for record, image_labels in zip(records, labels, strict=True):
            boxes = record.floats("boxes", (len(image_labels), 4))
            scores = record.floats("scores", (len(image_labels),))
            detections_by_image.append(ImageDetections(boxes, scores, image_labels))
            if "logits" in record.values and len(boxes):
                shape = (len(image_labels), len(names))
                logits_by_image.append(record.floats("logits", shape))
        logits = None
        if logits_by_image:
            logits = np.concatenate(logits_by_image)
        return cls._from_detections(
            detections_by_image, image_ids, names, logits=logits, are_observed=classes is None
        )

    @classmethod
    def from_arrays(
        cls,
        logits: Any = None,
        features: Any = None,
        labels: Any = None,
        *,
        scores: Any = None,
        boxes: Any = None,
        images: Sequence[str] | None = None,
        classes: Sequence[str] | Mapping[int, str] | None = None,
        last_layer: Any = None,
    ) -> Self:
        """Regions of plain arrays, or of tensors on any device, which most scores need.

        Args:
            logits: Shape (N, K), without a background; tensors in bfloat16 or float16 too.
            features: Input of the last linear layer, shape (N, D).
            labels: Class of each region, an index, shape (N,); the class with the largest logit
                when None.
            scores: Confidence of each region, shape (N,); the largest softmax probability when
                None.
            boxes: Shape (N, 4): xmin, ymin, xmax, ymax; placeholders when None.
            images: Image of each region; each region has an image of its own when None.
            classes: Names of the K classes; "0", "1", … when None.
            last_layer: The last linear layer, or its weight (K, D) and bias (K,); the bias may be
                None.

        Raises:
            DataError: neither logits nor labels are given, or arrays do not fit together.

        >>> import numpy as np
        >>> from farther.tables import Regions
        >>> regions = Regions.from_arrays(logits=np.array([[2.0, 0.0], [0.0, 1.0]]))
        >>> regions.label.tolist(), np.round(regions.score.astype(float), 2).tolist()
        ([0, 1], [0.88, 0.73])
        """
        if logits is None and labels is None:
            raise DataError("expected logits, labels, or both", field="logits")
        z = None
        if logits is not None:
            z = floats(logits, "logits", shape=(None, None), dtype=np.float32)
            if not z.shape[1]:
                raise DataError("expected one column per class, found none", field="logits")
        if labels is not None:
            rows = None if z is None else len(z)
            label = integers(labels, "labels", shape=(rows,))
        else:
            assert z is not None
            label = z.argmax(axis=1)
        count = len(label)

        if scores is not None:
            score = floats(scores, "scores", shape=(count,), dtype=np.float32)
        elif z is not None:
            score = _largest_softmax(z)
        else:
            score = np.ones(count, np.float32)

        names = [] if classes is None else class_names(classes)
        are_observed = not names and z is None
        if not names:
            class_count = int(label.max(initial=-1)) + 1
            if z is not None:
                class_count = z.shape[1]
            names = _numbers_as_names(class_count, "labels")

        if images is None:
            image_id = repeated(None, [1] * count)
        else:
            image_id = texts(images, "images", length=count)
        if boxes is None:
            box = np.tile(np.array([0, 0, 1, 1], np.float32), (count, 1))
        else:
            box = floats(boxes, "boxes", shape=(count, 4), dtype=np.float32)

        optional = {}
        if features is not None:
            shape = (count, None)
            optional["features"] = floats(features, "features", shape=shape, dtype=np.float32)
        if last_layer is not None:
            weight, bias = weight_and_bias(last_layer)
            optional["weight"] = array_of(weight, "last_layer")
            optional["bias"] = array_of(bias, "last_layer")
        with _named(box="boxes", score="scores", label="labels", image_id="images"):
            return cls(
                image_id=image_id,
                region_id=np.arange(count),
                box=box,
                score=score,
                label=label,
                logits=z,
                classes=unique_names(names),
                are_observed=are_observed,
                **optional,
            )  # type: ignore[call-arg]

    @classmethod
    def from_ultralytics(cls, results: Any, image_ids: Sequence[str] | None = None) -> Self:
        """Regions of the results of Ultralytics' `YOLO(…)(images)`: a list of `Results`, or one.

        Args:
            results: Objects with `boxes` or `obb` (`xyxy`, `conf`, `cls`), `names` and `path`. Of
                oriented boxes, the upright boxes around them are taken; masks and key points are
                not read.
            image_ids: Names of the images; the paths by default.
        """
        results = _as_list(results)
        _require_results(results)
        names = getattr(results[0], "names", ())
        if any(getattr(result, "names", ()) != names for result in results):
            raise DataError(
                "the results are of models with different classes: convert those of each model",
                field="names",
            )
        detections_by_image = []
        for result in results:
            boxes = ultralytics_boxes(result)
            detections_by_image.append(
                ImageDetections.of(boxes.xyxy, boxes.conf, boxes.cls, ("xyxy", "conf", "cls"))
            )
        if not image_ids:
            image_ids = [str(result.path) for result in results]
        return cls._from_detections(
            detections_by_image, image_ids, unique_names(class_names(names, "names"))
        )

    @classmethod
    def from_torchvision(
        cls, outputs: Any, image_ids: Sequence[str], classes: Sequence[str] | Mapping[int, str]
    ) -> Self:
        """Regions of the outputs of one of torchvision's detection models.

        Args:
            outputs: One dict of `boxes`, `scores` and `labels`, numbers or names, per image.
            image_ids: Names of the images.
            classes: Name of each label, that of label 0 (`__background__`) included, as
                `weights.meta["categories"]`; a name that occurs twice (COCO's "N/A") gets its
                number.
        """
        names = unique_names(class_names(classes))
        detections = _detections(outputs, names)
        return cls._from_detections(detections, image_ids, names, background_index=0)

    @classmethod
    def from_transformers(
        cls, outputs: Any, image_ids: Sequence[str], classes: Sequence[str] | Mapping[int, str]
    ) -> Self:
        """Regions of the results of an image processor's `post_process_object_detection`.

        Args:
            outputs: One dict of `boxes`, `scores` and `labels`, numbers or names, per image.
            image_ids: Names of the images.
            classes: The model's `config.id2label`; a name that occurs twice gets its number.
        """
        names = unique_names(class_names(classes))
        return cls._from_detections(_detections(outputs, names), image_ids, names)

    @classmethod
    def from_supervision(
        cls, detections: Any, image_ids: Sequence[str], classes: Sequence[str] | Mapping[int, str]
    ) -> Self:
        """Regions of supervision's `Detections`.

        Args:
            detections: One `Detections` (`xyxy`, `confidence`, `class_id`), or one per image.
            image_ids: Names of the images.
            classes: Name of each `class_id`.
        """
        detections_by_image = []
        for image, of_image in enumerate(_as_list(detections)):
            place = f"detections[{image}]."
            for name in ("xyxy", "confidence", "class_id"):
                if getattr(of_image, name, None) is None:
                    found = type(of_image).__name__
                    raise DataError(f"this {found} does not have it", field=f"{place}{name}")
            names = [f"{place}{name}" for name in ("xyxy", "confidence", "class_id")]
            detections_by_image.append(
                ImageDetections.of(of_image.xyxy, of_image.confidence, of_image.class_id, names)
            )
        return cls._from_detections(
            detections_by_image, image_ids, unique_names(class_names(classes))
        )

    def to_supervision(self: Any) -> dict[str, Any]:
        """supervision's `Detections` of each image that has a region, by `image_id`.

        Needs the package supervision.
        """
        import supervision

        detections_by_image = {}
        for image_id, regions in _by_image(self):
            data = {
                "class_name": np.array([self.classes[label] for label in regions.label]),
                "region_id": regions.region_id,
            }
            detections_by_image[image_id] = supervision.Detections(
                xyxy=regions.box,
                confidence=regions.score,
                class_id=regions.label.astype(int),
                data=data,
            )
        return detections_by_image

    def to_fiftyone(self: Any, sizes: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
        """FiftyOne's `Detections` of each image that has a region, by `image_id`.

        Needs the package fiftyone.

        Args:
            sizes: Width and height of each image: FiftyOne's boxes are fractions of them.

        Raises:
            DataError: the size of an image is missing.
        """
        import fiftyone

        detections_by_image = {}
        for image_id, regions in _by_image(self):
            if image_id not in sizes:
                raise DataError(f"no size of image {image_id!r} is given", field="sizes")
            size = floats(sizes[image_id], "sizes", shape=(2,))
            for length in size:
                number(length, "sizes", above=0)
            box = regions.box.astype(np.float64) / np.tile(size, 2)
            box[:, 2:] -= box[:, :2]
            detections = []
            for edges, label, score in zip(box, regions.label, regions.score, strict=True):
                detection = fiftyone.Detection(
                    label=self.classes[label],
                    bounding_box=edges.tolist(),
                    confidence=float(score),
                )
                detections.append(detection)
            detections_by_image[image_id] = fiftyone.Detections(detections=detections)
        return detections_by_image

    @classmethod
    def _from_detections(
        cls,
        detections_by_image: Sequence[ImageDetections],
        image_ids: Sequence[str] | None,
        classes: Sequence[str],
        background_index: int | None = None,
        logits: np.ndarray | None = None,
        *,
        are_observed: bool = False,
    ) -> Self:
        """Regions of the detections of each image."""
        _require_results(detections_by_image)
        counts = [len(detections.scores) for detections in detections_by_image]
        scores = [detections.scores for detections in detections_by_image]
        labels = [detections.labels for detections in detections_by_image]
        boxes = [detections.boxes for detections in detections_by_image]
        with _named(box="boxes", score="scores", label="labels", image_id="image_ids"):
            return cls(
                image_id=repeated(image_ids, counts),
                region_id=np.arange(sum(counts)),
                box=np.concatenate(boxes),
                score=np.concatenate(scores),
                label=np.concatenate(labels),
                classes=tuple(classes),
                background_index=background_index,
                logits=logits,
                are_observed=are_observed and logits is None,
            )  # type: ignore[call-arg]


@contextmanager
def _named(**argument_by_column: str) -> Iterator[None]:
    """Errors about a column name the argument that it was made of."""
    try:
        yield
    except DataError as error:
        field = error.field
        if field is not None:
            field = argument_by_column.get(field, field)
        raise DataError(error.problem, file=error.file, row=error.row, field=field) from None


@dataclass(frozen=True)
class Record:
    """One of the dicts that a user gives, with one array of an image per key.

    Args:
        values: The arrays by key.
        place: Where the dict is in what the user gave, such as "targets[0]".
    """

    values: Mapping[str, Any]
    place: str

    def name(self, key: str) -> str:
        """The place of an array, for messages."""
        return f'{self.place}["{key}"]'

    def array(self, key: str) -> np.ndarray:
        """An array as it is; see `array_of`."""
        return array_of(self.values[key], self.name(key))

    def floats(self, key: str, shape: tuple[int | None, ...]) -> np.ndarray:
        """Numbers, float32; see `floats`."""
        return floats(self.values[key], self.name(key), shape=shape, dtype=np.float32)

    def integers(self, key: str, shape: tuple[int | None, ...]) -> np.ndarray:
        """Whole numbers; see `integers`."""
        return integers(self.values[key], self.name(key), shape=shape)


def records_of(values: Any, name: str, keys: Sequence[str]) -> list[Record]:
    """One record per image of a list of dicts, or of one dict.

    Args:
        values: What the user gave.
        name: Of the argument, in messages.
        keys: Keys that each dict must have.

    Raises:
        DataError: it is no list of dicts, or a dict lacks a key.
    """
    records = []
    for image, record in enumerate(_as_list(values)):
        place = f"{name}[{image}]"
        if not isinstance(record, Mapping):
            found = type(record).__name__
            raise DataError(f"expected a dict of arrays, found {found}", field=place)
        for key in keys:
            if record.get(key) is None:
                listed = ", ".join(map(str, record)) or "nothing"
                raise DataError(f"no {key!r}; it has {shorten(listed)}", field=place)
        records.append(Record(record, place))
    return records


def repeated(image_ids: Sequence[str] | None, counts: Sequence[int]) -> np.ndarray:
    """The image of each row: its name, or its number where there are no names.

    Args:
        image_ids: Names of the images.
        counts: Number of rows of each image.

    Returns:
        ndarray of shape (sum of `counts`,), objects: the rows of one image follow each other.

    Raises:
        DataError: there are not as many names as results, or two results have one name.
    """
    if image_ids is None:
        names = [str(number) for number in range(len(counts))]
    else:
        names = list(texts(image_ids, "image_ids"))
    if len(names) != len(counts):
        problem = f"{len(counts)} results, but {len(names)} names of images"
        raise DataError(problem, field="image_ids")
    for name, count in Counter(names).items():
        if count > 1:
            problem = (
                f"{count} results are of an image called {name!r}: "
                "give each image a name of its own"
            )
            raise DataError(problem, field="image_ids")
    return np.repeat(np.array(names, dtype=object), counts)


def indexed(labels: Sequence[np.ndarray], classes: Any) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Labels of each image as indices into names of classes, and these names.

    Args:
        labels: Names of classes, or indices, an array for each image.
        classes: The names; None: those that occur, or "0", "1", … up to the largest index.

    Raises:
        DataError: a label is not among `classes`.
    """
    are_names = any(
        image_labels.size and image_labels.dtype.kind in "OUST" for image_labels in labels
    )
    listed = []
    for image_labels in labels:
        if are_names:
            listed.append(texts(image_labels, "labels", strict=True).tolist())
        else:
            listed.append(integers(image_labels, "labels").tolist())
    sorted_labels = sorted(set().union(*listed))

    if classes is not None:
        names = class_names(classes)
        if not are_names:
            names = list(unique_names(names))
    elif are_names:
        names = sorted_labels
    else:
        names = _numbers_as_names(max(sorted_labels, default=-1) + 1, "labels")

    index_by_label: dict[Any, int] = {number: number for number in range(len(names))}
    if are_names:
        index_by_label = {name: number for number, name in enumerate(names)}
    for label in sorted_labels:
        if label not in index_by_label:
            problem = f"label {label!r} is not among the classes: {', '.join(names)}"
            raise DataError(problem, field="labels")
    indices_by_image = []
    for image_labels in listed:
        indices = [index_by_label[label] for label in image_labels]
        indices_by_image.append(np.array(indices, dtype=np.int64))
    return indices_by_image, tuple(names)


def _numbers_as_names(count: int, name: str) -> list[str]:
    """Numbers of classes as their names.

    Args:
        count: Number of classes.
        name: Of the argument that it was taken from, in messages.
    """
    if count > LARGEST_LABEL + 1:
        problem = f"a class has the number {count - 1}; the largest is {LARGEST_LABEL}"
        raise DataError(problem, field=name)
    return [str(number) for number in range(count)]


def _largest_softmax(logits: np.ndarray) -> np.ndarray:
    """The largest softmax probability of each row."""
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities.max(axis=1)


def _as_list(results: Any) -> list[Any]:
    """One result per image, also of a single one."""
    if isinstance(results, (list, tuple, Iterator)):
        return list(results)
    return [results]


def _detections(outputs: Any, classes: Sequence[str]) -> list[ImageDetections]:
    """The detections of dicts of `boxes`, `scores` and `labels`, which may be names of classes."""
    detections_by_image = []
    for record in records_of(outputs, "outputs", ("boxes", "scores", "labels")):
        detections = ImageDetections.of(
            record.values["boxes"],
            record.values["scores"],
            label_numbers(record.values["labels"], classes),
            [record.name(key) for key in ("boxes", "scores", "labels")],
        )
        detections_by_image.append(detections)
    return detections_by_image


def _require_results(results: Sequence[Any]) -> None:
    if not results:
        raise DataError("no results: expected one per image", field="image_ids")


def _by_image(regions: Any) -> Iterable[tuple[str, Any]]:
    """The regions of each image, in the order of the first region of each."""
    for image_id in dict.fromkeys(regions.image_id.tolist()):
        yield image_id, regions[regions.image_id == image_id]
