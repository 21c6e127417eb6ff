"""Charts of splits: outcome of each source image, categories, and similarity to ID."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from farther.report.charts import vega as vl
from farther.report.results import title_of_split

#: Distance of an image from ID → legend.
DISTANCE_KEYS = {
    "ID": vl.Key("ID", "#000000", "■"),
    "near": vl.Key("near", "#D55E00", "■"),
    "far": vl.Key("far", "#0072B2", "■"),
    "farther": vl.Key("farther", "#009E73", "■"),
    "removed": vl.Key("removed", "#BDBDBD", "■"),
}


def image_fates(benchmark: str, counts: pl.DataFrame) -> vl.ChartGroup:
    """Outcome of the images of each OOD source, and the reason, as stacked bars.

    Args:
        benchmark: Its name.
        counts: Columns dataset, subset, fate, reason and images.
    """
    legend = _distance_legend(counts["fate"])
    rows = counts.with_row_index("order").with_columns(
        source=pl.concat_str("dataset", "subset", separator=" ")
    )
    text = vl.describe_rows("{source}: {images} {fate}, {reason}", rows)
    chart = vl.chart(
        "Images of the sources",
        f"Outcome of each image in {benchmark}. {text}.",
        rows,
        vl.layer(vl.STACKED),
        step=34,
        x=vl.quantitative("images", title="images", axis={"tickCount": 5}),
        y=vl.nominal("source", title=None),
        order=vl.quantitative("order"),
        tooltip=vl.tooltip("source", "fate outcome", "reason", "images:"),
        **vl.legend_channels("fate", legend),
    )
    return vl.ChartGroup(legend, (chart,))


def categories(
    distances: Mapping[str, str], counts: Mapping[str, pl.DataFrame], limit: int
) -> vl.ChartGroup | None:
    """The most frequent categories of each split, one chart per split (FMIYC, Figures 8 and 9).

    Args:
        distances: Split → its distance from ID.
        counts: Split → category, objects, images; the most frequent category first.
        limit: Largest number of categories in a chart.

    Returns:
        The charts; None without a split.
    """
    if not counts:
        return None
    charts = []
    for split, counts_of_split in counts.items():
        key = DISTANCE_KEYS[distances[split]]
        charts.append(_category_chart(split, key, counts_of_split, limit))
    legend = _distance_legend(distances[split] for split in counts)
    return vl.ChartGroup(legend, tuple(charts))


def _category_chart(split: str, key: vl.Key, counts: pl.DataFrame, limit: int) -> vl.Chart:
    title = title_of_split(split)
    most_frequent = counts.head(limit)
    if len(counts) == 1:
        part = "1 category"
    elif len(most_frequent) == len(counts):
        part = f"all {len(counts)} categories"
    else:
        part = f"{len(most_frequent)} of {len(counts)} categories"
    text = vl.describe_rows("{category} {objects}", most_frequent).replace("; ", ", ")
    return vl.chart(
        f"{title}: {part}",
        f"Objects by category in {title}: {text}.",
        most_frequent,
        vl.layer({"type": "bar", "color": key.colour}),
        step=17,
        x=vl.quantitative("objects", title="objects", axis={"tickCount": 4, "tickMinStep": 1}),
        y=vl.nominal("category", sort=most_frequent["category"].to_list(), title=None),
        tooltip=vl.tooltip("category", "objects:", "images:"),
    )


def similarity(benchmark: str, distances: Mapping[str, str], bins: pl.DataFrame) -> vl.ChartGroup:
    """Histograms of the similarity of each split's images to ID images (FMIYC, Figure 3).

    Args:
        benchmark: Its name.
        distances: OOD split → its distance from ID.
        bins: split, similarity (middle of a bin), fraction (share of the split's images in it).
    """
    splits = _nearest_first(bins["split"].unique(maintain_order=True).to_list(), distances)
    legend: list[vl.Key] = []
    for split in splits:
        # The colour tells the distance, the dashes tell apart the splits of one distance.
        colour = DISTANCE_KEYS[distances.get(split, "ID")].colour
        same_colour = [key for key in legend if key.colour == colour]
        dashes = list(vl.DASHES)[len(same_colour) % 3]
        legend.append(vl.Key(title_of_split(split), colour, dashes))

    weighted_mean = pl.col("similarity").dot("fraction") / pl.col("fraction").sum()
    mean_by_split = dict(bins.group_by("split").agg(weighted_mean).iter_rows())
    means = "; ".join(f"{title_of_split(split)}: {mean_by_split[split]:.3f}" for split in splits)
    chart = vl.lines(
        "CLIP similarity to ID images",
        f"CLIP similarity of images to ID images in {benchmark}; means by split: {means}.",
        bins.select(series=pl.col("split").str.replace_all("_", " "), x="similarity", y="fraction"),
        legend,
        x=vl.Axis("largest cosine to an ID image", "~g", None),
        y=vl.Axis("share of images", domain=None),
    )
    return vl.ChartGroup(tuple(legend), (chart,))


def _nearest_first(splits: Iterable[str], distances: Mapping[str, str]) -> list[str]:
    """The splits by their distance from ID; without one, a split is of the ID dataset."""
    order = list(DISTANCE_KEYS)

    def position(split: str) -> int:
        return order.index(distances.get(split, "ID"))

    return sorted(splits, key=position)


def _distance_legend(distances: Iterable[str]) -> tuple[vl.Key, ...]:
    """Legend of the distances that occur, the nearest first."""
    present = set(distances)
    return tuple(key for distance, key in DISTANCE_KEYS.items() if distance in present)
