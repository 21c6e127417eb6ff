"""The folder of the images that annotations name, found from all of the names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from farther.datasets.file_names import canonical_name
from farther.datasets.recognition import Recognised
from farther.datasets.subset_keys import SubsetKeys
from farther.datasets.subset_names import subset_of_path, words_of
from farther.tables.endings import is_image
from farther.tables.folders import files_below

#: Share of the names from which on a folder that suits the annotations by its own name is
#: preferred to one that suits others.
LEAST_SHARE = 0.5


@dataclass(frozen=True)
class NamedImages:
    """The images that a file or a folder of annotations names.

    Args:
        place: The file without its ending, or the folder, within the dataset's root.
        names: Names of the images in `canonical_name` form: paths within a folder that is to be
            found, or stems of XML files.
        usual_folders: Folders in which its images often are, within the root; the first that fits
            is taken where several folders fit equally.
    """

    place: PurePath
    names: frozenset[str]
    usual_folders: tuple[str, ...]


@dataclass(frozen=True)
class FoundFolder:
    """The folder of the images that annotations name.

    Args:
        path: The folder within the dataset's root; "." for the root, and where none is found.
        found: Number of the names that are in it.
        rivals: Other folders that have as many, and suit the annotations by their names as well.
    """

    path: str = "."
    found: int = 0
    rivals: tuple[str, ...] = ()


class FileTree:
    """The names of the files below a folder, listed once.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path):
        #: Parts of a folder's path within the root → the files in it, by `canonical_name`.
        self._names_by_folder: dict[tuple[str, ...], list[str]] = {}
        self._stems_by_folder: dict[tuple[str, ...], frozenset[str]] | None = None
        depth = len(root.parts)
        for file in files_below(root):
            *folders, name = file.parts[depth:]  # `relative_to` takes ten times as long
            self._names_by_folder.setdefault(tuple(folders), []).append(name)

    def count(self, names: Iterable[str]) -> dict[str, int]:
        """Number of file names that each folder has, for folders that have one.

        Args:
            names: Paths within a folder, in `canonical_name` form.
        """
        names_by_depth: dict[int, set[str]] = defaultdict(set)
        for name in names:
            parts = [part for part in name.split("/") if part not in ("", ".")]
            names_by_depth[len(parts)].add("/".join(parts))
        found: dict[str, set[str]] = defaultdict(set)
        for folders, files in self._names_by_folder.items():
            for depth, wanted in names_by_depth.items():
                above = len(folders) - (depth - 1)
                if above < 0:
                    continue
                prefix = "".join(f"{canonical_name(part)}/" for part in folders[above:])
                paths = {f"{prefix}{canonical_name(file)}" for file in files}
                present = paths & wanted
                if present:
                    found[PurePath(*folders[:above]).as_posix()] |= present
        return {folder: len(present) for folder, present in found.items()}

    def count_stems(self, stems: frozenset[str]) -> dict[str, int]:
        """Number of images that each folder has itself, for folders that have one.

        Args:
            stems: Names of images with or without their ending, in `canonical_name` form.
        """
        counts: dict[str, int] = {}
        for folders, stems_of_folder in self._image_stems().items():
            count = len(stems_of_folder & stems)
            if count:
                counts[PurePath(*folders).as_posix()] = count
        return counts

    def image_stems(self) -> frozenset[str]:
        """Names of all images, with and without their ending, in `canonical_name` form."""
        return frozenset().union(*self._image_stems().values())

    def _image_stems(self) -> dict[tuple[str, ...], frozenset[str]]:
        """Names of the images of each folder, with and without their ending."""
        if self._stems_by_folder is None:
            self._stems_by_folder = {}
            for folders, files in self._names_by_folder.items():
                images = [file for file in files if is_image(file)]
                stems = {canonical_name(image) for image in images}
                stems |= {canonical_name(PurePath(image).stem) for image in images}
                self._stems_by_folder[folders] = frozenset(stems)
        return self._stems_by_folder


def choose_folders(
    annotated: Sequence[NamedImages], counts: Sequence[dict[str, int]]
) -> list[FoundFolder]:
    """The folder of the images of each file or folder of annotations.

    The folder with most of the names. A folder whose own name suits other annotations better
    (`val_images` those of `instances_val`) is taken only where no other has half of the names. Of
    folders with equally many, the one whose name suits best.

    Args:
        annotated: The annotations.
        counts: For each, number of its images in each folder.
    """
    words_by_place = {named.place: _words(named.place) for named in annotated}
    suitability_by_folder: dict[str, int] = {}

    def suits_others_better(named: NamedImages, folder: str) -> bool:
        own_subset = subset_of_path(named.place.parts)
        subset = subset_of_path(PurePath(folder).parts)
        if subset and own_subset and subset != own_subset:
            return True
        words = _words(PurePath(folder))
        if folder not in suitability_by_folder:
            shared = (len(words & other_words) for other_words in words_by_place.values())
            suitability_by_folder[folder] = max(shared)
        return suitability_by_folder[folder] > len(words & words_by_place[named.place])

    chosen: list[FoundFolder] = []
    for named, count_by_folder in zip(annotated, counts, strict=True):
        candidates = count_by_folder
        own: dict[str, int] = {}
        if len(candidates) > 1:
            for folder, count in candidates.items():
                if not suits_others_better(named, folder):
                    own[folder] = count
        if max(own.values(), default=0) >= LEAST_SHARE * len(named.names):
            candidates = own or candidates
        chosen.append(_best(named, candidates))
    return chosen


def located(
    params: dict[str, Any],
    keys: SubsetKeys,
    names: Sequence[str],
    annotated: Sequence[NamedImages],
    folders: Sequence[FoundFolder],
) -> Recognised:
    """Annotations and their folders of images, with what is missing or undecided.

    Args:
        params: The reader's parameters.
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
    return Recognised(params, keys, tuple(notes), tuple(questions))


def _best(named: NamedImages, count_by_folder: dict[str, int]) -> FoundFolder:
    """The folder with most names, of those with equally many the one that suits best by its own."""
    if not count_by_folder:
        return FoundFolder()
    most = max(count_by_folder.values())
    fitting = [folder for folder, count in count_by_folder.items() if count == most]
    if len(fitting) > 1:
        best_suitability = max(_suitability(named.place, folder) for folder in fitting)
        fitting = [
            folder for folder in fitting if _suitability(named.place, folder) == best_suitability
        ]
    usual = [folder for folder in named.usual_folders if folder in fitting]
    first, *rivals = dict.fromkeys([*usual, *sorted(fitting)])
    return FoundFolder(first, most, tuple(rivals))


def _suitability(place: PurePath, folder: str) -> tuple[int, int]:
    """Number of words that two paths share, and of the parts at their ends that are equal."""
    equal_parts = 0
    for part, other in zip(reversed(place.parts), reversed(PurePath(folder).parts), strict=False):
        if part.casefold() != other.casefold():
            break
        equal_parts += 1
    return len(_words(place) & _words(PurePath(folder))), equal_parts


def _words(path: PurePath) -> set[str]:
    words: set[str] = set()
    for part in path.parts:
        words |= words_of(part)
    return words
