"""Subsets of a dataset that consist of several others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from farther.datasets.base import (
    AnnotatedImages,
    AnnotatedObjects,
    Annotations,
    Credit,
    Expected,
    Reader,
)
from farther.errors import DataError, ParameterError, known_names


class CombinedSubsets(Reader):
    """A reader with subsets that consist of several of another reader; see `Reader.combined`.

    Args:
        reader: Reads the parts. Its `combined` names them.
    """

    def __init__(self, reader: Reader):
        super().__init__(
            root=reader.root,
            missing_images=reader.missing_images,
            max_warnings=reader.max_warnings,
            orientation=reader.orientation,
            subset_names=reader.subset_names,
            combined=reader.combined,
            brightness=reader.brightness,
        )
        self._reader = reader
        #: See `Reader`; an attribute of the instance, as each format has its own.
        self.SOURCE = reader.SOURCE  # type: ignore[misc]
        self.COUNTS_UNLISTED = reader.COUNTS_UNLISTED  # type: ignore[misc]

    def subsets(self) -> list[str]:
        """`subset_names`; else the combined subsets, and those in none of them.

        Raises:
            ParameterError: a combined subset consists of one that there is not.
        """
        if self.subset_names:
            return list(self.subset_names)
        present = self._reader.subsets()
        combined: list[str] = []
        for subset, parts in self.combined.items():
            absent = [part for part in parts if part not in present]
            if absent:
                known = known_names(present)
                raise ParameterError(
                    f"combined: {subset}: no subset is called {absent[0]!r}. {known}"
                )
            combined += parts
        return [*self.combined, *(name for name in present if name not in combined)]

    def absent_subsets(self) -> dict[str, str]:
        """See `Reader`."""
        return self._reader.absent_subsets()

    def class_numbers(self, categories: Sequence[str]) -> dict[int, str]:
        """See `Reader`."""
        return self._reader.class_numbers(categories)

    def expects(self, subset: str) -> list[Expected]:
        """Files and folders of all parts of a subset; see `Reader`."""
        expected: list[Expected] = []
        for part in self._parts(subset):
            expected += self._reader.expects(part)
        return expected

    def read(self, subset: str) -> Annotations:
        """The annotations of all parts of a subset; see `Reader`."""
        annotations_by_part = {part: self._reader.read(part) for part in self._parts(subset)}
        if len(annotations_by_part) == 1:
            (annotations,) = annotations_by_part.values()
            return annotations
        return joined(annotations_by_part)

    def credits(self, subset: str) -> Iterator[tuple[str, Credit]]:
        """Credit of each image of all parts of a subset; see `Reader`."""
        parts = self._parts(subset)
        credits_by_part = {part: list(self._reader.credits(part)) for part in parts}
        if len(parts) > 1 and any(credits_by_part.values()):
            prefixes = _prefixes({part: self._reader.read(part) for part in parts})
        else:
            prefixes = dict.fromkeys(parts, "")
        for part, credits_of_part in credits_by_part.items():
            for image_id, credit in credits_of_part:
                yield f"{prefixes[part]}{image_id}", credit

    def _parts(self, subset: str) -> tuple[str, ...]:
        return self.combined.get(subset, (subset,))


def joined(annotations_by_part: Mapping[str, Annotations]) -> Annotations:
    """The annotations of several subsets of one dataset as those of one.

    Args:
        annotations_by_part: Annotations by the name of their subset.

    Raises:
        DataError: a subset has a second file of objects.
    """
    parts = list(annotations_by_part.values())
    first = parts[0]
    for part in parts:
        if part.second is not None:
            problem = "subsets with a second file of objects cannot be combined"
            raise DataError(problem, file=part.root / part.second.file)

    first_rows = _starts([len(part.images) for part in parts])
    categories: dict[str, int] = {}
    parents: dict[str, list[str]] = {}
    files: list[str] = []
    columns_by_part: list[dict[str, np.ndarray]] = []
    for part, first_row in zip(parts, first_rows, strict=True):
        new_category = np.zeros(len(part.categories), dtype=np.int64)
        for index, name in enumerate(part.categories):
            new_category[index] = categories.setdefault(name, len(categories))
        parents |= part.parents
        files += [part.file(row) for row in range(len(part.images))]
        columns = _columns(part.objects, leaving_out="unit")
        columns["image"] = part.objects.image + first_row
        columns["category"] = new_category[part.objects.category]
        columns_by_part.append(columns)
    objects = AnnotatedObjects(**_concatenated(columns_by_part), unit=first.objects.unit)
    if len(np.unique(objects.object_id)) < len(objects):
        objects = replace(objects, object_id=np.arange(len(objects)))

    prefixes = _prefixes(annotations_by_part)
    images_by_part: list[dict[str, np.ndarray]] = []
    attributes = []
    for name, part in annotations_by_part.items():
        columns = _columns(part.images)
        prefix = prefixes[name]
        if prefix:
            prefixed = [f"{prefix}{image_id}" for image_id in part.images.image_id]
            columns["image_id"] = np.array(prefixed, dtype=object)
        images_by_part.append(columns)
        for attribute in part.attributes:
            attributes.append(attribute._replace(image_id=f"{prefix}{attribute.image_id}"))

    unlabelled = [part.unlabelled + row for part, row in zip(parts, first_rows, strict=True)]
    return replace(
        first,
        images=AnnotatedImages(**_concatenated(images_by_part)),
        objects=objects,
        categories=list(categories),
        parents=parents,
        warnings=[warning for part in parts for warning in part.warnings],
        files=files,
        embedded=_embedded(parts, first_rows),
        unlabelled=np.concatenate(unlabelled),
        attributes=attributes,
    )


def _prefixes(annotations_by_part: Mapping[str, Annotations]) -> dict[str, str]:
    """What precedes the image ids of each part: "" where all ids differ, else its name."""
    count = 0
    image_ids: set[str] = set()
    for part in annotations_by_part.values():
        count += len(part.images)
        image_ids.update(part.images.image_id.tolist())
    if len(image_ids) == count:
        return dict.fromkeys(annotations_by_part, "")
    return {part: f"{part}/" for part in annotations_by_part}


def _embedded(
    parts: Sequence[Annotations], first_rows: Sequence[int]
) -> Callable[[], Iterator[tuple[int, bytes]]] | None:
    """The images that the annotations of parts contain; None where they contain none."""
    if all(part.embedded is None for part in parts):
        return None

    def contents() -> Iterator[tuple[int, bytes]]:
        for part, first_row in zip(parts, first_rows, strict=True):
            if part.embedded is not None:
                for row, content in part.embedded():
                    yield first_row + row, content

    return contents


def _starts(counts: Sequence[int]) -> list[int]:
    """Number of rows before each part."""
    return [0, *np.cumsum(counts)[:-1].tolist()]


def _columns(table: Any, leaving_out: str = "") -> dict[str, np.ndarray]:
    names = [field.name for field in fields(table) if field.name != leaving_out]
    return {name: getattr(table, name) for name in names}


def _concatenated(columns_by_part: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    names = columns_by_part[0]
    return {name: np.concatenate([part[name] for part in columns_by_part]) for name in names}
