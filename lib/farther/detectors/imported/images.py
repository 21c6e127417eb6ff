"""The images of a benchmark, found by the names or numbers that files of detections use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from farther.detectors.imported.base import DetectionsSource, plain_path
from farther.detectors.imported.numbers import whole_number
from farther.errors import DataError, shorten
from farther.tables import Images
from farther.tables.files import is_folder

#: Width to which COCO pads the numbers of its images.
COCO_DIGITS = 12
#: Place of a name that means no image.
NOWHERE = -1


@dataclass(frozen=True)
class Scopes:
    """Names of sources that restrict them to a split or a dataset.

    Args:
        splits: The benchmark's splits.
        datasets: The datasets that their images come from.
        roots: Folder of the image files of each dataset, where it is known: it distinguishes names
            that differ in folders above those of the images table.
    """

    splits: frozenset[str]
    datasets: frozenset[str]
    roots: Mapping[str, Path] = field(default_factory=dict)

    def of(self, source: DetectionsSource) -> str:
        """Scope of a source: one "split", one "dataset", or "all"."""
        if source.name in self.splits:
            return "split"
        if source.name in self.datasets:
            return "dataset"
        return "all"


@dataclass(frozen=True)
class BenchmarkImage:
    """An image of some splits.

    Args:
        image_id, dataset, file, digest: See `farther.tables.Images`.
        split: The first split that has it; "" for an image that the rules left out of all.
    """

    image_id: str
    dataset: str
    file: str
    digest: str
    split: str

    def __str__(self) -> str:
        where = f"split {self.split}" if self.split else "which is in no split"
        return f"{self.file!r} of dataset {self.dataset} ({where})"


class BenchmarkImages:
    """All images of some splits, without duplicates, and lookups by the names of sources.

    Args:
        splits: Images of each split.
        scopes: Names that restrict sources, and folders of the datasets.
        left_out: Further images of the datasets, which no split has: their detections must not be
            assigned to images of the splits.
    """

    def __init__(
        self, splits: Mapping[str, Images], scopes: Scopes, left_out: Sequence[BenchmarkImage] = ()
    ):
        self._scopes = scopes
        self._images: list[BenchmarkImage] = []
        self._numbers_by_split: dict[str, np.ndarray] = {}
        number_by_file: dict[tuple[str, str], int] = {}
        for split, images in splits.items():
            numbers = np.empty(len(images), np.int64)
            columns = (images.image_id, images.dataset, images.file, images.digest)
            for row, (image_id, dataset, file, digest) in enumerate(zip(*columns, strict=True)):
                number = number_by_file.setdefault((dataset, file), len(self._images))
                if number == len(self._images):
                    self._images.append(BenchmarkImage(image_id, dataset, file, digest, split))
                numbers[row] = number
            self._numbers_by_split[split] = numbers
        for image in left_out:
            number = number_by_file.setdefault((image.dataset, image.file), len(self._images))
            if number == len(self._images):
                self._images.append(image)

    def place(self, names: Sequence[tuple[DetectionsSource, str]]) -> MatchedNames:
        """Finds the image of each name.

        Args:
            names: Sources, and their names of images.

        Raises:
            DataError: a name fits two images; names both, and what to write.
        """
        first = np.full(len(names), NOWHERE, np.int64)
        only_split = np.full(len(names), "", object)
        copies: dict[int, list[int]] = {}
        for place, (source, name) in enumerate(names):
            if self._scopes.of(source) == "split":
                only_split[place] = source.name
            numbers = self._numbers(source, name)
            if not numbers:
                continue
            first[place] = numbers[0]
            if len(numbers) > 1:
                copies[place] = numbers[1:]
        return MatchedNames(first, copies, only_split, self._numbers_by_split, len(self._images))

    def _numbers(self, source: DetectionsSource, name: str) -> list[int]:
        """Numbers of the image of a name, and of its copies in other datasets; empty for none.

        Raises:
            DataError: the name fits two different pictures.
        """
        fitting: list[int] = []
        for lookup in self._lookups(source):
            fitting.extend(lookup.fitting(source, name))
        numbers = self._by_folder(source.file_of(name), fitting)
        if len(numbers) > 1 and not self._show_one_picture(numbers):
            raise self._ambiguous(source, name, numbers)
        return numbers

    def _lookups(self, source: DetectionsSource) -> Iterator[NamedImages]:
        """Lookups of the images that a source is for, one per dataset."""
        scope = self._scopes.of(source)
        if scope == "split":
            yield from self._lookups_of_splits.get(source.name, {}).values()
        elif scope == "dataset":
            if source.name in self._lookups_of_all:
                yield self._lookups_of_all[source.name]
        else:
            yield from self._lookups_of_all.values()

    @cached_property
    def _lookups_of_all(self) -> dict[str, NamedImages]:
        """The lookup of each dataset's images."""
        return self._lookups_by_dataset(range(len(self._images)))

    @cached_property
    def _lookups_of_splits(self) -> dict[str, dict[str, NamedImages]]:
        """The lookups of each split's images, by dataset."""
        lookups = {}
        for split, numbers in self._numbers_by_split.items():
            lookups[split] = self._lookups_by_dataset(numbers.tolist())
        return lookups

    def _lookups_by_dataset(self, numbers: Sequence[int]) -> dict[str, NamedImages]:
        """Lookups of some images, by dataset."""
        numbers_by_dataset: dict[str, list[int]] = {}
        for number in numbers:
            numbers_by_dataset.setdefault(self._images[number].dataset, []).append(number)
        lookups = {}
        for dataset, dataset_numbers in numbers_by_dataset.items():
            lookups[dataset] = NamedImages(self._images, dataset_numbers)
        return lookups

    def _by_folder(self, name: str, numbers: list[int]) -> list[int]:
        """Selects the images whose folders above the dataset's own agree best with a name's.

        A name with the folders of a dataset that has no such image in the splits fits none of them.
        """
        if not numbers or "/" not in name:
            return numbers
        agreeing = [self._agreement(name, self._images[number]) for number in numbers]
        best = max(agreeing)
        if best == 0:
            image = self._images[numbers[0]]
            folders_above = _folders_above(name, image.file)
            for dataset in self._folders:
                if dataset != image.dataset and self._common_folders(folders_above, dataset) > 0:
                    return []
        return [number for number, common in zip(numbers, agreeing, strict=True) if common == best]

    def _agreement(self, name: str, image: BenchmarkImage) -> int:
        """Number of folders above an image's file that a name shares."""
        return self._common_folders(_folders_above(name, image.file), image.dataset)

    def _common_folders(self, above: tuple[str, ...], dataset: str) -> int:
        """Number of a path's last folders that are a dataset's name, or the end of its root."""
        common = 0
        for folders in self._folders.get(dataset, ()):
            common = max(common, _common_end(above, folders))
        return common

    @cached_property
    def _folders(self) -> dict[str, list[tuple[str, ...]]]:
        """Possible folders before the files of each dataset: its name, and those of its root."""
        datasets = {image.dataset for image in self._images} | self._scopes.datasets
        folders: dict[str, list[tuple[str, ...]]] = {}
        for dataset in sorted(datasets):
            folders[dataset] = [(dataset,)]
            if dataset in self._scopes.roots:
                folders[dataset].append(Path(self._scopes.roots[dataset]).absolute().parts)
        return folders

    def _show_one_picture(self, numbers: list[int]) -> bool:
        """True if images of different datasets are copies of one picture, or the same file."""
        images = [self._images[number] for number in numbers]
        if len({image.dataset for image in images}) < len(images):
            return False
        digests = {image.digest for image in images}
        if len(digests) == 1 and images[0].digest:
            return True
        roots = [self._scopes.roots.get(image.dataset) for image in images]
        files = set()
        for root, image in zip(roots, images, strict=True):
            if root is None:
                return False
            files.add((Path(root) / image.file).resolve())
        return len(files) == 1

    def _ambiguous(self, source: DetectionsSource, name: str, numbers: list[int]) -> DataError:
        """An error that names two of the images that a name fits, and what to write."""
        first = self._images[numbers[0]]
        second = self._images[numbers[1]]
        file = source.file_of(name)
        number = whole_number(name)
        ids = {name, str(number), str(number).zfill(COCO_DIGITS)}
        is_id = (
            source.image_files is None
            and source.named == "id"
            and not ids.isdisjoint((first.image_id, second.image_id))
        )
        field = "image_id" if is_id else "file_name"
        if first.dataset == second.dataset and not is_id:
            problem = f"{file!r} may be {first.file!r} or {second.file!r}: give its folders too"
            return DataError(problem, file=source.path, field=field)

        if first.dataset == second.dataset:
            kind = "split"
            first_name = first.split
            second_name = second.split
        else:
            kind = "dataset"
            first_name = first.dataset
            second_name = second.dataset
        problem = f"{file!r} may be {first} or {second}"
        if is_folder(source.path):
            problem += (
                f": give one folder of detections per {kind}, called {first_name} and "
                f"{second_name}, in one folder"
            )
            return DataError(problem, file=source.path, field=field)
        ending = source.path.suffix
        problem += (
            f": give one file of detections per {kind}, called {first_name}{ending} and "
            f"{second_name}{ending}, in one folder"
        )
        if is_id:
            problem += ", or name the images by `file_name`"
        elif kind == "dataset":
            path = f"{first_name}/{first.file}"
            problem += f", or names with the datasets' folders, as {path!r}"
        return DataError(problem, file=source.path, field=field)


