"""Conversion of arrays and of other libraries' detections to regions, and back.

Other libraries are imported only by the `to_…` methods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from farther.errors import DataError
from farther.tables.arrays import array_of
from farther.tables.header import unique_names
from farther.tables.library_results import label_numbers, ultralytics_boxes, weight_and_bias

if TYPE_CHECKING:
    from farther.tables.regions import Regions


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
        classes: Sequence[str] | None = None,
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
        predictions = _as_list(predictions)
        labels, names = indexed([prediction["labels"] for prediction in predictions], classes)
        detections_by_image = []
        logits_by_image = []
        for prediction, image_labels in zip(predictions, labels, strict=True):
            boxes = array_of(prediction["boxes"])
            scores = array_of(prediction["scores"])
            detections_by_image.append(ImageDetections(boxes, scores, image_labels))
            if "logits" in prediction and len(boxes):
                logits_by_image.append(array_of(prediction["logits"]))
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
        classes: Sequence[str] | None = None,
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
            z = array_of(logits).astype(np.float32)
        if labels is not None:
            label = array_of(labels)
        else:
            assert z is not None
            label = z.argmax(axis=1)
        count = len(label)

        if scores is not None:
            score = array_of(scores)
        elif z is not None:
            score = _largest_softmax(z)
        else:
            score = np.ones(count, np.float32)

        are_observed = not classes and z is None
        if not classes:
            class_count = int(label.max(initial=-1)) + 1
            if z is not None:
                class_count = z.shape[1]
            classes = [str(number) for number in range(class_count)]

        if images is None:
            image_id = repeated(None, [1] * count)
        else:
            image_id = np.array([str(image) for image in images], dtype=object)
        if boxes is None:
            box = np.tile(np.array([0, 0, 1, 1], np.float32), (count, 1))
        else:
            box = boxes_of([boxes])

        optional = {}
        if features is not None:
            optional["features"] = array_of(features).astype(np.float32)
        if last_layer is not None:
            weight, bias = weight_and_bias(last_layer)
            optional["weight"] = array_of(weight)
            optional["bias"] = array_of(bias)
        return cls(
            image_id=image_id,
            region_id=np.arange(count),
            box=box,
            score=score,
            label=label,
            logits=z,
            classes=unique_names(classes),
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
                ImageDetections(array_of(boxes.xyxy), array_of(boxes.conf), array_of(boxes.cls))
            )
        if not image_ids:
            image_ids = [str(result.path) for result in results]
        return cls._from_detections(detections_by_image, image_ids, _class_names(names))

    @classmethod
    def from_torchvision(
        cls, outputs: Any, image_ids: Sequence[str], classes: Sequence[str]
    ) -> Self:
        """Regions of the outputs of one of torchvision's detection models.

        Args:
            outputs: One dict of `boxes`, `scores` and `labels`, numbers or names, per image.
            image_ids: Names of the images.
            classes: Name of each label, that of label 0 (`__background__`) included, as
                `weights.meta["categories"]`; a name that occurs twice (COCO's "N/A") gets its
                number.
        """
        names = unique_names(classes)
        detections = _detections(outputs, names)
        return cls._from_detections(detections, image_ids, names, background_index=0)

    @classmethod
    def from_transformers(
        cls, outputs: Any, image_ids: Sequence[str], classes: Mapping[int, str]
    ) -> Self:
        """Regions of the results of an image processor's `post_process_object_detection`.

        Args:
            outputs: One dict of `boxes`, `scores` and `labels`, numbers or names, per image.
            image_ids: Names of the images.
            classes: The model's `config.id2label`; a name that occurs twice gets its number.
        """
        names = _class_names(classes)
        return cls._from_detections(_detections(outputs, names), image_ids, names)

    @classmethod
    def from_supervision(
        cls, detections: Any, image_ids: Sequence[str], classes: Sequence[str]
    ) -> Self:
        """Regions of supervision's `Detections`.

        Args:
            detections: One `Detections` (`xyxy`, `confidence`, `class_id`), or one per image.
            image_ids: Names of the images.
            classes: Name of each `class_id`.
        """
        detections = _as_list(detections)
        for name in ("confidence", "class_id"):
            if any(getattr(of_image, name) is None for of_image in detections):
                raise DataError("these detections of supervision do not have it", field=name)
        detections_by_image = []
        for of_image in detections:
            boxes = array_of(of_image.xyxy)
            scores = array_of(of_image.confidence)
            labels = array_of(of_image.class_id)
            detections_by_image.append(ImageDetections(boxes, scores, labels))
        return cls._from_detections(detections_by_image, image_ids, unique_names(classes))

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
            box = regions.box.astype(np.float64) / np.tile(sizes[image_id], 2)
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
        return cls(
            image_id=repeated(image_ids, counts),
            region_id=np.arange(sum(counts)),
            box=boxes_of([detections.boxes for detections in detections_by_image]),
            score=np.concatenate(scores),
            label=np.concatenate(labels).astype(np.int16),
            classes=tuple(classes),
            background_index=background_index,
            logits=logits,
            are_observed=are_observed and logits is None,
        )  # type: ignore[call-arg]


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
        names = [str(name) for name in image_ids]
    if len(names) != len(counts):
        problem = f"{len(counts)} results, but {len(names)} names of images"
        raise DataError(problem, field="image_id")
    for name, count in Counter(names).items():
        if count > 1:
            problem = (
                f"{count} results are of an image called {name!r}: "
                "give each image a name of its own, as `image_ids`"
            )
            raise DataError(problem, field="image_id")
    return np.repeat(np.array(names, dtype=object), counts)


def indexed(
    labels: Sequence[Any], classes: Sequence[str] | None
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Labels of each image as indices into names of classes, and these names.

    Args:
        labels: Names of classes, or indices.
        classes: The names; None: those that occur, or "0", "1", … up to the largest index.

    Raises:
        DataError: a label is not among `classes`.
    """
    labels_by_image = [array_of(image_labels) for image_labels in labels]
    are_names = any(image_labels.dtype.kind in "OU" for image_labels in labels_by_image)
    unique_labels = set()
    for image_labels in labels_by_image:
        unique_labels.update(image_labels.tolist())
    sorted_labels = sorted(unique_labels)

    if classes is None and are_names:
        classes = sorted_labels
    elif classes is None:
        count = int(max(sorted_labels, default=-1)) + 1
        classes = [str(number) for number in range(count)]
    elif not are_names:
        classes = unique_names(classes)

    index_by_label: dict[Any, int] = {number: number for number in range(len(classes))}
    if are_names:
        index_by_label = {name: number for number, name in enumerate(classes)}
    for label in sorted_labels:
        if label not in index_by_label:
            problem = f"label {label!r} is not among the classes: {', '.join(classes)}"
            raise DataError(problem, field="labels")
    indices_by_image = []
    for image_labels in labels_by_image:
        indices = [index_by_label[label] for label in image_labels.tolist()]
        indices_by_image.append(np.array(indices, dtype=np.int64))
    return indices_by_image, tuple(classes)


def boxes_of(boxes: Sequence[Any]) -> np.ndarray:
    """The boxes of all images below each other.

    Args:
        boxes: Array, tensor or list of shape (n, 4) for each image; n may be 0.

    Returns:
        ndarray of shape (sum of n, 4); (0, 4) without images.
    """
    no_boxes = np.zeros((0, 4), np.float32)
    boxes_by_image = [array_of(image_boxes).reshape(-1, 4) for image_boxes in boxes]
    return np.concatenate([no_boxes, *boxes_by_image])


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
    for output in _as_list(outputs):
        boxes = array_of(output["boxes"])
        scores = array_of(output["scores"])
        labels = array_of(label_numbers(output["labels"], classes))
        detections_by_image.append(ImageDetections(boxes, scores, labels))
    return detections_by_image


def _require_results(results: Sequence[Any]) -> None:
    if not results:
        raise DataError("no results: expected one per image", field="image_id")


def _class_names(names: Mapping[int, str] | Sequence[str]) -> tuple[str, ...]:
    """The name of each number from 0, unique; a number without a name is called by itself.

    Args:
        names: Number → name, where numbers may be absent; or a list of names.
    """
    if not isinstance(names, Mapping):
        return unique_names(names)
    name_by_number = {int(number): name for number, name in names.items()}
    count = max(name_by_number, default=-1) + 1
    return unique_names([name_by_number.get(number, str(number)) for number in range(count)])


def _by_image(regions: Regions) -> Iterable[tuple[str, Regions]]:
    """The regions of each image, in the order of the first region of each."""
    for image_id in dict.fromkeys(regions.image_id.tolist()):
        yield image_id, regions[regions.image_id == image_id]
