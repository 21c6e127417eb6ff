"""Proposals in a bundle: the network's source, and the rule by which one of them is called unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Self

import numpy as np
from pydantic import model_validator

from farther.detectors.proposals import NetworkSource, Source, read_sources
from farther.detectors.settings import ProposalSelection
from farther.errors import DataError, ParameterError, choose
from farther.evaluation.files import RunFiles
from farther.evaluation.proposal_rules import LOGISTIC, REVIEWED, Combination, Rejecting, Rule, method_of
from farther.evaluation.proposals import read_recovered
from farther.evaluation.threshold import read_threshold
from farther.methods import Method
from farther.metrics.open_set.proposals import beside
from farther.scoring.entries import MethodEntry
from farther.tables import Regions
from farther.tables.schema import Schema

#: Kinds whose candidates an ONNX graph computes for the detections, too.
IN_GRAPHS = ("rpn", "anchors", "queries")


class BundledProposals(Schema):
    """Proposals of the network that are called unknown.

    Args:
        source, params: Name and parameters of their source, with its `kind`.
        threshold: τ_o, above which a proposal that lies on no detection is called unknown; None where all are.
        iou: From which on it lies on one.
        alarms: Number of false alarms per ID test image.
        rule: See `farther.evaluation.proposal_rules.Rule`.
        tau: τ of the bundle's method where the rule has it; else None.
        combination: That of a "logistic" rule.
    """

    source: str
    params: dict[str, Any]
    threshold: float | None
    iou: float
    alarms: float
    rule: str = "objectness"
    tau: float | None = None
    combination: Combination | None = None

    @model_validator(mode="after")
    def _check_rule(self) -> Self:
        if (self.tau is None) != (method_of(self.rule) is None):
            raise ValueError(f"tau must be given if the rule has a method, and else be null; the rule is {self.rule!r}")
        weights = 2 + (self.tau is not None) if self.rule.partition(" with ")[0] == LOGISTIC else 0
        if weights != (len(self.combination.weights) if self.combination else 0):
            raise ValueError(f"the rule {self.rule!r} needs a combination of {weights} weights (0: null)")
        return self

    @property
    def title(self) -> str:
        """The source, and the rule unless it is objectness alone, as in `recovered/<run>/results.json`."""
        return self.source if self.rule == "objectness" else f"{self.source}, {self.rule}"

    @property
    def not_in_graphs(self) -> str | None:
        """Why an ONNX graph gives none of them; None where it does."""
        if self.rule != "objectness":
            return f"the rule {self.rule!r} is not written as a graph"
        return None if self.params["kind"] in IN_GRAPHS else f"{self.params['kind']!r} is no part of the graph"

    def selection(self) -> ProposalSelection:
        """Which proposals the network gives.

        Raises:
            ParameterError: a parameter of their source is not known here.
        """
        made = read_sources("bundle", {self.source: self.params})[self.source]
        if not isinstance(made, NetworkSource):
            raise ParameterError(f"proposals of kind {made.name!r}: they do not come of the bundle's network")
        return made.selection()

    def called(self, proposals: Regions, detections: Regions, pixels: np.ndarray, method: Method) -> Regions:
        """The proposals that are called unknown beside these detections, with their score under the rule.

        Args:
            proposals: Their score is the objectness.
            detections: Those at or above t* in the same images.
            pixels: Of each proposal's image, ndarray of shape (P,).
            method: The bundle's.
        """
        rejecting = None if self.tau is None else Rejecting(self.rule, method, self.tau)
        found = Rule(rejecting, self.combination).applied(proposals, pixels)
        above = found if self.threshold is None else found[found.score > self.threshold]
        return above[beside(above, detections, self.iou)]


def bundled_proposals(
    files: RunFiles, sources: Mapping[str, Source], method: MethodEntry, asked: str | None = None
) -> BundledProposals | None:
    """The proposals that a bundle of a run holds.

    Args:
        files: Paths of the run's files.
        sources: Its sources, by name.
        method: The bundle's.
        asked: "SOURCE" or "SOURCE, RULE", as `recovered/<run>/results.json` names it. None is the first source of the
            network, by objectness; there is then none where the method scores a pass, or no source was measured.

    Raises:
        ParameterError: what is asked for is unknown, or a bundle cannot hold it.
        DataError: the run's results are absent or damaged.
    """
    own = [name for name, source in sources.items() if isinstance(source, NetworkSource)]
    found = read_recovered(files)
    if asked is None:
        if not own or found is None or own[0] not in found.sources or method.pass_name is not None:
            return None
        asked = own[0]
    name, _, rule = (part.strip() for part in asked.partition(","))
    source = sources[choose("source of proposals", name, sources)]
    refused, advice = f"{files.run}: proposals {asked!r} cannot be bundled", f"run `dvc repro proposals@{files.run}`"
    if found is None:
        raise DataError(f"the file does not exist: {advice}, or `dvc pull`", file=files.recovered)
    if not isinstance(source, NetworkSource):
        problem = f"their kind is {source.name!r}, and a bundle runs its own network alone: {', '.join(own) or 'none'}"
        raise ParameterError(f"{refused}: {problem}")
    if method.pass_name is not None:
        raise ParameterError(f"{refused}: {method.name!r} scores the pass {method.pass_name!r}, which gives none")
    if rule == REVIEWED:
        problem = f"{rule!r} changes what is measured, not which proposals are called unknown: name {name!r}"
        raise ParameterError(f"{refused}: {problem}")
    known = [one for one in found.sources if one == name or one.startswith(f"{name}, ")]
    if not known:
        raise DataError(f"has no results of the source {name!r}: {advice}", file=files.recovered)
    results = found.sources[choose("rule of proposals", f"{name}, {rule}" if rule else name, known)]
    tau = None
    if (of_rule := method_of(results.rule)) is not None:
        if of_rule != method.name:
            problem = f"the rule needs the method {of_rule!r}, and the bundle holds {method.name!r}"
            raise ParameterError(f"{refused}: {problem}")
        tau = read_threshold(files.tau(of_rule))
    if results.combination is None and results.rule.startswith(LOGISTIC):
        raise DataError(f"the coefficients of the rule are missing: {advice}", file=files.recovered)
    return BundledProposals(
        source=name,
        params={"kind": source.name, **asdict(source)},
        threshold=results.threshold,
        iou=found.iou,
        alarms=results.alarms,
        rule=results.rule,
        tau=tau,
        combination=results.combination,
    )
