"""Pastes objects of unknown classes into scenes of an ID dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from pydantic import Field
from pydantic.dataclasses import dataclass as checked
from tqdm import tqdm

from farther.curation.rules import Rules
from farther.curation.sources import LabelledImages
from farther.derived.base import KINDS, CocoFile, Derived, Scenes
from farther.derived.cutouts import CutOut, CutOuts, create
from farther.derived.pasting import Canvas, Pasting, place, trimmed
from farther.errors import DataError, ParameterError, known_names
from farther.images.folders import refuse_absent_folder
from farther.naming.registry import STRICT
from farther.tables.files import digest, write_csv
from farther.tables.writing import write_aside

#: Name of the dataset's only subset.
SUBSET = "pasted"

#: Number of cut-outs tried per object: one may find no room, or its file may be damaged.
CHOICES = 3


@KINDS.register("paste")
@checked(config=STRICT, kw_only=True)
class Paste(Derived):
    """Objects of unknown classes pasted into ID scenes.

    An image and its scene differ in these objects only.

    Args:
        rules: The class mapping that decides which classes are unknown.
        vocabulary: The class mapping's name for the vocabulary of the cut-outs' categories.
        cutouts: The source of the cut-outs, and its parameters.
        protocol: The lists of the class mapping that apply, by their name under its `protocols`.
        categories: Unknown categories to paste; all when empty.
        pasting: How cut-outs are pasted into a scene.

    References:
        Montoya et al., "FindMeIfYouCan: Bringing Open Set metrics to near, far and farther
        Out-of-Distribution Object detection" (FMIYC), 2025, names such a split as future work.
        arXiv:2506.14008.
    """

    rules: Path
    vocabulary: str
    cutouts: dict[str, Any]
    protocol: str = "paper"
    categories: tuple[str, ...] = ()
    pasting: Pasting = Field(default_factory=Pasting)

    @classmethod
    def parts(cls) -> dict[str, type]:
        """The parameters that have parameters themselves, and their classes."""
        return {**super().parts(), "pasting": Pasting}

    def write(self, scenes: Scenes, out: Path) -> dict[str, Any]:
        """Writes the dataset and returns counts; see `Derived.write` and `generate`."""
        rules = Rules(self.rules, self.protocol)
        cutouts = create(**self.cutouts).read()
        unknown = unknowns(cutouts, rules, self.vocabulary, self.categories)
        return generate(self, scenes, unknown, out)


@dataclass(frozen=True)
class Unknowns:
    """Cut-outs of unknown classes.

    Args:
        cutouts: Their source.
        by_kind: `near` and `far`, where present → category → cut-outs.
    """

    cutouts: CutOuts
    by_kind: Mapping[str, Mapping[str, Sequence[CutOut]]]

    @property
    def categories(self) -> tuple[str, ...]:
        """All categories, sorted."""
        names: set[str] = set()
        for by_category in self.by_kind.values():
            names.update(by_category)
        return tuple(sorted(names))

    def draw(self, kind: str, rng: np.random.Generator) -> CutOut:
        """Random cut-out of a kind.

        All categories are equally likely, whatever their number of cut-outs.
        """
        by_category = self.by_kind[kind]
        names = sorted(by_category)
        name = names[int(rng.integers(len(names)))]
        cutouts = by_category[name]
        return cutouts[int(rng.integers(len(cutouts)))]


def unknowns(
    cutouts: CutOuts, rules: Rules, vocabulary: str, categories: Sequence[str] = ()
) -> Unknowns:
    """The cut-outs of unknown classes: neither an ID class nor an overlap with one.

    Args:
        cutouts: All cut-outs of a source.
        rules: The benchmark's rules.
        vocabulary: The rules' name for the vocabulary of the cut-outs' categories.
        categories: Unknown categories to select; all when empty.

    Raises:
        ParameterError: a selected category has no cut-out or is known, the vocabulary is unknown,
            or nothing is left.
    """
    rule_by_category = rules.by_category(vocabulary, cutouts.categories)
    by_kind: dict[str, dict[str, list[CutOut]]] = {"far": {}, "near": {}}
    for cutout in cutouts.entries:
        rule = rule_by_category.get(cutout.category)
        if rule is None:
            by_kind["far"].setdefault(cutout.category, []).append(cutout)
        elif rule.kind == "near":
            by_kind["near"].setdefault(cutout.category, []).append(cutout)

    unknown_categories = sorted(by_kind["far"].keys() | by_kind["near"].keys())
    if not unknown_categories:
        raise ParameterError(
            f"none of the {len(cutouts.entries)} cut-outs shows an unknown class: choose another "
            "source"
        )
    for name in categories:
        if name not in unknown_categories:
            reason = "there is no usable cut-out"
            if name in rule_by_category:
                reason = f"the rules say '{rule_by_category[name]}'"
            known = known_names(unknown_categories)
            raise ParameterError(f"category {name!r}: {reason}. {known}")

    selected = set(categories or unknown_categories)
    selected_by_kind = {}
    for kind, by_category in by_kind.items():
        cutouts_by_category = {
            name: entries for name, entries in by_category.items() if name in selected
        }
        if cutouts_by_category:
            selected_by_kind[kind] = cutouts_by_category
    return Unknowns(cutouts, selected_by_kind)


def generate(params: Paste, scenes: Scenes, unknown: Unknowns, out: str | Path) -> dict[str, Any]:
    """Writes the dataset and returns counts.

    Each image is a scene with unknown objects, either near or far ones, each kind equally likely,
    and has the scene's name. The scene's objects stay annotated, with boxes reduced where pasted
    objects hide them. A scene without room is left out. Images depend on the seed, their scene's
    name and the cut-outs, not on other scenes.

    Args:
        params: Parameters of the dataset.
        scenes: The ID images.
        unknown: The cut-outs to paste.
        out: Folder to write; see `Derived.write`. `pasted.csv` names the source of each object.

    Returns:
        Numbers of scenes, images, known objects, failures, and pasted objects, also by category.

    Raises:
        DataError: too many files cannot be read, no scene had room, or a class is both known and
            unknown.
    """
    common_categories = sorted(set(scenes.categories) & set(unknown.categories))
    if common_categories:
        raise DataError(
            f"{common_categories[0]!r} is a category of the ID dataset and the name of an unknown "
            "class: leave it out",
            field="categories",
        )
    categories = (*scenes.categories, *unknown.categories)
    with write_aside(out) as aside:
        (aside / SUBSET).mkdir(parents=True)
        composer = _Composer(params, scenes, unknown)
        coco = CocoFile(categories, "ID scenes with pasted objects of unknown classes")
        origins: list[dict[str, Any]] = []
        for row in tqdm(range(len(scenes)), "paste", unit="scene", leave=False, disable=None):
            composition = composer.compose(row)
            if composition is None:
                continue
            file = f"{len(coco.images) + 1:06d}{params.suffix}"
            params.save(composition.canvas.pixels, aside / SUBSET / file)
            origins += _annotate(coco, scenes, row, file, composition)

        coco.write(aside, SUBSET)
        write_csv(aside / "pasted.csv", pl.DataFrame(origins))
        pasted_by_category = Counter(origin["category"] for origin in origins)
        counts = {
            "scenes": len(scenes),
            "images": len(coco.images),
            "pasted": len(origins),
            "known": len(coco.annotations) - len(origins),
            "categories": dict(sorted(pasted_by_category.items())),
        }
        summary = params.finish(aside, counts, composer.failures, len(scenes) + len(origins))
        if not coco.images:
            raise DataError(
                "no object fitted into any scene: allow smaller ones (pasting.size) or more "
                "pasting.hidden",
                file=out,
            )
    return summary


class _Pasted(NamedTuple):
    """A pasted object: its number on the canvas, and the cut-out."""

    number: int
    cutout: CutOut


@dataclass(frozen=True)
class _Composition:
    """A scene with pasted objects."""

    canvas: Canvas
    pasted: list[_Pasted]


class _Composer:
    """Pastes unknown objects into scenes.

    Attributes:
        failures: `name` and `reason` of the scenes and cut-outs that cannot be read.
    """

    def __init__(self, params: Paste, scenes: Scenes, unknown: Unknowns):
        self.failures: list[dict[str, str]] = []
        self._params = params
        self._scenes = scenes
        self._unknown = unknown
        self._scales = _scales(scenes.source)

    def compose(self, row: int) -> _Composition | None:
        """The scene of a row with its pasted objects.

        Returns:
            None where the scene cannot be read, or has no room for an object.
        """
        images = self._scenes.source.images
        image_id = images.image_id[row]
        try:
            pixels = self._scenes.pixels(row, self._params.max_pixels)
            canvas = Canvas(pixels, self._scenes.objects(row).box)
        except DataError as error:
            refuse_absent_folder(self._scenes.file(row))
            reason = f"{images.file[row]}: {error.problem}"
            self.failures.append({"name": image_id, "reason": reason})
            return None

        rng = np.random.default_rng([self._params.seed, int(digest(image_id)[:15], 16)])
        kinds = list(self._unknown.by_kind)
        kind = kinds[int(rng.integers(len(kinds)))]
        low, high = self._params.pasting.objects
        count = int(rng.integers(low, high + 1))
        pasted_objects = []
        for _ in range(count):
            pasted = self._paste(canvas, kind, rng)
            if pasted is not None:
                pasted_objects.append(pasted)
        if not pasted_objects:
            return None
        return _Composition(canvas, pasted_objects)

    def _paste(self, canvas: Canvas, kind: str, rng: np.random.Generator) -> _Pasted | None:
        """Pastes an object of a kind; tries another one where the first finds no room."""
        for _ in range(CHOICES):
            cutout = self._unknown.draw(kind, rng)
            scale = self._scale(rng)
            try:
                picture = trimmed(self._unknown.cutouts.picture(cutout))
            except DataError as error:
                self.failures.append({"name": cutout.name, "reason": error.problem})
                continue
            if picture is None:
                continue
            largest_side = self._params.pasting.enlarge * max(picture.size)
            side = min(scale * max(canvas.owner.shape), largest_side)
            number = place(canvas, picture, side, self._params.pasting, rng)
            if number is not None:
                return _Pasted(number, cutout)
        return None

    def _scale(self, rng: np.random.Generator) -> float:
        """Longest side of an object as a share of the scene's."""
        size_range = self._params.pasting.size
        if size_range is not None:
            smallest, largest = size_range
            return float(smallest * (largest / smallest) ** rng.random())
        if not len(self._scales):
            raise ParameterError("the scenes have no objects to take sizes from: set pasting.size")
        return float(self._scales[int(rng.integers(len(self._scales)))])


