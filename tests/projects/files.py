"""Small image files, annotations and detections for the tests of several modules."""

import json
from pathlib import Path

from PIL import Image


def picture(file: Path) -> None:
    """An image file of 20 × 10 pixels."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 10)).save(file)


def coco(file: Path, name: str, categories=("cat", "dog")) -> None:
    """A COCO file with one image and one box of the first category, which has number 3."""
    file.parent.mkdir(parents=True, exist_ok=True)
    numbered = [{"id": number, "name": name} for number, name in enumerate(categories, start=3)]
    annotation = {"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 2, 8, 6]}
    content = {
        "images": [{"id": 1, "file_name": name}],
        "annotations": [annotation],
        "categories": numbered,
    }
    file.write_text(json.dumps(content))


def results(file: Path, *categories) -> Path:
    """COCO results with one detection of each category, which is a name or a number."""
    detections = []
    for category in categories:
        detection = {"image_id": 1, "category_id": category, "bbox": [1, 2, 8, 6], "score": 0.3}
        detections.append(detection)
    file.write_text(json.dumps(detections))
    return file
