"""Findings of a check before anything runs: what is there and fits, what is missing, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from farther.errors import FartherError

#: States of findings that keep something from running.
PROBLEMS = ("missing", "wrong")

#: Annotations and detections are opened up to this size.
OPENED_BYTES = 50_000_000


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    Args:
        topic: "pipeline", "parameters", "packages", "datasets", "checkpoints", "warnings", "disk", "GPU" or
            "repository".
        name: What was checked.
        state: "ok"; "missing" or "wrong": something will not run; "note": worth knowing.
        text: The result in a few words.
        more: Where it belongs, where it comes from, and the like.
        bytes: Approximate size of what is missing; 0 where that is unknown or nothing is missing.
    """

    topic: str
    name: str
    state: Literal["ok", "missing", "wrong", "note"]
    text: str
    more: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0


def refused(name: str, *reads: Callable[[], Any]) -> list[Finding]:
    """What is wrong with an entry of params.yaml: one finding for each of some calls that refuses it."""
    texts: dict[str, None] = {}
    for read in reads:
        try:
            read()
        except FartherError as error:
            texts[str(error)] = None
        except (AttributeError, KeyError, TypeError, ValueError):  # a text or a number where an entry belongs
            texts["not of the form that the stages expect; compare it with the documentation"] = None
    return [Finding("parameters", name, "wrong", text) for text in texts]
