"""Pastes objects of unknown classes into scenes of an ID dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from farther.errors import DataError, ParameterError
from farther.registry import STRICT
from farther.tables.files import digest, write_csv
from farther.tables.writing import write_aside

#: Name of the dataset's only subset.
SUBSET = "pasted"

#: Number of cut-outs tried per object: one may find no room, or its file may be damaged.
CHOICES = 3


@KINDS.register("paste")
@checked(config=STRICT, kw_only=True)
class Paste(Derived):
    """Objects of unknown classes pasted into ID scenes, so that an image and its scene differ in these objects alone.

    Args:
        rules: The rules file that tells which classes are unknown.
        vocabulary: Its name for the vocabulary of the cut-outs' categories.
        cutouts: The source of the cut-outs: `source`, one of `farther.derived.names()`, and its
            parameters.
        protocol: Lists of the rules file to use.
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
        found = unknowns(create(**self.cutouts).read(), rules, self.vocabulary, self.categories)
        return generate(self, scenes, found, out)


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
        return tuple(sorted(name for by_category in self.by_kind.values() for name in by_category))

    def draw(self, kind: str, rng: np.random.Generator) -> CutOut:
        """Random cut-out of a kind; all categories are equally likely, whatever their number of cut-outs."""
        by_category = self.by_kind[kind]
        names = sorted(by_category)
        found = by_category[names[int(rng.integers(len(names)))]]
        return found[int(rng.integers(len(found)))]


def unknowns(
    cutouts: CutOuts, rules: Rules, vocabulary: str, wanted: Sequence[str] = ()
) -> Unknowns:
    """The cut-outs whose categories are unknown to a benchmark: neither an ID class nor an overlap with one.

    Args:
        cutouts: All cut-outs of a source.
        rules: The benchmark's rules.
        vocabulary: The rules' name for the vocabulary of the cut-outs' categories.
        wanted: Categories to keep; all unknown ones when empty.

    Raises:
        ParameterError: a wanted category has no cut-out or is known, the vocabulary is unknown, or
            nothing is left.
    """
    deciding = rules.by_category(vocabulary, cutouts.categories)
    by_kind: dict[str, dict[str, list[CutOut]]] = {}
    for one in cutouts.found:
        rule = deciding.get(one.category)
        if rule is None or rule.kind == "near":
            kind = "far" if rule is None else "near"
            by_kind.setdefault(kind, {}).setdefault(one.category, []).append(one)
    known = {name for by_category in by_kind.values() for name in by_category}
    if not known:
        raise ParameterError(
            f"none of the {len(cutouts.found)} cut-outs shows an unknown class: choose another source"
        )
    for name in wanted:
        if name not in known:
            why = (
                f"the rules say '{deciding[name]}'"
                if name in deciding
                else "there is no usable cut-out"
            )
            raise ParameterError(f"category {name!r}: {why}. Known: {', '.join(sorted(known))}")
    chosen = {
        kind: {name: found for name, found in by_category.items() if not wanted or name in wanted}
        for kind, by_category in sorted(by_kind.items())
    }
    return Unknowns(
        cutouts, {kind: by_category for kind, by_category in chosen.items() if by_category}
    )


def generate(params: Paste, scenes: Scenes, unknown: Unknowns, out: str | Path) -> dict[str, Any]:
    """Writes the dataset; returns the counts of scenes, images, objects, failures and pasted objects per category.

    Each image is a scene with unknown objects, either near or far ones, each kind equally likely,
    and has the scene's name. The scene's objects stay annotated, with boxes reduced where pasted
    objects hide them. A scene without room is left out. Images depend on the seed, their scene's
    name and the cut-outs, not on other scenes.

    Args:
        params: Parameters of the dataset.
        scenes: The ID images.
        unknown: The cut-outs to paste.
        out: Folder to write; see `Derived.write`. `pasted.csv` names the source of each object.

    Raises:
        DataError: too many files cannot be read, no scene had room, or a class is both known and
            unknown.
    """
    both = sorted(set(scenes.categories) & set(unknown.categories))
    if both:
        problem = f"{both[0]!r} is a category of the ID dataset and the name of an unknown class: leave it out"
        raise DataError(problem, field="categories")
    with write_aside(out) as aside:
        (aside / SUBSET).mkdir(parents=True)
        composer, origins = _Composer(params, scenes, unknown), list[dict[str, Any]]()
        coco = CocoFile(
            (*scenes.categories, *unknown.categories),
            "ID scenes with pasted objects of unknown classes",
        )
        for row in tqdm(range(len(scenes)), "paste", unit="scene", leave=False, disable=None):
            canvas, pasted = composer.compose(row)
            if canvas is not None and pasted:
                file = f"{len(coco.images) + 1:06d}{params.suffix}"
                params.save(canvas.pixels, aside / SUBSET / file)
                image_id, (height, width) = scenes.source.images.image_id[row], canvas.owner.shape
                coco.add_image(image_id, file, width, height)
                coco.add_objects(scenes.objects(row), canvas.known_boxes())
                origins += _annotate(coco, image_id, canvas, pasted)
        coco.write(aside, SUBSET)
        write_csv(aside / "pasted.csv", pl.DataFrame(origins))
        counts = {
            "scenes": len(scenes),
            "images": len(coco.images),
            "pasted": len(origins),
            "known": len(coco.annotations) - len(origins),
            "categories": dict(sorted(Counter(row["category"] for row in origins).items())),
        }
        summary = params.finish(aside, counts, composer.failures, len(scenes) + len(origins))
        if not coco.images:
            problem = "no object fitted into any scene: allow smaller ones (pasting.size) or more pasting.hidden"
            raise DataError(problem, file=out)
    return summary


