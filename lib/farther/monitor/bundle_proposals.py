"""Proposals in a bundle: their source, and the objectness above which they are unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from farther.detectors.proposal_sources import NetworkSource, Source, read_sources
from farther.detectors.settings import ProposalSelection
from farther.errors import ParameterError
from farther.metrics.open_set.proposals import apart_from_detections
from farther.tables import Regions
from farther.tables.schema import Schema

#: Kinds whose candidates an ONNX graph computes for the detections, too.
IN_GRAPHS = ("rpn", "anchors", "queries")


@dataclass(frozen=True)
class ProposalChoice:
    """The proposals that are called unknown within a limit.

    Args:
        source: Name of their source.
        objectness: Those on no detection with a larger objectness are called unknown.
        iou: IoU with a detection from which on a proposal lies on it.
    """

    source: str
    objectness: float
    iou: float


class BundledProposals(Schema):
    """Proposals of the network that are called unknown, within the limit of the bundle.

    Args:
        source, params: Name and parameters of their source, with its `kind`.
        threshold: A proposal on no detection with a larger objectness is called unknown.
        iou: IoU with a detection from which on a proposal lies on it.
    """

    source: str
    params: dict[str, Any]
    threshold: float
    iou: float

    @property
    def not_in_graphs(self) -> str | None:
        """Why an ONNX graph gives none of them; None where it does."""
        kind = self.params["kind"]
        if kind in IN_GRAPHS:
            return None
        return f"{kind!r} is no part of the graph"

    def selection(self) -> ProposalSelection:
        """Which proposals the network gives.

        Raises:
            ParameterError: a parameter of their source is not known here.
        """
        made = read_sources("bundle", {self.source: self.params})[self.source]
        if not isinstance(made, NetworkSource):
            problem = "they do not come of the bundle's network"
            raise ParameterError(f"proposals of kind {made.name!r}: {problem}")
        return made.selection()

    def called(self, proposals: Regions, detections: Regions) -> Regions:
        """The proposals that are called unknown beside these detections.

        Args:
            proposals: Their score is the objectness.
            detections: Those at or above t* in the same images.
        """
        above = proposals[proposals.score > self.threshold]
        on_no_detection = apart_from_detections(above, detections, self.iou)
        return above[on_no_detection]


def bundled_proposals(sources: Mapping[str, Source], chosen: ProposalChoice) -> BundledProposals:
    """The proposals that a bundle of a run holds.

    Args:
        sources: The run's sources, by name.
        chosen: The source, which is one of the network, and the threshold.
    """
    source = sources[chosen.source]
    return BundledProposals(
        source=chosen.source,
        params={"kind": source.name, **asdict(source)},
        threshold=chosen.objectness,
        iou=chosen.iou,
    )
