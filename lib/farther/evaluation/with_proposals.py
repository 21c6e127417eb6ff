"""Open-set metrics of a run's methods when the proposals that are called unknown count beside the detections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from farther.evaluation import intervals
from farther.evaluation.case import MethodScores, SplitCase
from farther.evaluation.files import RunFiles, RunSplit
from farther.evaluation.inputs import RunInputs, TestSplit
from farther.evaluation.results import MetricValues, Number, Stored
from farther.evaluation.weights import ONCE, Weights
from farther.metrics import open_set
from farther.metrics.errors import error_budget
from farther.metrics.open_set.open_world import MAX_DETECTIONS
from farther.metrics.open_set.outcomes import MatchingRules
from farther.metrics.open_set.proposals import beside, finders
from farther.metrics.open_set.with_proposals import WithProposals, any_class, u_recall
from farther.metrics.weighting import plain
from farther.tables import Regions
from farther.tables.called import CalledProposals
from farther.tables.folders import listed

#: Metrics that proposals change.
CHANGED = ("nose", "r_u", "p_u", "ap_u", "u_recall")

#: The kind of the error budget that missed objects are of which proposals find.
FOUND_BY_PROPOSALS = "found by proposals"


class MethodWithProposals(MetricValues):
    """A method on an OOD split: the detections at or above t*, and the proposals above τ_o as further unknown ones.

    `values` has `CHANGED`, and the counts of `farther.metrics.open_set.metrics`.

    Args:
        without: `CHANGED` of the detections alone.
        by_size, by_category: See `farther.metrics.open_set.by_group`.
        error_budget: Number and gains of the missed objects, those that proposals find apart from
            the others.
    """

    without: dict[str, Number]
    by_size: dict[str, MetricValues] = Field(default_factory=dict)
    by_category: dict[str, MetricValues] = Field(default_factory=dict)
    error_budget: dict[str, MetricValues] = Field(default_factory=dict)


class ResultsWithProposals(Stored):
    """The content of `with_proposals/<run>/<method>.json`: source → OOD split → metrics."""

    sources: dict[str, dict[str, MethodWithProposals]]


@dataclass(frozen=True)
class CalledIn:
    """The proposals of a split that are called unknown.

    Args:
        proposals: P of them, on no detection.
        finds: The row of the missed object that each finds, −1 for none, ndarray of shape (P,).
    """

    proposals: Regions
    finds: np.ndarray

    @classmethod
    def of(
        cls, split: RunSplit, detections: Regions, proposals: Regions, tau: float, iou: float
    ) -> CalledIn:
        """Those above τ_o that lie on no detection.

        Args:
            split: Images and objects.
            detections: Detections at or above t*.
            proposals: All proposals of a source.
            tau: τ_o.
            iou: Smallest IoU of a match.
        """
        rules = MatchingRules(iou, known_classes=split.known_classes)
        finder = finders(split.objects, detections, proposals, rules)[1]
        finds = np.full(len(proposals), -1)
        finds[finder[finder >= 0]] = np.flatnonzero(finder >= 0)
        rows = beside(proposals, detections, iou) & (proposals.score > tau)
        return cls(proposals[rows], finds[rows])

    @classmethod
    def read(cls, split: RunSplit, file: Path) -> CalledIn:
        """Those that `table` has.

        Args:
            split: Their split.
            file: Where the table is.

        Raises:
            DataError: it is damaged.
        """
        table = CalledProposals.read(file)
        proposals = Regions(
            header=split.folder.header,
            image_id=table.image_id,
            region_id=np.arange(len(table)),
            box=table.box,
            score=table.objectness,
            label=np.full(len(table), any_class(split.folder.header), dtype=np.int16),
        )
        rows = {number: row for row, number in enumerate(split.objects.object_id.tolist())}
        return cls(
            proposals,
            np.array([rows.get(number, -1) for number in table.object_id.tolist()], dtype=np.int64),
        )

    def table(self, split: RunSplit) -> CalledProposals:
        """They as a table.

        Args:
            split: Their split.
        """
        return CalledProposals(
            image_id=self.proposals.image_id,
            box=self.proposals.box,
            objectness=self.proposals.score,
            object_id=np.append(split.objects.object_id, -1)[self.finds],
        )


class OfProposals:
    """Detections and called proposals of a run's ID split and one OOD split, matched for all methods once.

    Args:
        inputs: The run's splits.
        split: The OOD split.
        called: The proposals called unknown there.
        of_id: The same of the ID split.
    """

    def __init__(self, inputs: RunInputs, split: TestSplit, called: CalledIn, of_id: Regions):
        self._inputs, self._split, self._called = inputs, split, called
        rules = split.matching
        self._both = WithProposals.of(split.objects, split.detections, called.proposals, rules)
        rules = replace(rules, known_classes=inputs.id_split.known_classes)
        parts = ((inputs.id_split, of_id), (split, called.proposals))
        self._stored = [
            WithProposals.of(part.objects, part.regions(), proposals, rules, MAX_DETECTIONS)
            for part, proposals in parts
        ]

    def measure(self, method: MethodScores) -> MethodWithProposals:
        """Metrics with them, and of the detections alone."""
        case = SplitCase(method, self._split)
        outcome, score = (
            self._both.match(case.is_unknown),
            self._both.unknown_score(case.unknown_score),
        )
        recalled = [
            both.match(stored < method.tau)
            for both, stored in zip(self._stored, (method.stored, case.stored), strict=True)
        ]

        def values(weights: Weights) -> dict[str, Any]:
            of_images = weights.of(outcome.split.images)
            found = open_set.metrics(outcome, score, of_images)
            images = [one.split.images for one in recalled]
            recall = u_recall(recalled, [weights.of_id(images[0]), weights.of(images[1])])
            return {**found, "u_recall": recall if weights.are_drawn else plain({"": recall})[""]}

        drawn = {} if self._split.weights is None else values(self._split.weights)
        groups = {"by_size": outcome.split.sizes(), "by_category": outcome.split.objects.category}
        alone = open_set.metrics(case.paper_outcome, case.unknown_score)
        alone["u_recall"] = plain({"": u_recall([case.mixed_outcome], [None])})[""]
        return MethodWithProposals(
            values=values(ONCE),
            intervals=intervals.within({name: drawn[name] for name in CHANGED if name in drawn}),
            without={name: alone[name] for name in CHANGED},
            error_budget=self._error_budget(case),
            **{
                name: {
                    part: MetricValues(values=of)
                    for part, of in open_set.by_group(outcome, group).items()
                }
                for name, group in groups.items()
            },
        )

    def _error_budget(self, case: SplitCase) -> dict[str, MetricValues]:
        """What `farther.evaluation.error_budget` counts as missed, in two parts."""
        errors = error_budget.of_unknown(case.outcome, self._split.touching)
        is_found = np.zeros(len(errors.missed), dtype=bool)
        is_found[self._called.finds[self._called.finds >= 0]] = True
        found = {}
        for name, rows in ((FOUND_BY_PROPOSALS, is_found), ("missed", ~is_found)):
            part = replace(errors, missed=errors.missed & rows)
            gains = error_budget.unknown_gains(
                case.outcome, part, case.unknown_score, kinds=("missed",)
            )["missed"]
            found[name] = MetricValues(values={"count": part.counts["missed"], **plain(gains)})
        return found


def called_sources(files: RunFiles) -> list[str]:
    """The sources of proposals that the stage `proposals` wrote tables of proposals called unknown of."""
    return [folder.name for folder in listed(files.recovered.parent, "called/*")]


def measure_methods(
    inputs: RunInputs, sources: Sequence[str], taus: Mapping[str, float]
) -> dict[str, ResultsWithProposals]:
    """Metrics of methods with the proposals that were called unknown.

    Args:
        inputs: The run's inputs.
        sources: Of proposals, whose tables are there.
        taus: τ of each method that applies to the run, by its name.

    Raises:
        DataError: a table is absent or damaged.
    """
    results = {name: ResultsWithProposals(sources={}) for name in taus}
    for source in sources:
        of_id = CalledIn.read(
            inputs.id_split, inputs.files.called(source, inputs.id_split.name)
        ).proposals
        for split in inputs.tested:
            if not split.has_boxes:
                continue
            called = CalledIn.read(split, inputs.files.called(source, split.name))
            together = OfProposals(inputs, split, called, of_id)
            for name, tau in taus.items():
                measured = together.measure(MethodScores(inputs, name, tau))
                results[name].sources.setdefault(source, {})[split.name] = measured
    return results
