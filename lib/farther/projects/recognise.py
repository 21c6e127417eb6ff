"""The format of a dataset, recognised from its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any

from farther import datasets
from farther.datasets.annotation_files import (
    COCO_KEYS,
    JsonKeys,
    has_annotation_words,
    is_annotation_by_name,
    json_keys,
    refuse_damaged,
)
from farther.datasets.base import WHOLE_IMAGE, Annotations, DataWarning
from farther.datasets.box_files import describes_boxes
from farther.datasets.file_names import Spellings, canonical_name
from farther.datasets.huggingface_files import is_metadata
from farther.datasets.orientation import TurnedImages
from farther.datasets.presence import turned_images
from farther.datasets.subset_names import (
    is_neutral,
    is_subset_word,
    read_names,
    subset_of_path,
)
from farther.datasets.tidying import absence_warnings, corrected
from farther.datasets.voc import ROOT_TAG as VOC_TAG
from farther.datasets.voc import filename_of
from farther.datasets.yolo import UNCLEAR_FOLDERS
from farther.datasets.yolo_labels import is_label_file
from farther.errors import DataError
from farther.projects.image_folders import (
    FileTree,
    ImageFolder,
    NamedImages,
    choose_folders,
)
from farther.projects.recognise_exports import first_keys, recognise_export, root_tag
from farther.projects.subset_keys import SubsetKeys, subset_keys
from farther.tables.documents import read_yaml
from farther.tables.endings import (
    JSON,
    TABLES,
    TEXT,
    XML,
    has_ending,
    is_image,
    is_unread_image,
    is_video,
    refuse_twins,
    why_unread,
)
from farther.tables.files import is_file, is_present
from farther.tables.folders import files_below, find_file, listed
from farther.tables.json_stream import list_elements

#: Endings of files that annotate the image of their name, besides those that are read or may
#: describe it otherwise.
LABEL_ENDINGS = (*XML, *TABLES, ".mat")
#: Text files that name the classes of YOLO's labels, as LabelImg, Label Studio, Darknet and CVAT
#: write them.
CLASS_LISTS = ("classes.txt", "obj.names", "labels/classes.txt")


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


@dataclass(frozen=True)
class _Layout:
    """The format of a folder, recognised by the names of its files.

    Args:
        entry: The dataset's entry without its root.
        keys: The names of the subsets.
        notes, questions: See `Dataset`.
    """

    entry: dict[str, Any]
    keys: SubsetKeys = field(default_factory=lambda: SubsetKeys([]))
    notes: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()


def recognise(root: Path) -> Dataset:
    """The dataset in a folder.

    YOLO, COCO JSON, VOC-style XML, one folder of images per class, or images without boxes.

    Raises:
        DataError: it is none of these, its annotations cannot be read, or they are to be converted
            first; see `farther.projects.recognise_exports`.
    """
    if not root.is_dir():
        raise DataError("the folder does not exist", file=root)
    layout = _layout(root)
    entry = layout.entry
    dataset = describe({**entry, "root": str(root)})
    if not dataset.images:
        problem = f"no image: format {entry['format']} was recognised, but its images are not here"
        raise DataError(problem, file=root)
    unread = _unread_names(root, entry)
    if unread:
        note = (
            f"{len(unread)} files that are annotations by their names are not read, "
            f"such as {unread[0]}"
        )
        dataset = replace(dataset, notes=(*dataset.notes, note))
    dataset = replace(
        dataset,
        notes=(*dataset.notes, *layout.notes),
        questions=(*dataset.questions, *layout.questions),
        renamed=layout.keys.renamed,
    )
    return _grouped(dataset, layout.keys.groups)


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


def _layout(root: Path) -> _Layout:
    """Format and layout of a folder: the first format that it fits."""
    for candidate in (_yolo, _coco, _export, _voc, _image_folder, _images):
        layout = candidate(root)
        if layout is not None:
            return layout
    formats = (
        "data.yaml (YOLO), JSON with images, annotations and categories (COCO), XML (VOC), "
        "one folder per class, images"
    )
    for file in files_below(root):
        if is_unread_image(file):
            raise DataError(why_unread(file), file=file)
    problem = f"unknown format; looked for {formats}. `farther list datasets` lists more formats"
    raise DataError(problem, file=root)


def _unread_names(root: Path, entry: dict[str, Any]) -> list[str]:
    """JSON files that are annotations by their names and that an entry of COCO files lacks."""
    if entry["format"] != "coco":
        return []
    read_files = {file for file, _ in entry["layout"].values()}
    unread: list[str] = []
    for file in sorted(_json_files(root)):
        name = file.relative_to(root).as_posix()
        if name in read_files:
            continue
        if is_annotation_by_name(root, file) and not _is_results(file):
            unread.append(name)
    return unread


def _json_files(root: Path) -> list[Path]:
    """The JSON files in a folder, at any depth."""
    return [file for file in files_below(root) if has_ending(file, JSON)]


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
    if entry["format"] in ("coco", "yolo", "huggingface"):
        unlisted = _unlisted(Path(entry["root"]), frozenset().union(*subset_by_files))
    numbers = _class_numbers(entry, list(categories))
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


def _class_numbers(entry: dict[str, Any], categories: Sequence[str]) -> dict[int, str]:
    """Number of a class in a dataset's files → its name; {} where classes have no numbers."""
    if entry["format"] == "yolo":
        return dict(enumerate(categories))
    if entry["format"] != "coco" or not entry.get("layout"):
        return {}
    first_file, _ = next(iter(entry["layout"].values()))
    numbers = {}
    for category in list_elements(Path(entry["root"], first_file), "categories"):
        if isinstance(category, dict) and isinstance(category["id"], int):
            numbers[category["id"]] = category["name"]
    return numbers


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
    for folder in {Path(file).parent for file in annotated}:
        for file in listed(root / folder, "*"):
            if is_image(file) and file.relative_to(root).as_posix() not in annotated:
                count += 1
    return count


