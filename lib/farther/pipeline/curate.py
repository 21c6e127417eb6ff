"""Makes the splits of all benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from farther.curation import TablesFolder, benchmark, curate
from farther.errors import Finding
from farther.keyed import write_record
from farther.params import section
from farther.stage import run_stage
from farther.tables.documents import write_json
from farther.tables.writing import write_aside
from farther.terminal import say

if TYPE_CHECKING:
    from farther.pipeline.inspection import Inspection

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/splits"


def main() -> None:
    """Reads `benchmarks` and the ingested tables; writes the splits and how many images each rule took."""
    tables = TablesFolder(ARTIFACTS / "tables")
    for name, entry in section("benchmarks").items():
        made = benchmark(name, entry)
        curation = curate(made, tables)
        with write_aside(Path(OUTPUT) / name) as aside:
            curation.write(aside)
            write_json(aside / "roles.json", {**made.roles, "similar": curation.similar})
        write_json(ARTIFACTS / "counts" / "curate" / f"{name}.json", curation.counts())
        say(f"{name}: {', '.join(f'{split} {len(found.images)} images' for split, found in curation.splits.items())}")
        for warning in curation.warnings:
            say(f"{name}: warning: {warning}")
    write_record(OUTPUT)


def check(project: Inspection) -> Iterator[Finding]:
    """Entries of `benchmarks` and the files that they name; what the stage warned about when it ran last."""
    from farther.curation.check import check_benchmark
    from farther.tables.stored import curate_warnings

    for name, params in project.section("benchmarks").items():
        yield from check_benchmark(name, params, project.section("datasets"))
        for text in curate_warnings(ARTIFACTS / "splits" / name):
            yield Finding("warnings", name, "note", text)


if __name__ == "__main__":
    run_stage(main, OUTPUT)
