"""A clock for `farther.evaluation.cost.timed`: tests determine how long each call takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import pytest

from farther.evaluation import cost


def calls_take(monkeypatch: pytest.MonkeyPatch, seconds: Iterable[float]) -> None:
    """Calls that are timed take these numbers of seconds, one after another.

    A call that is timed in several tries takes one number per try.
    """
    readings = _readings(seconds)

    def clock() -> float:
        return next(readings)

    clocks = SimpleNamespace(perf_counter=clock, process_time=clock)
    monkeypatch.setattr(cost, "time", clocks)


def _readings(seconds: Iterable[float]) -> Iterator[float]:
    """Times of the clock at the start and at the end of each call."""
    for duration in seconds:
        yield 0.0
        yield duration
