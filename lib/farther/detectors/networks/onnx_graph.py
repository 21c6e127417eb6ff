"""What an ONNX graph says of itself: its input, its metadata, and which layout its outputs have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import onnx

from farther.errors import DataError

Layout = Literal["yolo", "yolo_nms", "torchvision", "detr"]
Shapes = Mapping[str, tuple[int | None, ...]]


@dataclass(frozen=True)
class Graph:
    """What a graph says of itself.

    Args:
        file: Its file.
        metadata: Its texts by key.
        input: Name of the input that takes the image.
        sides: Shape of that input; None for a side that varies.
        outputs: Shape of each output, with None for sides that vary.
        integers: Outputs that hold integers.
    """

    file: Path
    metadata: Mapping[str, str]
    input: str
    sides: tuple[int | None, ...]
    outputs: Mapping[str, tuple[int | None, ...]]
    integers: frozenset[str]

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width that the input must have; None if they vary."""
        height, width = self.sides[-2:]
        return None if height is None or width is None else (height, width)

    @classmethod
    def of(cls, model: onnx.ModelProto, file: Path) -> Graph:
        """Reads a graph; `file` is named in messages.

        Raises:
            DataError: it takes more than an image.
        """
        weights = {tensor.name for tensor in model.graph.initializer}
        inputs = {one.name: _shape(one) for one in model.graph.input if one.name not in weights}
        images = {name: shape for name, shape in inputs.items() if len(shape) in (3, 4) and shape[-3] in (3, None)}
        if len(images) != 1 or len(inputs) != 1:
            said = ", ".join(f"{name} {shown(shape)}" for name, shape in inputs.items())
            raise DataError(f"expected one input with the pixels of an image, found {said}", file=file)
        ((name, sides),) = images.items()
        whole = onnx.TensorProto.INT64
        integers = frozenset(one.name for one in model.graph.output if one.type.tensor_type.elem_type == whole)
        metadata = {one.key: one.value for one in model.metadata_props}
        return cls(file, metadata, name, sides, {one.name: _shape(one) for one in model.graph.output}, integers)

    @property
    def is_list(self) -> bool:
        """Whether the image is passed without a batch dimension, as torchvision's detectors take it."""
        return len(self.sides) == 3

    def named(self, asked: Layout | None, features: str | None) -> dict[str, str]:
        """Names of the outputs by what they hold: "main" (boxes, alone or with all else), "logits", "scores", "labels";
        and the "layout".

        Args:
            asked: The layout; None recognises it.
            features: An output that is none of them.

        Raises:
            DataError: the outputs are of no layout, or not of the one that is asked for; says what they are.
        """
        found = {name: shape for name, shape in self.outputs.items() if name != features}
        for layout, recognise in RECOGNISED.items():
            if asked in (None, layout) and (names := recognise(found, self)):
                return {"layout": layout, **names}
        said = ", ".join(f"{name} {shown(shape)}" for name, shape in found.items())
        wanted = f"layout {asked!r}" if asked else "a layout that is known"
        known = "Ultralytics' (1, 4 + classes, anchors) or (1, detections, 6), boxes with labels and scores, or logits "
        raise DataError(
            f"the outputs are not of {wanted}: {said}. Supported are {known}with pred_boxes", file=self.file
        )


def _is_torchvision(outputs: Shapes, graph: Graph) -> dict[str, str]:
    boxes = [name for name, shape in outputs.items() if len(shape) == 2 and shape[1] == 4]
    flat = [name for name, shape in outputs.items() if len(shape) == 1]
    labels = [name for name in flat if name in graph.integers]
    scores = [name for name in flat if name not in graph.integers]
    if not (len(boxes) == len(labels) == len(scores) == 1):
        return {}
    return {"main": boxes[0], "labels": labels[0], "scores": scores[0]}


def _is_detr(outputs: Shapes, graph: Graph) -> dict[str, str]:
    if {"logits", "pred_boxes"} <= set(outputs):
        return {"main": "pred_boxes", "logits": "logits"}
    three = [name for name, shape in outputs.items() if len(shape) == 3]
    boxes = [name for name in three if outputs[name][2] == 4]
    others = [name for name in three if name not in boxes]
    return {"main": boxes[0], "logits": others[0]} if len(boxes) == len(others) == 1 else {}


def _is_yolo_nms(outputs: Shapes, graph: Graph) -> dict[str, str]:
    (name, *others) = outputs
    return {"main": name} if not others and len(outputs[name]) == 3 and outputs[name][2] == 6 else {}


def _is_yolo(outputs: Shapes, graph: Graph) -> dict[str, str]:
    (name, *others) = outputs
    return {"main": name} if not others and len(outputs[name]) == 3 else {}


#: What each layout calls the outputs; {} where they are not of it. The first that fits counts.
RECOGNISED: dict[str, Callable[[Shapes, Graph], dict[str, str]]] = {
    "torchvision": _is_torchvision,
    "detr": _is_detr,
    "yolo_nms": _is_yolo_nms,
    "yolo": _is_yolo,
}


def _shape(value: Any) -> tuple[int | None, ...]:
    """Sides of an input or output; None for one that varies."""
    sides = value.type.tensor_type.shape.dim
    return tuple(side.dim_value if side.HasField("dim_value") and side.dim_value > 0 else None for side in sides)


def shown(shape: Any) -> str:
    """A shape in words, `?` for a side that varies."""
    return f"({', '.join('?' if side is None else str(side) for side in shape)})"
