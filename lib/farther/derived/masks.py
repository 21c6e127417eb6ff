"""Cut-outs by outline: the masks of a COCO annotation file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain
from functools import partial
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from pydantic.dataclasses import dataclass

from farther.curation.sources import Categories
from farther.datasets.base import AnnotatedOn, Edges, image_file
from farther.datasets.coco import id_text
from farther.datasets.orientation import ADVICE, TurnedImages
from farther.datasets.records import Record, read_record
from farther.derived.cutouts import AnnotatedSource, CutOut, CutOuts, register
from farther.images import read as pictures
from farther.images.orientation import BACK, UPRIGHT, turned
from farther.naming.registry import STRICT
from farther.tables.files import inside

#: Left, top, right, bottom of a part of an image, in pixels.
Window = tuple[int, int, int, int]

#: Fields that parsing skips.
UNREAD = ("area", "license", "url", "coco_url", "flickr_url", "date_captured")

#: Factor by which polygons are drawn larger and reduced again, for soft edges.
OVERSAMPLING = 4

#: Largest share of annotations of an unknown image or category.
UNKNOWN = 0.05

#: Largest number of bits of a run length.
LENGTH_BITS = 35

NO_OUTLINE = "expected run lengths, or polygons: x, y, x, y, … of at least three points"


@register("masks")
@dataclass(config=STRICT, kw_only=True)
class MaskCutOuts(AnnotatedSource):
    """Objects of a COCO file with a `segmentation`: polygons, or run lengths as numbers or text.

    Args:
        annotations: The COCO file, within the root.
        images: Folder of the images, within the root; `.` for the root itself.
        orientation: The pixels that outlines refer to where images have an EXIF orientation: those
            of the image as it is "displayed", or as it is "stored"; "auto" finds out.
    """

    annotations: str = "annotations/instances_val2017.json"
    images: str = "val2017"
    orientation: AnnotatedOn = "auto"

    def read(self) -> CutOuts:
        """The file's single objects that have an outline; see `CutOutSource`."""
        content = read_record(inside(self.root, self.annotations), without=UNREAD)
        name_by_id: dict[int, str] = {}
        for record in content.records("categories"):
            name_by_id[record.integer("id")] = record.text("name")
        image_by_id = {id_text(record, "id"): record for record in content.records("images")}
        annotations = list(content.records("annotations"))
        _refuse_unknown(annotations, image_by_id, name_by_id)

        objects = []
        for record in annotations:
            outlined = _outlined(record, image_by_id, name_by_id)
            if outlined is not None:
                objects.append(outlined)
        is_usable = self._usable_objects(objects)

        entries = []
        for row in np.flatnonzero(is_usable).tolist():
            outlined = objects[row]
            name = f"{outlined.file}, object {outlined.record.integer('id')}"
            entries.append(CutOut(outlined.category, name, row))
        picture = partial(self._picture, objects, _extents(objects))
        return CutOuts(Categories(tuple(name_by_id.values())), entries, picture)

    def _usable_objects(self, objects: Sequence[_Outlined]) -> np.ndarray:
        """Mask of the objects that can be cut out, shape (N,)."""
        box = np.array([outlined.box for outlined in objects]).reshape(-1, 4)
        size = np.array([outlined.size for outlined in objects]).reshape(-1, 2)
        _, image = np.unique([outlined.file for outlined in objects], return_inverse=True)
        is_single = np.array(
            [not outlined.record.flag("iscrowd") for outlined in objects], dtype=bool
        )
        return self.usable(box, image, size, is_single)

    def _picture(
        self,
        objects: Sequence[_Outlined],
        extents: Mapping[str, tuple[float, float]],
        cutout: CutOut,
    ) -> Image.Image:
        """The RGBA image of a cut-out, as it is displayed.

        Args:
            objects: The objects of the file.
            extents: Largest x and y of the boxes of each image, by its file.
            cutout: A cut-out of an object.
        """
        outlined = objects[cutout.row]
        location = outlined.record.location("image_id")
        file = self.root / image_file(self.root, self.images, outlined.file, location)
        displayed = Image.fromarray(pictures.load(file, self.max_pixels))
        _, _, orientation = pictures.read_header(file)
        if orientation != UPRIGHT:
            extent = extents[outlined.file]
            on = self._annotated_on(outlined, displayed.size, orientation, extent)
            if on == "displayed":
                orientation = UPRIGHT

        annotated = turned(displayed, BACK.get(orientation, orientation))
        window = _window(outlined, annotated.size)
        with pictures.without_pillow_limit():
            picture = annotated.crop(window)
        picture.putalpha(alpha_of(outlined.record, window, annotated.size))
        return turned(picture, orientation)

    def _annotated_on(
        self,
        outlined: _Outlined,
        displayed: tuple[int, int],
        orientation: int,
        extent: tuple[float, float],
    ) -> AnnotatedOn:
        """Whether an outline was drawn on the displayed image or on stored pixels.

        Args:
            outlined: The object.
            displayed: Width and height of the displayed image.
            orientation: EXIF orientation of its file.
            extent: Largest x and y of the boxes of the image.

        Raises:
            DataError: nothing decides, and the image is turned by a quarter.
        """
        if self.orientation != "auto":
            return self.orientation
        turned_image = TurnedImages(
            row=np.zeros(1, dtype=np.int64),
            orientation=np.array([orientation]),
            displayed=np.array([displayed]),
            declared=np.array([outlined.size]),
            extent=np.array([extent]),
        )
        if turned_image.undecided():
            question = turned_image.question([outlined.file], 0)
            raise outlined.record.error(
                f"nothing tells which picture it was drawn on: {question}. {ADVICE}", "bbox"
            )
        (on,) = turned_image.decided()
        if on == "auto":
            return "displayed"
        return on


