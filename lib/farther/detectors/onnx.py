"""Detection graphs in ONNX, as Ultralytics, torchvision and transformers export them, run by ONNX Runtime."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass as plain_dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime
import torch
from PIL import Image
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torchvision.ops import batched_nms, box_convert

from farther.cores import count_cores
from farther.detectors.base import BoxDetector, Count, Fraction, register
from farther.detectors.networks.onnx_graph import Graph, Layout, shown
from farther.detectors.networks.yolo import letterbox
from farther.errors import DataError, ParameterError, first_line, shorten
from farther.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import inside, regular_file

# isort: split
from ultralytics.data.augment import LetterBox
from ultralytics.utils.ops import scale_boxes

Positive = Annotated[float, Field(gt=0)]
#: Anchors that take part in the suppression, the best ones, as in Ultralytics.
CANDIDATES = 30_000
#: Least and largest probability that becomes a logit: float32 tells none closer to 1 from it.
LEAST, LARGEST = 2.0**-100, 1 - 2.0**-24
#: Stride and size of Ultralytics' networks whose metadata do not say.
STRIDE, SIZE = 32, 640


@plain_dataclass(frozen=True)
class Found:
    """N detections of one image, best first: boxes (N, 4) in pixels of the image, scores, labels, and their rows among
    the A candidates; logits (N, K) and features (N, D) where the graph has them."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    rows: Tensor
    logits: Tensor | None = None


