"""What the gallery's page knows of one run and split: images and boxes, and what each method made of them.

Columns are long, so they are base64 texts of little-endian numbers, which a browser turns into arrays at once. Rows of
one table name rows of another by their numbers.

    images      id, file: texts, `file` as a URL relative to `roots[root]`; root: number; width, height: pixels
    of          how many images the split has
    roots       URLs, relative to the report's page, of the folders that the files lie in
    categories  names of the objects' categories
    classes     names of the detector's classes
    objects     image: row; box: 4 numbers; category: number; crowd: 1 for a crowd or group, else 0
    regions     image: row; box: 4 numbers; label: number of the class; confidence: 0 to 1

and of each method

    tau         its threshold
    score       of each region
    kind        of each region, as `farther.metrics.open_set.Outcome` has it
    fate        of each object, as there
    region      that decided it, −1 for none

Boxes are xmin, ymin, xmax, ymax in parts of 65535 of the image's width or height: half a pixel of an image that is
65,000 wide, less in all others.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from farther.errors import DataError
from farther.evaluation.files import RunFiles, RunSplit, aligned_scores
from farther.metrics import open_set
from farther.metrics.boxes import image_numbers
from farther.report.results import Run
from farther.tables import Images, Objects, Regions
from farther.tables.files import inside

#: What a whole side of an image is as part of it.
WHOLE = 65535


def split_data(
    run: Run, split: str, artifacts: Path, roots: Mapping[str, Path], page: Path, most: int
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What the page knows of a run and split; see the module.

    Regions are those above the operating threshold. They are judged as `farther.evaluation.evaluate` judged them, with
    the thresholds, the IoU and the protocol that the evaluation wrote down.

    Args:
        run: An evaluated run, with all details of its evaluation.
        split: One of its OOD splits.
        artifacts: The artifacts folder.
        roots: Dataset → folder of its image files.
        page: Folder of the page, which links to image files are relative to.
        most: How many images at most; of more, so many are taken, evenly spread over the split's table.

    Returns:
        What all methods share, and what each method made of it, by its name; all as JSON can hold it.

    Raises:
        DataError: a table is absent or damaged, or an image's file name leaves its dataset's folder.
    """
    files = RunFiles(run.name, run.benchmark, artifacts)
    data = RunSplit(files, split)
    images, count = _images(files.images(split), data.images, most)
    regions = data.regions(float(run.evaluation["threshold"]))
    settings = run.evaluation["settings"]
    known = data.folder.header.known_classes
    overlaps = open_set.Split(data.objects, regions, settings["iou"], settings["protocol"], known)
    object_rows, object_image = _rows_of(images, data.objects.image_id)
    region_rows, region_image = _rows_of(images, regions.image_id)
    methods = {}
    for method in run.methods:
        if (split, method) in run.figures:
            tau = float(run.evaluation["methods"][method]["tau"])
            scores = aligned_scores(regions, files.scores(method, split), len(data.folder))
            outcome = overlaps.judge(scores < tau)
            methods[method] = _method(tau, scores, outcome, object_rows, region_rows)
    shared = {
        "of": count,
        **_pictures(images, roots, page),
        **_objects(data.objects[object_rows], images, object_image),
        **_regions(regions[region_rows], images, region_image),
    }
    return shared, methods


def _images(file: Path, readable: frozenset[str], most: int) -> tuple[Images, int]:
    """The images that are shown, and how many there are."""
    images = Images.read(file)
    images = images[np.fromiter((name in readable for name in images.image_id), bool, len(images))]
    count = len(images)
    return (images if count <= most else images[np.arange(most) * count // most]), count


def _rows_of(images: Images, image_id: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of another table that show one of these images, and the image's row for each of them."""
    names, (mine, theirs) = image_numbers(images.image_id, image_id)
    place = np.full(len(names), -1)
    place[mine] = np.arange(len(images))
    rows = np.flatnonzero(place[theirs] >= 0)
    return rows, place[theirs[rows]]


def _pictures(images: Images, roots: Mapping[str, Path], page: Path) -> dict[str, Any]:
    datasets = sorted(set(images.dataset))
    return {
        "roots": [_link(roots.get(name), page) for name in datasets],
        "images": {
            "id": images.image_id.tolist(),
            "file": [
                _url(roots.get(dataset, Path()), file)
                for dataset, file in zip(images.dataset, images.file, strict=True)
            ],
            "root": _packed(np.searchsorted(datasets, images.dataset.astype(str)), "<u2"),
            "width": _packed(images.width, "<u4"),
            "height": _packed(images.height, "<u4"),
        },
    }


def _link(root: Path | None, page: Path) -> str | None:
    """The way from the page to a folder, None where params.yaml does not say where the dataset lies."""
    return None if root is None else quote(Path(os.path.relpath(root, page)).as_posix())


def _url(root: Path, file: str) -> str:
    return quote(inside(root, file).relative_to(root).as_posix())


def _objects(objects: Objects, images: Images, image: np.ndarray) -> dict[str, Any]:
    categories, category = _numbered(objects.category)
    return {
        "categories": categories,
        "objects": {
            "image": _packed(image, "<u4"),
            "box": _parts(objects.box, images, image),
            "category": _packed(category, "<u2"),
            "crowd": _packed(objects.is_crowd, "<u1"),
        },
    }


def _regions(regions: Regions, images: Images, image: np.ndarray) -> dict[str, Any]:
    return {
        "classes": list(regions.classes),
        "regions": {
            "image": _packed(image, "<u4"),
            "box": _parts(regions.box, images, image),
            "label": _packed(regions.label, "<u2"),
            "confidence": _packed(regions.score, "<f4"),
        },
    }


def _method(
    tau: float, scores: np.ndarray, outcome: open_set.Outcome, object_rows: np.ndarray, region_rows: np.ndarray
) -> dict[str, Any]:
    # One place more than there are regions, so that −1, no region, stays −1.
    place = np.full(len(scores) + 1, -1)
    place[region_rows] = np.arange(len(region_rows))
    return {
        "tau": tau,
        "score": _packed(scores[region_rows], "<f4"),
        "kind": _packed(outcome.kind[region_rows], "<u1"),
        "fate": _packed(outcome.fate[object_rows], "<u1"),
        "region": _packed(place[outcome.deciding_region()[object_rows]], "<i4"),
    }


def _numbered(names: np.ndarray) -> tuple[list[str], np.ndarray]:
    unique, number = np.unique(names.astype(str), return_inverse=True)
    if len(unique) > WHOLE:
        raise DataError(f"{len(unique)} categories; the gallery takes {WHOLE}", field="category")
    return unique.tolist(), number


def _parts(box: np.ndarray, images: Images, image: np.ndarray) -> str:
    side = np.stack([images.width, images.height] * 2, axis=1)[image]
    return _packed(np.clip(np.rint(box / np.maximum(side, 1) * WHOLE), 0, WHOLE), "<u2")


def _packed(values: np.ndarray | Iterable[Any], dtype: str) -> str:
    return base64.b64encode(np.asarray(values).astype(dtype).tobytes()).decode("ascii")