@dataclass(frozen=True)
class MatchedNames:
    """The images that names were matched with.

    Args:
        first: Number of the image of each name, −1 for none, ndarray of shape (names,), int64.
        copies: Numbers of further images that show the same picture, by the name's place.
        only_split: The split that each name's source is for; "" where it is for any, object array
            of shape (names,). Splits may share images.
        numbers_by_split: Number of the image in each row of each split.
        images: Number of all images.
    """

    first: np.ndarray
    copies: Mapping[int, Sequence[int]]
    only_split: np.ndarray
    numbers_by_split: Mapping[str, np.ndarray]
    images: int

    def in_split(self, split: str) -> np.ndarray:
        """Row in a split's table of the image of each name, −1 for none.

        Returns:
            ndarray of shape (names,), int64.
        """
        row_by_number = np.full(self.images + 1, NOWHERE, np.int64)
        numbers = self.numbers_by_split[split]
        row_by_number[numbers] = np.arange(len(numbers))
        rows = row_by_number[self.first]  # −1 is the last one, which no image has
        for place, copies in self.copies.items():
            for number in copies:
                if rows[place] == NOWHERE:
                    rows[place] = row_by_number[number]
        rows[(self.only_split != "") & (self.only_split != split)] = NOWHERE
        return rows

    @property
    def is_matched(self) -> np.ndarray:
        """Whether each name is that of an image of a split, ndarray of shape (names,), bool."""
        is_matched = np.zeros(len(self.first), bool)
        for split in self.numbers_by_split:
            is_matched |= self.in_split(split) != NOWHERE
        return is_matched


