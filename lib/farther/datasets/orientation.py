"""Turned images: boxes that were annotated on stored pixels become those of the displayed image.

A tool may write the size of the stored picture and boxes of the displayed one: it shows the picture
in a browser, and reads its size with Pillow. So the stored size of an image is no evidence. Boxes
are where they fit into one of the two pictures only. Evidence from some images of a dataset applies
to all of its images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from farther.datasets.base import (
    WHOLE_IMAGE,
    AnnotatedImages,
    AnnotatedObjects,
    AnnotatedOn,
    Annotations,
    DataWarning,
)
from farther.errors import DataError
from farther.images.orientation import UPRIGHT, turned_boxes

#: Kinds of warnings by the picture that the boxes of a turned image refer to; `ingest` prints each
#: with the number of images.
TURNED = "images turned as their EXIF orientation says"
KINDS = {
    "displayed": f"{TURNED}; boxes refer to the displayed image",
    "stored": f"{TURNED}; boxes refer to stored pixels and are turned, too",
    "auto": (
        f"{TURNED}; boxes assumed to refer to the displayed image (else set orientation: stored)"
    ),
}
#: Smallest orientation with width and height exchanged; below, images are mirrored or upside down.
SIDEWAYS = 5
#: A box that leaves a picture by at most this share of its sides, or a pixel, is no evidence:
#: annotators draw such boxes.
DRAWN_BEYOND = 0.01

ADVICE = (
    "Write orientation: displayed (boxes drawn in a browser, Label Studio, or any program that "
    "turns photographs) or orientation: stored (drawn on the picture as it lies in the file)"
)


@dataclass(frozen=True)
class TurnedImages:
    """The images of a dataset that are turned and have boxes, and the evidence about their boxes.

    Args:
        row: Row of each image, shape (T,).
        orientation: EXIF orientation of each file, 2 to 8, shape (T,).
        displayed: Width and height of each displayed image, shape (T, 2).
        declared: Width and height in the annotations, 0 where there are none, shape (T, 2).
        extent: Largest x and y of the boxes of each image, in pixels, shape (T, 2); 0 for boxes in
            fractions.
    """

    row: np.ndarray
    orientation: np.ndarray
    displayed: np.ndarray
    declared: np.ndarray
    extent: np.ndarray

    @classmethod
    def from_annotations(
        cls, annotations: Annotations, displayed: np.ndarray, orientation: np.ndarray
    ) -> TurnedImages:
        """The turned images of annotations; for the arguments see `as_displayed`."""
        images = annotations.images
        objects = annotations.objects
        # A box as large as the image is the same in both pictures.
        is_box = (objects.box != WHOLE_IMAGE).any(axis=1) | (objects.unit == "pixel")
        has_boxes = np.zeros(len(images), dtype=bool)
        has_boxes[objects.image[is_box]] = True
        row = np.flatnonzero((orientation != UPRIGHT) & has_boxes)

        extent = np.zeros((len(images), 2))
        if objects.unit == "pixel":
            np.maximum.at(extent, objects.image, objects.box[:, 2:])
        declared = np.stack([images.width, images.height], axis=1)
        return cls(row, orientation[row], displayed[row], declared[row], extent[row])

    @classmethod
    def joined(cls, subsets: Sequence[TurnedImages]) -> TurnedImages:
        """The turned images of several subsets; a row refers to the image's own subset."""
        columns = {}
        for field in fields(cls):
            values = [getattr(turned, field.name) for turned in subsets]
            columns[field.name] = np.concatenate(values)
        return cls(**columns)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def stored(self) -> np.ndarray:
        """Width and height of each stored picture, shape (T, 2)."""
        return _stored_size(self.displayed, self.orientation)

    @property
    def is_sideways(self) -> np.ndarray:
        """Whether width and height are exchanged, shape (T,)."""
        return self.orientation >= SIDEWAYS

    def proven(self) -> list[AnnotatedOn]:
        """The picture that the boxes of each image refer to by its own evidence, else "auto".

        The declared size is evidence for "displayed" where it is that of the displayed image and
        not of the stored one. Boxes are evidence for the picture that they fit into where they
        leave the other.
        """
        differs = (self.stored != self.displayed).any(axis=1)
        has_displayed_size = differs & (self.declared == self.displayed).all(axis=1)
        fits_displayed = (self.extent <= _limit(self.displayed)).all(axis=1)
        fits_stored = (self.extent <= _limit(self.stored)).all(axis=1)
        is_displayed = has_displayed_size | (fits_displayed & ~fits_stored)
        is_stored = ~has_displayed_size & fits_stored & ~fits_displayed
        proven = np.select([is_displayed, is_stored], ["displayed", "stored"], "auto")
        return list(proven.tolist())

    def decided(self) -> list[AnnotatedOn]:
        """The picture that the boxes of each image refer to by all evidence, else "auto".

        An image without evidence of its own is decided by that of the others, where they agree. If
        its declared size is the stored one, only the boxes of the others count, not their sizes:
        those were written by another program.
        """
        proven = self.proven()
        evidence_of_all = set(proven) - {"auto"}
        without_sizes = replace(self, declared=np.zeros_like(self.declared))
        evidence_of_boxes = set(without_sizes.proven()) - {"auto"}

        sizes_differ = (self.stored != self.displayed).any(axis=1)
        has_stored_size = sizes_differ & (self.declared == self.stored).all(axis=1)
        decided: list[AnnotatedOn] = []
        for index, picture in enumerate(proven):
            evidence = evidence_of_boxes if has_stored_size[index] else evidence_of_all
            if picture == "auto" and len(evidence) == 1:
                (picture,) = evidence
            decided.append(picture)
        return decided

    def undecided(self) -> list[int]:
        """Indices of the images that are turned by a quarter and that no evidence decides."""
        is_auto = np.array([picture == "auto" for picture in self.decided()], dtype=bool)
        return list(np.flatnonzero(is_auto & self.is_sideways).tolist())

    def question(self, files: Sequence[str], index: int) -> str:
        """The open question about an image, with the sizes in the files.

        Args:
            files: Name of each of the dataset's images.
            index: Index of the image among the turned ones.
        """
        text = (
            f"{files[self.row[index]]} is displayed as {_size(self.displayed[index])} and stored "
            f"as {_size(self.stored[index])} (orientation {self.orientation[index]})"
        )
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
    """The annotations with boxes and sizes of the displayed images.

    Each turned image is listed in a warning.

    Args:
        annotations: M objects in N images.
        displayed: Width and height of each displayed image, shape (N, 2).
        orientation: EXIF orientation of each file, 1 to 8, shape (N,).
        on: The pixels that the boxes refer to.

    Raises:
        DataError: `on` is "auto", and nothing decides which pixels the boxes of an image that is
            turned by a quarter refer to.
    """
    if (orientation == UPRIGHT).all():
        return annotations
    turned = TurnedImages.from_annotations(annotations, displayed, orientation)
    picture_by_row: dict[int, AnnotatedOn]
    if on == "auto":
        refuse_undecided(turned, annotations)
        picture_by_row = dict(zip(turned.row.tolist(), turned.decided(), strict=True))
    else:
        picture_by_row = dict.fromkeys(turned.row.tolist(), on)

    warnings = list(annotations.warnings)
    is_stored = np.zeros(len(annotations.images), dtype=bool)
    for row in np.flatnonzero(orientation != UPRIGHT).tolist():
        is_stored[row] = picture_by_row.get(row, on) == "stored"
        kind = KINDS[picture_by_row[row]] if row in picture_by_row else TURNED
        warnings.append(
            _turned_warning(
                annotations.images, row, kind, orientation[row], with_boxes=is_stored[row]
            )
        )
    images = _with_displayed_size(annotations.images, displayed, orientation)
    objects = _with_turned_boxes(annotations.objects, displayed, orientation, is_stored)
    return replace(annotations, images=images, objects=objects, warnings=warnings)


