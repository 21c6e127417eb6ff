"""What the splits of a benchmark hold, how near they are to ID, and how their images were chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.curation.counts import category_counts, fate_counts
from farther.curation.fates import Fates
from farther.report.charts import splits as charts
from farther.report.charts.parts import Figures, read_rows
from farther.report.overview import Listing
from farther.tables import Objects
from farther.tables.files import inside, read_json


@dataclass(frozen=True)
class SplitsView:
    """The figures of a benchmark's splits; None where the pipeline has not got so far.

    Args:
        benchmark: Its name.
        fates: What became of each image of the OOD sources.
        similarity: How near the images of each split are to ID (FMIYC, Figure 3).
        similarity_figures: The same as numbers, and the most doubtful images.
        categories: The most frequent categories of each OOD split (FMIYC, Figures 8 and 9).
    """

    benchmark: str
    fates: Figures | None
    similarity: Figures | None
    similarity_figures: tuple[Listing, ...]
    categories: Figures | None


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
        similarity_figures=tuple(_similarity_figures(name, distances, artifacts, shown)),
        categories=_categories(distances, folder, shown),
    )


def _fates(name: str, file: Path) -> Figures | None:
    counts = fate_counts(Fates.read(file)) if file.exists() else []
    return charts.image_fates(name, counts) if counts else None


def _categories(distances: Mapping[str, str], folder: Path, shown: int) -> Figures | None:
    files = {split: inside(folder, split) / "objects.parquet" for split in distances}
    found = {split: category_counts(Objects.read(file)) for split, file in files.items() if file.exists()}
    counts = {split: one for split, one in found.items() if one}
    return charts.categories(distances, counts, shown) if counts else None


def _similarity(name: str, distances: Mapping[str, str], file: Path) -> Figures | None:
    rows: dict[str, list[tuple[float, float]]] = {}
    for split, bin_ in read_rows(
        file,
        "split, similarity and fraction, the last two numbers",
        lambda line: (line["split"], (float(line["similarity"]), float(line["fraction"]))),
    ):
        rows.setdefault(split, []).append(bin_)
    return charts.similarity(name, distances, rows) if rows else None


def _similarity_figures(name: str, distances: Mapping[str, str], artifacts: Path, shown: int) -> Iterator[Listing]:
    folder = artifacts / "metrics" / "similarity" / name
    rows = []
    for file in sorted(folder.glob("*.json")):
        figures = read_json(file)
        if file.stem != "similarity":
            numbers = (f"{figures[key]:.3f}" for key in ("similarity", "median", "low", "high"))
            shares = (f"{figures['images']:,}", *numbers, f"{figures['elsewhere']:,}")
            rows.append((file.stem.replace("_", " "), distances.get(file.stem, "ID"), *shares))
    if rows:
        order = list(charts.DISTANCE_KEYS)
        rows.sort(key=lambda row: order.index(row[1]))
        heads = ("Split", "Distance", "Images", "Mean", "Median", "5%", "95%", "Suggested elsewhere")
        yield Listing(f"Similarity to ID images in {name}.", heads, tuple(rows), numbers=6)
    yield from _borderline(name, artifacts / "plots" / "similarity" / name / "borderline.csv", shown)


def _borderline(name: str, file: Path, shown: int) -> Iterator[Listing]:
    columns = ("image_id", "split", "distance", "suggested", "neighbour", "id_class")
    expected = f"{', '.join(columns)}, and the numbers similarity and margin"
    numbers = ("similarity", "margin")
    rows = list(
        read_rows(
            file,
            expected,
            lambda line: (*(line[key] for key in columns), *(f"{float(line[key]):.3f}" for key in numbers)),
        )
    )
    if rows:
        heads = ("Image", "Split", "Distance", "Suggested", "Nearest ID image", "Its class", "Similarity", "Margin")
        caption = f"The {min(shown, len(rows))} most doubtful images of {name}: they look as if they stood elsewhere."
        yield Listing(caption, heads, tuple(rows[:shown]), numbers=2)
