"""Embeds the images and class names of all datasets with CLIP, those subsets that changed.

One process for all of them: starting open_clip costs more than embedding a small dataset.
"""

from __future__ import annotations

from pathlib import Path

from farther.datasets import image_roots
from farther.naming.registry import build
from farther.params import section
from farther.similarity import Encoder, embed_dataset
from farther.similarity.embed import EmbedSection
from farther.stage import run_stage

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/embeddings"


def main() -> None:
    """Reads `embed`, the roots of `datasets` and their tables.

    Writes artifacts/embeddings/<dataset>.
    """
    settings = build(EmbedSection, "params.yaml: embed", section("embed"))
    encoder = Encoder(settings.encoder)
    for name, root in image_roots(section("datasets"), ARTIFACTS / "tables").items():
        out = ARTIFACTS / "embeddings" / name
        work = ARTIFACTS / ".work" / "embeddings" / name
        embed_dataset(encoder, ARTIFACTS / "tables" / name, root, out, work, settings.images)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
