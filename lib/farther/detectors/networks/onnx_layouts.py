"""Layouts of the outputs of detection graphs, which are recognised and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torchvision.ops import box_convert

from farther.detectors.networks.onnx_graph import GraphDescription, Port, listed
from farther.detectors.networks.onnx_input import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from farther.errors import DataError

LayoutName = Literal[
    "yolo",
    "yolo_nms",
    "yolov5",
    "yolov7_nms",
    "yolox",
    "torchvision",
    "detectron2",
    "detr",
    "rfdetr",
    "dfine",
    "mmdeploy",
]

#: Unit of boxes: pixels of the input, fractions of it, or pixels of the image.
Frame = Literal["input", "fraction", "image"]

#: Names of outputs by role: "boxes" (alone, or with all other values), "scores", "labels",
#: "logits".
Roles = Mapping[str, str]

#: Strides of the grids of YOLO's heads, without and with a fourth level.
GRIDS = ((8, 16, 32), (8, 16, 32, 64))

#: Anchors per cell of YOLOv5 and YOLOv7.
ANCHORS = 3

#: Number of columns of YOLO's outputs before those of the classes: a box …
BOX = 4

#: … or a box and an objectness.
OBJECTNESS = 5

#: Smallest probability that becomes a logit.
LEAST = 2.0**-100

#: Largest probability that becomes a logit: float32 has no number between it and 1.
LARGEST = 1 - 2.0**-24

#: Pixels that the sides of YOLO's inputs are multiples of.
STRIDE = 32


@dataclass(frozen=True)
class Candidates:
    """Detections of one image before the threshold and NMS.

    Args:
        boxes: float32 tensor of shape (A, 4), corners.
        frame: Unit of the boxes.
        scores: float32 tensor of shape (A,).
        labels: int64 tensor of shape (A,), from 0.
        rows: int64 tensor of shape (A,): the row of the logits, and of an output of features.
        logits: float32 tensor of shape (R, K); None if the graph has none.
        probabilities: float32 tensor of shape (R, K), of graphs that give these instead of logits.
    """

    boxes: Tensor
    frame: Frame
    scores: Tensor
    labels: Tensor
    rows: Tensor
    logits: Tensor | None = None
    probabilities: Tensor | None = None

    def logits_of(self, rows: Tensor) -> Tensor | None:
        """Logits (N, K) of rows; None if the graph has none.

        A probability that float32 rounds to 1 has the logit of 1 − 2⁻²⁴.
        """
        if self.probabilities is not None:
            clipped = self.probabilities[rows].double().clamp(LEAST, LARGEST)
            return torch.logit(clipped).float()
        if self.logits is not None:
            return self.logits[rows]
        return None


@dataclass(frozen=True)
class Reading:
    """Settings for reading outputs.

    Args:
        roles: See `Roles`.
        classes: Number of named classes.
        canvas: Height and width of the input.
        decodes: YOLOX's graph decodes the boxes itself.
    """

    roles: Roles
    classes: int
    canvas: tuple[int, int]
    decodes: bool


@dataclass(frozen=True)
class Outputs:
    """Outputs whose layout is to be recognised.

    Args:
        graph: The graph.
        ports: Its outputs by name, without those that are no part of the layout.
        is_named: The user named the layout, so that outputs of an ambiguous form are of this one.
    """

    graph: GraphDescription
    ports: Mapping[str, Port]
    is_named: bool


def _no_columns(_port: Port) -> int | None:
    """The shapes of boxes do not have the number of classes."""
    return None


@dataclass(frozen=True)
class Layout:
    """A layout of outputs.

    Args:
        name: Its name.
        exporter: Its exporters and outputs, for messages.
        recognise: Roles of a graph's outputs, empty if they are of another layout.
        read: Detections of an image.
        preprocessing: Of its exporter's own code.
        nms_iou: Of its exporter's own code; None for layouts without duplicates.
        columns: Number of classes in the shape of the logits, or boxes; None for one that varies.
        has_logits: It gives logits.
        has_objectness: Scores are an objectness times the probability of the class.
        clips: The exporter's own code clips boxes to the image.
    """

    name: LayoutName
    exporter: str
    recognise: Callable[[Outputs], Roles]
    read: Callable[[Mapping[str, np.ndarray], Reading], Candidates]
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    nms_iou: float | None = None
    columns: Callable[[Port], int | None] = _no_columns
    has_logits: bool = False
    has_objectness: bool = False
    clips: bool = False


@dataclass(frozen=True)
class RecognisedLayout:
    """A layout, and the roles of a graph's outputs in it."""

    layout: Layout
    roles: Roles


