"""What an adapter says of a file or folder that it recognises, and what it is told for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: The assumption about a file without names of classes.
UNNAMED = "it names no classes: assumed to be the ID dataset's, in its order"
COMPARED = f"{UNNAMED} (farther doctor compares)"
#: The assumption about Parquet whose classes are numbers without names.
NUMBERED = "classes are numbers: assumed to be the ID dataset's, in its order, from 0"


@dataclass(frozen=True)
class LabelledImage:
    """An image of the ID dataset.

    Args:
        image_id: Its id.
        file: Its file, within the dataset's folder.
        subset: Its subset.
        classes: Names of the classes of its objects.
    """

    image_id: str
    file: str
    subset: str
    classes: frozenset[str]


def _no_images() -> Iterable[LabelledImage]:
    return ()


def _no_synonyms(names: Sequence[str]) -> set[str]:
    return set()


@dataclass(frozen=True)
class IdClasses:
    """The classes of the ID dataset, for files that do not name theirs.

    Args:
        categories: Their names, in the dataset's order.
        numbers: Number of a class in the dataset's files → its name; empty without numbers.
        format: The dataset's format.
        images: Yields its images.
        with_synonym: The classes that one of some names means.
    """

    categories: list[str]
    numbers: Mapping[int, str] = field(default_factory=dict)
    format: str = ""
    images: Callable[[], Iterable[LabelledImage]] = _no_images
    with_synonym: Callable[[Sequence[str]], set[str]] = _no_synonyms


@dataclass(frozen=True)
class RecognisedFile:
    """A file or folder that an adapter reads.

    Args:
        params: The adapter's parameters, without `weights`.
        content: The content of the files in a few words, where `init` should print it.
        assumed: A sentence about what the files do not say; empty where nothing was assumed.
        adapter: Name of the adapter, where another one of the same library reads it.
        detector: The adapter with these parameters, where the file was opened to recognise it.
    """

    params: dict[str, Any] = field(default_factory=dict)
    content: str = ""
    assumed: str = ""
    adapter: str = ""
    detector: Any = None
