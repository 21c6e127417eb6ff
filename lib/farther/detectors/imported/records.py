"""Records of COCO results: checked, and converted to the columns of the regions table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NotRequired

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from farther.detectors.imported.base import RowLocation
from farther.detectors.imported.columns import OPTIONAL, Records
from farther.detectors.imported.numbers import whole_number
from farther.errors import DataError, known_names, shorten
from farther.tables.json_stream import list_elements
from farther.tables.oriented import angle_unit, envelope_of_corners

OPTIONAL_FIELDS = frozenset(OPTIONAL)

#: Fields of COCO results that are read, and COCO's other fields of an object.
KNOWN_FIELDS = OPTIONAL_FIELDS | {
    *("image_id", "file_name", "category_id", "bbox", "score"),
    *("id", "area", "iscrowd", "ignore", "segmentation"),
}
#: How boxes of COCO results can be written.
BBOX_ADVICE = (
    "write the upright box as 4 numbers (x, y, width, height), or the four corners as 8 "
    "(x1, y1, …, x4, y4)"
)

#: Expected values of the fields of records, for messages.
EXPECTED = {
    "id": "an integer or text",
    "image_id": "an integer or text",
    "category_id": "an integer or text",
    "file_name": "text",
    "name": "text",
    "bbox": "x, y, width, height, finite and no size negative",
    "score": "a number",
    "uncertainty": "a number",
    **dict.fromkeys(("logits", "features", "latent", "box_variance"), "a list of numbers"),
}


def as_integer(value: Any) -> Any:
    """A number without a fraction as an integer; other values as they are."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def of_key(values: Mapping[int | str, Any], key: int | str) -> Any:
    """The value of a number or name; None if there is none. 7 and "7" are the same."""
    if key in values:
        return values[key]
    number = whole_number(key)
    if number is None:
        return None
    return values.get(number, values.get(str(number)))


_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Length = Annotated[float, Field(ge=0, allow_inf_nan=False)]


#: A number or a name; 6.0, as tables with gaps hold numbers, is 6.
Key = Annotated[int | str, BeforeValidator(as_integer)]


class Record(TypedDict):
    """A record whose values must have exactly the annotated types."""

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]


class Detection(Record):
    """A detection of COCO results."""

    image_id: NotRequired[Key]
    file_name: NotRequired[Any]
    category_id: Key
    category_name: NotRequired[Any]
    bbox: Annotated[tuple[_Finite, _Finite, _Length, _Length], Strict(False)]
    score: float
    logits: NotRequired[list[float]]
    features: NotRequired[list[float]]
    latent: NotRequired[list[float]]
    box_variance: NotRequired[list[float]]
    uncertainty: NotRequired[float]


#: Schema of a list of detections.
DETECTIONS = TypeAdapter(list[Detection])

#: The fields that all detections have.
_REQUIRED = {"category_id", "bbox", "score"}
_NUMBERS = frozenset((int, float))
#: The fields that are lists of numbers.
_LISTS = {"bbox", *OPTIONAL_FIELDS - {"uncertainty"}}
#: Types of the values of each field that need no conversion.
_TYPES = {
    "image_id": frozenset((int, str)),
    "category_id": frozenset((int, str)),
    "score": _NUMBERS,
    "uncertainty": _NUMBERS,
    **dict.fromkeys(_LISTS, frozenset((list,))),
}


def columns_of(
    detections: list[Any],
    by: str,
    numbers: dict[int | str, str] | None,
    labels: dict[int | str, int],
    location: RowLocation,
) -> dict[str, Any]:
    """The columns of the regions table except `region_id`.

    Args:
        detections: Records of detections.
        by: Field that names the image.
        numbers: Place of each image's id in the annotations; None without annotations.
        labels: Number of the class of each category.
        location: Location of the first detection, for messages.

    Raises:
        DataError: an image or a category is unknown, or lists differ in length.
    """
    first = detections[0]
    boxes = _box_array(detections)
    columns: dict[str, Any] = {
        "image_id": _image_names(detections, by, numbers, location),
        "label": _labels(detections, labels, location),
        "box": np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1),
    }
    for field in ("score", *sorted(OPTIONAL_FIELDS & first.keys())):
        values = [detection[field] for detection in detections]
        if isinstance(values[0], list):
            _check_lengths(values, field, location)
        columns[field] = np.array(values)
    return columns


