"""Cases of parametrized tests."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")

#: Draws cases: FARTHER_TEST_SEED, or another number in each run of the tests. All processes of
#: pytest-xdist have the same.
SEED = int(
    os.environ.get("FARTHER_TEST_SEED")
    or random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID")).randrange(10**6)
)


def drawn_tests(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests without those that this run does not draw; all of them with FARTHER_TEST_ALL.

    Of a file that is marked `drawn(count)`, so many tests are drawn; of the files that are marked
    `drawn(count, group)` with the same group, so many files.

    Args:
        items: All tests; those of other files are returned, too.
    """
    items_by_unit_by_group: dict[str, dict[str, list[pytest.Item]]] = {}
    count_by_group: dict[str, int] = {}
    for item in items:
        marker = item.get_closest_marker("drawn")
        if marker is None:
            continue
        file = item.nodeid.partition("::")[0]
        group = marker.args[1] if len(marker.args) > 1 else file
        unit = item.nodeid if group == file else file
        count_by_group[group] = marker.args[0]
        items_by_unit_by_group.setdefault(group, {}).setdefault(unit, []).append(item)

    left_out: set[pytest.Item] = set()
    for group, items_by_unit in items_by_unit_by_group.items():
        chosen = drawn_cases(items_by_unit, count_by_group[group])
        for unit, of_unit in items_by_unit.items():
            if unit not in chosen:
                left_out.update(of_unit)
    return [item for item in items if item not in left_out]


def slow_but(quick: Collection[Any], cases: Iterable[Any], drawn: int | None = None) -> list[Any]:
    """Cases of a parameter, of which all but some are slow: only `make test-all` runs them.

    Args:
        quick: Those that `make test` runs, too.
        cases: All of them.
        drawn: Number of the slow ones that are drawn: see `drawn_cases`. All by default.
    """
    cases = list(cases)
    slow = [case for case in cases if case not in quick]
    if drawn is not None:
        slow = drawn_cases(slow, drawn)
    marked = []
    for case in cases:
        if case in quick:
            marked.append(case)
        elif case in slow:
            marked.append(pytest.param(case, marks=pytest.mark.slow))
    return marked


def drawn_cases(cases: Iterable[Case], count: int) -> list[Case]:
    """Some of many cases of one kind, in their order; all of them with FARTHER_TEST_ALL.

    Args:
        cases: All of them.
        count: Number of those that are drawn.
    """
    cases = list(cases)
    if os.environ.get("FARTHER_TEST_ALL"):
        return cases
    count = min(count, len(cases))
    places = sorted(random.Random(SEED).sample(range(len(cases)), count))
    return [cases[place] for place in places]
