"""Files of the datasets on disk: missing ones, checks before `ingest`, and folders of images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from farther.datasets.base import Annotations, DataWarning, Expected, Reader, below
from farther.datasets.orientation import TurnedImages, refuse_undecided
from farther.datasets.readers import create
from farther.datasets.tidying import corrected
from farther.errors import OPENED_BYTES, DataError, ParameterError, shorten
from farther.images.orientation import UPRIGHT
from farther.images.plan import StreamParams
from farther.images.read import MAX_PIXELS, problem_of, read_header
from farther.tables.folders import entries, find_file

#: Folder, in a dataset's tables, of the images that its files contain: `ingest` writes it once.
EXTRACTED = "extracted-images"

#: Share of boxes between 0 and 1 from which on they are fractions of the image and not pixels.
FRACTIONS = 0.9

#: Largest number of entries of a folder that is opened.
OPENED_FILES = 5_000
#: Number of images of a subset whose files are opened.
SAMPLED_IMAGES = 1_000


@dataclass(frozen=True, slots=True)
class Missing:
    """A file or folder that is absent or empty.

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
        paths = " or ".join(str(path) for path in self.paths)
        return (
            f"{self.dataset}{subsets}: {self.what}\n"
            f"    belongs at   {paths}\n"
            f"    comes from   {self.source}"
        )


def missing(
    datasets: Mapping[str, Mapping[str, Any]], needed: Mapping[str, Collection[str]] | None = None
) -> list[Missing]:
    """Files and folders that the datasets lack.

    Annotations are not opened: `ingest` lists absent images.

    Args:
        datasets: Section `datasets` of params.yaml.
        needed: Subsets of each dataset to look for; all of them when None.

    Raises:
        ParameterError: a format or a parameter is unknown.
    """
    all_missing: list[Missing] = []
    for name, params in datasets.items():
        reader = create(**params)
        subsets = sorted((needed or {}).get(name, ()))
        try:
            subsets = subsets or reader.subsets()
        except DataError as error:
            all_missing.append(Missing(name, (), error.problem, (reader.root,), reader.SOURCE))
            continue
        all_missing += _missing_of(name, reader, subsets)
    return all_missing


@dataclass(frozen=True)
class Checked:
    """Findings about a subset before `ingest` reads it.

    Args:
        problem: The error that `ingest` would raise; "" for none, or where the annotations are
            large.
        annotations: The images and objects; None where the annotations are large, or contain the
            images.
        looked_at: Number of image files that were opened.
        not_images: Reason by file that is not an image: `ingest` drops these.
        broken: Reason by file that has the header of an image and cannot be decoded: no detector
            can use these.
    """

    problem: str = ""
    annotations: Annotations | None = None
    looked_at: int = 0
    not_images: dict[Path, str] = field(default_factory=dict)
    broken: dict[Path, str] = field(default_factory=dict)


def check_subset(reader: Reader, subset: str, max_pixels: int = MAX_PIXELS) -> Checked:
    """Reads the annotations of a subset where they are small, and opens `SAMPLED_IMAGES` images.

    Args:
        reader: The dataset.
        subset: One of its subsets.
        max_pixels: Images with more are not read by detectors.
    """
    try:
        if _is_large(_expected_paths(reader, subset)):
            return Checked()
        annotations = corrected(reader.read(subset))
        refuse_fractions(annotations)
        refuse_many(annotations, annotations.warnings, reader.max_warnings)
    except DataError as error:
        return Checked(str(error))
    if annotations.embedded is not None:
        return Checked()

    count = len(annotations.images)
    if not count:
        return Checked(f"{subset} has no image")
    try:
        refuse_missing_folders(annotations)
    except DataError as error:
        return Checked(str(error))
    paths = [annotations.image_path(row) for row in range(count)]
    present = [path for path in paths if path.is_file()]
    absent_count = count - len(present)
    if absent_count and (reader.missing_images == "error" or not present):
        first = next(path for path in paths if not path.is_file())
        return Checked(
            f"{first}: the file does not exist ({absent_count} of {count} images of {subset})"
        )

    # With more images, those that are not opened may decide what the others do not.
    if reader.orientation == "auto" and count <= SAMPLED_IMAGES:
        try:
            refuse_undecided(turned_images(annotations), annotations)
        except DataError as error:
            return Checked(str(error))
    return _check_files(reader, subset, annotations, present, max_pixels)


