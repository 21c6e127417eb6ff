"""Parts of what other libraries return, in the forms in which they return them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from farther.errors import DataError, shorten
from farther.tables.arguments import array_of

#: What results of Ultralytics without boxes are of, by the attribute that they have instead.
OTHER_TASKS = {
    "probs": "classification, which has no boxes: take Regions.from_arrays(scores=…, labels=…) of "
    "the probabilities",
    "masks": "masks without boxes",
    "keypoints": "key points without boxes",
}


@dataclass(frozen=True)
class UltralyticsBoxes:
    """Boxes of one image, as Ultralytics has them.

    Args:
        xyxy: Shape (N, 4); of oriented boxes, the upright boxes around them.
        conf, cls: Shape (N,).
    """

    xyxy: Any
    conf: Any
    cls: Any


def ultralytics_boxes(result: Any) -> UltralyticsBoxes:
    """The boxes of one of Ultralytics' `Results`: of detection, segmentation, pose or OBB.

    Raises:
        DataError: it has no boxes; says what it is of.
    """
    boxes = getattr(result, "obb", None)
    if boxes is None:
        boxes = getattr(result, "boxes", None)
    if boxes is None:
        found = type(result).__name__
        for attribute, task in OTHER_TASKS.items():
            if getattr(result, attribute, None) is not None:
                found = f"results of {task}"
                break
        problem = f"expected results with boxes of Ultralytics, found {found}"
        raise DataError(problem, field="boxes")
    parts = {name: getattr(boxes, name, None) for name in ("xyxy", "conf", "cls")}
    if parts["xyxy"] is None and getattr(boxes, "xyxyxyxy", None) is not None:
        corners = array_of(boxes.xyxyxyxy, "xyxyxyxy").reshape(-1, 4, 2)
        parts["xyxy"] = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    for name, value in parts.items():
        if value is None:
            problem = f"these boxes ({type(boxes).__name__}) do not have it"
            raise DataError(problem, field=name)
    return UltralyticsBoxes(**parts)


def label_numbers(labels: Any, classes: Sequence[str]) -> Any:
    """Labels as indices into names of classes; those that are numbers stay as they are.

    Args:
        labels: Names or indices, of one image; as the processors of open-vocabulary networks give
            them, texts.
        classes: Names of the classes.

    Raises:
        DataError: a name is not among the classes.
    """
    is_array = isinstance(labels, np.ndarray) and labels.ndim > 0
    is_list = isinstance(labels, Sequence) and not isinstance(labels, str)
    if not (is_array or is_list) or not len(labels):
        return labels
    if not all(isinstance(label, str) for label in labels):
        return labels
    index_by_name = {name: index for index, name in enumerate(classes)}
    indices = []
    for label in labels:
        if label not in index_by_name:
            known = ", ".join(shorten(name) for name in classes[:10])
            problem = f"label {shorten(label)} is not among the classes: {known}"
            raise DataError(problem, field="labels")
        indices.append(index_by_name[label])
    return np.array(indices, dtype=np.int64)


def weight_and_bias(last_layer: Any) -> tuple[Any, Any]:
    """Weight and bias of a last layer; zeros for a bias that it does not have.

    Args:
        last_layer: A linear layer; or its weight and bias, as a pair or under these names, where
            the bias may be None.

    Raises:
        DataError: it is something else.
    """
    if isinstance(last_layer, Mapping):
        weight = last_layer.get("weight")
        bias = last_layer.get("bias")
    elif isinstance(last_layer, tuple | list) and len(last_layer) == 2:
        weight, bias = last_layer
    else:
        weight = getattr(last_layer, "weight", None)
        bias = getattr(last_layer, "bias", None)
    if weight is None:
        problem = (
            f"expected a linear layer, or its weight and bias, found {type(last_layer).__name__}"
        )
        raise DataError(problem, field="last_layer")
    if bias is None:
        bias = np.zeros(array_of(weight, "last_layer").shape[:1], np.float32)
    return weight, bias
