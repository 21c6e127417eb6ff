"""The page of data.

It shows the splits of each benchmark, their similarity to ID, and how images were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from farther.curation import PRECEDENCE, Fates
from farther.curation.fates import (
    NO_NEAR,
    NO_OVERLAP,
    REASONS,
    category_counts,
    fate_counts,
    rule_kind,
)
from farther.curation.seen_unknowns import SeenUnknown
from farther.report import problems
from farther.report.all_results import AllResults
from farther.report.charts import splits as charts
from farther.report.charts.vega import ChartGroup, read_csv
from farther.report.listing import Listing
from farther.report.results import title_of_split
from farther.report.site import Site
from farther.tables import Images, Objects
from farther.tables.files import inside
from farther.tables.folders import listed
from farther.tables.schema import read_typed
from farther.tables.stored import similarities

#: Kinds of rules, those with precedence first.
KINDS = (*PRECEDENCE, "decision", "candidate", NO_NEAR, NO_OVERLAP)

#: Kinds of rules in words that say what became of an image.
KIND_TITLES = {
    "ID class": f"removed: {REASONS['ID class']}",
    "overlap": f"removed: {REASONS['overlap']}",
    "near": f"near: {REASONS['near']}",
    NO_NEAR: f"far: {NO_NEAR}",
    NO_OVERLAP: f"farther: {NO_OVERLAP}",
}

#: Columns of the table of doubtful images → headings.
DOUBTFUL = {
    "image_id": "Image",
    "split": "Split",
    "distance": "Distance",
    "suggested": "Suggested",
    "neighbour": "Nearest ID image",
    "id_class": "Its class",
    "similarity": "Similarity",
    "margin": "Margin",
}

#: Columns of the histograms of similarity.
BINS = {"split": pl.String, "similarity": pl.Float64, "fraction": pl.Float64}


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    benchmarks = results.params["benchmarks"]
    artifacts = results.artifacts
    run_names = [run.name for run in results.runs]
    views = {}
    for name, params in benchmarks.items():
        views[name] = splits_of(name, params, artifacts, results.settings.categories)
    site.write(
        "data.html",
        benchmarks=views,
        datasets=_datasets(artifacts),
        doubts=problems.doubts(artifacts, results.params, results.measured),
        warnings=problems.warnings(artifacts, results.params),
        unusable=problems.unusable_images(artifacts, results.params, run_names),
    )


def splits_of(name: str, params: Mapping[str, Any], artifacts: Path, limit: int) -> dict[str, Any]:
    """Tables and charts of a benchmark's splits; None where a stage did not run yet.

    Args:
        name, params: The benchmark.
        artifacts: The artifacts folder.
        limit: Categories in a chart, and images in a table of doubtful ones.

    Returns:
        Variables of a section of the template `data.html`: `counts` of images and objects (FMIYC,
        Table 2); `seen`, OOD categories in ID training images; `similarity` to ID (Figure 3) and
        `similarity_tables`, the same as numbers and the most doubtful images; `fates`, the outcome
        of each image of the OOD sources; images per kind of rule (`reasons`) and per rule
        (`rules`); the most frequent `categories` (Figures 8 and 9).
    """
    folder = artifacts / "splits" / name
    distances = {split: str(settings["distance"]) for split, settings in params["splits"].items()}
    summary_file = artifacts / "counts" / "similarity" / f"{name}.json"
    doubtful_file = artifacts / "similarity" / name / "borderline.parquet"
    view = {
        "benchmark": name,
        "counts": split_counts(name, params, artifacts),
        "seen": seen_unknowns(name, folder / "seen_unknowns.json"),
        "similarity": _similarity_charts(name, distances, artifacts),
        "similarity_tables": [
            _similarities(name, distances, summary_file),
            _doubtful(name, doubtful_file, limit),
        ],
        "categories": _category_charts(folder, distances, limit),
        "fates": None,
    }
    fates_file = folder / "fates.parquet"
    if fates_file.exists():
        fates = Fates.read(fates_file)
        view["fates"] = charts.image_fates(name, fate_counts(fates))
        view["reasons"] = _reasons(name, fates)
        view["rules"] = _rules(name, fates)
    return view


def _similarity_charts(
    name: str, distances: Mapping[str, str], artifacts: Path
) -> ChartGroup | None:
    """Histograms of similarity to ID images; None where it was not measured yet."""
    bins = read_csv(artifacts / "plots" / "similarity" / f"{name}.csv", BINS)
    if bins.is_empty():
        return None
    return charts.similarity(name, distances, bins)


def _category_charts(folder: Path, distances: Mapping[str, str], limit: int) -> ChartGroup | None:
    """The most frequent categories of each OOD split; None without any.

    Args:
        folder: The benchmark's splits.
        distances: OOD split → its distance from ID.
        limit: Categories in a chart.
    """
    counts_by_split = {}
    for split in distances:
        file = inside(folder, split) / "objects.parquet"
        if file.exists():
            counts = category_counts(Objects.read(file))
            if not counts.is_empty():
                counts_by_split[split] = counts
    return charts.categories(distances, counts_by_split, limit)


def split_counts(name: str, params: Mapping[str, Any], artifacts: Path) -> Listing:
    """Images and objects of each split of a benchmark; empty where it is not curated yet."""
    rows = []
    for split in ("train", "val", "test", *params["splits"]):
        folder = inside(artifacts / "splits" / name, split)
        if not (folder / "objects.parquet").exists():
            continue
        images = Images.read(folder / "images.parquet")
        objects = Objects.read(folder / "objects.parquet")
        without_boxes = int(objects.is_unlabelled.sum())
        row = {
            "Split": title_of_split(split),
            "Images": len(images),
            "Objects": len(objects) - without_boxes,
            "Without boxes": without_boxes,
        }
        rows.append(row)
    if not any(row["Without boxes"] for row in rows):
        for row in rows:
            del row["Without boxes"]
    return Listing.from_rows(f"Splits of benchmark {name}.", rows)


def seen_unknowns(name: str, file: Path) -> Listing | None:
    """OOD categories that ID training images show; None where it is not known.

    See `farther.curation.seen_unknowns`.
    """
    if not file.exists():
        return None
    rows = []
    for category in read_typed(list[SeenUnknown], file):
        splits = category["splits"]
        row = {
            "Category": category["category"],
            "Objects in ID training images": category["objects"],
            "ID training images": category["images"],
            "Objects in OOD splits": sum(splits.values()),
            "OOD splits": ", ".join(title_of_split(split) for split in splits),
        }
        rows.append(row)
    caption = f"No unknown category of {name} is annotated in ID training images."
    if rows:
        caption = f"Unknown categories of {name} that are annotated in ID training images."
    return Listing.from_rows(caption, rows)


def _reasons(name: str, fates: Fates) -> Listing:
    """Images of each OOD source per kind of rule."""
    rank_of_kind = {kind: rank for rank, kind in enumerate(KINDS)}
    order = pl.col("kind").replace_strict(rank_of_kind, default=len(KINDS))
    counts = fates.frame.group_by(Source="dataset", kind=rule_kind()).agg(Images=pl.len())
    reason = pl.col("kind").replace({**REASONS, **KIND_TITLES}).alias("Reason")
    return Listing(
        f"Reasons for the place of each image in benchmark {name}.",
        counts.sort("Source", order, "kind").select("Source", reason, "Images"),
    )


def _rules(name: str, fates: Fates) -> Listing:
    """Images of each OOD source per rule."""
    counts = fates.frame.group_by(Source="dataset", Rule="rule").agg(Images=pl.len())
    return Listing(f"Images per rule in benchmark {name}.", counts.sort("Source", "Rule"))


def _similarities(name: str, distances: Mapping[str, str], file: Path) -> Listing:
    """Similarity of each split to ID images, by distance and name."""
    rows: list[dict[str, Any]] = []
    for split, summary in sorted(similarities(file).splits.items()):
        row = {
            "Split": title_of_split(split),
            "Distance": distances.get(split, "ID"),
            "Images": summary["images"],
            "Mean": summary["similarity"],
            "Median": summary["median"],
            "5%": summary["low"],
            "95%": summary["high"],
            "Suggested elsewhere": summary["elsewhere"],
        }
        rows.append(row)
    order = list(charts.DISTANCE_KEYS)
    rows.sort(key=lambda row: order.index(row["Distance"]))
    return Listing.from_rows(f"Similarity to ID images in {name}.", rows)


def _doubtful(name: str, file: Path, limit: int) -> Listing:
    """The images whose similarity suggests another distance; empty where it was not measured."""
    if not file.exists():
        return Listing.from_rows("", [])
    images = pl.read_parquet(file, columns=list(DOUBTFUL)).head(limit)
    return Listing(
        f"The {len(images)} most doubtful images of {name}: they resemble another distance.",
        images.select(*DOUBTFUL).rename(DOUBTFUL),
    )


def _datasets(artifacts: Path) -> Listing:
    """Images and objects of each ingested subset."""
    rows = []
    for file in listed(artifacts / "counts" / "ingest", "*.json"):
        counts_by_subset = read_typed(dict[str, dict[str, int]], file)
        for subset, counts in sorted(counts_by_subset.items()):
            row = {
                "Dataset": file.stem,
                "Subset": subset,
                "Images": counts.get("images", 0),
                "Objects": counts.get("objects", 0),
                "Categories": counts.get("categories", 0),
                "Warnings": counts.get("warnings", 0),
            }
            rows.append(row)
    return Listing.from_rows("Datasets, as ingested.", rows)
