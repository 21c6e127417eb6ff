"""Makes the splits of one benchmark."""

from pathlib import Path

from farther.curation import TablesFolder, benchmark, curate
from farther.params import section
from farther.stage import run_stage
from farther.tables.documents import write_json

ARTIFACTS = Path("artifacts")
OUTPUT = "artifacts/splits/{}"


def main(name: str) -> None:
    """Reads `benchmarks.<name>` and the ingested tables; writes the splits and how many images each rule took."""
    made = benchmark(name, section("benchmarks", name))
    curation = curate(made, TablesFolder(ARTIFACTS / "tables"))
    curation.write(ARTIFACTS / "splits" / name)
    write_json(ARTIFACTS / "splits" / name / "roles.json", {**made.roles, "similar": curation.similar})
    write_json(ARTIFACTS / "counts" / "curate" / f"{name}.json", curation.counts())
    print(f"{name}: {', '.join(f'{split} {len(found.images)} images' for split, found in curation.splits.items())}")
    for warning in curation.warnings:
        print(f"{name}: warning: {warning}")


if __name__ == "__main__":
    run_stage(main, OUTPUT)
