"""Files of the datasets on disk: folders of images, and what is missing and where to get it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from farther.datasets.base import Annotations, DataWarning, Expected, Reader, below, create
from farther.datasets.orientation import TurnedImages, refuse_undecided
from farther.datasets.tidying import tidied
from farther.errors import OPENED_BYTES, DataError, ParameterError, shorten
from farther.images.orientation import UPRIGHT
from farther.images.read import problem_of, read_header

#: Folder, in a dataset's tables, of the images that its files held: `ingest` writes it, once.
EXTRACTED = "extracted-images"


#: Share of boxes between 0 and 1 from which on they are fractions of the image and not pixels.
FRACTIONS = 0.9

#: Folders of up to so many files are opened.
OPENED_FILES = 5_000
#: Images of a subset whose files are looked at, evenly chosen.
LOOKED_AT = 1_000


@dataclass(frozen=True, slots=True)
class Missing:
    """A file or folder that is not there, or is empty.

    Args:
        dataset: Name of the dataset.
        subsets: The subsets that are read from it; none where no subset is known.
        what: Its content.
        paths: Alternative paths; one of them is enough.
        source: Its name on the dataset's home page.
    """

    dataset: str
    subsets: tuple[str, ...]
    what: str
    paths: tuple[Path, ...]
    source: str

    def __str__(self) -> str:
        subsets = f" ({', '.join(self.subsets)})" if self.subsets else ""
        places = " or ".join(map(str, self.paths))
        return f"{self.dataset}{subsets}: {self.what}\n    belongs at   {places}\n    comes from   {self.source}"


def missing(
    datasets: Mapping[str, Mapping[str, Any]], needed: Mapping[str, Collection[str]] | None = None
) -> list[Missing]:
    """Files and folders that the datasets lack. Annotations are not opened: `ingest` lists absent images.

    Args:
        datasets: Section `datasets` of params.yaml.
        needed: Subsets of each dataset to look for; all of them when None.

    Raises:
        ParameterError: a format or a parameter is unknown.
    """
    found: list[Missing] = []
    for name, params in datasets.items():
        reader = create(**params)
        try:
            subsets = sorted((needed or {}).get(name, ())) or reader.subsets()
        except DataError as error:
            found.append(Missing(name, (), error.problem, (reader.root,), reader.SOURCE))
        else:
            found += _lacking(name, reader, subsets)
    return found


@dataclass(frozen=True)
class Checked:
    """Findings about a subset before `ingest` reads it.

    Args:
        problem: What `ingest` would refuse; "" for nothing, or where the annotations are large.
        annotations: The images and objects; None where the annotations are large, or hold the
            images.
        looked_at: Number of image files that were looked at.
        not_images: Reason by file that is not an image: `ingest` drops these.
        broken: Reason by file that has the header of an image and cannot be decoded: no detector
            can use these.
    """

    problem: str = ""
    annotations: Annotations | None = None
    looked_at: int = 0
    not_images: dict[Path, str] = field(default_factory=dict)
    broken: dict[Path, str] = field(default_factory=dict)


def check_subset(reader: Reader, subset: str) -> Checked:
    """Reads the annotations of a subset where they are small, and looks at `LOOKED_AT` of its images.

    Args:
        reader: The dataset.
        subset: One of its subsets.
    """
    try:
        paths = [path for expected in reader.expects(subset) for path in _paths(reader, expected)]
    except DataError as error:
        return Checked(str(error))
    files = [path.stat().st_size for path in paths if path.is_file()]
    held = [
        sum(1 for _ in islice(os.scandir(path), OPENED_FILES + 1))
        for path in paths
        if path.is_dir()
    ]
    if sum(files) > OPENED_BYTES or max(held, default=0) > OPENED_FILES:
        return Checked()
    try:
        annotations = tidied(reader.read(subset))
        refuse_fractions(annotations)
        refuse_many(annotations, annotations.warnings, reader.max_warnings)
    except DataError as error:
        return Checked(str(error))
    if annotations.embedded is not None:
        return Checked()
    count = len(annotations.images)
    if not count:
        return Checked(f"{subset} has no image")
    paths = [annotations.image_path(row) for row in range(count)]
    absent = [path for path in paths if not path.is_file()]
    if absent and (reader.missing_images == "error" or len(absent) == count):
        return Checked(
            f"{absent[0]}: the file does not exist ({len(absent)} of {count} images of {subset})"
        )
    if (
        reader.orientation == "auto" and count <= LOOKED_AT
    ):  # else others may prove what these do not
        try:
            refuse_undecided(turned_images(annotations), annotations)
        except DataError as error:
            return Checked(str(error))
    there = [path for path in paths if path.is_file()]
    chosen = [
        there[row] for row in np.unique(np.linspace(0, len(there) - 1, LOOKED_AT).astype(int))
    ]
    found = {path: problem_of(path) for path in chosen}
    not_images = {path: reason for path, (reason, is_image) in found.items() if not is_image}
    broken = {path: reason for path, (reason, is_image) in found.items() if is_image and reason}
    problem = ""
    if len(not_images) > reader.max_warnings * len(chosen):
        path, reason = next(iter(not_images.items()))
        limit = f"more than max_warnings = {reader.max_warnings:g} allows"
        problem = (
            f"{path}: {reason} ({len(not_images)} of {len(chosen)} images of {subset}, {limit})"
        )
    return Checked(problem, annotations, len(chosen), not_images, broken)


def turned_images(annotations: Annotations) -> TurnedImages:
    """The turned images among `LOOKED_AT` of a subset, evenly chosen; those that cannot be opened are left out."""
    count = len(annotations.images)
    displayed = np.ones((count, 2), dtype=np.int64)
    orientation = np.full(count, UPRIGHT)
    if annotations.embedded is None and len(annotations.objects):
        for row in np.unique(np.linspace(0, count - 1, LOOKED_AT).astype(int)).tolist():
            try:
                width, height, orientation[row] = read_header(annotations.image_path(row))
            except (
                Exception
            ):  # decoders meet damage with nearly anything: `ingest` lists such images
                continue
            displayed[row] = width, height
    return TurnedImages.of(annotations, displayed, orientation)


def refuse_fractions(annotations: Annotations) -> None:
    """Refuses boxes in pixels that are fractions of the image, as those of YOLO's label files are.

    Where a format's edges are those of the first or last pixel, the reader has moved them by one.
    """
    box = annotations.objects.box
    within = ((box >= -1) & (box <= 2)).all(axis=1)
    if annotations.objects.unit == "pixel" and len(box) and within.mean() >= FRACTIONS:
        edges = ", ".join(f"{edge:g}" for edge in box[within.argmax()])
        problem = f"{within.sum()} of {len(box)} boxes lie in the first two pixels (edges {edges}): fractions of the image"
        problem += ", but this format has pixels. Multiply them by the image's width and height"
        raise annotations.error(int(within.argmax()), problem)


def refuse_many(annotations: Annotations, warnings: Sequence[DataWarning], limit: float) -> None:
    """Refuses annotations of which a larger share than `limit` of the images, or of the objects, has a warning."""
    by_reader = sum(
        warning.about == "object" for warning in annotations.warnings
    )  # of objects that it dropped
    totals = {"image": len(annotations.images), "object": len(annotations.objects) + by_reader}
    for about, total in totals.items():
        found = [warning for warning in warnings if warning.about == about]
        if len(found) > limit * total:
            counts = Counter(warning.kind for warning in found).most_common()
            kinds = ", ".join(f"{count} × {kind}" for kind, count in counts)
            first = found[0]
            number = f"{len(found)} warning{'' if len(found) == 1 else 's'} about {total} {about}s"
            problem = f"{number}, more than max_warnings: {limit:g} allows ({kinds}). "
            problem += (
                f"The first: {first.kind}: {first.found}. Correct them, or raise max_warnings"
            )
            raise DataError(
                problem, file=annotations.root / first.file, row=first.row, field=first.field
            )


def _lacking(name: str, reader: Reader, subsets: Sequence[str]) -> list[Missing]:
    """Files and folders that the subsets lack, each once; a damaged description of the dataset counts as missing."""
    lacking: dict[Expected, list[str]] = {}
    try:
        for subset in subsets:
            for expected in reader.expects(subset):
                if not any(_holds_something(path) for path in _paths(reader, expected)):
                    lacking.setdefault(expected, []).append(subset)
    except DataError as error:
        file = Path(error.file or reader.root)
        return [
            Missing(
                name, tuple(subsets), f"an intact file ({error.problem})", (file,), reader.SOURCE
            )
        ]
    return [
        Missing(
            name,
            tuple(used),
            expected.what,
            _paths(reader, expected),
            f"{reader.SOURCE}: {expected.source}",
        )
        for expected, used in lacking.items()
    ]


def _paths(reader: Reader, expected: Expected) -> tuple[Path, ...]:
    return tuple(below(reader.root, path) for path in expected.paths)


def _holds_something(path: Path) -> bool:
    if path.is_dir():
        return any(path.iterdir())
    return path.is_file() and path.stat().st_size > 0


def image_roots(
    datasets: Mapping[str, Mapping[str, Any]], tables: str | Path, project: str | Path = "."
) -> dict[str, Path]:
    """Folder of the image files of each dataset.

    The dataset's root, or, where `ingest` extracted the images from the dataset's files, the folder
    of those.

    Args:
        datasets: Section `datasets` of params.yaml.
        tables: Folder of the ingested tables, `artifacts/tables`.
        project: Folder that relative roots start from.

    Raises:
        ParameterError: a dataset has no root.
    """
    roots = {}
    for name, params in datasets.items():
        extracted, root = Path(tables) / name / EXTRACTED, (params or {}).get("root")
        if not isinstance(root, (str, Path)):
            raise ParameterError(
                f"datasets.{name}: parameter 'root' must be a folder, found {shorten(root)}"
            )
        roots[name] = extracted if extracted.is_dir() else Path(project) / root
    return roots