def refuse_missing_folders(annotations: Annotations) -> None:
    """Refuses annotated images in a folder that does not exist or is empty.

    Such a folder was not mounted or not unpacked, so its images are not missing one by one.

    Raises:
        DataError: there is one; names the topmost folder that does not exist.
    """
    image_root = annotations.image_root or annotations.root
    count_by_folder = Counter[str]()
    for file in annotations.images.file.tolist():
        folder_name, _, _ = file.rpartition("/")
        count_by_folder[folder_name] += 1
    for folder_name, count in count_by_folder.items():
        folder = image_root / folder_name
        problem = ""
        if not folder.is_dir():
            folder = _topmost_missing(folder)
            problem = "the folder does not exist"
        elif not _has_entries(folder):
            problem = "the folder is empty"
        if problem:
            raise DataError(
                f"{problem}, but {count} of {len(annotations.images)} annotated images are in it. "
                "Mount or unpack it, or correct parameter 'root' of the dataset; "
                "missing_images: drop leaves out single files only. If the whole folder is to be "
                "left out, remove its images from the annotations",
                file=folder,
            )


def _topmost_missing(folder: Path) -> Path:
    """The topmost of a folder and those around it that does not exist."""
    while not folder.parent.is_dir():
        folder = folder.parent
    return folder


