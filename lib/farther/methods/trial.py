"""Rows on which a fitted state is tried when it is read from a folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from farther.tables import Header, Regions

#: Most values of a column.
MOST_VALUES = 2**28


def rows_like(inputs: Collection[str], columns: Collection[str], fitted_on: Mapping[str, Any]) -> Regions:
    """One row of ones per known class, as of the regions that a method was fitted on.

    Args:
        inputs: What the method needs; see `Method.inputs`.
        columns: The optional columns that it reads.
        fitted_on: Its `fitted_on_`: classes, background_index, activation, and the widths of columns.
    """
    classes, widths = tuple(fitted_on["classes"]), fitted_on.get("widths") or {}
    if len(classes) * max(widths.values(), default=1) > MOST_VALUES or min(widths.values(), default=0) < 0:
        raise ValueError(f"{len(classes):,} classes with columns of {widths} values")
    layer: dict[str, Any] = {}
    if "last_layer" in inputs:
        width = widths.get("features", 1)
        layer = {"weight": np.zeros((len(classes), width), np.float32), "bias": np.zeros(len(classes), np.float32)}
    header = Header(
        classes,
        fitted_on["background_index"],
        fitted_on.get("activation", "softmax"),
        unknown_columns=fitted_on.get("unknown_columns", ()),
        **layer,
    )
    labels = [k for k, name in enumerate(classes) if name in header.known_classes]
    of_vectors = {**widths, "box_variance": 4, "mean_probabilities": len(classes), "logits": len(classes)}
    shapes = {name: (len(labels), of_vectors[name]) if name in of_vectors else (len(labels),) for name in columns}
    shapes["logits"] = (len(labels), len(classes))
    return Regions(
        header=header,
        image_id=[f"row {k}" for k in labels],
        region_id=labels,
        box=np.zeros((len(labels), 4)),
        score=np.zeros(len(labels)),
        label=labels,
        **{name: np.ones(shape, np.float32) for name, shape in shapes.items()},
    )
