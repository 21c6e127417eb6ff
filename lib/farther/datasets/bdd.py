"""BDD100K: JSON in Scalabel's format (Yu et al., 2020), and the two older layouts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass as plain
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

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
    ImageAttribute,
    Reader,
    fill,
    fill_all,
    image_file,
    register,
)
from farther.datasets.records import Location, Record, read_record, records
from farther.naming.registry import STRICT
from farther.tables.documents import ANNOTATION_BYTES, read_json
from farther.tables.folders import listed

CLASSES = (
    "pedestrian", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
    "traffic light", "traffic sign",
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

#: Class of riders, and the classes that they ride.
RIDER = "rider"
RIDDEN = ("bicycle", "motorcycle")

#: Smallest IoU of a rider and its vehicle that `join_riders` accepts.
LEAST_OVERLAP = 0.1


@plain(frozen=True)
class _Object:
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

    Three forms are read: a list of frames (`det_20/det_val.json`,
    `bdd100k_labels_images_val.json`), an object with `frames`, and a folder with one file per
    image. The last have no file name: `.jpg` is added to their `name`.

    Weather, scene and time of day of an image are stored beside the tables
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
        categories: Names of the classes.
        renamed: Class by the name that it has in older labels.
        ignored: Class by the name of a similar category that is not evaluated.
        join_riders: Join each rider with the bicycle or motorcycle that it rides, as nuImages
            annotates them: the box holds both, its class is that of the vehicle, and there is no
            class `rider`. Riders are assigned so that the sum of IoUs is largest; an image with a
            rider whose vehicle overlaps it by less than 0.1, or who has none, is left out and
            listed (Oksuz et al., 2023, Appendix A.1.2, arXiv:2307.00934, which does not specify
            the treatment of riders without a vehicle).
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
    categories: tuple[str, ...] = CLASSES
    renamed: dict[str, str] = Field(default_factory=RENAMED.copy)
    ignored: dict[str, str] = Field(default_factory=IGNORED.copy)
    join_riders: bool = False

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of a subset; see `Reader`."""
        source = "'Detection 2020 Labels', or 'Labels' of 2018"
        return [
            Expected("labels", fill_all(self.labels, subset), source),
            Expected("images", (fill(self.images, subset),), "'100K Images'"),
        ]

    def read(self, subset: str) -> Annotations:
        """The annotations of one subset; see `Reader` and, for what is an error, the class."""
        categories = list(self.categories)
        if self.join_riders:
            categories = [name for name in categories if name != RIDER]
        collector = Collector(self.root)
        self._add(collector, subset, categories)
        return collector.annotations(
            categories=categories, row="{image_id} labels[{row}]", box_field="box2d"
        )

    def _add(self, collector: Collector, subset: str, categories: list[str]) -> None:
        """Adds the images and objects of a subset."""
        folder = fill(self.images, subset)
        for frame in _frames(self._first_present(self.labels, subset, "labels")):
            name = frame.text("name")
            location = frame.location("name")
            size = frame.record("size") if frame.has("size") else frame
            sides = size.sides()
            objects = self._objects(frame)
            if self.join_riders:
                joined = _with_joined_riders(objects)
                if joined is None:
                    collector.warn(
                        Location(frame.file, name, "box2d"),
                        "rider without vehicle",
                        "a rider without a bicycle or motorcycle",
                        "image dropped",
                    )
                    continue
                objects = joined

            file = image_file(self.root, folder, name, location)
            image = collector.add_image(name, file, location, **sides)
            collector.annotated_by(frame.file)
            collector.attributes.extend(_attributes(frame))
            for labelled in objects:
                collector.add_object(
                    image,
                    labelled.box,
                    categories.index(labelled.category),
                    labelled.row,
                    is_crowd=labelled.is_crowd,
                )

    def _objects(self, frame: Record) -> list[_Object]:
        """The labels of a frame that have a box."""
        if not frame.has("labels"):
            return []
        name = frame.text("name")
        objects = []
        for row, label in enumerate(frame.records("labels")):
            if label.has("box2d"):
                label = replace(label, row=f"{name} labels[{row}]")
                objects.append(self._object(row, label))
        return objects

    def _object(self, row: int, label: Record) -> _Object:
        """The object of a label that has a box."""
        box = label.record("box2d")
        edges = (box.number("x1"), box.number("y1"), box.number("x2") + 1, box.number("y2") + 1)
        name = label.text("category")
        if name in self.ignored:
            category = self.ignored[name]
        else:
            category = self.renamed.get(name, name)
        if category not in self.categories:
            known = ", ".join([*self.categories, *self.renamed, *self.ignored])
            raise label.error(
                f"unknown class {name!r}; known: {known}. Parameters 'categories', 'renamed' and "
                "'ignored' say more",
                "category",
            )

        is_crowd = name in self.ignored
        if label.has("attributes"):
            attributes = label.record("attributes")
            is_crowd |= attributes.flag("crowd") or attributes.flag("ignored")
        return _Object(edges, category, row, is_crowd)


