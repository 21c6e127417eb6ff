"""Results beside published ones: FMIYC's Tables 8 to 25, and OpenOOD v1.5's leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from farther.errors import DataError, shorten
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

#: A metric that runs have as a mean over splits only.
FULL_SPECTRUM = METRICS["full_spectrum_auroc"]

#: The columns that identify a row.
PLACE = ("detector", "id", "ood", "method")

#: Methods with another name in those tables: the best of the three, chosen on the OOD data itself.
OTHER_NAMES = dict.fromkeys(("lard_knn", "lard_mahalanobis", "lard_gmm"), "lard")


def read(folder: Path) -> pl.DataFrame:
    """The values in `FILES`, one row per value: `PLACE`, metric, published, origin; a file may be absent.

    `ood` is a split, or a distance for the mean over its splits, as OpenOOD reports values.
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
                raise DataError(f"expected a fraction, 0 to 1, found {shorten(value)}", file=file, row=row, field=name)
        values = table.unpivot(present, index=list(PLACE), variable_name="metric", value_name="published")
        frames.append(
            values.select(*PLACE, "metric", "published", origin=pl.lit(FILES[file.name])).select(frames[0].columns)
        )
    return pl.concat(frames)


def detectors(published: pl.DataFrame) -> set[tuple[str, str]]:
    """Detector and ID dataset of all rows of `read`."""
    return {(detector, id_) for detector, id_ in published.select("detector", "id").iter_rows()}


def beside(run: Run, counterpart: Counterpart, published: pl.DataFrame, seeds: Sequence[Run] = ()) -> Listing | None:
    """A run's values beside the published ones, one row per split and method that both have; None without any.

    Args:
        run: A run, or several seeds in one (`farther.report.seeds.merged`).
        counterpart: The published detector.
        published: From `read`.
        seeds: The runs that `run` is the mean of.

    """
    theirs = published.filter(detector=counterpart.detector, id=counterpart.id)
    if theirs.is_empty():
        return None
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
    return Listing.of(caption(run, counterpart, theirs["origin"][0]), rows.values(), numbers=differences)


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


def caption(run: Run, counterpart: Counterpart, origin: str) -> str:
    """Caption of a run's values beside those of `origin`, which says whether they can be compared."""
    theirs = f"{counterpart.detector} on {counterpart.id} in {origin}"
    lard = " Its LaRD is the best of several variants, chosen on the OOD data." if origin.startswith("FMIYC") else ""
    if counterpart.comparable:
        return f"{run.full_title} beside {theirs}. Differences are in percentage points, ours minus published.{lard}"
    warning = "NOT comparable: another detector, on other images. It only shows what the real benchmark looks like."
    return f"{run.full_title}, and for context published (real data): {theirs}. {warning}{lard}"
