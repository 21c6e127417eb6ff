"""Writes a dataset with pasted unknown objects in COCO's format."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from farther.curation.rules import Rules
from farther.curation.sources import LabelledImages
from farther.errors import DataError, ParameterError
from farther.images import read as pictures
from farther.tables import Objects
from farther.tables.files import digest, inside, write_aside, write_json
from farther.tools.derived.cutouts import CutOut, CutOuts
from farther.tools.derived.parameters import Synthetic
from farther.tools.derived.pasting import Canvas, place, trimmed

#: Name of the dataset's only subset.
SUBSET = "pasted"

#: Number of cut-outs tried per object: one may find no room, or its file may be damaged.
CHOICES = 3

#: Columns of `pasted.csv`.
ORIGIN = ("image_id", "object_id", "category", "cutout", "xmin", "ymin", "xmax", "ymax", "visible")


@dataclass(frozen=True)
class ScenesOfID:
    """The scenes of an ID dataset: images and their objects, folder of the files, and the dataset's categories."""

    source: LabelledImages
    root: Path
    categories: tuple[str, ...]


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


def unknowns(cutouts: CutOuts, rules: Rules, vocabulary: str, wanted: Sequence[str] = ()) -> Unknowns:
    """The cut-outs whose categories are unknown to a benchmark: neither an ID class nor an overlap with one.

    Args:
        cutouts: All cut-outs of a source.
        rules: The benchmark's rules.
        vocabulary: The rules' name for the vocabulary of the cut-outs' categories.
        wanted: Categories to keep; all unknown ones when empty.

    Raises:
        ParameterError: a wanted category has no cut-out or is known, the vocabulary is unknown, or nothing is left.
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
        raise ParameterError(f"none of the {len(cutouts.found)} cut-outs shows an unknown class: choose another source")
    for name in wanted:
        if name not in known:
            why = f"the rules say '{deciding[name]}'" if name in deciding else "there is no usable cut-out"
            raise ParameterError(f"category {name!r}: {why}. Known: {', '.join(sorted(known))}")
    chosen = {
        kind: {name: found for name, found in by_category.items() if not wanted or name in wanted}
        for kind, by_category in sorted(by_kind.items())
    }
    return Unknowns(cutouts, {kind: by_category for kind, by_category in chosen.items() if by_category})


def generate(params: Synthetic, scenes: ScenesOfID, unknown: Unknowns, out: str | Path) -> dict[str, Any]:
    """Writes the dataset; returns the counts of scenes, images, objects, failures and pasted objects per category.

    Each image is a scene with unknown objects, either near or far ones, each kind equally likely, and has the scene's
    name. The scene's objects stay annotated, with boxes reduced where pasted objects hide them. A scene without room is
    left out. Images depend on the seed, their scene's name and the cut-outs, not on other scenes.

    Args:
        params: Parameters of the dataset.
        scenes: The ID images.
        unknown: The cut-outs to paste.
        out: Folder to write, aside first and then renamed: `annotations/instances_pasted.json`, `pasted/*.jpg`,
            `pasted.csv` (source of each object), `summary.json` (the returned values, and failures).

    Raises:
        DataError: too many files cannot be read, no scene had room, or a class is both known and unknown.
    """
    both = sorted(set(scenes.categories) & set(unknown.categories))
    if both:
        problem = f"{both[0]!r} is a category of the ID dataset and the name of an unknown class: leave it out"
        raise DataError(problem, field="categories")
    with write_aside(out) as aside:
        (aside / SUBSET).mkdir(parents=True)
        composer = _Composer(params, scenes, unknown)
        writer = _Writer(aside, (*scenes.categories, *unknown.categories), params.quality)
        rows = range(len(scenes.source.images))
        for row in tqdm(rows, desc="synthetic", unit="scene", leave=False):
            one = composer.compose(row)
            if one is not None:
                writer.add(one)
        summary = writer.close(len(rows), composer.failures)
        _refuse_failures(composer.failures, len(rows) + summary["pasted"], params.max_failures)
        if not summary["images"]:
            problem = "no object fitted into any scene: allow smaller ones (pasting.size) or more pasting.hidden"
            raise DataError(problem, file=out)
    return summary


@dataclass(frozen=True)
class _Composed:
    """A scene with pasted objects: their numbers on the canvas, and their cut-outs."""

    image_id: str
    objects: Objects
    canvas: Canvas
    pasted: Sequence[tuple[int, CutOut]]


class _Composer:
    """Pastes unknown objects into scenes; `failures` are scenes and cut-outs that cannot be read."""

    def __init__(self, params: Synthetic, scenes: ScenesOfID, unknown: Unknowns):
        self._params, self._scenes, self._unknown = params, scenes, unknown
        self._scales = _scales(scenes.source)
        rows = scenes.source.image_row
        starts = np.searchsorted(np.sort(rows), np.arange(len(scenes.source.images) + 1))
        self._order, self._starts = np.argsort(rows, kind="stable"), starts
        self.failures: list[dict[str, str]] = []

    def compose(self, row: int) -> _Composed | None:
        """The scene of a row with pasted objects; None where it cannot be read or has no room."""
        images = self._scenes.source.images
        image_id: str = images.image_id[row]
        objects = self._scenes.source.objects[self._order[self._starts[row] : self._starts[row + 1]]]
        try:
            canvas = Canvas(pictures.load(inside(self._scenes.root, images.file[row])), objects.box)
        except DataError as error:
            self.failures.append({"name": image_id, "reason": error.problem})
            return None
        rng = np.random.default_rng([self._params.seed, int(digest(image_id)[:15], 16)])
        kinds = list(self._unknown.by_kind)
        kind = kinds[int(rng.integers(len(kinds)))]
        low, high = self._params.pasting.objects
        tried = [self._add(canvas, kind, rng) for _ in range(int(rng.integers(low, high + 1)))]
        pasted = [one for one in tried if one is not None]
        return _Composed(image_id, objects, canvas, pasted) if pasted else None

    def _add(self, canvas: Canvas, kind: str, rng: np.random.Generator) -> tuple[int, CutOut] | None:
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


class _Writer:
    """Writes images one at a time, and finally their annotations."""

    def __init__(self, folder: Path, categories: Sequence[str], quality: int):
        self._folder, self._quality = folder, quality
        self._number = {name: number for number, name in enumerate(categories, start=1)}
        self._images: list[dict[str, Any]] = []
        self._annotations: list[dict[str, Any]] = []
        self._origins: list[dict[str, Any]] = []

    def add(self, scene: _Composed) -> None:
        """Writes an image and records its objects."""
        canvas, file = scene.canvas, f"{len(self._images) + 1:06d}.jpg"
        Image.fromarray(canvas.pixels).save(self._folder / SUBSET / file, quality=self._quality)
        height, width = canvas.owner.shape
        self._images.append({"id": scene.image_id, "file_name": file, "width": width, "height": height})
        objects = scene.objects
        for row, box in enumerate(canvas.known_boxes()):
            area = float((box[2] - box[0]) * (box[3] - box[1]))
            flags = {"iscrowd": int(objects.is_crowd[row]), "is_difficult": int(objects.is_difficult[row])}
            self._annotate(scene.image_id, objects.category[row], box, area, flags)
        for number, cutout in scene.pasted:
            box, area = canvas.visible_box(number), canvas.area(number)
            if box is not None:
                object_id = self._annotate(scene.image_id, cutout.category, box, area, {"iscrowd": 0})
                origin = {"image_id": scene.image_id, "object_id": object_id, "category": cutout.category}
                edges = dict(zip(("xmin", "ymin", "xmax", "ymax"), map(int, box.tolist()), strict=True))
                visible = f"{area / canvas.sizes[number]:.3f}"
                self._origins.append({**origin, "cutout": cutout.name, **edges, "visible": visible})

    def close(self, scenes: int, failures: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Writes the annotations and returns the summary."""
        head = {"info": {"description": "ID scenes with pasted objects of unknown classes"}, "licenses": []}
        categories = [{"id": number, "name": name} for name, number in self._number.items()]
        content = {**head, "categories": categories, "images": self._images, "annotations": self._annotations}
        (self._folder / "annotations").mkdir()
        text = json.dumps(content, ensure_ascii=False, indent=None, separators=(",", ":"))
        (self._folder / "annotations" / f"instances_{SUBSET}.json").write_text(text + "\n", encoding="utf-8")
        with (self._folder / "pasted.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ORIGIN, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._origins)
        by_category = Counter(row["category"] for row in self._origins)
        summary = {
            "scenes": scenes,
            "images": len(self._images),
            "pasted": len(self._origins),
            "known": len(self._annotations) - len(self._origins),
            "failures": len(failures),
            "categories": dict(sorted(by_category.items())),
        }
        write_json(self._folder / "summary.json", {**summary, "failed": list(failures)})
        return summary

    def _annotate(self, image_id: str, category: str, box: np.ndarray, area: float, flags: dict[str, int]) -> int:
        left, top, right, bottom = box.tolist()
        number = len(self._annotations) + 1
        shape = {"bbox": [left, top, right - left, bottom - top], "area": area}
        names = {"id": number, "image_id": image_id, "category_id": self._number[category]}
        self._annotations.append({**names, **shape, **flags})
        return number


def _scales(source: LabelledImages) -> np.ndarray:
    """Longest side of each single object, as a share of its scene's longest side; sorted."""
    objects, images = source.objects, source.images
    scene = np.maximum(images.width, images.height)[source.image_row]
    scales = (objects.box[:, 2:] - objects.box[:, :2]).max(axis=1, initial=0) / scene
    return np.sort(scales[~objects.is_crowd & (scales > 0)])


def _refuse_failures(failures: list[dict[str, str]], attempts: int, limit: float) -> None:
    if len(failures) > limit * attempts:
        first = "\n".join(f"  {failure['name']}: {failure['reason']}" for failure in failures[:5])
        raise DataError(
            f"{len(failures)} scenes and cut-outs cannot be read, more than max_failures = {limit:g} allows. "
            f"Fix them, or raise it. The first:\n{first}"
        )
