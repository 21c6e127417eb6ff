"""Is a test set large enough?

Differences between methods that its images show, and how many images would show smaller ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.evaluation.files import RunFiles
from farther.metrics.catalogue import METRICS
from farther.metrics.statistics import bootstrap
from farther.report.listing import Listing, with_and
from farther.report.results import Run, title_of_split

#: The metrics: separation, and unknown objects that are found.
SHOWN = ("auroc", "r_u")

#: z of a two-sided test at 5%, plus z of a power of 80% (Cohen, 1988, Statistical Power Analysis,
#: Section 2.5).
Z = 1.960 + 0.842

#: Times the images that halve an interval, as the bootstrap's variance falls with 1/n.
HALVING = 4

#: Columns of `sizes`.
COLUMNS: dict[str, type[pl.DataType]] = {
    "benchmark": pl.String,
    "benchmark_title": pl.String,
    "split": pl.String,
    "metric": pl.String,
    "images": pl.Int64,
    "pairs": pl.Int64,
    "apart": pl.Int64,
    "smallest": pl.Float64,
}


def smallest_difference(first: np.ndarray, second: np.ndarray) -> float:
    """The true difference that a test at 5% on such images finds in 80% of such test sets.

    Args:
        first, second: Paired replicates of two methods, ndarrays of shape (B,).

    >>> rng = np.random.default_rng(0)
    >>> first = rng.normal(0, 0.01, 100_000)
    >>> round(smallest_difference(first, first + rng.normal(0, 0.02, 100_000)), 3)
    0.056
    """
    return Z * float(np.nanstd(np.asarray(second, dtype=np.float64) - first, ddof=1))


def images_to_halve(images: int) -> int:
    """About how many images would halve an interval from `images` images, with two digits.

    >>> images_to_halve(341)
    1400
    """
    return int(float(f"{HALVING * images:.2g}"))


def replicates(run: Run, split: str, artifacts: Path) -> dict[str, dict[str, np.ndarray]]:
    """Method → its bootstrap replicates in a split, by metric; {} where there are none.

    Args:
        run, split: The run and the split.
        artifacts: Folder of the artifacts.
    """
    files = RunFiles(run.name, run.benchmark, artifacts)
    replicates_by_method = {}
    for method in run.methods:
        of_method = run.replicates.read(files.replicates(method, split))
        if of_method is not None:
            replicates_by_method[method] = of_method
    return replicates_by_method


def significant_pairs(
    values: Mapping[str, float],
    replicates_by_method: Mapping[str, np.ndarray],
    comparisons: bootstrap.Comparisons,
) -> list[tuple[str, str]]:
    """Pairs of methods whose difference in a metric has an interval that excludes zero.

    Args:
        values: Method → its value.
        replicates_by_method: Method → paired replicates, ndarrays of shape (B,).
        comparisons: See `farther.metrics.statistics.bootstrap.compare_with`.
    """
    names = list(values)
    pairs = []
    compared = bootstrap.compare_with_each(values, replicates_by_method, comparisons)
    for number, reference in enumerate(names):
        differences = compared[reference]
        for method in names[number + 1 :]:
            low, high = differences[method]["interval"] or (0, 0)
            if low > 0 or high < 0:
                pairs.append((reference, method))
    return pairs


def sizes(runs: Sequence[Run], artifacts: Path) -> pl.DataFrame:
    """One row per run, OOD split and metric of `SHOWN` with at least two methods.

    Returns:
        Columns benchmark, benchmark_title, split, images, metric, `smallest`, the median of
        `smallest_difference` over pairs of methods, `pairs`, their number, and `apart`, how many of
        them are told apart.
    """
    rows = []
    for run in runs:
        for split in run.splits:
            by_method = replicates(run, split.name, artifacts)
            for metric in SHOWN:
                row = _size(run, split.name, metric, by_method)
                if row is not None:
                    rows.append(row)
    return pl.DataFrame(rows, COLUMNS)


def _size(
    run: Run, split: str, metric: str, by_method: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, Any] | None:
    """A row of `sizes`; None where fewer than two methods have replicates.

    Args:
        run, split, metric: The row.
        by_method: Replicates of each method in the split.
    """
    if run.description is None:
        return None
    values = {}
    replicates_by_method = {}
    for method, of_method in by_method.items():
        result = run.result(split, method, METRICS[metric])
        if result is not None and result.value is not None and metric in of_method:
            values[method] = result.value
            replicates_by_method[method] = of_method[metric]

    pairs = list(combinations(replicates_by_method.values(), 2))
    differences = []
    for first, second in pairs:
        is_defined = np.isfinite(first) & np.isfinite(second)
        if is_defined.sum() > 1:
            differences.append(smallest_difference(first, second))
    if not differences:
        return None
    apart = significant_pairs(values, replicates_by_method, run.description.settings.comparisons)
    return {
        "benchmark": run.benchmark,
        "benchmark_title": run.benchmark_title,
        "split": split,
        "images": run.images(split),
        "metric": metric,
        "pairs": len(pairs),
        "smallest": float(np.median(differences)),
        "apart": len(apart),
    }


def listing(name: str, test_sizes: pl.DataFrame) -> Listing:
    """One row per OOD split of a benchmark, from all of its runs.

    Args:
        name: The benchmark.
        test_sizes: See `sizes`.
    """
    rows = []
    of_benchmark = test_sizes.filter(benchmark=name)
    for (split,), of_split in of_benchmark.group_by("split", maintain_order=True):
        images = int(of_split["images"].max())  # type: ignore[arg-type]
        row: dict[str, Any] = {"Split": title_of_split(str(split)), "Images": images}
        for metric in SHOWN:
            title = METRICS[metric].title
            of_metric = of_split.filter(metric=metric)
            pairs_apart = of_metric["apart"].sum()
            row[f"{title} (%)"] = of_metric["smallest"].median()
            row[f"{title}: pairs told apart"] = f"{pairs_apart} of {of_metric['pairs'].sum()}"
        row["Images to detect half of it"] = HALVING * images
        rows.append(row)
    caption = (
        f"The smallest difference between two methods that a split of {name} can detect, "
        "in percentage points."
    )
    numbers = [f"{METRICS[metric].title}: pairs told apart" for metric in SHOWN]
    return Listing.from_rows(caption, rows, numbers)


def apart(test_sizes: pl.DataFrame) -> str:
    """A sentence on how many pairs of methods differ significantly; "" without replicates.

    Args:
        test_sizes: See `sizes`.
    """
    clauses: list[str] = []
    differences = []
    for metric in SHOWN:
        of_metric = test_sizes.filter(metric=metric)
        pairs = int(of_metric["pairs"].sum())
        if not pairs:
            continue
        title = METRICS[metric].title
        count = int(of_metric["apart"].sum())
        smallest = float(np.median(of_metric["smallest"].to_numpy()))
        verb = "" if clauses else "differ significantly "
        clauses.append(f"{100 * count / pairs:.0f}% {verb}by {title} ({count:,} of {pairs:,})")
        differences.append(f"{100 * smallest:.1f} points in {title}")
    if not clauses:
        return ""
    return (
        f"Of the pairs of methods on a split of a run, {with_and(clauses)}. "
        f"The images of a split of median size can show differences of at least "
        f"{with_and(differences)}."
    )


def undecided(test_sizes: pl.DataFrame) -> str:
    """A sentence on the splits where no pair of methods of any run is told apart.

    "" where there is no such split.

    Args:
        test_sizes: See `sizes`.
    """
    by_split = test_sizes.group_by("benchmark_title", "split", maintain_order=True)
    counts = by_split.agg(pl.sum("apart"), pl.max("images"))
    too_small = counts.filter(apart=0)
    if too_small.is_empty():
        return ""
    metrics = " or ".join(METRICS[metric].title for metric in SHOWN)
    reason = f"no difference in {metrics} has an interval that excludes zero"
    if len(too_small) == len(counts):
        return f"No two methods can be told apart on any split: {reason}."
    names = []
    for row in too_small.to_dicts():
        title = title_of_split(row["split"])
        names.append(f"{title} ({row['benchmark_title']}, {row['images']:,} images)")
    return f"No two methods can be told apart on {with_and(names)}: {reason}."