def recognise_layout(
    graph: GraphDescription, name: LayoutName | None, features: str | None
) -> RecognisedLayout:
    """Recognises the layout of a graph's outputs.

    Args:
        graph: The graph.
        name: The layout; None recognises it.
        features: An output that is no part of it.

    Raises:
        DataError: the outputs are of no layout, or not of the named one; lists them.
    """
    ports = {output: port for output, port in graph.outputs.items() if output != features}
    outputs = Outputs(graph, ports, is_named=name is not None)
    for layout in LAYOUTS.values():
        if name is not None and name != layout.name:
            continue
        roles = layout.recognise(outputs)
        if roles:
            return RecognisedLayout(layout, roles)
    raise DataError(_unknown(ports, name), file=graph.file)


def _unknown(outputs: Mapping[str, Port], name: LayoutName | None) -> str:
    """Message for outputs of no layout."""
    shapes = listed(outputs.values())
    supported = "; ".join(f"{layout.name}: {layout.exporter}" for layout in LAYOUTS.values())
    if name is not None:
        return f"the outputs are not of layout {name!r}: {shapes}. Layouts are {supported}"
    if any(len(port.shape) == 5 for port in outputs.values()):
        return (
            f"the outputs are the heads without boxes: {shapes}. Export the graph with them: "
            "YOLOv7's export.py has --grid, YOLOv5's does so without --train"
        )
    if any(port.name.startswith("num_det") for port in outputs.values()):
        return (
            f"the outputs are those of TensorRT's NMS: {shapes}. "
            "Export the graph without NMS, or with that of ONNX"
        )
    return (
        f"the outputs are of no known layout: {shapes}. "
        f"If one of these is meant, name it with layout: {supported}"
    )


def _single(outputs: Mapping[str, Port], rank: int) -> Port | None:
    """The only output, if it has this number of sides; else None."""
    if len(outputs) != 1:
        return None
    (port,) = outputs.values()
    if len(port.shape) != rank:
        return None
    return port


