"""Tables of FMIYC (Montoya et al., 2025): images without detections, sizes, quality, overlap, and results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from farther.curation import Fates
from farther.report.charts.vega import read_csv
from farther.report.listing import Listing
from farther.report.papers.table import PaperTable, Sources, listing
from farther.report.results import OOD, OPEN_SET, Run
from farther.tables import Images

ABSENT = {
    "Table 7": "a summary of the metrics in words: see docs/metrics.md",
    "Table 26": "hyperparameters of training: see the recipes in training/",
}

#: The benchmark that Tables 1 and 4 and Figure 3 (a) of the paper are about.
REPLACED = "The paper's values are those of the benchmark that FMIYC replaces; profile vos"

#: Methods in the order of the paper's tables; others follow.
ORDER = ("vim", "mahalanobis", "knn", "msp", "energy", "ash", "dice", "react", "gen", "dice_react", "ddu", "vos")

#: Headings that differ from the metric's title.
TITLES = {"auroc": "AUC"}

#: Columns of Tables 8 to 13 and of Tables 14 to 25.
COLUMNS = {"Tables 8 to 13": OOD, "Tables 14 to 25": tuple(metric for metric in OPEN_SET if metric.name != "missed")}


def tables(sources: Sources) -> list[PaperTable]:
    """Tables 1 to 6 and 8 to 25, and Figure 3 in numbers."""
    return [
        PaperTable(
            "Table 1",
            "Images without a detection",
            [*_no_detection(sources), *_printed_no_detection(sources)],
            f"{REPLACED} has the images.",
        ),
        PaperTable("Figure 3", "Similarity of the splits to ID images", _similarity(sources)),
        PaperTable("Table 2", "Number of images", _images(sources)),
        PaperTable("Table 3", "mAP of the detectors", _quality(sources)),
        PaperTable(
            "Table 4",
            "OOD images that show ID classes",
            [*_overlap(sources), *_printed_overlap(sources)],
            f"Removed by the rules, so that they are in no split. {REPLACED} has the images. The authors looked "
            "at these, and so counted unlabelled objects too.",
        ),
        PaperTable(
            "Tables 5 and 6",
            "Categories that overlap with ID classes, and that are near to them",
            list(_categories(sources)),
            "Those that rules placed images by.",
        ),
        PaperTable(
            "Tables 8 to 13",
            "AUROC and FPR95",
            [_results(run, "Tables 8 to 13") for run in sources.detectors],
            "In the paper's order of methods. Beside printed values: page Published, where a run has a counterpart. "
            "With intervals and the best marked: the detectors' pages.",
        ),
        PaperTable(
            "Tables 14 to 25",
            "Open-set metrics",
            [_results(run, "Tables 14 to 25") for run in sources.detectors],
        ),
    ]


def _no_detection(sources: Sources) -> list[Listing]:
    theirs = {(one["detector"], one["id"], one["ood"]): one["no_detection"] for one in _table_1(sources)}
    rows: dict[str, dict[str, Any]] = {}
    for run in sources.detectors:
        counterpart = sources.published.get(run.name)
        row = rows.setdefault(run.title, {"Model": run.title})
        for split in run.splits:
            head = f"ID {run.known_title}: {split.title}"
            row[f"{head}, {run.images(split.name):,} images (%)"] = run.no_detection(split.name)
            value = counterpart and theirs.get((counterpart.detector, counterpart.id, split.name))
            if value is not None:  # a split of the benchmark that the paper measured
                row[f"{head}, as printed (%)"] = value
    return listing("Share of the images without a detection at or above t*.", list(rows.values()))


def _table_1(sources: Sources) -> list[dict[str, Any]]:
    return sources.printed("fmiyc_no_detection.csv", ("detector", "id", "ood"), ("no_detection",)).to_dicts()


def _similarity(sources: Sources) -> list[Listing]:
    rows = []
    for name, params in sources.params["benchmarks"].items():
        file = sources.artifacts / "plots" / "similarity" / name / "histogram.csv"
        bins = read_csv(file, {"split": pl.String, "similarity": pl.Float64, "fraction": pl.Float64})
        mean = pl.col("similarity").dot("fraction") / pl.col("fraction").sum()
        for split, value in bins.group_by("split", maintain_order=True).agg(mean).iter_rows():
            title = params.get("title") or name
            rows.append({"ID": title, "Split": split.replace("_", " "), "Mean of the largest cosine": value})
    caption = (
        "Largest cosine of each image's CLIP embedding to that of an ID image: (a) the benchmark that FMIYC replaces, "
    )
    caption += "(b) its own. The paper draws histograms without numbers: see page Splits for these."
    return listing(caption, rows)


def _printed_no_detection(sources: Sources) -> list[Listing]:
    rows: dict[str, dict[str, Any]] = {}
    for one in _table_1(sources):
        row = rows.setdefault(one["detector"], {"Model": one["detector"]})
        row[f"ID {one['id']}: {one['ood']} (%)"] = one["no_detection"]
    return listing("As printed.", list(rows.values()))


def _images(sources: Sources) -> list[Listing]:
    printed = sources.printed("fmiyc_images.csv", ("id", "ood"), ("images",))
    theirs = {(one["id"], one["ood"]): int(one["images"]) for one in printed.iter_rows(named=True)}
    rows = []
    for name, params in sources.params["benchmarks"].items():
        for split in params["splits"]:
            file = sources.artifacts / "splits" / name / split / "images.parquet"
            if file.exists():
                row = {
                    "ID": params.get("title") or name,
                    "OOD": split.replace("_", " "),
                    "Images": len(Images.read(file)),
                }
                rows.append({**row, "As printed": theirs.get((name, split))})
    return listing("Number of images in each OOD split.", rows)


def _quality(sources: Sources) -> list[Listing]:
    printed = sources.printed("fmiyc_map.csv", ("detector", "id"), ("map",))
    theirs = {(one["detector"], one["id"]): one["map"] for one in printed.iter_rows(named=True)}
    rows: dict[str, dict[str, Any]] = {}
    for run in sources.detectors:
        counterpart = sources.published.get(run.name)
        row = rows.setdefault(run.title, {"Model": run.title})
        counts = run.evaluation.get("splits", {}).get(run.evaluation.get("settings", {}).get("id_split"), {})
        row[f"{run.known_title}, {counts.get('images', 0):,} images (%)"] = run.detector.get("map")
        value = counterpart and theirs.get((counterpart.detector, counterpart.id))
        row[f"{run.known_title}, as printed (%)"] = value
    caption = "mAP over IoU 0.50 … 0.95 on the ID test images. The printed values are of real images."
    return listing(caption, list(rows.values()))


def _fates(sources: Sources) -> Iterator[tuple[str, pl.DataFrame]]:
    for name, params in sources.params["benchmarks"].items():
        file = sources.artifacts / "splits" / name / "fates.parquet"
        if file.exists():
            parts = pl.col("rule").str.extract_groups(r"^(?<kind>[^:]+): (?<category>.+?) → (?<known>.+)$")
            yield (
                params.get("title") or name,
                Fates.read(file).frame.select("dataset", parts.alias("parts")).unnest("parts"),
            )


def _overlap(sources: Sources) -> list[Listing]:
    rows = []
    for title, fates in _fates(sources):
        removed = fates.filter(pl.col("kind").is_in(["ID class", "overlap"])).group_by("known").agg(images=pl.len())
        for known, images in removed.sort("images", "known", descending=[True, False]).iter_rows():
            rows.append({"ID dataset": title, "ID class": known, "Images": images})
    return listing("Number of images of the OOD sources that contain ID classes, or parts of them.", rows)


def _printed_overlap(sources: Sources) -> list[Listing]:
    printed = sources.printed("fmiyc_overlap.csv", ("id_class",), ("images",))
    rows = [{"ID class": one["id_class"], "Images": int(one["images"])} for one in printed.iter_rows(named=True)]
    return listing("As printed, for VOC.", rows)


def _categories(sources: Sources) -> Iterator[Listing]:
    for kind, caption in (
        ("overlap", "Table 5: overlapping categories in each OOD dataset."),
        ("near", "Table 6: near categories in each OOD dataset."),
    ):
        rows: dict[tuple[str, str], dict[str, str]] = {}
        for title, fates in _fates(sources):
            found = fates.filter(kind=kind).group_by("known", "dataset").agg(pl.col("category").unique().sort())
            for known, dataset, categories in found.sort("known", "dataset").iter_rows():
                row = rows.setdefault((title, known), {"ID dataset": title, "ID class": known})
                row[dataset] = ", ".join(categories)
        yield from listing(caption, list(rows.values()))


def _results(run: Run, number: str) -> Listing:
    order = sorted(run.methods, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    values = {(row["split"], row["method"], row["metric"]): row["value"] for row in run.values.iter_rows(named=True)}
    splits = [split for split in run.splits if any(split.name == key[0] for key in values)]
    shown = ((metric.name, TITLES.get(metric.name, metric.title), metric.arrow) for metric in COLUMNS[number])
    heads = {name: f"{title}\N{NO-BREAK SPACE}{arrow}" for name, title, arrow in shown}
    rows = []
    for method in order:
        row: dict[str, Any] = {"Method": run.label(method)}
        for split in splits:
            row |= {f"{split.title} {head} (%)": values.get((split.name, method, name)) for name, head in heads.items()}
        rows.append(row)
    counted = "detections" if COLUMNS[number] == OOD else "objects"
    counts = {row["split_title"]: row[counted] for row in run.values.iter_rows(named=True)}
    numbers = "; ".join(f"{split}: {count:,} {counted}" for split, count in counts.items() if count is not None)
    return Listing.of(f"{run.title} (ID: {run.known_title}). {numbers}.", rows)
