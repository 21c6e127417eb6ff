"""Results beside published ones.

FMIYC's Tables 8 to 25, OpenOOD's Table 1 and v1.5's leaderboard, the elephant's Tables 1 to 4,
SAOD's Tables 2 to 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from farther.errors import DataError, shorten
from farther.evaluation.results import WildernessResults
from farther.metrics.catalogue import METRICS
from farther.report.charts.vega import read_csv
from farther.report.listing import ABSENT, Listing
from farther.report.papers import saod_printed
from farther.report.results import SHOWN, Run, heading
from farther.report.settings import Counterpart

#: Files with results of methods, and their origin.
FILES = {
    "fmiyc_ood.csv": "FMIYC, Tables 8 to 25",
    "fmiyc_open_set.csv": "FMIYC, Tables 8 to 25",
    "openood.csv": "OpenOOD v1.5's leaderboard",
    "openood_v1.csv": "OpenOOD, Table 1 of version 1",
}

#: A metric that runs have as a mean over splits only.
FULL_SPECTRUM = METRICS["full_spectrum_auroc"]

#: The columns that identify a row of them.
PLACE = ("detector", "id", "ood", "method")

#: Methods with another name in those tables: the best of the three, chosen on the OOD data itself.
OTHER_NAMES = dict.fromkeys(("lard_knn", "lard_mahalanobis", "lard_gmm"), "lard")

#: Keys of the elephant's tables that are flush right.
NUMBERS = ("At recall", "Wilderness ratio", "β")


def _map(wilderness: WildernessResults, row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"map_closed": wilderness.map_closed, "map_open": wilderness.map_open}


def _impact(wilderness: WildernessResults, row: Mapping[str, Any]) -> Mapping[str, Any]:
    if row["recall"] not in wilderness.at_recall:
        return {}
    return {"average_impact": wilderness.at_recall[row["recall"]].average_impact}


def _background(wilderness: WildernessResults, row: Mapping[str, Any]) -> Mapping[str, Any]:
    if wilderness.background is None:
        return {}
    return wilderness.background.known.classes.get(row["class"], {})


def _operating_point(wilderness: WildernessResults, row: Mapping[str, Any]) -> Mapping[str, Any]:
    points = wilderness.operating_points
    ratio = float(row["ratio"])
    if row["beta"] not in points.betas or ratio not in points.ratios:
        return {}
    values_by_name = points.betas[row["beta"]].classes.get(row["class"])
    if values_by_name is None:
        return {}
    index = points.ratios.index(ratio)
    return {name: values_by_name[name][index] for name in WILDERNESS["operating_points"].values}


@dataclass(frozen=True)
class WildernessTable:
    """A table of The Overlooked Elephant, `elephant_<name>.csv`.

    Args:
        number: Its number in the paper.
        keys: Columns that identify a row → headings.
        values: Columns of values → headings; fractions have the unit " (%)".
        values_of_run: Computes a run's values for a printed row; empty where it has none.
    """

    number: int
    keys: Mapping[str, str]
    values: Mapping[str, str]
    values_of_run: Callable[[WildernessResults, Mapping[str, Any]], Mapping[str, Any]]


WILDERNESS = {
    "map": WildernessTable(
        1, {}, {"map_closed": "mAP closed (%)", "map_open": "mAP open (%)"}, _map
    ),
    "impact": WildernessTable(2, {"recall": "At recall"}, {"average_impact": "WI (%)"}, _impact),
    "background": WildernessTable(
        3, {"class": "Class"}, {"mean": "Mean p_i − p_b", "sd": "Deviation"}, _background
    ),
    "operating_points": WildernessTable(
        4,
        {"class": "Class", "ratio": "Wilderness ratio", "beta": "β"},
        {
            "f": "F (%)",
            "precision": "Precision (%)",
            "recall": "Recall (%)",
            "threshold": "Threshold",
        },
        _operating_point,
    ),
}


@dataclass(frozen=True)
class Published:
    """The published tables in `data/published`, files of which may be absent.

    Args:
        methods: The values in `FILES`, one row per value: `PLACE`, metric, published, origin. `ood`
            is a split, or a distance for the mean over its splits, as OpenOOD reports values.
        wilderness: The tables in `WILDERNESS`, with the columns detector and id.
        self_awareness: The tables in `farther.report.papers.saod_printed.TABLES`, with the same
            columns.
    """

    methods: pl.DataFrame
    wilderness: Mapping[str, pl.DataFrame]
    self_awareness: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Published:
        """The files of a folder.

        Raises:
            DataError: a file lacks a column, has a text where a number belongs, or a metric that is
                no fraction.
        """
        wilderness = {}
        for name, table in WILDERNESS.items():
            columns: dict[str, type[pl.DataType]] = {}
            columns.update(dict.fromkeys(("detector", "id", *table.keys), pl.String))
            columns.update(dict.fromkeys(table.values, pl.Float64))
            wilderness[name] = read_csv(folder / f"elephant_{name}.csv", columns)
        methods = [_read_methods(folder / name, origin) for name, origin in FILES.items()]
        return cls(pl.concat(methods), wilderness, saod_printed.read_tables(folder))

    @property
    def detectors(self) -> set[tuple[str, str]]:
        """Detector and ID dataset of all rows."""
        pairs: set[tuple[str, str]] = set()
        for table in (self.methods, *self.wilderness.values(), *self.self_awareness.values()):
            pairs.update(table["detector", "id"].rows())
        return pairs

    def beside(
        self, run: Run, counterpart: Counterpart, seeds: Sequence[Run] = ()
    ) -> Iterator[Listing]:
        """Tables of a run's values beside the published ones.

        A table of methods, and those of the elephant and of SAOD, where both have any.

        Args:
            run: A run, or several seeds in one (`farther.report.seeds.merge_seeds`).
            counterpart: The published detector.
            seeds: The runs that `run` is the mean of.
        """
        methods = _rows_of_detector(self.methods, counterpart)
        if len(methods):
            rows = list(
                _method_rows(run, seeds or [run], methods, comparable=counterpart.comparable)
            )
            yield _listing(run, counterpart, methods["origin"][0], rows)
        if run.evaluation is None:
            return
        for name, table in self.wilderness.items():
            rows = _wilderness_rows(
                name,
                run.evaluation.wilderness,
                _rows_of_detector(table, counterpart),
                comparable=counterpart.comparable,
            )
            origin = f"The Overlooked Elephant, Table {WILDERNESS[name].number}"
            yield _listing(run, counterpart, origin, rows)
        for name, table in self.self_awareness.items():
            rows = _self_awareness_rows(
                name, run, _rows_of_detector(table, counterpart), comparable=counterpart.comparable
            )
            yield _listing(run, counterpart, f"SAOD, {saod_printed.TABLES[name].title}", rows)


def _rows_of_detector(table: pl.DataFrame, counterpart: Counterpart) -> pl.DataFrame:
    return table.filter(detector=counterpart.detector, id=counterpart.id)


def _read_methods(file: Path, origin: str) -> pl.DataFrame:
    """A file of results of methods, one row per value; see `Published.methods`."""
    metrics = {metric.name: pl.Float64 for metric in (*SHOWN, FULL_SPECTRUM)}
    columns: dict[str, type[pl.DataType]] = {**dict.fromkeys(PLACE, pl.String), **metrics}
    table = read_csv(file, columns, optional=metrics).with_row_index("row")
    values = table.unpivot(
        [name for name in metrics if name in table.columns],
        index=["row", *PLACE],
        variable_name="metric",
        value_name="published",
    )
    not_fractions = values.filter(~pl.col("published").is_between(0, 1))
    if len(not_fractions):
        first = not_fractions.row(0, named=True)
        problem = f"expected a fraction, 0 to 1, found {shorten(first['published'])}"
        raise DataError(problem, file=file, row=first["row"], field=first["metric"])
    return values.select(*PLACE, "metric", "published", origin=pl.lit(origin))


def _method_rows(
    run: Run, seeds: Sequence[Run], published: pl.DataFrame, *, comparable: bool
) -> Iterator[dict[str, Any]]:
    """One row per split and method that both have; columns for the metrics that any of them has."""
    published_values = published.select("ood", "metric", "published", published_method="method")
    has_published = pl.col("published").is_not_null().any()
    values = (
        _with_means(run, seeds)
        .with_columns(published_method=pl.col("method").replace(OTHER_NAMES))
        .join(
            published_values,
            on=["ood", "published_method", "metric"],
            how="left",
            maintain_order="left",
        )
        .filter(has_published.over("ood", "method"))
        .filter(has_published.over("metric"))
    )
    for values_of_method in values.partition_by("ood", "method", maintain_order=True):
        row = {
            "Split": values_of_method["split_title"][0],
            "Method": values_of_method["label"][0],
        }
        for metric, ours, theirs in values_of_method.select(
            "metric", "value", "published"
        ).iter_rows():
            row |= _compared_cells(f"{heading(metric)} (%)", ours, theirs, comparable=comparable)
        yield row


def _with_means(run: Run, seeds: Sequence[Run]) -> pl.DataFrame:
    """A run's values with a column `ood`: the split.

    Further rows have the means over the splits of a distance, with the distance as `ood`.
    """
    keys = ["distance", "method", "label"]
    means = run.values.group_by(*keys, "metric", maintain_order=True).agg(pl.col("value").mean())
    full_spectrum = []
    for row in means.select(keys).unique(maintain_order=True).iter_rows(named=True):
        value = _full_spectrum_mean(seeds, row["method"], row["distance"])
        full_spectrum.append({**row, "metric": FULL_SPECTRUM.name, "value": value})
    all_means = pl.concat([means, pl.DataFrame(full_spectrum, schema=means.schema)])
    titled_means = all_means.with_columns(
        ood="distance", split_title=pl.format("{}, mean over its splits", "distance")
    )
    return pl.concat([run.values.with_columns(ood="split"), titled_means], how="diagonal")


def _full_spectrum_mean(seeds: Sequence[Run], method: str, distance: str) -> float | None:
    """Mean over seeds of the full-spectrum AUROC; None where a seed has none."""
    values = []
    for seed in seeds:
        mean_over_splits = seed.means(method).get(distance)
        if mean_over_splits is None:
            return None
        value = mean_over_splits.values.get(FULL_SPECTRUM.name)
        if value is None:
            return None
        values.append(value)
    return sum(values) / len(values)


def _wilderness_rows(
    name: str, wilderness: WildernessResults, printed: pl.DataFrame, *, comparable: bool
) -> list[dict[str, Any]]:
    """One row per printed row of a table of the elephant."""
    table = WILDERNESS[name]
    rows = []
    for printed_row in printed.iter_rows(named=True):
        row = {title: printed_row[key] for key, title in table.keys.items()}
        values = table.values_of_run(wilderness, printed_row)
        for column, title in table.values.items():
            row |= _compared_cells(
                title, values.get(column), printed_row[column], comparable=comparable
            )
        rows.append(row)
    return rows


def _self_awareness_rows(
    name: str, run: Run, printed: pl.DataFrame, *, comparable: bool
) -> list[dict[str, Any]]:
    """One row per printed row of a table of SAOD; columns for the values that any of them has."""
    if run.evaluation is None:
        return []
    titles = saod_printed.TABLES[name].values
    columns = [column for column in titles if printed[column].count()]
    aware = run.evaluation.self_awareness
    rows = []
    for compared in saod_printed.compared_rows(name, run, aware, printed):
        row: dict[str, Any] = dict(compared.keys)
        for column in columns:
            row |= _compared_cells(
                titles[column],
                compared.run.get(column),
                compared.printed[column],
                comparable=comparable,
            )
        rows.append(row)
    return rows


def _compared_cells(
    title: str, ours: float | None, published: float | None, *, comparable: bool
) -> dict[str, Any]:
    """Cells of a run's value, the published one, and their difference.

    Args:
        title: Heading of the value; with the unit " (%)", the difference is in percentage points.
        ours: The run's value.
        published: The published value.
        comparable: Whether the difference is meaningful; otherwise it has no cell.
    """
    name, unit, _ = title.partition(" (%)")
    cells: dict[str, Any] = {f"{name} ours{unit}": ours, f"{name} published{unit}": published}
    if comparable:
        cells[f"{name} difference"] = _difference(ours, published, in_percent=bool(unit))
    return cells


def _difference(ours: float | None, published: float | None, *, in_percent: bool) -> str:
    if ours is None or published is None:
        return ABSENT
    if in_percent:
        return f"{100 * (ours - published):+.1f}"
    return f"{ours - published:+.3f}"


def _listing(
    run: Run, counterpart: Counterpart, origin: str, rows: Sequence[Mapping[str, Any]]
) -> Listing:
    """A table whose caption says whether the values can be compared."""
    published = f"{counterpart.detector} on {counterpart.id} in {origin}"
    if counterpart.comparable:
        caption = (
            f"{run.full_title} beside {published}. Differences are in percentage points, ours "
            "minus published."
        )
    else:
        caption = (
            f"{run.full_title}, and for context published (real data): {published}. NOT "
            "comparable: another detector, on other images. It only shows what the real benchmark "
            "looks like."
        )
    if origin.startswith("FMIYC"):
        caption += " Its LaRD is the best of several variants, chosen on the OOD data."
    differences = []
    if rows:
        differences = [title for title in rows[0] if title.endswith("difference")]
    return Listing.from_rows(caption, rows, [*NUMBERS, *differences])
