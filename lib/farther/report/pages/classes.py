"""The page of classes: results by how far out classes are, and which ID classes the others are taken for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from farther.evaluation.results import ClassesResults, SimilarClass
from farther.report.all_results import AllResults
from farther.report.charts import vega as vl
from farther.report.listing import Listing
from farther.report.results import Run, title_of
from farther.report.site import Site

#: Meaning of each OODness.
OODNESS = ("0: an ID class", "1: overlaps with one", "2: near to one", "3: neither")

TITLES = {
    "auroc": "AUROC (%)",
    "fpr95": "FPR95 (%)",
    "detection_error": "Detection error (%)",
    "detection_error95": "Detection error at TPR 95% (%)",
}

#: Edges in a chart of the class graph, and objects below which an edge is left out.
EDGES, LEAST = 80, 2

#: Classes at each end of a chart of similarities.
ENDS = 10

OTHER = vl.Key("other class", "#D55E00", "●")
KNOWN = vl.Key("misclassified as", "#0072B2", "■")


def write(site: Site, results: AllResults) -> None:
    """Writes the page."""
    site.write("classes.html", **content(results.evaluated))


def content(runs: Sequence[Run]) -> dict[str, Any]:
    """Variables of the template `classes.html`: tables and charts of each run."""
    found = {
        run.full_title: run.evaluation.classes
        for run in runs
        if run.evaluation and run.evaluation.classes
    }
    return {
        "runs": {name: _of_run(name, values) for name, values in found.items()},
        "contents": {f"run-{number}": name for number, name in enumerate(found, start=1)},
    }


def _of_run(run: str, classes: ClassesResults) -> dict[str, Any]:
    schema = {"category": pl.String, "id_class": pl.String, "objects": pl.Int64}
    graph = pruned(
        pl.DataFrame([vars(edge) for edge in classes.edges], schema=schema), LEAST, EDGES
    )
    drawn = [] if graph.is_empty() else [vl.ChartGroup((OTHER, KNOWN), (class_graph(run, graph),))]
    drawn += [
        vl.ChartGroup((), (_similarities(run, side, rows),))
        for side in ("category", "id_class")
        if (rows := classes.similarity.get(side))
    ]
    detections = [
        {
            **place,
            "Images": of["images"],
            "Detections": of["regions"],
            **{TITLES[name]: of[name] for name in TITLES},
        }
        for place, of in _levels(classes.by_oodness)
    ]
    outcomes = [
        {
            **place,
            "Objects": of["objects"],
            **{
                f"{name} (%)": of[name] / of["objects"]
                for name in ("found", "misclassified", "missed")
            },
        }
        for place, of in _levels(classes.outcomes)
    ]
    listings = [
        Listing.of(
            "ID test detections against those in images of each OODness, the lowest of the classes that an image "
            "shows.",
            detections,
        ),
        Listing.of(
            "Outcome of unknown objects by the OODness of their class, at the operating threshold and τ.",
            outcomes,
        ),
    ]
    return {"listings": [listing for listing in listings if len(listing)], "charts": drawn}


def _levels(found: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[dict[str, str], Any]]:
    """First cells of a row and values, of each method and OODness."""
    for method, by_level in found.items():
        for level, values in by_level.items():
            yield {"Method": title_of(method), "OODness": OODNESS[int(level)]}, values


def pruned(edges: pl.DataFrame, least: int, most: int) -> pl.DataFrame:
    """The class graph without its noise, and the connected component of each edge, those of most objects first.

    Left out are edges between equal names, whatever their case, blanks and underscores; edges of
    fewer than `least` objects; and all but the `most` edges of most objects.

    Args:
        edges: Columns category, id_class, objects.
        least, most: See above.

    Returns:
        The edges with a column component, int64 from 0 on.
    """
    plain = [
        pl.col(name).str.to_lowercase().str.replace_all(r"[\s_]+", " ")
        for name in ("category", "id_class")
    ]
    kept = edges.filter(plain[0] != plain[1], pl.col("objects") >= least).sort(
        "objects", "category", "id_class", descending=[True, False, False]
    )
    kept = kept.head(most)
    if kept.is_empty():
        return kept.with_columns(component=pl.lit(0, pl.Int64))
    columns = [
        np.unique(kept[name].to_numpy(), return_inverse=True) for name in ("category", "id_class")
    ]
    (categories, left), (id_classes, right) = columns
    size = len(categories) + len(id_classes)
    graph = coo_array((np.ones(len(kept)), (left, right + len(categories))), shape=(size, size))
    _, of_node = connected_components(graph, directed=False)
    marked = kept.with_columns(component=pl.Series(of_node[left], dtype=pl.Int64))
    sizes = (
        marked.group_by("component")
        .agg(total=pl.col("objects").sum())
        .sort("total", "component", descending=True)
    )
    order = dict(zip(sizes["component"], range(len(sizes)), strict=True))
    return marked.with_columns(
        pl.col("component").replace_strict(order, return_dtype=pl.Int64)
    ).sort("component", "id_class", "objects", "category", descending=[False, False, True, False])


def class_graph(run: str, graph: pl.DataFrame) -> vl.Chart:
    """The class graph, one component below the other: other classes on the left, ID classes on the right."""
    ends = {"category": ("x", "y"), "id_class": ("x2", "y2")}
    # Of a component, the classes of a side are evenly spread over as many rows as its longer side
    # has.
    names = pl.concat(
        [
            graph.select("component", name=side, side=pl.lit(side)).unique(maintain_order=True)
            for side in ends
        ]
    )
    counts = names.group_by("component", "side").len().group_by("component").agg(rows=pl.max("len"))
    tops = counts.sort("component").with_columns(
        top=pl.col("rows").cum_sum() - pl.col("rows") + pl.col("component")
    )
    within = (pl.int_range(pl.len()) + 0.5) * pl.col("rows") / pl.len()
    nodes = names.join(tops, on="component", maintain_order="left").select(
        "name",
        "side",
        x=(pl.col("side") == "id_class").cast(pl.Float64),
        y=pl.col("top") + within.over("component", "side"),
    )
    height = int(tops["rows"].sum()) + len(tops)
    edges = graph
    for side, (x, y) in ends.items():
        places = nodes.filter(side=side).select(
            pl.col("name").alias(side), pl.col("x").alias(x), pl.col("y").alias(y)
        )
        edges = edges.join(places, on=side, maintain_order="left")
    place: dict[str, Any] = {
        "x": vl.number("x", scale={"domain": [-0.6, 1.6]}, axis=None),
        "y": vl.number(
            "y", scale={"domain": [0, height], "reverse": True, "nice": False}, axis=None
        ),
    }
    layers = []
    for side, key, shape, align, shift in (
        ("category", OTHER, "circle", "right", -8),
        ("id_class", KNOWN, "square", "left", 8),
    ):
        rows = nodes.filter(side=side).to_dicts()
        text = {"type": "text", "align": align, "dx": shift, "fontSize": 12}
        layers += [
            vl.layer(
                {"type": "point", "filled": True, "shape": shape, "color": key.colour, "size": 60},
                rows,
            ),
            vl.layer(text, rows, text=vl.named("name")),
        ]
    return vl.chart(
        f"Unknown classes and the ID classes they are misclassified as: {len(tops)} separate groups",
        f"{run}: objects by class and prediction: {vl.said('{category} as {id_class} {objects}', graph)}.",
        edges,
        vl.layer(
            {"type": "rule", "opacity": 0.6, "color": "#777777"},
            x2={"field": "x2"},
            y2={"field": "y2"},
            strokeWidth=vl.number("objects", scale={"range": [1, 7]}, legend=None),
            tooltip=vl.tooltip("category", "id_class taken for", "objects:"),
        ),
        *layers,
        height=max(80, round(17 * height)),
        **place,
    )


def _similarities(run: str, side: str, rows: Sequence[SimilarClass]) -> vl.Chart:
    """The classes whose predictions are the most and the least similar to them, or the predictions."""
    shown = rows if len(rows) <= 2 * ENDS else [*rows[:ENDS], *rows[-ENDS:]]
    frame = pl.DataFrame([vars(row) for row in shown]).rename({"name": "class"})
    what, key = ("class", OTHER) if side == "category" else ("predicted ID class", KNOWN)
    part = "all" if len(shown) == len(rows) else f"the {ENDS} highest and lowest"
    text = vl.said("{class} {similarity:.2f}", frame).replace("; ", ", ")
    return vl.chart(
        f"Similarity of predictions by {what}: {part}",
        f"{run}: {text}.",
        frame,
        vl.layer({"type": "bar", "color": key.colour}),
        step=17,
        x=vl.number("similarity", title="similarity of class and prediction", scale=vl.UNIT),
        y=vl.named("class", sort=frame["class"].to_list(), title=None),
        tooltip=vl.tooltip("class", "similarity:.3f", "objects:"),
    )
