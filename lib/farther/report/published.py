"""Results beside published ones: FMIYC's Tables 8 to 25, OpenOOD v1.5's leaderboard, the elephant's Tables 1 and 2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from farther.errors import DataError, ParameterError
from farther.metrics.catalogue import METRICS
from farther.report.charts.vega import read_csv
from farther.report.listing import ABSENT, Listing
from farther.report.results import SHOWN, Run
from farther.report.settings import Counterpart

#: Folder of the published tables below the project's folder; the files that hold results of methods, and their origin.
FOLDER = Path("data") / "published"
FILES = {
    "fmiyc_ood.csv": "FMIYC, Tables 8 to 25",
    "fmiyc_open_set.csv": "FMIYC, Tables 8 to 25",
    "openood.csv": "OpenOOD v1.5's leaderboard",
}

#: Files that hold results of detectors, whatever the methods, and their origin: Dhamija et al., 2020.
ELEPHANT = "The Overlooked Elephant, Tables 1 and 2"
WILDERNESS_FILES = ("elephant_map.csv", "elephant_impact.csv")

#: Title of each metric in them.
WILDERNESS = {
    "map_closed": "mAP closed",
    "map_open": "mAP open, wilderness ratio 1",
    **{f"average_impact@{recall}": f"WI at recall {recall}, averaged over ratios" for recall in ("0.1", "0.3", "0.5")},
}

#: A metric that runs have as a mean over splits only.
FULL_SPECTRUM = METRICS["full_spectrum_auroc"]

#: The columns that identify a row.
PLACE = ("detector", "id", "ood", "method")

#: Methods with another name in those tables: the best of the three, chosen on the OOD data itself.
OTHER_NAMES = dict.fromkeys(("lard_knn", "lard_mahalanobis", "lard_gmm"), "lard")


def read(folder: Path) -> pl.DataFrame:
    """The values in `FILES` and `WILDERNESS_FILES`, one row per value: `PLACE`, metric, published, origin.

    A file may be absent. `ood` is a split, or a distance for the mean over its splits, as OpenOOD reports values; it
    and `method` are empty for metrics of `WILDERNESS`.
    """
    columns = {**dict.fromkeys((*PLACE, "metric"), pl.String), "published": pl.Float64, "origin": pl.String}
    frames = [pl.DataFrame(schema=columns)]
    for file in (folder / name for name in FILES if (folder / name).exists()):
        metrics = {metric.name: pl.Float64 for metric in (*SHOWN, FULL_SPECTRUM)}
        table = read_csv(file, {**dict.fromkeys(PLACE, pl.String), **metrics}, optional=metrics)
        present = [name for name in metrics if name in table.columns]
        for name in present:
            outside = table.with_row_index("row").filter(~pl.col(name).is_between(0, 1))
            if len(outside):
                row, value = outside["row"][0], outside[name][0]
                raise DataError(f"expected a fraction, 0 to 1, found {value!r}", file=file, row=row, field=name)
        values = table.unpivot(present, index=list(PLACE), variable_name="metric", value_name="published")
        frames.append(
            values.select(*PLACE, "metric", "published", origin=pl.lit(FILES[file.name])).select(frames[0].columns)
        )
    for file in (folder / name for name in WILDERNESS_FILES if (folder / name).exists()):
        numbers = dict.fromkeys(("map_closed", "map_open", "average_impact"), pl.Float64)
        texts = dict.fromkeys(("detector", "id", "recall"), pl.String)
        table = read_csv(file, {**texts, **numbers}, optional=("recall", *numbers))
        values = table.unpivot(
            [n for n in numbers if n in table.columns], index=[n for n in texts if n in table.columns]
        )
        metric = pl.format("{}@{}", "variable", "recall") if "recall" in table.columns else pl.col("variable")
        empty = {"ood": pl.lit(""), "method": pl.lit(""), "origin": pl.lit(ELEPHANT)}
        frames.append(
            values.select("detector", "id", metric=metric, published="value", **empty).select(frames[0].columns)
        )
    return pl.concat(frames)


def beside(run: Run, counterpart: Counterpart, published: pl.DataFrame, seeds: Sequence[Run] = ()) -> Listing | None:
    """A run's values beside the published ones, one row per split and method that both have; None without any.

    Args:
        run: A run, or several seeds in one (`farther.report.seeds.merged`).
        counterpart: The published detector.
        published: From `read`.
        seeds: The runs that `run` is the mean of.

    Raises:
        ParameterError: no table has that detector on that ID dataset.
    """
    theirs = published.filter(detector=counterpart.detector, id=counterpart.id)
    if theirs.is_empty():
        pairs = published.select("detector", "id").unique().sort("detector", "id").iter_rows()
        known, found = ", ".join("/".join(pair) for pair in pairs), f"{counterpart.detector}/{counterpart.id}"
        raise ParameterError(f"report.published.{run.name}: no published table has {found}. Known: {known}")
    ours = _with_means(run, seeds or [run]).with_columns(theirs=pl.col("method").replace(OTHER_NAMES))
    both = ours.join(
        theirs.select("ood", "metric", "published", theirs="method"),
        on=["ood", "theirs", "metric"],
        how="left",
        maintain_order="left",
    )
    both = both.filter(pl.col("published").is_not_null().any().over("ood", "method"))
    if both.is_empty():
        return None
    measured = both.filter(pl.col("published").is_not_null())["metric"].unique()
    rows: dict[tuple[str, str], dict[str, float | str | None]] = {}
    for cell in both.filter(pl.col("metric").is_in(measured.implode())).iter_rows(named=True):
        row = rows.setdefault((cell["ood"], cell["method"]), {"Split": cell["split_title"], "Method": cell["label"]})
        head = f"{METRICS[cell['metric']].title}\N{NO-BREAK SPACE}{METRICS[cell['metric']].arrow}"
        row |= {f"{head} ours (%)": cell["value"], f"{head} published (%)": cell["published"]}
        if counterpart.comparable:
            has_both = cell["value"] is not None and cell["published"] is not None
            row[f"{head} difference"] = f"{100 * (cell['value'] - cell['published']):+.1f}" if has_both else ABSENT
    differences = [name for name in next(iter(rows.values())) if name.endswith("difference")]
    return Listing.of(_caption(run, counterpart, theirs["origin"][0]), rows.values(), numbers=differences)


def wilderness(run: Run, counterpart: Counterpart, published: pl.DataFrame) -> Listing | None:
    """A run's metrics of wilderness beside the published ones; None without any; arguments as for `beside`."""
    theirs = published.filter(detector=counterpart.detector, id=counterpart.id, origin=ELEPHANT)
    wild = run.evaluation.get("wilderness")
    if theirs.is_empty() or not wild:
        return None
    ours = {"map_closed": wild["map_closed"], "map_open": wild["map_open"]}
    ours |= {f"average_impact@{recall}": of["average_impact"] for recall, of in wild["at_recall"].items()}
    rows = []
    for metric, value in theirs.select("metric", "published").iter_rows():
        row = {"Metric": WILDERNESS[metric], "ours (%)": ours.get(metric), "published (%)": value}
        if counterpart.comparable:
            mine = ours.get(metric)
            row["difference"] = ABSENT if mine is None else f"{100 * (mine - value):+.1f}"
        rows.append(row)
    return Listing.of(_caption(run, counterpart, ELEPHANT), rows, numbers=["difference"])


