"""Whether a network whose checkpoint names no classes has those of its entry, in their order: a look at ID images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from farther import detectors
from farther.curation import Rules
from farther.detectors import Detector
from farther.detectors.known_classes import with_class_names
from farther.errors import Finding
from farther.images.read import as_pixels
from farther.metrics.matching.boxes import overlaps

if TYPE_CHECKING:
    from farther.datasets.base import Annotations

#: Most images that are looked at, in batches, until so many objects are detected.
IMAGES = 50
BATCH = 5
OBJECTS = 30
#: Detected objects from which on classes are compared, and the least share of them with the
#: annotated class.
ENOUGH = 10
LEAST = 0.2


def check_order(
    run: str, entry: Mapping[str, Any], rules: Rules, dataset: str, annotations: Annotations
) -> Iterator[Finding]:
    """A finding on a detector whose entry has the parameter `classes`; none for others.

    The network runs on some annotated images. For each object of an ID class, the class of the
    detection with the highest score among those that overlap it (IoU at least 0.5) is compared with
    its own.

    Args:
        run: Name of the run.
        entry: Its entry, whose checkpoint opens.
        rules: The rules of its benchmark.
        dataset: The ID dataset.
        annotations: Of the subset that results are compared on.
    """
    detector = detectors.of_entry(entry)
    named = entry["adapter"] == "open_vocabulary" or not getattr(detector, "classes", None)
    if named or not isinstance(detector, Detector) or detector.header().whole_images:
        return
    names = with_class_names(detector.header(), entry.get("classes")).classes
    pairs, images = _compared(detector, names, rules, dataset, annotations)
    same = sum(annotated == detected for annotated, detected in pairs)
    counted = f"of {len(pairs)} detected objects in {images} images of {dataset}, {same} have the annotated class"
    if len(pairs) < ENOUGH:
        yield Finding(
            "checkpoints",
            f"{run}, classes",
            "note",
            f"{counted}: too few to tell whether their order is right",
        )
    elif same < LEAST * len(pairs):
        mistaken = Counter(pair for pair in pairs if pair[0] != pair[1])
        examples = ", ".join(
            f"{one} is called {other}" for (one, other), _ in mistaken.most_common(3)
        )
        advice = (
            "write the names into `params: {classes: […]}` in the order of the network's outputs"
        )
        yield Finding(
            "checkpoints", f"{run}, classes", "wrong", f"{counted} ({examples}): {advice}"
        )
    else:
        yield Finding("checkpoints", f"{run}, classes", "ok", counted)


def _compared(
    detector: Detector, names: tuple[str, ...], rules: Rules, dataset: str, annotations: Annotations
) -> tuple[list[tuple[str, str]], int]:
    """Annotated and detected class of each detected object, and the number of images that were looked at."""
    known = {
        rule.category.casefold(): rule.id_class
        for rule in rules.for_vocabulary(dataset)
        if rule.kind == "ID class"
    }
    id_class = np.array(
        [known.get(name.casefold(), "") for name in annotations.categories], dtype=object
    )
    objects = annotations.objects
    usable = (id_class[objects.category] != "") & ~objects.is_crowd
    rows = [
        row for row in np.unique(objects.image[usable]) if annotations.image_path(row).is_file()
    ]
    chosen = (
        [rows[k] for k in np.unique(np.linspace(0, len(rows) - 1, IMAGES).astype(int))]
        if rows
        else []
    )
    pairs: list[tuple[str, str]] = []
    seen = 0
    for start in range(0, len(chosen), BATCH):
        batch = chosen[start : start + BATCH]
        pixels = [as_pixels(annotations.image_path(row), str(row)) for row in batch]
        regions = detector.detect(pixels, [str(row) for row in batch], batch_size=BATCH)
        seen += len(batch)
        for row, image in zip(batch, pixels, strict=True):
            found = regions[np.flatnonzero(regions.image_id == str(row))]
            found = found[np.argsort(-found.score, kind="stable")]
            height, width = image.shape[:2]
            scale = np.array([width, height] * 2) if objects.unit == "image" else 1.0
            for one in np.flatnonzero(usable & (objects.image == row)):
                box = np.broadcast_to(objects.box[one] * scale, (len(found), 4))
                covering = np.flatnonzero(overlaps(found.box, box) >= 0.5)
                if len(covering):
                    pairs.append((id_class[objects.category[one]], names[found.label[covering[0]]]))
        if len(pairs) >= OBJECTS:
            break
    return pairs, seen
