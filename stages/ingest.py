"""A dataset in its own format becomes the tables `images` and `objects`: `python stages/ingest.py voc`.

`python stages/ingest.py --missing` says which files of all datasets are not there, and where they come from.
"""

import sys

from farther import datasets
from farther.curation import subsets_used
from farther.datasets.ingest import ingest
from farther.params import section
from farther.tables.files import write_rows


def main(name: str) -> None:
    """Ingests the dataset `name`, as `datasets.<name>` of `params.yaml` describes it."""
    reader = datasets.create(**section("datasets", name))
    summary = ingest(reader, name, f"artifacts/tables/{name}")
    write_rows(f"artifacts/metrics/ingest/{name}", summary)


def report_missing() -> int:
    """Prints what the datasets lack on disk; returns 1 where they lack something, else 0."""
    found = datasets.missing(section("datasets"), subsets_used(section("benchmarks")))
    print("\n".join(map(str, found)) or "Nothing is missing.")
    return 1 if found else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--missing"]:
        sys.exit(report_missing())
    main(*sys.argv[1:])
