"""Metrics of runs of several projects on one page; only runs with the same inputs are ranked together.

All comes from files that git keeps: `artifacts/metrics` and `dvc.lock`, which has the digests of what the metrics were
computed from, and of the metrics themselves.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from farther.errors import DataError, FartherError
from farther.metrics.catalogue import METRICS
from farther.report.listing import ABSENT, Listing, percent
from farther.report.results import OOD, OPEN_SET, VALUES, title_of
from farther.report.site import Site
from farther.report.tables import ResultTable
from farther.tables.documents import parse_json, parse_yaml, write_json
from farther.tables.files import digest
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


@dataclass(frozen=True)
class Entry:
    """A run of a project.

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


def read_entries(name: str, files: Mapping[str, bytes], commit: str = "", date: str = "") -> list[Entry]:
    """The runs of a project whose metrics are stored.

    Args:
        name: The project's name.
        files: Path → content, of dvc.lock and of all below `artifacts/metrics`.
        commit, date: Of the commit that they are from.

    Raises:
        DataError: there are no metrics, a file is damaged, or metrics are not those of dvc.lock; names file and field.
    """
    metrics: dict[str, dict[str, bytes]] = {}
    for path, content in files.items():
        parts = PurePosixPath(path).parts
        if parts[:2] == ("artifacts", "metrics") and len(parts) > 3:
            metrics.setdefault(parts[2], {})["/".join(parts[3:])] = content
    if not metrics:
        raise DataError("no metrics of runs: expected RUN/SPLIT/METHOD.json", file=f"{name}: artifacts/metrics")
    if "dvc.lock" not in files:
        raise DataError("absent: it has the digests of what metrics were computed from", file=f"{name}: dvc.lock")
    lock = _mapping(parse_yaml(files["dvc.lock"].decode(errors="replace"), f"{name}: dvc.lock"), name, "the file")
    stages = _mapping(lock.get("stages"), name, "stages")
    found = re.search(rb'^__version__ = "([\w.+-]{1,40})"$', files.get("lib/farther/__init__.py", b""), re.MULTILINE)
    version = found[1].decode() if found else ""
    entries = []
    for run, texts in sorted(metrics.items()):
        locked = _Locked(name, run, stages)
        locked.check(texts)
        title = str(locked.entry.get("title") or run)
        values = dict(_values(f"{name}: artifacts/metrics/{run}", texts))
        where = (name, commit, date, version, run, title, locked.benchmark)
        entries.append(Entry(*where, locked.inputs, locked.checkpoint, locked.code, values))
    return entries


