"""Writes the report: a site that can be opened from disk, sent and printed; nothing is loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import cache, partial
from importlib.metadata import version
from multiprocessing import get_context
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
from farther.report.charts.fonts import installed_fonts
from farther.report.documented import texts_of
from farther.report.pages import NAVIGATION, PAGES
from farther.report.results import Run, read_runs
from farther.report.settings import ReportSettings
from farther.report.site import Site
from farther.tables.documents import write_json
from farther.tables.files import digest
from farther.tables.writing import write_aside

GALLERY = "gallery.html"
#: Runs from which on it pays to start another process, which reads all of them again.
MANY = 4


def build(
    params: Mapping[str, Any], root: str | Path = ".", code: str | None = None, processes: int = 1
) -> Path:
    """Writes the report: its pages, and its tables as Markdown, LaTeX and CSV beside them.

    Args:
        params: All of params.yaml.
        root: The project's folder: holds `artifacts`, and what the datasets' roots are relative to.
        code: Digest of the code of reports. With it, files of an earlier report stay where nothing
            that they are made from has changed; None writes all files.
        processes: With 2, another process writes the gallery of several runs, half of the work;
            then the program that calls this must be importable without effects.

    Returns:
        The first page, `artifacts/report/index.html`. `artifacts/seeds.json` has means over seeds.

    Raises:
        ParameterError: a parameter is unknown or wrong.
        DataError: a file that the report reads is damaged.
    """
    root = Path(root)
    artifacts = root / "artifacts"
    earlier = None if code is None else Keyed(artifacts / "report")
    is_split = processes > 1 and len(params.get("detectors") or ()) >= MANY
    beside = ProcessPoolExecutor(1, get_context("spawn")) if is_split else None
    with (
        write_aside(artifacts / "report") as aside,
        Site(aside, NAVIGATION, earlier) as site,
        beside or nullcontext(),
    ):
        gallery = (
            None if beside is None else beside.submit(_write_gallery, params, root, code, aside)
        )
        results = _read(params, root, code)
        site.runs = {run.full_title: run.name for run in results.measured}
        for page in PAGES:
            if gallery is None or page.file != GALLERY:
                page.write(site, results)
        _write_tables(site, results.evaluated)
        if results.evaluated:
            _write_figure(site, distances.figure(results.distances.rows), results.code)
        write_json(artifacts / "seeds.json", seeds.statistics(results.runs, results.settings.seeds))
        if gallery is not None:
            site.keys |= gallery.result()
    Keyed(artifacts / "report").record_all(site.keys)
    return artifacts / "report" / "index.html"


def _read(params: Mapping[str, Any], root: Path, code: str | None) -> AllResults:
    settings = checked(ReportSettings, "section 'report'", dict(params.get("report") or {}))
    # This also loads user-defined methods, whose titles the runs need.
    texts = {
        name: texts_of(name, values or {}) for name, values in (params.get("methods") or {}).items()
    }
    runs = read_runs(params, root / "artifacts")
    _refuse_unknown_runs(settings, [run.name for run in runs])
    roots = image_roots(params.get("datasets") or {}, root / "artifacts/tables", root)
    return AllResults(params, settings, runs, root, roots, texts, code or "")


def _write_gallery(
    params: Mapping[str, Any], root: Path, code: str | None, aside: Path
) -> dict[str, str]:
    """Writes the pages of `GALLERY` in a process of its own; returns the keys of its files."""
    results = _read(params, root, code)
    site = Site(aside, NAVIGATION, None if code is None else Keyed(root / "artifacts/report"))
    site.runs = {run.full_title: run.name for run in results.measured}
    next(page for page in PAGES if page.file == GALLERY).write(site, results)
    return site.keys


def _write_figure(site: Site, spec: Mapping[str, Any], code: str) -> None:
    """The first figure as files."""
    drawing = json.dumps(spec, sort_keys=True)
    key = digest(drawing, version("vl-convert-python"), *installed_fonts(), code)
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
            raise ParameterError(
                f"report.{place}: there is no run {unknown[0]!r}. Known: {', '.join(names)}"
            )
    if same := sorted(set(settings.seeds) & set(names)):
        raise ParameterError(
            f"report.seeds: {same[0]!r} is the name of a run; choose another one for its seeds"
        )
