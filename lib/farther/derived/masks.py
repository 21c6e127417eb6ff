"""Cut-outs by outline: the masks of a COCO annotation file."""

from __future__ import annotations

from dataclasses import dataclass as plain
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from pycocotools import mask as rle
from pydantic.dataclasses import dataclass

from farther.curation.sources import Categories
from farther.datasets.base import Location, image_file
from farther.datasets.records import Record
from farther.derived.cutouts import AnnotatedSource, CutOut, CutOuts, register
from farther.errors import DataError
from farther.images import read as pictures
from farther.registry import STRICT
from farther.tables.documents import read_json
from farther.tables.files import inside

#: Fields that parsing skips.
UNREAD = ("area", "license", "url", "coco_url", "flickr_url", "date_captured")

#: Factor by which polygons are drawn larger and reduced again, for soft edges (pycocotools' masks have hard ones).
OVERSAMPLING = 4

#: Most characters of a run length as text: 5 bits each, of 32.
LONGEST_NUMBER = 7


@register("masks")
@dataclass(config=STRICT, kw_only=True)
class Masks(AnnotatedSource):
    """Objects of a COCO file with a `segmentation`: polygons, or run lengths as numbers or text.

    Args:
        annotations: The file, within the root.
        images: Folder of the images, within the root; `.` for the root itself.
    """

    annotations: str = "annotations/instances_val2017.json"
    images: str = "val2017"

    def read(self) -> CutOuts:
        """The file's single objects that have an outline; see `Source`."""
        path = inside(self.root, self.annotations)
        content = read_json(path, without=UNREAD)
        if not isinstance(content, dict):
            raise DataError("expected an object with images, annotations and categories", file=path)
        whole = Record(content, path)
        names = {record.integer("id"): record.text("name") for record in whole.records("categories")}
        files = {_key(record, "id"): record for record in whole.records("images")}
        outlined = [one for record in whole.records("annotations") if (one := _outlined(record, files, names))]
        box = np.array([one.box for one in outlined]).reshape(-1, 4)
        size = np.array([one.size for one in outlined]).reshape(-1, 2)
        numbers = {key: number for number, key in enumerate(files)}
        image = np.array([numbers[one.image] for one in outlined], dtype=np.int64)
        single = np.array([one.is_single for one in outlined], dtype=bool)
        found = [
            CutOut(outlined[row].category, f"{outlined[row].file}, object {outlined[row].object_id}", row)
            for row in np.flatnonzero(self.usable(box, image, size, single)).tolist()
        ]
        return CutOuts(Categories(tuple(names.values())), found, lambda one: self._picture(outlined[one.row]))

    def _picture(self, one: _Outlined) -> Image.Image:
        location = Location(one.record.file, one.record.row, "image_id")
        pixels = pictures.load(self.root / image_file(self.root, self.images, one.file, location))
        height, width = pixels.shape[:2]
        left, top = max(int(np.floor(one.box[0])) - 1, 0), max(int(np.floor(one.box[1])) - 1, 0)
        right, bottom = min(int(np.ceil(one.box[2])) + 1, width), min(int(np.ceil(one.box[3])) + 1, height)
        if right <= left or bottom <= top:
            raise one.record.error(f"the box lies outside of the image, which is {width} × {height}", "bbox")
        alpha = alpha_of(one.record, (left, top, right, bottom), (width, height))
        picture = Image.fromarray(pixels[top:bottom, left:right])
        picture.putalpha(alpha)
        return picture


@plain(frozen=True)
class _Outlined:
    """The fields of an annotation that cutting out needs."""

    record: Record
    image: int | str
    file: str
    size: tuple[int, int]
    box: tuple[float, float, float, float]
    category: str
    object_id: int
    is_single: bool