def _mapping(value: Any, name: str, field: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise DataError("expected fields and values", file=f"{name}: dvc.lock", field=field)
    return value


class _Locked:
    """What dvc.lock says about a run."""

    def __init__(self, project: str, run: str, stages: Mapping[str, Any]):
        self._project, self._run = project, run
        self._field = f"stages.evaluate@{run}"
        self._stage = _mapping(stages.get(f"evaluate@{run}"), project, self._field)
        params = _mapping(self._stage.get("params"), project, f"{self._field}.params")
        self._params = _mapping(params.get("params.yaml"), project, f"{self._field}.params.params.yaml")
        self._infer = stages.get(f"infer@{run}")
        code = params.get("artifacts/code.json")
        self.code = str(code.get("evaluate", ""))[:16] if isinstance(code, dict) else ""
        self.entry = _mapping(self._params.get(f"detectors.{run}"), project, f"{self._field}.params.detectors.{run}")
        self.benchmark = str(self.entry.get("benchmark"))

    def _files(self, stage: Mapping[str, Any], kind: str) -> dict[str, str]:
        """Path → digest of the inputs ("deps") or outputs ("outs") of a stage."""
        rows = stage.get(kind)
        if not isinstance(rows, list) or not all(isinstance(row, dict) and "path" in row for row in rows):
            raise DataError("expected paths and digests", file=f"{self._project}: dvc.lock", field=self._field)
        return {str(row["path"]): str(row.get("md5", "")) for row in rows}

    @property
    def inputs(self) -> dict[str, str]:
        """Digest of the splits, and the parameters that metrics depend on."""
        path = f"artifacts/splits/{self.benchmark}"
        splits = self._files(self._stage, "deps").get(path)
        if not splits:
            raise DataError(f"no digest of {path}", file=f"{self._project}: dvc.lock", field=f"{self._field}.deps")
        found = {"benchmark": self.benchmark, "splits": splits.removesuffix(".dir")}
        for section, names in PARAMETERS.items():
            values = _mapping(self._params.get(section) or {}, self._project, f"{self._field}.params.{section}")
            chosen = {key: value for key, value in sorted(values.items()) if names is None or key in names}
            found |= {f"{section}.{key}": json.dumps(value, default=str) for key, value in chosen.items()}
        return found

    @property
    def checkpoint(self) -> str:
        """Digest of the checkpoint, "" where the run has none."""
        weights = self.entry.get("weights")
        if not isinstance(self._infer, dict) or not weights:
            return ""
        return self._files(self._infer, "deps").get(str(weights), "").removesuffix(".dir")

    def check(self, texts: Mapping[str, bytes]) -> None:
        """Refuses metrics that are not those that the stage wrote."""
        listed = [{"md5": hashlib.md5(texts[path]).hexdigest(), "relpath": path} for path in sorted(texts)]
        found = hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest()
        expected = self._files(self._stage, "outs").get(f"artifacts/metrics/{self._run}", "")
        if expected.removesuffix(".dir") != found:
            problem = "not the metrics that dvc.lock lists: run `dvc repro` in that project and commit both"
            raise DataError(problem, file=f"{self._project}: artifacts/metrics/{self._run}")


def _values(place: str, texts: Mapping[str, bytes]) -> Iterator[tuple[tuple[str, str], dict[str, float | None]]]:
    """(split, method) and metrics of each file of a method on an OOD split."""
    for path, content in sorted(texts.items()):
        split, _, file = path.rpartition("/")
        if not split or file == "detector.json":
            continue
        value = parse_json(content, f"{place}/{path}")
        if not isinstance(value, dict):
            raise DataError("expected metrics by name", file=f"{place}/{path}")
        kept = {metric.name: value[metric.name] for metric in KEPT if metric.name in value}
        for name, number in kept.items():
            is_number = isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number)
            if number is not None and not is_number:
                raise DataError(f"expected a number, found {number!r:.60}", file=f"{place}/{path}", field=name)
        if kept:
            yield (split, file.removesuffix(".json")), kept


@dataclass(frozen=True)
class Group:
    """Runs with the same inputs, which are ranked together.

    Args:
        name: Its number.
        entries: The runs.
        differences: What differs from the first group of the same benchmark, one sentence each.
    """

    name: str
    entries: list[Entry]
    differences: list[str]

    @property
    def title(self) -> str:
        """The benchmark, and the number of the group."""
        return f"{self.entries[0].benchmark}, group {self.name}"

    @property
    def tables(self) -> list[ResultTable]:
        """Methods of all runs as rows, the best mean rank first."""
        found = []
        for kind, metrics in (("open_set", OPEN_SET), ("ood", OOD)):
            shown = tuple(metric for metric in metrics if metric in KEPT)
            cells = _cells(self.entries, [metric.name for metric in shown])
            if not cells.is_empty():
                labels = {"Project": "project", "Detector": "detector", "Method": "label", "Mean rank": "rank"}
                caption = (
                    f"{self.title}: {'unknown objects' if kind == 'open_set' else 'separation of OOD from ID'} (%)."
                )
                found.append(ResultTable(f"group-{self.name}-{kind}", caption, labels, shown, cells))
        return found


def groups_of(entries: Sequence[Entry]) -> list[Group]:
    """The runs by their inputs, the groups of a benchmark after each other and the largest first."""
    by_inputs: dict[str, list[Entry]] = {}
    for entry in entries:
        by_inputs.setdefault(json.dumps(entry.inputs, sort_keys=True), []).append(entry)
    ordered = sorted(by_inputs.values(), key=lambda group: (group[0].benchmark, -len(group)))
    first: dict[str, Entry] = {}
    groups = []
    for number, group in enumerate(ordered, start=1):
        reference = first.setdefault(group[0].benchmark, group[0])
        groups.append(Group(str(number), group, _differences(group[0].inputs, reference.inputs)))
    return groups


