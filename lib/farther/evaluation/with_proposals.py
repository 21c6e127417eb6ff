"""Open-set metrics of a run's methods with the proposals called unknown beside the detections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from farther.evaluation import intervals
from farther.evaluation.files import RunFiles, RunSplit
from farther.evaluation.inputs import RunInputs, TestSplit
from farther.evaluation.results import MetricValues, Number, Stored
from farther.evaluation.scored_split import MethodScores, ScoredSplit
from farther.evaluation.threshold import StoredTau
from farther.evaluation.weights import ONCE, Weights
from farther.metrics import open_set
from farther.metrics.errors import error_budget
from farther.metrics.open_set.drawn_thresholds import FlaggedSplit
from farther.metrics.open_set.open_world import MAX_DETECTIONS
from farther.metrics.open_set.outcomes import MatchingRules, Outcome
from farther.metrics.open_set.proposals import apart_from_detections, finders
from farther.metrics.open_set.with_proposals import WithProposals, any_class, u_recall
from farther.metrics.weighting import plain
from farther.tables import Regions
from farther.tables.folders import listed
from farther.tables.unknown_proposals import UnknownProposalTable

#: Metrics that proposals change.
CHANGED = ("nose", "r_u", "p_u", "ap_u", "u_recall")

#: The kind of error, in the error budget, of missed objects that proposals find.
FOUND_BY_PROPOSALS = "found by proposals"


class MethodWithProposals(MetricValues):
    """A method on an OOD split, with proposals as further regions that are called unknown.

    Counted are the detections at or above t* and the proposals above τ_o. `values` has `CHANGED`,
    and the counts of `farther.metrics.open_set.metrics`.

    Args:
        without: `CHANGED` of the detections alone.
        by_size, by_category: See `farther.metrics.open_set.by_group`.
        error_budget: Number and gains of the missed objects: those that proposals find, and the
            others.
    """

    without: dict[str, Number]
    by_size: dict[str, MetricValues] = Field(default_factory=dict)
    by_category: dict[str, MetricValues] = Field(default_factory=dict)
    error_budget: dict[str, MetricValues] = Field(default_factory=dict)


class ResultsWithProposals(Stored):
    """The content of `with_proposals/<run>/<method>.json`: source → OOD split → metrics."""

    sources: dict[str, dict[str, MethodWithProposals]]


@dataclass(frozen=True)
class UnknownProposals:
    """The proposals of a split that are called unknown.

    Args:
        proposals: P proposals on no detection.
        matched_object: The row of the missed object that each finds, −1 for none, ndarray of shape
            (P,).
    """

    proposals: Regions
    matched_object: np.ndarray

    @classmethod
    def of(
        cls, split: RunSplit, detections: Regions, proposals: Regions, tau: float, iou: float
    ) -> UnknownProposals:
        """The proposals above τ_o that lie on no detection.

        Args:
            split: Images and objects.
            detections: Detections at or above t*.
            proposals: All proposals of a source.
            tau: τ_o.
            iou: Smallest IoU of a match.
        """
        rules = MatchingRules(iou, known_classes=split.known_classes)
        _, finder = finders(split.objects, detections, proposals, rules)
        is_found = finder >= 0
        matched_object = np.full(len(proposals), -1)
        matched_object[finder[is_found]] = np.flatnonzero(is_found)

        is_unknown = apart_from_detections(proposals, detections, iou) & (proposals.score > tau)
        return cls(proposals[is_unknown], matched_object[is_unknown])

    @classmethod
    def read(cls, split: RunSplit, file: Path) -> UnknownProposals:
        """The proposals of a stored table; see `table`.

        Args:
            split: Their split.
            file: The table.

        Raises:
            DataError: the table is damaged.
        """
        table = UnknownProposalTable.read(file)
        proposals = Regions(
            header=split.folder.header,
            image_id=table.image_id,
            region_id=np.arange(len(table)),
            box=table.box,
            score=table.objectness,
            label=np.full(len(table), any_class(split.folder.header), dtype=np.int16),
        )
        row_by_object = {
            object_id: row for row, object_id in enumerate(split.objects.object_id.tolist())
        }
        rows = [row_by_object.get(object_id, -1) for object_id in table.object_id.tolist()]
        return cls(proposals, np.array(rows, dtype=np.int64))

    def table(self, split: RunSplit) -> UnknownProposalTable:
        """The proposals as a table to store.

        Args:
            split: Their split.
        """
        object_ids = np.append(split.objects.object_id, -1)  # the last one is of row −1
        return UnknownProposalTable(
            image_id=self.proposals.image_id,
            box=self.proposals.box,
            objectness=self.proposals.score,
            object_id=object_ids[self.matched_object],
        )


class SplitWithProposals:
    """Detections and unknown proposals of the ID split and one OOD split.

    They are matched to objects once, for all methods.

    Args:
        inputs: The run's splits.
        split: The OOD split.
        unknown_proposals: The proposals called unknown in the OOD split.
        id_proposals: The proposals called unknown in the ID split.
    """

    def __init__(
        self,
        inputs: RunInputs,
        split: TestSplit,
        unknown_proposals: UnknownProposals,
        id_proposals: Regions,
    ):
        self._split = split
        self._unknown_proposals = unknown_proposals
        proposals = unknown_proposals.proposals
        rules = split.matching_rules
        self._regions = WithProposals.of(split.objects, split.detections, proposals, rules)

        rules = replace(rules, known_classes=inputs.id_split.known_classes)
        self._id_stored_regions = WithProposals.of(
            inputs.id_split.objects,
            inputs.id_split.regions(),
            id_proposals,
            rules,
            MAX_DETECTIONS,
        )
        self._stored_regions = WithProposals.of(
            split.objects, split.regions(), proposals, rules, MAX_DETECTIONS
        )

    def measure(self, method: MethodScores) -> MethodWithProposals:
        """Metrics with proposals, and of the detections alone."""
        scored = ScoredSplit(method, self._split)
        replicates: dict[str, Any] = {}
        if self._split.weights is not None:
            metrics = self._metrics(scored, self._split.weights)
            replicates = {name: metrics[name] for name in CHANGED if name in metrics}

        values = self._metrics(scored, ONCE)
        outcome = self._regions.match(scored.is_unknown)
        images = open_set.images_of_shares(outcome)
        images["u_recall"] = images["r_u"]
        return MethodWithProposals(
            values=values,
            **intervals.of_metrics(values, replicates, images),
            without=_metrics_without_proposals(scored),
            by_size=_by_group(outcome, outcome.split.sizes()),
            by_category=_by_group(outcome, outcome.split.objects.category),
            error_budget=self._error_budget(scored),
        )

    def _metrics(self, scored: ScoredSplit, weights: Weights) -> dict[str, Any]:
        """Open-set metrics, and U-Recall."""
        taus = scored.taus(weights)
        regions = self._regions
        flagged = FlaggedSplit.of(regions.split, regions.scores(scored.detections.scores), taus)
        unknown_score = regions.unknown_score(scored.unknown_score)
        metrics = open_set.metrics(
            flagged.outcome,
            unknown_score[flagged.regions.row],
            flagged.weights(weights.of(flagged.images)),
        )

        of_id = _on_unknown(self._id_stored_regions, scored.method.stored_scores, taus)
        of_ood = _on_unknown(self._stored_regions, scored.stored_scores, taus)
        recall = u_recall(
            [of_id.outcome, of_ood.outcome],
            [
                of_id.weights(weights.of_id(of_id.images)),
                of_ood.weights(weights.of(of_ood.images)),
            ],
        )
        if weights.are_drawn:
            return {**metrics, "u_recall": recall}
        return {**metrics, **plain({"u_recall": recall})}

    def _error_budget(self, scored: ScoredSplit) -> dict[str, MetricValues]:
        """The missed objects of `farther.evaluation.error_budget`: found by proposals, or not."""
        errors = error_budget.of_unknown(scored.outcome, self._split.touching)
        matched_object = self._unknown_proposals.matched_object
        is_found = np.zeros(len(errors.missed), dtype=bool)
        is_found[matched_object[matched_object >= 0]] = True

        budget = {}
        for name, rows in ((FOUND_BY_PROPOSALS, is_found), ("missed", ~is_found)):
            missed = replace(errors, missed=errors.missed & rows)
            gains = error_budget.unknown_gains(
                scored.outcome, missed, scored.unknown_score, kinds=("missed",)
            )
            values = {"count": missed.counts["missed"], **plain(gains["missed"])}
            budget[name] = MetricValues(values=values)
        return budget


def _on_unknown(stored: WithProposals, stored_scores: np.ndarray, taus: np.ndarray) -> FlaggedSplit:
    """The regions on unknown objects, of stored regions and proposals.

    Args:
        stored: Stored regions and proposals of a split.
        stored_scores: A method's scores of the stored regions.
        taus: See `FlaggedSplit.of`.
    """
    scores = stored.scores(stored_scores)[stored.is_on_unknown]
    return FlaggedSplit.of(stored.on_unknown, scores, taus)


def _metrics_without_proposals(scored: ScoredSplit) -> dict[str, Number]:
    metrics = open_set.metrics(scored.paper_outcome, scored.unknown_score)
    metrics |= plain({"u_recall": u_recall([scored.mixed_outcome], [None])})
    return {name: metrics[name] for name in CHANGED}


def _by_group(outcome: Outcome, group: np.ndarray) -> dict[str, MetricValues]:
    """Outcomes of each group of objects."""
    values_by_group = open_set.by_group(outcome, group)
    return {name: MetricValues(values=values) for name, values in values_by_group.items()}


def called_sources(files: RunFiles) -> list[str]:
    """The sources whose proposals called unknown the stage `evaluate` stored."""
    return [folder.name for folder in listed(files.recovered.parent, "called/*")]


def measure_methods(
    inputs: RunInputs, sources: Sequence[str], taus: Mapping[str, StoredTau]
) -> dict[str, ResultsWithProposals]:
    """Metrics of methods with the proposals that were called unknown.

    Args:
        inputs: The run's inputs.
        sources: Names of sources of proposals whose tables are stored.
        taus: τ of each method that applies to the run, by its name.

    Raises:
        DataError: a table is absent or damaged.
    """
    results = {name: ResultsWithProposals(sources={}) for name in taus}
    for source in sources:
        id_file = inputs.files.called(source, inputs.id_split.name)
        id_proposals = UnknownProposals.read(inputs.id_split, id_file).proposals
        for split in inputs.tested:
            if not split.has_boxes:
                continue
            file = inputs.files.called(source, split.name)
            unknown_proposals = UnknownProposals.read(split, file)
            with_proposals = SplitWithProposals(inputs, split, unknown_proposals, id_proposals)
            for name, tau in taus.items():
                measured = with_proposals.measure(MethodScores(inputs, name, tau))
                results[name].sources.setdefault(source, {})[split.name] = measured
    return results
