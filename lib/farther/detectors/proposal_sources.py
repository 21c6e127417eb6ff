"""Sources of proposals: the section `proposals` of a run.

    detectors:
      voc-faster_rcnn:
        adapter: faster_rcnn
        proposals:
          rpn: {}
          unknown: {kind: second_detector, run: voc-yolov8-unknown}

The name of an entry names its folder; it is also the kind, unless `kind` gives one. Proposals of
networks come from the forward pass of the detections.
"""

from __future__ import annotations

import dataclasses
from abc import ABC
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther import detectors
from farther.detectors.imported import Imported
from farther.detectors.settings import MapSelection, ProposalSelection
from farther.errors import ParameterError, choose
from farther.naming.registry import STRICT, Parameters, Registry

if TYPE_CHECKING:
    from farther.detectors.adapter import Adapter

SOURCES: Registry[Source] = Registry("source of proposals", "farther.detectors", "register_source")
register_source = SOURCES.register


@dataclass(config=STRICT, kw_only=True)
class Source(Parameters, ABC):
    """Class-agnostic boxes with an objectness.

    Args:
        most: Largest number of proposals per image; those of the highest objectness are kept.
        iou: Of two proposals of any class that overlap by more than this, the better one is kept.
        smallest: Proposals whose shorter side has fewer pixels are dropped.
    """

    name: ClassVar[str]

    most: Annotated[int, Field(ge=1, le=1000)] = 100
    iou: Annotated[float, Field(gt=0, le=1)] = 0.5
    smallest: Annotated[float, Field(ge=0)] = 8.0

    def check(self, detector: Adapter) -> None:
        """Refuses a detector that has no such proposals.

        Raises:
            ParameterError: it has none; names the detector's own source.
        """


@dataclass(config=STRICT, kw_only=True)
class NetworkSource(Source):
    """Base of the sources that come from the network's own forward pass.

    Args:
        objectness: "network": the network's own objectness (the RPN's probability); "class_score":
            the highest score of a class; "ambiguity": how much class score there is and how little
            of it is of one class.
        size: Exponent γ of the square root of the box's share of the image, by which the objectness
            is multiplied. The false alarms among anchors and queries are mostly small known objects
            just below the threshold. 0 disables it.
        candidates: Number of anchors, those of the highest class score, that take part in NMS.
    """

    objectness: Literal["class_score", "ambiguity"] = "ambiguity"
    size: Annotated[float, Field(ge=0)] = 1.0
    candidates: Annotated[int, Field(ge=1)] = 1000

    def check(self, detector: Adapter) -> None:
        """See `Source.check`."""
        kind = detector.PROPOSALS
        if kind != self.name:
            available = f"proposals of kind {kind!r}" if kind else "none of its own"
            raise ParameterError(
                f"proposals of kind {self.name!r}: detector {detector.name!r} has {available}"
            )

    def selection(self) -> ProposalSelection:
        """The parameters that the network's inference needs."""
        return ProposalSelection(**dataclasses.asdict(self))


@register_source("rpn")
@dataclass(config=STRICT, kw_only=True)
class Rpn(NetworkSource):
    """Boxes of the region proposal network of Faster and Mask R-CNN, by its objectness.

    See Ren et al. 2015, Section 3.1. Logits and features are those of the box head. Boxes are those
    of the proposals, before the box head refines them.
    """

    objectness: Literal["network", "class_score", "ambiguity"] = "network"  # type: ignore[assignment]
    size: Annotated[float, Field(ge=0)] = 0.0


@register_source("anchors")
@dataclass(config=STRICT, kw_only=True)
class Anchors(NetworkSource):
    """Anchors of one-stage detectors with any score: RetinaNet, FCOS, networks of Ultralytics."""


@register_source("queries")
@dataclass(config=STRICT, kw_only=True)
class Queries(NetworkSource):
    """Queries of detection transformers with any score."""


@register_source("feature_map")
@dataclass(config=STRICT, kw_only=True)
class FeatureMap(NetworkSource):
    """Regions of the network's finest feature map that differ from its background.

    No head of the network influences their boxes. See
    `farther.detectors.networks.feature_maps.salient_boxes` (FMap's enhanced unknown localisation,
    Martinez-Seras et al., arXiv:2411.04586). Logits and features are those of the anchor that
    overlaps a box most; in Faster R-CNN those of the box head.

    Args:
        objectness: "network" is the contrast between the region and the background.
        thresholds: Number of saliency levels at which regions are searched.
    """

    objectness: Literal["network", "class_score", "ambiguity"] = "ambiguity"  # type: ignore[assignment]
    thresholds: Annotated[int, Field(ge=1, le=10)] = 3

    def check(self, detector: Adapter) -> None:
        """See `Source.check`."""
        if not detector.FEATURE_MAP:
            raise ParameterError(
                f"proposals of kind 'feature_map': detector {detector.name!r} gives no feature map"
            )

    def selection(self) -> ProposalSelection:
        """See `NetworkSource.selection`."""
        return MapSelection(**dataclasses.asdict(self))


