"""Embeds the images and class names of all datasets with CLIP, those subsets that changed.

One process for all of them: starting open_clip costs more than embedding a small dataset.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from farther.datasets import image_roots
from farther.errors import Finding, refused
from farther.params import section
from farther.registry import build
from farther.similarity import EmbedParams, Encoder, EncoderParams, embed_dataset
from farther.stage import run_stage

if TYPE_CHECKING:
    from farther.pipeline.inspection import Inspection

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/embeddings"


def main() -> None:
    """Reads `embed`, the roots of `datasets` and their tables; writes artifacts/embeddings/<dataset>."""
    encoder = Encoder(build(EncoderParams, "params.yaml: embed.encoder", section("embed", "encoder")))
    params = build(EmbedParams, "params.yaml: embed.images", section("embed", "images"))
    for name, root in image_roots(section("datasets"), ARTIFACTS / "tables").items():
        out, work = ARTIFACTS / "embeddings" / name, ARTIFACTS / ".work" / "embeddings" / name
        embed_dataset(encoder, ARTIFACTS / "tables" / name, root, out, work, params)


def check(project: Inspection) -> Iterator[Finding]:
    """The section `embed`, and whether the weights that it names are there; they are not opened."""
    embed = project.section("embed")
    for key, cls in (("encoder", EncoderParams), ("images", EmbedParams)) if embed else ():
        yield from refused(f"embed.{key}", partial(build, cls, f"embed.{key}", embed.get(key) or {}))
    if (weights := embed.get("weights")) is not None:
        more = {
            "belongs at": str(weights),
            "comes from": str(project.section("sources").get("embed", "open_clip's models on the hub")),
        }
        if Path(str(weights)).exists():
            yield Finding("checkpoints", "embed", "ok", f"{weights} (not opened)")
        else:
            yield Finding("checkpoints", "embed", "missing", "weights of the image encoder", more)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