def _turned_warning(
    images: AnnotatedImages, row: int, kind: str, orientation: int, *, with_boxes: bool
) -> DataWarning:
    """A warning about a turned image."""
    text = f"orientation {orientation}"
    width = images.width[row]
    height = images.height[row]
    if width and height:
        text += f", annotated as {width}×{height}"
    action = "image and boxes turned" if with_boxes else "image turned"
    return DataWarning(kind, "dataset", images.file[row], None, None, text, action)


def _with_displayed_size(
    images: AnnotatedImages, displayed: np.ndarray, orientation: np.ndarray
) -> AnnotatedImages:
    """The images with width and height exchanged where the annotations have the stored size.

    A stored size is the size of the image whichever pixels its boxes refer to.
    """
    size = np.stack([images.width, images.height], axis=1)
    stored = _stored_size(displayed, orientation)
    is_exchanged = (orientation >= SIDEWAYS) & (size == stored).all(axis=1)
    size[is_exchanged] = size[is_exchanged, ::-1]
    return replace(images, width=size[:, 0], height=size[:, 1])


def _with_turned_boxes(
    objects: AnnotatedObjects,
    displayed: np.ndarray,
    orientation: np.ndarray,
    is_stored: np.ndarray,
) -> AnnotatedObjects:
    """The objects with boxes of the displayed images.

    Args:
        objects: Objects of N images.
        displayed: Width and height of each displayed image, shape (N, 2).
        orientation: EXIF orientation of each file, shape (N,).
        is_stored: Mask of the images whose boxes refer to stored pixels, shape (N,).
    """
    selected = is_stored[objects.image]
    image = objects.image[selected]
    size = _stored_size(displayed, orientation)[image]
    if objects.unit == "image":
        size = np.ones_like(size)
    box = objects.box.copy()
    box[selected] = turned_boxes(box[selected], size, orientation[image])
    return replace(objects, box=box)


def refuse_undecided(turned: TurnedImages, annotations: Annotations) -> None:
    """Refuses annotations with turned images whose boxes may refer to either picture.

    Args:
        turned: The turned images of the annotations.
        annotations: The annotations.

    Raises:
        DataError: there are such images; it has the sizes of the first.
    """
    undecided = turned.undecided()
    if not undecided:
        return
    files = annotations.images.file.tolist()
    row = int(turned.row[undecided[0]])
    raise DataError(
        f"{len(undecided)} of {len(files)} images are turned by a quarter by their EXIF "
        "orientation, and nothing tells which picture their boxes were drawn on: "
        f"{turned.question(files, undecided[0])}. {ADVICE}",
        file=annotations.root / annotations.file(row),
        field="orientation",
    )


def _stored_size(displayed: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    """Width and height of stored pictures, shape (N, 2)."""
    is_sideways = orientation >= SIDEWAYS
    return np.where(is_sideways[:, None], displayed[:, ::-1], displayed)


def _limit(size: np.ndarray) -> np.ndarray:
    """Largest x and y of boxes that fit into pictures of given sizes, shape (N, 2)."""
    return size + np.maximum(1.0, DRAWN_BEYOND * size)


def _size(size: np.ndarray) -> str:
    return f"{size[0]:g}×{size[1]:g}"
