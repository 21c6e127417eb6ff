"""The gallery's page, and which data it may load."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from farther.report.gallery.data import split_data
from farther.report.gallery.parameters import GallerySettings
from farther.report.results import Run, title_of
from farther.report.site import Site

#: The page, and the template that makes it.
PAGE = "gallery.html"
#: The folder of its data.
FOLDER = "gallery"


def write(
    site: Site,
    runs: Sequence[Run],
    artifacts: Path,
    roots: Mapping[str, Path],
    settings: GallerySettings,
    method: str | None = None,
) -> None:
    """Writes the page and its data.

    Args:
        site: The report.
        runs: All runs. Of those whose evaluation, regions or scores are not on this machine, the page only says so.
        artifacts: The artifacts folder; the finished report lies in it, under `report`.
        roots: Dataset → folder of its image files.
        settings: What it shows.
        method: The method that is chosen when the page opens; each run's own best by AP_U when None.

    Raises:
        ParameterError: a run has no such method.
        DataError: see `farther.report.gallery.data.split_data`.
    """
    wanted = [run for run in runs if run.is_evaluated and settings.images]
    shown = [run for run in wanted if _is_here(run, artifacts)]
    index = [
        {
            "name": run.name,
            "splits": list(_splits(site, run, artifacts, roots, settings.images)),
            "methods": [{"name": name, "title": title_of(name)} for name in run.methods],
            "method": run.shown_method(method),
        }
        for run in shown
    ]
    absent = [run.name for run in wanted if run not in shown]
    site.write(PAGE, PAGE, index=index, absent=absent, is_wanted=bool(settings.images))


def _is_here(run: Run, artifacts: Path) -> bool:
    return bool(run.evaluation) and all((artifacts / part / run.name).is_dir() for part in ("regions", "scores"))


def _splits(site: Site, run: Run, artifacts: Path, roots: Mapping[str, Path], most: int) -> Iterator[dict[str, Any]]:
    for split in run.splits:
        shared, methods = split_data(run, split.name, artifacts, roots, artifacts / "report", most)
        folder = f"{FOLDER}/{run.name}/{split.name}"
        judged = {}
        for method, data in methods.items():
            judged[method] = _script(site, f"{folder}/{method}.js", "judge", run.name, split.name, method, data)
        yield {
            "name": split.name,
            "title": split.title,
            "images": len(shared["images"]["id"]),
            "of": shared["of"],
            "file": _script(site, f"{folder}.js", "add", run.name, split.name, shared),
            "methods": judged,
        }


def _script(site: Site, name: str, function: str, *arguments: Any) -> str:
    """Writes a script that calls a function of the page; returns its URL.

    Its JSON is ASCII, so that it is the same script in whichever encoding a browser reads it.
    """
    written = ",".join(json.dumps(one, separators=(",", ":"), allow_nan=False) for one in arguments)
    site.write_text(name, f"gallery.{function}({written});\n")
    return quote(name)
