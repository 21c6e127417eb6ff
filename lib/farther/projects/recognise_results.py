"""Files of detections, recognised from what they hold."""

from __future__ import annotations

import json
from decimal import Decimal
from math import floor
from pathlib import Path
from typing import Any

from farther.errors import DataError
from farther.projects.proposals import Lookup, propose
from farther.projects.recognise import Dataset
from farther.tables.folders import listed
from farther.tables.json_stream import list_elements


def of_results(path: Path, dataset: Dataset, lookup: Lookup | None = None) -> dict[str, Any] | None:
    """Adapter and parameters of a file or folder of detections; None where it is none.

    Args:
        path, dataset, lookup: See `farther.projects.recognise_detector`.

    Raises:
        DataError: it holds detections that cannot be read, or of a class that is not known.
    """
    found = listed(path, "*.json") if path.is_dir() else [path] if path.suffix == ".json" else []
    files = [file for file in found if file.name != "regions.json"]
    return {"adapter": "coco_results", "params": _coco_params(files, dataset, lookup)} if files else None


def _coco_params(files: list[Path], dataset: Dataset, lookup: Lookup | None) -> dict[str, Any]:
    """Parameters of `coco_results`: the classes, and their numbers where the results have numbers."""
    found: set[int | str] = set()
    lowest, logits = 1.0, 0
    for file in files:
        for one in list_elements(file):
            given = one if isinstance(one, dict) and "bbox" in one else {}
            category, score = given.get("category_id"), given.get("score", 1.0)
            if not isinstance(category, (int, str)) or not isinstance(score, (int, float, Decimal)):
                raise DataError("expected a list of detections with image_id, category_id, bbox and score", file=file)
            found.add(category)
            lowest, logits = min(lowest, float(score)), len(given.get("logits") or ())
    params: dict[str, Any] = {"score_threshold": floor(round(lowest * 1e4, 6)) / 1e4}
    names = [name for name in found if isinstance(name, str)]
    if names:  # classes of the ID dataset that were not detected are the detector's, too, unless its logits are fewer
        others = sorted(set(names) - set(dataset.categories))
        synonyms = {one.id_class for one in propose(others, dataset.categories, lookup) if one.relation == "same"}
        known = [name for name in dataset.categories if name not in synonyms or name in names]
        if logits and logits < len({*known, *names}):
            known = [name for name in known if name in names]
        return {**params, "classes": [*known, *others]}
    numbers = dataset.numbers or dict(enumerate(dataset.categories, start=1))
    if 0 not in found and dataset.entry["format"] == "yolo":  # ultralytics numbers user-defined classes from 1 here
        numbers = {number + 1: name for number, name in numbers.items()}
    if unknown := sorted(number for number in found if number not in numbers):
        problem = f"category_id {unknown[0]} is not a class of the ID dataset ({json.dumps(numbers)})"
        raise DataError(f"{problem}; write the names into `category_id`", file=files[0])
    return {**params, "classes": list(numbers.values()), "categories": numbers}
