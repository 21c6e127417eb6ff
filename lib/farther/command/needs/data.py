"""Datasets: which files are not on disk, where they belong, where they come from, and about how large they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from farther.command.needs.finding import Finding
from farther.command.project import Project

if TYPE_CHECKING:
    from farther.datasets import Missing

#: Where stages of the pipeline put what they make, and among it the demo's datasets.
MADE = "artifacts"
DRAWN = f"{MADE}/demo"


def data(project: Project) -> list[Finding]:
    """One finding a file or folder that a dataset lacks, or one that says that it lacks nothing.

    Raises:
        ParameterError: a format or a parameter is unknown.
    """
    from farther import datasets
    from farther.curation import subsets_used

    needed = subsets_used(project.section("benchmarks"))
    findings = []
    for name, params in project.section("datasets").items():
        root = Path(str(params.get("root", "")))
        if not root.is_absolute():
            params = {**params, "root": str(project.folder / root)}
        lacking = datasets.missing({name: params}, {name: needed.get(name, set())})
        if root.is_relative_to(MADE):
            says = "a stage of the pipeline makes it" if lacking else f"at {root}, made by the pipeline"
            findings.append(Finding("datasets", name, "ok", says))
        elif not lacking:
            findings.append(Finding("datasets", name, "ok", f"at {root}"))
        else:
            findings += [_finding(one, str(params["format"]), Path(params["root"])) for one in lacking]
    return findings


def _finding(missing: Missing, format: str, root: Path) -> Finding:
    from farther.datasets.sizes import bytes_of

    inner = [Path(os.path.relpath(path, root)).as_posix() for path in missing.paths]
    subsets = f" ({', '.join(missing.subsets)})" if missing.subsets else ""
    more = {"belongs at": " or ".join(map(str, missing.paths)), "comes from": missing.source}
    return Finding(
        "datasets", missing.dataset, "missing", missing.what + subsets, more, bytes_of(format, inner, missing.subsets)
    )
