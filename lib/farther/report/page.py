"""One page that can be opened, sent and printed as it is: nothing is loaded from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import farther
from farther.datasets import image_roots
from farther.errors import ParameterError
from farther.metrics.run import RunFiles
from farther.registry import build as checked
from farther.report import charts, overview, published, tables
from farther.report.examples import Example, examples
from farther.report.parameters import ReportSettings
from farther.report.results import METRICS, Run, Split, read_runs, title_of
from farther.report.splits import splits_of
from farther.tables.files import write_aside

#: Files of the report's folder.
PAGE = "index.html"
TABLES = "tables"


@dataclass(frozen=True)
class RunView:
    """All that the page shows of a run."""

    run: Run
    shown_method: str
    tables: list[tables.Table]
    not_applicable: list[tuple[str, str]]
    fates: charts.Chart
    methods: charts.Figures
    curves: charts.Figures
    examples: list[tuple[Split, list[Example]]]
    thresholds: overview.Listing
    inputs: overview.Listing
    published: overview.Listing | None


def build(params: Mapping[str, Any], root: str | Path = ".") -> Path:
    """Writes the report: a page, and its tables as Markdown, LaTeX and CSV beside it.

    Args:
        params: All of params.yaml.
        root: The project's folder: holds `artifacts`, and what the datasets' roots are relative to.

    Returns:
        The page, `artifacts/report/index.html`.

    Raises:
        ParameterError: a parameter is unknown or wrong.
        DataError: a file that the report reads is damaged.
    """
    root = Path(root)
    artifacts = root / "artifacts"
    settings = checked(ReportSettings, "section 'report'", dict(params.get("report") or {}))
    runs = read_runs(params, artifacts)
    roots = image_roots(params.get("datasets") or {}, artifacts / "tables", root)
    _refuse_unknown_runs(settings, runs)
    printed = published.read(root / published.FOLDER) if settings.published else {}
    views = [_view(run, settings, artifacts, roots, printed) for run in runs if run.is_evaluated]
    content = _content(settings, runs, views, params["benchmarks"], artifacts)
    page = _environment().get_template(PAGE).render(content)
    with write_aside(artifacts / "report") as aside:
        (aside / TABLES).mkdir(parents=True)
        (aside / PAGE).write_text(page, encoding="utf-8")
        (aside / TABLES / "results.csv").write_text(tables.to_csv(runs), encoding="utf-8")
        for table in (table for view in views for table in view.tables):
            (aside / TABLES / f"{table.name}.md").write_text(tables.to_markdown(table), encoding="utf-8")
            (aside / TABLES / f"{table.name}.tex").write_text(tables.to_latex(table), encoding="utf-8")
    return artifacts / "report" / PAGE


def _refuse_unknown_runs(settings: ReportSettings, runs: Sequence[Run]) -> None:
    names = [run.name for run in runs]
    strangers = sorted(set(settings.published) - set(names))
    if strangers:
        raise ParameterError(f"report.published: there is no run {strangers[0]!r}. Known: {', '.join(names)}")


def _view(
    run: Run, settings: ReportSettings, artifacts: Path, roots: Mapping[str, Path], printed: published.Figures
) -> RunView:
    method = run.shown_method(settings.method)
    if method is None:
        raise ParameterError(f"report: run {run.name!r} has no method to show")
    shown = []
    if settings.examples and run.evaluation:
        for split in run.splits:
            pictures = examples(run, split.name, method, artifacts, roots, settings.examples, settings.image_side)
            shown.append((split, pictures))
    plots = RunFiles(run.name, run.benchmark, artifacts).plots
    counterpart = settings.published.get(run.name)
    return RunView(
        run=run,
        shown_method=method,
        tables=tables.run_tables(run),
        not_applicable=[(title_of(name), reason) for name, reason in run.not_applicable.items()],
        fates=charts.fates(run, method),
        methods=charts.methods(run),
        curves=charts.curves(run, plots, settings.curves, settings.curve_points),
        examples=shown,
        thresholds=overview.thresholds(run),
        inputs=overview.inputs(run),
        published=None if counterpart is None else published.beside(run, counterpart, printed),
    )


def _content(
    settings: ReportSettings,
    runs: Sequence[Run],
    views: Sequence[RunView],
    benchmarks: Mapping[str, Mapping[str, Any]],
    artifacts: Path,
) -> dict[str, Any]:
    measured = [view.run for view in views]
    described = [run for run in runs if run.is_evaluated or run.has_no_method]
    methods = {method for run in measured for method in run.methods}
    images = {(run.benchmark, s.name): _images(run, s) for run in measured for s in run.splits}
    splits = [splits_of(name, one, artifacts, settings.categories) for name, one in benchmarks.items()]
    return {
        "title": settings.title,
        "version": farther.__version__,
        "tiles": [
            ("detectors evaluated", len(measured)),
            ("methods compared", len(methods)),
            ("OOD splits", len(images)),
            ("images in them", sum(images.values())),
        ],
        "views": views,
        "unmeasured": [run.name for run in runs if not run.is_evaluated and not run.has_no_method],
        "without_method": [(run.name, run.left_out) for run in runs if run.has_no_method],
        "metrics": METRICS,
        "fate_keys": charts.FATE_KEYS,
        "families": charts.families(measured),
        "detectors": [*overview.detectors(described), *overview.open_world(described)],
        "datasets": overview.datasets(artifacts),
        "benchmarks": [
            (name, overview.splits(name, artifacts), overview.reasons(name, artifacts), overview.rules(name, artifacts))
            for name in benchmarks
        ],
        "splits": splits,
        "library": _library() if views or any(view.fates or view.categories for view in splits) else "",
    }


def _images(run: Run, split: Split) -> int:
    return int(run.evaluation.get("splits", {}).get(split.name, {}).get("images", 0))


@cache
def _library() -> Markup:
    """Vega, Vega-Lite and Vega-Embed in one script, so that the page needs no network."""
    import vl_convert

    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script"))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("farther.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["script"] = _script
    environment.filters["subscript"] = _subscript
    environment.filters["title_of"] = title_of
    return environment


def _subscript(text: str) -> Markup:
    """`AP_U` as the papers print it."""
    return Markup(re.sub(r"\b(AP|P|R)_U\b", r"\1<sub>U</sub>", str(escape(text))))


def _script(value: Any) -> Markup:
    """JSON that can stand in a script element: no `<` in it can end the element or start a comment."""
    return Markup(json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))
