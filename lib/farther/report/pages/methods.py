"""The page of methods: their results, how certain these are, and what each method is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from farther.metrics.catalogue import METRICS
from farther.report import documented, power
from farther.report.all_results import AllResults, not_applicable
from farther.report.charts.results import correlations, families
from farther.report.common_runs import MethodsByRuns, PairedMeans, points
from farther.report.listing import ABSENT, Listing
from farther.report.pages import comparisons
from farther.report.results import CHARTED, OOD, OPEN_SET, VALUES, Run, title_of
from farther.report.site import Site

#: Sections of the page.
SECTIONS = {
    "results": "Results",
    "size": "Is the test set large enough?",
    "mean-ranks": "Mean ranks",
    "ranks": "Images and objects",
    "agreement": "Do classic and open-set metrics rank methods alike?",
    "gaps": "Near against far",
    "means": "Means over splits",
    "errors": "Errors on ID images",
    "families": "Families of methods",
    "correlations": "Correlation of metrics",
    "methods": "What each method is",
}

#: Metrics of the tables of methods; the first one orders them.
SHOWN = ("auroc", "ap_u")


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    site.write("methods.html", **content(results))


def content(results: AllResults) -> dict[str, Any]:
    """Variables of the template `methods.html`."""
    size_tables = [power.listing(name, results.sizes) for name in results.by_benchmark]
    open_set_metrics = [metric for metric in CHARTED if metric in OPEN_SET]
    variables: dict[str, Any] = {
        "message": results.distances.best_method(),
        "apart": power.apart(results.sizes),
        "tables": _tables(results),
        "method_pages": results.method_pages("", results.evaluated),
        "not_applicable": not_applicable(results.measured),
        "size": [table for table in size_tables if len(table)],
        "not_drawn": results.drawn.note,
        **comparisons.content(results.evaluated, results.drawn.runs),
        "ood_families": families(results.values, OOD),
        "open_set_families": families(results.values, open_set_metrics),
        "correlations": correlations(results.values),
        "methods": {name: _method(name, results) for name in results.params["methods"]},
    }
    variables["contents"] = _contents(variables)
    return variables


def _contents(variables: Mapping[str, Any]) -> dict[str, str]:
    """Anchor of each section that the page has → its title."""
    has_content = {
        "size": variables["size"],
        "mean-ranks": variables["mean_ranks"],
        "ranks": variables["ranks"],
        "agreement": variables["agreement"],
        "gaps": variables["gaps"],
        "means": variables["means"],
        "errors": variables["errors"],
        "families": variables["ood_families"].charts,
        "correlations": variables["correlations"],
    }
    return {anchor: title for anchor, title in SECTIONS.items() if has_content.get(anchor, True)}


def _tables(results: AllResults) -> list[Listing]:
    """Tables of the methods on detectors of boxes, then on classifiers of whole images.

    Of each kind of run: methods that apply to every run by their means, the best AUROC first, then
    the others by their gains. The last table has methods that apply to no run.
    """
    detectors_of_boxes = [run for run in results.evaluated if not run.whole_images]
    classifiers = [run for run in results.evaluated if run.whole_images]
    listings = []
    for runs, kind in ((detectors_of_boxes, "detectors"), (classifiers, "classifiers")):
        if runs:
            noun = f"runs of {kind}" if detectors_of_boxes and classifiers else "runs"
            listings += _tables_of_runs(runs, noun, results)

    measured = set(results.values["method"])
    rows = [_summary_row(name, (), results) for name in results.texts if name not in measured]
    listings.append(Listing.from_rows("Methods that apply to no run.", rows))
    return [listing for listing in listings if len(listing)]


def _tables_of_runs(runs: Sequence[Run], noun: str, results: AllResults) -> list[Listing]:
    """The tables of means and of gains over some runs.

    Args:
        runs: The runs.
        noun: What they are, such as "runs of detectors".
        results: All results.
    """
    methods = MethodsByRuns.of(runs, results.texts)
    compared = {}
    for metric in SHOWN:
        compared[METRICS[metric].title] = methods.compare(METRICS[metric], _values(metric, runs))
    first, *_ = compared.values()
    rows = []
    for name in first.ranked:
        row = _summary_row(name, runs, results)
        for title, means in compared.items():
            row[f"Mean {title} (%)"] = means.means.get(name)
        rows.append(row)

    partial_rows = []
    for name, runs_of_method in methods.runs_by_partial_method.items():
        row = _summary_row(name, runs_of_method, results)
        for title, means in compared.items():
            row[f"{title} gained (points)"] = _gain(name, methods, means)
        partial_rows.append(row)

    if len(runs) == 1:
        caption = f"Means over all splits of {runs[0].full_title}, the best AUROC first."
    else:
        caption = (
            f"Methods that apply to all {len(runs)} {noun}: means over all splits, "
            "the best AUROC first."
        )
    partial_caption = (
        f"Methods that apply to fewer {noun}: gain over {methods.baseline_title} on the same runs, "
        "mean over all splits. Means over other runs would not be comparable."
    )
    gained = [f"{title} gained (points)" for title in compared]
    return [
        Listing.from_rows(caption, rows),
        Listing.from_rows(partial_caption, partial_rows, gained),
    ]


def _values(metric: str, runs: Sequence[Run]) -> dict[tuple[str, str], dict[str, float]]:
    """(run, split) → method → value of a metric, where it is defined."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    for run in runs:
        rows = run.values.filter(metric=metric).drop_nulls("value")
        for split, method, value in rows.select("split", "method", "value").iter_rows():
            values.setdefault((run.name, split), {})[method] = value
    return values


def _gain(name: str, methods: MethodsByRuns, means: PairedMeans) -> str:
    """The gain of a method of fewer runs over the baseline."""
    if name == methods.baseline:
        return "baseline"
    if name not in means.gains:
        return ABSENT
    return points(means.gains[name].gain)


def _summary_row(name: str, runs: Sequence[Run], results: AllResults) -> dict[str, Any]:
    """What a method is, and the numbers of runs and images that it is measured on.

    Args:
        name: The method.
        runs: The runs that the row is about.
        results: All results.
    """
    texts = results.texts[name]
    if len(texts) == 1:
        summary = texts[0].summary.replace("`", "")
    else:
        summary = f"The best of {', '.join(text.name for text in texts)}."

    values = pl.concat([pl.DataFrame(schema=VALUES), *(run.values for run in runs)])
    values = values.filter(method=name)
    title = title_of(name)
    if not values.is_empty():
        title = values["label"][0]
    families = values["family"].unique(maintain_order=True)
    tested = values.select("benchmark", "split", "images").unique()
    return {
        "Method": title,
        "Family": ", ".join(families) or None,
        "Summary": summary,
        "Runs": sum(name in run.methods for run in runs),
        "Images": tested["images"].sum() or None,
    }


def _method(name: str, results: AllResults) -> dict[str, Any]:
    """What the page says of a line of section `methods`."""
    runs = [run for run in results.evaluated if name in run.methods]
    reasons = {}
    for run in results.measured:
        if name in run.not_applicable:
            reasons[run.full_title] = run.not_applicable[name]
    return {
        "title": runs[0].label(name) if runs else title_of(name),
        "texts": results.texts[name],
        "remarks": _remarks(name, runs),
        "parameters": _parameters(name, runs),
        "not_applicable": reasons,
    }


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
