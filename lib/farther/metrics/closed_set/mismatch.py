"""Explanation of why no detection matches an object.

Names of images, coordinates or classes do not fit; known mistakes in writing boxes are recognised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from farther.errors import shorten
from farther.metrics.matching.boxes import OverlapPairs, image_numbers, pairs, places_among
from farther.tables import Images, Objects, Regions

#: Smallest IoU of a match.
IOU = 0.5
#: Share of the objects that detections must overlap before their boxes, read in some way, fit.
MIN_OVERLAPPED = 0.3
#: Smallest ratio of the mean overlap with the objects to that of the boxes as they were read.
MIN_IMPROVEMENT = 1.25
#: Largest number of detections of each image that are compared, those of the highest confidence.
MAX_DETECTIONS = 20
#: Largest number of objects that are compared.
MAX_OBJECTS = 5_000
#: Examples in a message.
EXAMPLES = 3
#: Sides to which networks resize their images.
SIDES = (224, 300, 320, 384, 416, 448, 512, 608, 640, 768, 800, 896, 1000, 1024, 1280, 1333, 1536)

#: Boxes as they would be if they were read in another way: N boxes and the sizes of their images,
#: each (N, 4).
Reading = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Compared:
    """The objects and the most confident detections of the images that have both.

    Args:
        objects: The objects.
        regions: The N detections.
        object_image, region_image: Number of the image of each.
        sizes: Width, height, width and height of each detection's image, ndarray of shape (N, 4);
            NaN where they are not known.
    """

    objects: Objects
    regions: Regions
    object_image: np.ndarray
    region_image: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, objects: Objects, regions: Regions, images: Images | None) -> Compared:
        """The objects and the most confident detections of two tables.

        Args:
            objects, regions: The tables.
            images: Their images, with sizes; None where these are not known.
        """
        counted = objects[~(objects.is_crowd | objects.is_unlabelled)]
        counted = counted[:MAX_OBJECTS]
        has_objects = np.isin(regions.image_id.astype(str), counted.image_id.astype(str))
        detections = regions[np.flatnonzero(has_objects)]
        _, (region_image, object_image) = image_numbers(detections.image_id, counted.image_id)
        order = np.lexsort((-detections.score, region_image))
        ranked_image = region_image[order]
        rank_in_image = np.arange(len(order)) - np.searchsorted(ranked_image, ranked_image)
        best = np.sort(order[rank_in_image < MAX_DETECTIONS])
        detections = detections[best]
        sizes = np.full((len(detections), 4), np.nan)
        if images is not None:
            size_by_image = {}
            for image_id, width, height in zip(
                images.image_id, images.width, images.height, strict=True
            ):
                size_by_image[image_id] = (width, height, width, height)
            for row, image_id in enumerate(detections.image_id):
                sizes[row] = size_by_image.get(image_id, np.nan)
        return cls(counted, detections, object_image, region_image[best], sizes)

    def matches(self, boxes: np.ndarray) -> OverlapPairs:
        """Detections and objects that overlap by `IOU`, whatever their classes are.

        Args:
            boxes: Boxes of the detections, shape (N, 4).
        """
        no_crowds = np.zeros(len(self.objects), bool)
        return pairs(boxes, self.region_image, self.objects.box, self.object_image, no_crowds, IOU)

    def best_overlaps(self, boxes: np.ndarray) -> np.ndarray:
        """The largest IoU of each object with a detection, ndarray of shape (M,).

        Args:
            boxes: Boxes of the detections, shape (N, 4).

        Returns:
            0 where the largest IoU is below `IOU`.
        """
        matching = self.matches(boxes)
        best = np.zeros(len(self.objects))
        np.maximum.at(best, matching.target, matching.overlap)
        return best


def explain(objects: Objects, regions: Regions, images: Images | None = None) -> str:
    """Explains why no detection matches an object of its class.

    Args:
        objects: Objects of at least one known class.
        regions: At least one detection.
        images: Their images, whose sizes tell more about boxes.

    Returns:
        One sentence or two that say which of images, boxes and classes do not fit, with three
        examples of each side.

    >>> from farther.tables import Objects, Regions
    >>> objects = Objects(image_id=["a"], object_id=[0], box=[[0, 0, 10, 10]], category=["cat"])
    >>> regions = Regions(
    ...     image_id=["b"],
    ...     region_id=[0],
    ...     box=[[0, 0, 10, 10]],
    ...     score=[0.9],
    ...     label=[0],
    ...     classes=("cat",),
    ... )
    >>> explain(objects, regions)
    "the detections are of other images than the objects: objects in 'a'; detections in 'b'"
    """
    compared = Compared.of(objects, regions, images)
    if not len(compared.regions):
        return (
            "the detections are of other images than the objects: objects in "
            f"{_names(objects.image_id)}; detections in {_names(regions.image_id)}"
        )
    overlap = float(compared.best_overlaps(compared.regions.box).mean())
    words = _reading_that_fits(compared, smallest_mean=MIN_IMPROVEMENT * overlap)
    if overlap > 0 and not words:
        return _other_classes(compared)
    return _other_boxes(compared, words)


def _other_classes(compared: Compared) -> str:
    """A sentence for boxes that fit, but whose classes do not."""
    matching = compared.matches(compared.regions.box)
    label = compared.regions.label[matching.region]
    category = compared.objects.category[matching.target]
    classes = compared.regions.classes
    detected_names = np.array(classes, dtype=object)[label]
    confusions = Counter(zip(category, detected_names, strict=True))
    examples = ", ".join(
        f"{object_category} is detected as {name} ({count})"
        for (object_category, name), count in confusions.most_common(EXAMPLES)
    )
    text = (
        "boxes fit, classes do not: detections overlap "
        f"{len(np.unique(matching.target))} of {len(compared.objects)} objects, "
        f"but none has the object's class ({examples})"
    )

    class_of_object = places_among(category, classes)
    is_known = class_of_object >= 0
    if not is_known.any():
        unknown = sorted(set(compared.objects.category) - set(classes))
        return (
            f"{text}. Objects are of {_names(np.array(unknown, dtype=object))}; "
            f"the detector has {_names(classes)}"
        )

    known_count = np.count_nonzero(is_known)
    step, count = _most_common((label - class_of_object)[is_known])
    if count > known_count / 2:
        side = "larger" if step > 0 else "smaller"
        return (
            f"{text}: they look shifted, each number {side} by {abs(step)} than the class's. "
            "Correct their numbers"
        )
    _, count = _most_common((label + class_of_object)[is_known])
    if count > known_count / 2:
        return f"{text}: they look numbered in reversed order. Correct their numbers"
    return f"{text}: they look numbered in another order. Correct their numbers"


def _most_common(numbers: np.ndarray) -> tuple[int, int]:
    """The most common of some numbers, and its count."""
    return Counter(numbers.tolist()).most_common(1)[0]


def _other_boxes(compared: Compared, words: str) -> str:
    """A sentence for boxes that overlap no object, or hardly any.

    Args:
        words: Description of what the boxes look like; empty where that is not known.
    """
    overlapped = np.count_nonzero(compared.best_overlaps(compared.regions.box))
    text = (
        f"detections of any class overlap {overlapped} of {len(compared.objects)} objects "
        f"by an IoU of {IOU:g}"
    )
    examples = (
        f"{_boxes(compared.objects)}; detections have {_boxes(compared.regions)} "
        "(xmin, ymin, xmax, ymax)"
    )
    if words:
        return f"{text}: boxes look like {words}. Objects have {examples}"
    return f"{text}: boxes are in other coordinates, or of other images. Objects have {examples}"


def _reading_that_fits(compared: Compared, smallest_mean: float) -> str:
    """Description of the mistake that makes the boxes fit; empty where none of the known ones does.

    Args:
        smallest_mean: Mean of the objects' best overlaps that it must exceed.
    """
    boxes = compared.regions.box.astype(np.float64)
    best_mean = smallest_mean
    best_description = ""
    for description, reading in _readings(compared).items():
        overlap = compared.best_overlaps(_valid(reading(boxes, compared.sizes)))
        if np.mean(overlap > 0) > MIN_OVERLAPPED and overlap.mean() > best_mean:
            best_mean = float(overlap.mean())
            best_description = description
    return best_description


def _readings(compared: Compared) -> dict[str, Reading]:
    """Readings of boxes that were written or read in another way, with what the boxes then are."""
    readings: dict[str, Reading] = {
        "x, y, width, height that were read as corners": _size_as_corner,
        "corners that were read as x, y, width, height": _corner_as_size,
        "centres that were read as upper left corners": _centre_as_corner,
        "upper left corners that were read as centres": _corner_as_centre,
        "y, x, y, x instead of x, y, x, y": _swapped_axes,
    }
    if not np.isfinite(compared.sizes).all():
        return readings
    readings["fractions of width and height"] = _fractions
    readings["percentages of width and height"] = _percentages
    for side in SIDES:
        readings[f"pixels of a picture of {side} x {side}"] = _stretched_to(side)
        readings[f"pixels of a picture whose longer side is {side}"] = _scaled_to(
            side, padded=False
        )
        readings[f"pixels of a picture that is padded to {side} x {side}"] = _scaled_to(
            side, padded=True
        )
        readings[f"pixels of a picture whose shorter side is {side}"] = _scaled_by_shorter(side)
    return readings


def _size_as_corner(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)


def _corner_as_size(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)


def _centre_as_corner(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    half = (boxes[:, 2:] - boxes[:, :2]) / 2
    return boxes - np.tile(half, 2)


def _corner_as_centre(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    half = (boxes[:, 2:] - boxes[:, :2]) / 2
    return boxes + np.tile(half, 2)


def _swapped_axes(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return boxes[:, [1, 0, 3, 2]]


def _fractions(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return boxes * sizes


def _percentages(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return boxes * sizes / 100


def _stretched_to(side: int) -> Reading:
    """Reading of boxes in images that were resized to a square."""

    def read(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return boxes * sizes / side

    return read


def _scaled_to(side: int, *, padded: bool) -> Reading:
    """Reading of boxes in images that were resized by their longer side.

    Args:
        side: Length of the longer side after resizing.
        padded: Whether both ends of the shorter side were padded, to a square.
    """

    def read(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        scale = side / sizes.max(axis=1, keepdims=True)
        margin = (side - sizes * scale) / 2 if padded else 0
        return (boxes - margin) / scale

    return read


def _scaled_by_shorter(side: int) -> Reading:
    """Reading of boxes in images that were resized by their shorter side."""

    def read(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return boxes * sizes.min(axis=1, keepdims=True) / side

    return read


def _valid(boxes: np.ndarray) -> np.ndarray:
    """Boxes whose negative widths and heights are 0."""
    return np.concatenate([boxes[:, :2], np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)


def _names(names: Sequence[str] | np.ndarray) -> str:
    """The first different names, as a message shows them."""
    distinct = list(dict.fromkeys(names))
    text = ", ".join(shorten(name) for name in distinct[:EXAMPLES])
    more = len(distinct) - EXAMPLES
    return f"{text} and {more} more" if more > 0 else text


def _boxes(table: Objects | Regions) -> str:
    """The boxes of the first different images, as a message shows them."""
    text_by_image: dict[str, str] = {}
    for image_id, box in zip(table.image_id, table.box, strict=True):
        if len(text_by_image) == EXAMPLES:
            break
        edges = ", ".join(f"{edge:.4g}" for edge in box.tolist())
        text_by_image.setdefault(image_id, f"[{edges}] in {shorten(image_id)}")
    return ", ".join(text_by_image.values())
