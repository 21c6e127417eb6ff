"""Detections of FiftyOne: `samples.json` of a FiftyOneDataset.

See https://docs.voxel51.com/user_guide/export_datasets.html.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from farther.detectors.imported.columns import OPTIONAL
from farther.detectors.imported.records import list_objects
from farther.errors import DataError
from farther.tables.oriented import angle_unit

#: FiftyOne's name of each field of COCO results.
FIELDS = {
    "bbox": "bounding_box",
    "category_id": "label",
    "score": "confidence",
    "image_id": "filepath",
}


def predictions_field(path: Path) -> str:
    """Name of the field of samples that holds detections with confidences.

    Raises:
        DataError: there is none, or there are several and none is called "predictions".
    """
    fields: dict[str, None] = {}
    for sample in list_objects(path, "samples"):
        for name, value in sample.items():
            if _has_confidence(value):
                fields[name] = None
    if "predictions" in fields:
        return "predictions"
    if not fields:
        raise DataError("no field of the samples has detections with a confidence", file=path)
    first = next(iter(fields))
    if len(fields) == 1:
        return first
    names = " and ".join(repr(name) for name in fields)
    raise DataError(
        f"detections with confidences are in {names}: export one of them, with "
        f"`dataset.select_fields({first!r})`",
        file=path,
    )


def read_records(path: Path, field: str) -> Iterator[dict[str, Any]]:
    """Yields the detections in a field of the samples as records of COCO results.

    Exported images are in `data/`, which is not part of their names.
    """
    for sample in list_objects(path, "samples"):
        image = str(sample.get("filepath")).removeprefix("data/")
        for detection in _detections(sample.get(field)):
            record: dict[str, Any] = {"image_id": image}
            for name in ("bbox", "category_id", "score"):
                if FIELDS[name] in detection:
                    record[name] = detection[FIELDS[name]]
            for name, value in detection.items():
                is_read = name in OPTIONAL or angle_unit(name) is not None
                if is_read and value is not None:
                    record[name] = value
            yield record


def _has_confidence(value: Any) -> bool:
    """True if the value of a field holds a detection with a confidence."""
    return any(detection.get("confidence") is not None for detection in _detections(value))


def _detections(value: Any) -> list[dict[str, Any]]:
    """The detections in the value of a field; empty if it holds something else."""
    if not isinstance(value, dict):
        return []
    detections = value.get("detections")
    if not isinstance(detections, list):
        return []
    return [detection for detection in detections if isinstance(detection, dict)]
