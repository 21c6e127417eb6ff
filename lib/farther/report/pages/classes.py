"""The section on classes of a detector's page.

It shows results by how far out classes are, and which ID classes other classes are taken for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from farther.evaluation.long_table import Results
from farther.evaluation.results import ClassEdge, ClassGraph, SimilarClass
from farther.report.charts import vega as vl
from farther.report.listing import Listing
from farther.report.results import Run, title_of

#: Meaning of each OODness.
OODNESS = ("0: an ID class", "1: overlaps with one", "2: near to one", "3: neither")

TITLES = {
    "auroc": "AUROC (%)",
    "fpr95": "FPR95 (%)",
    "detection_error": "Detection error (%)",
    "detection_error95": "Detection error at TPR 95% (%)",
}

#: Outcomes of an unknown object.
OUTCOMES = ("found", "misclassified", "missed")

#: Largest number of edges in a chart of the class graph.
MAX_EDGES = 80

#: Smallest number of objects of an edge in it.
MIN_OBJECTS = 2

#: Classes at each end of a chart of similarities.
ENDS = 10

OTHER = vl.Key("other class", "#D55E00", "●")
KNOWN = vl.Key("misclassified as", "#0072B2", "■")

#: Columns of the class graph.
EDGE = {"category": pl.String, "id_class": pl.String, "objects": pl.Int64}


def of_run(run: Run) -> dict[str, Any] | None:
    """Variables of the section; None where no split's images were chosen by rules."""
    if run.description is None or run.description.class_graph is None:
        return None
    listings = [_detections_table(run), _outcomes_table(run)]
    return {
        "listings": [listing for listing in listings if len(listing)],
        "charts": list(_charts(run.full_title, run.description.class_graph)),
    }


def _detections_table(run: Run) -> Listing:
    """Separation of detections by method and OODness."""
    rows = []
    for names, values in _levels(run, "regions"):
        row = {
            **names,
            "Images": values["images"].value,
            "Detections": values["regions"].value,
        }
        for metric, title in TITLES.items():
            row[title] = values[metric].value
        rows.append(row)
    caption = (
        "ID test detections against those in images of each OODness, the lowest of the classes "
        "that an image shows."
    )
    return Listing.from_rows(caption, rows)


def _outcomes_table(run: Run) -> Listing:
    """Outcomes of unknown objects by method and OODness."""
    rows = []
    for names, counts in _levels(run, "objects"):
        objects = counts["objects"].value or 0
        row = {**names, "Objects": objects}
        for outcome in OUTCOMES:
            row[f"{outcome} (%)"] = (counts[outcome].value or 0) / objects
        rows.append(row)
    caption = (
        "Outcome of unknown objects by the OODness of their class, "
        "at the operating threshold and τ."
    )
    return Listing.from_rows(caption, rows)


def _levels(run: Run, counted: str) -> Iterator[tuple[dict[str, Any], Results]]:
    """First cells of a row and values, of each method and OODness.

    Args:
        run: The run.
        counted: "regions" or "objects": what an OODness must have.
    """
    table = run.results.table
    for method in table.methods:
        for level, values in table.by_part("classes", "oodness", method=method).items():
            if counted in values:
                yield {"Method": title_of(method), "OODness": OODNESS[int(level)]}, values


def _charts(run: str, classes: ClassGraph) -> Iterator[vl.ChartGroup]:
    """The class graph, and charts of similarities."""
    graph = pruned(_edges(classes.edges), MIN_OBJECTS, MAX_EDGES)
    if not graph.is_empty():
        yield vl.ChartGroup((OTHER, KNOWN), (class_graph(run, graph),))
    for side in ("category", "id_class"):
        rows = classes.similarity.get(side)
        if rows:
            yield vl.ChartGroup((), (_similarity_chart(run, side, rows),))


def _edges(edges: Sequence[ClassEdge]) -> pl.DataFrame:
    """Edges of the class graph as a frame."""
    return pl.DataFrame([vars(edge) for edge in edges], schema=EDGE)


def pruned(edges: pl.DataFrame, min_objects: int, max_edges: int) -> pl.DataFrame:
    """The class graph without its noise, and the connected component of each edge.

    Left out are edges between equal names, whatever their case, blanks and underscores; edges of
    fewer than `min_objects` objects; and all but the `max_edges` edges of most objects.

    Args:
        edges: Columns category, id_class, objects.
        min_objects, max_edges: See above.

    Returns:
        The edges with a column component, int64 from 0 on, those of most objects first.
    """
    differ = _normalised("category") != _normalised("id_class")
    frequent = edges.filter(differ, pl.col("objects") >= min_objects)
    strongest = frequent.sort(
        "objects", "category", "id_class", descending=[True, False, False]
    ).head(max_edges)
    if strongest.is_empty():
        return strongest.with_columns(component=pl.lit(0, pl.Int64))

    labelled = strongest.with_columns(component=_components(strongest))
    sizes = labelled.group_by("component").agg(total=pl.col("objects").sum())
    ordered = sizes.sort("total", "component", descending=True)["component"]
    rank_of_component = {component: rank for rank, component in enumerate(ordered)}
    component = pl.col("component").replace_strict(rank_of_component, return_dtype=pl.Int64)
    return labelled.with_columns(component).sort(
        "component", "id_class", "objects", "category", descending=[False, False, True, False]
    )


def _normalised(column: str) -> pl.Expr:
    """Names in lower case, with one blank for blanks and underscores."""
    return pl.col(column).str.to_lowercase().str.replace_all(r"[\s_]+", " ")


