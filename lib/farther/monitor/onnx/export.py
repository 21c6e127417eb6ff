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
from farther.monitor.onnx.proposal_graphs import OF_PROPOSALS, SYMBOLICS, beside
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
class GraphThresholds:
    """Thresholds of a graph: of detections, of unknown ones among them, and of proposals.

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

    def __init__(self, graph: Graph, method: Method, header: Header, decisions: GraphThresholds):
        super().__init__()
        self.graph = graph
        self.method = method
        self.score = score_module(method, header)
        self.tau = decisions.tau
        self.proposals = decisions.proposals
        self.dtype = getattr(torch, graph.detector.features_dtype)

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, in order."""
        names = ["box", "label", "confidence", "logits", *self.method.columns, "score", "unknown"]
        if self.proposals is not None:
            names += OF_PROPOSALS
        return names

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
            rows = self._unknown_proposals(self.proposals, columns)
            for name in OF_PROPOSALS:
                columns[name] = columns[name][rows]
        return tuple(columns[name] for name in self.outputs)

    @staticmethod
    def _unknown_proposals(proposals: BundledProposals, columns: Columns) -> Tensor:
        """Rows of the proposals that are called unknown; see `BundledProposals.called`."""
        boxes, objectness = (columns[name].double() for name in OF_PROPOSALS)
        is_unknown = beside(boxes, columns["box"].double(), proposals.iou)
        if proposals.threshold is not None:
            is_unknown = is_unknown & (objectness > number(proposals.threshold))
        return torch.where(is_unknown)[0]


def write_graph(
    detector: Detector, method: Method, header: Header, decisions: GraphThresholds, folder: Path
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
    score_module(method, header)  # refuses before anything is traced
    selection = None
    if decisions.proposals is not None:
        selection = decisions.proposals.selection()
    detector = replace(detector, device="cpu")
    kind = _kind(detector)
    graph = kind(detector, method.columns, decisions.operating, selection)
    module = Scored(graph, method, header, decisions).eval()
    _check_size(module, method)

    sample = inputs_of(detector, SAMPLES[0])
    axes = _free_axes(detector, any_shape=kind.any_shape)
    for name in module.outputs:
        axes[name] = {0: "proposals" if name in OF_PROPOSALS else "detections"}
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


def _free_axes(detector: Detector, *, any_shape: bool) -> dict[str, dict[int, str]]:
    """Names of the axes of the input `image` that differ between images.

    Raises:
        ParameterError: the network is traced for one shape, and its images have several.
    """
    first, second = (tuple(inputs_of(detector, image)["image"].shape) for image in SAMPLES)
    if not any_shape:
        if first != second:
            problem = f"its images have many shapes, such as {first} and {second}"
            raise ParameterError(
                f"detector {detector.name!r} cannot be exported: {problem}, and its network is "
                "traced for one"
            )
        return {}
    sides = [axis for axis, length in enumerate(first) if length != 3]
    return {"image": dict(zip(sides, ("height", "width"), strict=True))}


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
    kind = GRAPHS.get(type(detector))
    problem = None
    if kind is None:
        problem = f"only {', '.join(sorted(cls.name for cls in GRAPHS))} can be"
    elif detector.precision != "float32":
        problem = f"its precision is {detector.precision}, and graphs compute in float32"
    elif isinstance(detector, LatentDetector) and detector.published_rois:
        problem = "published_rois places boxes by the width of the image alone"
    elif isinstance(detector, Yolo) and _has_pooled_text(detector):
        problem = f"{POOLED}, of YOLO-World's first version, is not traced for images of any shape"
    elif isinstance(detector, FasterRCNN) and detector.blueprint.architecture == MSRA:
        steps = "computes anchors and proposals as Detectron2 does, in steps that are not traced"
        problem = f"{MSRA} {steps}"
    if kind is None or problem is not None:
        raise ParameterError(f"detector {detector.name!r} cannot be exported: {problem}")
    return kind


def _has_pooled_text(detector: Yolo) -> bool:
    """Whether the network is YOLO-World's first version."""
    return POOLED in str(detector.checkpoint.blueprint.architecture["head"])


def _check_runs(detector: Detector, file: Path) -> None:
    try:
        onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    except Exception as error:  # its classes have no common base
        problem = (
            f"onnxruntime {onnxruntime.__version__} cannot run its graph: {shorten(str(error))}"
        )
        raise ParameterError(f"detector {detector.name!r} cannot be exported: {problem}") from error


def _check_size(module: nn.Module, method: Method) -> None:
    size = 0
    for tensor in (*module.parameters(), *module.buffers()):
        size += tensor.numel() * tensor.element_size()
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
    by_layer: list[Method] = [method]
    if isinstance(method, MDSEnsemble):
        by_layer = [*method.fitted_parts()]
    for of_layer in by_layer:
        if isinstance(of_layer, Mahalanobis) and not reason:
            reason = _rounding_of(of_layer)
    if reason:
        raise ParameterError(f"method {method.name!r} cannot be exported: {reason}")
    return method.to_torch(header=header)


def _rounding_of(method: Mahalanobis) -> str:
    """Why the rounding of a network in float32 decides the distances; empty where it does not."""
    scale = max(np.linalg.norm(method.mean_), np.linalg.norm(getattr(method, "latent_mean_", 0.0)))
    rounding = np.linalg.norm(method.whitening_) * np.finfo(np.float32).eps * scale
    if rounding <= MOST_ROUNDING:
        return ""
    moved = f"rounding moves vectors by {rounding:.2g} deviations"
    return f"the covariance is so nearly singular that {moved}"


def number(value: float) -> Tensor:
    """A number as a constant of the graph, shape (1,).

    The exporter would round a plain one to float32.
    """
    return torch.tensor([value], dtype=torch.float64)


@contextmanager
def tracing() -> Iterator[None]:
    """Has layers compute in the steps that ONNX has.

    The tracer does not warn of sizes that all images share.
    """
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
