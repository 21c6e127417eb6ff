"""Checks of the stage `embed`, for `farther doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from farther.command.doctor.inspection import Inspection
from farther.errors import Finding, refused
from farther.naming.registry import build
from farther.similarity.embed import EmbedSection


def check(project: Inspection) -> Iterator[Finding]:
    """The section `embed`, and whether the weights that it names are there; they are not opened."""
    embed = project.section("embed")
    if embed:
        yield from refused("embed", partial(build, EmbedSection, "embed", embed))
    weights = embed.get("weights")
    if weights is None:
        return
    if Path(str(weights)).exists():
        yield Finding("checkpoints", "embed", "ok", f"{weights} (not opened)")
        return
    source = project.section("sources").get("embed", "open_clip's models on the hub")
    places = {"belongs at": str(weights), "comes from": str(source)}
    yield Finding("checkpoints", "embed", "missing", "weights of the image encoder", places)
