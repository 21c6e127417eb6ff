"""Checks of the stage `stratify`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from farther.command.doctor.inspection import Inspection
from farther.errors import Finding, refused
from farther.registry import build
from farther.similarity import StratifyParams, WordNetParams


def check(project: Inspection) -> Iterator[Finding]:
    """The section `stratify`."""
    settings = dict(project.section("stratify"))
    wordnet = settings.pop("wordnet", None)
    yield from refused("stratify", partial(build, StratifyParams, "stratify", settings))
    if wordnet:
        where = "stratify.wordnet"
        yield from refused(where, partial(build, WordNetParams, where, wordnet))
