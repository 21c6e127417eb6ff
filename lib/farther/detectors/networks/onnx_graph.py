"""Description of an ONNX graph: its inputs, outputs, metadata and operators."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

from farther.errors import DataError, shorten

#: A side that varies is None.
Shape = tuple[int | None, ...]

#: Types of inputs and outputs, as NumPy calls them.
TYPES = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.INT32: "int32",
    onnx.TensorProto.INT64: "int64",
}

#: Types of outputs that can be labels.
INTEGERS = ("int32", "int64", "uint8")

#: Sets of operators that ONNX Runtime has beside those of ONNX.
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc")

#: Operators that do not change the values of an image.
UNCHANGING = ("Cast", "Identity", "Transpose", "Unsqueeze", "Reshape", "Squeeze")

#: Longest text of metadata that is read as names of classes.
LONGEST_NAMES = 1_000_000

#: Largest mean of pixels between 0 and 1, with room for rounding.
UNIT_MEAN = 1.5


@dataclass(frozen=True)
class Port:
    """An input or an output.

    Args:
        name: Its name.
        shape: Its sides; empty if the graph does not store them.
        type: NumPy's name of the type of its values; empty for another type.
    """

    name: str
    shape: Shape
    type: str

    @property
    def is_integer(self) -> bool:
        """True if it holds integers."""
        return self.type in INTEGERS

    def __str__(self) -> str:
        return f"{self.name} {shape_text(self.shape)}"


@dataclass(frozen=True)
class GraphDescription:
    """Description of an ONNX graph.

    Args:
        file: Its file.
        metadata: Text by key.
        image: The input that takes the image.
        sizes: The input that takes the image's width and height, as D-FINE has it; None without
            one.
        mask: The input that marks the pixels of the image, as DETR has it; None without one.
        outputs: The outputs by name, in the graph's order.
        operators: Names of its operators.
        unknown_operators: Operators of sets that ONNX Runtime does not have, as "name (set)".
        modules: Names of its nodes, which begin with those of PyTorch's modules.
        normalises: Largest value of the pixels (1 or 255) that the graph itself normalises; None if
            it does not.
    """

    file: Path
    metadata: Mapping[str, str]
    image: Port
    sizes: Port | None
    mask: Port | None
    outputs: Mapping[str, Port]
    operators: frozenset[str]
    unknown_operators: tuple[str, ...]
    modules: str
    normalises: Literal[1, 255] | None

    @classmethod
    def of(cls, model: onnx.ModelProto, file: Path) -> GraphDescription:
        """Describes a graph.

        Args:
            model: The graph.
            file: Its file, for messages.

        Raises:
            DataError: it does not take one image, or takes more than an image and its size.
        """
        weights = {tensor.name for tensor in model.graph.initializer}
        inputs = [_port(value) for value in model.graph.input if value.name not in weights]
        image = _image_input(inputs, file)
        sizes = None
        mask = None
        unknown = []
        for port in inputs:
            if port is image:
                continue
            if _takes_sizes(port):
                sizes = port
            elif port.name == "pixel_mask" and len(port.shape) == 3:
                mask = port
            else:
                unknown.append(port)
        if unknown:
            raise DataError(
                f"besides the image, the graph takes {listed(unknown)}, which is not known: only "
                "orig_target_sizes (1, 2), as D-FINE and RT-DETR have it, and transformers' "
                "pixel_mask are. Export it without",
                file=file,
            )
        outputs = {value.name: _port(value) for value in model.graph.output}
        operators = frozenset(node.op_type for node in model.graph.node)
        return cls(
            file=file,
            metadata={entry.key: entry.value for entry in model.metadata_props},
            image=image,
            sizes=sizes,
            mask=mask,
            outputs=outputs,
            operators=operators,
            unknown_operators=_unknown_operators(model),
            modules=" ".join(node.name for node in model.graph.node),
            normalises=_normalised_range(model, image.name),
        )

    @property
    def is_channels_last(self) -> bool:
        """True if the image's channels are its last side, as in TensorFlow."""
        return self.image.shape[-3] != 3 and self.image.shape[-1] == 3

    @property
    def size(self) -> tuple[int | None, int | None]:
        """Height and width of the input; None for one that varies."""
        if self.is_channels_last:
            return self.image.shape[-3], self.image.shape[-2]
        return self.image.shape[-2], self.image.shape[-1]

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """Height and width of the input; None if one of them varies."""
        height, width = self.size
        if height is None or width is None:
            return None
        return height, width

    @property
    def is_list(self) -> bool:
        """True if the image has no batch dimension, as in torchvision's detectors."""
        return len(self.image.shape) == 3

    def measured(
        self, size: tuple[int, int], shapes: Mapping[str, tuple[int, ...]]
    ) -> GraphDescription:
        """The description with shapes that were measured for one size of the input.

        Args:
            size: Height and width of the input.
            shapes: Shapes of the outputs by name.
        """
        sides = (3, *size)
        if self.is_channels_last:
            sides = (*size, 3)
        batch = () if self.is_list else (1,)
        outputs = {name: replace(port, shape=shapes[name]) for name, port in self.outputs.items()}
        return replace(self, image=replace(self.image, shape=(*batch, *sides)), outputs=outputs)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the classes in the metadata of Ultralytics, YOLOv5 and others; None without."""
        names = _parsed(self.metadata.get("names", "")[:LONGEST_NAMES])
        if isinstance(names, dict):
            try:
                names = [names[key] for key in sorted(names, key=int)]
            except (ValueError, TypeError):
                return None
        if not isinstance(names, (list, tuple)) or not names:
            return None
        if not all(isinstance(name, str) for name in names):
            return None
        return tuple(names)


def _parsed(text: str) -> Any:
    """The value of a Python literal or of JSON; None if it is neither."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def external_files(model: onnx.ModelProto) -> list[str]:
    """Names of the files that hold weights of a graph, as stored in the graph."""
    names = set()
    for tensor in _tensors(model.graph):
        for entry in tensor.external_data:
            if entry.key == "location":
                names.add(entry.value)
    return sorted(names)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Tensors of a graph and of those within its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)
            for inner in attribute.graphs:
                yield from _tensors(inner)


