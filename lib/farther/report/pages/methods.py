"""The page of methods, and a page of each line of section `methods`."""

from __future__ import annotations

from typing import Any

import polars as pl

from farther.report import documented, tables
from farther.report.all_results import AllResults, not_applicable
from farther.report.charts.results import detectors, outcomes_by_split
from farther.report.listing import Listing
from farther.report.results import Run, title_of
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
    """One row per line of section `methods`: its summary, and means over detectors and splits."""
    rows = [_summary_row(name, results) for name in results.texts]
    caption = "Methods; means over all splits and all detectors that they apply to."
    return Listing.from_rows(caption, rows)


def _summary_row(name: str, results: AllResults) -> dict[str, Any]:
    """A row of the table of methods."""
    texts = results.texts[name]
    if len(texts) == 1:
        summary = texts[0].summary.replace("`", "")
    else:
        summary = f"The best of {', '.join(text.name for text in texts)}."

    values = results.values.filter(method=name)
    title = title_of(name)
    if not values.is_empty():
        title = values["label"][0]
    families = values["family"].unique(maintain_order=True)
    tested = values.select("benchmark", "split", "images").unique()
    means = dict(values.group_by("metric").agg(pl.col("value").mean()).iter_rows())
    return {
        "Method": title,
        "Family": ", ".join(families) or None,
        "Summary": summary,
        "Detectors": values["run"].n_unique(),
        "Images": tested["images"].sum() or None,
        "Mean AUROC (%)": means.get("auroc"),
        "Mean AP_U (%)": means.get("ap_u"),
    }


def _method(name: str, results: AllResults) -> dict[str, Any]:
    """Variables of the template `method.html`."""
    runs_by_benchmark = _runs_by_benchmark(name, results)
    runs = [run for run in results.evaluated if name in run.methods]
    result_tables = []
    charts = {}
    outcomes = {}
    for benchmark, runs_on_it in runs_by_benchmark.items():
        result_tables += tables.method_tables(benchmark, runs_on_it, name)
        title = runs_on_it[0].benchmark_title
        outcomes[title] = outcomes_by_split([(run, name) for run in runs_on_it])
        charts[title] = detectors(runs_on_it, name)

    reasons = {}
    for run in results.measured:
        if name in run.not_applicable:
            reasons[run.full_title] = run.not_applicable[name]
    return {
        "title": runs[0].label(name) if runs else title_of(name),
        "texts": results.texts[name],
        "remarks": _remarks(name, runs),
        "tables": result_tables,
        "outcomes_by_benchmark": outcomes,
        "charts_by_benchmark": charts,
        "parameters": _parameters(name, runs),
        "not_applicable": reasons,
    }


def _runs_by_benchmark(name: str, results: AllResults) -> dict[str, list[Run]]:
    """Benchmark → its runs that have a method; benchmarks without such a run are left out."""
    runs_by_benchmark = {}
    for benchmark, runs in results.by_benchmark.items():
        runs_with_method = [run for run in runs if name in run.methods]
        if runs_with_method:
            runs_by_benchmark[benchmark] = runs_with_method
    return runs_by_benchmark


def _remarks(name: str, runs: list[Run]) -> list[str]:
    """Remarks on a method in any run, each once, as sentences."""
    remarks: dict[str, None] = {}
    for run in runs:
        remarks.update(dict.fromkeys(documented.remarks(run, name)))
    return [f"{remark[0].upper()}{remark[1:]}." for remark in remarks]


def _parameters(name: str, runs: list[Run]) -> Listing:
    """Parameters of a method in each run."""
    rows = [{"Detector": run.full_title, **documented.parameters(run, name)} for run in runs]
    caption = "Parameters, threshold τ, and the share of ID test detections at or above it."
    return Listing.from_rows(caption, rows, ["τ"])
