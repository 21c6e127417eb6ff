"""A site that can be opened from disk, sent and printed: nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from farther.datasets import image_roots
from farther.errors import ParameterError
from farther.registry import build as checked
from farther.report import published, tables
from farther.report.contents import Findings
from farther.report.gallery import page as gallery
from farther.report.parameters import ReportSettings
from farther.report.results import Run, read_runs
from farther.report.site import Entry, Site
from farther.tables.files import write_aside

#: Files of the report's folder.
PAGE = "index.html"
TABLES = "tables"

NAVIGATION = (
    Entry(PAGE, "Overview"),
    Entry("detectors.html", "Detectors"),
    Entry("methods.html", "Methods"),
    Entry("splits.html", "Splits"),
    Entry("figures.html", "Figures"),
    Entry("published.html", "Published"),
    Entry(gallery.PAGE, "Gallery"),
)


def build(params: Mapping[str, Any], root: str | Path = ".") -> Path:
    """Writes the report: its pages, and its tables as Markdown, LaTeX and CSV beside them.

    Args:
        params: All of params.yaml.
        root: The project's folder: holds `artifacts`, and what the datasets' roots are relative to.

    Returns:
        The first page, `artifacts/report/index.html`.

    Raises:
        ParameterError: a parameter is unknown or wrong.
        DataError: a file that the report reads is damaged.
    """
    root = Path(root)
    artifacts = root / "artifacts"
    settings = checked(ReportSettings, "section 'report'", dict(params.get("report") or {}))
    runs = read_runs(params, artifacts)
    _refuse_unknown_runs(settings, runs)
    roots = image_roots(params.get("datasets") or {}, artifacts / "tables", root)
    printed = published.read(root / published.FOLDER) if settings.published else {}
    findings = Findings(params, settings, runs, artifacts, roots, root, printed)
    with write_aside(artifacts / "report") as aside:
        site = Site(aside, NAVIGATION)
        for name, template, content in _pages(findings):
            site.write(name, template, **content)
        gallery.write(site, runs, artifacts, roots, settings.gallery, settings.method)
        for name, text in _tables(runs):
            site.write_text(f"{TABLES}/{name}", text)
    return artifacts / "report" / PAGE


def _pages(findings: Findings) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, template and content of each page but the gallery."""
    yield PAGE, "index.html", findings.index()
    yield "detectors.html", "detectors.html", findings.detectors()
    yield "methods.html", "methods.html", findings.methods()
    yield "splits.html", "splits.html", findings.splits()
    yield "figures.html", "figures.html", findings.figures()
    yield "published.html", "published.html", findings.published()
    for run in findings.described:
        yield f"detectors/{run.name}.html", "detector.html", findings.detector(run)
    for method in findings.params["methods"]:
        yield f"methods/{method}.html", "method.html", findings.method(method)
    for benchmark in findings.params["benchmarks"]:
        yield f"splits/{benchmark}.html", "benchmark.html", findings.benchmark(benchmark)


def _tables(runs: list[Run]) -> Iterator[tuple[str, str]]:
    yield "results.csv", tables.to_csv(runs)
    for run in runs:
        for table in tables.run_tables(run) if run.is_evaluated else []:
            yield f"{table.name}.md", tables.to_markdown(table)
            yield f"{table.name}.tex", tables.to_latex(table)


def _refuse_unknown_runs(settings: ReportSettings, runs: list[Run]) -> None:
    names = [run.name for run in runs]
    strangers = sorted(set(settings.published) - set(names))
    if strangers:
        raise ParameterError(f"report.published: there is no run {strangers[0]!r}. Known: {', '.join(names)}")
