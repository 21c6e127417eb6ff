"""Makes the splits of all benchmarks."""

from __future__ import annotations

from pathlib import Path

from farther.curation import TablesFolder, benchmark, curate
from farther.incremental.keyed import write_record
from farther.params import section
from farther.stage import run_stage
from farther.tables.documents import write_json
from farther.tables.writing import write_aside
from farther.text.terminal import say

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/splits"


def main() -> None:
    """Reads `benchmarks` and the ingested tables.

    Writes the splits and how many images each rule took.
    """
    tables = TablesFolder(ARTIFACTS / "tables")
    for name, entry in section("benchmarks").items():
        curated_benchmark = benchmark(name, entry)
        curation = curate(curated_benchmark, tables)
        image_counts = {split: len(labelled.images) for split, labelled in curation.splits.items()}
        empty_splits = [split for split, count in image_counts.items() if count == 0]
        roles = curated_benchmark.roles(empty_splits)
        with write_aside(Path(OUTPUT) / name) as aside:
            curation.write(aside)
            write_json(aside / "roles.json", {**roles, "similar": curation.similar})
        write_json(ARTIFACTS / "counts" / "curate" / f"{name}.json", curation.counts())

        counts = [f"{split} {count} images" for split, count in image_counts.items()]
        say(f"{name}: {', '.join(counts)}")
        for warning in curation.warnings:
            say(f"{name}: warning: {warning}")
    write_record(OUTPUT)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
