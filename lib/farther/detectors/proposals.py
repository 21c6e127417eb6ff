"""Sources of proposals: the section `proposals` of a run.

    detectors:
      voc-faster_rcnn:
        adapter: faster_rcnn
        proposals:
          rpn: {}
          unknown: {kind: second_detector, run: voc-yolov8-unknown}

The name of an entry names its folder; it is also the kind, unless `kind` gives one. Networks give
theirs in the pass in which they detect.
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
from farther.errors import ParameterError
from farther.registry import STRICT, Registry

if TYPE_CHECKING:
    from farther.detectors.base import Adapter

SOURCES: Registry[Source] = Registry("source of proposals", "farther.detectors", "register_source")
register_source = SOURCES.register


@dataclass(config=STRICT, kw_only=True)
class Source(ABC):
    """Class-agnostic boxes with an objectness.

    Args:
        most: Largest number per image; the best are kept.
        iou: Of two proposals that overlap more than this, the better one stays, whatever their
            classes are.
        smallest: Proposals whose shorter side has fewer pixels are dropped.
    """

    name: ClassVar[str]

    most: Annotated[int, Field(ge=1, le=1000)] = 100
    iou: Annotated[float, Field(gt=0, le=1)] = 0.5
    smallest: Annotated[float, Field(ge=0)] = 8.0

    def check(self, detector: Adapter) -> None:  # noqa: B027
        """Refuses a detector that has no such proposals.

        Raises:
            ParameterError: it has none; names its own source.
        """


@dataclass(config=STRICT, kw_only=True)
class NetworkSource(Source):
    """Base of the sources that come of the network's own pass.

    Args:
        objectness: "network": what the network itself calls objectness (the RPN's probability);
            "class_score": the highest score of a class; "ambiguity": how much class score there is
            and how little it is of one class, see `farther.detectors.networks.proposals.ambiguity`.
        size: Exponent γ of the square root of the box's share of the image, by which the objectness
            is multiplied. The false alarms among anchors and queries are mostly small known objects
            just below the threshold. 0 does without.
        candidates: Number of anchors, those of the highest class score, that take part in the
            suppression.
    """

    objectness: Literal["class_score", "ambiguity"] = "ambiguity"
    size: Annotated[float, Field(ge=0)] = 1.0
    candidates: Annotated[int, Field(ge=1)] = 1000

    def check(self, detector: Adapter) -> None:
        """See `Source.check`."""
        own = detector.PROPOSALS
        if own != self.name:
            problem = f"detector {detector.name!r} has {f'proposals of kind {own!r}' if own else 'none of its own'}"
            raise ParameterError(f"proposals of kind {self.name!r}: {problem}")

    def selection(self) -> ProposalSelection:
        """What the network's inference needs of the parameters."""
        return ProposalSelection(**dataclasses.asdict(self))


@register_source("rpn")
@dataclass(config=STRICT, kw_only=True)
class Rpn(NetworkSource):
    """Boxes of a region proposal network, by its objectness: Faster and Mask R-CNN (Ren et al. 2015, Section 3.1).

    The box head gives each its logits and features. Boxes are those of the proposals, before the
    box head moves them.
    """

    objectness: Literal["network", "class_score", "ambiguity"] = "network"  # type: ignore[assignment]
    size: Annotated[float, Field(ge=0)] = 0.0


@register_source("anchors")
@dataclass(config=STRICT, kw_only=True)
class Anchors(NetworkSource):
    """Anchors of one-stage detectors, whatever their score: RetinaNet, FCOS, and the networks of Ultralytics."""


@register_source("queries")
@dataclass(config=STRICT, kw_only=True)
class Queries(NetworkSource):
    """Queries of detection transformers, whatever their score."""


@register_source("feature_map")
@dataclass(config=STRICT, kw_only=True)
class FeatureMap(NetworkSource):
    """Parts of the network's finest feature map that differ from its background; no head has a say in where they are.

    See `farther.detectors.networks.feature_maps.salient_boxes` (FMap's enhanced unknown
    localisation, Martinez-Seras et al., arXiv:2411.04586). Logits and features are those of the
    anchor that overlaps a box most; Faster R-CNN's box head gives its own.

    Args:
        objectness: "network" is the contrast: how far a part stands out of the background.
        thresholds: Number of saliency levels at which parts are looked for.
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
    """What another run detects in the same images, as class-agnostic boxes: their score is the objectness.

    That run may be a detector with a class for unknown objects, an open-vocabulary one with prompts
    such as "object", or a file of boxes of any other program, which the adapter `detections`
    imports.

    Args:
        run: Name of the run; its benchmark must be the same.
    """

    run: str


@register_source("imported")
@dataclass(config=STRICT, kw_only=True)
class ImportedBoxes(Source):
    """Boxes that another program found in the same images, whatever it calls them: their score is the objectness.

    SAM's masks, EdgeBoxes, or a class-agnostic detector such as OLN (arXiv:2108.06753).

    Args:
        file: The file or folder, which an adapter of imported detections reads.
        adapter: That adapter: "detections", "coco_results" or "parquet".
        params: Its parameters.
    """

    file: Path
    adapter: str = "detections"
    params: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def reader(self) -> Imported:
        """The adapter that reads the file.

        Raises:
            ParameterError: it is unknown, or reads no file of detections, or a parameter of it is
                wrong.
        """
        made = detectors.create(self.adapter, weights=self.file, **self.params)
        if not isinstance(made, Imported):
            raise ParameterError(
                f"adapter {self.adapter!r} runs a network: give the run's own source, or a second run"
            )
        return made

    def check(self, detector: Adapter) -> None:
        """See `Source.check`: the reader must fit."""
        _ = self.reader


def read_sources(run: str, entries: Mapping[str, Any] | None) -> dict[str, Source]:
    """The sources of a run, checked.

    Args:
        run: Its name, for messages.
        entries: `proposals` of its entry in the section `detectors`; None for none.

    Raises:
        ParameterError: a kind or a parameter is unknown, or a value does not fit.
    """
    found = {}
    for name, values in (entries or {}).items():
        params = dict(values or {})
        try:
            found[name] = SOURCES.create(str(params.pop("kind", name)), **params)
        except ParameterError as error:
            raise ParameterError(f"detectors.{run}.proposals.{name}: {error}") from None
    return found


def selections(
    run: str, sources: Mapping[str, Source], detector: Adapter
) -> dict[str, ProposalSelection | None]:
    """The selections of those sources that come of the detector's own pass, by name; None for imported ones.

    Raises:
        ParameterError: the detector has no such proposals.
    """
    found: dict[str, ProposalSelection | None] = {}
    for name, source in sources.items():
        try:
            source.check(detector)
        except ParameterError as error:
            raise ParameterError(f"detectors.{run}.proposals.{name}: {error}") from None
        if isinstance(source, NetworkSource | ImportedBoxes):
            found[name] = source.selection() if isinstance(source, NetworkSource) else None
    return found
