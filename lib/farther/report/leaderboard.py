"""Metrics of runs of several projects on one page.

Only runs with the same inputs are ranked together. All of it is read from files that git keeps:
`artifacts/metrics`, `params.yaml`, and `dvc.lock`, which has the hashes of what the metrics were
computed from, and of the metrics themselves.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl
from pydantic import ConfigDict, Field

from farther.errors import DataError
from farther.metrics.catalogue import Metric
from farther.report.common_runs import points
from farther.report.listing import ABSENT, Listing
from farther.report.results import OOD, OPEN_SET, VALUES, cell, title_of, title_of_split, with_best
from farther.report.site import Site
from farther.report.tables import ResultTable
from farther.tables.documents import parse_json, parse_yaml, write_json
from farther.tables.files import digest
from farther.tables.schema import Schema, check
from farther.tables.writing import refuse_other_files, write_aside

#: The method that gains are measured against, by its name in params.yaml.
BASELINE = "confidence"

#: File beside the page with all that it shows.
DATA = "leaderboard.json"

#: Metrics that are read.
RANKED = tuple(metric for metric in (*OOD, *OPEN_SET) if metric.name != "missed")

#: Parameters that metrics depend on, by section of params.yaml; None: all of the section.
PARAMETERS: dict[str, tuple[str, ...] | None] = {
    "evaluate": None,
    "threshold": None,
    "fit": ("calibration_split", "keep", "threshold_rule"),
}

#: Kinds of metrics with a table → what they show.
TABLES = {"open_set": "unknown objects", "ood": "separation of OOD from ID"}

#: Columns of a table's cells.
COLUMNS: dict[str, type[pl.DataType]] = {**VALUES, "project": pl.String, "detector": pl.String}

#: (split, method) → metric → value.
Values = dict[tuple[str, str], dict[str, float | None]]


@dataclass(frozen=True)
class StoredRun:
    """A run of a project, as git keeps it.

    Args:
        project, commit, date, version: Its origin; version of farther. "" where not known.
        run, title, benchmark: Names of the run, its detector and its benchmark.
        inputs: What must be the same for runs to be ranked together: {name: value}.
        checkpoint, code: Hashes of the checkpoint and of the code of the evaluation.
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
    values: Values


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


class _Params(Schema):
    """The part of params.yaml that is read."""

    model_config = ConfigDict(extra="ignore")

    detectors: dict[str, dict[str, Any]] = Field(default_factory=dict)


class _Metrics(Schema):
    """Metrics of `RANKED` of a method on a split."""

    kept: dict[str, float | None]


def read_stored_runs(
    name: str, files: Mapping[str, bytes], commit: str = "", date: str = ""
) -> list[StoredRun]:
    """The runs of a project whose metrics are stored.

    Args:
        name: The project's name.
        files: Path → content, of dvc.lock, params.yaml and of all below `artifacts/metrics`.
        commit, date: Of the commit that they are from.

    Raises:
        DataError: there are no metrics, a file is damaged, or metrics are not those of dvc.lock;
            names file and field.
    """
    texts_by_run = _texts_by_run(files)
    if not texts_by_run:
        raise DataError(
            "no metrics of runs: expected RUN/SPLIT/METHOD.json", file=f"{name}: artifacts/metrics"
        )
    lock_file = f"{name}: dvc.lock"
    if "dvc.lock" not in files:
        raise DataError(
            "absent: it has the digests of what metrics were computed from", file=lock_file
        )
    lock_text = files["dvc.lock"].decode(errors="replace")
    stages = check(_Lock, parse_yaml(lock_text, lock_file), lock_file).stages
    version = _version(files.get("lib/farther/__init__.py", b""))
    _check_metrics(name, stages, texts_by_run)
    entries = _entries(name, files)

    runs = []
    for run, texts in sorted(texts_by_run.items()):
        locked = _locked_run(name, run, stages, entries.get(run) or {})
        entry = locked.entry
        stored = StoredRun(
            project=name,
            commit=commit,
            date=date,
            version=version,
            run=run,
            title=str(entry.get("title") or run),
            benchmark=str(entry["benchmark"]),
            inputs=_inputs(locked),
            checkpoint=_checkpoint_digest(locked),
            code=_code_digest(locked.fit, locked.score, locked.evaluate),
            values=_values(name, run, texts),
        )
        runs.append(stored)
    return runs