def _with_means(run: Run, seeds: Sequence[Run]) -> pl.DataFrame:
    """A run's values with `ood`, the split, and in further rows their means over the splits of a distance."""
    keys = ["distance", "method", "label"]
    means = run.values.group_by(*keys, "metric", maintain_order=True).agg(pl.col("value").mean())
    spectrum = []
    for row in means.select(keys).unique(maintain_order=True).iter_rows(named=True):
        of = [one.method(row["method"]).get("means", {}).get(row["distance"], {}) for one in seeds]
        values = [one.get(FULL_SPECTRUM.name) for one in of]
        value = None if None in values else sum(values) / len(values)
        spectrum.append({**row, "metric": FULL_SPECTRUM.name, "value": value})
    titled = pl.concat([means, pl.DataFrame(spectrum, schema=means.schema)]).with_columns(
        ood="distance", split_title=pl.format("{}, mean over its splits", "distance")
    )
    return pl.concat([run.values.with_columns(ood="split"), titled], how="diagonal")


def _caption(run: Run, counterpart: Counterpart, origin: str) -> str:
    theirs = f"{counterpart.detector} on {counterpart.id} in {origin}"
    lard = " Its LaRD is the best of several variants, chosen on the OOD data." if origin.startswith("FMIYC") else ""
    if counterpart.comparable:
        return f"{run.name} beside {theirs}. Differences are in percentage points, ours minus published.{lard}"
    warning = "NOT comparable: another detector, on other images. It only shows what the real benchmark looks like."
    return f"{run.name}, and for context published (real data): {theirs}. {warning}{lard}"
