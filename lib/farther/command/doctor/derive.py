"""Checks of the stage `derive`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from farther.command.doctor.inspection import Inspection
from farther.derived import derived
from farther.errors import Finding, refused


def check(project: Inspection) -> Iterator[Finding]:
    """Entries of `derived`."""
    for kind, entries in project.section("derived").items():
        for name, values in (entries or {}).items():
            yield from refused(f"derived.{kind}.{name}", partial(derived, kind, name, values))