def _yolo(root: Path) -> _Layout | None:
    """The layout of a folder with names of classes for YOLO's labels, in YAML or a text file."""
    yaml_files = sorted([*listed(root, "*.yaml"), *listed(root, "*.yml")])
    refuse_twins(yaml_files)
    content_by_file: dict[Path, dict[str, Any]] = {}
    for file in yaml_files:
        content = read_yaml(file)
        if isinstance(content, dict) and "names" in content:
            content_by_file[file] = content
    if content_by_file:
        _refuse_several_descriptions(content_by_file)
        names = [file.name for file in content_by_file]
        if "data.yaml" in names:
            return _Layout({"format": "yolo"})
        return _Layout({"format": "yolo", "file": names[0]})
    spellings = Spellings(root)
    for name in CLASS_LISTS:
        file = find_file(root / (spellings.find(name) or name))
        if is_file(file):
            return _Layout({"format": "yolo", "file": file.relative_to(root).as_posix()})
    return None


def _refuse_several_descriptions(content_by_file: Mapping[Path, Mapping[str, Any]]) -> None:
    """Refuses YAML files that describe one folder for YOLO with other classes or images.

    Raises:
        DataError: two differ; names both and the first key that differs.
    """
    first_file, *other_files = content_by_file
    for file in other_files:
        for key in ("names", "train", "val", "test"):
            if _described(content_by_file[file], key) != _described(
                content_by_file[first_file], key
            ):
                raise DataError(
                    f"{first_file.name} describes the same folder with another value: which of the "
                    "two is the dataset's? Move the other one to another folder",
                    file=file,
                    field=key,
                )


def _described(content: Mapping[str, Any], key: str) -> Any:
    """A value of a `data.yaml`; names of classes as a list of texts, if they have that form."""
    value = content.get(key)
    if key != "names":
        return value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [str(name) for name in value]
    return value


