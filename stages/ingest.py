"""Stage ingest: a dataset in its own format becomes the tables `images` and `objects`."""

import sys

from _params import section
from farther import datasets
from farther.datasets.ingest import ingest
from farther.tables.files import write_rows


def main(name: str) -> None:
    """Ingests the dataset `name`, as `datasets.<name>` of `params.yaml` describes it."""
    reader = datasets.create(**section("datasets", name))
    summary = ingest(reader, name, f"artifacts/tables/{name}")
    write_rows(f"artifacts/metrics/ingest/{name}", summary)


if __name__ == "__main__":
    main(*sys.argv[1:])