@plain(frozen=True)
class _Outlined:
    """An annotated object with an outline.

    Args:
        record: The annotation.
        file: Name of the image's file.
        size: Width and height of the image as annotated.
        box: Edges in pixels.
        category: Name of its class.
    """

    record: Record
    file: str
    size: tuple[int, int]
    box: Edges
    category: str


def alpha_of(record: Record, window: Window, size: tuple[int, int]) -> Image.Image:
    """The alpha channel of an annotation's outline (`segmentation`), mode "L".

    Polygons have soft edges.

    Args:
        record: The annotation.
        window: Edges left, top, right, bottom of the result in pixels of the image.
        size: Width and height of the image.

    Raises:
        DataError: the outline is neither polygons nor run lengths that fit the image.
    """
    segmentation = record.values["segmentation"]
    if not isinstance(segmentation, dict):
        return _alpha_of_polygons(record, segmentation, window)
    left, top, right, bottom = window
    mask = _mask(record.record("segmentation"), size)[top:bottom, left:right]
    return Image.fromarray(np.where(mask, 255, 0).astype(np.uint8))


def _window(outlined: _Outlined, size: tuple[int, int]) -> Window:
    """Edges in pixels of the part of an image that shows an object, with a margin of a pixel.

    Args:
        outlined: The object.
        size: Width and height of the image.

    Raises:
        DataError: the object's box is outside of the image.
    """
    xmin, ymin, xmax, ymax = outlined.box
    width, height = size
    left = max(math.floor(xmin) - 1, 0)
    top = max(math.floor(ymin) - 1, 0)
    right = min(math.ceil(xmax) + 1, width)
    bottom = min(math.ceil(ymax) + 1, height)
    if right <= left or bottom <= top:
        raise outlined.record.error(
            f"the box is outside the image, which is {width} × {height}", "bbox"
        )
    return left, top, right, bottom


def _outlined(
    record: Record, image_by_id: Mapping[str, Record], name_by_id: Mapping[int, str]
) -> _Outlined | None:
    """The object of an annotation; None without an outline, or of an unknown image or category."""
    image = image_by_id.get(id_text(record, "image_id"))
    category = name_by_id.get(record.integer("category_id"))
    if image is None or category is None or not record.has("segmentation"):
        return None
    x, y, width, height = record.numbers("bbox", 4)
    return _Outlined(
        record=record,
        file=image.text("file_name"),
        size=(image.integer("width"), image.integer("height")),
        box=(x, y, x + width, y + height),
        category=category,
    )


