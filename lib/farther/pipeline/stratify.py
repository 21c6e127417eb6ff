"""Measures how near the splits of one benchmark are to its ID images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from farther.curation import benchmark
from farther.errors import Finding, refused
from farther.params import section
from farther.registry import build
from farther.similarity import SimilarityFiles, SplitSource, StratifyParams, WordNetParams, stratify_benchmark
from farther.stage import run_stage

if TYPE_CHECKING:
    from farther.pipeline.inspection import Inspection

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/similarity/{}"


def main(name: str) -> None:
    """Reads `stratify`, `benchmarks.NAME`, its splits and the embeddings; writes similarity/, metrics and plots."""
    made = benchmark(name, section("benchmarks", name))
    settings = section("stratify")
    words = settings.pop("wordnet", None)
    params = build(StratifyParams, "params.yaml: stratify", settings)
    wordnet = None if words is None else build(WordNetParams, "params.yaml: stratify.wordnet", words)
    files = SimilarityFiles(ARTIFACTS / "splits" / name, ARTIFACTS / "embeddings")
    id_splits = [SplitSource(split, *source, "ID") for split, source in made.id_sources.items()]
    # Images that keep known objects look like ID images whatever else they show: they would blur near and far.
    unknown = {key: split for key, split in made.splits.items() if split.known == "remove"}
    ood_splits = [SplitSource(key, split.dataset, split.subset, split.distance) for key, split in unknown.items()]
    found = stratify_benchmark(files, id_splits, ood_splits, params, wordnet)
    counts, plots = ARTIFACTS / "counts" / "similarity" / f"{name}.json", ARTIFACTS / "plots" / "similarity" / name
    found.write(ARTIFACTS / "similarity" / name, counts, plots)
    means = ", ".join(f"{distance} {found.summary()[distance]:.3f}" for distance in _distances(found.summary()))
    print(f"{name}: mean similarity {means}; {found.duplicate_pairs} near-duplicates")


def _distances(summary: dict[str, float]) -> list[str]:
    return [distance for distance in ("ID", "near", "far", "farther") if distance in summary]


def check(project: Inspection) -> Iterator[Finding]:
    """The section `stratify`."""
    settings = {key: value for key, value in project.section("stratify").items() if key != "wordnet"}
    yield from refused("stratify", lambda: build(StratifyParams, "stratify", settings))
    if words := project.section("stratify").get("wordnet"):
        yield from refused("stratify.wordnet", lambda: build(WordNetParams, "stratify.wordnet", words))


if __name__ == "__main__":
    run_stage(main, OUTPUT)
