"""Checks of the stage `choose`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from farther.command.doctor.inspection import Inspection
from farther.errors import Finding, refused
from farther.evaluation.deploy.results import Budget
from farther.registry import build


def check(project: Inspection) -> Iterator[Finding]:
    """The section `deploy`."""
    yield from refused("deploy", partial(build, Budget, "deploy", project.section("deploy")))
