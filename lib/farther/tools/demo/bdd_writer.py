"""Writes BDD100K's detection labels: one Scalabel list a subset."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

from farther.tools.demo.json_list import JsonList
from farther.tools.demo.records import Record


def image_name(subset: str, index: int) -> str:
    """File name of an image, in the manner of the original."""
    digest = blake2b(f"bdd/{subset}/{index}".encode(), digest_size=8).hexdigest()
    return f"{digest[:8]}-{digest[8:]}.jpg"


def image_file(subset: str, index: int) -> str:
    """Path of an image inside the dataset."""
    return f"images/100k/{subset}/{image_name(subset, index)}"


class BddWriter:
    """Writes the lists frame by frame.

    A box names its first and last pixel: a width is x2 - x1 + 1, as Scalabel counts. `labels` is null where there
    are none.
    """

    def __init__(self, folder: Path, subsets: tuple[str, ...]):
        labels = folder / "labels" / "det_20"
        labels.mkdir(parents=True)
        self._files = {subset: JsonList(labels / f"det_{subset}.json") for subset in subsets}
        self._next_id = 0

    def add(self, record: Record) -> None:
        """Write one image's labels."""
        labels: list[dict[str, Any]] = []
        for one in record.annotations:
            xmin, ymin, xmax, ymax = map(float, one.box)
            labels.append(
                {
                    "id": f"{self._next_id:010d}",
                    "attributes": {"occluded": one.occluded, "truncated": one.truncated, "trafficLightColor": "NA"},
                    "category": one.category,
                    "box2d": {"x1": xmin, "y1": ymin, "x2": xmax - 1, "y2": ymax - 1},
                }
            )
            self._next_id += 1
        frame = {
            "name": image_name(record.subset, record.index),
            "attributes": record.attributes,
            "timestamp": 10000,
            "labels": labels or None,
        }
        self._files[record.subset].append(json.dumps(frame))

    def close(self) -> None:
        """Finish the lists."""
        for file in self._files.values():
            file.close()
