"""Proposals in a bundle: the network's source, and the objectness above which they are unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from farther.detectors.proposals import NetworkSource, Source, read_sources
from farther.detectors.settings import ProposalSelection
from farther.errors import DataError, ParameterError, choose
from farther.evaluation.files import RunFiles
from farther.evaluation.proposals import read_recovered
from farther.metrics.open_set.proposals import apart_from_detections
from farther.scoring.entries import MethodEntry
from farther.tables import Regions
from farther.tables.schema import Schema

#: Kinds whose candidates an ONNX graph computes for the detections, too.
IN_GRAPHS = ("rpn", "anchors", "queries")


class BundledProposals(Schema):
    """Proposals of the network that are called unknown.

    Args:
        source, params: Name and parameters of their source, with its `kind`.
        threshold: τ_o: a proposal on no detection with a larger objectness is called unknown;
            None: all of them.
        iou: IoU with a detection from which on a proposal lies on it.
        alarms: Number of false alarms per ID test image.
    """

    source: str
    params: dict[str, Any]
    threshold: float | None
    iou: float
    alarms: float

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
        above = proposals
        if self.threshold is not None:
            above = proposals[proposals.score > self.threshold]
        on_no_detection = apart_from_detections(above, detections, self.iou)
        return above[on_no_detection]


def bundled_proposals(
    files: RunFiles,
    sources: Mapping[str, Source],
    method: MethodEntry,
    requested: str | None = None,
) -> BundledProposals | None:
    """The proposals that a bundle of a run holds.

    Args:
        files: Paths of the run's files.
        sources: Its sources, by name.
        method: The bundle's.
        requested: Name of a source. None is the first source of the network; there are then no
            proposals where the method scores a pass, or the source was not measured.

    Raises:
        ParameterError: the source is unknown, or a bundle cannot hold its proposals.
        DataError: the run's results are absent or damaged.
    """
    of_network = [name for name, source in sources.items() if isinstance(source, NetworkSource)]
    recovered = read_recovered(files)
    if requested is None:
        if not of_network or recovered is None or method.pass_name is not None:
            return None
        requested = min(of_network)
        if requested not in recovered.sources:
            return None

    refused = f"{files.run}: proposals {requested!r} cannot be bundled"
    source = sources[choose("source of proposals", requested, sources)]
    advice = "run `farther repro evaluate`"
    if recovered is None:
        problem = f"the file does not exist: {advice}, or `dvc pull`"
        raise DataError(problem, file=files.recovered)
    if not isinstance(source, NetworkSource):
        bundled = ", ".join(of_network) or "none"
        problem = f"their kind is {source.name!r}, and a bundle runs its own network alone"
        raise ParameterError(f"{refused}: {problem}: {bundled}")
    if method.pass_name is not None:
        problem = f"{method.name!r} scores the pass {method.pass_name!r}, which gives none"
        raise ParameterError(f"{refused}: {problem}")
    if requested not in recovered.sources:
        problem = f"has no results of the source {requested!r}: {advice}"
        raise DataError(problem, file=files.recovered)

    results = recovered.sources[requested]
    return BundledProposals(
        source=requested,
        params={"kind": source.name, **asdict(source)},
        threshold=results.threshold,
        iou=recovered.iou,
        alarms=results.alarms,
    )
