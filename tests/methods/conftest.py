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
    dimensions: int = 12,
    *,
    seed: int = 0,
    shift: float = 0.0,
    background: bool = False,
    dtype: type = np.float32,
    **header: Any,
) -> Regions:
    """Regions with rectified features; last layer and class centres are the same for every seed.

    Each class has features of its own, and some features are no class's.

    Args:
        shift: How far the regions are from their class, 0 to 10: its features and its confidence
            fade, and the features of no class light up.
        background: Whether a last logits column stands for the background.
    """
    columns = classes + background
    owner = np.arange(dimensions) % (classes + 1)
    own = owner == np.arange(columns)[:, None]
    layer = np.random.default_rng(7)
    weight = np.where(own, 1.5, -0.3) * (owner < classes) + layer.normal(scale=0.05, size=own.shape)
    weight = weight.astype(np.float32)
    bias = layer.normal(scale=0.1, size=columns).astype(np.float32)
    rng = np.random.default_rng(seed)
    member = rng.integers(classes, size=count)
    noise = rng.normal(scale=0.5, size=(count, dimensions))
    centres = 3.0 * own[:classes] * (1 - shift / 10)
    features = np.maximum(centres[member] + 0.4 * shift * (owner == classes) + noise, 0.0).astype(
        dtype
    )
    logits = features.astype(np.float32) @ weight.T + bias
    uncertainty = shift / 10 + 0.1 * np.random.default_rng(seed + 1).uniform(size=count)
    box_variance = (
        0.2 + shift / 10 + np.random.default_rng(seed + 2).uniform(size=(count, 4))
    ) ** 2
    latent = np.concatenate([features, rng.normal(size=(count, 4))], axis=1).astype(dtype)
    return Regions(
        image_id=[f"image{i // 3}" for i in range(count)],
        region_id=np.arange(count),
        box=np.tile([0.0, 0.0, 10.0, 10.0], (count, 1)),
        score=rng.uniform(0.1, 1.0, count) * (1 - shift / 10),
        label=logits[:, :classes].argmax(axis=1) if count else np.zeros(0),
        logits=logits.astype(dtype),
        features=features,
        latent=latent,
        uncertainty=uncertainty,
        box_variance=box_variance,
        predictive_entropy=uncertainty,
        mutual_information=uncertainty / 2,
        **{
            "gram.shallow": features[:, : dimensions // 2],
            "gram.deep": features,
            "latent.patch": features,
            "latent.before": 0.98 * features + 0.02,
        },
        **{"latent.numerator": logits[:, :classes], "latent.denominator": 1 - uncertainty[:, None]},
        **{"latent.confidence": logits.max(axis=1, keepdims=True)},
        weight=weight,
        bias=bias,
        background_index=classes if background else None,
        classes=[f"class{k}" for k in range(columns)],
        **header,
    )


@pytest.fixture(scope="session")
def make() -> MakeRegions:
    return make_regions
