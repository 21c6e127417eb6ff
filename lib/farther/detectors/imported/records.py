"""Records of COCO results: checked, and made into the columns of the regions table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NotRequired

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from farther.detectors.imported.base import Place
from farther.detectors.imported.columns import OPTIONAL
from farther.detectors.imported.numbers import whole_number
from farther.errors import DataError, shorten

OPTIONAL_FIELDS = frozenset(OPTIONAL)

#: What the fields of records hold, in messages.
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
    """The value of a number or name, also where one side has the number as text; None where there is none."""
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
    """A record whose values have exactly the types that are written here."""

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]


class Detection(Record):
    """A detection as COCO results have it."""

    image_id: NotRequired[Key]
    file_name: NotRequired[Any]
    category_id: Key
    bbox: Annotated[tuple[_Finite, _Finite, _Length, _Length], Strict(False)]
    score: float
    logits: NotRequired[list[float]]
    features: NotRequired[list[float]]
    latent: NotRequired[list[float]]
    box_variance: NotRequired[list[float]]
    uncertainty: NotRequired[float]


#: Schema of a list of detections.
DETECTIONS = TypeAdapter(list[Detection])


def columns_of(
    detections: list[Any],
    by: str,
    numbers: dict[int | str, str] | None,
    labels: dict[int | str, int],
    place: Place,
) -> dict[str, Any]:
    """The regions table's columns but `region_id`.

    Args:
        by: Field that names the image.
        numbers: Place of each image's id in the annotations, None without.
        labels: Class of each category.
    """

    def wrong(row: int, field: str, problem: str) -> DataError:
        return place.error(DataError(problem, row=row, field=field))

    images = [str(one[by]) if numbers is None else of_key(numbers, one[by]) for one in detections]
    if None in images:
        row = images.index(None)
        raise wrong(
            row,
            "image_id",
            f"{detections[row][by]!r} is not an image of the annotations of this file",
        )
    classes = [of_key(labels, one["category_id"]) for one in detections]
    if None in classes:
        row = classes.index(None)
        found, known = (
            shorten(detections[row]["category_id"]),
            ", ".join(map(str, labels)) or "none",
        )
        problem = f"unknown category {found}. Known: {known}. Name it in the parameter 'categories'"
        raise wrong(row, "category_id", problem)
    boxes = np.array([one["bbox"] for one in detections])
    box = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
    columns: dict[str, Any] = {"image_id": images, "label": classes, "box": box}
    for name in ("score", *sorted(OPTIONAL_FIELDS & detections[0].keys())):
        values = [one[name] for one in detections]
        if isinstance(values[0], list):
            lengths = np.array([len(value) for value in values])
            if len(odd := np.flatnonzero(lengths != lengths[0])):
                raise wrong(
                    int(odd[0]), name, f"expected {lengths[0]} numbers, found {lengths[odd[0]]}"
                )
        columns[name] = np.array(values)
    return columns


def check_fields(detections: list[Any], by: str, optional: frozenset[str], place: Place) -> None:
    """Refuses a detection without the field that names the image, or with other optional fields than the first."""
    for row, detection in enumerate(detections):
        if by not in detection:
            raise place.error(DataError("the field is missing", row=row, field=by))
        if odd := (OPTIONAL_FIELDS & detection.keys()) ^ optional:
            name = min(odd)
            which = (
                "the first detection does not have it"
                if name in detection
                else "the first detection has it"
            )
            raise place.error(
                DataError(f"all detections or none must have it, and {which}", row=row, field=name)
            )


def checked_records(
    schema: TypeAdapter[list[Any]],
    records: list[Any],
    first: int,
    path: Path,
    key: str | None = None,
) -> list[Any]:
    """Records with the fields of a kind of record.

    Args:
        schema: Of a list of such records.
        records: What a file holds.
        first: Number of the first one in it.
        path: The file.
        key: Key of the list in it, where there is one.

    Raises:
        DataError: one is not such a record; names file, row and field.
    """
    try:
        return schema.validate_python(records)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        number, *fields = problem["loc"]
        row, found = first + int(number), records[int(number)]
        text = f"expected an object, found {shorten(found)}"
        if problem["type"] == "missing" and len(fields) == 1:
            text = "the field is missing"
        elif fields:
            text = f"expected {EXPECTED[str(fields[0])]}, found {shorten(found[fields[0]])}"
        at = row if key is None else f"{key}[{row}]"
        raise DataError(text, file=path, row=at, field=str(fields[0]) if fields else None) from None
