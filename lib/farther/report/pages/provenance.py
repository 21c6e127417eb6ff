"""The page of provenance: what the results were computed from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import farther
from farther.report.all_results import AllResults
from farther.report.citations import bibtex
from farther.report.listing import Listing
from farther.report.pages.papers import PAPERS
from farther.report.results import Run
from farther.report.site import Site
from farther.tables.files import digest

#: Digits of a digest that are printed.
SHORT = 12


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    references = [
        reference for of in results.texts.values() for text in of for reference in text.references
    ]
    site.write(
        "provenance.html",
        checkpoints=_checkpoints(results.measured, results.params),
        splits=_splits(results.measured),
        bibtex=bibtex([paper.citation for paper in PAPERS], references),
    )


def _checkpoints(runs: Sequence[Run], params: Mapping[str, Any]) -> Listing:
    """Digest of each run's checkpoint and of the parameters that it used."""
    shared = {
        name: params.get(name) for name in ("inference", "threshold", "fit", "methods", "evaluate")
    }
    rows = []
    for run in runs:
        used = {
            "detector": params["detectors"][run.name],
            "benchmark": params["benchmarks"][run.benchmark],
        }
        written = json.dumps({**shared, **used}, sort_keys=True, default=str)
        weights = run.evaluation and run.evaluation.detector.get("weights_digest")
        short = {
            "Checkpoint": weights and str(weights)[:SHORT],
            "Parameters": digest(written)[:SHORT],
        }
        rows.append({"Detector": run.full_title, "Run": run.name, **short})
    return Listing.of(
        f"Digests of checkpoints and parameters; farther {farther.__version__}.", rows
    )


def _splits(runs: Sequence[Run]) -> Listing:
    """Digests of each split's tables when the runs were evaluated."""
    rows = []
    for run in runs:
        for split, counts in run.counts.items():
            tables = {
                f"Table of {kind}": counts.inputs[kind][:SHORT] for kind in ("images", "objects")
            }
            rows.append({"Benchmark": run.benchmark, "Split": split, **tables})
    listing = Listing.of("Digests of the tables of images and objects.", rows)
    return Listing(listing.caption, listing.frame.unique(maintain_order=True))
