"""Check on ID images of the order of class names that an entry gives a network without names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from farther import detectors
from farther.curation import Rules
from farther.detectors import Detector
from farther.detectors.known_classes import with_class_names
from farther.errors import Finding
from farther.images.inputs import as_pixels
from farther.metrics.matching.boxes import overlaps

if TYPE_CHECKING:
    from farther.datasets.base import Annotations
    from farther.tables import Regions

#: Maximum number of images that the network runs on, in batches.
MAX_IMAGES = 50
BATCH = 5
#: Number of detected objects after which no further batch is needed.
OBJECTS = 30
#: Minimum number of detected objects for a verdict, and minimum share with the annotated class.
MIN_OBJECTS = 10
MIN_AGREEMENT = 0.2
#: Intersection over union from which on a detection is on an object.
MIN_IOU = 0.5


@dataclass(frozen=True)
class ClassPairs:
    """Annotated and detected classes of the objects on which a detection is.

    Args:
        pairs: (annotated class, detected class), one per object.
        images: Number of images that the network ran on.
    """

    pairs: list[tuple[str, str]]
    images: int

    @property
    def agreements(self) -> int:
        """Number of objects that are detected as their class."""
        return sum(annotated == detected for annotated, detected in self.pairs)

    @property
    def mistakes(self) -> list[tuple[str, str]]:
        """The pairs that differ."""
        return [
            (annotated, detected) for annotated, detected in self.pairs if annotated != detected
        ]


def check_order(
    run: str, entry: Mapping[str, Any], rules: Rules, dataset: str, annotations: Annotations
) -> Iterator[Finding]:
    """A finding on a detector whose entry has the parameter `classes`; none for others.

    The network runs on some annotated images. For each object of an ID class, its class is compared
    with that of the detection with the highest score among those whose IoU with it is at least 0.5.

    Args:
        run: Name of the run.
        entry: Its entry, whose checkpoint opens.
        rules: The rules of its benchmark.
        dataset: The ID dataset.
        annotations: Annotations of the subset that the check runs on.
    """
    detector = detectors.of_entry(entry)
    has_names = entry["adapter"] == "open_vocabulary" or not getattr(detector, "classes", None)
    if has_names or not isinstance(detector, Detector) or detector.header().whole_images:
        return
    names = with_class_names(detector.header(), entry.get("classes")).classes
    id_classes = _id_classes(rules, dataset, annotations)
    compared = _compare(detector, names, id_classes, annotations)
    yield _finding(f"{run}, classes", dataset, compared)


def _finding(name: str, dataset: str, compared: ClassPairs) -> Finding:
    """Whether enough of the detected objects have the annotated class."""
    count = len(compared.pairs)
    text = (
        f"of {count} detected objects in {compared.images} images of {dataset}, "
        f"{compared.agreements} have the annotated class"
    )
    if count < MIN_OBJECTS:
        text += ": too few to tell whether their order is right"
        return Finding("checkpoints", name, "note", text)
    if compared.agreements >= MIN_AGREEMENT * count:
        return Finding("checkpoints", name, "ok", text)
    examples = []
    for (annotated, detected), _ in Counter(compared.mistakes).most_common(3):
        examples.append(f"{annotated} is called {detected}")
    advice = "write the names into `params: {classes: […]}` in the order of the network's outputs"
    return Finding("checkpoints", name, "wrong", f"{text} ({', '.join(examples)}): {advice}")


def _id_classes(rules: Rules, dataset: str, annotations: Annotations) -> np.ndarray:
    """The ID class of each category, shape (categories,); "" for those that are not of one."""
    id_class_by_category = {}
    for rule in rules.for_vocabulary(dataset):
        if rule.kind == "ID class":
            id_class_by_category[rule.category.casefold()] = rule.id_class
    names = [id_class_by_category.get(name.casefold(), "") for name in annotations.categories]
    return np.array(names, dtype=object)


def _compare(
    detector: Detector,
    names: tuple[str, ...],
    id_classes: np.ndarray,
    annotations: Annotations,
) -> ClassPairs:
    """Runs the network on images with objects of ID classes, until enough objects are detected.

    Args:
        detector: The detector.
        names: Its class names, as the entry has them.
        id_classes: The ID class of each category.
        annotations: The annotated images.
    """
    objects = annotations.objects
    is_usable = (id_classes[objects.category] != "") & ~objects.is_crowd
    images = _spread(annotations, np.unique(objects.image[is_usable]))
    pairs: list[tuple[str, str]] = []
    image_count = 0
    for start in range(0, len(images), BATCH):
        batch = images[start : start + BATCH]
        pixels = [as_pixels(annotations.image_path(row), str(row)) for row in batch]
        regions = detector.detect(pixels, [str(row) for row in batch], batch_size=BATCH)
        image_count += len(batch)
        for row, image in zip(batch, pixels, strict=True):
            detections = regions[np.flatnonzero(regions.image_id == str(row))]
            detections = detections[np.argsort(-detections.score, kind="stable")]
            scale: Any = 1.0
            if objects.unit == "image":
                height, width = image.shape[:2]
                scale = np.array([width, height, width, height])
            for object_row in np.flatnonzero(is_usable & (objects.image == row)):
                label = _best_label(detections, objects.box[object_row] * scale)
                if label is not None:
                    pairs.append((id_classes[objects.category[object_row]], names[label]))
        if len(pairs) >= OBJECTS:
            break
    return ClassPairs(pairs, image_count)


def _spread(annotations: Annotations, rows: np.ndarray) -> list[Any]:
    """At most `MAX_IMAGES` of the images whose files exist, spread over all of them."""
    present = [row for row in rows if annotations.image_path(row).is_file()]
    if not present:
        return []
    positions = np.unique(np.linspace(0, len(present) - 1, MAX_IMAGES).astype(int))
    return [present[position] for position in positions]


def _best_label(detections: Regions, box: np.ndarray) -> int | None:
    """The label of the first detection on a box; None where there is none.

    Args:
        detections: Detections of an image, by descending score.
        box: A box in pixels, shape (4,).
    """
    iou = overlaps(detections.box, np.broadcast_to(box, (len(detections), 4)))
    rows = np.flatnonzero(iou >= MIN_IOU)
    if not len(rows):
        return None
    return int(detections.label[rows[0]])
