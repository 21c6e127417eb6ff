"""The page of provenance: what the results were computed from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

import farther
from farther.report import tables
from farther.report.all_results import AllResults
from farther.report.citations import bibtex
from farther.report.listing import Listing
from farther.report.papers.layout import PAPERS, read_paper
from farther.report.results import Run
from farther.report.site import Site
from farther.tables.files import digest

#: Headings of the files of a run, by kind of table.
FILES = {"open_set": "Unknown objects", "ood": "Detections"}

#: Digits of a hash that are printed.
SHORT = 12

#: Sections of params.yaml that all runs use.
SHARED_SECTIONS = ("inference", "threshold", "fit", "methods", "evaluate")


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    references: list[str] = []
    for texts in results.texts.values():
        for text in texts:
            references += text.references
    site.write(
        "provenance.html",
        checkpoints=_checkpoints(results.measured, results.params),
        splits=_splits(results.measured),
        bibtex=bibtex([read_paper(name).citation for name in PAPERS], references),
        file_heads=FILES,
        files=_files(results.evaluated),
    )


def _files(runs: Sequence[Run]) -> dict[str, tuple[str, list[str]]]:
    """Run → its title, and the names of the files of its tables."""
    files = {}
    for run in runs:
        names = [table.name for table in tables.run_tables(run)]
        files[run.name] = (run.full_title, names)
    return files


def _checkpoints(runs: Sequence[Run], params: Mapping[str, Any]) -> Listing:
    """Hash of each run's checkpoint and of the parameters that it used."""
    rows = []
    for run in runs:
        used = {name: params.get(name) for name in SHARED_SECTIONS}
        used["detector"] = params["detectors"][run.name]
        used["benchmark"] = params["benchmarks"][run.benchmark]
        used_text = json.dumps(used, sort_keys=True, default=str)
        row = {
            "Detector": run.full_title,
            "Run": run.name,
            "Checkpoint": _checkpoint(run),
            "Parameters": digest(used_text)[:SHORT],
        }
        rows.append(row)
    return Listing.from_rows(
        f"Digests of checkpoints and parameters; farther {farther.__version__}.", rows
    )


def _checkpoint(run: Run) -> str | None:
    """Hash of a run's checkpoint; None where it is not known."""
    if run.description is None:
        return None
    weights_digest = run.description.detector.get("weights_digest")
    if weights_digest is None:
        return None
    return str(weights_digest)[:SHORT]


def _splits(runs: Sequence[Run]) -> Listing:
    """Hashes of each split's tables when the runs were evaluated."""
    rows = []
    for run in runs:
        if run.description is None:
            continue
        for split, inputs in run.description.inputs.items():
            row = {
                "Benchmark": run.benchmark,
                "Split": split,
                "Table of images": inputs["images"][:SHORT],
                "Table of objects": inputs["objects"][:SHORT],
            }
            rows.append(row)
    frame = pl.DataFrame(rows, infer_schema_length=None).unique(maintain_order=True)
    return Listing("Digests of the tables of images and objects.", frame)
