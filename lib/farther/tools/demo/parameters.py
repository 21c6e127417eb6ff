"""What a user may choose about the demo world: the section `demo` of `params.yaml`."""

from __future__ import annotations

from pydantic import Field, NonNegativeInt
from pydantic.dataclasses import dataclass

from farther.registry import STRICT


@dataclass(config=STRICT, kw_only=True, frozen=True)
class Subsets:
    """Number of scenes in each subset of an ID dataset."""

    train: NonNegativeInt
    val: NonNegativeInt
    test: NonNegativeInt


@dataclass(config=STRICT, kw_only=True, frozen=True)
class DemoWorld:
    """Number, size and difficulty of the scenes.

    Args:
        seed: Of every random choice.
        size: Longest side of a scene, in pixels.
        jpeg_quality: As Pillow counts it.
        held_out: Fraction of the objects of a test subset that are shown by held-out drawings.
        missing_labels: Fraction of the objects of `openimages` that nobody labelled.
        voc, bdd: Number of scenes in each of their subsets.
        coco, openimages: Number of scenes.
    """

    seed: NonNegativeInt = 7
    size: int = Field(default=224, ge=96)
    jpeg_quality: int = Field(default=88, ge=30, le=95)
    held_out: float = Field(default=0.4, ge=0, le=1)
    missing_labels: float = Field(default=0.1, ge=0, le=1)
    voc: Subsets = Subsets(train=3000, val=400, test=500)
    bdd: Subsets = Subsets(train=2500, val=400, test=500)
    coco: NonNegativeInt = 900
    openimages: NonNegativeInt = 900
