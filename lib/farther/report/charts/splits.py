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

    `counts` has the columns dataset, subset, fate, reason and images.
    """
    legend = _distances(counts["fate"])
    rows = counts.with_row_index("order").with_columns(
        source=pl.concat_str("dataset", "subset", separator=" ")
    )
    drawn = vl.chart(
        "Images of the sources",
        f"Outcome of each image in {benchmark}. {vl.said('{source}: {images} {fate}, {reason}', rows)}.",
        rows,
        vl.layer(vl.STACKED),
        step=34,
        x=vl.number("images", title="images", axis={"tickCount": 5}),
        y=vl.named("source", title=None),
        order=vl.number("order"),
        tooltip=vl.tooltip("source", "fate outcome", "reason", "images:"),
        **vl.by("fate", legend),
    )
    return vl.ChartGroup(legend, (drawn,))


def categories(
    distances: Mapping[str, str], counts: Mapping[str, pl.DataFrame], shown: int
) -> vl.ChartGroup | None:
    """The most frequent categories of each split, one chart per split (FMIYC, Figures 8 and 9); None without any.

    Args:
        distances: Split → its distance from ID.
        counts: Split → category, objects, images; the most frequent category first.
        shown: Categories in a chart.
    """
    charts = (
        _category_chart(split, DISTANCE_KEYS[distances[split]], found, shown)
        for split, found in counts.items()
    )
    return (
        vl.ChartGroup(_distances(distances[split] for split in counts), tuple(charts))
        if counts
        else None
    )


def _category_chart(split: str, key: vl.Key, counts: pl.DataFrame, shown: int) -> vl.Chart:
    top, title = counts.head(shown), title_of_split(split)
    part = "all" if len(top) == len(counts) else f"{len(top)} of"
    text = vl.said("{category} {objects}", top).replace("; ", ", ")
    return vl.chart(
        f"{title}: {part} {len(counts)} categories",
        f"Objects by category in {title}: {text}.",
        top,
        vl.layer({"type": "bar", "color": key.colour}),
        step=17,
        x=vl.number("objects", title="objects", axis={"tickCount": 4, "tickMinStep": 1}),
        y=vl.named("category", sort=top["category"].to_list(), title=None),
        tooltip=vl.tooltip("category", "objects:", "images:"),
    )


def similarity(benchmark: str, distances: Mapping[str, str], bins: pl.DataFrame) -> vl.ChartGroup:
    """Similarity of the images of each split to ID images: histograms over each other (FMIYC, Figure 3).

    Args:
        benchmark: Its name.
        distances: OOD split → its distance from ID.
        bins: split, similarity (middle of a bin), fraction (share of the split's images in it).
    """
    of_split = {
        split: distances.get(split, "ID") for split in bins["split"].unique(maintain_order=True)
    }
    names = sorted(of_split, key=lambda split: list(DISTANCE_KEYS).index(of_split[split]))
    legend: list[vl.Key] = []
    for split in names:
        # The colour tells the distance, the dashes tell apart the splits of one distance.
        colour = DISTANCE_KEYS[of_split[split]].colour
        earlier = sum(key.colour == colour for key in legend)
        legend.append(vl.Key(title_of_split(split), colour, list(vl.DASHES)[earlier % 3]))
    weighted = pl.col("similarity").dot("fraction") / pl.col("fraction").sum()
    mean = dict(bins.group_by("split").agg(weighted).iter_rows())
    text = "; ".join(f"{title_of_split(split)}: {mean[split]:.3f}" for split in names)
    words = f"CLIP similarity of images to ID images in {benchmark}; means by split: {text}."
    points = bins.select(
        series=pl.col("split").str.replace_all("_", " "), x="similarity", y="fraction"
    )
    x, y = (
        vl.Axis("largest cosine to an ID image", "~g", None),
        vl.Axis("share of images", domain=None),
    )
    return vl.ChartGroup(
        tuple(legend), (vl.lines("CLIP similarity to ID images", words, points, legend, x, y),)
    )


def _distances(present: Iterable[str]) -> tuple[vl.Key, ...]:
    """Legend of the distances that occur, the nearest first."""
    found = set(present)
    return tuple(key for name, key in DISTANCE_KEYS.items() if name in found)
