"""One thing that was looked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """What was looked for, and how it stands.

    Args:
        topic: "parameters", "packages", "datasets", "checkpoints", "disk", "GPU" or "repository".
        name: What was looked for.
        state: "ok"; "missing" or "wrong": something will not run; "note": worth knowing.
        says: How it stands, in a few words.
        more: Where it belongs, where it comes from, and the like.
        bytes: About how large what is missing is; 0 where that is not known, or nothing is.
    """

    topic: str
    name: str
    state: Literal["ok", "missing", "wrong", "note"]
    says: str
    more: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0