@register("onnx")
@dataclass(config=STRICT, kw_only=True)
class Onnx(BoxDetector):
    """A detection graph, one image at a time.

    | layout | outputs | logits |
    | --- | --- | --- |
    | `yolo` | Ultralytics' raw head: (1, 4 + K, A), suppressed here as `predict` does | its scores' inverse sigmoid |
    | `yolo_nms` | Ultralytics with suppression (`nms=True`) or without need of it: (1, N, 6) | none |
    | `torchvision` | boxes (N, 4), labels (N,) with background 0, scores (N,) | none |
    | `detr` | transformers: logits (1, Q, C), pred_boxes (1, Q, 4); a sigmoid, or with a column more than classes a
      softmax with "no object" last | the graph's |

    The layout follows from names, shapes and metadata of the outputs. Classes and size come from Ultralytics' metadata;
    other graphs say neither. Images are brought to the input's size: as Ultralytics does for its graphs (letterbox),
    and stretched for `detr`; torchvision's graphs scale them themselves.

    A probability that float32 rounds to 1 has the logit of 1 − 2⁻²⁴, 16.6. The graph is data: operators that ONNX
    Runtime does not have, and files of weights outside of its folder, are refused.

    Args:
        nms_iou: See `BoxDetector`; the default is that of `predict`. For `yolo` only.
        layout: See above; None recognises it.
        classes: Names of the classes, in the graph's order, without a background.
        size: Pixels of the longer side (`yolo`), or of both sides (`detr`), for graphs whose input varies.
        mean, std: Subtracted from, and divided by, after pixels were brought to 0 to 1; for `detr`. RT-DETR has none,
            DETR those of ImageNet.
        features: Name of an output with a vector per candidate (anchor or query), of shape (1, A, D) or (1, D, A).

    Raises:
        DataError: the file is damaged, or its outputs are of no layout; says what they are.
    """

    nms_iou: Fraction = 0.7
    layout: Layout | None = None
    classes: tuple[str, ...] | None = None
    size: Count | None = None
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[Positive, Positive, Positive] = (1.0, 1.0, 1.0)
    features: str | None = None

    @cached_property
    def network(self) -> onnxruntime.InferenceSession:
        """ONNX Runtime's session; see `Detector.network`."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = count_cores(), 3
        try:
            return onnxruntime.InferenceSession(self.weights, options, providers=self._providers())
        except Exception as error:  # ONNX Runtime's own types
            raise DataError(f"ONNX Runtime refuses the graph: {first_line(error)}", file=self.weights) from None

    def _providers(self) -> list[str]:
        wants_gpu = self.device != "cpu" and "CUDAExecutionProvider" in onnxruntime.get_available_providers()
        return ["CUDAExecutionProvider", "CPUExecutionProvider"] if wants_gpu else ["CPUExecutionProvider"]

    def runs_on_cpu(self) -> bool:
        """See `Detector.runs_on_cpu`."""
        return len(self._providers()) == 1

    @cached_property
    def _model(self) -> onnx.ModelProto:
        """The graph without weights that lie in other files."""
        file = regular_file(self.weights, "the checkpoint does not exist")
        try:
            return onnx.load_model(file, load_external_data=False)
        except Exception as error:  # protobuf's own types
            raise DataError(f"not an ONNX graph, or a damaged one: {first_line(error)}", file=file) from None

    def content(self) -> tuple[Path, ...]:
        """The graph, and the files beside it that hold its weights."""
        named = {
            entry.value
            for tensor in self._model.graph.initializer
            for entry in tensor.external_data
            if entry.key == "location"
        }
        return (self.weights, *(regular_file(inside(self.weights.parent, name)) for name in sorted(named)))

    @cached_property
    def graph(self) -> Graph:
        """Its input and outputs; errors as in `Graph.of`."""
        return Graph.of(self._model, self.weights)

    @cached_property
    def _outputs(self) -> dict[str, str]:
        """Names of the outputs by what they hold, and the layout; errors as in `Graph.named`."""
        if self.features is not None and self.features not in self.graph.outputs:
            raise ParameterError(
                f"features: the graph has no output {self.features!r}, but {', '.join(self.graph.outputs)}"
            )
        return self.graph.named(self.layout, self.features)

    @cached_property
    def known_classes(self) -> tuple[str, ...]:
        """The classes: the parameter, or those of Ultralytics' metadata.

        Raises:
            ParameterError: neither has them.
            DataError: the graph is of another task than detection.
        """
        task = self.graph.metadata.get("task", "detect")
        if task != "detect":
            raise DataError(f"a graph for {shorten(task)}, not for detection", file=self.weights)
        if self.classes is not None:
            return self.classes
        try:
            names = ast.literal_eval(self.graph.metadata.get("names", "")[:1_000_000])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            names = None
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            problem = "the graph does not name its classes: list them in its order, without a background"
            raise ParameterError(f"detector {self.name!r}: parameter 'classes': {problem}")
        return tuple(names[key] for key in sorted(names))

    @cached_property
    def _trained_size(self) -> int:
        """Pixels of the longer side by Ultralytics' metadata ("[640, 640]")."""
        return max(map(int, re.findall(r"\d{1,5}", self.graph.metadata.get("imgsz", ""))), default=SIZE)

    @cached_property
    def columns(self) -> int | None:
        """Columns of the logits: classes, and "no object" where there is one; None for graphs that give no logits."""
        outputs = self._outputs
        if outputs["layout"] not in ("yolo", "detr"):
            return None
        shape = self.graph.outputs[outputs.get("logits", outputs["main"])]
        count = shape[-1] if outputs["layout"] == "detr" else None if shape[1] is None else shape[1] - 4
        expected = (len(self.known_classes),) + ((len(self.known_classes) + 1,) if outputs["layout"] == "detr" else ())
        if count is not None and count not in expected:
            problem = f"{len(self.known_classes)} classes are named, but the graph scores {count}"
            raise DataError(problem, file=self.weights, field="classes")
        return count or expected[0]

    @cached_property
    def _header(self) -> Header:
        classes, columns = self.known_classes, self.columns
        softmax = columns is not None and columns > len(classes)
        return Header(
            classes=(*classes, "no object") if softmax else classes,
            background_index=len(classes) if softmax else None,
            activation="softmax" if softmax else "sigmoid",
            score_threshold=self.score_threshold,
            detector=self.identity,
        )

    def header(self) -> Header:
        """See `Detector.header`."""
        return self._header

    def prepare(self, image: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        """The image as the graph takes it, float32 of shape (3, H, W), and its height and width before."""
        layout, size = self._outputs["layout"], self.graph.size
        if layout.startswith("yolo"):
            stride = int(self.graph.metadata.get("stride", STRIDE))
            if size is None:
                pixels = letterbox(image, self.size or self._trained_size, stride).pixels
            else:
                pixels = LetterBox(size, auto=False, stride=stride)(image=image)
            made = pixels.transpose(2, 0, 1).astype(np.float32) / 255
            return np.ascontiguousarray(made), image.shape[:2]
        if layout == "detr" and size is None:
            if self.size is None:
                raise ParameterError(f"detector {self.name!r}: the graph's input varies: give its 'size' in pixels")
            size = (self.size, self.size)
        scaled = (
            image if size is None else np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR))
        )
        mean, std = (np.array(of, dtype=np.float32) for of in (self.mean, self.std))
        made = (scaled.astype(np.float32) / 255 - mean) / std
        return np.ascontiguousarray(made.transpose(2, 0, 1)), image.shape[:2]

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Detector.forward`."""
        names, found, vectors = self._outputs, [], []
        for pixels, size in prepared:
            answer = self._run(pixels)
            one = LAYOUTS[names["layout"]](self, answer, pixels.shape[1:], size)
            found.append(one)
            if self.features is not None and (self.computed is None or "features" in self.computed):
                of_image = answer[self.features][0]
                rows = one.rows.numpy()
                vectors.append(of_image[rows] if self._is_by_row(of_image, answer) else of_image[:, rows].T)
        columns: dict[str, Any] = {
            "image_id": np.repeat(np.array(image_ids, dtype=object), [len(one.scores) for one in found]),
            "region_id": np.arange(sum(len(one.scores) for one in found)),
            "box": torch.cat([one.boxes for one in found]).numpy(),
            "score": torch.cat([one.scores for one in found]).numpy(),
            "label": torch.cat([one.labels for one in found]).numpy().astype(np.int16),
        }
        if self.columns is not None:
            columns["logits"] = torch.cat([one.logits for one in found if one.logits is not None]).numpy()
        if vectors:
            columns["features"] = np.concatenate(vectors).astype(self.features_dtype)
        return Regions(header=self._header, **columns)

    def _run(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        """The outputs for one image, finite."""
        try:
            values = self.network.run(None, {self.graph.input: pixels if self.graph.is_list else pixels[None]})
        except Exception as error:  # ONNX Runtime's own types
            raise DataError(f"ONNX Runtime cannot run the graph: {first_line(error)}", file=self.weights) from None
        answer = dict(zip(self.graph.outputs, values, strict=True))
        if not all(np.isfinite(value).all() for value in answer.values()):
            raise DataError("the graph gives numbers that are not finite: its weights are damaged", file=self.weights)
        return answer

    def _is_by_row(self, vectors: np.ndarray, answer: Mapping[str, np.ndarray]) -> bool:
        """Whether an output of vectors has one row, not one column, per candidate."""
        main = answer[self._outputs["main"]][0]
        candidates = main.shape[1] if self._outputs["layout"] == "yolo" else main.shape[0]
        if candidates not in vectors.shape:
            problem = f"{shown(vectors.shape)} has no side of the {candidates} candidates"
            raise DataError(problem, file=self.weights, field=str(self.features))
        return vectors.shape[0] == candidates

    def best(self, boxes: Tensor, scores: Tensor, labels: Tensor, rows: Tensor) -> Found:
        """Detections above the threshold, the best first, at most `max_detections`."""
        kept = torch.argsort(scores, descending=True, stable=True)
        kept = kept[scores[kept] > self.score_threshold][: self.max_detections]
        return Found(boxes[kept], scores[kept], labels[kept], rows[kept])


def _of_yolo(adapter: Onnx, answer: Mapping[str, np.ndarray], shown: tuple[int, int], size: tuple[int, int]) -> Found:
    """Ultralytics' raw head: centre, size and class probabilities of each anchor."""
    decoded = torch.from_numpy(answer[adapter._outputs["main"]][0]).float().T
    probabilities = decoded[:, 4:]
    scores, labels = probabilities.max(dim=1)
    rows = torch.nonzero(scores > adapter.score_threshold)[:, 0]
    rows = rows[torch.argsort(scores[rows], descending=True, stable=True)[:CANDIDATES]]
    boxes = box_convert(decoded[rows, :4], "cxcywh", "xyxy")
    kept = batched_nms(boxes, scores[rows], labels[rows], adapter.nms_iou)[: adapter.max_detections]
    rows = rows[kept]
    given = scale_boxes(shown, boxes[kept], size)
    clipped = probabilities[rows].double().clamp(LEAST, LARGEST)
    return Found(given, scores[rows], labels[rows], rows, torch.logit(clipped).float())


def _of_yolo_nms(
    adapter: Onnx, answer: Mapping[str, np.ndarray], shown: tuple[int, int], size: tuple[int, int]
) -> Found:
    """Ultralytics with suppression: corners, score and class of each detection."""
    found = torch.from_numpy(answer[adapter._outputs["main"]][0]).float()
    given = scale_boxes(shown, found[:, :4].clone(), size)
    return adapter.best(given, found[:, 4], found[:, 5].long(), torch.arange(len(found)))


def _of_torchvision(
    adapter: Onnx, answer: Mapping[str, np.ndarray], shown: tuple[int, int], size: tuple[int, int]
) -> Found:
    """torchvision's detectors: boxes in pixels of the input, labels from 1."""
    names = adapter._outputs
    boxes, scores = (torch.from_numpy(answer[names[name]]).float() for name in ("main", "scores"))
    scale = torch.tensor([size[1] / shown[1], size[0] / shown[0]] * 2)
    labels = torch.from_numpy(answer[names["labels"]]).long() - 1
    return adapter.best(boxes * scale, scores, labels, torch.arange(len(boxes)))


def _of_detr(adapter: Onnx, answer: Mapping[str, np.ndarray], shown: tuple[int, int], size: tuple[int, int]) -> Found:
    """Detection transformers: logits, and boxes in fractions of the image, of each query."""
    names = adapter._outputs
    logits, boxes = (torch.from_numpy(answer[names[name]][0]).float() for name in ("logits", "main"))
    classes = len(adapter.known_classes)
    probabilities = logits.softmax(dim=1)[:, :classes] if logits.shape[1] > classes else logits.sigmoid()
    given = box_convert(boxes, "cxcywh", "xyxy") * torch.tensor([size[1], size[0]] * 2)
    if logits.shape[1] > classes:  # one class per query, as DETR's processor does
        scores, labels = probabilities.max(dim=1)
        rows = torch.arange(len(logits))
    else:
        scores, rows = probabilities.flatten(), torch.arange(len(logits)).repeat_interleave(classes)
        labels = torch.arange(classes).repeat(len(logits))
    found = adapter.best(given[rows], scores, labels, rows)
    return Found(found.boxes, found.scores, found.labels, found.rows, logits[found.rows])


#: Detections of an image by layout, from the outputs, the shape of the input, and that of the image.
LAYOUTS: dict[str, Callable[..., Found]] = {
    "torchvision": _of_torchvision,
    "detr": _of_detr,
    "yolo_nms": _of_yolo_nms,
    "yolo": _of_yolo,
}
