"""Is a test set large enough? The smallest difference between two methods that its images can show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from farther.evaluation.files import RunFiles
from farther.metrics.catalogue import METRICS
from farther.report.listing import Listing
from farther.report.results import Run, title_of_split
from farther.tables.parquet import read_parquet

#: The metrics: separation, and unknown objects that are found.
SHOWN = ("auroc", "r_u")
#: z of a two-sided test at 5%, plus z of a power of 80% (Cohen, 1988, Statistical Power Analysis, Section 2.5).
Z = 1.960 + 0.842


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


def split_sizes(name: str, runs: Sequence[Run], artifacts: Path) -> Listing:
    """One row per OOD split of a benchmark: the smallest difference, a median over pairs of methods and detectors.

    Args:
        name: The benchmark.
        runs: Its evaluated runs.
        artifacts: The artifacts folder.
    """
    rows = []
    for split in dict.fromkeys(one.name for run in runs for one in run.splits):
        found: dict[str, list[float]] = {metric: [] for metric in SHOWN}
        for run in runs:
            for metric, value in _of_run(run, split, artifacts):
                found[metric].append(value)
        if any(found.values()):
            images = max(run.images(split) for run in runs if any(one.name == split for one in run.splits))
            points: dict[str, Any] = {
                f"{METRICS[metric].title} (%)": float(np.median(values)) if values else None
                for metric, values in found.items()
            }
            rows.append(
                {"Split": title_of_split(split), "Images": images, **points, "Images to show half of it": 4 * images}
            )
    return Listing.of(
        f"The smallest difference between two methods that a split of {name} can show: true differences of this size "
        "(percentage points) are significant in 80% of such test sets. Half of it needs four times the images, of the "
        "ID split too.",
        rows,
    )


def _of_run(run: Run, split: str, artifacts: Path) -> Iterator[tuple[str, float]]:
    """Metric and smallest difference of each pair of methods of a run."""
    files = RunFiles(run.name, run.benchmark, artifacts)
    paths = [files.replicates(method, split) for method in run.methods]
    tables = [read_parquet(path) for path in paths if path.exists()]
    for first, second in combinations([table for table in tables if {*SHOWN} <= {*table.columns}], 2):
        for metric in SHOWN:
            pair = first[metric].to_numpy(), second[metric].to_numpy()
            if np.isfinite(pair).all(axis=0).sum() > 1:
                yield metric, smallest_difference(*pair)
