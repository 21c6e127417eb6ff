"""Detection graphs in ONNX, exported by detectors' own packages and run by ONNX Runtime."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import onnx
import onnxruntime
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torchvision.ops import batched_nms

from farther.detectors.base import Count, Detector, Fraction, register
from farther.detectors.networks.onnx_graph import GraphDescription, Port, external_files, shape_text
from farther.detectors.networks.onnx_input import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    ONES,
    ZEROS,
    Canvas,
    Channels,
    Interpolation,
    PixelRange,
    Placement,
    Preprocessing,
    Resize,
    place,
)
from farther.detectors.networks.onnx_layouts import (
    STRIDE,
    Candidates,
    Layout,
    LayoutName,
    Reading,
    RecognisedLayout,
    recognise_layout,
)
from farther.detectors.networks.onnx_sidecar import Settings, read_sidecars, sidecars
from farther.detectors.recognition import COMPARED, IdClasses, RecognisedFile
from farther.errors import DataError, ParameterError, first_line, shorten
from farther.naming.registry import STRICT
from farther.processes import count_cores
from farther.tables import Header, Regions
from farther.tables.files import inside, regular_file

Positive = Annotated[float, Field(gt=0)]
#: Number of candidates, the best, that take part in NMS, as in Ultralytics.
CANDIDATES = 30_000
#: Length of the longer side of YOLO's dynamic inputs, if it is not in the metadata.
YOLO_SIZE = 640
#: Shape of the image on which a graph is tried.
TEST_IMAGE = (480, 640, 3)
#: Length of the shorter side of dynamic inputs of Detectron2's graphs.
DETECTRON2_SIZE = 800
#: Part of the names of the nodes of DEIMv2 whose backbone is DINOv3.
DINOV3 = "dinov3"


@plain_dataclass(frozen=True)
class PreparedImage:
    """An image as the input of the graph.

    Args:
        pixels: float32 ndarray of shape (3, H', W').
        placement: Place of the image in it.
    """

    pixels: np.ndarray
    placement: Placement


@plain_dataclass(frozen=True)
class Detections:
    """N detections of one image, best first.

    Args:
        boxes: float32 tensor of shape (N, 4), in pixels of the image.
        scores: float32 tensor of shape (N,).
        labels: int64 tensor of shape (N,).
        rows: int64 tensor of shape (N,): their rows among the graph's candidates.
        logits: float32 tensor of shape (N, K); None if the graph has none.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    rows: Tensor
    logits: Tensor | None


