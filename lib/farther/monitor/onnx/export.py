"""Writing the ONNX graph of a detector with a method."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from farther.detectors.base import Detector, LatentDetector
from farther.detectors.classifier import Classifier
from farther.detectors.dense import FCOS, RetinaNet
from farther.detectors.detr import Detr
from farther.detectors.faster_rcnn import FasterRCNN, MaskRCNN
from farther.detectors.networks.architectures import MSRA
from farther.detectors.open_clip_classifier import OpenClipClassifier
from farther.detectors.transformers_classifier import TransformersClassifier
from farther.detectors.yolo import Yolo
from farther.errors import ParameterError, shorten
from farther.methods.base import Method
from farther.methods.ddu import DDU
from farther.methods.mahalanobis import Mahalanobis
from farther.methods.mds_ensemble import MDSEnsemble
from farther.methods.torch_form import ScoreModule
from farther.monitor.bundle_info import BundledGraph, GraphPort
from farther.monitor.bundle_proposals import BundledProposals
from farther.monitor.onnx.networks import (
    ClassifierGraph,
    Columns,
    DenseGraph,
    DetrGraph,
    FasterRCNNGraph,
    Graph,
    YoloGraph,
)
from farther.monitor.onnx.preprocessing import described
from farther.monitor.onnx.proposals import OF_PROPOSALS, SYMBOLICS, beside
from farther.tables import Header
from farther.tables.files import digest

FILE = "model.onnx"

#: The newest that onnxruntime 1.20, the oldest that farther asks for, and PyTorch's exporter know.
OPSET = 20

#: Bytes of a file of protocol buffers, less what the nodes take.
LARGEST = (2 << 30) - (64 << 20)

#: By class: an adapter that derives from one of these may compute something else.
GRAPHS: dict[type[Detector], type[Graph]] = {
    Yolo: YoloGraph,
    Detr: DetrGraph,
    FasterRCNN: FasterRCNNGraph,
    MaskRCNN: FasterRCNNGraph,
    RetinaNet: DenseGraph,
    FCOS: DenseGraph,
    Classifier: ClassifierGraph,
    TransformersClassifier: ClassifierGraph,
    OpenClipClassifier: ClassifierGraph,
}

#: Standard deviations by which the rounding of float32 may move a whitened vector.
MOST_ROUNDING = 0.1

#: A layer of YOLO-World's first version.
POOLED = "ImagePoolingAttn"

#: Two images of other shapes.
SAMPLES = (np.full((64, 96, 3), 90, np.uint8), np.full((96, 80, 3), 90, np.uint8))


@dataclass(frozen=True)
class Decisions:
    """What a graph decides: which boxes are detections, which of them are unknown, and which proposals.

    Args:
        operating, tau: t* and τ.
        proposals: None for none.
    """

    operating: float
    tau: float
    proposals: BundledProposals | None = None


class Scored(nn.Module):
    """A detector's graph, the score of a method, and thresholds.

    Args:
        graph: The detector.
        method: Fitted.
        header: Header of the detector's regions.
        decisions: Thresholds.
    """

    def __init__(self, graph: Graph, method: Method, header: Header, decisions: Decisions):
        super().__init__()
        self.graph, self.method = graph, method
        self.score = score_module(method, header)
        self.tau, self.proposals = decisions.tau, decisions.proposals
        self.dtype = getattr(torch, graph.detector.features_dtype)

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, in order."""
        of_detections = [
            "box",
            "label",
            "confidence",
            "logits",
            *self.method.columns,
            "score",
            "unknown",
        ]
        return [*of_detections, *([] if self.proposals is None else OF_PROPOSALS)]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs of one image: N rows each, and of proposals P."""
        columns = self.graph(*inputs)
        for name in self.method.columns:
            if name not in columns:
                problem = f"the graph of this detector has no column {name!r}"
                raise ParameterError(f"method {self.method.name!r} cannot be exported: {problem}")
            columns[name] = columns[name].to(self.dtype).float()
        read = {name: columns[name] for name in ("logits", "label", *self.method.columns)}
        score = self.score(score=columns["confidence"], **read)
        columns |= {"score": score, "unknown": score < number(self.tau)}
        if self.proposals is not None:
            called = self._called(self.proposals, columns)
            columns |= {name: columns[name][called] for name in OF_PROPOSALS}
        return tuple(columns[name] for name in self.outputs)

    @staticmethod
    def _called(proposals: BundledProposals, columns: Columns) -> Tensor:
        """Rows of the proposals that are called unknown; see `BundledProposals.called`."""
        boxes, objectness = (columns[name].double() for name in OF_PROPOSALS)
        called = beside(boxes, columns["box"].double(), proposals.iou)
        if proposals.threshold is not None:
            called = called & (objectness > number(proposals.threshold))
        return torch.where(called)[0]


def write_graph(
    detector: Detector, method: Method, header: Header, decisions: Decisions, folder: Path
) -> BundledGraph:
    """Writes `model.onnx` into a folder.

    Args:
        detector: Any device; the graph is traced on the CPU.
        method: Fitted.
        header: Of the detector's regions.
        decisions: Their proposals are of a kind that graphs compute; see
            `BundledProposals.not_in_graphs`.
        folder: Exists.

    Returns:
        The entry `onnx` of `bundle.json`.

    Raises:
        ParameterError: the detector or the method cannot be exported; says why.
    """
    score_module(method, header)
    proposed = None if decisions.proposals is None else decisions.proposals.selection()
    detector = replace(detector, device="cpu")
    kind = _kind(detector)
    sample = inputs_of(detector, SAMPLES[0])
    shapes = [tuple(inputs_of(detector, image)["image"].shape) for image in SAMPLES]
    free = [
        axis
        for axis, sides in enumerate(zip(*shapes, strict=True))
        if kind.any_shape and sides[0] != 3
    ]
    if shapes[0] != shapes[1] and not kind.any_shape:
        problem = f"its images have many shapes, such as {shapes[0]} and {shapes[1]}, and its network is traced for one"
        raise ParameterError(f"detector {detector.name!r} cannot be exported: {problem}")
    module = Scored(
        kind(detector, method.columns, decisions.operating, proposed), method, header, decisions
    ).eval()
    _check_size(module, method)
    axes = {"image": dict(zip(free, ("height", "width"), strict=True))} if free else {}
    axes |= {
        name: {0: "proposals" if name in OF_PROPOSALS else "detections"} for name in module.outputs
    }
    file = folder / FILE
    with torch.no_grad(), tracing():
        torch.onnx.export(
            module,
            tuple(sample.values()),
            file,
            dynamo=False,
            opset_version=OPSET,
            input_names=list(sample),
            output_names=module.outputs,
            dynamic_axes=axes,
        )
    model = onnx.load(file, load_external_data=False)
    thresholds = {"operating": decisions.operating, "tau": decisions.tau}
    facts = {"classes": list(header.classes), **thresholds, "method": method.name}
    for name, value in facts.items():
        model.metadata_props.add(key=f"farther.{name}", value=json.dumps(value))
    onnx.save(model, file)
    onnx.checker.check_model(str(file), full_check=True)
    _check_runs(detector, file)
    return BundledGraph(
        file=FILE,
        digest=digest(file),
        opset=OPSET,
        inputs=[_port(value) for value in model.graph.input],
        outputs=[_port(value) for value in model.graph.output],
        preprocessing=described(detector),
    )


def inputs_of(detector: Detector, image: np.ndarray) -> dict[str, Tensor]:
    """The inputs of the graph, by name, for an image (H, W, 3), uint8."""
    prepared = detector.prepare(image)
    if isinstance(prepared, np.ndarray):
        return {"image": torch.from_numpy(prepared)}
    pixels = torch.as_tensor(prepared.pixels)
    mask = getattr(prepared, "mask", None)
    if mask is not None and not mask.all():
        problem = "its images are padded to one shape, and the graph has no mask"
        raise ParameterError(f"detector {detector.name!r} cannot be exported: {problem}")
    return {"image": pixels, "original": torch.tensor(prepared.original)}


def _kind(detector: Detector) -> type[Graph]:
    """The graph's class.

    Raises:
        ParameterError: there is none, or not with these parameters.
    """
    found = GRAPHS.get(type(detector))
    problem = None
    if found is None:
        problem = f"only {', '.join(sorted(cls.name for cls in GRAPHS))} can be"
    elif detector.precision != "float32":
        problem = f"its precision is {detector.precision}, and graphs compute in float32"
    elif isinstance(detector, LatentDetector) and detector.published_rois:
        problem = "published_rois places boxes by the width of the image alone"
    elif isinstance(detector, Yolo) and POOLED in str(
        detector.checkpoint.blueprint.architecture["head"]
    ):
        problem = f"{POOLED}, of YOLO-World's first version, is not traced for images of any shape"
    elif isinstance(detector, FasterRCNN) and detector.blueprint.architecture == MSRA:
        problem = f"{MSRA} computes anchors and proposals as Detectron2 does, in steps that are not traced"
    if found is None or problem is not None:
        raise ParameterError(f"detector {detector.name!r} cannot be exported: {problem}")
    return found


def _check_runs(detector: Detector, file: Path) -> None:
    try:
        onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    except Exception as error:  # its classes have no common base
        problem = (
            f"onnxruntime {onnxruntime.__version__} cannot run its graph: {shorten(str(error))}"
        )
        raise ParameterError(f"detector {detector.name!r} cannot be exported: {problem}") from error


def _check_size(module: nn.Module, method: Method) -> None:
    size = sum(
        value.numel() * value.element_size() for value in (*module.parameters(), *module.buffers())
    )
    if size > LARGEST:
        problem = (
            f"weights and fitted state have {size / 2**30:.1f} GiB, and an ONNX file at most 2"
        )
        raise ParameterError(
            f"method {method.name!r} cannot be exported with this detector: {problem}"
        )


def score_module(method: Method, header: Header) -> ScoreModule:
    """The score as a module that is exported.

    Raises:
        ParameterError: it cannot be; says why.
    """
    reason = method.no_torch_form()
    if isinstance(method, DDU):
        reason = "ONNX has no solution of triangular equations"
    parts: list[Method] = [method]
    if isinstance(method, MDSEnsemble):
        parts = [*method.fitted_parts()]
    for part in parts:
        if isinstance(part, Mahalanobis) and not reason:
            reason = _rounding_of(part)
    if reason:
        raise ParameterError(f"method {method.name!r} cannot be exported: {reason}")
    return method.to_torch(header=header)


def _rounding_of(method: Mahalanobis) -> str:
    """Why the rounding of a network in float32 decides the distances; empty where it does not."""
    scale = max(np.linalg.norm(method.mean_), np.linalg.norm(getattr(method, "latent_mean_", 0.0)))
    rounding = np.linalg.norm(method.whitening_) * np.finfo(np.float32).eps * scale
    if rounding <= MOST_ROUNDING:
        return ""
    return f"the covariance is so nearly singular that rounding moves vectors by {rounding:.2g} deviations"


def number(value: float) -> Tensor:
    """A number as a constant of the graph, shape (1,): the exporter would round a plain one to float32."""
    return torch.tensor([value], dtype=torch.float64)


@contextmanager
def tracing() -> Iterator[None]:
    """Lets layers compute in the steps that ONNX has, and the tracer not warn of sizes that all images share."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    for name, steps in SYMBOLICS.items():
        torch.onnx.register_custom_op_symbolic(name, steps, OPSET)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for name in SYMBOLICS:
            torch.onnx.unregister_custom_op_symbolic(name, OPSET)


def _port(value: Any) -> GraphPort:
    kind = value.type.tensor_type
    shape = [side.dim_param or side.dim_value for side in kind.shape.dim]
    return GraphPort(
        name=value.name, type=onnx.TensorProto.DataType.Name(kind.elem_type).lower(), shape=shape
    )
