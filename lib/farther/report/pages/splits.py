"""The splits of a benchmark: their contents, their similarity to ID, and how their images were chosen."""

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
from farther.curation.seen import SeenUnknown
from farther.report import power, problems
from farther.report.all_results import AllResults
from farther.report.charts import splits as charts
from farther.report.charts.vega import read_csv
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


def write(site: Site, results: AllResults) -> None:
    """Writes the page, and a page of each benchmark."""
    benchmarks, artifacts = results.params["benchmarks"], results.artifacts
    counts = {name: split_counts(name, params, artifacts) for name, params in benchmarks.items()}
    site.write(
        "splits.html",
        benchmarks=counts,
        datasets=_datasets(artifacts),
        doubts=problems.doubts(artifacts, results.params, results.measured),
        warnings=problems.warnings(artifacts, results.params),
        unusable=problems.unusable_images(
            artifacts, results.params, [run.name for run in results.runs]
        ),
    )
    siblings = {f"splits/{name}.html": f"Splits of {name}" for name in benchmarks}
    for name, params in benchmarks.items():
        view = splits_of(name, params, artifacts, results.settings.categories)
        view["sizes"] = power.listing(name, results.sizes)
        site.write(f"splits/{name}.html", "benchmark.html", siblings, view=view)


def splits_of(name: str, params: Mapping[str, Any], artifacts: Path, shown: int) -> dict[str, Any]:
    """Tables and charts of a benchmark's splits; None where a stage did not run yet.

    Args:
        name, params: The benchmark.
        artifacts: The artifacts folder.
        shown: Categories in a chart, and images in a table of doubtful ones.

    Returns:
        Variables of the template `benchmark.html`: `counts` of images and objects (FMIYC, Table 2);
            `seen`: OOD
        categories in ID training images; `similarity` to ID (Figure 3) and `similarity_tables`, the
        same as numbers and the most doubtful images; `fates`, the outcome of each image of the OOD
        sources; images per kind of rule (`reasons`) and per rule (`rules`); the most frequent
        `categories` (Figures 8 and 9).
    """
    folder = artifacts / "splits" / name
    distances = {split: str(settings["distance"]) for split, settings in params["splits"].items()}
    types = {"split": pl.String, "similarity": pl.Float64, "fraction": pl.Float64}
    bins = read_csv(artifacts / "plots" / "similarity" / f"{name}.csv", types)
    files = {split: inside(folder, split) / "objects.parquet" for split in distances}
    counts = {
        split: category_counts(Objects.read(file)) for split, file in files.items() if file.exists()
    }
    return {
        "benchmark": name,
        "counts": split_counts(name, params, artifacts),
        "seen": seen_unknowns(name, folder / "seen_unknowns.json"),
        "similarity": charts.similarity(name, distances, bins) if len(bins) else None,
        "similarity_tables": [
            _similarities(name, distances, artifacts / "counts" / "similarity" / f"{name}.json"),
            _doubtful(name, artifacts / "similarity" / name / "borderline.parquet", shown),
        ],
        "categories": charts.categories(
            distances, {split: of for split, of in counts.items() if len(of)}, shown
        ),
        **(
            _fates(name, folder / "fates.parquet")
            if (folder / "fates.parquet").exists()
            else {"fates": None}
        ),
    }


def split_counts(name: str, params: Mapping[str, Any], artifacts: Path) -> Listing:
    """Images and objects of each split of a benchmark; empty where it is not curated yet."""
    rows = []
    for split in ("train", "val", "test", *params["splits"]):
        folder = inside(artifacts / "splits" / name, split)
        if (folder / "objects.parquet").exists():
            images, objects = (
                Images.read(folder / "images.parquet"),
                Objects.read(folder / "objects.parquet"),
            )
            counts = {"Images": len(images), "Objects": int((~objects.is_unlabelled).sum())}
            rows.append(
                {
                    "Split": title_of_split(split),
                    **counts,
                    "Without boxes": int(objects.is_unlabelled.sum()),
                }
            )
    if not any(row["Without boxes"] for row in rows):
        rows = [
            {name: value for name, value in row.items() if name != "Without boxes"} for row in rows
        ]
    return Listing.of(f"Splits of benchmark {name}.", rows)


def seen_unknowns(name: str, file: Path) -> Listing | None:
    """OOD categories that ID training images show (`farther.curation.seen`); None where it is not known."""
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
    found = (
        "Unknown categories of {} that are annotated"
        if rows
        else "No unknown category of {} is annotated"
    )
    return Listing.of(f"{found.format(name)} in ID training images.", rows)


def _fates(name: str, file: Path) -> dict[str, Any]:
    """Outcome of each image of the OOD sources, as a chart, by reason and by rule."""
    fates = Fates.read(file)
    titles = {
        "ID class": f"removed: {REASONS['ID class']}",
        "overlap": f"removed: {REASONS['overlap']}",
        "near": f"near: {REASONS['near']}",
        NO_NEAR: f"far: {NO_NEAR}",
        NO_OVERLAP: f"farther: {NO_OVERLAP}",
    }
    order = pl.col("kind").replace_strict(
        {kind: k for k, kind in enumerate(KINDS)}, default=len(KINDS)
    )
    reasons = (
        fates.frame.group_by(Source="dataset", kind=rule_kind())
        .agg(Images=pl.len())
        .sort("Source", order, "kind")
    )
    rules = (
        fates.frame.group_by(Source="dataset", Rule="rule")
        .agg(Images=pl.len())
        .sort("Source", "Rule")
    )
    return {
        "fates": charts.image_fates(name, fate_counts(fates)),
        "reasons": Listing(
            f"Reasons for the place of each image in benchmark {name}.",
            reasons.sort("Source", order, "kind").select(
                "Source", pl.col("kind").replace(REASONS | titles).alias("Reason"), "Images"
            ),
        ),
        "rules": Listing(f"Images per rule in benchmark {name}.", rules),
    }


def _similarities(name: str, distances: Mapping[str, str], file: Path) -> Listing:
    rows = [
        {
            "Split": title_of_split(split),
            "Distance": distances.get(split, "ID"),
            "Images": found["images"],
            "Mean": found["similarity"],
            "Median": found["median"],
            "5%": found["low"],
            "95%": found["high"],
            "Suggested elsewhere": found["elsewhere"],
        }
        for split, found in sorted(similarities(file).splits.items())
    ]
    rows.sort(key=lambda row: list(charts.DISTANCE_KEYS).index(str(row["Distance"])))
    return Listing.of(f"Similarity to ID images in {name}.", rows)


def _doubtful(name: str, file: Path, shown: int) -> Listing:
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
    if not file.exists():
        return Listing.of("", [])
    doubtful = (
        pl.read_parquet(file, columns=[*columns]).head(shown).select(*columns).rename(columns)
    )
    return Listing(
        f"The {len(doubtful)} most doubtful images of {name}: they resemble another distance.",
        doubtful,
    )


def _datasets(artifacts: Path) -> Listing:
    """Images and objects of each ingested subset."""
    rows = []
    for file in listed(artifacts / "counts" / "ingest", "*.json"):
        for subset, counts in sorted(read_typed(dict[str, dict[str, int]], file).items()):
            of_subset = {
                kind.title(): counts.get(kind, 0)
                for kind in ("images", "objects", "categories", "warnings")
            }
            rows.append({"Dataset": file.stem, "Subset": subset, **of_subset})
    return Listing.of("Datasets, as ingested.", rows)
