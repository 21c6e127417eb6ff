"""The page of methods, and a page of each line of section `methods`."""

from __future__ import annotations

from typing import Any

from farther.metrics.catalogue import METRICS
from farther.report import documented, tables
from farther.report.all_results import AllResults, not_applicable
from farther.report.charts.results import detectors
from farther.report.common_runs import MethodsByRuns, PairedMeans, points
from farther.report.listing import ABSENT, Listing
from farther.report.results import Run, title_of
from farther.report.site import Site

#: Metrics of the tables of methods; the first one orders them.
SHOWN = ("auroc", "ap_u")


def write(site: Site, results: AllResults) -> None:
    """Writes the pages."""
    site.write(
        "methods.html",
        message=results.distances.best_method(),
        tables=_tables(results),
        method_pages=results.method_pages("", results.evaluated),
        not_applicable=not_applicable(results.measured),
    )
    siblings = {f"methods/{name}.html": title_of(name) for name in results.params["methods"]}
    for name in results.params["methods"]:
        site.write(f"methods/{name}.html", "method.html", siblings, **_method(name, results))


def _tables(results: AllResults) -> list[Listing]:
    """Methods that apply to every run by their means, the best AUROC first; then the others."""
    methods = MethodsByRuns.of(results.evaluated, results.texts)
    compared = {
        metric: methods.compare(METRICS[metric], _values(metric, results)) for metric in SHOWN
    }
    first, *_ = compared.values()
    rows = []
    for name in first.ranked:
        row = _summary_row(name, results)
        for metric, means in compared.items():
            row[f"Mean {METRICS[metric].title} (%)"] = means.means.get(name)
        rows.append(row)

    partial_rows = []
    for name in results.texts:
        if name in methods.common:
            continue
        row = _summary_row(name, results)
        for metric, means in compared.items():
            row[f"{METRICS[metric].title} gained (points)"] = _gain(name, methods, means)
        partial_rows.append(row)

    gained = [f"{METRICS[metric].title} gained (points)" for metric in SHOWN]
    listings = [
        Listing.from_rows(_common_caption(methods), rows),
        Listing.from_rows(_partial_caption(methods), partial_rows, gained),
    ]
    return [listing for listing in listings if len(listing)]


def _common_caption(methods: MethodsByRuns) -> str:
    """Caption of the table of means."""
    if len(methods.runs) == 1:
        return "Methods by their mean over all splits of the run, the best AUROC first."
    return (
        f"Methods that apply to every run: means over all splits of the {len(methods.runs)} runs, "
        "the best AUROC first."
    )


def _partial_caption(methods: MethodsByRuns) -> str:
    """Caption of the table of gains."""
    if not methods.runs:
        return "Methods."
    if len(methods.runs) == 1:
        return "Methods that do not apply to the run."
    return (
        f"Methods that apply to fewer runs: gain over {methods.baseline_title} on the same runs, "
        "mean over their splits. Their means are not comparable, as they are over other runs."
    )


def _values(metric: str, results: AllResults) -> dict[tuple[str, str], dict[str, float]]:
    """(run, split) → method → value of a metric, where it is defined."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    rows = results.values.filter(metric=metric).drop_nulls("value")
    for run, split, method, value in rows.select("run", "split", "method", "value").iter_rows():
        values.setdefault((run, split), {})[method] = value
    return values


def _gain(name: str, methods: MethodsByRuns, means: PairedMeans) -> str:
    """The gain of a method of fewer runs over the baseline."""
    if name == methods.baseline:
        return "baseline"
    if name not in means.gains:
        return ABSENT
    return points(means.gains[name].gain)


def _summary_row(name: str, results: AllResults) -> dict[str, Any]:
    """What a method is, and the numbers of runs and images that it is measured on."""
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
    return {
        "Method": title,
        "Family": ", ".join(families) or None,
        "Summary": summary,
        "Runs": values["run"].n_unique(),
        "Images": tested["images"].sum() or None,
    }


def _method(name: str, results: AllResults) -> dict[str, Any]:
    """Variables of the template `method.html`."""
    runs_by_benchmark = _runs_by_benchmark(name, results)
    runs = [run for run in results.evaluated if name in run.methods]
    result_tables = []
    charts = {}
    for benchmark, runs_on_it in runs_by_benchmark.items():
        result_tables += tables.method_tables(benchmark, runs_on_it, name)
        charts[runs_on_it[0].benchmark_title] = detectors(runs_on_it, name)

    reasons = {}
    for run in results.measured:
        if name in run.not_applicable:
            reasons[run.full_title] = run.not_applicable[name]
    return {
        "title": runs[0].label(name) if runs else title_of(name),
        "texts": results.texts[name],
        "remarks": _remarks(name, runs),
        "tables": result_tables,
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