def _cells(graph: GraphDescription) -> set[int]:
    """Possible numbers of cells of YOLO's grids on the input; none for an input that varies."""
    size = graph.fixed_size
    if size is None:
        return set()
    height, width = size
    counts = set()
    for strides in GRIDS:
        counts.add(sum((height // stride) * (width // stride) for stride in strides))
    return counts


def _is_ultralytics(graph: GraphDescription) -> bool:
    """True if Ultralytics wrote the graph: its metadata name a task, unlike YOLOv5's."""
    return "task" in graph.metadata


def _anchor_layout(graph: GraphDescription, port: Port) -> LayoutName | None:
    """The layout of one output of YOLO's anchors, by its sides; None if they are ambiguous.

    Ultralytics' anchors are the last side, all others' the middle one. YOLOX has one per cell of
    its grids, YOLOv5 and YOLOv7 three.
    """
    _, middle, last = port.shape
    if _is_ultralytics(graph):
        return "yolo"
    cells = _cells(graph)
    if last in cells:
        return "yolo"
    if middle in cells:
        return "yolox"
    if middle is not None and middle in {ANCHORS * count for count in cells}:
        return "yolov5"
    if graph.names is not None and "stride" in graph.metadata:
        return "yolov5"
    if middle is not None and (last is None or last > middle):
        return "yolo"
    return None


def _recognise_anchors(outputs: Outputs, layout: LayoutName) -> Roles:
    """Roles of the only output, whose rows are anchors.

    Empty if its sides are not those of the layout, unless the user named the layout.
    """
    port = _single(outputs.ports, 3)
    if port is None:
        return {}
    if outputs.is_named or _anchor_layout(outputs.graph, port) == layout:
        return {"boxes": port.name}
    return {}


def _recognise_yolo_nms(outputs: Outputs) -> Roles:
    port = _single(outputs.ports, 3)
    if port is None or port.shape[2] not in (6, None):
        return {}
    if outputs.is_named:
        return {"boxes": port.name}
    if port.shape[2] is None:
        return {}
    if not _is_ultralytics(outputs.graph) and _anchor_layout(outputs.graph, port) is not None:
        return {}  # one class: a box, an objectness and a score
    return {"boxes": port.name}


def _recognise_yolov7_nms(outputs: Outputs) -> Roles:
    port = _single(outputs.ports, 2)
    if port is None or port.shape[1] not in (7, None):
        return {}
    if not outputs.is_named and (port.shape[1] is None or "flat_predictions" in port.name):
        return {}  # YOLO-NAS has its seven columns in another order
    return {"boxes": port.name}


def _flat_roles(ports: Mapping[str, Port]) -> Roles:
    """Roles of boxes (N, 4), labels (N,) and scores (N,), without a batch dimension."""
    boxes = []
    labels = []
    scores = []
    for name, port in ports.items():
        if len(port.shape) == 2 and port.shape[1] == BOX:
            boxes.append(name)
        elif len(port.shape) == 1 and port.is_integer:
            if port.shape != (2,):
                labels.append(name)
        elif len(port.shape) == 1:
            scores.append(name)
    if not (len(boxes) == len(labels) == len(scores) == 1):
        return {}
    return {"boxes": boxes[0], "labels": labels[0], "scores": scores[0]}


def _has_image_size(ports: Mapping[str, Port]) -> bool:
    """True if an output is height and width of the image, as in Detectron2's tracing."""
    return any(port.shape == (2,) and port.is_integer for port in ports.values())


def _recognise_torchvision(outputs: Outputs) -> Roles:
    if not outputs.is_named and _has_image_size(outputs.ports):
        return {}
    return _flat_roles(outputs.ports)


def _recognise_detectron2(outputs: Outputs) -> Roles:
    if not outputs.is_named and not _has_image_size(outputs.ports):
        return {}
    return _flat_roles(outputs.ports)


def _recognise_detr(outputs: Outputs) -> Roles:
    for logits_name in ("logits", "pred_logits"):
        if logits_name in outputs.ports and "pred_boxes" in outputs.ports:
            return {"boxes": "pred_boxes", "logits": logits_name}
    boxes = []
    logits = []
    for name, port in outputs.ports.items():
        if len(port.shape) != 3:
            continue
        if port.shape[2] == BOX and not name.endswith(("logits", "labels")):
            boxes.append(name)
        else:
            logits.append(name)
    if len(boxes) != 1 or len(logits) != 1:
        return {}
    if outputs.ports[logits[0]].shape[2] == 5 and not outputs.is_named:
        return {}
    return {"boxes": boxes[0], "logits": logits[0]}


def _recognise_rfdetr(outputs: Outputs) -> Roles:
    boxes = outputs.ports.get("dets")
    logits = outputs.ports.get("labels")
    if boxes is None or logits is None:
        return _recognise_detr(outputs) if outputs.is_named else {}
    if len(boxes.shape) == len(logits.shape) == 3 and not logits.is_integer:
        return {"boxes": "dets", "logits": "labels"}
    return {}


def _recognise_dfine(outputs: Outputs) -> Roles:
    if outputs.graph.sizes is None:
        return {}
    boxes = []
    labels = []
    scores = []
    for name, port in outputs.ports.items():
        if len(port.shape) == 3 and port.shape[2] in (BOX, None):
            boxes.append(name)
        elif len(port.shape) == 2 and port.is_integer:
            labels.append(name)
        elif len(port.shape) == 2:
            scores.append(name)
    if not (len(boxes) == len(labels) == len(scores) == 1):
        return {}
    return {"boxes": boxes[0], "labels": labels[0], "scores": scores[0]}


def _recognise_mmdeploy(outputs: Outputs) -> Roles:
    boxes = []
    labels = []
    for name, port in outputs.ports.items():
        if len(port.shape) == 3 and port.shape[2] == 5:
            boxes.append(name)
        elif len(port.shape) == 2 and port.is_integer:
            labels.append(name)
    if len(boxes) == len(labels) == 1:
        return {"boxes": boxes[0], "labels": labels[0]}
    return {}


def _tensor(values: np.ndarray) -> Tensor:
    """float32 tensor of an output."""
    return torch.from_numpy(np.ascontiguousarray(values)).float()


def _read_yolo(answer: Mapping[str, np.ndarray], reading: Reading) -> Candidates:
    """Centre, size and class probabilities of each anchor."""
    decoded = _tensor(answer[reading.roles["boxes"]][0]).T
    probabilities = decoded[:, BOX:]
    scores, labels = probabilities.max(dim=1)
    boxes = box_convert(decoded[:, :BOX], "cxcywh", "xyxy")
    rows = torch.arange(len(boxes))
    return Candidates(boxes, "input", scores, labels, rows, None, probabilities)


def _read_yolo_nms(answer: Mapping[str, np.ndarray], reading: Reading) -> Candidates:
    """Corners, score and class of each detection."""
    values = _tensor(answer[reading.roles["boxes"]][0])
    labels = values[:, 5].long()
    rows = torch.arange(len(values))
    return Candidates(values[:, :BOX], "input", values[:, 4], labels, rows)


def _read_yolov7_nms(answer: Mapping[str, np.ndarray], reading: Reading) -> Candidates:
    """Number of the image, corners, class and score of each detection."""
    values = _tensor(answer[reading.roles["boxes"]])
    labels = values[:, 5].long()
    rows = torch.arange(len(values))
    return Candidates(values[:, 1:5], "input", values[:, 6], labels, rows)


def _with_objectness(boxes: Tensor, decoded: Tensor) -> Candidates:
    """Detections with boxes (A, 4) as centre and size; score = objectness · class probability."""
    probabilities = decoded[:, OBJECTNESS:]
    best, labels = probabilities.max(dim=1)
    scores = best * decoded[:, BOX]
    corners = box_convert(boxes, "cxcywh", "xyxy")
    rows = torch.arange(len(boxes))
    return Candidates(corners, "input", scores, labels, rows, None, probabilities)


def _read_yolov5(answer: Mapping[str, np.ndarray], reading: Reading) -> Candidates:
    """Centre, size, objectness and class probabilities of each anchor."""
    decoded = _tensor(answer[reading.roles["boxes"]][0])
    return _with_objectness(decoded[:, :BOX], decoded)


def _read_yolox(answer: Mapping[str, np.ndarray], reading: Reading) -> Candidates:
    """As YOLOv5; where the graph does not decode, the box is the head's, in cells of its grid.

    Raises:
        DataError: the number of anchors is not that of the grids.
    """
    decoded = _tensor(answer[reading.roles["boxes"]][0])
    if reading.decodes:
        return _with_objectness(decoded[:, :BOX], decoded)
    corners, strides = _grid(reading.canvas, len(decoded))
    centre = (decoded[:, :2] + corners) * strides
    size = torch.exp(decoded[:, 2:4]) * strides
    return _with_objectness(torch.cat([centre, size], dim=1), decoded)


def _grid(canvas: tuple[int, int], count: int) -> tuple[Tensor, Tensor]:
    """Column and row (A, 2) and stride (A, 1) of each cell of YOLOX's grids, finest level first.

    Raises:
        DataError: the grids have another number of cells than `count`.
    """
    height, width = canvas
    for levels in GRIDS:
        corners = []
        strides = []
        for stride in levels:
            rows, columns = torch.meshgrid(
                torch.arange(height // stride), torch.arange(width // stride), indexing="ij"
            )
            cells = torch.stack([columns, rows], dim=2).reshape(-1, 2)
            corners.append(cells)
            strides.append(torch.full((len(cells), 1), stride))
        all_corners = torch.cat(corners).float()
        if len(all_corners) == count:
            return all_corners, torch.cat(strides).float()
    raise DataError(
        f"the {count} anchors are not the cells of grids with strides 8, 16 and 32 on an input of "
        f"{height} × {width}: it is not a graph of YOLOX without decoding"
    )


def _read_torchvision(answer: Mapping[str, np.ndarray], reading: Reading) -> Candidates:
    """Corners, scores and labels, with background 0."""
    candidates = _read_detectron2(answer, reading)
    return Candidates(
        candidates.boxes, "input", candidates.scores, candidates.labels - 1, candidates.rows
    )


def _read_detectron2(answer: Mapping[str, np.ndarray], reading: Reading) -> Candidates:
    """Corners, scores and labels."""
    boxes = _tensor(answer[reading.roles["boxes"]])
    scores = _tensor(answer[reading.roles["scores"]])
    labels = _tensor(answer[reading.roles["labels"]]).long()
    return Candidates(boxes, "input", scores, labels, torch.arange(len(boxes)))


def _queries(boxes: Tensor, logits: Tensor) -> Candidates:
    """Every class of every query, with boxes (Q, 4) as centre and size, and a sigmoid."""
    count = logits.shape[1]
    rows = torch.arange(len(logits)).repeat_interleave(count)
    labels = torch.arange(count).repeat(len(logits))
    corners = box_convert(boxes, "cxcywh", "xyxy")
    return Candidates(corners[rows], "fraction", logits.sigmoid().flatten(), labels, rows, logits)


def _read_detr(answer: Mapping[str, np.ndarray], reading: Reading) -> Candidates:
    """A sigmoid; or a softmax and one class per query if there are more columns than classes."""
    logits = _tensor(answer[reading.roles["logits"]][0])
    boxes = _tensor(answer[reading.roles["boxes"]][0])
    if logits.shape[1] <= reading.classes:
        return _queries(boxes, logits)
    probabilities = logits.softmax(dim=1)[:, : reading.classes]
    scores, labels = probabilities.max(dim=1)
    corners = box_convert(boxes, "cxcywh", "xyxy")
    return Candidates(corners, "fraction", scores, labels, torch.arange(len(logits)), logits)


def _read_rfdetr(answer: Mapping[str, np.ndarray], reading: Reading) -> Candidates:
    """A sigmoid; columns beyond the classes, which were not trained, are left out."""
    logits = _tensor(answer[reading.roles["logits"]][0])
    boxes = _tensor(answer[reading.roles["boxes"]][0])
    return _queries(boxes, logits[:, : reading.classes].contiguous())


def _read_dfine(answer: Mapping[str, np.ndarray], reading: Reading) -> Candidates:
    """Corners in pixels of the image, scores and labels."""
    boxes = _tensor(answer[reading.roles["boxes"]][0])
    scores = _tensor(answer[reading.roles["scores"]][0])
    labels = _tensor(answer[reading.roles["labels"]][0]).long()
    return Candidates(boxes, "image", scores, labels, torch.arange(len(boxes)))


def _read_mmdeploy(answer: Mapping[str, np.ndarray], reading: Reading) -> Candidates:
    """Corners and score, and labels; rows that only pad the output have a score of 0.

    Boxes are clipped to the input, as in MMDetection.
    """
    values = _tensor(answer[reading.roles["boxes"]][0])
    labels = _tensor(answer[reading.roles["labels"]][0]).long()
    height, width = reading.canvas
    limits = torch.tensor([width, height, width, height], dtype=values.dtype)
    boxes = torch.minimum(values[:, :BOX].clamp(min=0), limits)
    return Candidates(boxes, "input", values[:, 4], labels, torch.arange(len(values)))


def _without_box(port: Port) -> int | None:
    """Number of classes beside a box."""
    count = port.shape[1]
    return None if count is None else count - BOX


def _without_objectness(port: Port) -> int | None:
    """Number of classes beside a box and an objectness."""
    count = port.shape[2]
    return None if count is None else count - OBJECTNESS


def _last_side(port: Port) -> int | None:
    """Number of classes of logits."""
    return port.shape[2]


#: Preprocessing of Ultralytics.
ULTRALYTICS = Preprocessing(resize="letterbox", interpolation="opencv", divisor=STRIDE)

#: Preprocessing of YOLOv5 and YOLOv7.
YOLOV5 = Preprocessing(
    resize="letterbox", interpolation="opencv", divisor=STRIDE, exact_offset=True
)

#: Preprocessing of YOLOX.
YOLOX = Preprocessing(
    resize="letterbox_corner",
    interpolation="opencv",
    channels="bgr",
    pixel_range=255,
    floors=True,
)

#: Preprocessing of MMDetection's RTMDet.
RTMDET = Preprocessing(
    resize="letterbox_corner",
    interpolation="opencv",
    channels="bgr",
    pixel_range=255,
    mean=(103.53, 116.28, 123.675),
    std=(57.375, 57.12, 58.395),
)

#: Preprocessing of Detectron2, whose graphs subtract the mean themselves.
DETECTRON2 = Preprocessing(
    resize="letterbox_corner",
    padding=(123.675, 116.28, 103.53),
    channels="bgr",
    pixel_range=255,
    longest=1333,
)

#: Preprocessing of RF-DETR's `predict`.
RFDETR = Preprocessing(interpolation="torch", mean=IMAGENET_MEAN, std=IMAGENET_STD)

_LAYOUTS = (
    Layout(
        name="dfine",
        exporter="D-FINE, DEIM and RT-DETR's own code: labels and scores (1, N), boxes "
        "(1, N, 4), and the input orig_target_sizes",
        recognise=_recognise_dfine,
        read=_read_dfine,
    ),
    Layout(
        name="mmdeploy",
        exporter="MMDeploy: dets (1, N, 5), labels (1, N)",
        recognise=_recognise_mmdeploy,
        read=_read_mmdeploy,
        preprocessing=RTMDET,
    ),
    Layout(
        name="detectron2",
        exporter="Detectron2's tracing: boxes (N, 4), classes (N), scores (N), "
        "the image's size (2)",
        recognise=_recognise_detectron2,
        read=_read_detectron2,
        preprocessing=DETECTRON2,
        clips=True,
    ),
    Layout(
        name="torchvision",
        exporter="torchvision: boxes (N, 4), labels (N) from 1, scores (N)",
        recognise=_recognise_torchvision,
        read=_read_torchvision,
    ),
    Layout(
        name="rfdetr",
        exporter="RF-DETR: dets (1, Q, 4), labels (1, Q, classes + 1)",
        recognise=_recognise_rfdetr,
        read=_read_rfdetr,
        preprocessing=RFDETR,
        columns=_last_side,
        has_logits=True,
        clips=True,
    ),
    Layout(
        name="detr",
        exporter="transformers: logits (1, Q, classes), pred_boxes (1, Q, 4)",
        recognise=_recognise_detr,
        read=_read_detr,
        columns=_last_side,
        has_logits=True,
    ),
    Layout(
        name="yolo_nms",
        exporter="Ultralytics with nms=True: (1, N, 6)",
        recognise=_recognise_yolo_nms,
        read=_read_yolo_nms,
        preprocessing=ULTRALYTICS,
        clips=True,
    ),
    Layout(
        name="yolov7_nms",
        exporter="YOLOv7 with --grid --end2end --max-wh: (N, 7)",
        recognise=_recognise_yolov7_nms,
        read=_read_yolov7_nms,
        preprocessing=YOLOV5,
        clips=True,
    ),
    Layout(
        name="yolov5",
        exporter="YOLOv5 and YOLOv7 (--grid): (1, anchors, 5 + classes), three anchors per cell",
        recognise=partial(_recognise_anchors, layout="yolov5"),
        read=_read_yolov5,
        preprocessing=YOLOV5,
        nms_iou=0.45,
        columns=_without_objectness,
        has_logits=True,
        has_objectness=True,
        clips=True,
    ),
    Layout(
        name="yolox",
        exporter="YOLOX: (1, anchors, 5 + classes), one anchor per cell",
        recognise=partial(_recognise_anchors, layout="yolox"),
        read=_read_yolox,
        preprocessing=YOLOX,
        nms_iou=0.65,
        columns=_without_objectness,
        has_logits=True,
        has_objectness=True,
    ),
    Layout(
        name="yolo",
        exporter="Ultralytics: (1, 4 + classes, anchors)",
        recognise=partial(_recognise_anchors, layout="yolo"),
        read=_read_yolo,
        preprocessing=ULTRALYTICS,
        nms_iou=0.7,
        columns=_without_box,
        has_logits=True,
        clips=True,
    ),
)

#: The layouts by name, in the order in which they are tried.
LAYOUTS: Mapping[LayoutName, Layout] = {layout.name: layout for layout in _LAYOUTS}