def _extents(objects: Sequence[_Outlined]) -> dict[str, tuple[float, float]]:
    """Largest x and y of the boxes of each image, by its file."""
    extents: dict[str, tuple[float, float]] = {}
    for outlined in objects:
        x, y = extents.get(outlined.file, (0.0, 0.0))
        _, _, xmax, ymax = outlined.box
        extents[outlined.file] = (max(x, xmax), max(y, ymax))
    return extents


def _refuse_unknown(
    annotations: Sequence[Record],
    image_by_id: Mapping[str, Record],
    name_by_id: Mapping[int, str],
) -> None:
    """Refuses a file in which more than `UNKNOWN` of the annotations refer to nothing.

    They are of an image or a category that the file does not list.
    """
    unknown = []
    for record in annotations:
        has_image = id_text(record, "image_id") in image_by_id
        if not has_image or record.integer("category_id") not in name_by_id:
            unknown.append(record)
    if len(unknown) > UNKNOWN * len(annotations):
        first = unknown[0]
        raise first.error(
            f"{len(unknown)} of {len(annotations)} annotations are of an image or a category that "
            f"the file does not list, as this one: image {first.values['image_id']!r}",
            "image_id",
        )


def _alpha_of_polygons(record: Record, polygons: Any, window: Window) -> Image.Image:
    """The alpha channel of polygons; for the arguments see `alpha_of`."""
    left, top, right, bottom = window
    large = Image.new("L", (OVERSAMPLING * (right - left), OVERSAMPLING * (bottom - top)))
    draw = ImageDraw.Draw(large)
    if not isinstance(polygons, list) or not polygons:
        raise record.error(NO_OUTLINE, "segmentation")
    for polygon in polygons:
        points = _points(record, polygon)
        # Pillow's coordinates are centres of pixels, COCO's are edges.
        scaled = (points - (left, top)) * OVERSAMPLING - 0.5
        draw.polygon([(x, y) for x, y in scaled.tolist()], fill=255)
    return large.reduce(OVERSAMPLING)


def _points(record: Record, polygon: Any) -> np.ndarray:
    """The points of a polygon of an annotation, shape (N, 2)."""
    if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2:
        raise record.error(NO_OUTLINE, "segmentation")
    outline = Record({"segmentation": polygon}, record.file, record.row)
    return np.array(outline.numbers("segmentation", len(polygon))).reshape(-1, 2)


def _mask(runs: Record, size: tuple[int, int]) -> np.ndarray:
    """Decoded run lengths, bool of shape (height, width).

    Runs go column by column; the first one is of zeros.

    Args:
        runs: The field `segmentation` of an annotation.
        size: Width and height of the image.

    Raises:
        DataError: the run lengths are damaged, or those of another size.
    """
    width, height = size
    counts = runs.values.get("counts")
    lengths: Sequence[float]
    if isinstance(counts, str):
        lengths = _decoded_lengths(runs, counts)
    else:
        lengths = runs.numbers("counts", len(counts) if isinstance(counts, list) else 0)
    if min(lengths, default=-1) < 0 or sum(lengths) != width * height:
        raise runs.error(
            f"expected run lengths of {width * height} pixels, found {sum(lengths):g}; "
            f"the image has {width} × {height}",
            "counts",
        )
    is_object = np.arange(len(lengths)) % 2 == 1
    mask = np.repeat(is_object, np.array(lengths, dtype=np.int64))
    return mask.reshape(width, height).T


def _decoded_lengths(runs: Record, text: str) -> list[int]:
    """Run lengths from pycocotools' text (https://github.com/cocodataset/cocoapi, `rleFrString`).

    A character holds five bits, low ones first, and a bit that marks that more follow; from the
    fourth on, a number is the difference to the one before the last.
    """
    lengths: list[int] = []
    value = 0
    bits = 0
    for letter in text.encode():
        code = letter - ord("0")
        value |= (code & 31) << bits
        bits += 5
        if not 0 <= code < 64 or bits > LENGTH_BITS:
            break
        has_more = code & 32
        if has_more:
            continue
        is_negative = code & 16
        if is_negative:
            value -= 1 << bits
        if len(lengths) > 2:
            value += lengths[-2]
        lengths.append(value)
        value = 0
        bits = 0
    if bits:
        raise runs.error(
            "not run lengths: expected characters '0' to 'o' that end with a number", "counts"
        )
    return lengths
