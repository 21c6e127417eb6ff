"""Tables of FMIYC (Montoya et al., 2025): splits, detectors, and results of methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from farther.curation import Fates
from farther.metrics.catalogue import Metric
from farther.report.charts.vega import read_csv
from farther.report.listing import Listing
from farther.report.papers.table import Paper, PaperTable, Sources, merge_rows
from farther.report.results import OOD, OPEN_SET, Run, title_of_split
from farther.tables import Images

#: The benchmark that Tables 1 and 4 and Figure 3 (a) of the paper are about.
REPLACED = "The paper's values are those of the benchmark that FMIYC replaces; profile vos"

#: Methods in the order of the paper's tables; others follow.
ORDER = (
    "vim",
    "mahalanobis",
    "knn",
    "msp",
    "energy",
    "ash",
    "dice",
    "react",
    "gen",
    "dice_react",
    "ddu",
    "vos",
)

#: Headings that differ from the metric's title.
TITLES = {"auroc": "AUC"}

#: Columns of Tables 14 to 25.
OUTCOMES = tuple(metric for metric in OPEN_SET if metric.name != "missed")


def tables(sources: Sources) -> list[PaperTable]:
    """Tables 1 to 6 and 8 to 25, and Figure 3 in numbers."""
    return [
        _no_detection_table(sources),
        _similarity_table(sources),
        PaperTable(
            "Table 2",
            "Number of images",
            [Listing.from_rows("Number of images in each OOD split.", _image_rows(sources))],
        ),
        _quality_table(sources),
        _overlap_table(sources),
        _categories_table(sources),
        PaperTable(
            "Tables 8 to 13",
            "AUROC and FPR95",
            [_results(run, OOD, "detections") for run in sources.detectors],
            "In the paper's order of methods. Beside printed values: page Papers, where a run "
            "has a counterpart. With intervals and the best marked: the detectors' pages.",
        ),
        PaperTable(
            "Tables 14 to 25",
            "Open-set metrics",
            [_results(run, OUTCOMES, "objects") for run in sources.detectors],
        ),
    ]


def _no_detection_table(sources: Sources) -> PaperTable:
    """Table 1: share of the images of each split without a detection."""
    printed = sources.printed(
        "fmiyc_no_detection.csv", ("detector", "id", "ood"), ("no_detection",)
    )
    printed_rows = []
    for detector, id_dataset, ood, share in printed.iter_rows():
        printed_rows.append({"Model": detector, f"ID {id_dataset}: {ood} (%)": share})
    caption = "Share of the images without a detection at or above t*."
    return PaperTable(
        "Table 1",
        "Images without a detection",
        [
            Listing.from_rows(caption, merge_rows(_no_detection_rows(sources, printed), "Model")),
            Listing.from_rows("As printed.", merge_rows(printed_rows, "Model")),
        ],
        f"{REPLACED} has the images.",
    )


def _no_detection_rows(sources: Sources, printed: pl.DataFrame) -> Iterator[dict[str, Any]]:
    printed_shares = {}
    for detector, id_dataset, ood, share in printed.iter_rows():
        printed_shares[detector, id_dataset, ood] = share

    for run in sources.detectors:
        for split in run.splits:
            heading = f"ID {run.known_title}: {split.title}"
            images = run.images(split.name)
            yield {
                "Model": run.title,
                f"{heading}, {images:,} images (%)": run.no_detection(split.name),
            }
            # Printed for the splits of the benchmark that the paper measured.
            printed_share = printed_shares.get((*sources.counterpart(run), split.name))
            if printed_share is not None:
                yield {"Model": run.title, f"{heading}, as printed (%)": printed_share}


def _similarity_table(sources: Sources) -> PaperTable:
    """Figure 3: mean similarity of each split to ID images."""
    caption = (
        "Largest cosine of each image's CLIP embedding to that of an ID image: (a) the benchmark "
        "that FMIYC replaces, (b) its own. The paper draws histograms without numbers: see page "
        "Data for these."
    )
    return PaperTable(
        "Figure 3",
        "Similarity of the splits to ID images",
        [Listing.from_rows(caption, _similarity_rows(sources))],
    )


def _similarity_rows(sources: Sources) -> Iterator[dict[str, Any]]:
    columns = {"split": pl.String, "similarity": pl.Float64, "fraction": pl.Float64}
    mean = pl.col("similarity").dot("fraction") / pl.col("fraction").sum()
    for name, title in sources.benchmarks.items():
        histogram = read_csv(sources.artifacts / "plots" / "similarity" / f"{name}.csv", columns)
        means = histogram.group_by("split", maintain_order=True).agg(mean)
        for split, similarity in means.iter_rows():
            yield {
                "ID": title,
                "Split": title_of_split(split),
                "Mean of the largest cosine": similarity,
            }


def _image_rows(sources: Sources) -> Iterator[dict[str, Any]]:
    """Table 2: number of images in each OOD split."""
    printed = sources.printed("fmiyc_images.csv", ("id", "ood"), ("images",))
    printed_counts = {}
    for id_dataset, ood, count in printed.iter_rows():
        printed_counts[id_dataset, ood] = int(count)

    for name, title in sources.benchmarks.items():
        for split in sources.params["benchmarks"][name]["splits"]:
            file = sources.artifacts / "splits" / name / split / "images.parquet"
            if not file.exists():
                continue
            yield {
                "ID": title,
                "OOD": title_of_split(split),
                "Images": len(Images.read(file)),
                "As printed": printed_counts.get((name, split)),
            }


def _quality_table(sources: Sources) -> PaperTable:
    """Table 3: mAP of each detector."""
    caption = (
        "mAP over IoU 0.50 … 0.95 on the ID test images. The printed values are of real images."
    )
    return PaperTable(
        "Table 3",
        "mAP of the detectors",
        [Listing.from_rows(caption, merge_rows(_quality_rows(sources), "Model"))],
    )


def _quality_rows(sources: Sources) -> Iterator[dict[str, Any]]:
    printed = sources.printed("fmiyc_map.csv", ("detector", "id"), ("map",))
    printed_map = {}
    for detector, id_dataset, quality in printed.iter_rows():
        printed_map[detector, id_dataset] = quality

    for run in sources.detectors:
        images = run.images(run.id_split)
        yield {
            "Model": run.title,
            f"{run.known_title}, {images:,} images (%)": run.detector.get("map"),
            f"{run.known_title}, as printed (%)": printed_map.get(sources.counterpart(run)),
        }


def _overlap_table(sources: Sources) -> PaperTable:
    """Table 4: OOD images that show ID classes."""
    printed = sources.printed("fmiyc_overlap.csv", ("id_class",), ("images",))
    printed_counts = printed.select(
        pl.col("id_class").alias("ID class"), Images=pl.col("images").cast(pl.Int64)
    )
    caption = "Number of images of the OOD sources that contain ID classes, or parts of them."
    return PaperTable(
        "Table 4",
        "OOD images that show ID classes",
        [
            Listing.from_rows(caption, _overlap_rows(sources)),
            Listing("As printed, for VOC.", printed_counts),
        ],
        f"Removed by the rules, so that they are in no split. {REPLACED} has the images. The "
        "authors looked at these, and so counted unlabelled objects too.",
    )


def _overlap_rows(sources: Sources) -> Iterator[dict[str, Any]]:
    for title, assignments in _assigned_by_rules(sources):
        removed = assignments.filter(pl.col("kind").is_in(["ID class", "overlap"]))
        counts = removed.group_by("known").agg(images=pl.len())
        counts = counts.sort("images", "known", descending=[True, False])
        for id_class, images in counts.iter_rows():
            yield {"ID dataset": title, "ID class": id_class, "Images": images}


def _categories_table(sources: Sources) -> PaperTable:
    """Tables 5 and 6: categories that overlap with ID classes, and those that are near to them."""
    captions = {
        "overlap": "Table 5: overlapping categories in each OOD dataset.",
        "near": "Table 6: near categories in each OOD dataset.",
    }
    listings = []
    for kind, caption in captions.items():
        rows = merge_rows(_category_rows(sources, kind), "ID dataset", "ID class")
        listings.append(Listing.from_rows(caption, rows))
    return PaperTable(
        "Tables 5 and 6",
        "Categories that overlap with ID classes, and that are near to them",
        listings,
        "Those that rules placed images by.",
    )


def _category_rows(sources: Sources, kind: str) -> Iterator[dict[str, Any]]:
    """Categories of a kind of rule: one row per ID class and dataset."""
    for title, assignments in _assigned_by_rules(sources):
        categories_of_class = (
            assignments.filter(kind=kind)
            .group_by("known", "dataset")
            .agg(pl.col("category").unique().sort())
            .sort("known", "dataset")
        )
        for id_class, dataset, categories in categories_of_class.iter_rows():
            yield {"ID dataset": title, "ID class": id_class, dataset: ", ".join(categories)}


def _assigned_by_rules(sources: Sources) -> Iterator[tuple[str, pl.DataFrame]]:
    """Title of each curated benchmark, and one row per image of its OOD sources.

    The columns are dataset, kind (of the rule that assigned the image to a split), category and
    known (the ID class); the last three are null where it was not a rule about a category.
    """
    rule_parts = pl.col("rule").str.extract_groups(
        r"^(?<kind>[^:]+): (?<category>.+?) → (?<known>.+)$"
    )
    for name, title in sources.benchmarks.items():
        file = sources.artifacts / "splits" / name / "fates.parquet"
        if file.exists():
            fates = Fates.read(file).frame
            yield title, fates.select("dataset", rule_parts.alias("parts")).unnest("parts")


def _results(run: Run, metrics: Sequence[Metric], counted: str) -> Listing:
    """Results of a run: one row per method, one column per split and metric.

    Args:
        run: The run.
        metrics: The metrics.
        counted: Column of `Run.values` whose number of each split is in the caption.
    """
    headings = {}
    for metric in metrics:
        title = TITLES.get(metric.name, metric.title)
        headings[metric.name] = f"{title}\N{NO-BREAK SPACE}{metric.arrow} (%)"
    position_in_paper = {name: position for position, name in enumerate(ORDER)}

    values = run.values.filter(pl.col("metric").is_in(list(headings)))
    heading = pl.concat_str("split_title", pl.col("metric").replace_strict(headings), separator=" ")
    rows = (
        values.with_columns(heading=heading)
        .pivot("heading", index=["method", "label"], values="value")
        .sort(
            pl.col("method").replace_strict(position_in_paper, default=len(ORDER)),
            maintain_order=True,
        )
        .drop("method")
        .rename({"label": "Method"})
    )
    count_by_split = dict(values.drop_nulls(counted).select("split_title", counted).iter_rows())
    counts = "; ".join(f"{split}: {count:,} {counted}" for split, count in count_by_split.items())
    return Listing(f"{run.title} (ID: {run.known_title}). {counts}.", rows)


PAPER = Paper(
    "fmiyc",
    "FindMeIfYouCan",
    "Montoya et al., 2025: FindMeIfYouCan: Bringing Open Set metrics to near, far and farther "
    "Out-of-Distribution Object Detection. arXiv:2506.14008",
    tables,
    {
        "Table 7": "a summary of the metrics in words: see farther list metrics",
        "Table 26": "hyperparameters of training: see the recipes in training/",
    },
)
