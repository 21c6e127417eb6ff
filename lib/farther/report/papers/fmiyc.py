"""Tables of FMIYC (Montoya et al., 2025): images without detections, sizes, quality, overlap, and results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from farther.curation import Fates
from farther.metrics.catalogue import Metric
from farther.report.charts.vega import read_csv
from farther.report.listing import Listing
from farther.report.papers.table import Paper, PaperTable, Sources, joined
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
    table_1 = sources.printed(
        "fmiyc_no_detection.csv", ("detector", "id", "ood"), ("no_detection",)
    ).rows()
    printed = ({"Model": name, f"ID {id_}: {ood} (%)": share} for name, id_, ood, share in table_1)
    without_detection = "Share of the images without a detection at or above t*."
    similarity = (
        "Largest cosine of each image's CLIP embedding to that of an ID image: (a) the benchmark that FMIYC replaces, "
        "(b) its own. The paper draws histograms without numbers: see page Splits for these."
    )
    quality = (
        "mAP over IoU 0.50 … 0.95 on the ID test images. The printed values are of real images."
    )
    overlap = "Number of images of the OOD sources that contain ID classes, or parts of them."
    printed_overlap = sources.printed("fmiyc_overlap.csv", ("id_class",), ("images",)).cast(
        {"images": pl.Int64}
    )
    categories = {
        "overlap": "Table 5: overlapping categories in each OOD dataset.",
        "near": "Table 6: near categories in each OOD dataset.",
    }
    return [
        PaperTable(
            "Table 1",
            "Images without a detection",
            [
                Listing.of(without_detection, joined(_no_detection(sources, table_1), "Model")),
                Listing.of(
                    "As printed.",
                    joined(printed, "Model"),
                ),
            ],
            f"{REPLACED} has the images.",
        ),
        PaperTable(
            "Figure 3",
            "Similarity of the splits to ID images",
            [Listing.of(similarity, _similarity(sources))],
        ),
        PaperTable(
            "Table 2",
            "Number of images",
            [Listing.of("Number of images in each OOD split.", _images(sources))],
        ),
        PaperTable(
            "Table 3",
            "mAP of the detectors",
            [Listing.of(quality, joined(_quality(sources), "Model"))],
        ),
        PaperTable(
            "Table 4",
            "OOD images that show ID classes",
            [
                Listing.of(overlap, _overlap(sources)),
                Listing(
                    "As printed, for VOC.",
                    printed_overlap.select(
                        pl.col("id_class").alias("ID class"), Images=pl.col("images").cast(pl.Int64)
                    ),
                ),
            ],
            f"Removed by the rules, so that they are in no split. {REPLACED} has the images. The authors looked "
            "at these, and so counted unlabelled objects too.",
        ),
        PaperTable(
            "Tables 5 and 6",
            "Categories that overlap with ID classes, and that are near to them",
            [
                Listing.of(caption, joined(_categories(sources, kind), "ID dataset", "ID class"))
                for kind, caption in categories.items()
            ],
            "Those that rules placed images by.",
        ),
        PaperTable(
            "Tables 8 to 13",
            "AUROC and FPR95",
            [_results(run, OOD, "detections") for run in sources.detectors],
            "In the paper's order of methods. Beside printed values: page Published, where a run has a counterpart. "
            "With intervals and the best marked: the detectors' pages.",
        ),
        PaperTable(
            "Tables 14 to 25",
            "Open-set metrics",
            [_results(run, OUTCOMES, "objects") for run in sources.detectors],
        ),
    ]


def _no_detection(sources: Sources, printed: list[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    theirs = {tuple(place): share for *place, share in printed}
    for run in sources.detectors:
        for split in run.splits:
            head = f"ID {run.known_title}: {split.title}"
            share = run.no_detection(split.name)
            yield {"Model": run.title, f"{head}, {run.images(split.name):,} images (%)": share}
            # Printed for the splits of the benchmark that the paper measured.
            if (value := theirs.get((*sources.counterpart(run), split.name))) is not None:
                yield {"Model": run.title, f"{head}, as printed (%)": value}


def _similarity(sources: Sources) -> Iterator[dict[str, Any]]:
    for name, title in sources.benchmarks.items():
        file = sources.artifacts / "plots" / "similarity" / f"{name}.csv"
        bins = read_csv(
            file, {"split": pl.String, "similarity": pl.Float64, "fraction": pl.Float64}
        )
        mean = pl.col("similarity").dot("fraction") / pl.col("fraction").sum()
        for split, value in bins.group_by("split", maintain_order=True).agg(mean).iter_rows():
            yield {"ID": title, "Split": title_of_split(split), "Mean of the largest cosine": value}


def _images(sources: Sources) -> Iterator[dict[str, Any]]:
    printed = sources.printed("fmiyc_images.csv", ("id", "ood"), ("images",))
    theirs = {(id_, ood): int(images) for id_, ood, images in printed.iter_rows()}
    for name, title in sources.benchmarks.items():
        for split in sources.params["benchmarks"][name]["splits"]:
            file = sources.artifacts / "splits" / name / split / "images.parquet"
            if file.exists():
                row = {"ID": title, "OOD": title_of_split(split), "Images": len(Images.read(file))}
                yield {**row, "As printed": theirs.get((name, split))}


def _quality(sources: Sources) -> Iterator[dict[str, Any]]:
    printed = sources.printed("fmiyc_map.csv", ("detector", "id"), ("map",))
    theirs = {(detector, id_): quality for detector, id_, quality in printed.iter_rows()}
    for run in sources.detectors:
        images = run.images(run.id_split)
        yield {
            "Model": run.title,
            f"{run.known_title}, {images:,} images (%)": run.detector.get("map"),
            f"{run.known_title}, as printed (%)": theirs.get(sources.counterpart(run)),
        }


def _fates(sources: Sources) -> Iterator[tuple[str, pl.DataFrame]]:
    """Title of each benchmark, and dataset, kind of rule, category and known class of each image that a rule placed."""
    for name, title in sources.benchmarks.items():
        file = sources.artifacts / "splits" / name / "fates.parquet"
        if file.exists():
            parts = pl.col("rule").str.extract_groups(
                r"^(?<kind>[^:]+): (?<category>.+?) → (?<known>.+)$"
            )
            yield (
                title,
                Fates.read(file).frame.select("dataset", parts.alias("parts")).unnest("parts"),
            )


def _overlap(sources: Sources) -> Iterator[dict[str, Any]]:
    for title, fates in _fates(sources):
        removed = (
            fates.filter(pl.col("kind").is_in(["ID class", "overlap"]))
            .group_by("known")
            .agg(images=pl.len())
        )
        for known, images in removed.sort("images", "known", descending=[True, False]).iter_rows():
            yield {"ID dataset": title, "ID class": known, "Images": images}


def _categories(sources: Sources, kind: str) -> Iterator[dict[str, Any]]:
    for title, fates in _fates(sources):
        found = (
            fates.filter(kind=kind)
            .group_by("known", "dataset")
            .agg(pl.col("category").unique().sort())
        )
        for known, dataset, categories in found.sort("known", "dataset").iter_rows():
            yield {"ID dataset": title, "ID class": known, dataset: ", ".join(categories)}


def _results(run: Run, metrics: tuple[Metric, ...], counted: str) -> Listing:
    heads = {
        m.name: f"{TITLES.get(m.name, m.title)}\N{NO-BREAK SPACE}{m.arrow} (%)" for m in metrics
    }
    cells = run.values.filter(pl.col("metric").is_in(list(heads)))
    place = pl.col("method").replace_strict(
        {name: n for n, name in enumerate(ORDER)}, default=len(ORDER)
    )
    rows = (
        cells.with_columns(
            head=pl.concat_str("split_title", pl.col("metric").replace_strict(heads), separator=" ")
        )
        .pivot("head", index=["method", "label"], values="value")
        .sort(place, maintain_order=True)
        .drop("method")
        .rename({"label": "Method"})
    )
    counts = dict(cells.drop_nulls(counted).select("split_title", counted).iter_rows())
    numbers = "; ".join(f"{split}: {count:,} {counted}" for split, count in counts.items())
    return Listing(f"{run.title} (ID: {run.known_title}). {numbers}.", rows)


PAPER = Paper(
    "fmiyc",
    "FindMeIfYouCan",
    "Montoya et al., 2025: FindMeIfYouCan: Bringing Open Set metrics to near, far and farther Out-of-Distribution "
    "Object Detection. arXiv:2506.14008",
    tables,
    {
        "Table 7": "a summary of the metrics in words: see docs/metrics.md",
        "Table 26": "hyperparameters of training: see the recipes in training/",
    },
)
