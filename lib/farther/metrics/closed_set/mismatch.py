"""Why no detection matches an object: names of images, coordinates or classes do not fit, and what they look like."""

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
#: Share of the objects that detections must overlap before their boxes, read in some way, are said
#: to fit.
FITTING = 0.3
#: How much larger the mean overlap with the objects must be than that of the boxes as they were
#: read.
BETTER = 1.25
#: Detections of each image that are compared, those of the highest confidence.
MOST = 20
#: Objects that are looked at.
OBJECTS = 5_000
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
        objects, regions: They.
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
        """Those of two tables.

        Args:
            objects, regions: The tables.
            images: Their images, with sizes; None where these are not known.
        """
        counted = objects[~(objects.is_crowd | objects.is_unlabelled)]
        counted = counted[:OBJECTS]
        with_both = np.isin(regions.image_id.astype(str), counted.image_id.astype(str))
        detections = regions[np.flatnonzero(with_both)]
        _, (region_image, object_image) = image_numbers(detections.image_id, counted.image_id)
        order = np.lexsort((-detections.score, region_image))
        rank = np.arange(len(order)) - np.searchsorted(region_image[order], region_image[order])
        best = np.sort(order[rank < MOST])
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
        never = np.zeros(len(self.objects), bool)
        return pairs(boxes, self.region_image, self.objects.box, self.object_image, never, IOU)

    def best_overlaps(self, boxes: np.ndarray) -> np.ndarray:
        """The largest IoU of each object with a detection, 0 where it is below `IOU`, ndarray of shape (M,)."""
        near = self.matches(boxes)
        best = np.zeros(len(self.objects))
        np.maximum.at(best, near.target, near.overlap)
        return best


def explain(objects: Objects, regions: Regions, images: Images | None = None) -> str:
    """Why no detection matches an object of its class: which of images, boxes and classes do not fit.

    Args:
        objects: Objects of at least one known class.
        regions: At least one detection.
        images: Their images, whose sizes tell more about boxes.

    Returns:
        One sentence or two, with three examples of each side.

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
    words = _reading_that_fits(compared, least=BETTER * overlap)
    if overlap > 0 and not words:
        return _other_classes(compared)
    return _other_boxes(compared, words)


def _other_classes(compared: Compared) -> str:
    """A sentence for boxes that fit, but whose classes do not."""
    near = compared.matches(compared.regions.box)
    region, target = near.region, near.target
    classes = compared.regions.classes
    names = np.array(classes, dtype=object)[compared.regions.label[region]]
    seen = Counter(zip(compared.objects.category[target], names, strict=True))
    shown = [
        f"{category} is detected as {name} ({count})"
        for (category, name), count in seen.most_common(EXAMPLES)
    ]
    text = (
        f"boxes fit, classes do not: detections overlap {len(np.unique(target))} of {len(compared.objects)} objects, "
        f"but none has the object's class ({', '.join(shown)})"
    )
    unknown = sorted(set(compared.objects.category) - set(classes))
    place = places_among(compared.objects.category[target], classes)
    of_known = place >= 0
    if not of_known.any():
        return f"{text}. Objects are of {_names(np.array(unknown, dtype=object))}; the detector has {_names(classes)}"
    steps = Counter((compared.regions.label[region] - place)[of_known].tolist())
    step, count = steps.most_common(1)[0]
    if count > len(np.flatnonzero(of_known)) / 2:
        side = "larger" if step > 0 else "smaller"
        return f"{text}: they look shifted, each number {side} by {abs(step)} than the class's. Correct their numbers"
    sums = Counter((compared.regions.label[region] + place)[of_known].tolist())
    if sums.most_common(1)[0][1] > len(np.flatnonzero(of_known)) / 2:
        return f"{text}: they look numbered in reversed order. Correct their numbers"
    return f"{text}: they look numbered in another order. Correct their numbers"


def _other_boxes(compared: Compared, words: str) -> str:
    """A sentence for boxes that overlap no object, or hardly any.

    Args:
        words: What the boxes look like; empty where that is not known.
    """
    found = np.count_nonzero(compared.best_overlaps(compared.regions.box))
    text = f"detections of any class overlap {found} of {len(compared.objects)} objects by an IoU of {IOU:g}"
    examples = f"{_boxes(compared.objects)}; detections have {_boxes(compared.regions)} (xmin, ymin, xmax, ymax)"
    if words:
        return f"{text}: boxes look like {words}. Objects have {examples}"
    return f"{text}: boxes are in other coordinates, or of other images. Objects have {examples}"


def _reading_that_fits(compared: Compared, least: float) -> str:
    """What the boxes look like, in words; empty where none of the known mistakes makes them fit.

    Args:
        least: Mean of the objects' best overlaps that it must exceed.
    """
    boxes = compared.regions.box.astype(np.float64)
    best, words = least, ""
    for description, reading in _readings(compared).items():
        overlap = compared.best_overlaps(_valid(reading(boxes, compared.sizes)))
        if np.mean(overlap > 0) > FITTING and overlap.mean() > best:
            best, words = float(overlap.mean()), description
    return words


def _readings(compared: Compared) -> dict[str, Reading]:
    """Readings of boxes that were written or read in another way, with what the boxes then are."""
    readings: dict[str, Reading] = {
        "x, y, width, height that were read as corners": _size_as_corner,
        "corners that were read as x, y, width, height": _corner_as_size,
        "centres that were read as upper left corners": _centre_as_corner,
        "upper left corners that were read as centres": _corner_as_centre,
        "y, x, y, x instead of x, y, x, y": lambda boxes, _: boxes[:, [1, 0, 3, 2]],
    }
    if not np.isfinite(compared.sizes).all():
        return readings
    readings["fractions of width and height"] = lambda boxes, sizes: boxes * sizes
    readings["percentages of width and height"] = lambda boxes, sizes: boxes * sizes / 100
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


def _stretched_to(side: int) -> Reading:
    """Reading of boxes in images that were resized to a square."""

    def read(boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return boxes * sizes / side

    return read


def _scaled_to(side: int, *, padded: bool) -> Reading:
    """Reading of boxes in images that were resized by their longer side, and padded on both sides of the shorter."""

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
    """Boxes, those of a negative size without an area."""
    return np.concatenate([boxes[:, :2], np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)


def _names(names: Sequence[str] | np.ndarray) -> str:
    """The first different names, as a message shows them."""
    distinct = list(dict.fromkeys(names))
    text = ", ".join(shorten(name) for name in distinct[:EXAMPLES])
    more = len(distinct) - EXAMPLES
    return f"{text} and {more} more" if more > 0 else text


def _boxes(table: Objects | Regions) -> str:
    """The boxes of the first different images, as a message shows them."""
    shown: dict[str, str] = {}
    for image_id, box in zip(table.image_id, table.box, strict=True):
        if len(shown) == EXAMPLES:
            break
        edges = ", ".join(f"{edge:.4g}" for edge in box.tolist())
        shown.setdefault(image_id, f"[{edges}] in {shorten(image_id)}")
    return ", ".join(shown.values())
