"""The page of methods, and a page of each line of section `methods`."""

from __future__ import annotations

from typing import Any

import polars as pl

from farther.report import documented, tables
from farther.report.all_results import AllResults, not_applicable
from farther.report.charts.results import detectors
from farther.report.listing import Listing
from farther.report.results import title_of
from farther.report.site import Site


def write(site: Site, results: AllResults) -> None:
    """Writes the pages."""
    site.write(
        "methods.html",
        message=results.distances.best_method(),
        table=_methods(results),
        method_pages=results.method_pages("", results.evaluated),
        not_applicable=not_applicable(results.measured),
    )
    siblings = {f"methods/{name}.html": title_of(name) for name in results.params["methods"]}
    for name in results.params["methods"]:
        site.write(f"methods/{name}.html", "method.html", siblings, **_method(name, results))


def _methods(results: AllResults) -> Listing:
    """One row per line of section `methods`, with its summary, and its means over all detectors and splits."""
    rows = []
    for name, texts in results.texts.items():
        of_method = results.values.filter(method=name)
        mean = dict(of_method.group_by("metric").agg(pl.col("value").mean()).iter_rows())
        best_of = f"The best of {', '.join(text.name for text in texts)}."
        rows.append(
            {
                "Method": title_of(name) if of_method.is_empty() else of_method["label"][0],
                "Family": ", ".join(of_method["family"].unique(maintain_order=True)) or None,
                "Summary": texts[0].summary.replace("`", "") if len(texts) == 1 else best_of,
                "Detectors": of_method["run"].n_unique(),
                "Images": of_method.select("benchmark", "split", "images").unique()["images"].sum()
                or None,
                "Mean AUROC (%)": mean.get("auroc"),
                "Mean AP_U (%)": mean.get("ap_u"),
            }
        )
    return Listing.of("Methods; means over all splits and all detectors that they apply to.", rows)


def _method(name: str, results: AllResults) -> dict[str, Any]:
    """Variables of the template `method.html`."""
    runs = [run for run in results.evaluated if name in run.methods]
    on = {
        benchmark: of
        for benchmark in results.by_benchmark
        if (of := [r for r in runs if r.benchmark == benchmark])
    }
    remarks = dict.fromkeys(remark for run in runs for remark in documented.remarks(run, name))
    parameters = [{"Detector": run.full_title, **documented.parameters(run, name)} for run in runs]
    caption = "Parameters, threshold τ, and the share of ID test detections at or above it."
    return {
        "title": runs[0].label(name) if runs else title_of(name),
        "texts": results.texts[name],
        "remarks": [f"{remark[0].upper()}{remark[1:]}." for remark in remarks],
        "tables": [
            table
            for benchmark, of in on.items()
            for table in tables.method_tables(benchmark, of, name)
        ],
        "charts_by_benchmark": {of[0].benchmark_title: detectors(of, name) for of in on.values()},
        "parameters": Listing.of(caption, parameters, ["τ"]),
        "not_applicable": {
            run.full_title: run.not_applicable[name]
            for run in results.measured
            if name in run.not_applicable
        },
    }