def _export(root: Path) -> _Layout | None:
    """The layout of a folder with an export that is read; see `recognise_export`."""
    entry = recognise_export(root)
    if entry is None:
        return None
    return _Layout(entry)


def _coco(root: Path) -> _Layout | None:
    """The layout of a folder with COCO files: one subset per file.

    Files with scores are detections, and are left out unless there are no others.

    Raises:
        DataError: a file of annotations by its name is damaged; or see `_is_coco`.
    """
    content_by_file = {file: json_keys(file) for file in sorted(_json_files(root))}
    coco_files = [file for file, content in content_by_file.items() if _is_coco(file, content)]
    if not coco_files:
        return None
    for file, content in content_by_file.items():
        if is_annotation_by_name(root, file):
            refuse_damaged(file, content)
    annotation_files = [file for file in coco_files if not _is_detections(file)] or coco_files
    names = [file.relative_to(root).as_posix() for file in annotation_files]
    keys = subset_keys([PurePath(name).with_suffix("").parts for name in names])

    annotated: list[NamedImages] = []
    for file, key in zip(annotation_files, keys.keys, strict=True):
        annotated.append(_images_of_coco(root, file, key))
    tree = FileTree(root)
    counts = [tree.count(named.names) for named in annotated]
    folders = choose_folders(annotated, counts)
    layout: dict[str, list[str]] = {}
    for key, name, folder in zip(keys.keys, names, folders, strict=True):
        layout[key] = [name, folder.path]
    return _with_folder_notes({"format": "coco", "layout": layout}, keys, names, annotated, folders)


def _images_of_coco(root: Path, file: Path, subset: str) -> NamedImages:
    """The images that a COCO file names."""
    names: set[str] = set()
    for image in list_elements(file, "images"):
        if isinstance(image, dict) and image.get("file_name"):
            name = canonical_name(str(image["file_name"]))
            parts = [part for part in name.split("/") if part not in ("", ".")]
            names.add("/".join(parts))
    place = file.relative_to(root).with_suffix("")
    folder = place.parent
    usual_folders = (
        (folder / "images").as_posix(),
        folder.as_posix(),
        subset,
        f"images/{subset}",
        "images",
        ".",
    )
    return NamedImages(place, frozenset(names), usual_folders)


def _with_folder_notes(
    entry: dict[str, Any],
    keys: SubsetKeys,
    names: Sequence[str],
    annotated: Sequence[NamedImages],
    folders: Sequence[ImageFolder],
) -> _Layout:
    """The layout of annotations and their folders of images, with what is missing or undecided.

    Args:
        entry: The dataset's entry.
        keys: Names of its subsets.
        names: Path of each file or folder of annotations.
        annotated: Their images.
        folders: The folders of these.
    """
    notes: list[str] = []
    questions: list[str] = []
    for name, named, folder in zip(names, annotated, folders, strict=True):
        total = len(named.names)
        if not total:
            continue
        if not folder.found:
            notes.append(f"no folder has an image that {name} names ({total})")
        elif folder.found < total:
            missing = total - folder.found
            notes.append(f"{missing} of {total} images that {name} names are not in {folder.path}")
        if folder.rivals:
            questions.append(
                f"the images that {name} names are in {folder.path} and in "
                f"{' and '.join(folder.rivals)}: {folder.path} is taken"
            )
    return _Layout(entry, keys, tuple(notes), tuple(questions))


def _is_coco(file: Path, content: JsonKeys) -> bool:
    """True for an object with the lists of a COCO file.

    Raises:
        DataError: it is damaged and begins as one, or has boxes and lacks one of the lists.
    """
    if content.keys & COCO_KEYS:
        refuse_damaged(file, content)
    lacking = COCO_KEYS - content.keys
    if "annotations" in content.keys and lacking and _has_boxes(file):
        problem = f"a COCO file without {' and '.join(sorted(lacking))}, which its boxes need"
        raise DataError(f"{problem}: is the file complete? Export it again", file=file)
    return not lacking


