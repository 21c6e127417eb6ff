"""A dataset in its own format becomes the tables `images` and `objects`: `python stages/ingest.py voc`."""

import sys

from farther import datasets
from farther.datasets.ingest import ingest
from farther.params import section
from farther.tables.files import write_json


def main(name: str) -> None:
    """Ingests the dataset `name`, as `datasets.<name>` of `params.yaml` describes it."""
    reader = datasets.create(**section("datasets", name))
    summary = ingest(reader, name, f"artifacts/tables/{name}")
    write_json(f"artifacts/counts/ingest/{name}.json", summary)


if __name__ == "__main__":
    main(*sys.argv[1:])
