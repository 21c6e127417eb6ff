"""Is a test set large enough? Differences between methods that its images show, and how many images would show more."""

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
from farther.report.listing import Listing
from farther.report.results import Run, title_of_split
from farther.tables.parquet import read_batches

#: The metrics: separation, and unknown objects that are found.
SHOWN = ("auroc", "r_u")
#: z of a two-sided test at 5%, plus z of a power of 80% (Cohen, 1988, Statistical Power Analysis,
#: Section 2.5).
Z = 1.960 + 0.842
#: Times the images that halve an interval, as the bootstrap's variance falls with 1/n.
HALVING = 4


def smallest_difference(first: np.ndarray, second: np.ndarray) -> float:
    """The true difference that a test at 5% on such images finds in 80% of such test sets.

    Args:
        first, second: Paired replicates of two methods, ndarrays of shape (B,).

    >>> rng = np.random.default_rng(0)
    >>> one = rng.normal(0, 0.01, 100_000)
    >>> round(smallest_difference(one, one + rng.normal(0, 0.02, 100_000)), 3)
    0.056
    """
    return Z * float(np.nanstd(np.asarray(second, dtype=np.float64) - first, ddof=1))


def images_to_halve(images: int) -> int:
    """About how many images would halve an interval that comes from this many, with two digits.

    >>> images_to_halve(341)
    1400
    """
    return int(float(f"{HALVING * images:.2g}"))


def replicates(
    run: Run, split: str, artifacts: Path, metrics: Sequence[str]
) -> dict[str, pl.DataFrame]:
    """Bootstrap replicates of each method of a run in a split; {} where there are none.

    Args:
        run, split: The run and the split.
        artifacts: Folder of the artifacts.
        metrics: Columns to read, where they are.
    """
    files = RunFiles(run.name, run.benchmark, artifacts)
    paths = {method: files.replicates(method, split) for method in run.methods}
    return {
        method: pl.concat(read_batches(path, metrics))
        for method, path in paths.items()
        if path.exists()
    }


def told_apart(
    values: Mapping[str, float], drawn: Mapping[str, np.ndarray], comparisons: bootstrap.Comparisons
) -> list[tuple[str, str]]:
    """Pairs of methods whose difference in a metric has an interval that excludes zero.

    Args:
        values, drawn, comparisons: See `farther.metrics.statistics.bootstrap.compare_with`.
    """
    pairs = []
    for number, reference in enumerate(values):
        found = bootstrap.compare_with(reference, values, drawn, comparisons)
        for other in list(values)[number + 1 :]:
            low, high = found[other]["interval"] or (0, 0)
            if low > 0 or high < 0:
                pairs.append((reference, other))
    return pairs


def sizes(runs: Sequence[Run], artifacts: Path) -> pl.DataFrame:
    """One row per run, OOD split and metric of `SHOWN` with at least two methods.

    Returns:
        Columns benchmark, benchmark_title, split, images, metric, `smallest`, the median of
        `smallest_difference` over pairs of methods, `pairs`, their number, and `apart`, how many of
        them are told apart.
    """
    rows: list[dict[str, Any]] = []
    for run in runs:
        for split in run.splits:
            tables = replicates(run, split.name, artifacts, SHOWN)
            for metric in SHOWN:
                found = {
                    name: run.details(split.name, name).value(METRICS[metric]) for name in tables
                }
                values = {
                    n: v for n, v in found.items() if v is not None and metric in tables[n].columns
                }
                drawn = {name: tables[name][metric].to_numpy() for name in values}
                pairs = [(drawn[a], drawn[b]) for a, b in combinations(values, 2)]
                smallest = [
                    smallest_difference(*one)
                    for one in pairs
                    if np.isfinite(one).all(axis=0).sum() > 1
                ]
                if smallest and run.evaluation:
                    place = {
                        "benchmark": run.benchmark,
                        "benchmark_title": run.benchmark_title,
                        "split": split.name,
                    }
                    counts = {
                        "images": run.images(split.name),
                        "metric": metric,
                        "pairs": len(pairs),
                    }
                    apart = len(told_apart(values, drawn, run.evaluation.settings.comparisons))
                    rows.append(
                        {**place, **counts, "smallest": float(np.median(smallest)), "apart": apart}
                    )
    texts = dict.fromkeys(("benchmark", "benchmark_title", "split", "metric"), pl.String)
    return pl.DataFrame(
        rows,
        {**texts, **dict.fromkeys(("images", "pairs", "apart"), pl.Int64), "smallest": pl.Float64},
    )


def listing(name: str, found: pl.DataFrame) -> Listing:
    """One row per OOD split of a benchmark, from all of its runs.

    Args:
        name: The benchmark.
        found: See `sizes`.
    """
    rows = []
    for (split,), of_split in found.filter(benchmark=name).group_by("split", maintain_order=True):
        images = int(of_split["images"].max())  # type: ignore[arg-type]
        row: dict[str, Any] = {"Split": title_of_split(str(split)), "Images": images}
        for metric in SHOWN:
            of = of_split.filter(metric=metric)
            title = METRICS[metric].title
            row[f"{title} (%)"] = of["smallest"].median()
            row[f"{title}: pairs told apart"] = f"{of['apart'].sum()} of {of['pairs'].sum()}"
        rows.append({**row, "Images to detect half of it": HALVING * images})
    return Listing.of(
        f"The smallest difference between two methods that a split of {name} can detect, in percentage points.",
        rows,
        [f"{METRICS[metric].title}: pairs told apart" for metric in SHOWN],
    )


def undecided(found: pl.DataFrame) -> str:
    """A sentence on the splits where no pair of methods of any run is told apart; "" where there is none.

    Args:
        found: See `sizes`.
    """
    counts = found.group_by("benchmark_title", "split", maintain_order=True).agg(
        pl.sum("apart"), pl.max("images")
    )
    none = counts.filter(apart=0)
    if none.is_empty():
        return ""
    metrics = " or ".join(METRICS[metric].title for metric in SHOWN)
    why = f"no difference in {metrics} has an interval that excludes zero"
    if len(none) == len(counts):
        return f"No two methods can be told apart on any split: {why}."
    names = [
        f"{title_of_split(row['split'])} ({row['benchmark_title']}, {row['images']:,} images)"
        for row in none.to_dicts()
    ]
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"No two methods can be told apart on {listed}: {why}."