def _image_names(
    detections: list[Any], by: str, numbers: dict[int | str, str] | None, location: RowLocation
) -> list[str]:
    """Name of each detection's image, or its place in the annotations; arguments as above."""
    images = [detection[by] for detection in detections]
    name_by_image: dict[int | str, str] = {}
    for image in set(images):
        if numbers is None:
            name_by_image[image] = str(image)
            continue
        number = of_key(numbers, image)
        if number is None:
            problem = f"{image!r} is not an image of the annotations of this file"
            row = images.index(image)
            raise location.error(DataError(problem, row=row, field="image_id"))
        name_by_image[image] = number
    return [name_by_image[image] for image in images]


def _labels(
    detections: list[Any], labels: dict[int | str, int], location: RowLocation
) -> list[int]:
    """Number of each detection's class.

    A `category_id` without a category is that of the class called `category_name`, as `farther
    predict` writes it.
    """
    categories = [detection["category_id"] for detection in detections]
    label_by_category = {category: of_key(labels, category) for category in set(categories)}
    class_numbers = [label_by_category[category] for category in categories]
    if None not in label_by_category.values():
        return class_numbers

    for row, detection in enumerate(detections):
        if class_numbers[row] is not None:
            continue
        name = detection.get("category_name")
        if isinstance(name, str) and name in labels:
            class_numbers[row] = labels[name]
            continue
        known = known_names(str(category) for category in labels)
        problem = (
            f"unknown category {shorten(detection['category_id'])}. {known}. Name it in "
            "the parameter 'categories'"
        )
        raise location.error(DataError(problem, row=row, field="category_id"))
    return class_numbers


def _box_array(detections: list[Any]) -> np.ndarray:
    """Boxes of four numbers each, float64 of shape (N, 4)."""
    boxes = [detection["bbox"] for detection in detections]
    edges = np.fromiter(chain.from_iterable(boxes), np.float64, 4 * len(boxes))
    return edges.reshape(-1, 4)


def _check_lengths(values: list[list[float]], field: str, location: RowLocation) -> None:
    """Refuses lists of different lengths."""
    expected = len(values[0])
    for row, value in enumerate(values):
        if len(value) != expected:
            problem = f"expected {expected} numbers, found {len(value)}"
            raise location.error(DataError(problem, row=row, field=field))


def with_upright_boxes(records: list[Any], file: Path, first: int) -> Records:
    """Records of COCO results, in which boxes of four corners became their envelopes.

    Args:
        records: Elements of a file.
        file, first: The file, and the number of the first record in it, for messages.

    Raises:
        DataError: a box is oriented, and the file does not say how its angle rotates it.
    """
    fields = fields_of(records)
    unread = frozenset(fields - KNOWN_FIELDS)
    angle_fields = sorted(name for name in fields if angle_unit(name))
    if not angle_fields and _have_upright_boxes(records):
        return Records(records, unread=unread)
    detections = []
    oriented = 0
    for row, record in enumerate(records, first):
        box = record.get("bbox") if isinstance(record, dict) else None
        if isinstance(box, list) and len(box) != 4:
            if len(box) == 5:
                problem = (
                    f"5 numbers, as of an oriented box whose angle is not known: {BBOX_ADVICE}"
                )
                raise DataError(problem, file=file, row=row, field="bbox")
            if len(box) == 8 and all(isinstance(value, (int, float)) for value in box):
                xmin, ymin, xmax, ymax = envelope_of_corners(box)
                record = {**record, "bbox": [xmin, ymin, xmax - xmin, ymax - ymin]}
                oriented += 1
        for name in angle_fields:
            _refuse_angle(record, name, file, row)
        detections.append(record)
    return Records(detections, oriented, unread)


def _have_upright_boxes(records: list[Any]) -> bool:
    """Whether all are objects with a box of four values."""
    if {*map(type, records)} != {dict}:
        return False
    boxes = [record.get("bbox") for record in records]
    return {*map(type, boxes)} == {list} and {*map(len, boxes)} == {4}


