"""Builds the report: a site that can be opened from disk, sent and printed; nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from farther.datasets import image_roots
from farther.errors import ParameterError
from farther.keyed import Keyed
from farther.registry import build as checked
from farther.report import across, classes, cost, deploy, seeds, self_awareness, tables
from farther.report.charts import distances
from farther.report.contents import FIGURES, Contents
from farther.report.documented import texts_of
from farther.report.gallery.page import PAGE as GALLERY
from farther.report.gallery.page import Gallery
from farther.report.outcomes import read_run_outcomes
from farther.report.papers import pages as papers
from farther.report.results import Run, read_runs
from farther.report.settings import ReportSettings
from farther.report.site import Site
from farther.tables.documents import write_json
from farther.tables.writing import write_aside

#: Files of the report's folder.
PAGE = "index.html"
TABLES = "tables"

NAVIGATION = {
    PAGE: "Overview",
    "detectors.html": "Detectors",
    "methods.html": "Methods",
    "splits.html": "Splits",
    "across.html": "Comparisons",
    "wilderness.html": "Wilderness",
    "self_awareness.html": "Self-awareness",
    "classes.html": "Classes",
    cost.PAGE: "Cost",
    "deploy.html": "Deploy",
    "charts.html": "Charts",
    "papers.html": "Papers",
    "published.html": "Published",
    GALLERY: "Gallery",
    "provenance.html": "Provenance",
}


def build(params: Mapping[str, Any], root: str | Path = ".", code: str | None = None) -> Path:
    """Writes the report: its pages, and its tables as Markdown, LaTeX and CSV beside them.

    Args:
        params: All of params.yaml.
        root: The project's folder: holds `artifacts`, and what the datasets' roots are relative to.
        code: Digest of the code of reports. With it, files of an earlier report stay where nothing that they are made
            from has changed; None writes all files.

    Returns:
        The first page, `artifacts/report/index.html`. `artifacts/seeds.json` has means over seeds.

    Raises:
        ParameterError: a parameter is unknown or wrong.
        DataError: a file that the report reads is damaged.
    """
    root = Path(root)
    artifacts = root / "artifacts"
    settings = checked(ReportSettings, "section 'report'", dict(params.get("report") or {}))
    earlier = None if code is None else Keyed(artifacts / "report")
    with write_aside(artifacts / "report") as aside, Site(aside, NAVIGATION, earlier) as site:
        # This also loads user-defined methods, whose titles the runs need.
        texts = {name: texts_of(name, values or {}) for name, values in (params.get("methods") or {}).items()}
        runs = read_runs(params, artifacts)
        _refuse_unknown_runs(settings, runs)
        roots = image_roots(params.get("datasets") or {}, artifacts / "tables", root)
        contents = Contents(params, settings, runs, root, roots, texts)
        gallery = Gallery(site, roots, artifacts / "report", settings.gallery, code or "")
        site.runs = {run.full_title: run.name for run in contents.measured}
        for name, template, content in _pages(contents):
            site.write(name, template, **content)
        cost.write(site, contents.evaluated, artifacts)
        for run in contents.measured:
            found = read_run_outcomes(run, artifacts)
            site.write(f"detectors/{run.name}.html", "detector.html", **contents.detector(run, found))
            if run.is_evaluated:
                gallery.add(run, found, contents.shown_method(run))
        gallery.write()
        for name, text in _tables(contents.evaluated):
            site.write_text(f"{TABLES}/{name}", text)
        if contents.evaluated:
            for kind, data in distances.drawn(contents.distances.rows, FIGURES).items():
                site.write_bytes(f"figures/outcomes.{kind}", data)
        write_json(artifacts / "seeds.json", seeds.statistics(runs, settings.seeds))
    return artifacts / "report" / PAGE


def _pages(contents: Contents) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, template and content of each page but those of costs, detectors and the gallery."""
    yield PAGE, "index.html", contents.index()
    yield "detectors.html", "detectors.html", contents.detectors()
    yield "methods.html", "methods.html", contents.methods()
    yield "splits.html", "splits.html", contents.splits()
    yield "across.html", "across.html", across.content(contents.evaluated)
    yield "wilderness.html", "wilderness.html", contents.wilderness()
    yield "self_awareness.html", "self_awareness.html", self_awareness.content(contents.evaluated)
    yield "classes.html", "classes.html", classes.content(contents.evaluated)
    yield "deploy.html", "deploy.html", deploy.content(contents.evaluated, contents.artifacts)
    yield "charts.html", "charts.html", contents.charts()
    yield "papers.html", "papers.html", papers.contents_of_list(contents.papers)
    for paper in papers.PAPERS:
        yield f"papers/{paper.name}.html", "paper.html", papers.contents_of(paper, contents.papers[paper.name])
    yield "published.html", "published.html", contents.published()
    yield "provenance.html", "provenance.html", contents.provenance()
    for method in contents.params["methods"]:
        yield f"methods/{method}.html", "method.html", contents.method(method)
    for benchmark in contents.params["benchmarks"]:
        yield f"splits/{benchmark}.html", "benchmark.html", contents.benchmark(benchmark)


def _tables(runs: list[Run]) -> Iterator[tuple[str, str]]:
    yield "results.csv", tables.to_csv(runs)
    for run in runs:
        for table in tables.run_tables(run):
            yield f"{table.name}.md", tables.to_markdown(table)
            yield f"{table.name}.tex", tables.to_latex(table)


def _refuse_unknown_runs(settings: ReportSettings, runs: list[Run]) -> None:
    names = [run.name for run in runs]
    asked = {
        "published": set(settings.published) - set(settings.seeds),
        **{f"seeds.{title}": of for title, of in settings.seeds.items()},
    }
    for place, wanted in asked.items():
        if unknown := sorted(set(wanted) - set(names)):
            raise ParameterError(f"report.{place}: there is no run {unknown[0]!r}. Known: {', '.join(names)}")
    if same := sorted(set(settings.seeds) & set(names)):
        raise ParameterError(f"report.seeds: {same[0]!r} is the name of a run; choose another one for its seeds")
