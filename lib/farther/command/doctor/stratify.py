"""Checks of the stage `stratify`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from farther.command.doctor.inspection import Inspection
from farther.errors import Finding, refused
from farther.naming.registry import build
from farther.similarity.stratify import StratifySection


def check(project: Inspection) -> Iterator[Finding]:
    """The section `stratify`."""
    settings = project.section("stratify")
    yield from refused("stratify", partial(build, StratifySection, "stratify", settings))