def _attributes(frame: Record) -> Iterator[ImageAttribute]:
    """The attributes of a frame, as far as it has them."""
    if not frame.has("attributes"):
        return
    attributes = frame.record("attributes")
    for attribute in IMAGE_ATTRIBUTES:
        if attributes.has(attribute):
            yield ImageAttribute(frame.text("name"), attribute, attributes.text(attribute))


def _with_joined_riders(objects: list[_Object]) -> list[_Object] | None:
    """An image's objects with riders joined to the vehicles that they ride; see `BDD`.

    Returns:
        The objects; None where a rider has no vehicle, or one that it hardly overlaps.
    """
    riders = [labelled for labelled in objects if labelled.category == RIDER]
    vehicles = [labelled for labelled in objects if labelled.category in RIDDEN]
    if not riders:
        return objects
    if len(riders) > len(vehicles):
        return None

    is_crowd = np.zeros(len(vehicles), np.uint8)
    iou = mask.iou(_boxes_with_size(riders), _boxes_with_size(vehicles), is_crowd)
    rider_rows, vehicle_rows = linear_sum_assignment(iou, maximize=True)
    if iou[rider_rows, vehicle_rows].min() < LEAST_OVERLAP:
        return None

    joint_box_by_row = {}
    for rider_row, vehicle_row in zip(rider_rows, vehicle_rows, strict=True):
        vehicle = vehicles[vehicle_row]
        joint_box_by_row[vehicle.row] = _enclosing_box(riders[rider_row].box, vehicle.box)

    joined = []
    for labelled in objects:
        if labelled.category != RIDER:
            box = joint_box_by_row.get(labelled.row, labelled.box)
            joined.append(replace(labelled, box=box))
    return joined


def _boxes_with_size(objects: list[_Object]) -> np.ndarray:
    """Boxes as left, top, width, height; shape (N, 4)."""
    edges = np.array([labelled.box for labelled in objects])
    return np.concatenate([edges[:, :2], edges[:, 2:] - edges[:, :2]], axis=1)


def _enclosing_box(first: Edges, second: Edges) -> Edges:
    """The smallest box around two boxes."""
    return (
        min(first[0], second[0]),
        min(first[1], second[1]),
        max(first[2], second[2]),
        max(first[3], second[3]),
    )


def _frames(path: Path) -> Iterator[Record]:
    """The frames of a subset, with `name` and `labels`.

    Args:
        path: A file of labels, or a folder with one file per image.
    """
    if path.is_dir():
        yield from _frames_of_folder(path)
        return
    content = read_json(path, without=("poly2d",), limit=ANNOTATION_BYTES)
    if isinstance(content, dict):
        yield from Record(content, path).records("frames")
    else:
        yield from records(content, path)


def _frames_of_folder(folder: Path) -> Iterator[Record]:
    """The frame of each file of a folder, in the form that files of labels have."""
    for file in listed(folder, "*.json"):
        image = read_record(file, without=("poly2d",))
        frames = list(image.records("frames"))
        if len(frames) != 1:
            raise image.error(
                f"expected the one frame of a still image, found {len(frames)}", "frames"
            )
        values = {
            "name": image.text("name") + ".jpg",
            "labels": frames[0].values.get("objects"),
            "attributes": image.values.get("attributes"),
        }
        yield replace(image, values=values)