def _has_entries(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(True for _ in entries)


def _check_files(
    reader: Reader, subset: str, annotations: Annotations, files: Sequence[Path], max_pixels: int
) -> Checked:
    """Decodes `SAMPLED_IMAGES` of the image files of a subset, evenly spaced."""
    not_images: dict[Path, str] = {}
    broken: dict[Path, str] = {}
    sample = [files[row] for row in _sampled_rows(len(files))]
    for path in sample:
        reason, is_image = problem_of(path, max_pixels, StreamParams.advice_on_size())
        if not is_image:
            not_images[path] = reason
        elif reason:
            broken[path] = reason

    problem = ""
    if len(not_images) > reader.max_warnings * len(sample):
        path, reason = next(iter(not_images.items()))
        problem = (
            f"{path}: {reason} ({len(not_images)} of {len(sample)} images of {subset}, "
            f"more than max_warnings = {reader.max_warnings:g} allows)"
        )
    return Checked(problem, annotations, len(sample), not_images, broken)


def _is_large(paths: Sequence[Path]) -> bool:
    """True where files have too many bytes, or a folder too many entries, to be opened."""
    file_bytes = sum(path.stat().st_size for path in paths if path.is_file())
    if file_bytes > OPENED_BYTES:
        return True
    return any(_has_many_entries(path) for path in paths if path.is_dir())


def _has_many_entries(folder: Path) -> bool:
    """True for a folder with more than `OPENED_FILES` entries; no further ones are listed."""
    with os.scandir(folder) as iterator:
        first_entries = list(islice(iterator, OPENED_FILES + 1))
    return len(first_entries) > OPENED_FILES


def _sampled_rows(count: int) -> list[int]:
    """At most `SAMPLED_IMAGES` of the rows 0 to count - 1, evenly spaced."""
    rows = np.linspace(0, count - 1, SAMPLED_IMAGES).astype(int)
    return list(np.unique(rows).tolist())


def turned_images(annotations: Annotations) -> TurnedImages:
    """The turned images among `SAMPLED_IMAGES` of a subset, evenly spaced.

    Images that cannot be opened are left out.
    """
    count = len(annotations.images)
    displayed = np.ones((count, 2), dtype=np.int64)
    orientation = np.full(count, UPRIGHT)
    if annotations.embedded is None and len(annotations.objects):
        for row in _sampled_rows(count):
            try:
                width, height, exif_orientation = read_header(annotations.image_path(row))
            except Exception:
                # Decoders raise nearly anything for damaged files; `ingest` lists such images.
                continue
            displayed[row] = width, height
            orientation[row] = exif_orientation
    return TurnedImages.from_annotations(annotations, displayed, orientation)


def refuse_fractions(annotations: Annotations) -> None:
    """Refuses boxes in pixels that are fractions of the image, as those of YOLO's label files are.

    Where a format's edges are those of the first or last pixel, the reader has moved them by one.
    """
    box = annotations.objects.box
    if annotations.objects.unit != "pixel" or not len(box):
        return
    is_fraction = ((box >= -1) & (box <= 2)).all(axis=1)
    if is_fraction.mean() < FRACTIONS:
        return
    first = int(is_fraction.argmax())
    edges = ", ".join(f"{edge:g}" for edge in box[first])
    raise annotations.error(
        first,
        f"{is_fraction.sum()} of {len(box)} boxes lie in the first two pixels (edges {edges}): "
        "fractions of the image, but this format has pixels. Multiply them by the image's width "
        "and height",
    )


def refuse_many(annotations: Annotations, warnings: Sequence[DataWarning], limit: float) -> None:
    """Refuses annotations with warnings about too many of the images, or of the objects.

    Args:
        annotations: Annotations of a subset; their own warnings are about dropped objects.
        warnings: All warnings about the subset.
        limit: Largest share of the images, and of the objects, with a warning.

    Raises:
        DataError: the share is larger; describes the first warning.
    """
    dropped_count = sum(warning.about == "object" for warning in annotations.warnings)
    totals = {
        "image": len(annotations.images),
        "object": len(annotations.objects) + dropped_count,
    }
    for about, total in totals.items():
        selected = [warning for warning in warnings if warning.about == about]
        if len(selected) <= limit * total:
            continue
        counts = Counter(warning.kind for warning in selected).most_common()
        kinds = ", ".join(f"{count} × {kind}" for kind, count in counts)
        plural = "" if len(selected) == 1 else "s"
        first = selected[0]
        raise DataError(
            f"{len(selected)} warning{plural} about {total} {about}s, more than max_warnings: "
            f"{limit:g} allows ({kinds}). The first: {first.kind}: {first.found}. "
            "Correct them, or raise max_warnings",
            file=annotations.root / first.file,
            row=first.row,
            field=first.field,
        )


def _missing_of(name: str, reader: Reader, subsets: Sequence[str]) -> list[Missing]:
    """Files and folders that subsets of a dataset lack, each of them once.

    A damaged description of the dataset counts as missing.
    """
    subsets_by_expected: dict[Expected, list[str]] = {}
    try:
        for subset in subsets:
            for expected in reader.expects(subset):
                if not any(_has_content(path) for path in _paths(reader, expected)):
                    subsets_by_expected.setdefault(expected, []).append(subset)
    except DataError as error:
        file = Path(error.file or reader.root)
        what = f"an intact file ({error.problem})"
        return [Missing(name, tuple(subsets), what, (file,), reader.SOURCE)]

    missing_paths = []
    for expected, lacking_subsets in subsets_by_expected.items():
        source = f"{reader.SOURCE}: {expected.source}"
        paths = _paths(reader, expected)
        missing_paths.append(Missing(name, tuple(lacking_subsets), expected.what, paths, source))
    return missing_paths


def _expected_paths(reader: Reader, subset: str) -> list[Path]:
    """All paths that a subset may be read from."""
    paths: list[Path] = []
    for expected in reader.expects(subset):
        paths += _paths(reader, expected)
    return paths


def _paths(reader: Reader, expected: Expected) -> tuple[Path, ...]:
    return tuple(find_file(below(reader.root, path)) for path in expected.paths)


def _has_content(path: Path) -> bool:
    """True for a file that is not empty, and for a folder with an entry."""
    if path.is_dir():
        return bool(entries(path))
    return path.is_file() and path.stat().st_size > 0


def image_roots(
    datasets: Mapping[str, Mapping[str, Any]], tables: str | Path, project: str | Path = "."
) -> dict[str, Path]:
    """Folder of the image files of each dataset.

    It is the dataset's root, or the folder of the images that `ingest` extracted from the dataset's
    files.

    Args:
        datasets: Section `datasets` of params.yaml.
        tables: Folder of the ingested tables, `artifacts/tables`.
        project: Folder that relative roots start from.

    Raises:
        ParameterError: a dataset has no root.
    """
    roots = {}
    for name, params in datasets.items():
        root = (params or {}).get("root")
        if not isinstance(root, (str, Path)):
            raise ParameterError(
                f"datasets.{name}: parameter 'root' must be a folder, found {shorten(root)}"
            )
        extracted = Path(tables) / name / EXTRACTED
        roots[name] = extracted if extracted.is_dir() else Path(project) / root
    return roots
