"""Pages that are kept from one report to the next while nothing that they show has changed.

A page is kept where its key is the same, and each image file that it has a picture of. The key is a
digest of all else: parameters, files of results, the code and templates of the report, versions of
packages, and the pages that it links to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

import farther
from farther.evaluation import plots
from farther.evaluation.files import RunFiles
from farther.incremental.keyed import key_of
from farther.report.all_results import AllResults
from farther.report.gallery.data import folder_url
from farther.report.navigation import Place
from farther.report.results import Run
from farther.tables.folders import listed

#: Distributions that make pages.
PACKAGES = (
    "jinja2",
    "markupsafe",
    "numpy",
    "pillow",
    "polars",
    "pyarrow",
    "pydantic",
    "scipy",
)


def key_of_run(run: Run, results: AllResults, place: Place) -> str:
    """Key of all files of a run: its page, and its scripts of the gallery.

    Args:
        run: The run, evaluated or not.
        results: All results. Of other runs, these files have only the titles.
        place: The place of its page, which has these titles.

    Raises:
        DataError: a file cannot be read.
    """
    params = {
        **shared_inputs(results),
        **_description(run),
        "place": asdict(place),
        "methods": list(results.params["methods"]),
    }
    return key_of(dict.fromkeys(_files_of_run(run, results.artifacts)), params)


def _files_of_run(run: Run, artifacts: Path) -> Iterator[Path]:
    """Files and folders that the page and the scripts of a run are made from, without images."""
    files = RunFiles(run.name, run.benchmark, artifacts)
    yield files.long_table
    yield files.description
    yield files.results
    yield files.metrics
    for kind in plots.SCHEMAS:
        yield files.plot(kind)
    yield files.outcomes
    yield files.all_called
    yield files.roles_file
    yield from listed(files.all_regions, "*/regions.json")
    splits = [split.name for split in run.splits]
    if run.id_split is not None:
        splits.append(run.id_split)
    for name in run.results.table.splits:
        if name not in splits:
            yield files.images(name).parent
            yield files.regions(name)
    for name in splits:
        yield files.images(name).parent
        yield files.regions(name)
        for method in run.methods:
            yield files.scores(method, name)


def _description(run: Run) -> dict[str, Any]:
    """What parameters say of a run, as JSON holds it."""
    return {
        "run": run.name,
        "benchmark": run.benchmark,
        "adapter": run.adapter,
        "weights": run.weights,
        "title": run.title,
        "known_title": run.known_title,
        "few": run.few,
        "kinds": dict(run.kinds),
        "splits": [asdict(split) for split in run.splits],
    }


def shared_inputs(results: AllResults) -> dict[str, Any]:
    """What all pages depend on, as JSON holds it."""
    links = {}
    for dataset, root in results.roots.items():
        links[dataset] = folder_url(root, results.root)
    return {
        "code": results.code,
        "farther": farther.__version__,
        "packages": {name: _version(name) for name in PACKAGES},
        "settings": to_jsonable_python(results.settings),
        "has proposals": any(run.sources for run in results.evaluated),
        "roots": links,
    }


@cache
def _version(distribution: str) -> str:
    """Version of an installed distribution."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"
