"""Folders with VOC's image sets, or with XML files in VOC's format."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path, PureWindowsPath

from farther.datasets.annotation_files import root_tag
from farther.datasets.box_files import describes_boxes
from farther.datasets.file_names import canonical_name
from farther.datasets.image_search import FileTree, NamedImages, choose_folders, located
from farther.datasets.recognition import Recognised
from farther.datasets.subset_keys import subset_keys
from farther.datasets.subset_names import is_subset_word, read_names
from farther.datasets.voc_xml import ROOT_TAG, filename_of
from farther.tables.endings import XML
from farther.tables.folders import files_below, listed


def recognise_voc(root: Path) -> Recognised | None:
    """A folder with VOC's image sets, or else one subset per folder of XML files.

    None where no XML file is in VOC's format.
    """
    lists = listed(root, "**/ImageSets/Main/*.txt")
    if lists:
        return _image_sets(root, lists)
    files_by_folder: dict[Path, list[Path]] = {}
    for file in sorted(files_below(root, XML)):
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
    recognised = located({"layout": layout}, keys, names, annotated, folders)
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
    return any(root_tag(file) in (ROOT_TAG, "") for file in files)


def _usual_folders_of_voc(folder: Path) -> tuple[str, ...]:
    """Folders within the root in which the images of a folder of XML files often are."""
    parent = folder.parent
    folders = [folder, folder / "images", folder / "JPEGImages"]
    folders += [parent / "images", parent / "JPEGImages", parent, Path()]
    return tuple(path.as_posix() for path in folders)


def _image_sets(root: Path, lists: Sequence[Path]) -> Recognised:
    """VOC's image sets: those of one word for a subset, or else all.

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
    return Recognised({"image_sets": image_sets}, keys, notes)


def _is_of_class(name: str) -> bool:
    """Whether a list of VOC is that of a class: its name ends in that of a subset."""
    return is_subset_word(name.rpartition("_")[2])
