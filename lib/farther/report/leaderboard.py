"""Metrics of runs of several projects on one page; only runs with the same inputs are ranked together.

All comes from files that git keeps: `artifacts/metrics` and `dvc.lock`, which has the digests of
what the metrics were computed from, and of the metrics themselves.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl
from pydantic import Field

from farther.errors import DataError, FartherError
from farther.metrics.catalogue import METRICS
from farther.report.listing import ABSENT, Listing
from farther.report.results import OOD, OPEN_SET, VALUES, cell, title_of, title_of_split, with_best
from farther.report.site import Site
from farther.report.tables import ResultTable
from farther.tables.documents import parse_json, parse_yaml, write_json
from farther.tables.files import digest
from farther.tables.schema import Schema, check
from farther.tables.writing import write_aside

#: All that the page shows, beside it.
DATA = "leaderboard.json"

KEPT = tuple(metric for metric in (*OOD, *OPEN_SET) if metric.name != "missed")

#: Parameters that metrics depend on, by section of params.yaml; None: all of the section.
PARAMETERS: dict[str, tuple[str, ...] | None] = {
    "evaluate": None,
    "threshold": None,
    "fit": ("calibration_split", "keep", "threshold_rule"),
}

#: The stages that metrics of a run are made by.
STAGES = ("infer", "fit", "score", "evaluate")


@dataclass(frozen=True)
class StoredRun:
    """A run of a project, as git keeps it.

    Args:
        project, commit, date, version: Where it is from; version of farther. "" where not known.
        run, title, benchmark: Names of the run, its detector and its benchmark.
        inputs: What must be the same for runs to be ranked together: {name: value}.
        checkpoint, code: Digests of the checkpoint and of the code of the evaluation.
        values: {(split, method): {metric: value}}.
    """

    project: str
    commit: str
    date: str
    version: str
    run: str
    title: str
    benchmark: str
    inputs: dict[str, str]
    checkpoint: str
    code: str
    values: dict[tuple[str, str], dict[str, float | None]]


class _File(Schema):
    """An input or output of a stage."""

    path: str
    md5: str = ""


class _LockedStage(Schema):
    """What dvc.lock says about a stage."""

    deps: list[_File] = Field(default_factory=list)
    outs: list[_File] = Field(default_factory=list)
    params: dict[str, dict[str, Any]] = Field(default_factory=dict)


class _Lock(Schema):
    """The content of dvc.lock."""

    stages: dict[str, _LockedStage]


class _Metrics(Schema):
    """The metrics of a method on a split, of which `KEPT` are numbers."""

    kept: dict[str, float | None]


def read_stored_runs(
    name: str, files: Mapping[str, bytes], commit: str = "", date: str = ""
) -> list[StoredRun]:
    """The runs of a project whose metrics are stored.

    Args:
        name: The project's name.
        files: Path → content, of dvc.lock and of all below `artifacts/metrics`.
        commit, date: Of the commit that they are from.

    Raises:
        DataError: there are no metrics, a file is damaged, or metrics are not those of dvc.lock;
            names file and field.
    """
    metrics: dict[str, dict[str, bytes]] = {}
    for path, content in files.items():
        parts = PurePosixPath(path).parts
        if parts[:2] == ("artifacts", "metrics") and len(parts) > 3:
            metrics.setdefault(parts[2], {})["/".join(parts[3:])] = content
    if not metrics:
        raise DataError(
            "no metrics of runs: expected RUN/SPLIT/METHOD.json", file=f"{name}: artifacts/metrics"
        )
    place = f"{name}: dvc.lock"
    if "dvc.lock" not in files:
        raise DataError("absent: it has the digests of what metrics were computed from", file=place)
    stages = check(
        _Lock, parse_yaml(files["dvc.lock"].decode(errors="replace"), place), place
    ).stages
    found = re.search(
        rb'^__version__ = "([\w.+-]{1,40})"$',
        files.get("lib/farther/__init__.py", b""),
        re.MULTILINE,
    )
    version = found[1].decode() if found else ""
    return [
        StoredRun(
            name,
            commit,
            date,
            version,
            run,
            **_locked(name, run, stages, texts),
            values=_values(name, run, texts),
        )
        for run, texts in sorted(metrics.items())
    ]


def _locked(
    project: str, run: str, stages: Mapping[str, _LockedStage], texts: Mapping[str, bytes]
) -> dict[str, Any]:
    """What dvc.lock says about a run, whose metrics must be those that its stage wrote."""
    infer, fit, score, stage = (stages.get(f"{name}@{run}", _LockedStage()) for name in STAGES)
    params = {**fit.params.get("params.yaml", {}), **stage.params.get("params.yaml", {})}
    entry = params.get(f"detectors.{run}")
    entry = entry if isinstance(entry, dict) else {}
    deps, outs = (
        {file.path: file.md5.removesuffix(".dir") for file in kind}
        for kind in (stage.deps, stage.outs)
    )
    splits = deps.get(f"artifacts/splits/{entry.get('benchmark')}")
    if not splits:
        problem = "no detector with the digest of its benchmark's splits"
        raise DataError(problem, file=f"{project}: dvc.lock", field=f"stages.evaluate@{run}")
    listed = [
        {"md5": hashlib.md5(texts[path]).hexdigest(), "relpath": path} for path in sorted(texts)
    ]
    if (
        outs.get(f"artifacts/metrics/{run}")
        != hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest()
    ):
        problem = (
            "not the metrics that dvc.lock lists: run `dvc repro` in that project and commit both"
        )
        raise DataError(problem, file=f"{project}: artifacts/metrics/{run}")
    benchmark, weights = str(entry["benchmark"]), entry.get("weights")
    inputs = {"benchmark": benchmark, "splits": splits}
    for section, names in PARAMETERS.items():
        chosen = {
            key: value
            for key, value in sorted((params.get(section) or {}).items())
            if not names or key in names
        }
        inputs |= {
            f"{section}.{key}": json.dumps(value, default=str) for key, value in chosen.items()
        }
    return {
        "title": str(entry.get("title") or run),
        "benchmark": benchmark,
        "inputs": inputs,
        "checkpoint": next(
            (file.md5.removesuffix(".dir") for file in infer.deps if file.path == weights), ""
        ),
        "code": _code_digest(fit, score, stage),
    }


def _code_digest(fit: _LockedStage, score: _LockedStage, evaluate: _LockedStage) -> str:
    """Digest of the code of the three stages; "" where dvc.lock has none.

    Version 1.0 had the stage `evaluate` alone: then it is the digest of this stage.
    """
    digests = []
    for name, stage in (("fit", fit), ("score", score), ("evaluate", evaluate)):
        text = stage.params.get("artifacts/code.json", {}).get(name)
        if text:
            digests.append(str(text))
    if len(digests) > 1:
        return digest(*digests)[:16]
    return "".join(digests)[:16]


def _values(
    project: str, run: str, texts: Mapping[str, bytes]
) -> dict[tuple[str, str], dict[str, float | None]]:
    """(split, method) → metrics, from the files of methods on OOD splits."""
    found = {}
    for path, content in sorted(texts.items()):
        split, _, file = path.rpartition("/")
        if split and file != "detector.json":
            place = f"{project}: artifacts/metrics/{run}/{path}"
            metrics = parse_json(content, place)
            if not isinstance(metrics, dict):
                raise DataError("expected metrics by name", file=place)
            kept = {metric.name: metrics[metric.name] for metric in KEPT if metric.name in metrics}
            if kept:
                found[split, file.removesuffix(".json")] = check(
                    _Metrics, {"kept": kept}, place
                ).kept
    return found


@dataclass(frozen=True)
class RankedRuns:
    """Runs with the same inputs, which are ranked together.

    Args:
        name: Its number.
        runs: The runs.
        differences: What differs from the first group of the same benchmark, one sentence each.
    """

    name: str
    runs: list[StoredRun]
    differences: list[str]

    @property
    def title(self) -> str:
        """The benchmark, and the number of the group."""
        return f"{self.runs[0].benchmark}, group {self.name}"

    @property
    def tables(self) -> list[ResultTable]:
        """Methods of all runs as rows, the best mean rank first."""
        labels = {
            "Project": "project",
            "Detector": "detector",
            "Method": "label",
            "Mean rank": "rank",
        }
        found = []
        for kind, words in (("open_set", "unknown objects"), ("ood", "separation of OOD from ID")):
            metrics = tuple(metric for metric in KEPT if metric.group == kind)
            cells = _cells(self.runs, [metric.name for metric in metrics])
            if len(cells):
                caption = f"{self.title}: {words} (%)."
                found.append(
                    ResultTable(f"group-{self.name}-{kind}", caption, labels, metrics, cells)
                )
        return found


def ranked_together(runs: Sequence[StoredRun]) -> list[RankedRuns]:
    """The runs by their inputs, the groups of a benchmark after each other and the largest first."""
    by_inputs: dict[str, list[StoredRun]] = {}
    for run in runs:
        by_inputs.setdefault(json.dumps(run.inputs, sort_keys=True), []).append(run)
    ordered = sorted(by_inputs.values(), key=lambda group: (group[0].benchmark, -len(group)))
    first: dict[str, dict[str, str]] = {}
    groups = []
    for number, group in enumerate(ordered, start=1):
        here, there = group[0].inputs, first.setdefault(group[0].benchmark, group[0].inputs)
        pairs = {
            name: (here.get(name, "not set"), there.get(name, "not set"))
            for name in sorted({*here, *there})
        }
        differences = [
            f"{name}: {a[:60]} instead of {b[:60]}" for name, (a, b) in pairs.items() if a != b
        ]
        groups.append(RankedRuns(str(number), group, differences))
    return groups


def _cells(runs: Sequence[StoredRun], metrics: Sequence[str]) -> pl.DataFrame:
    """One row per project, run, method, split and metric: those of `Run.values`, and the labels of the table."""
    splits = sorted({split for run in runs for split, _ in run.values})
    rows = []
    for number, run in enumerate(runs):
        for method in dict.fromkeys(method for _, method in run.values):
            about = {
                "run": str(number),
                "method": method,
                "label": title_of(method),
                "benchmark": run.benchmark,
            }
            about |= {"project": run.project, "detector": f"{run.title} ({run.run})"}
            for split in splits:
                values = run.values.get((split, method), {})
                place = {**about, "split": split, "split_title": title_of_split(split)}
                rows += [
                    {**place, **cell(METRICS[metric], values.get(metric))} for metric in metrics
                ]
    labels = dict.fromkeys(("project", "detector"), pl.String)
    cells = pl.DataFrame(rows, schema={**VALUES, **labels})
    column = ("split", "metric")
    measured = cells.filter(pl.col("value").is_not_null().any().over(column))
    rises = pl.col("metric").is_in(
        [metric for metric in metrics if METRICS[metric].higher_is_better]
    )
    # The better, the larger; a row without a value is last.
    quality = pl.when(rises).then(pl.col("value")).otherwise(-pl.col("value")).fill_null(-math.inf)
    ranked = (
        measured.with_columns(rank=quality.rank("min", descending=True).over(column))
        .with_columns(pl.col("rank").mean().over("run", "method"))
        .sort("rank", maintain_order=True)
    )
    return with_best(ranked.with_columns(pl.col("rank").round(1).cast(pl.String)), over=column)


def write_leaderboard(runs: Sequence[StoredRun], out: str | Path) -> int:
    """Writes the page `index.html` into a folder; returns the number of groups.

    Raises:
        FartherError: the folder contains something other than an earlier page.
    """
    out, groups = Path(out), ranked_together(runs)
    if out.exists() and not (out / DATA).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise FartherError(
            f"{out} contains something other than a leaderboard; choose another folder or empty it"
        )
    with write_aside(out) as aside, Site(aside) as site:
        site.write("index.html", "leaderboard.html", groups=groups, provenance=_provenance(groups))
        about = [
            vars(run) | {"values": {"/".join(key): of for key, of in run.values.items()}}
            for run in runs
        ]
        write_json(aside / DATA, about)
    return len(groups)


def _provenance(groups: Sequence[RankedRuns]) -> list[Listing]:
    runs = [(group, run) for group in groups for run in group.runs]
    projects = [
        {
            "Project": run.project,
            "Commit": run.commit or ABSENT,
            "Date": run.date or ABSENT,
            "farther": run.version or ABSENT,
        }
        for run in {run.project: run for _, run in runs}.values()
    ]
    inputs = [
        {
            "Group": group.name,
            "Project": run.project,
            "Run": run.run,
            "Checkpoint": run.checkpoint or ABSENT,
            "Splits": run.inputs["splits"],
            "Code": run.code or ABSENT,
            "Inputs": digest(json.dumps(run.inputs)),
        }
        for group, run in runs
    ]
    return [
        Listing.of("Projects.", projects),
        Listing.of(
            "Digests of inputs; runs with another digest of code were evaluated by other code.",
            inputs,
        ),
    ]
