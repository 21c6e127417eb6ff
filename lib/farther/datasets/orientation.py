"""Turned images: boxes that were annotated on stored pixels become those of the displayed image.

A tool may write the size of the stored picture and boxes of the displayed one: it shows the picture
in a browser, and reads its size with Pillow. So the stored size of an image proves nothing. Boxes
do where they fit into one of the two pictures only. What some images of a dataset prove, counts for
the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from farther.datasets.base import WHOLE_IMAGE, AnnotatedOn, Annotations, DataWarning
from farther.errors import DataError
from farther.images.orientation import UPRIGHT, turned_boxes

#: Kinds of warnings, by what the boxes of a turned image refer to; `ingest` prints each with the
#: number of images.
TURNED = "images turned as their EXIF orientation says"
KINDS = {
    "displayed": f"{TURNED}; boxes refer to the displayed image",
    "stored": f"{TURNED}; boxes refer to stored pixels and are turned, too",
    "auto": f"{TURNED}; boxes assumed to refer to the displayed image (else set orientation: stored)",
}
#: Smallest orientation with width and height exchanged; below, images are mirrored or upside down.
SIDEWAYS = 5
#: A box that leaves a picture by no more than this share of its sides, or a pixel, was drawn so,
#: and proves nothing.
DRAWN_BEYOND = 0.01

ADVICE = (
    "Write orientation: displayed (boxes drawn in a browser, Label Studio, or any program that turns photographs) or "
    "orientation: stored (drawn on the picture as it lies in the file)"
)


@dataclass(frozen=True)
class TurnedImages:
    """The images of a dataset that are turned and have boxes, and what is known about these.

    Args:
        row: Row of each image, shape (T,).
        orientation: Of each file, 2 to 8, shape (T,).
        displayed: Width and height of each displayed image, shape (T, 2).
        declared: Those in the annotations, 0 where there are none, shape (T, 2).
        extent: Largest x and y of the boxes of each image, in pixels, shape (T, 2); 0 for boxes in
            fractions.
    """

    row: np.ndarray
    orientation: np.ndarray
    displayed: np.ndarray
    declared: np.ndarray
    extent: np.ndarray

    @classmethod
    def of(
        cls, annotations: Annotations, displayed: np.ndarray, orientation: np.ndarray
    ) -> TurnedImages:
        """Those of some annotations; see `as_displayed`."""
        images, objects = annotations.images, annotations.objects
        has_boxes = np.zeros(len(images), dtype=bool)
        # A box that is the whole image is the same in both.
        is_box = (objects.box != WHOLE_IMAGE).any(axis=1) | (objects.unit == "pixel")
        has_boxes[objects.image[is_box]] = True
        row = np.flatnonzero((orientation != UPRIGHT) & has_boxes)
        extent = np.zeros((len(images), 2))
        if objects.unit == "pixel":
            np.maximum.at(extent, objects.image, objects.box[:, 2:])
        declared = np.stack([images.width, images.height], axis=1)
        return cls(row, orientation[row], displayed[row], declared[row], extent[row])

    @classmethod
    def joined(cls, several: Sequence[TurnedImages]) -> TurnedImages:
        """Those of several subsets; each row is that in its own subset."""
        columns = {
            f.name: np.concatenate([getattr(one, f.name) for one in several]) for f in fields(cls)
        }
        return cls(**columns)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def stored(self) -> np.ndarray:
        """Width and height of each stored picture, shape (T, 2)."""
        return np.where(self.is_sideways[:, None], self.displayed[:, ::-1], self.displayed)

    @property
    def is_sideways(self) -> np.ndarray:
        """Whether width and height are exchanged, shape (T,)."""
        return self.orientation >= SIDEWAYS

    def proven(self) -> list[AnnotatedOn]:
        """What each image proves by itself; "auto" for nothing.

        Its size proves "displayed" where it is that of the displayed image and not of the stored
        one. Boxes prove what they fit into where they leave the other.
        """
        differs = (self.stored != self.displayed).any(axis=1)
        has_displayed_size = differs & (self.declared == self.displayed).all(axis=1)
        fits_displayed = (self.extent <= _limit(self.displayed)).all(axis=1)
        fits_stored = (self.extent <= _limit(self.stored)).all(axis=1)
        is_displayed = has_displayed_size | (fits_displayed & ~fits_stored)
        is_stored = ~has_displayed_size & fits_stored & ~fits_displayed
        proven: list[AnnotatedOn] = []
        for displayed, stored in zip(is_displayed.tolist(), is_stored.tolist(), strict=True):
            if displayed:
                proven.append("displayed")
            elif stored:
                proven.append("stored")
            else:
                proven.append("auto")
        return proven

    def decided(self) -> list[AnnotatedOn]:
        """What the boxes of each image refer to: what it proves, else what all the others prove that prove something.

        An image whose size is the stored one is decided by the boxes of others, not by their sizes:
        those were written by another program. "auto" where nothing proves it.
        """
        proven = self.proven()
        by_boxes = set(self._proven_by_boxes())
        by_anything = set(proven) - {"auto"}
        has_stored_size = (self.declared == self.stored).all(axis=1) & (
            self.stored != self.displayed
        ).any(axis=1)
        decided: list[AnnotatedOn] = []
        for index, answer in enumerate(proven):
            evidence = by_boxes if has_stored_size[index] else by_anything
            if answer == "auto" and len(evidence) == 1:
                answer = next(iter(evidence))
            decided.append(answer)
        return decided

    def _proven_by_boxes(self) -> list[AnnotatedOn]:
        without_sizes = replace(self, declared=np.zeros_like(self.declared))
        return [answer for answer in without_sizes.proven() if answer != "auto"]

    def undecided(self) -> list[int]:
        """Indices of the images that are turned by a quarter and nothing decides."""
        decided = self.decided()
        return [
            index
            for index in range(len(self))
            if decided[index] == "auto" and self.is_sideways[index]
        ]

    def question(self, files: Sequence[str], index: int) -> str:
        """What is not known about the image of an index, with the numbers that are in the files.

        Args:
            files: Name of each of the dataset's images.
        """
        stored, displayed = _size(self.stored[index]), _size(self.displayed[index])
        text = f"{files[self.row[index]]} is displayed as {displayed} and stored as {stored} (orientation "
        text += f"{self.orientation[index]})"
        if self.declared[index].all():
            text += f", the annotations say {_size(self.declared[index])}"
        if self.extent[index].any():
            x, y = self.extent[index]
            text += f", and its boxes, up to x = {x:g} and y = {y:g}, fit both"
        else:
            text += ", and its boxes are fractions of either"
        return text


def as_displayed(
    annotations: Annotations, displayed: np.ndarray, orientation: np.ndarray, on: AnnotatedOn
) -> Annotations:
    """The annotations with boxes and sizes of the displayed images, and a warning for each image that is turned.

    Args:
        annotations: M objects in N images.
        displayed: Width and height of each displayed image, shape (N, 2).
        orientation: That of each file, 1 to 8, shape (N,).
        on: What the boxes refer to.

    Raises:
        DataError: it is "auto", and nothing tells what the boxes of an image refer to that is
            turned by a quarter.
    """
    rows = np.flatnonzero(orientation != UPRIGHT).tolist()
    if not rows:
        return annotations
    images, objects = annotations.images, annotations.objects
    turned = TurnedImages.of(annotations, displayed, orientation)
    if on == "auto":
        refuse_undecided(turned, annotations)
        refers = dict(zip(turned.row.tolist(), turned.decided(), strict=True))
    else:
        refers = dict.fromkeys(turned.row.tolist(), on)
    declared, warnings = np.stack([images.width, images.height], axis=1), list(annotations.warnings)
    is_stored = np.zeros(len(images), dtype=bool)
    for row in rows:
        width, height = declared[row].tolist()
        is_stored[row] = refers.get(row, on) == "stored"
        kind = KINDS[refers[row]] if row in refers else TURNED
        problem = f"orientation {orientation[row]}"
        if width and height:
            problem += f", annotated as {width}×{height}"
        action = "image and boxes turned" if is_stored[row] else "image turned"
        warnings.append(DataWarning(kind, "dataset", images.file[row], None, None, problem, action))
    # A stored size is the size of this image, whatever its boxes refer to.
    stored = np.where((orientation >= SIDEWAYS)[:, None], displayed[:, ::-1], displayed)
    exchanged = (orientation >= SIDEWAYS) & (declared == stored).all(axis=1)
    declared[exchanged] = declared[exchanged, ::-1]
    box, chosen = objects.box.copy(), is_stored[objects.image]
    image = objects.image[chosen]
    unit = np.ones_like(stored[image]) if objects.unit == "image" else stored[image]
    box[chosen] = turned_boxes(box[chosen], unit, orientation[image])
    return replace(
        annotations,
        images=replace(images, width=declared[:, 0], height=declared[:, 1]),
        objects=replace(objects, box=box),
        warnings=warnings,
    )


def refuse_undecided(turned: TurnedImages, annotations: Annotations) -> None:
    """Refuses annotations with images of which nothing tells which picture their boxes were drawn on.

    Args:
        turned: The turned images of the annotations.
        annotations: These.

    Raises:
        DataError: there are such images; it has the numbers of the first.
    """
    undecided = turned.undecided()
    if not undecided:
        return
    files = annotations.images.file.tolist()
    row = int(turned.row[undecided[0]])
    raise DataError(
        f"{len(undecided)} of {len(files)} images are turned by a quarter by their EXIF orientation, and nothing tells "
        f"which picture their boxes were drawn on: {turned.question(files, undecided[0])}. {ADVICE}",
        file=annotations.root / annotations.file(row),
        field="orientation",
    )


def _limit(size: np.ndarray) -> np.ndarray:
    """Largest x and y of boxes that fit into pictures of some sizes."""
    return size + np.maximum(1.0, DRAWN_BEYOND * size)


def _size(size: np.ndarray) -> str:
    return f"{size[0]:g}×{size[1]:g}"