@register_source("second_detector")
@dataclass(config=STRICT, kw_only=True)
class SecondDetector(Source):
    """Detections of another run in the same images, as class-agnostic boxes.

    Their score is the objectness. The run may be a detector with a class for unknown objects, an
    open-vocabulary detector with prompts such as "object", or a file of boxes of any other program,
    which the adapter `detections` imports.

    Args:
        run: Name of the run; its benchmark must be the same.
    """

    run: str


@register_source("imported")
@dataclass(config=STRICT, kw_only=True)
class ImportedBoxes(Source):
    """Boxes of another program in the same images, of any class; their score is the objectness.

    Examples: SAM's masks, EdgeBoxes, or a class-agnostic detector such as OLN (arXiv:2108.06753).

    Args:
        file: The file or folder, which an adapter of imported detections reads.
        adapter: Adapter that reads the file: "detections", "coco_results" or "parquet".
        params: Parameters of the adapter: see `farther list detectors`.
    """

    file: Path
    adapter: str = "detections"
    params: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def reader(self) -> Imported:
        """The adapter that reads the file; errors as in `create_reader`."""
        return self.create_reader()

    def create_reader(self) -> Imported:
        """Creates the adapter that reads the file.

        Raises:
            ParameterError: the adapter is unknown, or does not read files of detections, or one of
                its parameters is wrong.
        """
        reader = detectors.create(self.adapter, weights=self.file, **self.params)
        if not isinstance(reader, Imported):
            raise ParameterError(
                f"adapter {self.adapter!r} runs a network: give the run's own source, or a second "
                "run"
            )
        return reader

    def check(self, detector: Adapter) -> None:
        """See `Source.check`: the reader's parameters must be valid."""
        self.create_reader()


def read_sources(run: str, entries: Mapping[str, Any] | None) -> dict[str, Source]:
    """The sources of a run, by name.

    Args:
        run: Its name, for messages.
        entries: `proposals` of its entry in the section `detectors`; None for none.

    Raises:
        ParameterError: a kind or a parameter is unknown, or a value does not fit.
    """
    sources = {}
    for name, values in (entries or {}).items():
        params = dict(values or {})
        try:
            sources[name] = SOURCES.create(str(params.pop("kind", name)), **params)
        except ParameterError as error:
            raise ParameterError(f"detectors.{run}.proposals.{name}: {error}") from None
    return sources


def network_source(
    run: str, entries: Mapping[str, Any] | None, requested: str | None = None
) -> str | None:
    """The source of proposals that shares a limit on false alarms with a run's detections.

    Args:
        run, entries: See `read_sources`.
        requested: Its name; by default the first by name of those that the detector's own network
            gives.

    Returns:
        Its name; None without one.

    Raises:
        ParameterError: see `read_sources`; or the requested source is unknown, or not of the
            network.
    """
    sources = read_sources(run, entries)
    of_network = [name for name, source in sources.items() if isinstance(source, NetworkSource)]
    if requested is None:
        return min(of_network, default=None)
    source = sources[choose("source of proposals", requested, sources)]
    if not isinstance(source, NetworkSource):
        others = ", ".join(of_network) or "none"
        raise ParameterError(
            f"{run}: proposals {requested!r} cannot be deployed: their kind is {source.name!r}, "
            f"and a bundle runs its own network alone: {others}"
        )
    return requested


def selections(
    run: str, sources: Mapping[str, Source], detector: Adapter
) -> dict[str, ProposalSelection | None]:
    """The selections of proposals in a run's own folder, by name.

    Args:
        run: Name of the run, for messages.
        sources: The sources of the run.
        detector: Its detector.

    Returns:
        The selection of each source of the network; None for imported boxes.

    Raises:
        ParameterError: the detector has no such proposals.
    """
    selection_by_name: dict[str, ProposalSelection | None] = {}
    for name, source in sources.items():
        try:
            source.check(detector)
        except ParameterError as error:
            raise ParameterError(f"detectors.{run}.proposals.{name}: {error}") from None
        if isinstance(source, NetworkSource):
            selection_by_name[name] = source.selection()
        elif isinstance(source, ImportedBoxes):
            selection_by_name[name] = None
    return selection_by_name
