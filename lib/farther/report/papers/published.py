"""Results beside published ones.

FMIYC's Tables 8 to 25, OpenOOD's Table 1 and v1.5's leaderboard, the elephant's Tables 1 to 4,
SAOD's Tables 2 to 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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


class WildernessTable(NamedTuple):
    """A table of The Overlooked Elephant, `elephant_<name>.csv`.

    Args:
        number: Its number in the paper.
        keys: Columns that identify a row → headings.
        values: Columns of values → headings; fractions have the unit " (%)".
    """

    number: int
    keys: Mapping[str, str]
    values: Mapping[str, str]


WILDERNESS = {
    "map": WildernessTable(1, {}, {"map_closed": "mAP closed (%)", "map_open": "mAP open (%)"}),
    "impact": WildernessTable(2, {"recall": "At recall"}, {"average_impact": "WI (%)"}),
    "background": WildernessTable(
        3, {"class": "Class"}, {"mean": "Mean p_i − p_b", "sd": "Deviation"}
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
    ),
}

#: Keys that are flush right.
NUMBERS = ("At recall", "Wilderness ratio", "β")


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
        columns = {
            name: {
                **dict.fromkeys(("detector", "id", *of.keys), pl.String),
                **dict.fromkeys(of.values, pl.Float64),
            }
            for name, of in WILDERNESS.items()
        }
        wilderness = {
            name: read_csv(folder / f"elephant_{name}.csv", of) for name, of in columns.items()
        }
        methods = pl.concat(_read_methods(folder / name, origin) for name, origin in FILES.items())
        return cls(methods, wilderness, saod_printed.read_tables(folder))

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
        """A run's values beside the published ones: a table of methods, and those of the elephant and of SAOD,
        where both have any.

        Args:
            run: A run, or several seeds in one (`farther.report.seeds.merged`).
            counterpart: The published detector.
            seeds: The runs that `run` is the mean of.
        """
        found = {"detector": counterpart.detector, "id": counterpart.id}
        theirs = self.methods.filter(**found)
        if len(theirs):
            rows = list(_methods(run, seeds or [run], theirs, comparable=counterpart.comparable))
            yield _listing(run, counterpart, theirs["origin"][0], rows)
        if run.evaluation:
            wild = run.evaluation.wilderness
            for name, table in self.wilderness.items():
                printed = table.filter(**found).iter_rows(named=True)
                rows = [
                    _wilderness(name, wild, row, comparable=counterpart.comparable)
                    for row in printed
                ]
                yield _listing(
                    run,
                    counterpart,
                    f"The Overlooked Elephant, Table {WILDERNESS[name].number}",
                    rows,
                )
            for name, table in self.self_awareness.items():
                rows = _self_aware(
                    name, run, table.filter(**found), comparable=counterpart.comparable
                )
                yield _listing(run, counterpart, f"SAOD, {saod_printed.TABLES[name].title}", rows)


def _read_methods(file: Path, origin: str) -> pl.DataFrame:
    metrics = {metric.name: pl.Float64 for metric in (*SHOWN, FULL_SPECTRUM)}
    table = read_csv(
        file, {**dict.fromkeys(PLACE, pl.String), **metrics}, optional=metrics
    ).with_row_index("row")
    present = [name for name in metrics if name in table.columns]
    values = table.unpivot(
        present, index=["row", *PLACE], variable_name="metric", value_name="published"
    )
    for row in values.filter(~pl.col("published").is_between(0, 1)).head(1).iter_rows(named=True):
        problem = f"expected a fraction, 0 to 1, found {shorten(row['published'])}"
        raise DataError(problem, file=file, row=row["row"], field=row["metric"])
    return values.select(*PLACE, "metric", "published", origin=pl.lit(origin))


def _methods(
    run: Run, seeds: Sequence[Run], theirs: pl.DataFrame, *, comparable: bool
) -> Iterator[dict[str, Any]]:
    """One row per split and method that both have; columns for the metrics that any of them has."""
    both = (
        _with_means(run, seeds)
        .with_columns(theirs=pl.col("method").replace(OTHER_NAMES))
        .join(
            theirs.select("ood", "metric", "published", theirs="method"),
            on=["ood", "theirs", "metric"],
            how="left",
            maintain_order="left",
        )
        .filter(pl.col("published").is_not_null().any().over("ood", "method"))
        .filter(pl.col("published").is_not_null().any().over("metric"))
    )
    for part in both.partition_by("ood", "method", maintain_order=True):
        row = {"Split": part["split_title"][0], "Method": part["label"][0]}
        for metric, ours, published in part.select("metric", "value", "published").iter_rows():
            row |= _pair(f"{heading(metric)} (%)", ours, published, comparable=comparable)
        yield row


def _with_means(run: Run, seeds: Sequence[Run]) -> pl.DataFrame:
    """A run's values with `ood`, the split, and in further rows their means over the splits of a distance."""
    keys = ["distance", "method", "label"]
    means = run.values.group_by(*keys, "metric", maintain_order=True).agg(pl.col("value").mean())
    spectrum = []
    for row in means.select(keys).unique(maintain_order=True).iter_rows(named=True):
        of = [one.means(row["method"]).get(row["distance"]) for one in seeds]
        values = [
            value for one in of if one and (value := one.values.get(FULL_SPECTRUM.name)) is not None
        ]
        value = sum(values) / len(values) if len(values) == len(seeds) else None
        spectrum.append({**row, "metric": FULL_SPECTRUM.name, "value": value})
    titled = pl.concat([means, pl.DataFrame(spectrum, schema=means.schema)]).with_columns(
        ood="distance", split_title=pl.format("{}, mean over its splits", "distance")
    )
    return pl.concat([run.values.with_columns(ood="split"), titled], how="diagonal")


