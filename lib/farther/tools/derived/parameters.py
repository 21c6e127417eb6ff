"""The parameters of a dataset of synthetic unknowns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from farther.errors import ParameterError
from farther.registry import STRICT, build
from farther.tools.derived.cutouts import Share

Side = Annotated[float, Field(gt=0, le=1)]


@dataclass(config=STRICT, kw_only=True)
class Pasting:
    """How cut-outs are put into a scene.

    Args:
        objects: At least and at most how many.
        size: Range of an object's longest side, as a share of the scene's longest side, drawn evenly on a logarithmic
            scale. None: that of an ID object of the scenes, drawn anew each time.
        enlarge: A cut-out is enlarged at most so many times; more would blur it.
        hidden: At most so much of an ID object's box, or of another pasted object, may be covered.
        mirrored: Share of the objects that are mirrored.
        rotate: Objects are turned by up to so many degrees, either way.
        feather: Radius in pixels over which the object's edge fades, inwards.
        match_colours: How far an object's colours are moved to the scene's: 0 not at all, 1 until mean and contrast of
            each channel are equal.
        tries: Places that are tried at each of three sizes (the one drawn, 3/4 of it, half of it); then the object is
            left out.
    """

    objects: tuple[PositiveInt, PositiveInt] = (1, 3)
    size: tuple[Side, Side] | None = None
    enlarge: Annotated[float, Field(gt=0)] = 1.5
    hidden: Share = 0.3
    mirrored: Share = 0.5
    rotate: Annotated[float, Field(ge=0, le=180)] = 0.0
    feather: Annotated[float, Field(ge=0)] = 1.0
    match_colours: Share = 0.0
    tries: PositiveInt = 12

    def __post_init__(self) -> None:
        for name in ("objects", "size"):
            bounds = getattr(self, name)
            if bounds is not None and bounds[0] > bounds[1]:
                raise ParameterError(f"parameter {name!r}: {bounds[0]} is more than {bounds[1]}")


@dataclass(config=STRICT, kw_only=True)
class Scenes:
    """The images into which objects are put.

    Args:
        dataset, subset: Images of an ID dataset.
        most: At most so many, the same as a benchmark's `most` takes; all when None.
    """

    dataset: str
    subset: str
    most: PositiveInt | None = None


@dataclass(config=STRICT, kw_only=True)
class Synthetic:
    """A dataset of synthetic unknowns.

    Args:
        scenes: The images into which objects are put.
        rules: The rules file that says which classes are unknown.
        vocabulary: Its name for the vocabulary of the cut-outs' categories.
        cutouts: The source of the cut-outs: `source`, one of `farther.tools.derived.names()`, and its parameters.
        protocol: Which lists of the rules file.
        categories: Only these unknown categories; all when empty.
        seed: Of all random choices.
        quality: Of the JPEG files, to 100.
        max_failures: Share of scenes and cut-outs that may be unreadable before it is an error.
        pasting: How cut-outs are put into a scene.
    """

    scenes: Scenes
    rules: Path
    vocabulary: str
    cutouts: dict[str, Any]
    protocol: str = "paper"
    categories: tuple[str, ...] = ()
    seed: NonNegativeInt = 0
    quality: Annotated[int, Field(ge=1, le=100)] = 95
    max_failures: Share = 0.01
    pasting: Pasting = Field(default_factory=Pasting)


def synthetic(name: str, params: Mapping[str, Any]) -> Synthetic:
    """The dataset of synthetic unknowns called `name`, its parameters checked; those of the source are not yet.

    Raises:
        ParameterError: a parameter is unknown or has a wrong value.
    """
    what = f"synthetic {name!r}"
    parts = {
        key: build(cls, f"{what}: {key}", dict(params[key]))
        for key, cls in (("scenes", Scenes), ("pasting", Pasting))
        if isinstance(params.get(key), Mapping)
    }
    return build(Synthetic, what, {**params, **parts})
