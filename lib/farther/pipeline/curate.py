"""Makes the splits of all benchmarks."""

from __future__ import annotations

from pathlib import Path

from farther.curation import TablesFolder, benchmark, curate
from farther.keyed import write_record
from farther.params import section
from farther.stage import run_stage
from farther.tables.documents import write_json
from farther.tables.writing import write_aside
from farther.terminal import say

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/splits"


def main() -> None:
    """Reads `benchmarks` and the ingested tables.

    Writes the splits and how many images each rule took.
    """
    tables = TablesFolder(ARTIFACTS / "tables")
    for name, entry in section("benchmarks").items():
        made = benchmark(name, entry)
        curation = curate(made, tables)
        with write_aside(Path(OUTPUT) / name) as aside:
            curation.write(aside)
            empty = [split for split, images in curation.splits.items() if not len(images.images)]
            write_json(aside / "roles.json", {**made.roles(empty), "similar": curation.similar})
        write_json(ARTIFACTS / "counts" / "curate" / f"{name}.json", curation.counts())
        say(
            f"{name}: {', '.join(f'{split} {len(found.images)} images' for split, found in curation.splits.items())}"
        )
        for warning in curation.warnings:
            say(f"{name}: warning: {warning}")
    write_record(OUTPUT)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
