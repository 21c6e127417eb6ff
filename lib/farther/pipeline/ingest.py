"""A dataset in its own format becomes the tables `images` and `objects`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from farther import datasets
from farther.datasets import Reader
from farther.datasets.ingest import ingest
from farther.errors import Finding, refused
from farther.keyed import write_record
from farther.params import section
from farther.stage import run_stage
from farther.tables.documents import write_json
from farther.tables.stored import ingest_warnings
from farther.terminal import say

if TYPE_CHECKING:
    from farther.pipeline.inspection import Inspection

OUTPUT = "artifacts/tables/{}"


def main(name: str) -> None:
    """Ingests the dataset `name`, as `datasets.<name>` of `params.yaml` describes it."""
    store(datasets.create(**section("datasets", name)), name)
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


def check(project: Inspection) -> Iterator[Finding]:
    """Entries of `datasets`, files that are absent, annotations and images that would be refused; earlier warnings."""
    from farther.curation import subsets_used
    from farther.datasets.check import check_dataset
    from farther.tables.stored import WARNINGS

    used = subsets_used(project.section("benchmarks"))
    sources = project.section("sources").get("datasets") or {}
    for name, params in project.section("datasets").items():
        if wrong := refused(f"datasets.{name}", partial(datasets.create, **(params or {}))):
            yield from wrong
        elif Path(params["root"]).is_relative_to("artifacts"):
            text = f"at {params['root']}, written by the pipeline"
            there = not datasets.missing({name: params}, {name: used.get(name, ())})
            yield Finding("datasets", name, "ok", text if there else "the pipeline will write it")
        else:
            found = None if project.quick else project.subsets
            yield from check_dataset(name, params, used.get(name, set()), sources.get(name), found)
        folder = Path("artifacts/tables", name)
        for kind, count in ingest_warnings(folder)["counts"].items():
            yield Finding("warnings", name, "note", f"{kind} ({count}): see {folder / WARNINGS}")


if __name__ == "__main__":
    run_stage(main, OUTPUT)
