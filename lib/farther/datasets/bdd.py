"""BDD100K: JSON in Scalabel's format (Yu et al., 2020), and the two layouts that came before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from pycocotools import mask
from pydantic import Field
from pydantic.dataclasses import dataclass
from scipy.optimize import linear_sum_assignment

from farther.datasets.base import (
    Annotations,
    Collector,
    Edges,
    Expected,
    Reader,
    fill,
    fill_all,
    image_file,
    register,
)
from farther.datasets.records import Location, Record, read_record, records
from farther.registry import STRICT
from farther.tables.documents import ANNOTATION_BYTES, read_json
from farther.tables.folders import listed

CLASSES = (
    "pedestrian", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle", "traffic light", "traffic sign",
)  # fmt: skip

#: Names in the labels of 2018 and in other parts of the dataset, as BDD100K's toolkit maps them for
#: detection.
RENAMED = {
    "bike": "bicycle",
    "motor": "motorcycle",
    "person": "pedestrian",
    "caravan": "car",
    "van": "car",
}

#: Names that the toolkit maps to a class and excludes from evaluation.
IGNORED = {"other person": "pedestrian", "other vehicle": "car", "trailer": "truck"}

#: Attributes of images (Yu et al., 2020, Section 3).
IMAGE_ATTRIBUTES = ("weather", "scene", "timeofday")

RIDER, RIDDEN = "rider", ("bicycle", "motorcycle")

#: Smallest IoU of a rider and its vehicle that `join_riders` accepts.
LEAST_OVERLAP = 0.1


class _Labelled(NamedTuple):
    """An object as labelled: box, class, row of its label, and whether it is a crowd."""

    box: Edges
    category: str
    row: int
    is_crowd: bool


@register("bdd")
@dataclass(config=STRICT, kw_only=True)
class BDD(Reader):
    """BDD100K detection.

    Scalabel's boxes include their last pixel (its toolkit computes a width of x2 - x1 + 1), so the
    edges are x1, y1, x2 + 1, y2 + 1. The image id is the frame's name. Labels without `box2d`
    (lanes, drivable areas) are left out. Names of classes are those of the 2020 labels; older ones
    are renamed as BDD100K's toolkit does. An object is a crowd where its attribute `crowd` or
    `ignored` says so, or its class is one that the toolkit ignores ("other vehicle").

    Read alike: a list of frames (`det_20/det_val.json`, `bdd100k_labels_images_val.json`), an
    object with `frames`, and a folder of files of one image each. The last have no file name:
    `.jpg` is added to their `name`.

    Weather, scene and time of day of an image are kept beside the tables
    (`farther.tables.ImageAttributes`).

    Tolerated, as the toolkit does: `labels` null or absent (no objects); absent ids and attributes;
    images that no label file names. Errors: JSON that does not parse; a frame without `name`, or
    one of a name that occurred before; a label with a box but no `category`, or one of an unknown
    class; fields of a wrong type; x2 or y2 more than a pixel before x1 or y1; a name that leaves
    its folder.

    Args:
        subset_names: Subsets to read. When empty, those of train, val and test that are present.
        labels: The labels of a subset, within the root: the first of these files or folders that
            exists.
        images: The folder of a subset's images, within the root.
        combined: Subsets that consist of several others: `{trainval: [train, val]}`.
        categories: Names of the classes.
        renamed: Class by the name that it has in older labels.
        ignored: Class by the name of a similar category that is not evaluated.
        join_riders: Join each rider with the bicycle or motorcycle that it rides, as nuImages
            annotates them: the box holds both, its class is that of the vehicle, and there is no
            class `rider`. Riders are assigned so that the sum of IoUs is largest; an image with a
            rider whose vehicle overlaps it by less than 0.1, or who has none, is left out and
            listed (Oksuz et al., 2023, Appendix A.1.2, arXiv:2307.00934, which does not say what
            becomes of riders without a vehicle).
    """

    SOURCE: ClassVar[str] = (
        "bdd-data.berkeley.edu (Yu et al., 2020, doi:10.1109/CVPR42600.2020.00271)"
    )

    ORIGINALS: ClassVar[tuple[str, ...]] = ("train", "val", "test")

    labels: tuple[str, ...] = (
        "labels/det_20/det_{subset}.json",
        "labels/bdd100k_labels_images_{subset}.json",
        "labels/100k/{subset}",
    )
    images: str = "images/100k/{subset}"
    combined: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    categories: tuple[str, ...] = CLASSES
    renamed: dict[str, str] = Field(default_factory=RENAMED.copy)
    ignored: dict[str, str] = Field(default_factory=IGNORED.copy)
    join_riders: bool = False

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        parts = self.combined.get(subset, (subset,))
        source = "'Detection 2020 Labels', or 'Labels' of 2018"
        labels = [Expected("labels", fill_all(self.labels, part), source) for part in parts]
        return [
            *labels,
            *(Expected("images", (fill(self.images, part),), "'100K Images'") for part in parts),
        ]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        found = Collector(self.root)
        categories = [name for name in self.categories if name != RIDER or not self.join_riders]
        for part in self.combined.get(subset, (subset,)):
            self._add(found, part, categories)
        return found.annotations(
            categories=categories, row="{image_id} labels[{row}]", box_field="box2d"
        )

    def _add(self, found: Collector, subset: str, categories: list[str]) -> None:
        """Adds the images and objects of a subset."""
        path, folder = self._first_present(self.labels, subset, "labels"), fill(self.images, subset)
        for frame in _frames(path):
            name, location = frame.text("name"), frame.location("name")
            sides = (frame.record("size") if frame.has("size") else frame).sides()
            labelled = [
                self._labelled(row, replace(label, row=f"{name} labels[{row}]"))
                for row, label in enumerate(frame.records("labels") if frame.has("labels") else ())
                if label.has("box2d")
            ]
            objects = _joined(labelled) if self.join_riders else labelled
            if objects is None:
                place, problem = (
                    Location(frame.file, name, "box2d"),
                    "a rider without a bicycle or motorcycle",
                )
                found.warn(place, "rider without vehicle", problem, "image dropped")
                continue
            image = found.add_image(
                name, image_file(self.root, folder, name, location), location, **sides
            )
            found.annotated_by(frame.file)
            found.attributes.extend(_attributes_of(frame, name))
            for one in objects:
                found.add_object(
                    image, one.box, categories.index(one.category), one.row, is_crowd=one.is_crowd
                )

    def _labelled(self, row: int, label: Record) -> _Labelled:
        """The object of a label that has a box."""
        box = label.record("box2d")
        edges = (box.number("x1"), box.number("y1"), box.number("x2") + 1, box.number("y2") + 1)
        name = label.text("category")
        category = self.ignored.get(name, self.renamed.get(name, name))
        if category not in self.categories:
            known = ", ".join([*self.categories, *self.renamed, *self.ignored])
            raise label.error(
                f"unknown class {name!r}; known: {known}. Parameters 'categories', 'renamed' and 'ignored' say more",
                "category",
            )
        crowd = name in self.ignored
        if label.has("attributes"):
            attributes = label.record("attributes")
            crowd |= attributes.flag("crowd") or attributes.flag("ignored")
        return _Labelled(edges, category, row, crowd)


def _attributes_of(frame: Record, name: str) -> Iterator[tuple[str, str, str]]:
    """Name of the image, attribute and value of the attributes that a frame has."""
    if not frame.has("attributes"):
        return
    attributes = frame.record("attributes")
    for attribute in IMAGE_ATTRIBUTES:
        if attributes.has(attribute):
            yield name, attribute, attributes.text(attribute)


def _joined(found: list[_Labelled]) -> list[_Labelled] | None:
    """An image's objects with riders joined to what they ride; None where a rider has no vehicle. See `BDD`."""
    riders = [one for one in found if one.category == RIDER]
    ridden = [one for one in found if one.category in RIDDEN]
    if not riders:
        return found
    if len(riders) > len(ridden):
        return None
    sides = [
        np.array([(*one.box[:2], *np.subtract(one.box[2:], one.box[:2])) for one in group])
        for group in (riders, ridden)
    ]
    overlap = mask.iou(*sides, np.zeros(len(ridden), np.uint8))
    rows, columns = linear_sum_assignment(overlap, maximize=True)
    if overlap[rows, columns].min() < LEAST_OVERLAP:
        return None
    boxes = {}
    for rider, vehicle in zip(
        (riders[row] for row in rows), (ridden[column] for column in columns), strict=True
    ):
        left, top, right, bottom = zip(rider.box, vehicle.box, strict=True)
        boxes[vehicle.row] = (min(left), min(top), max(right), max(bottom))
    return [one._replace(box=boxes.get(one.row, one.box)) for one in found if one.category != RIDER]


def _frames(path: Path) -> Iterator[Record]:
    """The frames of a label file, or of a folder of files of one image each, with `name` and `labels`."""
    if not path.is_dir():
        content = read_json(path, without=("poly2d",), limit=ANNOTATION_BYTES)
        yield from (
            Record(content, path).records("frames")
            if isinstance(content, dict)
            else records(content, path)
        )
        return
    for file in listed(path, "*.json"):
        image = read_record(file, without=("poly2d",))
        moments = list(image.records("frames"))
        if len(moments) != 1:
            raise image.error(
                f"expected the one frame of a still image, found {len(moments)}", "frames"
            )
        values = {"name": image.text("name") + ".jpg", "labels": moments[0].values.get("objects")}
        yield replace(image, values={**values, "attributes": image.values.get("attributes")})
