"""Measures how near the splits of all benchmarks are to their ID images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from farther.curation import benchmark
from farther.incremental.keyed import write_record
from farther.naming.registry import build
from farther.params import section
from farther.similarity import (
    BenchmarkSimilarity,
    SimilarityFiles,
    SplitSource,
    stratify_benchmark,
)
from farther.similarity.stratify import StratifySection
from farther.stage import run_stage
from farther.text.terminal import say

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/similarity"


def main() -> None:
    """Reads `stratify`, `benchmarks`, their splits and the embeddings.

    Writes similarity/, counts and histograms.
    """
    settings = build(StratifySection, "params.yaml: stratify", section("stratify"))
    for name, entry in section("benchmarks").items():
        similarity = _stratified(name, entry, settings)
        counts = ARTIFACTS / "counts" / "similarity" / f"{name}.json"
        plot = ARTIFACTS / "plots" / "similarity" / f"{name}.csv"
        similarity.write(Path(OUTPUT) / name, counts, plot)

        mean_by_distance = similarity.summary()
        means = []
        for distance in ("ID", "near", "far", "farther"):
            if distance in mean_by_distance:
                means.append(f"{distance} {mean_by_distance[distance]:.3f}")
        duplicates = f"{similarity.duplicate_pairs} near-duplicates"
        say(f"{name}: mean similarity {', '.join(means)}; {duplicates}")
    write_record(OUTPUT)


def _stratified(name: str, entry: dict[str, Any], settings: StratifySection) -> BenchmarkSimilarity:
    """Similarity of a benchmark's splits to its ID images."""
    stratified = benchmark(name, entry)
    files = SimilarityFiles(ARTIFACTS / "splits" / name, ARTIFACTS / "embeddings")
    id_splits = []
    for split, (dataset, subset) in stratified.id_sources.items():
        id_splits.append(SplitSource(split, dataset, subset, "ID"))
    ood_splits = []
    for split, source in stratified.splits.items():
        # Images that keep known objects look like ID images whatever else they show: they would
        # blur near and far.
        if source.known == "remove":
            ood_splits.append(SplitSource(split, source.dataset, source.subset, source.distance))
    return stratify_benchmark(files, id_splits, ood_splits, settings, settings.wordnet)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
