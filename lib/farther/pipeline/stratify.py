"""Measures how near the splits of all benchmarks are to their ID images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from farther.curation import benchmark
from farther.keyed import write_record
from farther.params import section
from farther.registry import build
from farther.similarity import (
    BenchmarkSimilarity,
    SimilarityFiles,
    SplitSource,
    StratifyParams,
    WordNetParams,
    stratify_benchmark,
)
from farther.stage import run_stage
from farther.terminal import say

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/similarity"


def main() -> None:
    """Reads `stratify`, `benchmarks`, their splits and the embeddings.

    Writes similarity/, counts and histograms.
    """
    settings = section("stratify")
    words = settings.pop("wordnet", None)
    params = build(StratifyParams, "params.yaml: stratify", settings)
    wordnet = (
        None if words is None else build(WordNetParams, "params.yaml: stratify.wordnet", words)
    )
    for name, entry in section("benchmarks").items():
        found = _stratified(name, entry, params, wordnet)
        counts, plot = (ARTIFACTS / kind / "similarity" / name for kind in ("counts", "plots"))
        found.write(Path(OUTPUT) / name, f"{counts}.json", f"{plot}.csv")
        means = ", ".join(
            f"{distance} {found.summary()[distance]:.3f}"
            for distance in _distances(found.summary())
        )
        say(f"{name}: mean similarity {means}; {found.duplicate_pairs} near-duplicates")
    write_record(OUTPUT)


def _stratified(
    name: str, entry: dict[str, Any], params: StratifyParams, wordnet: WordNetParams | None
) -> BenchmarkSimilarity:
    made = benchmark(name, entry)
    files = SimilarityFiles(ARTIFACTS / "splits" / name, ARTIFACTS / "embeddings")
    id_splits = [SplitSource(split, *source, "ID") for split, source in made.id_sources.items()]
    # Images that keep known objects look like ID images whatever else they show: they would blur
    # near and far.
    unknown = {key: split for key, split in made.splits.items() if split.known == "remove"}
    ood_splits = [
        SplitSource(key, split.dataset, split.subset, split.distance)
        for key, split in unknown.items()
    ]
    return stratify_benchmark(files, id_splits, ood_splits, params, wordnet)


def _distances(summary: dict[str, float]) -> list[str]:
    return [distance for distance in ("ID", "near", "far", "farther") if distance in summary]


if __name__ == "__main__":
    run_stage(main, OUTPUT)