class NamedImages:
    """Finds images of one dataset by the names that sources use.

    Args:
        images: The benchmark's images.
        numbers: Numbers of the dataset's images.
    """

    def __init__(self, images: Sequence[BenchmarkImage], numbers: Sequence[int]):
        self._file_by_number = {number: images[number].file for number in numbers}
        self._numbers_by_id: dict[str, list[int]] = {}
        for number in numbers:
            self._numbers_by_id.setdefault(images[number].image_id, []).append(number)
        self._has_numeric_ids = any(image_id.isdecimal() for image_id in self._numbers_by_id)

    @cached_property
    def _numbers_by_name(self) -> dict[str, list[int]]:
        """Numbers of the images whose file has a name."""
        numbers_by_name: dict[str, list[int]] = {}
        for number, file in self._file_by_number.items():
            numbers_by_name.setdefault(_name_of(plain_path(file)), []).append(number)
        return numbers_by_name

    @cached_property
    def _numbers_by_stem(self) -> dict[str, list[int]]:
        """Numbers of the images whose file has a name without its ending."""
        numbers_by_stem: dict[str, list[int]] = {}
        for name, numbers in self._numbers_by_name.items():
            numbers_by_stem.setdefault(PurePosixPath(name).stem, []).extend(numbers)
        return numbers_by_stem

    def fitting(self, source: DetectionsSource, name: str) -> list[int]:
        """Numbers of the images that a name fits.

        Names are compared with ids, else with files, else with files without their ending.
        """
        if source.image_files is not None:
            return self._with_file(source.file_of(name))
        number = whole_number(name)
        if source.named == "id":
            numbers = self._with_id(name, number)
            if numbers:
                return numbers
        file = source.file_of(name)
        numbers = self._with_file(file)
        if numbers:
            return numbers
        is_unknown_id = self._has_numeric_ids and number is not None
        if source.named == "id" and is_unknown_id:
            return []
        return self._with_stem(file)

    def _with_id(self, name: str, number: int | None) -> list[int]:
        """Images with an id, or with its number: 42.0 and 42 are 000000000042."""
        if name in self._numbers_by_id or number is None:
            return self._numbers_by_id.get(name, [])
        numbers = self._numbers_by_id.get(str(number))
        if numbers:
            return numbers
        return self._numbers_by_id.get(str(number).zfill(COCO_DIGITS), [])

    def _with_file(self, file: str) -> list[int]:
        """Images whose path ends as a name does, or the other way round."""
        fitting = []
        for number in self._numbers_by_name.get(_name_of(file), []):
            path = plain_path(self._file_by_number[number])
            if path == file or _ends_alike(file, path):
                fitting.append(number)
        return fitting

    def _with_stem(self, file: str) -> list[int]:
        """Images whose path without its ending ends as a name does."""
        fitting = []
        for number in self._numbers_by_stem.get(_name_of(file), []):
            path = PurePosixPath(plain_path(self._file_by_number[number]))
            if _ends_alike(file, (path.parent / path.stem).as_posix()):
                fitting.append(number)
        return fitting


def _name_of(path: str) -> str:
    """The name of the file of a path, as `PurePosixPath` says it."""
    name = path.rpartition("/")[2]
    if name in ("", "."):
        return PurePosixPath(path).name
    return name


def _ends_alike(path: str, second_path: str) -> bool:
    """True if the shorter of two paths is the end of the longer."""
    first_parts = PurePosixPath(path).parts
    second_parts = PurePosixPath(second_path).parts
    length = min(len(first_parts), len(second_parts))
    return first_parts[-length:] == second_parts[-length:]


def _folders_above(name: str, file: str) -> tuple[str, ...]:
    """The folders of a name above those of an image's file."""
    count = len(PurePosixPath(file).parts)
    return PurePosixPath(name).parts[:-count]


def _common_end(path: tuple[str, ...], second_path: tuple[str, ...]) -> int:
    """Number of last parts that two paths have in common."""
    count = 0
    for part, second_part in zip(reversed(path), reversed(second_path), strict=False):
        if part != second_part:
            break
        count += 1
    return count


def examples(sources: Sequence[tuple[DetectionsSource, str]]) -> str:
    """The first three names of images, for a message."""
    names = [shorten(source.file_of(name)) for source, name in sources[:3]]
    return ", ".join(names) or "none"