@register("onnx")
@dataclass(config=STRICT, kw_only=True)
class Onnx(Detector):
    """A detection graph, run on one image at a time.

    Layouts, with their exporters and outputs:

    - `yolo`: Ultralytics; (1, 4 + K, A). NMS is applied as in `predict`. Logits are the inverse
      sigmoid of the scores.
    - `yolo_nms`: Ultralytics with `nms=True`, or heads that do not need it; (1, N, 6). No logits.
    - `yolov5`: YOLOv5, and YOLOv7 with `--grid`; (1, A, 5 + K). The score is objectness · class
      score; logits are those of the class scores.
    - `yolov7_nms`: YOLOv7 with `--grid --end2end --max-wh`; (N, 7). No logits.
    - `yolox`: YOLOX, with or without decoding; (1, A, 5 + K). Score and logits as in `yolov5`.
    - `torchvision`: boxes (N, 4), labels (N,) with background 0, scores (N,). No logits.
    - `detectron2`: Detectron2's tracing; boxes (N, 4), classes, scores, the image's size. No
      logits.
    - `detr`: transformers; logits (1, Q, C) and pred_boxes (1, Q, 4). Logits are the graph's: of a
      sigmoid, or with one more column than classes of a softmax with "no object" last.
    - `rfdetr`: RF-DETR; dets (1, Q, 4) and labels (1, Q, C). Logits are the graph's, of a sigmoid,
      without a last column beyond the classes.
    - `dfine`: D-FINE, DEIM, RT-DETR's own code; labels, boxes and scores (1, N), with the input
      orig_target_sizes. No logits.
    - `mmdeploy`: MMDeploy; dets (1, N, 5) and labels (1, N). No logits.

    The layout is recognised from names, shapes and metadata of inputs and outputs. Images are
    prepared as in the exporter's own code; sizes, mean and std of transformers'
    `preprocessor_config.json` and MMDeploy's `pipeline.json` beside the graph are used, and a graph
    that begins with a normalisation, or has 8-bit pixels as input, gets pixels that are not
    normalised. The parameters override each of these. A probability that float32 rounds to 1 has
    the logit of 1 − 2⁻²⁴, 16.6.

    The graph is data: operators that ONNX Runtime does not have, and files of weights outside of
    its folder, are refused.

    Args:
        score_threshold: Detections below this score are discarded. Keep it low: the operating
            threshold is applied later.
        max_detections: Largest number of detections per image; the best are kept.
        nms_iou: Of two detections of one class that overlap by more than this IoU, the better one
            is kept. None is that of the exporter's own code: 0.7 for `yolo`, 0.45 for `yolov5`,
            0.65 for `yolox`, and no NMS for the others.
        layout: See above; None recognises it.
        classes: Names of the classes, in the graph's order, without a background.
        size: Size in pixels of a dynamic input: its longer side, or height and width; for
            `detectron2` the shorter side.
        resize: "letterbox" keeps the shape and pads both sides, "letterbox_corner" pads right and
            below, "shortest_edge" keeps the shape without padding, "stretch" scales both sides,
            "none" leaves the image unchanged. None is the way of the exporter's own code.
        interpolation: "opencv", "pillow" (antialiased) or "torch"; all bilinear.
        padding: Value of padded pixels, between 0 and 255.
        channels: "rgb" or "bgr".
        pixel_range: Largest value of a pixel: 1 or 255.
        mean, std: Subtracted from, and divided by, pixels between 0 and `pixel_range`, in the order
            of `channels`.
        features: Name of an output with a vector per candidate (anchor or query), of shape (1, A,
            D) or (1, D, A).

    Raises:
        DataError: the file is damaged, or its outputs are not those of a layout; lists them.
    """

    RECOGNISED_FILES: ClassVar[tuple[str, ...]] = ("*.onnx",)

    score_threshold: Fraction = 0.05
    max_detections: Count = 100
    nms_iou: Fraction | None = None
    layout: LayoutName | None = None
    classes: tuple[str, ...] | None = None
    size: Count | tuple[Count, Count] | None = None
    resize: Resize | None = None
    interpolation: Interpolation | None = None
    padding: Annotated[int, Field(ge=0, le=255)] | None = None
    channels: Channels | None = None
    pixel_range: PixelRange | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[Positive, Positive, Positive] | None = None
    features: str | None = None

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """A graph that detects objects in one image; see `Adapter`.

        Raises:
            DataError: its layout is not known, it has another number of classes, or it does not
                run.
        """
        if path.is_dir():
            return None
        params: dict[str, Any] = {}
        assumed = []
        detector = cls(weights=path)
        if not detector.names_classes:
            params["classes"] = id_classes.categories
            assumed.append(COMPARED)
        if detector.lacks_size:
            params["size"] = YOLO_SIZE
            assumed.append(
                f"its input varies: images are given {YOLO_SIZE} pixels (parameter size)"
            )
        try:
            cls(weights=path, **params).detect(np.zeros(TEST_IMAGE, dtype=np.uint8))
        except DataError as error:
            if error.field != "classes" or "classes" not in params:
                raise
            problem = (
                "the graph names no classes, and they cannot be the ID dataset's: "
                f"{error.problem}. Make the project with another detector, then write "
                "{adapter: onnx, weights: …, params: {classes: […]}} into section 'detectors' of "
                "params.yaml"
            )
            raise DataError(problem, file=path) from None
        return RecognisedFile(params, assumed="; ".join(assumed))

    @cached_property
    def network(self) -> onnxruntime.InferenceSession:
        """ONNX Runtime's session; see `Detector.network`."""
        self._weight_files()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = count_cores()
        options.log_severity_level = 3
        try:
            return onnxruntime.InferenceSession(self.weights, options, providers=self._providers())
        except Exception as error:  # ONNX Runtime's own types
            raise DataError(self._refusal(error), file=self.weights) from None

    def _refusal(self, error: Exception) -> str:
        """Message for a graph that ONNX Runtime does not open."""
        unknown = self.graph.unknown_operators
        if not unknown:
            return f"ONNX Runtime refuses the graph: {first_line(error)}"
        return (
            f"the graph has operators that ONNX Runtime does not have: {', '.join(unknown)}. They "
            "are of the program that it was exported for, such as TensorRT: export it for ONNX "
            "Runtime, without NMS or with that of ONNX (MMDeploy: a configuration *_onnxruntime_*)"
        )

    def _providers(self) -> list[str]:
        """ONNX Runtime's execution providers, in order of preference."""
        available = onnxruntime.get_available_providers()
        if self.device != "cpu" and "CUDAExecutionProvider" in available:
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]
        return ["CPUExecutionProvider"]

    def runs_on_cpu(self) -> bool:
        """See `Detector.runs_on_cpu`."""
        return len(self._providers()) == 1

    @cached_property
    def _model(self) -> onnx.ModelProto:
        """The graph, without weights in other files."""
        file = regular_file(self.weights, "the checkpoint does not exist")
        try:
            model = onnx.load_model(file, load_external_data=False)
        except Exception as error:  # protobuf's own types
            raise DataError(
                f"not an ONNX graph, or a damaged one: {first_line(error)}. Copy or export it "
                "again",
                file=file,
            ) from None
        if not model.graph.node:
            raise DataError("not an ONNX graph, or an empty one: it has no operators", file=file)
        return model

    def content(self) -> tuple[Path, ...]:
        """The graph, the files beside it that hold its weights, and its exporter's settings.

        Raises:
            DataError: a file of weights is absent.
        """
        beside = sidecars(self.weights, self._layout.name)
        return (self.weights, *self._weight_files(), *beside)

    def _weight_files(self) -> list[Path]:
        """The files beside the graph that hold its weights.

        Raises:
            DataError: one is absent.
        """
        files = []
        problem = (
            f"does not exist, but {self.weights.name} has its weights there: copy it beside the "
            "graph"
        )
        for name in external_files(self._model):
            file = inside(self.weights.parent, name)
            files.append(regular_file(file, problem))
        return files

    def files(self) -> tuple[Path, ...]:
        """See `Detector.files`."""
        return self.content()

    @cached_property
    def graph(self) -> GraphDescription:
        """Its inputs and outputs; errors as in `GraphDescription.of`."""
        return GraphDescription.of(self._model, self.weights)

    @cached_property
    def _recognised(self) -> RecognisedLayout:
        """The layout of the outputs; errors as in `recognise_layout`."""
        if self.features is not None and self.features not in self.graph.outputs:
            outputs = ", ".join(self.graph.outputs)
            raise ParameterError(
                f"features: the graph has no output {self.features!r}, but {outputs}"
            )
        try:
            return recognise_layout(self.graph, self.layout, self.features)
        except DataError:
            if all(_is_fixed(port) for port in self.graph.outputs.values()):
                raise
        return recognise_layout(self._measured, self.layout, self.features)

    @cached_property
    def _measured(self) -> GraphDescription:
        """The graph with the shapes of its outputs for a black image.

        Raises:
            DataError: ONNX Runtime refuses the graph, or the image.
        """
        size = self.size or YOLO_SIZE
        height, width = (size, size) if isinstance(size, int) else size
        fixed_height, fixed_width = self.graph.size
        canvas = (fixed_height or height, fixed_width or width)
        placement = Placement(canvas, canvas, (1.0, 1.0))
        black_image = np.zeros((3, *canvas), dtype=np.float32)
        outputs = self._run(PreparedImage(black_image, placement))
        return self.graph.measured(canvas, {name: value.shape for name, value in outputs.items()})

    @property
    def _layout(self) -> Layout:
        """The layout of the outputs."""
        return self._recognised.layout

    @cached_property
    def _settings(self) -> Settings:
        """Settings in the files beside the graph; errors as in `read_sidecars`."""
        return read_sidecars(self.weights, self._layout.name, self._layout.preprocessing)

    @cached_property
    def known_classes(self) -> tuple[str, ...]:
        """The classes: the parameter, or those of the metadata or of the files beside the graph.

        Raises:
            ParameterError: they are in none of these.
            DataError: the graph is of another task than detection.
        """
        names = self._names()
        if names is None:
            raise ParameterError(
                f"detector {self.name!r}: parameter 'classes': the graph does not name its "
                "classes: list them in its order, without a background"
            )
        return names

    def _names(self) -> tuple[str, ...] | None:
        """Names of the classes; None if they are unknown.

        Raises:
            DataError: the graph is of another task than detection.
        """
        task = self.graph.metadata.get("task", "detect")
        if task != "detect":
            raise DataError(f"a graph for {shorten(task)}, not for detection", file=self.weights)
        return self.classes or self.graph.names or self._settings.classes

    @property
    def names_classes(self) -> bool:
        """True if the classes are known; errors as in `known_classes`."""
        return self._names() is not None

    @property
    def lacks_size(self) -> bool:
        """True if the input is dynamic and its size is unknown."""
        if self.graph.fixed_size is not None or self._resize == "none":
            return False
        return self._given_size() is None

    @cached_property
    def columns(self) -> int | None:
        """Number of columns of the logits: classes, and "no object" if there is one.

        None for graphs without logits.

        Raises:
            DataError: the number of columns differs from that of the classes.
        """
        layout = self._layout
        if not layout.has_logits:
            return None
        roles = self._recognised.roles
        name = roles.get("logits", roles["boxes"])
        port = self.graph.outputs[name]
        count = layout.columns(port)
        if count is None:
            port = self._measured.outputs[name]
            count = layout.columns(port)
        classes = len(self.known_classes)
        expected = [classes]
        if layout.name in ("detr", "rfdetr"):
            expected.append(classes + 1)
        if count is not None and count not in expected:
            names = ", ".join(self.known_classes[:5])
            if classes > 5:
                names += ", …"
            raise DataError(
                f"{classes} classes are named ({names}), but the graph scores {count}: its output "
                f"is {port}. List them with the parameter 'classes', in the graph's order",
                file=self.weights,
                field="classes",
            )
        if layout.name == "rfdetr":
            return classes
        return count

    @property
    def _has_no_object(self) -> bool:
        """True if the last column of the logits is "no object", with a softmax."""
        return self.columns is not None and self.columns > len(self.known_classes)

    @cached_property
    def _header(self) -> Header:
        classes = self.known_classes
        identity = self.identity
        if self._layout.has_objectness:
            identity = {**identity, "objectness": True}
        if not self._has_no_object:
            return Header(
                classes=classes,
                activation="sigmoid",
                score_threshold=self.score_threshold,
                detector=identity,
            )
        return Header(
            classes=(*classes, "no object"),
            background_index=len(classes),
            activation="softmax",
            score_threshold=self.score_threshold,
            detector=identity,
        )

    def header(self) -> Header:
        """See `Detector.header`."""
        return self._header

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """Preprocessing of images: the exporter's, changed by the graph and the parameters.

        Raises:
            ParameterError: a mean is outside of the pixels' range.
        """
        preprocessing = self._settings.preprocessing
        is_default = preprocessing == self._layout.preprocessing
        if is_default and self._is_normalised_as_imagenet():
            preprocessing = replace(preprocessing, mean=IMAGENET_MEAN, std=IMAGENET_STD)
        preprocessing = replace(preprocessing, resize=self._resize)
        if self.graph.image.type == "uint8":
            preprocessing = replace(preprocessing, pixel_range=255, mean=ZEROS, std=ONES)
        elif self.graph.normalises is not None:
            pixel_range = self.graph.normalises
            preprocessing = replace(preprocessing, pixel_range=pixel_range, mean=ZEROS, std=ONES)
        if "stride" in self.graph.metadata and preprocessing.divisor is not None:
            stride = re.match(r"\d{1,4}", self.graph.metadata["stride"])
            if stride is not None and int(stride[0]) > 0:
                preprocessing = replace(preprocessing, divisor=int(stride[0]))
        return self._overridden(preprocessing)

    @property
    def _resize(self) -> Resize:
        """How images are resized: the parameter, or the exporter's way for this input."""
        if self.resize is not None:
            return self.resize
        if self.graph.fixed_size is None:
            if self._layout.name == "torchvision":
                return "none"
            if self._layout.name == "detectron2":
                return "shortest_edge"
        elif self._settings.preprocessing.resize == "shortest_edge":
            return "stretch"
        return self._settings.preprocessing.resize

    def _overridden(self, preprocessing: Preprocessing) -> Preprocessing:
        """The preprocessing, overridden by the parameters.

        Raises:
            ParameterError: a mean is outside of the pixels' range.
        """
        params = {}
        for name in ("interpolation", "padding", "channels", "pixel_range", "mean", "std"):
            value = getattr(self, name)
            if value is not None:
                params[name] = value
        if self.pixel_range is not None and self.pixel_range != preprocessing.pixel_range:
            # The exporter's mean and std are for the other range.
            factor = self.pixel_range / preprocessing.pixel_range
            params.setdefault("mean", tuple(value * factor for value in preprocessing.mean))
            params.setdefault("std", tuple(value * factor for value in preprocessing.std))
        preprocessing = replace(preprocessing, **params)
        largest = max(abs(value) for value in preprocessing.mean)
        if self.mean is not None and largest > preprocessing.pixel_range + 2:
            raise ParameterError(
                f"detector {self.name!r}: parameter 'mean': {largest:g} is of pixels between 0 and "
                "255, but the graph is given pixels between 0 and 1: add pixel_range: 255"
            )
        return preprocessing

    def _is_normalised_as_imagenet(self) -> bool:
        """True if the input of this kind of network is normalised by ImageNet's mean and std.

        These are transformers' DETRs with "no object", and DEIMv2 on DINOv3. The input of RT-DETR
        and D-FINE is pixels between 0 and 1.
        """
        if self._layout.name == "detr":
            return self._has_no_object
        if self._layout.name == "dfine":
            return DINOV3 in self.graph.modules
        return False

    @cached_property
    def _canvas(self) -> Canvas | None:
        """Size of the input; None if images are not resized.

        Raises:
            ParameterError: the input is dynamic, and its size is unknown.
        """
        if self.preprocessing.resize == "none":
            return None
        fixed = self.graph.fixed_size
        if fixed is not None:
            return Canvas(*fixed)
        height, width = self._varying_size()
        fixed_height, fixed_width = self.graph.size
        return Canvas(fixed_height or height, fixed_width or width, varies=True)

    def _varying_size(self) -> tuple[int, int]:
        """Height and width of a dynamic input; errors as in `_canvas`."""
        size = self._given_size()
        if size is None:
            raise ParameterError(
                f"detector {self.name!r}: the graph's input varies: give its 'size' in pixels"
            )
        if isinstance(size, int):
            size = (size, size)
        height, width = size
        divisor = self.preprocessing.divisor
        if self.preprocessing.resize == "letterbox" and divisor is not None:
            height = math.ceil(height / divisor) * divisor
            width = math.ceil(width / divisor) * divisor
        return height, width

    def _given_size(self) -> int | tuple[int, int] | None:
        """Size of a dynamic input, from the parameter, files, metadata or layout; None without."""
        size = self.size or self._settings.size
        if size is None and self._layout.name.startswith("yolo"):
            return self._trained_size
        if size is None and self._layout.name == "detectron2":
            return DETECTRON2_SIZE
        return size

    @property
    def _trained_size(self) -> int:
        """Length of the longer side in Ultralytics' metadata ("[640, 640]"), in pixels."""
        sides = re.findall(r"\d{1,5}", self.graph.metadata.get("imgsz", ""))
        return max((int(side) for side in sides), default=YOLO_SIZE)

    def prepare(self, image: np.ndarray) -> PreparedImage:
        """The image as the input of the graph."""
        pixels, placement = place(image, self.preprocessing, self._canvas)
        return PreparedImage(pixels, placement)

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Detector.forward`."""
        has_logits = self.columns is not None
        detections_by_image = []
        features = []
        for image in prepared:
            outputs = self._run(image)
            detections = self._detections(outputs, image.placement)
            detections_by_image.append(detections)
            if self.features is not None and self._stores_features():
                features.append(self._features_of(outputs, detections.rows.numpy()))
        counts = [len(detections.scores) for detections in detections_by_image]
        boxes = torch.cat([detections.boxes for detections in detections_by_image])
        scores = torch.cat([detections.scores for detections in detections_by_image])
        labels = torch.cat([detections.labels for detections in detections_by_image])
        columns: dict[str, Any] = {
            "image_id": np.repeat(np.array(image_ids, dtype=object), counts),
            "region_id": np.arange(sum(counts)),
            "box": boxes.numpy(),
            "score": scores.numpy(),
            "label": labels.numpy().astype(np.int16),
        }
        if has_logits:
            logits = [detections.logits for detections in detections_by_image]
            columns["logits"] = torch.cat([rows for rows in logits if rows is not None]).numpy()
        if features:
            columns["features"] = np.concatenate(features).astype(self.features_dtype)
        return Regions(header=self._header, **columns)

    def _stores_features(self) -> bool:
        """True if the column `features` is stored."""
        return self.computed is None or "features" in self.computed

    def _inputs(self, image: PreparedImage) -> dict[str, np.ndarray]:
        """The inputs of the graph for one image."""
        graph = self.graph
        pixels = image.pixels
        if graph.is_channels_last:
            pixels = pixels.transpose(1, 2, 0)
        if graph.image.type == "uint8":
            pixels = np.rint(pixels)
        pixels = np.ascontiguousarray(pixels, dtype=graph.image.type)
        if not graph.is_list:
            pixels = pixels[None]
        inputs = {graph.image.name: pixels}
        if graph.sizes is not None:
            height, width = image.placement.image
            sizes = np.array([[width, height]], dtype=graph.sizes.type)
            inputs[graph.sizes.name] = sizes
        if graph.mask is not None:
            sides = image.pixels.shape[1:]
            inputs[graph.mask.name] = np.ones((1, *sides), dtype=graph.mask.type)
        return inputs

    def _run(self, image: PreparedImage) -> dict[str, np.ndarray]:
        """The outputs for one image, by name.

        Raises:
            DataError: the graph cannot be run, or yields numbers that are not finite.
        """
        network = self.network
        inputs = self._inputs(image)
        try:
            values = network.run(None, inputs)
        except Exception as error:  # ONNX Runtime's own types
            sides = shape_text(image.pixels.shape)
            advice = ""
            if self.graph.fixed_size is None:
                advice = (
                    f". The input {self.graph.image} says that its sides vary, but {sides} was "
                    "refused: give the parameter 'size' that it was exported with (or a multiple "
                    f"of {STRIDE}), and 'resize: stretch' if it takes squares only"
                )
            raise DataError(
                f"ONNX Runtime cannot run the graph: {first_line(error)}{advice}", file=self.weights
            ) from None
        outputs = dict(zip(self.graph.outputs, values, strict=True))
        for name, value in outputs.items():
            if not np.isfinite(value).all():
                raise DataError(
                    f"the output {name} has numbers that are not finite: the graph's weights are "
                    "damaged",
                    file=self.weights,
                )
        return outputs

    def _detections(self, outputs: Mapping[str, np.ndarray], placement: Placement) -> Detections:
        """Detections above the threshold and after NMS, the best first.

        Raises:
            DataError: a label is not one of the classes, or the outputs are not those of the
                layout.
        """
        reading = Reading(
            roles=self._recognised.roles,
            classes=len(self.known_classes),
            canvas=placement.canvas,
            decodes="Exp" in self.graph.operators,
        )
        try:
            candidates = self._layout.read(outputs, reading)
        except DataError as error:
            raise error.within(self.weights) from None
        except (IndexError, RuntimeError) as error:
            shapes = ", ".join(
                f"{name} {shape_text(value.shape)}" for name, value in outputs.items()
            )
            raise DataError(
                f"the outputs {shapes} are not those of layout {self._layout.name!r} "
                f"({first_line(error)})",
                file=self.weights,
            ) from None
        rows = self._selected(candidates)
        self._check_labels(candidates.labels[rows])
        boxes = candidates.boxes[rows]
        if candidates.frame == "input":
            boxes = placement.to_image(boxes)
        elif candidates.frame == "fraction":
            boxes = placement.of_fractions(boxes)
        if self._layout.clips:
            boxes = placement.clipped(boxes)
        # Heads without exp() may yield negative sides: such boxes are made empty.
        corners = torch.maximum(boxes[:, :2], boxes[:, 2:])
        boxes = torch.cat([boxes[:, :2], corners], dim=1)
        graph_rows = candidates.rows[rows]
        return Detections(
            boxes,
            candidates.scores[rows],
            candidates.labels[rows],
            graph_rows,
            candidates.logits_of(graph_rows),
        )

    def _selected(self, candidates: Candidates) -> Tensor:
        """Indices of the candidates above the threshold and after NMS, the best first."""
        scores = candidates.scores
        rows = torch.nonzero(scores > self.score_threshold)[:, 0]
        order = torch.argsort(scores[rows], descending=True, stable=True)
        rows = rows[order[:CANDIDATES]]
        iou = self._layout.nms_iou if self.nms_iou is None else self.nms_iou
        if iou is not None:
            kept = batched_nms(candidates.boxes[rows], scores[rows], candidates.labels[rows], iou)
            rows = rows[kept]
        return rows[: self.max_detections]

    def _check_labels(self, labels: Tensor) -> None:
        """Refuses labels that are not classes."""
        count = len(self.known_classes)
        wrong = labels[(labels < 0) | (labels >= count)]
        if len(wrong) > 0:
            number = int(wrong[0])
            raise DataError(
                f"the graph gives class {number}, but {count} classes are named, 0 to "
                f"{count - 1}: list all of them with the parameter 'classes', in the graph's order",
                file=self.weights,
                field="classes",
            )

    def _features_of(self, outputs: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
        """Features of the candidates at `rows`, shape (N, D).

        Raises:
            DataError: the output does not have one vector per candidate.
        """
        vectors = outputs[str(self.features)][0]
        boxes = outputs[self._recognised.roles["boxes"]]
        if boxes.ndim == 3:
            boxes = boxes[0]
        candidates = boxes.shape[1] if self._layout.name == "yolo" else boxes.shape[0]
        if candidates not in vectors.shape:
            problem = f"{shape_text(vectors.shape)} has no side of the {candidates} candidates"
            raise DataError(problem, file=self.weights, field=str(self.features))
        if vectors.shape[0] == candidates:
            return vectors[rows]
        return vectors[:, rows].T


def _is_fixed(port: Port) -> bool:
    """True if the shape of an output is known, except for the number of images."""
    return len(port.shape) > 0 and None not in port.shape[1:]