def _components(edges: pl.DataFrame) -> pl.Series:
    """Connected component of each edge of the bipartite class graph, int64 of shape (edges,)."""
    categories, left = np.unique(edges["category"].to_numpy(), return_inverse=True)
    id_classes, right = np.unique(edges["id_class"].to_numpy(), return_inverse=True)
    # Each node gets the smallest number of a node that it is connected with.
    smallest = np.arange(len(categories) + len(id_classes))
    nodes = np.stack([left, right + len(categories)])
    while True:
        earlier = smallest.copy()
        smaller = smallest[nodes].min(axis=0)
        np.minimum.at(smallest, nodes[0], smaller)
        np.minimum.at(smallest, nodes[1], smaller)
        if np.array_equal(smallest, earlier):
            break
    _, component_of_node = np.unique(smallest, return_inverse=True)
    return pl.Series(component_of_node[left], dtype=pl.Int64)


def class_graph(run: str, graph: pl.DataFrame) -> vl.Chart:
    """The class graph, one component below the other.

    Other classes are on the left, ID classes on the right.

    Args:
        run: Title of the run.
        graph: See `pruned`.
    """
    tops = _component_tops(graph)
    height = int(tops["rows"].sum()) + len(tops)
    nodes = _nodes(graph, tops)
    lines = vl.layer(
        {"type": "rule", "opacity": 0.6, "color": "#777777"},
        x2={"field": "x2"},
        y2={"field": "y2"},
        strokeWidth=vl.quantitative("objects", scale={"range": [1, 7]}, legend=None),
        tooltip=vl.tooltip("category", "id_class taken for", "objects:"),
    )
    words = vl.describe_rows("{category} as {id_class} {objects}", graph)
    y_scale = {"domain": [0, height], "reverse": True, "nice": False}
    return vl.chart(
        "Unknown classes and the ID classes they are misclassified as: "
        f"{len(tops)} separate groups",
        f"{run}: objects by class and prediction: {words}.",
        _placed_edges(graph, nodes),
        lines,
        *_node_layers(nodes.filter(side="category"), OTHER, "circle", "right", -8),
        *_node_layers(nodes.filter(side="id_class"), KNOWN, "square", "left", 8),
        height=max(80, round(17 * height)),
        x=vl.quantitative("x", scale={"domain": [-0.6, 1.6]}, axis=None),
        y=vl.quantitative("y", scale=y_scale, axis=None),
    )


def _names(graph: pl.DataFrame) -> pl.DataFrame:
    """Columns component, name and side of each class, in the order of the edges."""
    frames = []
    for side in ("category", "id_class"):
        names = graph.select("component", name=side, side=pl.lit(side))
        frames.append(names.unique(maintain_order=True))
    return pl.concat(frames)


def _component_tops(graph: pl.DataFrame) -> pl.DataFrame:
    """Columns component, rows, the number of classes of its longer side, and top, its first row."""
    counts = _names(graph).group_by("component", "side").len()
    rows = counts.group_by("component").agg(rows=pl.max("len")).sort("component")
    rows_above = pl.col("rows").cum_sum() - pl.col("rows")
    return rows.with_columns(top=rows_above + pl.col("component"))


def _nodes(graph: pl.DataFrame, tops: pl.DataFrame) -> pl.DataFrame:
    """Columns name, side, x and y of each class.

    The classes of a side of a component are evenly spread over as many rows as its longer side has.
    """
    names = _names(graph).join(tops, on="component", maintain_order="left")
    position = (pl.int_range(pl.len()) + 0.5) * pl.col("rows") / pl.len()
    return names.select(
        "name",
        "side",
        x=(pl.col("side") == "id_class").cast(pl.Float64),
        y=pl.col("top") + position.over("component", "side"),
    )


def _placed_edges(graph: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """The edges, with x and y of their category, and x2 and y2 of their ID class."""
    categories = nodes.filter(side="category").select("x", "y", category="name")
    id_classes = nodes.filter(side="id_class").select(x2="x", y2="y", id_class="name")
    edges = graph.join(categories, on="category", maintain_order="left")
    return edges.join(id_classes, on="id_class", maintain_order="left")


def _node_layers(
    nodes: pl.DataFrame, key: vl.Key, shape: str, align: str, shift: int
) -> list[dict[str, Any]]:
    """Points and names of the classes of a side."""
    rows = nodes.to_dicts()
    point = {"type": "point", "filled": True, "shape": shape, "color": key.colour, "size": 60}
    text = {"type": "text", "align": align, "dx": shift, "fontSize": 12}
    return [vl.layer(point, rows), vl.layer(text, rows, text=vl.nominal("name"))]


def _similarity_chart(run: str, side: str, rows: Sequence[SimilarClass]) -> vl.Chart:
    """The classes whose predictions are the most and the least similar to them, or the predictions.

    Args:
        run: Title of the run.
        side: "category" for classes, "id_class" for predictions.
        rows: Their similarities, the highest first.
    """
    extent = "all"
    if len(rows) > 2 * ENDS:
        rows = [*rows[:ENDS], *rows[-ENDS:]]
        extent = f"the {ENDS} highest and lowest"
    axis = "predicted ID class"
    key = KNOWN
    if side == "category":
        axis = "class"
        key = OTHER
    frame = pl.DataFrame([vars(row) for row in rows]).rename({"name": "class"})
    words = vl.describe_rows("{class} {similarity:.2f}", frame).replace("; ", ", ")
    return vl.chart(
        f"Similarity of predictions by {axis}: {extent}",
        f"{run}: {words}.",
        frame,
        vl.layer({"type": "bar", "color": key.colour}),
        step=17,
        x=vl.quantitative("similarity", title="similarity of class and prediction", scale=vl.UNIT),
        y=vl.nominal("class", sort=frame["class"].to_list(), title=None),
        tooltip=vl.tooltip("class", "similarity:.3f", "objects:"),
    )