def alpha_of(record: Record, window: tuple[int, int, int, int], size: tuple[int, int]) -> Image.Image:
    """The alpha channel of an annotation's outline (`segmentation`), mode "L"; polygons have soft edges.

    Args:
        window: Edges left, top, right, bottom of the result in pixels of the image.
        size: Width and height of the image.

    Raises:
        DataError: the outline is neither polygons nor run lengths that fit the image.
    """
    value = record.values["segmentation"]
    if isinstance(value, dict):
        left, top, right, bottom = window
        mask = _mask(record.record("segmentation"), size)
        return Image.fromarray(np.where(mask[top:bottom, left:right], 255, 0).astype(np.uint8))
    return _drawn(record, value, window)


def _outlined(record: Record, files: dict[int | str, Record], names: dict[int, str]) -> _Outlined | None:
    """The annotation's fields; None without an outline, image or category."""
    key, category = _key(record, "image_id"), names.get(record.integer("category_id"))
    if key not in files or category is None or not record.has("segmentation"):
        return None
    x, y, width, height = record.numbers("bbox", 4)
    image = files[key]
    return _Outlined(
        record=record,
        image=key,
        file=image.text("file_name"),
        size=(image.integer("width"), image.integer("height")),
        box=(x, y, x + width, y + height),
        category=category,
        object_id=record.integer("id"),
        is_single=not record.flag("iscrowd"),
    )


def _key(record: Record, field: str) -> int | str:
    return record.text(field) if isinstance(record.values.get(field), str) else record.integer(field)


def _drawn(record: Record, polygons: Any, window: tuple[int, int, int, int]) -> Image.Image:
    left, top, right, bottom = window
    width, height = right - left, bottom - top
    large = Image.new("L", (OVERSAMPLING * width, OVERSAMPLING * height))
    draw = ImageDraw.Draw(large)
    if not isinstance(polygons, list) or not polygons:
        raise record.error("expected polygons or run lengths", "segmentation")
    for polygon in polygons:
        count = len(polygon) if isinstance(polygon, list) else 0
        if count < 6 or count % 2:
            raise record.error("expected a polygon: x, y, x, y, … of at least three points", "segmentation")
        points = np.array(_numbers(record, polygon)).reshape(-1, 2)
        # Pillow's coordinates are centres of pixels, COCO's are edges.
        scaled = (points - (left, top)) * OVERSAMPLING - 0.5
        draw.polygon([(x, y) for x, y in scaled.tolist()], fill=255)
    return large.reduce(OVERSAMPLING)


def _numbers(record: Record, values: list[Any]) -> list[float]:
    wrapped = Record({"segmentation": values}, record.file, record.row)
    return wrapped.numbers("segmentation", len(values))


def _mask(runs: Record, size: tuple[int, int]) -> np.ndarray:
    """Decoded run lengths, bool of shape (height, width).

    pycocotools reads beyond the end of damaged text, so that is refused here.
    """
    width, height = size
    counts = runs.values.get("counts")
    if isinstance(counts, str):
        codes = np.frombuffer(counts.encode(), np.uint8).astype(int) - ord("0")
        if not len(codes) or codes.min() < 0 or codes.max() > 63 or codes[-1] & 32:
            raise runs.error("not run lengths: expected characters '0' to 'o' that end with a number", "counts")
        ends = np.flatnonzero(codes < 32)
        if np.diff(ends, prepend=-1).max() > LONGEST_NUMBER:
            raise runs.error(f"not run lengths: a number of more than {LONGEST_NUMBER} characters", "counts")
        count = len(ends)
        encoded = {"size": [height, width], "counts": counts}
    else:
        lengths = runs.numbers("counts", len(counts)) if isinstance(counts, list) else []
        count = len(lengths)
        if min(lengths, default=-1) < 0 or sum(lengths) != width * height:
            problem = f"expected run lengths of {width * height} pixels, found {sum(lengths):g}"
            raise runs.error(f"{problem}; the image has {width} × {height}", "counts")
        encoded = rle.frPyObjects(
            {"size": [height, width], "counts": [int(length) for length in lengths]}, height, width
        )
    if count > width * height + 1:
        raise runs.error(f"{count} run lengths, but the image has {width} × {height} pixels", "counts")
    try:
        return rle.decode(encoded).astype(bool)
    except ValueError as error:
        raise runs.error(f"not run lengths of an image with {width} × {height} pixels: {error}", "counts") from None
