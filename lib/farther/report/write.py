"""Writes the report: a site that can be opened from disk, sent and printed; nothing is loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from farther.datasets import image_roots
from farther.errors import ParameterError
from farther.keyed import Keyed
from farther.registry import build as checked
from farther.report import seeds, tables
from farther.report.all_results import AllResults
from farther.report.charts import distances
from farther.report.charts.figures import FORMATS, as_files
from farther.report.documented import texts_of
from farther.report.pages import NAVIGATION, PAGES
from farther.report.results import Run, read_runs
from farther.report.settings import ReportSettings
from farther.report.site import Site
from farther.tables.documents import write_json
from farther.tables.files import digest
from farther.tables.writing import write_aside


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
        _refuse_unknown_runs(settings, [run.name for run in runs])
        roots = image_roots(params.get("datasets") or {}, artifacts / "tables", root)
        results = AllResults(params, settings, runs, root, roots, texts, code or "")
        site.runs = {run.full_title: run.name for run in results.measured}
        for page in PAGES:
            page.write(site, results)
        _write_tables(site, results.evaluated)
        if results.evaluated:
            _write_figure(site, distances.figure(results.distances.rows), results.code)
        write_json(artifacts / "seeds.json", seeds.statistics(runs, settings.seeds))
    return artifacts / "report" / "index.html"


def _write_figure(site: Site, spec: Mapping[str, Any], code: str) -> None:
    """The first figure as files."""
    key = digest(json.dumps(spec, sort_keys=True), version("vl-convert-python"), code)
    drawn = cache(lambda: as_files(spec))
    for kind in FORMATS:
        site.keep(f"figures/outcomes.{kind}", key, partial(lambda kind: drawn()[kind], kind))


def _write_tables(site: Site, runs: list[Run]) -> None:
    site.write_text("tables/results.csv", tables.to_csv(runs))
    for run in runs:
        for table in tables.run_tables(run):
            site.write_text(f"tables/{table.name}.md", tables.to_markdown(table))
            site.write_text(f"tables/{table.name}.tex", tables.to_latex(table))


def _refuse_unknown_runs(settings: ReportSettings, names: list[str]) -> None:
    asked = {
        "published": set(settings.published) - set(settings.seeds),
        **{f"seeds.{title}": of for title, of in settings.seeds.items()},
    }
    for place, wanted in asked.items():
        if unknown := sorted(set(wanted) - set(names)):
            raise ParameterError(f"report.{place}: there is no run {unknown[0]!r}. Known: {', '.join(names)}")
    if same := sorted(set(settings.seeds) & set(names)):
        raise ParameterError(f"report.seeds: {same[0]!r} is the name of a run; choose another one for its seeds")
