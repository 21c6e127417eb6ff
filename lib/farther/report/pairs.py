"""Two detectors on the same images, and what each does with unknown objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from farther.metrics.statistics.bootstrap import interval
from farther.report.common_runs import points
from farther.report.distances import Distances, Shares
from farther.report.links import GalleryLinks, View
from farther.report.listing import Listing
from farther.report.results import Run

#: Outcomes of unknown objects → whether more of them is better.
OUTCOMES = {"found": True, "misclassified": False, "missed": False}


@dataclass(frozen=True)
class Difference:
    """By how much the second of two detectors differs from the first in an outcome.

    Args:
        outcome: "found", "misclassified" or "missed".
        value: Difference of the shares of all unknown objects, as a fraction.
        interval: Its 95% interval, paired over the same images; None without replicates.
    """

    outcome: str
    value: float
    interval: tuple[float, float] | None

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes zero."""
        if self.interval is None:
            return False
        low, high = self.interval
        return not low <= 0 <= high

    @property
    def is_better(self) -> bool:
        """Whether the second detector does better."""
        return (self.value > 0) == OUTCOMES[self.outcome]

    @property
    def text(self) -> str:
        """The difference in points, with its interval."""
        if self.interval is None:
            return points(self.value)
        low, high = self.interval
        return f"{points(self.value)} [{points(low)}, {points(high)}]"


@dataclass(frozen=True)
class Pair:
    """Two runs of one benchmark on the same images.

    Args:
        first, second: The runs.
        differences: One per outcome.
    """

    first: Run
    second: Run
    differences: Sequence[Difference]

    def verdict(self) -> str:
        """Which of the two does better, in a sentence."""
        significant = [one for one in self.differences if one.is_significant]
        if not significant:
            return "no outcome differs significantly"
        parts = []
        for run, wins in ((self.second, True), (self.first, False)):
            outcomes = [one.outcome for one in significant if one.is_better == wins]
            if outcomes:
                parts.append(f"{run.title} is better: {', '.join(outcomes)}")
        return "; ".join(parts)


def pairs(distances: Distances) -> Iterator[Pair]:
    """Each two detectors of a benchmark that were tested on the same images."""
    for (first, first_method), (second, second_method) in combinations(
        distances.runs_with_method, 2
    ):
        if not _are_on_the_same_images(first, second):
            continue
        before = distances.all_shares(first, first_method)
        after = distances.all_shares(second, second_method)
        if before is None or after is None:
            continue
        yield Pair(first, second, list(_differences(before, after)))


def _are_on_the_same_images(first: Run, second: Run) -> bool:
    """Whether the OOD images and the resamples of two runs are the same."""
    if (
        first.benchmark != second.benchmark
        or first.description is None
        or second.description is None
    ):
        return False
    if first.description.bootstrap != second.description.bootstrap:
        return False
    if first.description.settings.seed != second.description.settings.seed:
        return False
    for split in first.splits:
        inputs_of_first = first.description.inputs.get(split.name)
        inputs_of_second = second.description.inputs.get(split.name)
        if inputs_of_first is None or inputs_of_second is None:
            return False
        for table in ("images", "readable"):
            if inputs_of_first[table] != inputs_of_second[table]:
                return False
    return True


def _differences(before: Shares, after: Shares) -> Iterator[Difference]:
    for outcome in OUTCOMES:
        value = after.share(outcome) - before.share(outcome)
        ends = None
        if before.replicates and after.replicates:
            replicates = after.replicates[outcome] - before.replicates[outcome]
            ends = interval(np.asarray(replicates), value=value)
        yield Difference(outcome, value, ends)


def listing(distances: Distances, links_by_run: Mapping[str, GalleryLinks]) -> Listing:
    """One row per pair: differences of the second detector from the first, and a verdict.

    The verdict leads to the objects with which the two do something else.

    Args:
        distances: All runs and their methods.
        links_by_run: The page's links to the images of each run.
    """
    rows: list[dict[str, Any]] = []
    links = []
    for pair in pairs(distances):
        row = {"Detector": pair.first.full_title, "Compared with it": pair.second.full_title}
        for difference in pair.differences:
            row[f"{difference.outcome.capitalize()} (points)"] = difference.text
        row["Verdict"] = pair.verdict()
        rows.append(row)
        href = links_by_run[pair.first.name].to(View(other=pair.second.name))
        links.append({"Verdict": href})
    numbers = [f"{outcome.capitalize()} (points)" for outcome in OUTCOMES]
    caption = (
        "The second detector minus the first, in percentage points of all unknown objects, with "
        "95% intervals over the same images."
    )
    return replace(Listing.from_rows(caption, rows, numbers), links=links)
