"""Fields and types of a bundle's `bundle.json`, for what writes it and what reads it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, NonNegativeInt
from pydantic.dataclasses import dataclass

from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.monitor.bundle_proposals import BundledProposals
from farther.monitor.drift import Rates
from farther.tables.schema import Schema


class BundledMethod(Schema):
    """The method: its entry in params.yaml, registered name and title, and its passes.

    `pass_name` is that whose rows it scores, `passes_beside` are those that it reads beside the
    detections, by name. Parameters of a pass have its `kind`.
    """

    entry: str
    name: str
    title: str
    pass_name: str | None
    pass_params: dict[str, Any] | None
    passes_beside: dict[str, dict[str, Any]] = Field(default_factory=dict)


class BundledDetector(Schema):
    """The detector: adapter, parameters, other names of its classes, and its checkpoint."""

    adapter: str
    params: dict[str, Any]
    classes: dict[str, str | None]
    weights: str
    copied: bool
    weights_digest: str


@dataclass(frozen=True)
class Validation(Rates):
    """What the method did on the ID validation split: its name, and the rates.

    Args:
        split: Name of the split.
        alarmed: Images that raised a false alarm: a flagged detection or a called proposal.
    """

    split: str = ""
    alarmed: int = 0


class Digests(Schema):
    """Digests of the header with the last layer, of the fitted method, and of the code.

    `clip` is that of the CLIPs of crops, and of their parameters; "" without crops.
    """

    header: str
    method: str
    code: str
    clip: str = ""


class Reading(Schema):
    """How image files are read; see `farther.images.read.load`."""

    max_pixels: NonNegativeInt


class GraphPort(Schema):
    """An input or output of the graph; sides that vary between images have a name."""

    name: str
    type: str
    shape: list[int | str]


class GraphPreprocessing(Schema):
    """Preparation of an image for the graph: steps in words, and the numbers that they name."""

    steps: list[str]
    numbers: dict[str, Any]


class BundledGraph(Schema):
    """The ONNX graph: its file in the bundle, and all that another program must know of it."""

    file: str
    digest: str
    opset: int
    inputs: list[GraphPort]
    outputs: list[GraphPort]
    preprocessing: GraphPreprocessing


class BundleInfo(Schema):
    """Content of `bundle.json`.

    Args:
        run, benchmark: Names.
        operating: t*, the smallest confidence of a detection.
        tau: τ: a detection whose score is below it is unknown.
        budget, measured: What was asked for when thresholds were chosen, and what was measured;
            None without a choice.
        self_aware: What makes the run self-aware; None where nothing does.
        header: What `Header.to_json` gives.
        proposals: Proposals of the network that are called unknown; None where the run has none.
        onnx: The ONNX graph; None without one. See `BundledProposals.not_in_graphs`.
        farther: Version of farther that wrote the bundle.
    """

    format: Literal["farther.bundle"] = "farther.bundle"
    version: Literal[1] = 1
    run: str
    benchmark: str
    method: BundledMethod
    operating: float
    tau: float
    budget: dict[str, Any] | None
    measured: dict[str, Any] | None
    self_aware: SelfAwareDetector | None
    validation: Validation
    reading: Reading
    header: dict[str, Any]
    detector: BundledDetector
    digests: Digests
    proposals: BundledProposals | None = None
    onnx: BundledGraph | None = None
    farther: str
