"""Writes the report: a site that can be opened from disk, sent and printed.

Nothing is loaded from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from farther.datasets import image_roots
from farther.errors import ParameterError, known_names
from farther.incremental.keyed import Keyed
from farther.naming.registry import build as build_settings
from farther.report import seeds, tables
from farther.report.all_results import AllResults
from farther.report.charts import distances
from farther.report.charts.figures import FORMATS, draw
from farther.report.charts.fonts import installed_fonts
from farther.report.documented import texts_of
from farther.report.links import linked_site
from farther.report.pages import navigation, pages_of
from farther.report.pages.runs import runs_written
from farther.report.results import Run, read_runs
from farther.report.settings import ReportSettings
from farther.report.site import Site
from farther.tables.documents import write_json
from farther.tables.files import digest
from farther.tables.writing import write_aside


def build(
    params: Mapping[str, Any],
    root: str | Path = ".",
    code: str | None = None,
    jobs: int = 1,
) -> Path:
    """Writes the report: its pages, and its tables as Markdown, LaTeX and CSV beside them.

    Args:
        params: All of params.yaml.
        root: The project's folder: holds `artifacts`, and what the datasets' roots are relative to.
        code: Hash of the code of reports. With it, files of an earlier report are reused where
            nothing that they depend on has changed; None writes all files.
        jobs: Detectors whose pages are written at the same time.

    Returns:
        The first page, `artifacts/report/index.html`. `artifacts/seeds.json` has means over seeds.

    Raises:
        ParameterError: a parameter is unknown or wrong.
        DataError: a file that the report reads is damaged.
    """
    root = Path(root)
    report = root / "artifacts" / "report"
    with write_aside(report) as folder:
        site, results = _read(params, root, code, folder, jobs)
        with site, runs_written(site, results):
            for page in pages_of(results):
                page.write(site, results)
            _write_tables(site, results.evaluated)
            if results.evaluated:
                _write_figure(site, distances.figure(results.drawn_distances.rows), results.code)
            statistics = seeds.statistics(results.runs, results.settings.seeds)
            write_json(root / "artifacts" / "seeds.json", statistics)
    Keyed(report).record_all(site.keys, site.read)
    return report / "index.html"


def _read(
    params: Mapping[str, Any], root: Path, code: str | None, folder: Path, jobs: int
) -> tuple[Site, AllResults]:
    """The site that is written into a folder, and all results, with the report's parameters."""
    settings = build_settings(ReportSettings, "section 'report'", dict(params.get("report") or {}))
    # This also loads user-defined methods, whose titles the runs need.
    texts = {}
    for name, values in (params.get("methods") or {}).items():
        texts[name] = texts_of(name, values or {})
    runs = read_runs(params, root / "artifacts")
    _check_names(settings, [run.name for run in runs])
    roots = image_roots(params.get("datasets") or {}, root / "artifacts/tables", root)
    results = AllResults(params, settings, runs, root, roots, texts, code or "", jobs)
    return linked_site(folder, navigation(results), results), results


def _write_figure(site: Site, spec: Mapping[str, Any], code: str) -> None:
    """Writes the first figure in each format, where its file is outdated."""

    spec_text = json.dumps(spec, sort_keys=True)
    key = digest(spec_text, version("vl-convert-python"), *installed_fonts(), code)
    for kind in FORMATS:

        def content(kind: str = kind) -> bytes:
            return draw(spec, kind)

        site.keep(f"figures/outcomes.{kind}", key, content)


def _write_tables(site: Site, runs: list[Run]) -> None:
    """Writes the values of all runs as CSV, and the tables of each run as Markdown and LaTeX."""
    site.write_text("tables/results.csv", tables.to_csv(runs))
    for run in runs:
        for table in tables.run_tables(run):
            site.write_text(f"tables/{table.name}.md", tables.to_markdown(table))
            site.write_text(f"tables/{table.name}.tex", tables.to_latex(table))


def _check_names(settings: ReportSettings, runs: list[str]) -> None:
    """Checks the names of runs in the report's parameters.

    Raises:
        ParameterError: a run does not exist, or a run has the name of several seeds.
    """
    names_by_parameter = {
        "published": set(settings.published) - set(settings.seeds),
        "drawn": set(settings.drawn),
    }
    for title, names in settings.seeds.items():
        names_by_parameter[f"seeds.{title}"] = set(names)
    for parameter, parameter_names in names_by_parameter.items():
        unknown = sorted(parameter_names - set(runs))
        if unknown:
            raise ParameterError(
                f"report.{parameter}: there is no run {unknown[0]!r}. {known_names(runs)}"
            )
    ambiguous = sorted(set(settings.seeds) & set(runs))
    if ambiguous:
        raise ParameterError(
            f"report.seeds: {ambiguous[0]!r} is the name of a run; choose another one for its seeds"
        )