def _refuse_angle(record: Any, name: str, file: Path, row: int) -> None:
    """Refuses a record with an angle, as COCO results do not define what it rotates."""
    value = record.get(name) if isinstance(record, dict) else None
    if isinstance(value, (int, float)) and value != 0:
        problem = (
            f"{value:g}, an oriented box, but COCO results do not define how an angle rotates it: "
            f"{BBOX_ADVICE}. Leave the field out where boxes are upright"
        )
        raise DataError(problem, file=file, row=row, field=name)


def fields_of(records: list[Any]) -> set[str]:
    """Names of the fields of some records."""
    objects = records
    if {*map(type, records)} != {dict}:
        objects = [record for record in records if isinstance(record, dict)]
    return set(chain.from_iterable(_distinct_names(objects)))


def _distinct_names(records: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """The names of fields that records have, in each order that occurs."""
    return set(map(tuple, records))


def check_fields(
    detections: list[Any], by: str, optional: frozenset[str], location: RowLocation
) -> None:
    """Refuses a detection without a required field, or with other optional fields than the first.

    Args:
        detections: Records of detections.
        by: Field that names the image, which is required.
        optional: The optional fields of the first detection of the file.
        location: Location of the first of these detections, for messages.
    """
    are_complete = True
    for names in _distinct_names(detections):
        are_complete &= by in names and OPTIONAL_FIELDS.intersection(names) == optional
    if are_complete:
        return

    for row, detection in enumerate(detections):
        if by not in detection:
            raise location.error(DataError("the field is missing", row=row, field=by))
        differing = (OPTIONAL_FIELDS & detection.keys()) ^ optional
        if not differing:
            continue
        name = min(differing)
        first_has = "the first detection has it"
        if name in detection:
            first_has = "the first detection does not have it"
        raise location.error(
            DataError(f"all detections or none must have it, and {first_has}", row=row, field=name)
        )


def list_objects(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """Yields the elements of a list at a key of a JSON file.

    Raises:
        DataError: an element is not an object; or see `list_elements`.
    """
    for row, element in enumerate(list_elements(path, key)):
        if not isinstance(element, dict):
            raise DataError(
                f"expected an object, found {shorten(element)}", file=path, row=f"{key}[{row}]"
            )
        yield element


def _are_plain(records: list[Any]) -> bool:
    """Whether records are valid detections which validation would return as they are.

    False says nothing: validation converts values such as a category 6.0.
    """
    if {*map(type, records)} != {dict}:
        return False
    fields = records[0].keys()
    try:
        for field in sorted(fields & _TYPES.keys()):
            values = [record[field] for record in records]
            if not _TYPES[field].issuperset(map(type, values)):
                return False
            if field in _LISTS and not _NUMBERS.issuperset(map(type, chain.from_iterable(values))):
                return False
        if not fields >= _REQUIRED or {len(record["bbox"]) for record in records} != {4}:
            return False
        boxes = _box_array(records)
    except (KeyError, OverflowError):  # not all have the field; an integer of hundreds of digits
        return False
    return bool(np.isfinite(boxes).all() and (boxes[:, 2:] >= 0).all())


def checked_records(
    schema: TypeAdapter[list[Any]],
    records: list[Any],
    first: int,
    path: Path,
    key: str | None = None,
) -> list[Any]:
    """Records after validation.

    Detections are validated column by column; only where a column is unusual, each on its own.

    Args:
        schema: Schema of a list of such records.
        records: Elements of a file.
        first: Number of the first one in it.
        path: The file.
        key: Key of the list in it, if the file is an object.

    Raises:
        DataError: an element does not match the schema; names file, row and field.
    """
    if schema is DETECTIONS and _are_plain(records):
        return records
    try:
        return schema.validate_python(records)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        number, *fields = problem["loc"]
        record = records[int(number)]
        field = str(fields[0]) if fields else None
        row = first + int(number)
        if problem["type"] == "missing" and len(fields) == 1:
            text = "the field is missing"
        elif field is not None:
            text = f"expected {EXPECTED[field]}, found {shorten(record[fields[0]])}"
        else:
            text = f"expected an object, found {shorten(record)}"
        location = row if key is None else f"{key}[{row}]"
        raise DataError(text, file=path, row=location, field=field) from None
