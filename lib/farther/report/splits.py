"""The splits of a benchmark: their contents, their similarity to ID, and how their images were chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from farther.curation import PRECEDENCE, Fates
from farther.curation.fates import NO_NEAR, NO_OVERLAP, REASONS, category_counts, fate_counts, rule_kind
from farther.curation.seen import SeenUnknown
from farther.report.charts import splits as charts
from farther.report.charts.vega import ChartGroup, read_csv
from farther.report.listing import Listing
from farther.report.results import title_of_split
from farther.tables import Images, Objects
from farther.tables.files import inside
from farther.tables.schema import read_typed
from farther.tables.stored import similarities

#: Kinds of rules, those with precedence first.
KINDS = (*PRECEDENCE, "decision", "candidate", NO_NEAR, NO_OVERLAP)


def splits_of(name: str, params: Mapping[str, Any], artifacts: Path, shown: int) -> dict[str, Any]:
    """Tables and charts of a benchmark's splits; None where a stage did not run yet.

    Args:
        name, params: The benchmark.
        artifacts: The artifacts folder.
        shown: Categories in a chart, and images in a table of doubtful ones.

    Returns:
        `counts` of images and objects (FMIYC, Table 2); `seen`: OOD categories in ID training images; `similarity` to
        ID (Figure 3) and `similarity_tables`, the same as numbers and the most doubtful images; `fates`, the outcome of
        each image of the OOD sources; images per kind of rule (`reasons`) and per rule (`rules`); the most frequent
        `categories` (Figures 8 and 9).
    """
    folder = artifacts / "splits" / name
    distances = {split: str(settings["distance"]) for split, settings in params["splits"].items()}
    fates = Fates.read(folder / "fates.parquet") if (folder / "fates.parquet").exists() else None
    return {
        "benchmark": name,
        "counts": split_counts(name, params, artifacts),
        "seen": seen_unknowns(name, artifacts),
        "similarity": _similarity(name, distances, artifacts / "plots" / "similarity" / f"{name}.csv"),
        "similarity_tables": list(_similarity_tables(name, distances, artifacts, shown)),
        "fates": None if fates is None else charts.image_fates(name, fate_counts(fates)),
        "reasons": None if fates is None else _reasons(name, fates.frame),
        "rules": None
        if fates is None
        else Listing(
            f"Images per rule in benchmark {name}.",
            fates.frame.group_by(Source="dataset", Rule="rule").agg(Images=pl.len()).sort("Source", "Rule"),
        ),
        "categories": _categories(distances, folder, shown),
    }


def split_counts(name: str, params: Mapping[str, Any], artifacts: Path) -> Listing | None:
    """Images and objects of each split of a benchmark; None where it is not curated yet."""
    rows = []
    for split in ("train", "val", "test", *params["splits"]):
        folder = inside(artifacts / "splits" / name, split)
        if (folder / "objects.parquet").exists():
            images, objects = Images.read(folder / "images.parquet"), Objects.read(folder / "objects.parquet")
            rows.append({"Split": title_of_split(split), "Images": len(images), "Objects": len(objects)})
    return Listing.of(f"Splits of benchmark {name}.", rows) if rows else None


def seen_unknowns(name: str, artifacts: Path) -> Listing | None:
    """OOD categories that ID training images show (`farther.curation.seen`); None where it is not known."""
    file = artifacts / "splits" / name / "seen_unknowns.json"
    if not file.exists():
        return None
    rows = [
        {
            "Category": one["category"],
            "Objects in ID training images": one["objects"],
            "ID training images": one["images"],
            "Objects in OOD splits": sum(one["splits"].values()),
            "OOD splits": ", ".join(map(title_of_split, one["splits"])),
        }
        for one in read_typed(list[SeenUnknown], file)
    ]
    if not rows:
        return Listing.of(f"No unknown category of {name} is annotated in ID training images.", [])
    return Listing.of(f"Unknown categories of {name} that are annotated in ID training images.", rows)


def _reasons(name: str, fates: pl.DataFrame) -> Listing:
    titles = {
        "ID class": f"removed: {REASONS['ID class']}",
        "overlap": f"removed: {REASONS['overlap']}",
        "near": f"near: {REASONS['near']}",
        NO_NEAR: f"far: {NO_NEAR}",
        NO_OVERLAP: f"farther: {NO_OVERLAP}",
    }
    order = pl.col("kind").replace_strict({kind: k for k, kind in enumerate(KINDS)}, default=len(KINDS))
    counts = fates.group_by(Source="dataset", kind=rule_kind()).agg(Images=pl.len()).sort("Source", order, "kind")
    shown = counts.select("Source", pl.col("kind").replace(REASONS | titles).alias("Reason"), "Images")
    return Listing(f"Reasons for the place of each image in benchmark {name}.", shown)


def _rules(name: str, fates: pl.DataFrame) -> Listing:
    counts = fates.group_by(Source="dataset", Rule="rule").agg(Images=pl.len()).sort("Source", "Rule")
    return Listing(f"Images per rule in benchmark {name}.", counts)


def _categories(distances: Mapping[str, str], folder: Path, shown: int) -> ChartGroup | None:
    files = {split: inside(folder, split) / "objects.parquet" for split in distances}
    counts = {split: category_counts(Objects.read(file)) for split, file in files.items() if file.exists()}
    return charts.categories(distances, {split: found for split, found in counts.items() if len(found)}, shown)


def _similarity(name: str, distances: Mapping[str, str], file: Path) -> ChartGroup | None:
    bins = read_csv(file, {"split": pl.String, "similarity": pl.Float64, "fraction": pl.Float64})
    return charts.similarity(name, distances, bins) if len(bins) else None


def _similarity_tables(name: str, distances: Mapping[str, str], artifacts: Path, shown: int) -> Iterator[Listing]:
    rows = []
    file = artifacts / "counts" / "similarity" / f"{name}.json"
    for split, found in sorted(similarities(file).splits.items()):
        row: dict[str, Any] = {"Split": title_of_split(split), "Distance": distances.get(split, "ID")}
        row |= {"Images": found["images"], "Mean": found["similarity"], "Median": found["median"]}
        row |= {"5%": found["low"], "95%": found["high"], "Suggested elsewhere": found["elsewhere"]}
        rows.append(row)
    if rows:
        rows.sort(key=lambda row: list(charts.DISTANCE_KEYS).index(row["Distance"]))
        yield Listing.of(f"Similarity to ID images in {name}.", rows)
    columns = {
        "image_id": "Image",
        "split": "Split",
        "distance": "Distance",
        "suggested": "Suggested",
        "neighbour": "Nearest ID image",
        "id_class": "Its class",
        "similarity": "Similarity",
        "margin": "Margin",
    }
    file = artifacts / "similarity" / name / "borderline.parquet"
    if file.exists() and len(doubtful := pl.read_parquet(file, columns=[*columns])):
        caption = f"The {min(shown, len(doubtful))} most doubtful images of {name}: they resemble another distance."
        yield Listing(caption, doubtful.head(shown).select(*columns).rename(columns))