def _annotate(
    coco: CocoFile, scenes: Scenes, row: int, file: str, composition: _Composition
) -> list[dict[str, Any]]:
    """Adds an image and its objects to the annotations; returns the image's rows of `pasted.csv`.

    Args:
        coco: The annotations.
        scenes: The ID images.
        row: Row of the scene.
        file: Name of the image's file.
        composition: The scene with its pasted objects.
    """
    canvas = composition.canvas
    image_id = scenes.source.images.image_id[row]
    height, width = canvas.owner.shape
    coco.add_image(image_id, file, width, height)
    coco.add_objects(scenes.objects(row), canvas.known_boxes())

    origins = []
    for pasted in composition.pasted:
        box = canvas.visible_box(pasted.number)
        if box is None:
            continue
        area = canvas.area(pasted.number)
        category = pasted.cutout.category
        xmin, ymin, xmax, ymax = box.astype(int).tolist()
        origins.append(
            {
                "image_id": image_id,
                "object_id": coco.add_object(image_id, category, box, area),
                "category": category,
                "cutout": pasted.cutout.name,
                "xmin": xmin,
                "ymin": ymin,
                "xmax": xmax,
                "ymax": ymax,
                "visible": f"{area / canvas.sizes[pasted.number]:.3f}",
            }
        )
    return origins


def _scales(source: LabelledImages) -> np.ndarray:
    """Longest side of each single object, as a share of its scene's longest side; sorted."""
    images = source.images
    objects = source.objects
    scene_side = np.maximum(images.width, images.height)[source.image_row]
    object_side = (objects.box[:, 2:] - objects.box[:, :2]).max(axis=1, initial=0)
    scales = object_side / scene_side
    return np.sort(scales[~objects.is_crowd & (scales > 0)])
