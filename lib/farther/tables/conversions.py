"""Plain arrays and detections of other libraries as regions, and regions as theirs.

Nothing is imported but what `to_…` makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from farther.errors import DataError
from farther.tables.arrays import array_of
from farther.tables.header import numbered

if TYPE_CHECKING:
    from farther.tables.regions import Regions


class Conversions:
    """Constructors from arrays and from the results of other libraries, and the way back.

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
        """Regions of one dict of arrays per image, as torchmetrics' `MeanAveragePrecision` takes `preds`.

        Args:
            predictions: `boxes`, `scores` and `labels` of each image, and `logits` where there are
                some. Labels are names of classes, or indices into `classes`. Other keys are not
                read.
            classes: Names of all classes of the detector; left out, those that occur, or "0", "1",
                … for numbers.
            image_ids: Names of the images; "0", "1", … by default.

        Raises:
            DataError: a label is not among `classes`, or arrays differ in length.
        """
        many = _several(predictions)
        labels, names = indexed([one["labels"] for one in many], classes)
        rows = [
            (array_of(one["boxes"]), array_of(one["scores"]), k)
            for one, k in zip(many, labels, strict=True)
        ]
        logits = [array_of(one["logits"]) for one in many if "logits" in one and len(one["boxes"])]
        return cls._from_rows(
            rows, image_ids, names, logits=np.concatenate(logits) if logits else None
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
        last_layer: tuple[Any, Any] | None = None,
    ) -> Self:
        """Regions of plain arrays, or tensors on any device: all that most scores read.

        Args:
            logits: Shape (N, K), without a background; tensors in bfloat16 or float16 too.
            features: Input of the last linear layer, shape (N, D).
            labels: Class of each region, an index, shape (N,); the class with the largest logit
                when None.
            scores: Confidence of each region, shape (N,); the largest softmax probability when
                None.
            boxes: Shape (N, 4): xmin, ymin, xmax, ymax; boxes of no meaning when None.
            images: Image of each region; each is an image of its own when None.
            classes: Names of the K classes; "0", "1", … when None.
            last_layer: Weight (K, D) and bias (K,) of the last linear layer.

        Raises:
            DataError: neither logits nor labels are given, or arrays do not fit together.

        >>> import numpy as np
        >>> from farther.tables import Regions
        >>> regions = Regions.from_arrays(logits=np.array([[2.0, 0.0], [0.0, 1.0]]))
        >>> regions.label.tolist(), np.round(regions.score.astype(float), 2).tolist()
        ([0, 1], [0.88, 0.73])
        """
        z = None if logits is None else array_of(logits).astype(np.float32)
        if z is None and labels is None:
            raise DataError("expected logits, labels, or both", field="logits")
        label = array_of(labels) if labels is not None or z is None else z.argmax(axis=1)
        if scores is None and z is not None:
            scores = np.exp(z - z.max(axis=1, keepdims=True))
            scores = (scores / scores.sum(axis=1, keepdims=True)).max(axis=1)
        count = len(label)
        known = classes or [
            str(k) for k in range(z.shape[1] if z is not None else int(label.max(initial=-1)) + 1)
        ]
        weight, bias = (None, None) if last_layer is None else map(array_of, last_layer)
        given = {} if features is None else {"features": array_of(features).astype(np.float32)}
        return cls(
            image_id=repeated(None, [1] * count)
            if images is None
            else np.array([str(i) for i in images], dtype=object),
            region_id=np.arange(count),
            box=np.tile(np.array([0, 0, 1, 1], np.float32), (count, 1))
            if boxes is None
            else boxes_of([boxes]),
            score=np.ones(count, np.float32) if scores is None else array_of(scores),
            label=label.astype(np.int16),
            logits=z,
            classes=numbered(known),
            weight=weight,
            bias=bias,
            **given,
        )  # type: ignore[call-arg]

    @classmethod
    def from_ultralytics(cls, results: Any, image_ids: Sequence[str] | None = None) -> Self:
        """Regions of what `YOLO(…)(images)` returns: a list of `Results`, or one.

        Args:
            results: Each has `boxes` (`xyxy`, `conf`, `cls`), `names` and `path`.
            image_ids: Names of the images; the paths by default.
        """
        many = _several(results)
        _given(many, "results")
        if any(one.names != many[0].names for one in many):
            raise DataError(
                "the results are of models with different classes: convert those of each model",
                field="names",
            )
        names = _class_names(many[0].names)
        rows = [
            (array_of(one.boxes.xyxy), array_of(one.boxes.conf), array_of(one.boxes.cls))
            for one in many
        ]
        return cls._from_rows(rows, image_ids or [str(one.path) for one in many], names)

    @classmethod
    def from_torchvision(
        cls, outputs: Any, image_ids: Sequence[str], classes: Sequence[str]
    ) -> Self:
        """Regions of what a detection model of torchvision returns: dicts of `boxes`, `scores` and `labels`.

        Args:
            outputs: One dict per image.
            image_ids: Names of the images.
            classes: Name of each label, that of label 0 (`__background__`) included, as
                `weights.meta["categories"]`; a name that occurs twice (COCO's "N/A") gets its
                number.
        """
        return cls._from_rows(_rows(outputs), image_ids, numbered(classes), background_index=0)

    @classmethod
    def from_transformers(
        cls, outputs: Any, image_ids: Sequence[str], classes: Mapping[int, str]
    ) -> Self:
        """Regions of what an image processor's `post_process_object_detection` returns.

        Args:
            outputs: One dict of `boxes`, `scores` and `labels` per image.
            image_ids: Names of the images.
            classes: The model's `config.id2label`; a name that occurs twice gets its number.
        """
        return cls._from_rows(_rows(outputs), image_ids, _class_names(classes))

    @classmethod
    def from_supervision(
        cls, detections: Any, image_ids: Sequence[str], classes: Sequence[str]
    ) -> Self:
        """Regions of supervision's `Detections` (`xyxy`, `confidence`, `class_id`): one, or one per image.

        Args:
            detections: The detections.
            image_ids: Names of the images.
            classes: Name of each `class_id`.
        """
        many = _several(detections)
        for name in ("confidence", "class_id"):
            if any(getattr(one, name) is None for one in many):
                raise DataError("these detections of supervision do not have it", field=name)
        rows = [
            (array_of(one.xyxy), array_of(one.confidence), array_of(one.class_id)) for one in many
        ]
        return cls._from_rows(rows, image_ids, numbered(classes))

    def to_supervision(self: Any) -> dict[str, Any]:
        """supervision's `Detections` of each image that has a region, by `image_id`; needs the package supervision."""
        import supervision

        found = {}
        for name, rows in _by_image(self):
            data = {
                "class_name": np.array([self.classes[k] for k in rows.label]),
                "region_id": rows.region_id,
            }
            found[name] = supervision.Detections(
                xyxy=rows.box, confidence=rows.score, class_id=rows.label.astype(int), data=data
            )
        return found

    def to_fiftyone(self: Any, sizes: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
        """FiftyOne's `Detections` of each image that has a region, by `image_id`; needs the package fiftyone.

        Args:
            sizes: Width and height of each image: FiftyOne's boxes are fractions of them.
        """
        import fiftyone

        found = {}
        for name, rows in _by_image(self):
            if name not in sizes:
                raise DataError(f"no size of image {name!r} is given", field="sizes")
            box = rows.box.astype(np.float64) / np.tile(sizes[name], 2)
            box[:, 2:] -= box[:, :2]
            found[name] = fiftyone.Detections(
                detections=[
                    fiftyone.Detection(
                        label=self.classes[label],
                        bounding_box=edges.tolist(),
                        confidence=float(score),
                    )
                    for edges, label, score in zip(box, rows.label, rows.score, strict=True)
                ]
            )
        return found

    @classmethod
    def _from_rows(
        cls,
        rows: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
        image_ids: Sequence[str] | None,
        classes: Sequence[str],
        background_index: int | None = None,
        logits: np.ndarray | None = None,
    ) -> Self:
        """Regions of boxes, scores and labels of each image."""
        _given(rows, "results")
        counts = [len(scores) for _, scores, _ in rows]
        return cls(
            image_id=repeated(image_ids, counts),
            region_id=np.arange(sum(counts)),
            box=boxes_of([boxes for boxes, _, _ in rows]),
            score=np.concatenate([scores for _, scores, _ in rows]),
            label=np.concatenate([labels for _, _, labels in rows]).astype(np.int16),
            classes=tuple(classes),
            background_index=background_index,
            logits=logits,
        )  # type: ignore[call-arg]


def repeated(image_ids: Sequence[str] | None, counts: Sequence[int]) -> np.ndarray:
    """The image of each row: its name, or its number where there are no names.

    Args:
        image_ids: Names of the images.
        counts: Rows of each image.

    Raises:
        DataError: there are not as many names as results, or two results have one name.
    """
    names = range(len(counts)) if image_ids is None else image_ids
    if len(names) != len(counts):
        raise DataError(
            f"{len(counts)} results, but {len(names)} names of images", field="image_id"
        )
    texts = [str(name) for name in names]
    if len(set(texts)) < len(texts):
        twice = next(name for name, count in Counter(texts).items() if count > 1)
        problem = f"{Counter(texts)[twice]} results are of an image called {twice!r}"
        raise DataError(
            f"{problem}: give each image a name of its own, as `image_ids`", field="image_id"
        )
    return np.repeat(np.array(texts, dtype=object), counts)


def indexed(
    labels: Sequence[Any], classes: Sequence[str] | None
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Labels of each image as indices into names of classes, and these names.

    Args:
        labels: Names of classes, or indices.
        classes: The names; None: those that occur, or "0", "1", … up to the largest index.
    """
    parts = [array_of(part) for part in labels]
    texts = any(part.dtype.kind in "OU" for part in parts)
    found = sorted({label for part in parts for label in part.tolist()})
    if classes is None:
        classes = found if texts else [str(k) for k in range(int(found[-1]) + 1 if found else 0)]
    elif not texts:
        classes = numbered(classes)
    index = (
        {name: k for k, name in enumerate(classes)}
        if texts
        else {k: k for k in range(len(classes))}
    )
    if unknown := [label for label in found if label not in index]:
        raise DataError(
            f"label {unknown[0]!r} is not among the classes: {', '.join(classes)}", field="labels"
        )
    return [
        np.array([index[label] for label in part.tolist()], dtype=np.int64) for part in parts
    ], tuple(classes)


def boxes_of(boxes: Sequence[Any]) -> np.ndarray:
    """The boxes of all images, shape (N, 4)."""
    return np.concatenate(
        [np.zeros((0, 4), np.float32), *(array_of(part).reshape(-1, 4) for part in boxes)]
    )


def _several(results: Any) -> list[Any]:
    """One result per image."""
    return list(results) if isinstance(results, (list, tuple, Iterator)) else [results]


def _rows(outputs: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Boxes, scores and labels of each image."""
    return [
        tuple(array_of(one[name]) for name in ("boxes", "scores", "labels"))
        for one in _several(outputs)
    ]  # type: ignore[misc]


def _given(many: Sequence[Any], what: str) -> None:
    if not many:
        raise DataError(f"no {what}: expected one per image", field="image_id")


def _class_names(names: Mapping[int, str] | Sequence[str]) -> tuple[str, ...]:
    """Names by number, see `numbered`; numbers without a name are called by themselves."""
    if not isinstance(names, Mapping):
        return numbered(names)
    name_by_number = {int(number): name for number, name in names.items()}
    count = max(name_by_number, default=-1) + 1
    return numbered([name_by_number.get(number, str(number)) for number in range(count)])


def _by_image(regions: Regions) -> Iterable[tuple[str, Regions]]:
    """The rows of each image, in the order of the first."""
    for name in dict.fromkeys(regions.image_id.tolist()):
        yield name, regions[regions.image_id == name]
