"""A dataset in its own format becomes the tables `images` and `objects`."""

from __future__ import annotations

from pathlib import Path

from farther import datasets
from farther.datasets import Reader
from farther.datasets.ingest import ingest
from farther.incremental.keyed import write_record
from farther.params import section
from farther.stage import run_stage
from farther.tables.documents import write_json
from farther.tables.folders import refuse_linked_folders
from farther.tables.stored import ingest_warnings
from farther.text.terminal import say

OUTPUT = "artifacts/tables/{}"


def main(name: str) -> None:
    """Ingests the dataset `name`, as `datasets.<name>` of `params.yaml` describes it."""
    reader = datasets.create(**section("datasets", name))
    refuse_linked_folders(reader.root)
    store(reader, name)
    write_record(OUTPUT.format(name))


def store(reader: Reader, name: str) -> None:
    """Writes the tables of a dataset and their counts, and prints these and the warnings."""
    tables = Path(OUTPUT.format(name))
    summary = ingest(reader, name, tables)
    write_json(f"artifacts/counts/ingest/{name}.json", summary)
    for subset, counts in summary.items():
        say(f"{name} {subset}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
    for kind, count in ingest_warnings(tables)["counts"].items():
        say(f"{name}: warning: {kind} ({count}); {tables / 'warnings.json'} lists them")


if __name__ == "__main__":
    run_stage(main, OUTPUT)