def _has_boxes(file: Path) -> bool:
    """Whether the first element of the list `annotations` has COCO's box; captions have none."""
    try:
        first = next(iter(list_elements(file, "annotations")), None)
    except DataError:
        return False
    return isinstance(first, dict) and "bbox" in first


def _is_detections(file: Path) -> bool:
    """Whether the boxes of a COCO file have scores, as those of a detector do."""
    first = next(iter(list_elements(file, "annotations")), None)
    return isinstance(first, dict) and "score" in first


def _is_results(file: Path) -> bool:
    """Whether a file has detections: a list of COCO results, or a COCO file with scores."""
    try:
        first = next(iter(list_elements(file)), None)
    except DataError:
        return _is_detections(file)
    return isinstance(first, dict) and "score" in first


def _voc(root: Path) -> _Layout | None:
    """The layout of a folder with VOC's image sets, or else one subset per folder of XML files.

    None where no XML file is in VOC's format.
    """
    lists = listed(root, "**/ImageSets/Main/*.txt")
    if lists:
        return _image_sets(root, lists)
    files_by_folder: dict[Path, list[Path]] = {}
    for file in sorted(files_below(root)):
        if has_ending(file, XML):
            files_by_folder.setdefault(file.parent, []).append(file)
    other_files: list[Path] = []
    for folder in list(files_by_folder):
        if not _are_of_voc(files_by_folder[folder]):
            other_files += files_by_folder.pop(folder)
    if not files_by_folder:
        return None

    places = [folder.relative_to(root) for folder in files_by_folder]
    keys = subset_keys([place.parts for place in places])
    tree = FileTree(root)
    known_stems = tree.image_stems()
    annotated: list[NamedImages] = []
    for place, files in zip(places, files_by_folder.values(), strict=True):
        stems = frozenset(_image_stem(file, known_stems) for file in files)
        annotated.append(NamedImages(place, stems, _usual_folders_of_voc(place)))
    counts = [tree.count_stems(named.names) for named in annotated]
    folders = choose_folders(annotated, counts)
    layout: dict[str, list[str]] = {}
    for key, place, found in zip(keys.keys, places, folders, strict=True):
        image_folder = found.path if found.found else place.as_posix()
        layout[key] = [place.as_posix(), image_folder]
    names = [place.as_posix() for place in places]
    entry = {"format": "voc", "layout": layout}
    recognised = _with_folder_notes(entry, keys, names, annotated, folders)
    unread = [file for file in other_files if describes_boxes(file)]
    if unread:
        example = unread[0].relative_to(root)
        note = f"{len(unread)} XML files are not in VOC's format and not read, such as {example}"
        recognised = replace(recognised, notes=(*recognised.notes, note))
    return recognised


def _image_stem(xml: Path, known_stems: Set[str]) -> str:
    """The name, without ending, of the image of an XML file, in `canonical_name` form.

    That of the XML file, else its `filename` if there is such an image.
    """
    stem = canonical_name(xml.stem)
    if stem in known_stems:
        return stem
    named_stem = canonical_name(PureWindowsPath(filename_of(xml)).stem)
    if named_stem in known_stems:
        return named_stem
    return stem


def _are_of_voc(files: Sequence[Path]) -> bool:
    """Whether a folder's XML files are in VOC's format: one of them is, or cannot be read."""
    return any(root_tag(file) in (VOC_TAG, "") for file in files)


def _usual_folders_of_voc(folder: Path) -> tuple[str, ...]:
    """Folders within the root in which the images of a folder of XML files often are."""
    parent = folder.parent
    folders = [folder, folder / "images", folder / "JPEGImages"]
    folders += [parent / "images", parent / "JPEGImages", parent, Path()]
    return tuple(path.as_posix() for path in folders)