def _image_input(inputs: list[Port], file: Path) -> Port:
    """The input that takes the image.

    Raises:
        DataError: there is none, or several; or it takes several images at once.
    """
    images = []
    for port in inputs:
        is_picture = len(port.shape) in (3, 4) and not (port.is_integer and port.type != "uint8")
        if is_picture and (port.shape[-3] in (3, None) or port.shape[-1] == 3):
            images.append(port)
    if len(images) != 1:
        raise DataError(
            "expected one input with the pixels of an image, (1, 3, height, width), "
            f"found {listed(inputs) or 'none'}",
            file=file,
        )
    (image,) = images
    if not image.type or image.type in ("int32", "int64"):
        raise DataError(
            f"the input {image} takes values of a type that no image has: "
            "export it with float32, float16 or uint8",
            file=file,
        )
    if len(image.shape) == 4 and image.shape[0] not in (1, None):
        raise DataError(
            f"the input {image} takes {image.shape[0]} images at once: export the graph with batch "
            "size 1 or a dynamic one",
            file=file,
        )
    return image


def _takes_sizes(port: Port) -> bool:
    """True if an input takes width and height of each image."""
    is_pair = len(port.shape) == 2 and port.shape[1] in (2, None) and port.shape[0] in (1, None)
    return is_pair and ("size" in port.name or port.type == "int64")


def _port(value: Any) -> Port:
    """Description of an input or output."""
    tensor = value.type.tensor_type
    sides: list[int | None] = []
    for side in tensor.shape.dim:
        if side.HasField("dim_value") and side.dim_value > 0:
            sides.append(side.dim_value)
        else:
            sides.append(None)
    return Port(value.name, tuple(sides), TYPES.get(tensor.elem_type, ""))


def _unknown_operators(model: onnx.ModelProto) -> tuple[str, ...]:
    """Operators that neither ONNX nor the graph itself defines, in the order of their use."""
    defined = {(function.domain, function.name) for function in model.functions}
    unknown: dict[str, None] = {}
    for node in model.graph.node:
        if (node.domain, node.op_type) in defined:
            continue
        if node.domain in ("", "ai.onnx"):
            if not onnx.defs.has(node.op_type):
                unknown[node.op_type] = None
        elif node.domain not in DOMAINS:
            unknown[f"{node.op_type} ({shorten(node.domain)})"] = None
    return tuple(unknown)


def _normalised_range(model: onnx.ModelProto, image: str) -> Literal[1, 255] | None:
    """Largest value of the pixels (1 or 255) that the first operators of a graph normalise.

    They subtract a mean per channel, or divide by 255. None if the first operator on the image is
    another one.
    """
    constants = _constants(model)
    name = image
    node = _reader(model, name)
    while node is not None and node.op_type in UNCHANGING:
        name = node.output[0]
        node = _reader(model, name)
    if node is None or node.op_type not in ("Sub", "Div", "Mul") or len(node.input) != 2:
        return None
    operand = node.input[1] if node.input[0] == name else node.input[0]
    tensor = constants.get(operand)
    if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    values = onnx.numpy_helper.to_array(tensor).astype(np.float64).ravel()
    if values.size not in (1, 3):
        return None
    if node.op_type == "Sub":
        return 1 if values.max() <= UNIT_MEAN else 255
    divisor = values if node.op_type == "Div" else 1 / values
    return 255 if np.allclose(divisor, 255, rtol=1e-3) else None


def _constants(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Constant tensors of a graph by name."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "Constant":
            continue
        for attribute in node.attribute:
            if attribute.name == "value":
                constants[node.output[0]] = attribute.t
    return constants


def _reader(model: onnx.ModelProto, name: str) -> Any:
    """The only operator that computes with a value; None if several do, or none does."""
    readers = [node for node in model.graph.node if name in node.input and node.op_type != "Shape"]
    if len(readers) != 1:
        return None
    return readers[0]


def shape_text(shape: Any) -> str:
    """Text of a shape, with `?` for a side that varies."""
    sides = ["?" if side is None else str(side) for side in shape]
    return f"({', '.join(sides)})"


def listed(ports: Iterable[Port]) -> str:
    """Names and shapes of inputs or outputs."""
    return ", ".join(str(port) for port in ports)
