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
    """How cut-outs are pasted into a scene.

    Args:
        objects: Least and largest number of objects per scene.
        size: Range of an object's longest side, as a share of the scene's longest side, drawn log-uniformly. None: the
            size of a random ID object of the scenes.
        enlarge: Largest factor by which a cut-out is enlarged; more would blur it.
        hidden: Largest share of an ID object's box, or of another pasted object, that may be covered.
        mirrored: Share of the objects that are mirrored.
        rotate: Largest rotation in degrees, in either direction.
        feather: Radius in pixels over which the object's edge fades, inwards.
        match_colours: Degree to which an object's colours are moved to the scene's; at 1 mean and standard deviation of
            each channel are equal.
        tries: Number of places tried at each of three sizes (the one drawn, 3/4 and 1/2 of it) before the object is
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
    """The images into which objects are pasted.

    Args:
        dataset, subset: Images of an ID dataset.
        most: Largest number of images, selected as by a benchmark's `most`; all when None.
    """

    dataset: str
    subset: str
    most: PositiveInt | None = None


@dataclass(config=STRICT, kw_only=True)
class Synthetic:
    """Parameters of a dataset with pasted unknown objects.

    Args:
        scenes: The images into which objects are pasted.
        rules: The rules file that tells which classes are unknown.
        vocabulary: Its name for the vocabulary of the cut-outs' categories.
        cutouts: The source of the cut-outs: `source`, one of `farther.tools.derived.names()`, and its parameters.
        protocol: Lists of the rules file to use.
        categories: Unknown categories to paste; all when empty.
        seed: Seed of all random choices.
        quality: Quality of the JPEG files, 1 to 100.
        max_failures: Share of scenes and cut-outs that may be unreadable before it is an error.
        pasting: How cut-outs are pasted into a scene.
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
    """Checks the parameters of dataset `name`, except those of its source of cut-outs.

    Raises:
        ParameterError: a parameter is unknown or has an invalid value.
    """
    what = f"synthetic {name!r}"
    parts = {
        key: build(cls, f"{what}: {key}", dict(params[key]))
        for key, cls in (("scenes", Scenes), ("pasting", Pasting))
        if isinstance(params.get(key), Mapping)
    }
    return build(Synthetic, what, {**params, **parts})
