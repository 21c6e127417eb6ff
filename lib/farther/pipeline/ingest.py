"""A dataset in its own format becomes the tables `images` and `objects`."""

from pathlib import Path

from farther import datasets
from farther.datasets.ingest import ingest
from farther.params import section
from farther.stage import run_stage
from farther.tables.documents import write_json
from farther.tables.stored import ingest_warnings

OUTPUT = "artifacts/tables/{}"


def main(name: str) -> None:
    """Ingests the dataset `name`, as `datasets.<name>` of `params.yaml` describes it."""
    reader = datasets.create(**section("datasets", name))
    summary = ingest(reader, name, f"artifacts/tables/{name}")
    write_json(f"artifacts/counts/ingest/{name}.json", summary)
    for subset, counts in summary.items():
        print(f"{name} {subset}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
    for kind, count in ingest_warnings(Path("artifacts/tables", name))["counts"].items():
        print(f"{name}: warning: {kind} ({count}); artifacts/tables/{name}/warnings.json lists them")


if __name__ == "__main__":
    run_stage(main, OUTPUT)