def _wilderness(
    name: str, wild: WildernessResults, theirs: Mapping[str, Any], *, comparable: bool
) -> dict[str, Any]:
    table, ours = WILDERNESS[name], _of_run(name, wild, theirs)
    row = {title: theirs[key] for key, title in table.keys.items()}
    for part, title in table.values.items():
        row |= _pair(title, ours.get(part), theirs[part], comparable=comparable)
    return row


def _of_run(name: str, wild: WildernessResults, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The run's values of a row of `WILDERNESS`; empty where it has none."""
    found: Mapping[str, Any] = {}
    if name == "map":
        found = vars(wild)
    elif name == "impact" and row["recall"] in wild.at_recall:
        found = vars(wild.at_recall[row["recall"]])
    elif name == "background" and wild.background:
        found = wild.background.known.classes.get(row["class"], {})
    elif name == "operating_points" and row["beta"] in wild.operating_points.betas:
        points, ratio = wild.operating_points, float(row["ratio"])
        best = points.betas[row["beta"]].classes.get(row["class"])
        if best is not None and ratio in points.ratios:
            found = {
                part: best[part][points.ratios.index(ratio)] for part in WILDERNESS[name].values
            }
    return found


def _self_aware(
    name: str, run: Run, printed: pl.DataFrame, *, comparable: bool
) -> list[dict[str, Any]]:
    """One row per printed row of a table of SAOD; columns for the values that any of them has."""
    if not run.evaluation:
        return []
    titles = saod_printed.TABLES[name].values
    columns = [column for column in titles if printed[column].count()]
    rows = []
    for keys, ours, theirs in saod_printed.rows_beside(
        name, run, run.evaluation.self_awareness, printed
    ):
        row: dict[str, Any] = dict(keys)
        for column in columns:
            row |= _pair(titles[column], ours.get(column), theirs[column], comparable=comparable)
        rows.append(row)
    return rows


def _pair(
    title: str, ours: float | None, theirs: float | None, *, comparable: bool
) -> dict[str, Any]:
    """Cells of both values, and of ours minus theirs, in percentage points where they are in per cent."""
    name, unit, _ = title.partition(" (%)")
    cells: dict[str, Any] = {f"{name} ours{unit}": ours, f"{name} published{unit}": theirs}
    if comparable:
        difference = ABSENT
        if ours is not None and theirs is not None:
            difference = f"{100 * (ours - theirs):+.1f}" if unit else f"{ours - theirs:+.3f}"
        cells[f"{name} difference"] = difference
    return cells


def _listing(
    run: Run, counterpart: Counterpart, origin: str, rows: Sequence[Mapping[str, Any]]
) -> Listing:
    """A table whose caption says whether the values can be compared."""
    theirs = f"{counterpart.detector} on {counterpart.id} in {origin}"
    if counterpart.comparable:
        words = f"{run.full_title} beside {theirs}. Differences are in percentage points, ours minus published."
    else:
        warning = "NOT comparable: another detector, on other images. It only shows what the real benchmark looks like."
        words = f"{run.full_title}, and for context published (real data): {theirs}. {warning}"
    if origin.startswith("FMIYC"):
        words += " Its LaRD is the best of several variants, chosen on the OOD data."
    heads = [head for row in rows[:1] for head in row if head.endswith("difference")]
    return Listing.of(words, rows, [*NUMBERS, *heads])
