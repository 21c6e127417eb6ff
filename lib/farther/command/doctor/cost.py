"""Checks of the section `cost`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from farther.command.doctor.inspection import Inspection
from farther.errors import Finding, refused
from farther.evaluation.cost import CostParams
from farther.naming.registry import build


def check(project: Inspection) -> Iterator[Finding]:
    """The section `cost`."""
    yield from refused("cost", partial(build, CostParams, "cost", project.section("cost")))
