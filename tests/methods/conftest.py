"""Regions to score: separable classes, with all columns a method may need."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from farther.tables import Regions

MakeRegions = Callable[..., Regions]


def make_regions(
    count: int = 300,
    classes: int = 5,
    dimensions: int = 8,
    *,
    seed: int = 0,
    shift: float = 0.0,
    background: bool = False,
    dtype: type = np.float32,
    **header: Any,
) -> Regions:
    """Regions around one centre a class; the last layer and the centres are the same for every seed.

    Args:
        shift: How far all features are moved out of the classes' space; they also shrink, to nothing at 10.
        background: Whether a last logits column stands for the background.
    """
    layer = np.random.default_rng(7)
    columns = classes + background
    weight = layer.normal(size=(columns, dimensions)).astype(np.float32)
    bias = layer.normal(scale=0.1, size=columns).astype(np.float32)
    away = layer.normal(size=dimensions)
    away -= np.linalg.pinv(weight) @ (weight @ away)  # no logit changes with it, as long as D > K
    away /= max(np.linalg.norm(away), 1e-9)
    rng = np.random.default_rng(seed)
    member = rng.integers(classes, size=count)
    noise = rng.normal(scale=0.5, size=(count, dimensions))
    features = (weight[member] * (1 - shift / 10) + noise + shift * away).astype(dtype)
    logits = features.astype(np.float32) @ weight.T + bias
    latent = np.concatenate([features, rng.normal(size=(count, 4))], axis=1).astype(dtype)
    return Regions(
        image_id=[f"image{i // 3}" for i in range(count)],
        region_id=np.arange(count),
        box=np.tile([0.0, 0.0, 10.0, 10.0], (count, 1)),
        score=rng.uniform(0.1, 1.0, count),
        label=logits[:, :classes].argmax(axis=1) if count else np.zeros(0),
        logits=logits.astype(dtype),
        features=features,
        latent=latent,
        weight=weight,
        bias=bias,
        background_index=classes if background else None,
        classes=[f"class{k}" for k in range(columns)],
        **header,
    )


@pytest.fixture
def make() -> MakeRegions:
    return make_regions
