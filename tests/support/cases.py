"""Cases of parametrized tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Cases of a parameter, of which all but some are slow: only `make test-all` runs them.

    Args:
        quick: Those that `make test` runs, too.
        cases: All of them.
    """
    marked = []
    for case in cases:
        if case in quick:
            marked.append(case)
        else:
            marked.append(pytest.param(case, marks=pytest.mark.slow))
    return marked
