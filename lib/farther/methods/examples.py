"""Small regions tables for the examples in docstrings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from farther.tables import Header, Regions


def toy_regions(
    label: list[int] | None = None, image_id: list[str] | None = None, **values: Any
) -> Regions:
    """Regions with the given columns and header fields, and placeholders for the rest.

    Args:
        label: Predicted class of each row; the largest logit, or 0, if absent.
        image_id: Image of each row; the same for all if absent.
        values: Columns (`score`, `logits`, `features`, `latent`, `uncertainty`, …) and header
            fields. With features, an identity last layer is the default, so that the logits are the
            features.

    >>> toy_regions(features=[[3.0, 0.0], [0.0, 1.0]]).logits.tolist()
    [[3.0, 0.0], [0.0, 1.0]]
    """
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = np.asarray(value, np.float32)
    if "features" in values and "weight" not in values:
        width = values["features"].shape[1]
        values |= {"weight": np.eye(width), "bias": np.zeros(width)}
    shared = {field.name for field in fields(Header)}
    count = next(len(value) for name, value in values.items() if name not in shared)
    if "logits" not in values and "features" in values:
        values["logits"] = values["features"] @ values["weight"].T
    values.setdefault("logits", np.zeros((count, 2)))
    values.setdefault("score", np.ones(count))
    if label is None:
        label = values["logits"].argmax(axis=1)
    return Regions(
        image_id=image_id or ["image"] * count,
        region_id=np.arange(count),
        box=np.tile([0.0, 0.0, 1.0, 1.0], (count, 1)),
        label=label,
        **values,
    )
