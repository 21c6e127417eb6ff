"""What a reader says of a folder in which it recognises its format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from farther.datasets.subset_keys import SubsetKeys

#: What a format is recognised by, the most certain first: a file that describes the whole dataset,
#: files of annotations, names of folders, or nothing but images.
Evidence = Literal["description", "annotations", "folders", "images"]


@dataclass(frozen=True)
class Recognised:
    """A folder in the format of a reader.

    Args:
        params: The reader's parameters, without its root.
        keys: The names of the subsets.
        notes: Sentences about its files that a user should know.
        questions: Sentences about what its files do not decide, with what was assumed.
    """

    params: dict[str, Any] = field(default_factory=dict)
    keys: SubsetKeys = field(default_factory=lambda: SubsetKeys([]))
    notes: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
