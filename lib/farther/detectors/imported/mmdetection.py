"""Detections of MMDetection: `preds/*.json` of DetInferencer, one file per image.

See https://github.com/open-mmlab/mmdetection/blob/main/mmdet/apis/det_inferencer.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from farther.errors import DataError, shorten

#: MMDetection's name of each field of COCO results.
FIELDS = {"category_id": "labels", "score": "scores", "bbox": "bboxes"}
#: Names of the columns of `read_rows`.
COLUMNS = ("class", "score", "xmin", "ymin", "xmax", "ymax", "image")


def is_predictions(content: Any) -> bool:
    """True if the content of a JSON file is predictions of MMDetection."""
    return isinstance(content, dict) and content.keys() >= {"labels", "scores", "bboxes"}


def read_rows(path: Path, content: dict[str, Any]) -> list[dict[str, Any]]:
    """The detections of one image, which has the name of the file; one value per column.

    Args:
        path: The file.
        content: Its content: lists of labels, scores and boxes (xmin, ymin, xmax, ymax).

    Raises:
        DataError: the lists differ in length, or a box is not four numbers.
    """
    labels = content["labels"]
    scores = content["scores"]
    boxes = content["bboxes"]
    if not (isinstance(labels, list) and isinstance(scores, list) and isinstance(boxes, list)):
        raise DataError("expected lists of labels, scores and bboxes", file=path)
    if not len(labels) == len(scores) == len(boxes):
        raise DataError(
            f"{len(labels)} labels, {len(scores)} scores and {len(boxes)} bboxes: "
            "expected as many of each",
            file=path,
        )

    rows = []
    for number, (label, score, box) in enumerate(zip(labels, scores, boxes, strict=True)):
        if not isinstance(box, list) or len(box) != 4:
            raise DataError(
                f"expected 4 numbers, found {shorten(box)}", file=path, row=number, field="bboxes"
            )
        rows.append(dict(zip(COLUMNS, (label, score, *box, path.stem), strict=True)))
    return rows
