"""Cut-outs by outline: the masks of a COCO annotation file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from pydantic.dataclasses import dataclass

from farther.curation.sources import Categories
from farther.datasets.base import AnnotatedOn, image_file
from farther.datasets.coco import identity
from farther.datasets.orientation import ADVICE, TurnedImages
from farther.datasets.records import Record, read_record
from farther.derived.cutouts import AnnotatedSource, CutOut, CutOuts, register
from farther.images import read as pictures
from farther.images.orientation import BACK, UPRIGHT, turned
from farther.registry import STRICT
from farther.tables.files import inside

#: Fields that parsing skips.
UNREAD = ("area", "license", "url", "coco_url", "flickr_url", "date_captured")

#: Factor by which polygons are drawn larger and reduced again, for soft edges.
OVERSAMPLING = 4

#: Largest share of annotations of an unknown image or category.
UNKNOWN = 0.05

#: Most bits of a run length.
LENGTH_BITS = 35


@register("masks")
@dataclass(config=STRICT, kw_only=True)
class MaskCutOuts(AnnotatedSource):
    """Objects of a COCO file with a `segmentation`: polygons, or run lengths as numbers or text.

    Args:
        annotations: The file, within the root.
        images: Folder of the images, within the root; `.` for the root itself.
        orientation: What outlines refer to where images have an EXIF orientation; see
            `AnnotatedOn`.
    """

    annotations: str = "annotations/instances_val2017.json"
    images: str = "val2017"
    orientation: AnnotatedOn = "auto"

    def read(self) -> CutOuts:
        """The file's single objects that have an outline; see `CutOutSource`."""
        whole = read_record(inside(self.root, self.annotations), without=UNREAD)
        names = {
            record.integer("id"): record.text("name") for record in whole.records("categories")
        }
        files = {identity(record, "id"): record for record in whole.records("images")}
        annotated = list(whole.records("annotations"))
        _refuse_unknown(annotated, files, names)
        outlined = [one for record in annotated if (one := _outlined(record, files, names))]
        extents = _extents(outlined)
        box = np.array([one.box for one in outlined]).reshape(-1, 4)
        size = np.array([one.size for one in outlined]).reshape(-1, 2)
        image = np.unique([one.file for one in outlined], return_inverse=True)[1]
        single = np.array([not one.record.flag("iscrowd") for one in outlined], dtype=bool)
        found = [
            CutOut(
                outlined[row].category,
                f"{outlined[row].file}, object {outlined[row].record.integer('id')}",
                row,
            )
            for row in np.flatnonzero(self.usable(box, image, size, single)).tolist()
        ]
        return CutOuts(
            Categories(tuple(names.values())),
            found,
            lambda one: self._picture(outlined[one.row], extents),
        )

    def _picture(self, one: _Outlined, extents: Mapping[str, tuple[float, float]]) -> Image.Image:
        file = self.root / image_file(
            self.root, self.images, one.file, one.record.location("image_id")
        )
        displayed, orientation = Image.fromarray(pictures.load(file)), pictures.read_header(file)[2]
        if (
            orientation != UPRIGHT
            and self._refers_to(one, displayed.size, orientation, extents[one.file]) == "displayed"
        ):
            orientation = UPRIGHT
        pixels = np.asarray(turned(displayed, BACK.get(orientation, orientation)))
        height, width = pixels.shape[:2]
        left, top = (max(int(np.floor(edge)) - 1, 0) for edge in one.box[:2])
        right, bottom = (
            min(int(np.ceil(one.box[2])) + 1, width),
            min(int(np.ceil(one.box[3])) + 1, height),
        )
        if right <= left or bottom <= top:
            raise one.record.error(
                f"the box is outside the image, which is {width} × {height}", "bbox"
            )
        picture = Image.fromarray(pixels[top:bottom, left:right])
        picture.putalpha(alpha_of(one.record, (left, top, right, bottom), (width, height)))
        return turned(picture, orientation)

    def _refers_to(
        self,
        one: _Outlined,
        displayed: tuple[int, int],
        orientation: int,
        extent: tuple[float, float],
    ) -> AnnotatedOn:
        """Whether an outline was drawn on the displayed image or on stored pixels.

        Args:
            one: The outline.
            displayed: Width and height of the displayed image.
            orientation: That of its file.
            extent: Largest x and y of the boxes of the image.

        Raises:
            DataError: nothing tells, and the image is turned by a quarter.
        """
        if self.orientation != "auto":
            return self.orientation
        turned_image = TurnedImages(
            row=np.zeros(1, dtype=np.int64),
            orientation=np.array([orientation]),
            displayed=np.array([displayed]),
            declared=np.array([one.size]),
            extent=np.array([extent]),
        )
        if turned_image.undecided():
            problem = f"nothing tells which picture it was drawn on: {turned_image.question([one.file], 0)}. {ADVICE}"
            raise one.record.error(problem, "bbox")
        refers_to = turned_image.decided()[0]
        return "displayed" if refers_to == "auto" else refers_to


