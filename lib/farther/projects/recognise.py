"""The format of a dataset: each format is asked whether it recognises a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

from farther import datasets
from farther.datasets.base import FORMATS, WHOLE_IMAGE, Annotations, DataWarning, Reader
from farther.datasets.image_folder import recognise_classes
from farther.datasets.orientation import TurnedImages
from farther.datasets.presence import turned_images
from farther.datasets.recognition import Evidence, Recognised
from farther.datasets.tidying import absence_warnings, corrected
from farther.datasets.yolo import UNCLEAR_FOLDERS
from farther.errors import DataError, ParameterError
from farther.naming.extras import AbsentPackagesError
from farther.projects.exports import refuse_export
from farther.tables.endings import is_image, is_unread_image, why_unread
from farther.tables.files import is_present
from farther.tables.folders import entries, files_below


@dataclass(frozen=True)
class Choices:
    """Formats and adapters that a user names, for files that fit several.

    Args:
        formats: Names of dataset formats.
        adapters: Names of detectors' adapters.
    """

    formats: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()

    def refuse_unused(self, datasets: Iterable[Dataset], adapters: Iterable[str]) -> None:
        """Refuses a name that no file was recognised by.

        Args:
            datasets: The datasets.
            adapters: The adapters of the detectors.

        Raises:
            ParameterError: there is one.
        """
        used_formats = {dataset.entry["format"] for dataset in datasets}
        for name in self.formats:
            if name not in used_formats:
                raise ParameterError(f"--format {name}: no folder is in this format")
        used_adapters = set(adapters)
        for name in self.adapters:
            if name not in used_adapters:
                raise ParameterError(f"--adapter {name}: it reads none of the detectors")


NO_CHOICES = Choices()


@dataclass(frozen=True)
class Dataset:
    """A dataset as it was recognised.

    Args:
        entry: Its entry in section `datasets`.
        subsets: The subsets that it has, without those in `repeats`.
        categories: Names of the classes of these subsets, in its order.
        numbers: Number of a class in its files → its name, where classes have numbers.
        repeats: A subset with exactly the images of another one → that one, such as where a folder
            has annotations in several formats.
        images, unlabelled: Number of images, and of those that nobody annotated.
        counts: Subset → number of its images.
        unlisted: Number of image files that its annotations do not name.
        whole_images: Its objects are labels of whole images.
        notes: Sentences about its annotations that a user should know, such as files without a
            partner.
        questions: Sentences about what its files do not decide, with what was assumed.
        shared: Number of images that two of its subsets have in common, without `repeats`.
        renamed: Name of a file or folder → the subset that it is taken for, where the two differ.
    """

    entry: dict[str, Any]
    subsets: list[str]
    categories: list[str]
    numbers: dict[int, str] = field(default_factory=dict)
    repeats: dict[str, str] = field(default_factory=dict)
    images: int = 0
    unlabelled: int = 0
    unlisted: int = 0
    whole_images: bool = False
    notes: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    shared: dict[tuple[str, str], int] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def overlaps(self, subset: str, others: Sequence[str]) -> int:
        """Number of images that a subset has in common with others, at most."""
        counts = [
            count
            for (first, second), count in self.shared.items()
            if (first == subset and second in others) or (second == subset and first in others)
        ]
        return max(counts, default=0)


def recognise(root: Path, formats: Collection[str] = ()) -> Dataset:
    """The dataset in a folder, by the first format that recognises it.

    Formats with more certain evidence are asked first; see `Reader.EVIDENCE`.

    Args:
        root: The folder.
        formats: Names of formats that are taken where they recognise it, even if others do, too.

    Raises:
        DataError: no format does, its annotations cannot be read, or they are to be converted
            first; see `farther.projects.exports`.
        ParameterError: a format has no such name.
    """
    if not root.is_dir():
        raise DataError("the folder does not exist", file=root)
    fitting = _fitting(root, formats)
    name = fitting.format
    recognised = fitting.recognised
    dataset = describe({"format": name, **recognised.params, "root": str(root)})
    if not dataset.images:
        problem = f"no image: format {name} was recognised, but its images are not here"
        raise DataError(problem, file=root)
    questions = [*dataset.questions, *recognised.questions]
    if fitting.others:
        others = " and ".join(fitting.others)
        questions.append(
            f"its files are of the formats {name} and {others}: {name} is read "
            f"(--format {fitting.others[0]} chooses otherwise)"
        )
    dataset = replace(
        dataset,
        notes=(*dataset.notes, *recognised.notes),
        questions=tuple(questions),
        renamed=recognised.keys.renamed,
    )
    return _grouped(dataset, recognised.keys.groups)


@dataclass(frozen=True)
class _Fitting:
    """The format that a folder is read in, and other formats that recognise it."""

    format: str
    recognised: Recognised
    others: list[str] = field(default_factory=list)


def _fitting(root: Path, formats: Collection[str]) -> _Fitting:
    """The format of a folder; see `recognise`."""
    for name in formats:
        recognised = FORMATS.get(name).recognises(root)
        if recognised is not None:
            return _Fitting(name, recognised)

    readers_by_evidence = _readers_by_evidence()
    of_annotations = [*readers_by_evidence["description"], *readers_by_evidence["annotations"]]
    fitting = _first_fitting(root, of_annotations)
    if fitting is not None:
        return fitting
    refuse_export(root)
    for evidence in ("folders", "images"):
        fitting = _first_fitting(root, readers_by_evidence[evidence])
        if fitting is not None:
            return fitting

    for file in files_below(root):
        if is_unread_image(file):
            raise DataError(why_unread(file), file=file)
    formats = (
        "data.yaml (YOLO), JSON with images, annotations and categories (COCO), XML (VOC), "
        "one folder per class, images"
    )
    problem = f"unknown format; looked for {formats}. `farther list datasets` lists more formats"
    raise DataError(problem, file=root)


def _readers_by_evidence() -> dict[str, list[type[Reader]]]:
    """The readers that recognise folders, by their evidence; those of one kind by their names."""
    readers: dict[str, list[type[Reader]]] = {evidence: [] for evidence in get_args(Evidence)}
    for name in FORMATS.defining("recognises"):
        try:
            reader = FORMATS.get(name)
        except AbsentPackagesError:
            continue
        readers[reader.EVIDENCE].append(reader)
    return readers


def _first_fitting(root: Path, readers: Sequence[type[Reader]]) -> _Fitting | None:
    """The first reader that recognises a folder, and the others that do; None for no reader.

    Raises:
        DataError: a reader before the first one recognises a damaged file.
    """
    first: _Fitting | None = None
    for reader in readers:
        if first is None:
            recognised = reader.recognises(root)
            if recognised is not None:
                first = _Fitting(reader.name, recognised)
            continue
        try:
            is_fitting = reader.recognises(root) is not None
        except DataError:
            is_fitting = False
        if is_fitting:
            first.others.append(reader.name)
    return first


def _grouped(dataset: Dataset, groups: Mapping[str, Sequence[str]]) -> Dataset:
    """A dataset whose files of one subset are one subset, unless they have images in common.

    Args:
        dataset: The dataset with a subset for each file.
        groups: See `SubsetKeys`.
    """
    for subset, keys in groups.items():
        parts = [key for key in keys if key in dataset.subsets]
        if len(parts) == 1:
            dataset = _with_renamed_subset(dataset, parts[0], subset)
        elif parts:
            dataset = combined(dataset, subset, parts)
    return dataset


def _with_renamed_subset(dataset: Dataset, subset: str, new_name: str) -> Dataset:
    """A dataset with another name for a subset."""
    entry = dict(dataset.entry)
    for parameter in ("layout", "folders", "image_sets"):
        if parameter in entry:
            values = entry[parameter]
            entry[parameter] = {
                new_name if name == subset else name: value for name, value in values.items()
            }
    shared = {}
    for (first, second), count in dataset.shared.items():
        pair = (new_name if first == subset else first, new_name if second == subset else second)
        shared[pair] = count
    repeats = {}
    for repeated, first in dataset.repeats.items():
        repeats[repeated] = new_name if first == subset else first
    subsets = [new_name if name == subset else name for name in dataset.subsets]
    return replace(dataset, entry=entry, subsets=subsets, shared=shared, repeats=repeats)


def combined(dataset: Dataset, name: str, parts: Sequence[str]) -> Dataset:
    """A dataset in which several subsets are one, those that have no image in common.

    Args:
        dataset: The dataset.
        name: Name of the new subset.
        parts: The subsets.
    """
    joined: list[str] = []
    questions = list(dataset.questions)
    for part in parts:
        count = dataset.overlaps(part, joined)
        if count:
            questions.append(
                f"{part} has {count} images that {' and '.join(joined)} have, too: it is not used"
            )
        else:
            joined.append(part)
    entry = dict(dataset.entry)
    entry["combined"] = {**entry.get("combined", {}), name: joined}
    subsets = [subset for subset in dataset.subsets if subset not in joined]
    counts = {subset: dataset.counts.get(subset, 0) for subset in subsets}
    counts[name] = sum(dataset.counts.get(part, 0) for part in joined)
    return replace(
        dataset,
        entry=entry,
        subsets=[name, *subsets],
        questions=tuple(questions),
        counts=counts,
    )


def describe(entry: dict[str, Any]) -> Dataset:
    """The dataset of an entry in section `datasets`, whose annotations are read.

    Where images are turned and it is not known which picture their boxes were drawn on, the entry
    gets an `orientation`.
    """
    reader = datasets.create(**entry)
    warnings = absence_warnings(reader)
    images = 0
    unlabelled = 0
    categories: dict[str, None] = {}
    subset_by_files: dict[frozenset[str], str] = {}
    files_by_subset: dict[str, frozenset[str]] = {}
    repeats: dict[str, str] = {}
    are_whole_images: list[bool] = []
    turned_by_subset: list[TurnedImages] = []
    questions: list[str] = []
    for subset in reader.subsets():
        annotations = corrected(reader.read(subset))
        images += len(annotations.images)
        unlabelled += len(annotations.unlabelled)
        warnings += annotations.warnings
        files = annotations.images.file.tolist()
        labels_images = _labels_whole_images(annotations)
        are_whole_images.append(labels_images)
        if reader.orientation == "auto" and not labels_images:
            turned = turned_images(annotations)
            turned_by_subset.append(turned)
            questions += [turned.question(files, index) for index in turned.undecided()[:1]]
        first_subset = subset_by_files.setdefault(frozenset(files), subset)
        if first_subset != subset and _has_files(annotations):
            repeats[subset] = first_subset
        else:
            files_by_subset[subset] = frozenset(files)
            categories |= dict.fromkeys(annotations.categories)

    unclear = [warning for warning in warnings if warning.kind == UNCLEAR_FOLDERS]
    notes = _notes([warning for warning in warnings if warning.kind != UNCLEAR_FOLDERS])
    orientation = _orientation(turned_by_subset, questions)
    if orientation is not None:
        notes.insert(0, orientation.note)
    unlisted = 0
    if reader.COUNTS_UNLISTED:
        unlisted = _unlisted(Path(entry["root"]), frozenset().union(*subset_by_files))
    numbers = reader.class_numbers(list(categories))
    if orientation is not None:
        entry = {**entry, "orientation": orientation.value}
    return Dataset(
        entry,
        list(files_by_subset),
        list(categories),
        numbers,
        repeats,
        images,
        unlabelled,
        unlisted,
        whole_images=bool(images) and all(are_whole_images),
        notes=tuple(notes),
        questions=tuple(_notes(unclear)),
        shared=_shared(files_by_subset),
        counts={subset: len(files) for subset, files in files_by_subset.items()},
    )


def _has_files(annotations: Annotations) -> bool:
    """Whether an image of a subset is a file that exists."""
    if annotations.embedded is not None:
        return False
    return any(is_present(annotations.root / file) for file in annotations.images.file)


def _shared(files_by_subset: Mapping[str, frozenset[str]]) -> dict[tuple[str, str], int]:
    """Number of images that two subsets have in common, where they have any."""
    subsets_by_file: dict[str, list[str]] = {}
    for subset, files in files_by_subset.items():
        for file in files:
            subsets_by_file.setdefault(file, []).append(subset)
    counts = Counter[tuple[str, str]]()
    for subsets in subsets_by_file.values():
        counts.update(combinations(subsets, 2))
    return dict(counts)


def _labels_whole_images(annotations: Annotations) -> bool:
    """Whether all objects of a subset are labels of whole images."""
    objects = annotations.objects
    return objects.unit == "image" and bool((objects.box == WHOLE_IMAGE).all())


def _notes(warnings: Sequence[DataWarning]) -> list[str]:
    """One sentence for each kind of warning about annotations, with its first example."""
    warnings_by_kind: dict[str, list[DataWarning]] = {}
    for warning in warnings:
        warnings_by_kind.setdefault(warning.kind, []).append(warning)
    notes: list[str] = []
    for kind, of_kind in warnings_by_kind.items():
        count = f" ({len(of_kind)})" if len(of_kind) > 1 else ""
        notes.append(f"{kind}{count}: {of_kind[0].found}; {of_kind[0].action}")
    return notes


@dataclass(frozen=True)
class _Orientation:
    """The value of the parameter `orientation`, and its reason."""

    value: str
    note: str


def _orientation(subsets: Sequence[TurnedImages], questions: Sequence[str]) -> _Orientation | None:
    """The parameter `orientation`; None where `ingest` decides it for each subset.

    Args:
        subsets: The turned images of each subset.
        questions: What is not known about the first undecided image of a subset.
    """
    undecided = sum(len(turned.undecided()) for turned in subsets)
    if not undecided:
        return None
    count = f"{undecided} images are turned by a quarter by their EXIF orientation"
    joined = TurnedImages.joined(subsets)
    values = set(joined.decided()) - {"auto"}
    if not joined.undecided() and len(values) == 1:
        (value,) = values
        note = f"{count}; boxes of other images fit the {value} picture only: orientation: {value}"
        return _Orientation(value, note)
    note = (
        f"{count}, and nothing tells which picture their boxes were drawn on ({questions[0]}): "
        "orientation: displayed is assumed, as browsers and trainers show them; "
        "look at some, and write stored if their boxes are wrong"
    )
    return _Orientation("displayed", note)


def _unlisted(root: Path, annotated: frozenset[str]) -> int:
    """Number of image files in the folders of annotated images that are not annotated."""
    count = 0
    for folder in {file.rpartition("/")[0] for file in annotated}:
        prefix = f"{folder}/" if folder else ""
        for entry in entries(root / folder):
            is_hidden = entry.name.startswith(".")
            if is_image(entry.name) and not is_hidden and prefix + entry.name not in annotated:
                count += 1
    return count


def class_folders(root: Path) -> Dataset | None:
    """The dataset of a folder with one folder of images per class; see `recognise_classes`."""
    recognised = recognise_classes(root)
    if recognised is None:
        return None
    return describe({"format": "image_folder", **recognised.params, "root": str(root)})
