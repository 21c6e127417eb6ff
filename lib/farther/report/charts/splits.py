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
    body = {
        "height": {"step": 34},
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 1},
        "encoding": {
            "x": vl.number("images", title="images", axis={"tickCount": 5}),
            "y": vl.named("source", title=None),
            "color": vl.named("fate", scale=vl.colours(legend), legend=None),
            "order": vl.number("order"),
            "tooltip": [vl.named("source"), vl.named("fate", title="outcome"), vl.named("reason"), vl.number("images")],
        },
    }
    rows = counts.with_row_index("order").with_columns(source=pl.concat_str("dataset", "subset", separator=" "))
    text = "; ".join(f"{r['source']}: {r['images']} {r['fate']}, {r['reason']}" for r in rows.iter_rows(named=True))
    words = f"Outcome of each image in {benchmark}. {text}."
    return vl.ChartGroup(legend, (vl.chart("Images of the sources", words, rows, body),))


def categories(distances: Mapping[str, str], counts: Mapping[str, pl.DataFrame], shown: int) -> vl.ChartGroup | None:
    """The most frequent categories of each split, one chart per split (FMIYC, Figures 8 and 9); None without any.

    Args:
        distances: Split → its distance from ID.
        counts: Split → category, objects, images; the most frequent category first.
        shown: Categories in a chart.
    """
    charts = (_category_chart(split, DISTANCE_KEYS[distances[split]], found, shown) for split, found in counts.items())
    return vl.ChartGroup(_distances(distances[split] for split in counts), tuple(charts)) if counts else None


def _category_chart(split: str, key: vl.Key, counts: pl.DataFrame, shown: int) -> vl.Chart:
    top = counts.head(shown)
    body = {
        "height": {"step": 17},
        "mark": {"type": "bar", "color": key.colour},
        "encoding": {
            "x": vl.number("objects", title="objects", axis={"tickCount": 4, "tickMinStep": 1}),
            "y": vl.named("category", sort=top["category"].to_list(), title=None),
            "tooltip": [vl.named("category"), vl.number("objects"), vl.number("images")],
        },
    }
    title = title_of_split(split)
    part = "all" if len(top) == len(counts) else f"{len(top)} of"
    text = ", ".join(f"{category} {objects}" for category, objects in top.select("category", "objects").iter_rows())
    return vl.chart(f"{title}: {part} {len(counts)} categories", f"Objects by category in {title}: {text}.", top, body)


def similarity(benchmark: str, distances: Mapping[str, str], bins: pl.DataFrame) -> vl.ChartGroup:
    """Similarity of the images of each split to ID images: histograms over each other (FMIYC, Figure 3).

    Args:
        benchmark: Its name.
        distances: OOD split → its distance from ID.
        bins: split, similarity (middle of a bin), fraction (share of the split's images in it).
    """
    rank = list(DISTANCE_KEYS).index
    names = sorted(bins["split"].unique(maintain_order=True), key=lambda split: rank(distances.get(split, "ID")))
    legend, seen = [], list[str]()
    for split in names:
        distance = distances.get(split, "ID")
        # The colour tells the distance, the dashes tell apart the splits of one distance.
        keyed = vl.Key(title_of_split(split), DISTANCE_KEYS[distance].colour, list(vl.DASHES)[seen.count(distance) % 3])
        legend.append(keyed)
        seen.append(distance)
    weighted = pl.col("similarity").dot("fraction") / pl.col("fraction").sum()
    mean = dict(bins.group_by("split").agg(weighted).iter_rows())
    text = "; ".join(f"{title_of_split(split)}: {mean[split]:.3f}" for split in names)
    words = f"CLIP similarity of images to ID images in {benchmark}; means by split: {text}."
    points = bins.select(series=pl.col("split").str.replace_all("_", " "), x="similarity", y="fraction")
    x, y = vl.Axis("largest cosine to an ID image", "~g", None), vl.Axis("share of images", domain=None)
    similar = vl.lines("CLIP similarity to ID images", words, vl.line_rows(points), legend, x, y)
    return vl.ChartGroup(tuple(legend), (similar,))


def _distances(present: Iterable[str]) -> tuple[vl.Key, ...]:
    """Legend of the distances that occur, the nearest first."""
    found = set(present)
    return tuple(key for name, key in DISTANCE_KEYS.items() if name in found)
