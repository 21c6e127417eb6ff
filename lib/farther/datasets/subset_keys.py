"""Names for the subsets of a dataset, from the paths of their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from farther.datasets.subset_names import is_neutral, read_names, subset_of, subsets_of

#: Names of folders that are left out of the names of subsets, in lower case.
USUAL = frozenset(
    {"annotation", "annotations", "annots", "images", "labels", "xml", "instances", ""}
)


@dataclass(frozen=True)
class SubsetKeys:
    """Names of subsets.

    Args:
        keys: The name of each path: train, val or test for the one path that means it; else from
            the path itself. They differ, also without regard to case.
        groups: Subset → the keys of several paths that mean it by the same name, as
            `beach/train` and `market/train` do.
        renamed: Name in a path → the subset that it means, where the two differ.
    """

    keys: list[str]
    groups: dict[str, list[str]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)


def subset_keys(paths: Sequence[tuple[str, ...]]) -> SubsetKeys:
    """Names for the subsets in files or folders.

    Args:
        paths: Path of each within the dataset's root, without the ending of a file; different.
    """
    names = _deciding_names(paths)
    reading = read_names(names)
    chosen: dict[str, str] = {}
    if reading.are_subsets or reading.assumed:
        chosen = reading.chosen
    taken = set(chosen)
    key_by_row: dict[int, str] = {}
    groups: dict[str, list[str]] = {}
    renamed: dict[str, str] = {}
    for subset, name in chosen.items():
        rows = [row for row, own_name in enumerate(names) if own_name == name]
        if name != subset:
            renamed[name] = subset
        if len(rows) == 1:
            key_by_row[rows[0]] = subset
            continue
        for row in rows:
            key_by_row[row] = _unused_key(paths[row], taken)
        groups[subset] = [key_by_row[row] for row in rows]
    for row, path in enumerate(paths):
        if row not in key_by_row:
            key_by_row[row] = _unused_key(path, taken)
    return SubsetKeys([key_by_row[row] for row in range(len(paths))], groups, renamed)


def _deciding_names(paths: Sequence[tuple[str, ...]]) -> list[str]:
    """The name in each path that says which subset it is.

    It is the last one that means a subset; where no path has one, the last one with a meaning.
    """
    names: list[str] = []
    last_names: list[str] = []
    for path in paths:
        with_meaning = [part for part in path if not is_neutral(part)] or ["/".join(path)]
        last_names.append(with_meaning[-1])
        subsets = [part for part in path if subset_of(part)]
        names.append(subsets[-1] if subsets else "/".join(path))
    are_subsets = any(subset_of(name) for path in paths for name in path)
    if not are_subsets and any(subsets_of(last_names).values()):
        return last_names
    return names


def _unused_key(path: tuple[str, ...], taken: set[str]) -> str:
    """A name for a path that is not taken yet; it is then."""
    key = next(key for key in _possible_keys(path) if key.casefold() not in taken)
    taken.add(key.casefold())
    return key


def _possible_keys(path: tuple[str, ...]) -> Iterator[str]:
    """Names for a path: without usual names of folders, whole, and with a number."""
    parts = [part.removesuffix(".coco").lstrip("_") for part in path]  # _annotations.coco.json
    short_key = "_".join(part for part in parts if part.casefold() not in USUAL) or "all"
    yield short_key
    yield "_".join(parts) or "all"
    for number in count(2):
        yield f"{short_key}_{number}"