class _Composer:
    """Pastes unknown objects into scenes; `failures` are scenes and cut-outs that cannot be read."""

    def __init__(self, params: Paste, scenes: Scenes, unknown: Unknowns):
        self._params, self._scenes, self._unknown = params, scenes, unknown
        self._scales = _scales(scenes.source)
        self.failures: list[dict[str, str]] = []

    def compose(self, row: int) -> tuple[Canvas | None, list[tuple[int, CutOut]]]:
        """The scene of a row, None where it cannot be read; and number and cut-out of each object pasted there."""
        images = self._scenes.source.images
        try:
            canvas = Canvas(self._scenes.pixels(row), self._scenes.objects(row).box)
        except DataError as error:
            self.failures.append(
                {"name": images.image_id[row], "reason": f"{images.file[row]}: {error.problem}"}
            )
            return None, []
        rng = np.random.default_rng([self._params.seed, int(digest(images.image_id[row])[:15], 16)])
        kinds = list(self._unknown.by_kind)
        kind = kinds[int(rng.integers(len(kinds)))]
        low, high = self._params.pasting.objects
        tried = [self._add(canvas, kind, rng) for _ in range(int(rng.integers(low, high + 1)))]
        return canvas, [one for one in tried if one is not None]

    def _add(
        self, canvas: Canvas, kind: str, rng: np.random.Generator
    ) -> tuple[int, CutOut] | None:
        """Pastes an object of a kind; tries another one where the first finds no room."""
        for _ in range(CHOICES):
            chosen = self._unknown.draw(kind, rng)
            scale = self._scale(rng)
            try:
                picture = trimmed(self._unknown.cutouts.picture(chosen))
            except DataError as error:
                self.failures.append({"name": chosen.name, "reason": error.problem})
                continue
            if picture is not None:
                largest = self._params.pasting.enlarge * max(picture.size)
                side = min(scale * max(canvas.owner.shape), largest)
                number = place(canvas, picture, side, self._params.pasting, rng)
                if number is not None:
                    return number, chosen
        return None

    def _scale(self, rng: np.random.Generator) -> float:
        """Longest side of an object as a share of the scene's."""
        size, scales = self._params.pasting.size, self._scales
        if size is not None:
            return float(size[0] * (size[1] / size[0]) ** rng.random())
        if not len(scales):
            raise ParameterError("the scenes have no objects to take sizes from: set pasting.size")
        return float(scales[int(rng.integers(len(scales)))])


def _annotate(
    coco: CocoFile, image_id: str, canvas: Canvas, pasted: Sequence[tuple[int, CutOut]]
) -> Iterator[dict[str, Any]]:
    """Lists the pasted objects of a scene; yields the rows of `pasted.csv`."""
    for number, cutout in pasted:
        box, area = canvas.visible_box(number), canvas.area(number)
        if box is not None:
            object_id = coco.add_object(image_id, cutout.category, box, area)
            names = {
                "image_id": image_id,
                "object_id": object_id,
                "category": cutout.category,
                "cutout": cutout.name,
            }
            edges = dict(zip(("xmin", "ymin", "xmax", "ymax"), map(int, box.tolist()), strict=True))
            yield {**names, **edges, "visible": f"{area / canvas.sizes[number]:.3f}"}


def _scales(source: LabelledImages) -> np.ndarray:
    """Longest side of each single object, as a share of its scene's longest side; sorted."""
    objects, images = source.objects, source.images
    scene = np.maximum(images.width, images.height)[source.image_row]
    scales = (objects.box[:, 2:] - objects.box[:, :2]).max(axis=1, initial=0) / scene
    return np.sort(scales[~objects.is_crowd & (scales > 0)])
