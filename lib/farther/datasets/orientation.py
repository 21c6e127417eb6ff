"""Turned images: boxes that were annotated on stored pixels become those of the displayed image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from farther.datasets.base import WHOLE_IMAGE, AnnotatedOn, Annotations, DataWarning
from farther.images.orientation import UPRIGHT, turned_boxes, turned_size

#: Kinds of warnings, by what the boxes of a turned image refer to; `ingest` prints each with the number of images.
TURNED = "images turned as their EXIF orientation says"
KINDS = {
    "displayed": f"{TURNED}; boxes refer to the displayed image",
    "stored": f"{TURNED}; boxes refer to stored pixels and are turned, too",
    "auto": f"{TURNED}; boxes assumed to refer to the displayed image (else set orientation: stored)",
}


def decided(on: AnnotatedOn, declared: tuple[int, int], displayed: tuple[int, int], orientation: int) -> AnnotatedOn:
    """What the boxes of an image refer to; "auto" where its sizes do not tell, which is taken for "displayed".

    Args:
        on: `Reader.orientation`.
        declared: Width and height as annotated, 0 where the annotations do not give it.
        displayed: Those of the displayed image.
        orientation: That of the file, 1 to 8.

    >>> decided("auto", (640, 480), (480, 640), 6), decided("auto", (0, 0), (480, 640), 6)
    ('stored', 'auto')
    """
    stored = turned_size(*displayed, orientation)
    if on != "auto" or stored == displayed or declared not in (stored, displayed):
        return on
    return "stored" if declared == stored else "displayed"


def as_displayed(
    annotations: Annotations, displayed: np.ndarray, orientation: np.ndarray, on: AnnotatedOn
) -> Annotations:
    """The annotations with boxes and sizes of the displayed images, and a warning for each image that is turned.

    Args:
        annotations: M objects in N images.
        displayed: Width and height of each displayed image, shape (N, 2).
        orientation: That of each file, 1 to 8, shape (N,).
        on: What the boxes refer to.
    """
    rows = np.flatnonzero(orientation != UPRIGHT).tolist()
    if not rows:
        return annotations
    images, objects = annotations.images, annotations.objects
    # A box that is the whole image is the same in both.
    boxed = set(objects.image[(objects.unit == "pixel") | (objects.box != WHOLE_IMAGE).any(axis=1)].tolist())
    declared, warnings = np.stack([images.width, images.height], axis=1), list(annotations.warnings)
    is_stored = np.zeros(len(images), dtype=bool)
    for row in rows:
        width, height = declared[row].tolist()
        refer = decided(on, (width, height), tuple(displayed[row].tolist()), orientation[row])
        is_stored[row] = refer == "stored"
        kind, found = KINDS[refer] if row in boxed else TURNED, f"orientation {orientation[row]}"
        action = "image and boxes turned" if is_stored[row] else "image turned"
        size = f", annotated as {width}×{height}" if width and height else ""
        warnings.append(DataWarning(kind, "dataset", images.file[row], None, None, found + size, action))
    exchanged = is_stored & (orientation >= 5)
    declared[exchanged] = declared[exchanged, ::-1]
    box, chosen = objects.box.copy(), is_stored[objects.image]
    image = objects.image[chosen]
    stored = np.where((orientation[image] >= 5)[:, None], displayed[image, ::-1], displayed[image])
    unit = np.ones_like(stored) if objects.unit == "image" else stored
    box[chosen] = turned_boxes(box[chosen], unit, orientation[image])
    return replace(
        annotations,
        images=replace(images, width=declared[:, 0], height=declared[:, 1]),
        objects=replace(objects, box=box),
        warnings=warnings,
    )