def _image_sets(root: Path, lists: Sequence[Path]) -> _Layout:
    """The layout of VOC's image sets: those of one word for a subset, or else all.

    Lists of one name in several development kits are one subset.
    """
    image_sets_by_name: dict[str, list[str]] = {}
    for file in lists:
        kit = file.parents[2].relative_to(root).as_posix()
        prefix = "" if kit == "." else f"{kit}/"
        image_sets_by_name.setdefault(file.stem, []).append(f"{prefix}{file.stem}")
    names = [name for name in image_sets_by_name if is_subset_word(name)]
    names = names or list(image_sets_by_name)
    further_names = [name for name in image_sets_by_name if not _is_of_class(name)]
    assumed = read_names(dict.fromkeys([*names, *further_names])).assumed
    names += [name for name in assumed.values() if name not in names]
    keys = subset_keys([(name,) for name in names])
    image_sets: dict[str, list[str]] = {}
    for key, name in zip(keys.keys, names, strict=True):
        image_sets[key] = image_sets_by_name[name]
    # `dog_train` lists the images of `train` again, with a flag for a class.
    unread = [name for name in image_sets_by_name if name not in names and not _is_of_class(name)]
    notes: tuple[str, ...] = ()
    if unread:
        notes = (f"{len(unread)} lists of ImageSets/Main are not read, such as {unread[0]}",)
    return _Layout({"format": "voc", "image_sets": image_sets}, keys, notes)


def _is_of_class(name: str) -> bool:
    """Whether a list of VOC is that of a class: its name ends in that of a subset."""
    return is_subset_word(name.rpartition("_")[2])


def _images(root: Path) -> _Layout | None:
    """The layout of a folder of images or videos without annotations.

    Raises:
        DataError: see `_refuse_unread`.
    """
    files = sorted(files_below(root))
    if not any(is_image(file) or is_video(file) for file in files):
        return None
    stems = _image_stems(files)
    for file in files:
        if not is_image(file) and not is_video(file):
            _refuse_unread(root, file, stems)
    return _Layout({"format": "images"}, notes=_folder_notes(root, files))


def _folder_notes(root: Path, files: Iterable[Path]) -> tuple[str, ...]:
    """A sentence about the folders of images that are read as one subset; none for a single one."""
    names: dict[str, None] = {}
    for file in files:
        parts = file.relative_to(root).parts
        if len(parts) > 1 and (is_image(file) or is_video(file)):
            names[parts[0]] = None
    if len(names) < 2:
        return ()
    first = next(iter(names))
    return (
        f"the images of its {len(names)} folders are one subset, all. For one subset per folder, "
        f"write folders: {{{first}: {first}, …}} here, and each of them below benchmarks, splits",
    )


def _refuse_unread(root: Path, file: Path, image_stems: Set[str]) -> None:
    """Refuses a file of annotations beside images that was not read: its boxes would be lost.

    Args:
        root: The dataset's folder.
        file: A file in it.
        image_stems: Names of its images without ending, as `canonical_name` gives them.

    Raises:
        DataError: it is one.
    """
    if has_ending(file, TEXT) and is_label_file(file):
        problem = (
            "rows of a class and a box, as in YOLO's label files, but no data.yaml or classes.txt "
            "names classes: write one, or move these files away if their boxes are not wanted"
        )
        raise DataError(problem, file=file)
    if is_metadata(file) and "file_name" not in first_keys(file):
        refuse_damaged(file, JsonKeys(frozenset(), "no key 'file_name' at its start"))
    _refuse_boxes(root, file, image_stems)
    is_label = has_ending(file, LABEL_ENDINGS) and canonical_name(file.stem) in image_stems
    if not is_label and not is_annotation_by_name(root, file):
        return
    if has_ending(file, JSON):
        content = json_keys(file)
        refuse_damaged(file, content)
        if "images" in content.keys:  # a list of images or captions: read, and without boxes
            return
    problem = (
        "a file of annotations by its name, in a form that is not read: convert it to COCO, YOLO "
        "or VOC, or move it away if its boxes are not wanted"
    )
    raise DataError(problem, file=file)


