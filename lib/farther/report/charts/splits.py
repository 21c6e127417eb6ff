"""Figures of splits: what became of images, what is on them, and how near they are to ID."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from farther.curation.counts import CategoryCount, FateCount
from farther.report.charts.parts import (
    DASHES,
    Axis,
    Chart,
    Figures,
    Key,
    chart,
    colours,
    lines,
    named,
    number,
    series_rows,
)

#: How far from ID an image is, and how figures show it.
DISTANCE_KEYS = {
    "ID": Key("ID", "#000000", "■"),
    "near": Key("near", "#D55E00", "■"),
    "far": Key("far", "#0072B2", "■"),
    "farther": Key("farther", "#009E73", "■"),
    "removed": Key("removed", "#BDBDBD", "■"),
}


def image_fates(benchmark: str, counts: Sequence[FateCount]) -> Figures:
    """What became of the images of each OOD source, and why, as stacked bars."""
    rows = [
        {
            "source": f"{one.dataset} {one.subset}",
            "fate": one.fate,
            "reason": one.reason,
            "images": one.images,
            "order": order,
        }
        for order, one in enumerate(counts)
    ]
    legend = _distances(one.fate for one in counts)
    body = {
        "height": {"step": 34},
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 1},
        "encoding": {
            "x": number("images", title="images", axis={"tickCount": 5}),
            "y": named("source", title=None),
            "color": named("fate", scale=colours(legend), legend=None),
            "order": number("order"),
            "tooltip": [named("source"), named("fate"), named("reason"), number("images")],
        },
    }
    text = "; ".join(f"{r['source']}: {r['images']} {r['fate']}, {r['reason']}" for r in rows)
    words = f"What became of images in {benchmark}. {text}."
    return Figures(legend, (chart("Images of the sources", words, rows, body),))


def categories(distances: Mapping[str, str], counts: Mapping[str, Sequence[CategoryCount]], shown: int) -> Figures:
    """The most frequent categories of each split, a figure each (FMIYC, Figures 8 and 9).

    Args:
        distances: Split → how far it is from ID.
        counts: Split → its categories, the most frequent first.
        shown: Categories a figure shows.
    """
    keys = {split: DISTANCE_KEYS[distances[split]] for split in counts}
    legend = _distances(distances[split] for split in counts)
    return Figures(legend, tuple(_category_chart(split, keys[split], one, shown) for split, one in counts.items()))


def _category_chart(split: str, key: Key, counts: Sequence[CategoryCount], shown: int) -> Chart:
    top = counts[:shown]
    rows = [{"category": one.category, "objects": one.objects, "images": one.images} for one in top]
    body = {
        "height": {"step": 17},
        "mark": {"type": "bar", "color": key.colour},
        "encoding": {
            "x": number("objects", title="objects", axis={"tickCount": 4, "tickMinStep": 1}),
            "y": named("category", sort=[one.category for one in top], title=None),
            "tooltip": [named("category"), number("objects"), number("images")],
        },
    }
    title = split.replace("_", " ")
    part = "all" if len(top) == len(counts) else f"{len(top)} of"
    text = ", ".join(f"{one.category} {one.objects}" for one in top)
    return chart(f"{title}: {part} {len(counts)} categories", f"Objects by category in {title}: {text}.", rows, body)


def similarity(
    benchmark: str, distances: Mapping[str, str], rows: Mapping[str, Sequence[tuple[float, float]]]
) -> Figures:
    """How near the images of each split are to ID: histograms over each other (FMIYC, Figure 3).

    Args:
        benchmark: Its name.
        distances: Split → how far it is from ID, of the OOD splits.
        rows: Split → middle of each bin and the share of the images in it.
    """
    order = list(DISTANCE_KEYS)
    names = sorted(rows, key=lambda split: order.index(distances.get(split, "ID")))
    legend = _split_keys(names, distances)
    text = "; ".join(f"{split.replace('_', ' ')}: {_mean(rows[split]):.3f}" for split in names)
    words = f"CLIP similarity of images to ID images in {benchmark}; means by split: {text}."
    series = series_rows((key.name, rows[split]) for key, split in zip(legend, names, strict=True))
    x = Axis("largest cosine to an ID image", "~g", None)
    made = lines("CLIP similarity to ID images", words, series, legend, x, Axis("share of images", domain=None))
    return Figures(legend, (made,))


def _split_keys(splits: Sequence[str], distances: Mapping[str, str]) -> tuple[Key, ...]:
    """A legend of a line a split: the colour tells the distance, the dashes splits of one distance."""
    keys, seen = [], list[str]()
    for split in splits:
        distance = distances.get(split, "ID")
        keys.append(Key(split.replace("_", " "), DISTANCE_KEYS[distance].colour, DASHES[seen.count(distance) % 3][0]))
        seen.append(distance)
    return tuple(keys)


def _mean(bins: Sequence[tuple[float, float]]) -> float:
    return sum(x * y for x, y in bins) / (sum(y for _, y in bins) or 1.0)


def _distances(present: Iterable[str]) -> tuple[Key, ...]:
    """Legend of the distances that occur, the nearest first."""
    found = set(present)
    return tuple(key for name, key in DISTANCE_KEYS.items() if name in found)
