"""Chooses candidates for a benchmark's OOD splits from larger pools; reviewers decide on them."""

from __future__ import annotations

from pathlib import Path

from farther.curation import TablesFolder, benchmark
from farther.curation.candidates import FROM_POOLS, write_candidates
from farther.curation.enrichment import (
    benchmark_images,
    describe,
    enrichment,
    find_candidates,
    images_by_subset,
)
from farther.params import section
from farther.similarity import Lookalikes, not_embedded
from farther.stage import run_stage
from farther.text.terminal import say

ARTIFACTS = Path("artifacts")
OUTPUT = str(FROM_POOLS / "{}.csv")


def main(name: str) -> None:
    """Reads `enrich`, `benchmarks`, the tables and embeddings.

    Writes data/candidates/pools/<benchmark>.csv.

    Args:
        name: Name of the benchmark.
    """
    enriched = benchmark(name, section("benchmarks", name))
    settings = enrichment(name, section("enrich", name))
    tables = TablesFolder(ARTIFACTS / "tables")
    embeddings = ARTIFACTS / "embeddings"
    splits = benchmark_images(enriched, tables)
    images = images_by_subset(enriched, splits)
    id_subsets = list(enriched.id_sources.values())
    pools = [(pool.dataset, pool.subset) for pool in settings.pools]

    absent = not_embedded(embeddings, [*id_subsets, *images, *pools])
    if absent:
        say(
            f"No embeddings of {', '.join(absent)}: only identical files are excluded, "
            "not near-duplicates."
        )
        duplicates = None
    else:
        duplicates = Lookalikes(embeddings, id_subsets, images, settings.duplicate)

    result = find_candidates(settings, enriched, tables, splits, duplicates)
    write_candidates(OUTPUT.format(name), result.candidates)
    say(describe(result))


if __name__ == "__main__":
    run_stage(main, OUTPUT)