def _refuse_boxes(root: Path, file: Path, image_stems: Set[str]) -> None:
    """Refuses a file of boxes that no reader takes; see `_refuse_unread`."""
    is_label = canonical_name(file.stem) in image_stems or has_annotation_words(root, file)
    if describes_boxes(file, is_label=is_label):
        problem = (
            "boxes in a form that is not read: convert the file to COCO, YOLO or VOC, or move it "
            "away if its boxes are not wanted"
        )
        raise DataError(problem, file=file)


def _image_stems(files: Iterable[Path]) -> set[str]:
    """Names of the images among files without their ending, as `canonical_name` gives them."""
    return {canonical_name(file.stem) for file in files if is_image(file)}


def class_folders(root: Path) -> Dataset | None:
    """The dataset of a folder with one folder of images per class, as in torchvision's ImageFolder.

    None where an image lies beside the folders, or where the folders have the names of subsets. The
    files do not tell classes from folders that photographs were sorted into, so the caller has to.
    """
    paths = _image_paths(root)
    if not paths or min(map(len, paths)) < 2 or _are_no_classes({parts[0] for parts in paths}):
        return None
    _refuse_all_boxes(root)
    return describe({"format": "image_folder", "folders": {"all": "."}, "root": str(root)})


def _image_folder(root: Path) -> _Layout | None:
    """The layout of a folder whose images are in `<subset>/<class>/`, or further down.

    Further down, as in `data/<subset>/<class>/`, only where the folders above the classes name
    subsets.

    Raises:
        DataError: a file beside them has boxes, which would be lost.
    """
    paths = _image_paths(root)
    depth = _depth_of_subsets(paths)
    if not depth:
        return None
    _refuse_all_boxes(root)
    places = sorted({parts[:depth] for parts in paths if len(parts) > depth + 1})
    keys = subset_keys(places)
    folders: dict[str, str] = {}
    for key, place in zip(keys.keys, places, strict=True):
        folders[key] = "/".join(place)
    beside = [parts for parts in paths if parts[:depth] not in places]
    notes: tuple[str, ...] = ()
    if beside:
        notes = (
            f"{len(beside)} images are in no folder of a class and are not read, such as "
            f"{'/'.join(beside[0])}",
        )
    return _Layout({"format": "image_folder", "folders": folders}, keys, notes)


def _depth_of_subsets(paths: Sequence[tuple[str, ...]]) -> int:
    """Number of folders in the path of a subset whose images are in folders of classes; 0 for none.

    Where the folders name subsets, up to half of the images may be beside those of classes.

    Args:
        paths: The paths of the images.
    """
    deepest = max(map(len, paths), default=0) - 2
    for depth in range(1, deepest + 1):
        in_classes = [parts for parts in paths if len(parts) > depth + 1]
        name_subsets = all(subset_of_path(parts[:depth]) for parts in in_classes)
        if not name_subsets and (depth > 1 or len(in_classes) < len(paths)):
            continue
        if 2 * len(in_classes) < len(paths):
            continue
        if not _are_no_classes({parts[depth] for parts in in_classes}):
            return depth
    return 0


def _are_no_classes(folders: Set[str]) -> bool:
    """Whether folders have the names of subsets, or names without a meaning, such as `images`.

    One that is called as a subset is a class beside folders of other names, such as `bus` and
    `train`.
    """
    with_meaning = sorted(name for name in folders if not is_neutral(name))
    return not with_meaning or read_names(with_meaning).are_subsets


def _refuse_all_boxes(root: Path) -> None:
    """Refuses a folder of labelled images with a file of boxes, which would be lost.

    Raises:
        DataError: it has one.
    """
    files = sorted(files_below(root))
    stems = _image_stems(files)
    for file in files:
        if not is_image(file):
            _refuse_boxes(root, file, stems)


def _image_paths(root: Path) -> list[tuple[str, ...]]:
    """The path of each image in a folder: the names of the folders, and of the file."""
    files = files_below(root)
    return [file.relative_to(root).parts for file in files if is_image(file)]