@plain(frozen=True)
class _Outlined:
    """The fields of an annotation that cutting out needs."""

    record: Record
    file: str
    size: tuple[int, int]
    box: tuple[float, float, float, float]
    category: str


def alpha_of(
    record: Record, window: tuple[int, int, int, int], size: tuple[int, int]
) -> Image.Image:
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


def _outlined(record: Record, files: dict[str, Record], names: dict[int, str]) -> _Outlined | None:
    """The annotation's fields; None without an outline, image or category."""
    image, category = (
        files.get(identity(record, "image_id")),
        names.get(record.integer("category_id")),
    )
    if image is None or category is None or not record.has("segmentation"):
        return None
    x, y, width, height = record.numbers("bbox", 4)
    size = image.integer("width"), image.integer("height")
    return _Outlined(record, image.text("file_name"), size, (x, y, x + width, y + height), category)


def _extents(outlined: Sequence[_Outlined]) -> dict[str, tuple[float, float]]:
    """Largest x and y of the boxes of each image, by its file."""
    extents: dict[str, tuple[float, float]] = {}
    for one in outlined:
        x, y = extents.get(one.file, (0.0, 0.0))
        extents[one.file] = (max(x, one.box[2]), max(y, one.box[3]))
    return extents


def _refuse_unknown(
    annotated: Sequence[Record], files: Mapping[str, Record], names: Mapping[int, str]
) -> None:
    """Refuses a file of which more than `UNKNOWN` of the annotations are of no image or category that it lists."""

    def is_known(record: Record) -> bool:
        return identity(record, "image_id") in files and record.integer("category_id") in names

    unknown = [record for record in annotated if not is_known(record)]
    if len(unknown) > UNKNOWN * len(annotated):
        problem = f"{len(unknown)} of {len(annotated)} annotations are of an image or a category that the file does not"
        raise unknown[0].error(
            f"{problem} list, as this one: image {unknown[0].values['image_id']!r}", "image_id"
        )


def _drawn(record: Record, polygons: Any, window: tuple[int, int, int, int]) -> Image.Image:
    left, top, right, bottom = window
    large = Image.new("L", (OVERSAMPLING * (right - left), OVERSAMPLING * (bottom - top)))
    draw = ImageDraw.Draw(large)
    for polygon in polygons if isinstance(polygons, list) and polygons else [None]:
        count = len(polygon) if isinstance(polygon, list) else 0
        if count < 6 or count % 2:
            problem = "expected run lengths, or polygons: x, y, x, y, … of at least three points"
            raise record.error(problem, "segmentation")
        numbers = Record({"segmentation": polygon}, record.file, record.row).numbers(
            "segmentation", count
        )
        # Pillow's coordinates are centres of pixels, COCO's are edges.
        scaled = (np.array(numbers).reshape(-1, 2) - (left, top)) * OVERSAMPLING - 0.5
        draw.polygon([(x, y) for x, y in scaled.tolist()], fill=255)
    return large.reduce(OVERSAMPLING)


def _mask(runs: Record, size: tuple[int, int]) -> np.ndarray:
    """Decoded run lengths, bool of shape (height, width): column by column, the first run one of zeros."""
    width, height = size
    counts, lengths = runs.values.get("counts"), list[float]()
    if isinstance(counts, str):
        lengths += _lengths(runs, counts)
    else:
        lengths += runs.numbers("counts", len(counts) if isinstance(counts, list) else 0)
    if min(lengths, default=-1) < 0 or sum(lengths) != width * height:
        problem = f"expected run lengths of {width * height} pixels, found {sum(lengths):g}"
        raise runs.error(f"{problem}; the image has {width} × {height}", "counts")
    values = np.arange(len(lengths)) % 2 == 1
    return np.repeat(values, np.array(lengths, dtype=np.int64)).reshape(width, height).T


def _lengths(runs: Record, text: str) -> list[int]:
    """Run lengths from pycocotools' text (https://github.com/cocodataset/cocoapi, `rleFrString`).

    A character holds five bits, low ones first, and whether more follow; from the fourth on, a
    number is the difference to the one before the last.
    """
    lengths, value, bits = list[int](), 0, 0
    for code in (letter - ord("0") for letter in text.encode()):
        value |= (code & 31) << bits
        bits += 5
        if not 0 <= code < 64 or bits > LENGTH_BITS:
            break
        if not code & 32:
            value -= (code & 16) << (bits - 4)
            lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
            value = bits = 0
    if bits:
        raise runs.error(
            "not run lengths: expected characters '0' to 'o' that end with a number", "counts"
        )
    return lengths
