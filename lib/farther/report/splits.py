"""What the splits of a benchmark hold, how near they are to ID, and how their images were chosen."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.curation.counts import category_counts, fate_counts
from farther.curation.fates import Fates
from farther.errors import DataError
from farther.report import charts
from farther.tables import Objects
from farther.tables.files import inside


@dataclass(frozen=True)
class SplitsView:
    """The figures of a benchmark's splits; None where the pipeline has not got so far.

    Args:
        benchmark: Its name.
        fates: What became of each image of the OOD sources.
        similarity: How near the images of each split are to ID (FMIYC, Figure 3).
        categories: The most frequent categories of each OOD split (FMIYC, Figures 8 and 9).
    """

    benchmark: str
    fates: charts.Figures | None
    similarity: charts.Figures | None
    categories: charts.Figures | None


def splits_of(name: str, params: Mapping[str, Any], artifacts: Path, shown: int) -> SplitsView:
    """The figures of a benchmark's splits.

    Args:
        name: The benchmark.
        params: Its parameters.
        artifacts: The folder that the stages write.
        shown: Categories a figure shows.

    Raises:
        DataError: a file that is there is damaged.
    """
    folder = artifacts / "splits" / name
    distances = {split: str(one["distance"]) for split, one in params["splits"].items()}
    return SplitsView(
        benchmark=name,
        fates=_fates(name, folder / "fates.parquet"),
        similarity=_similarity(name, distances, artifacts / "plots" / "similarity" / name / "histogram.csv"),
        categories=_categories(distances, folder, shown),
    )


def _fates(name: str, file: Path) -> charts.Figures | None:
    counts = fate_counts(Fates.read(file)) if file.exists() else []
    return charts.image_fates(name, counts) if counts else None


def _categories(distances: Mapping[str, str], folder: Path, shown: int) -> charts.Figures | None:
    files = {split: inside(folder, split) / "objects.parquet" for split in distances}
    found = {split: category_counts(Objects.read(file)) for split, file in files.items() if file.exists()}
    counts = {split: one for split, one in found.items() if one}
    return charts.categories(distances, counts, shown) if counts else None


def _similarity(name: str, distances: Mapping[str, str], file: Path) -> charts.Figures | None:
    if not file.exists():
        return None
    rows: dict[str, list[tuple[float, float]]] = {}
    with file.open(newline="", encoding="utf-8") as lines:
        for row, line in enumerate(csv.DictReader(lines)):
            try:
                rows.setdefault(line["split"], []).append((float(line["similarity"]), float(line["fraction"])))
            except (KeyError, TypeError, ValueError):
                problem = "expected split, similarity and fraction, the last two numbers"
                raise DataError(problem, file=file, row=row) from None
    return charts.similarity(name, distances, rows) if rows else None