def _differences(inputs: Mapping[str, str], reference: Mapping[str, str]) -> list[str]:
    found = []
    for name in sorted({*inputs, *reference}):
        here, there = inputs.get(name, "not set"), reference.get(name, "not set")
        if here != there:
            found.append(f"{name}: {here[:60]} instead of {there[:60]}")
    return found


def _cells(entries: Sequence[Entry], metrics: Sequence[str]) -> pl.DataFrame:
    """One row per project, run, method, split and metric: those of `Run.values`, and the labels of the table."""
    splits = sorted({split for entry in entries for split, _ in entry.values})
    rows = []
    for number, entry in enumerate(entries):
        for method in dict.fromkeys(method for _, method in entry.values):
            about = {"run": str(number), "method": method, "label": title_of(method), "benchmark": entry.benchmark}
            about |= {"project": entry.project, "detector": f"{entry.title} ({entry.run})"}
            rows += [
                {**about, "split": split, "split_title": split.replace("_", " "), "metric": metric}
                | {"value": entry.values.get((split, method), {}).get(metric)}
                for split in splits
                for metric in metrics
            ]
    labels = dict.fromkeys(("project", "detector"), pl.String)
    cells = pl.DataFrame(rows, schema={**VALUES, **labels})
    measured = cells.filter(pl.col("value").is_not_null().any().over("split", "metric"))
    if measured.is_empty():
        return measured
    rises = pl.col("metric").is_in([metric for metric in metrics if METRICS[metric].higher_is_better])
    # The better, the larger; a row without a value is last.
    quality = pl.when(rises).then(pl.col("value")).otherwise(-pl.col("value")).fill_null(-math.inf)
    ranked = measured.with_columns(place=quality.rank("min", descending=True).over("split", "metric"))
    shared = pl.col("value").is_not_null() & (pl.col("value").n_unique().over("split", "metric") > 1)
    return (
        ranked.with_columns(
            rank=pl.col("place").mean().over("run", "method").round(1).cast(pl.String),
            mean=pl.col("place").mean().over("run", "method"),
            text=pl.col("value").map_elements(percent, pl.String, skip_nulls=False).fill_null(ABSENT),
            is_best=(pl.col("place") == 1) & shared,
            is_second=(pl.col("place") == 2) & shared,
            is_tied=False,
            is_few=False,
        )
        .sort("mean", maintain_order=True)
        .drop("mean", "place")
    )


def write_leaderboard(entries: Sequence[Entry], out: str | Path) -> int:
    """Writes the page `index.html` into a folder; returns the number of groups.

    Raises:
        FartherError: the folder contains something other than an earlier page.
    """
    out, groups = Path(out), groups_of(entries)
    if out.exists() and not (out / DATA).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise FartherError(f"{out} contains something other than a leaderboard; choose another folder or empty it")
    with write_aside(out) as aside, Site(aside, {"index.html": "Leaderboard"}) as site:
        site.write("index.html", "leaderboard.html", groups=groups, provenance=_provenance(groups))
        results = [{"/".join(key): found for key, found in entry.values.items()} for entry in entries]
        about = [{key: value for key, value in vars(entry).items() if key != "values"} for entry in entries]
        write_json(aside / DATA, [one | {"values": found} for one, found in zip(about, results, strict=True)])
    return len(groups)


def _provenance(groups: Sequence[Group]) -> list[Listing]:
    runs = [(group, entry) for group in groups for entry in group.entries]
    projects = {entry.project: entry for _, entry in runs}
    known = [
        {"Project": e.project, "Commit": e.commit or ABSENT, "Date": e.date or ABSENT, "farther": e.version or ABSENT}
        for e in projects.values()
    ]
    inputs = [
        {"Group": group.name, "Project": entry.project, "Run": entry.run, "Checkpoint": entry.checkpoint or ABSENT}
        | {"Splits": entry.inputs["splits"], "Code": entry.code or ABSENT, "Inputs": digest(json.dumps(entry.inputs))}
        for group, entry in runs
    ]
    return [
        Listing.of("Projects.", known),
        Listing.of("Digests of inputs; runs with another digest of code were evaluated by other code.", inputs),
    ]
