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
#: Names of the columns of boxes by their number: those of upright boxes; of MMRotate's oriented
#: boxes, centre, size and angle in radians; and of its four corners.
BOX_COLUMNS = {
    4: ("xmin", "ymin", "xmax", "ymax"),
    5: ("cx", "cy", "width", "height", "angle_radians"),
    8: ("x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4"),
}


def is_predictions(content: Any) -> bool:
    """True if the content of a JSON file is predictions of MMDetection."""
    return isinstance(content, dict) and content.keys() >= {"labels", "scores", "bboxes"}


def read_rows(path: Path, content: dict[str, Any]) -> list[dict[str, Any]]:
    """The detections of one image, which has the name of the file; one value per column.

    Boxes are upright, or oriented as MMRotate writes them:
    https://github.com/open-mmlab/mmrotate/blob/1.x/mmrotate/structures/bbox/rotated_boxes.py.

    Args:
        path: The file.
        content: Its content: lists of labels, scores and boxes.

    Raises:
        DataError: the lists differ in length, or boxes are not of equally many numbers, 4, 5 or 8.
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

    rows: list[dict[str, Any]] = []
    count = len(boxes[0]) if boxes and isinstance(boxes[0], list) else 4
    if count not in BOX_COLUMNS:
        count = 4
    for number, (label, score, box) in enumerate(zip(labels, scores, boxes, strict=True)):
        if not isinstance(box, list) or len(box) != count:
            raise DataError(
                f"expected {count} numbers, found {shorten(box)}",
                file=path,
                row=number,
                field="bboxes",
            )
        row = {"class": label, "score": score, "image": path.stem}
        row.update(zip(BOX_COLUMNS[count], box, strict=True))
        rows.append(row)
    return rows