def _texts_by_run(files: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Run → path below its folder of metrics → content."""
    texts: dict[str, dict[str, bytes]] = {}
    for path, content in files.items():
        parts = PurePosixPath(path).parts
        if parts[:2] == ("artifacts", "metrics") and len(parts) > 3:
            texts.setdefault(parts[2], {})["/".join(parts[3:])] = content
    return texts


def _version(source: bytes) -> str:
    """The version of farther in the source of its `__init__.py`; "" where it has none."""
    match = re.search(rb'^__version__ = "([\w.+-]{1,40})"$', source, re.MULTILINE)
    if match is None:
        return ""
    return match[1].decode()


@dataclass(frozen=True)
class _LockedRun:
    """The stages of a run in dvc.lock.

    Args:
        infer, fit, score, evaluate: The stages; without content where dvc.lock has none.
        params: Parameters of `fit` and `evaluate`, by section of params.yaml.
        entry: The run's entry of section `detectors`.
        splits: Hash of the splits of its benchmark.
    """

    infer: _LockedStage
    fit: _LockedStage
    score: _LockedStage
    evaluate: _LockedStage
    params: dict[str, Any]
    entry: Mapping[str, Any]
    splits: str


def _entries(project: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Section `detectors` of the project's params.yaml.

    Raises:
        DataError: it is absent, or damaged.
    """
    place = f"{project}: params.yaml"
    if "params.yaml" not in files:
        raise DataError("absent: it has the names of benchmarks and checkpoints", file=place)
    params = parse_yaml(files["params.yaml"].decode(errors="replace"), place)
    return check(_Params, params, place).detectors


def _locked_run(
    project: str, run: str, stages: Mapping[str, _LockedStage], entry: Mapping[str, Any]
) -> _LockedRun:
    """The stages of a run.

    Raises:
        DataError: dvc.lock has no hash of the splits that the run was evaluated on.
    """
    infer = stages.get(f"infer@{run}", _LockedStage())
    fit = stages.get("fit", _LockedStage())
    evaluate = stages.get("evaluate", _LockedStage())
    params = {**fit.params.get("params.yaml", {}), **evaluate.params.get("params.yaml", {})}
    splits = _digest_of(infer.deps, f"artifacts/splits/{entry.get('benchmark')}")
    if not splits:
        raise DataError(
            "no detector with the digest of its benchmark's splits",
            file=f"{project}: dvc.lock",
            field=f"stages.infer@{run}",
        )
    return _LockedRun(
        infer=infer,
        fit=fit,
        score=stages.get("score", _LockedStage()),
        evaluate=evaluate,
        params=params,
        entry=entry,
        splits=splits,
    )


def _digest_of(files: Iterable[_File], path: Any) -> str:
    """Hash of an input or output of a stage; "" where it is not one."""
    for file in files:
        if file.path == path:
            return file.md5.removesuffix(".dir")
    return ""


def _check_metrics(
    project: str,
    stages: Mapping[str, _LockedStage],
    texts_by_run: Mapping[str, Mapping[str, bytes]],
) -> None:
    """Compares the files of metrics with dvc.lock, by DVC's hash of a folder.

    Raises:
        DataError: they are not the metrics that the stage `evaluate` wrote.
    """
    content_by_path = {}
    for run, texts in texts_by_run.items():
        for path, content in texts.items():
            content_by_path[f"{run}/{path}"] = content
    entries = [
        {"md5": hashlib.md5(content).hexdigest(), "relpath": path}
        for path, content in sorted(content_by_path.items())
    ]
    folder_digest = hashlib.md5(json.dumps(entries, sort_keys=True).encode()).hexdigest()
    evaluate = stages.get("evaluate", _LockedStage())
    if _digest_of(evaluate.outs, "artifacts/metrics") != folder_digest:
        raise DataError(
            "not the metrics that dvc.lock lists: run `farther repro` in that project and commit "
            "both",
            file=f"{project}: artifacts/metrics",
        )


def _inputs(locked: _LockedRun) -> dict[str, str]:
    """What must be the same for runs to be ranked together: {name: value}."""
    inputs = {"benchmark": str(locked.entry["benchmark"]), "splits": locked.splits}
    for section, names in PARAMETERS.items():
        for key, value in sorted((locked.params.get(section) or {}).items()):
            if names is None or key in names:
                inputs[f"{section}.{key}"] = json.dumps(value, default=str)
    return inputs


def _checkpoint_digest(locked: _LockedRun) -> str:
    """Hash of the run's checkpoint; "" where dvc.lock has none."""
    return _digest_of(locked.infer.deps, locked.entry.get("weights"))


def _code_digest(fit: _LockedStage, score: _LockedStage, evaluate: _LockedStage) -> str:
    """Hash of the code of the three stages; "" where dvc.lock has none."""
    digests = []
    for name, stage in (("fit", fit), ("score", score), ("evaluate", evaluate)):
        text = stage.params.get("artifacts/code.json", {}).get(name)
        if text:
            digests.append(str(text))
    if len(digests) > 1:
        return digest(*digests)[:16]
    return "".join(digests)[:16]


def _values(project: str, run: str, texts: Mapping[str, bytes]) -> Values:
    """(split, method) → metrics, from the files of methods on OOD splits."""
    values = {}
    for path, content in sorted(texts.items()):
        split, _, file = path.rpartition("/")
        if not split or file == "detector.json":
            continue
        metrics = _read_ranked(content, f"{project}: artifacts/metrics/{run}/{path}")
        if metrics:
            values[split, file.removesuffix(".json")] = metrics
    return values


def _read_ranked(content: bytes, place: str) -> dict[str, float | None]:
    """Metrics of `RANKED` in a file of metrics.

    Raises:
        DataError: the file has no metrics by name, or a metric is not a number.
    """
    metrics = parse_json(content, place)
    if not isinstance(metrics, dict):
        raise DataError("expected metrics by name", file=place)
    ranked = {metric.name: metrics[metric.name] for metric in RANKED if metric.name in metrics}
    return check(_Metrics, {"kept": ranked}, place).kept


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
        """Methods of all runs as rows, the best mean rank first.

        Rows that lack a value in a column are not ranked: a second table has their gains.
        """
        labels = {"Project": "project", "Detector": "detector", "Method": "label"}
        tables = []
        for kind, description in TABLES.items():
            metrics = tuple(metric for metric in RANKED if metric.group == kind)
            cells = _cells(self.runs, metrics)
            complete = pl.col("value").is_not_null().all().over("run", "method")
            ranked = _ranked(cells.filter(complete), metrics)
            if not ranked.is_empty():
                table = ResultTable(
                    name=f"group-{self.name}-{kind}",
                    caption=f"{self.title}: {description} (%).",
                    labels={**labels, "Mean rank": "rank"},
                    metrics=metrics,
                    cells=ranked,
                )
                tables.append(table)
            gains = _gains(cells, cells.filter(~complete))
            if not gains.is_empty():
                table = ResultTable(
                    name=f"group-{self.name}-{kind}-partial",
                    caption=(
                        f"{self.title}: {description}; rows that lack a value, which are not "
                        f"ranked: gain over {title_of(BASELINE)} of the same run (points)."
                    ),
                    labels=labels,
                    metrics=metrics,
                    cells=gains,
                )
                tables.append(table)
        return tables


def ranked_together(runs: Sequence[StoredRun]) -> list[RankedRuns]:
    """The runs in groups of the same inputs.

    Groups of a benchmark follow each other, the largest first.
    """
    runs_by_inputs: dict[str, list[StoredRun]] = {}
    for run in runs:
        runs_by_inputs.setdefault(json.dumps(run.inputs, sort_keys=True), []).append(run)
    ordered = sorted(runs_by_inputs.values(), key=lambda group: (group[0].benchmark, -len(group)))

    first_inputs: dict[str, dict[str, str]] = {}
    groups = []
    for number, group in enumerate(ordered, start=1):
        inputs = group[0].inputs
        reference = first_inputs.setdefault(group[0].benchmark, inputs)
        groups.append(RankedRuns(str(number), group, _differences(inputs, reference)))
    return groups


def _differences(inputs: Mapping[str, str], reference: Mapping[str, str]) -> list[str]:
    """Sentences on the inputs that differ from reference inputs."""
    differences = []
    for name in sorted({*inputs, *reference}):
        value = inputs.get(name, "not set")
        reference_value = reference.get(name, "not set")
        if value != reference_value:
            differences.append(f"{name}: {value[:60]} instead of {reference_value[:60]}")
    return differences


def _cells(runs: Sequence[StoredRun], metrics: Sequence[Metric]) -> pl.DataFrame:
    """One row per project, run, method, split and metric.

    Splits and metrics without any value are left out.

    Returns:
        The columns of `Run.values`, and the labels of the table: project and detector.
    """
    splits: set[str] = set()
    for run in runs:
        splits.update(split for split, _ in run.values)
    rows: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        rows += _rows_of_run(str(number), run, sorted(splits), metrics)

    cells = pl.DataFrame(rows, schema=COLUMNS)
    return cells.filter(pl.col("value").is_not_null().any().over("split", "metric"))


def _ranked(cells: pl.DataFrame, metrics: Sequence[Metric]) -> pl.DataFrame:
    """Complete rows, the best mean rank first.

    Args:
        cells: From `_cells`: runs and methods that have a value in each column.
        metrics: The metrics.

    Returns:
        `cells` with a column `rank`: the mean over splits and metrics of the method's rank among
        all runs and methods.
    """
    columns = ("split", "metric")
    higher = [metric.name for metric in metrics if metric.higher_is_better]
    is_higher_better = pl.col("metric").is_in(higher)
    # The better, the larger.
    quality = pl.when(is_higher_better).then(pl.col("value")).otherwise(-pl.col("value"))
    rank = quality.rank("min", descending=True).over(columns)
    ranked = cells.with_columns(rank=rank)
    mean_rank = pl.col("rank").mean().over("run", "method")
    ordered = ranked.with_columns(mean_rank).sort("rank", "run", "method", maintain_order=True)
    printed = ordered.with_columns(pl.col("rank").round(1).cast(pl.String))
    return with_best(printed, over=columns)


def _gains(cells: pl.DataFrame, incomplete: pl.DataFrame) -> pl.DataFrame:
    """Gains of rows that lack a value over the baseline of the same run, in points.

    Args:
        cells: All rows.
        incomplete: Rows of `cells`; those of the baseline itself are left out.

    Returns:
        `incomplete` with gains as its values and texts; none is the best.
    """
    baseline = cells.filter(method=BASELINE).select("run", "split", "metric", baseline="value")
    rows = incomplete.filter(pl.col("method") != BASELINE)
    gain = pl.col("value") - pl.col("baseline")
    joined = rows.join(baseline, on=["run", "split", "metric"], how="left", maintain_order="left")
    gains = joined.with_columns(value=gain, printed=(100 * gain).round(1)).drop("baseline")
    text = pl.col("value").map_elements(points, return_dtype=pl.String).fill_null(ABSENT)
    return gains.with_columns(text=text, is_best=False, is_second=False)


def _rows_of_run(
    number: str, run: StoredRun, splits: Sequence[str], metrics: Sequence[Metric]
) -> Iterator[dict[str, Any]]:
    """One row per method, split and metric of a run.

    Args:
        number: Distinguishes the run from runs of the same name of other projects.
        run: The run.
        splits: Splits of any run.
        metrics: The metrics.
    """
    for method in dict.fromkeys(method for _, method in run.values):
        for split in splits:
            values = run.values.get((split, method), {})
            description = {
                "run": number,
                "benchmark": run.benchmark,
                "project": run.project,
                "detector": f"{run.title} ({run.run})",
                "method": method,
                "label": title_of(method),
                "split": split,
                "split_title": title_of_split(split),
            }
            for metric in metrics:
                yield {**description, **cell(metric, values.get(metric.name))}


def write_leaderboard(runs: Sequence[StoredRun], out: str | Path) -> int:
    """Writes the page `index.html` into a folder; returns the number of groups.

    Raises:
        ParameterError: the folder contains something other than an earlier page.
    """
    out = Path(out)
    refuse_other_files(out, DATA, "farther benchmark leaderboard")
    groups = ranked_together(runs)
    with write_aside(out) as aside, Site(aside) as site:
        site.write("index.html", "leaderboard.html", groups=groups, provenance=_provenance(groups))
        write_json(aside / DATA, [_as_json(run) for run in runs])
    return len(groups)


def _as_json(run: StoredRun) -> dict[str, Any]:
    """A run with keys "split/method" of its values."""
    values = {f"{split}/{method}": metrics for (split, method), metrics in run.values.items()}
    return {**vars(run), "values": values}


def _provenance(groups: Sequence[RankedRuns]) -> list[Listing]:
    """Tables of the projects, and of the inputs of each run."""
    projects: dict[str, dict[str, str]] = {}
    inputs = []
    for group in groups:
        for run in group.runs:
            projects[run.project] = {
                "Project": run.project,
                "Commit": run.commit or ABSENT,
                "Date": run.date or ABSENT,
                "farther": run.version or ABSENT,
            }
            row = {
                "Group": group.name,
                "Project": run.project,
                "Run": run.run,
                "Checkpoint": run.checkpoint or ABSENT,
                "Splits": run.inputs["splits"],
                "Code": run.code or ABSENT,
                "Inputs": digest(json.dumps(run.inputs)),
            }
            inputs.append(row)
    return [
        Listing.from_rows("Projects.", projects.values()),
        Listing.from_rows(
            "Digests of inputs; runs with another digest of code were evaluated by other code.",
            inputs,
        ),
    ]
