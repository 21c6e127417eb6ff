"""Outcomes of unknown objects, and what proposals cover of those that are missed.

An unknown object is found, misclassified or missed. It is missed if no detection at or above the
operating threshold t* matches it. Proposals change none of these outcomes: what they cover is a
part of what is missed, at a rate of false alarms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from farther.evaluation.long_table import Result, Results
from farther.report.results import Run

#: Counts of an evaluation → outcome of an unknown object, in the order in which bars stack them.
OUTCOMES = {"tp_u": "found", "fn_misclassified": "misclassified", "fn_missed": "missed"}

#: The missed objects that a proposal covers. Bars stack them before the other missed objects.
COVERED = "missed, but a proposal covers it"

#: Parts of a bar, in the order of stacking.
PARTS = ("found", "misclassified", COVERED, "missed")


@dataclass(frozen=True)
class Coverage:
    """Missed unknown objects that the first source of a run's proposals covers.

    Args:
        source: Name of the source.
        share: Share of the unknown objects that are missed and covered.
        interval: Its 95% interval, None without one.
        uncovered: Share of the unknown objects that are missed and not covered.
        uncovered_interval: Its 95% interval, None without one.
        alarms: False alarms per ID image: proposals above their threshold in the ID test split.
    """

    source: str
    share: float
    interval: tuple[float, float] | None
    uncovered: float
    uncovered_interval: tuple[float, float] | None
    alarms: float


@dataclass(frozen=True)
class OutcomeShares:
    """Outcomes of some unknown objects as shares, which add up to 1.

    Args:
        objects: Number of unknown objects.
        shares: Outcome → its share.
        intervals: Outcome → 95% interval of its share; outcomes without one may be absent.
        coverage: What proposals cover of the missed objects; None without proposals.
    """

    objects: int
    shares: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float] | None] = field(default_factory=dict)
    coverage: Coverage | None = None

    def parts(self) -> list[dict[str, Any]]:
        """One row per part of a bar, in the order of stacking.

        Its keys are part, outcome, share (of the part), total (share of the outcome) with low and
        high, covered and alarms (of missed objects of a run with proposals), and objects.
        """
        rows = []
        for outcome in OUTCOMES.values():
            total = self.shares[outcome]
            low, high = self.intervals.get(outcome) or (None, None)
            row: dict[str, Any] = {
                "part": outcome,
                "outcome": outcome,
                "share": total,
                "total": total,
                "low": low,
                "high": high,
                "covered": None,
                "alarms": None,
                "objects": self.objects,
            }
            if outcome == "missed" and self.coverage is not None:
                # Detections are matched with all objects here, and proposals with missed ones
                # only: the two can differ in a few objects.
                covered = min(self.coverage.share, total)
                row["covered"] = covered
                row["alarms"] = self.coverage.alarms
                rows.append({**row, "part": COVERED, "share": covered})
                row["share"] = total - covered
            rows.append(row)
        return rows

    def in_words(self) -> str:
        """The shares in words.

        >>> shares = {"found": 0.25, "misclassified": 0.25, "missed": 0.5}
        >>> OutcomeShares(4, shares).in_words()
        '25% found, 25% misclassified, 50% missed'
        """
        texts = []
        for outcome in OUTCOMES.values():
            texts.append(f"{self.shares[outcome]:.0%} {outcome}")
        text = ", ".join(texts)
        if self.coverage is not None:
            covered = min(self.coverage.share, self.shares["missed"])
            text += (
                f" (proposals cover {covered:.0%} of all objects, at "
                f"{self.coverage.alarms:.2f} false alarms per ID image)"
            )
        return text


def coverage_at_distance(run: Run, distance: str) -> Coverage | None:
    """What a run's proposals cover in all splits of a distance; None where that is not measured."""
    source = run.first_source
    if source is None:
        return None
    part = f"source={source}, distance={distance}"
    return _coverage(run, source, run.results.table.values("proposals", part=part))


def coverage_in_split(run: Run, split: str) -> Coverage | None:
    """What a run's proposals cover in a split; None where that is not measured."""
    source = run.first_source
    if source is None:
        return None
    part = f"source={source}"
    return _coverage(run, source, run.results.table.values("proposals", split=split, part=part))


def alarms_of_source(run: Run) -> float | None:
    """False alarms per ID image of the first source of a run's proposals; None without one."""
    part = f"source={run.first_source}"
    values = run.results.table.values("proposals", split=run.id_split or "", part=part)
    return float(values["alarms"].value or 0.0) if "alarms" in values else None


def _coverage(run: Run, source: str, objects: Results) -> Coverage | None:
    """What a source of proposals covers of some objects; None without them."""
    if not objects:
        return None
    covered = objects.get("recovered", Result(None))
    uncovered = objects.get("still_missed", Result(None))
    return Coverage(
        source=source,
        share=covered.value or 0.0,
        interval=covered.interval,
        uncovered=uncovered.value or 0.0,
        uncovered_interval=uncovered.interval,
        alarms=alarms_of_source(run) or 0.0,
    )


def alarms_in_words(alarms: Iterable[float]) -> str:
    """Rates of false alarms of one or several runs, with their unit.

    >>> alarms_in_words([0.4149])
    '0.41 false alarms per ID image'
    >>> alarms_in_words([0.41, 0.27, 0.3])
    '0.27 to 0.41 false alarms per ID image'
    """
    rates = sorted(f"{rate:.2f}" for rate in alarms)
    text = rates[0]
    if rates[-1] != rates[0]:
        text = f"{rates[0]} to {rates[-1]}"
    return f"{text} false alarms per ID image"
