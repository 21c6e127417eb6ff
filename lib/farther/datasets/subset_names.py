"""The subset (train, val, test) that the name of a file or a folder means.

A name means a subset if, besides numbers and words that carry no meaning in the name of a file
(`NEUTRAL`), it consists of one word for a subset: `Training`, `val_2017`, `instances_train2017`,
`ValImages`, `obj_train_data`, `_annotations.test`. Any other word makes it another name:
`train_station`, `trains`, `valley`, `testbed`, `contest` mean no subset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

#: The subsets, in the order in which they are used.
SUBSETS = ("train", "val", "test")

#: Subset by word. Of several names for one subset, that with the first of these words is preferred.
SUBSET_BY_WORD = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
    "dev": "val",
    "testdev": "test",
    "trainval": "train",
}
#: Words for a subset that consist of two, which are also written apart: `test-dev`, `train_val`.
PAIRS = {("test", "dev"): "testdev", ("train", "val"): "trainval"}

#: Words, in lower case, that say nothing about the content of a file or a folder.
NEUTRAL = frozenset(
    {
        "ann",
        "anno",
        "annos",
        "annot",
        "annotation",
        "annotations",
        "annots",
        "anns",
        "bbox",
        "bboxes",
        "box",
        "boxes",
        "caption",
        "captions",
        "coco",
        "csv",
        "data",
        "dataset",
        "datasets",
        "det",
        "detection",
        "detections",
        "file",
        "files",
        "gt",
        "image",
        "images",
        "img",
        "imgs",
        "info",
        "instance",
        "instances",
        "jpeg",
        "jpegimages",
        "jpg",
        "json",
        "keypoint",
        "keypoints",
        "label",
        "labels",
        "list",
        "lists",
        "obj",
        "object",
        "objects",
        "panoptic",
        "person",
        "photo",
        "photos",
        "picture",
        "pictures",
        "png",
        "segmentation",
        "set",
        "sets",
        "split",
        "splits",
        "stuff",
        "subset",
        "subsets",
        "txt",
        "v",
        "voc",
        "xml",
        "yolo",
    }
)

_LETTERS_OR_DIGITS = re.compile(r"[^\W\d_]+|\d+")
#: The place between the words of `ValImages`.
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")


def subset_of(name: str) -> str | None:
    """The subset that a name means; None for every other name.

    >>> [subset_of(name) for name in ("Validation", "instances_train2017", "train_station")]
    ['val', 'train', None]

    Args:
        name: The name of a file, without its ending, or of a folder.
    """
    word = _subset_word(name)
    if word is None:
        return None
    return SUBSET_BY_WORD[word]


def subset_of_path(parts: Sequence[str]) -> str | None:
    """The subset that the last name in a path means which means one; None where none does."""
    for part in reversed(parts):
        subset = subset_of(part)
        if subset is not None:
            return subset
    return None


def is_neutral(name: str) -> bool:
    """Whether a name has only words that carry no meaning: `images`, `_annotations.coco`."""
    words = _LETTERS_OR_DIGITS.findall(name)
    return {word.casefold() for word in words} <= NEUTRAL


def is_subset_word(name: str) -> bool:
    """Whether a name is one word for a subset, and nothing else."""
    return name.casefold() in SUBSET_BY_WORD


def words_of(name: str) -> set[str]:
    """The words and numbers of a name that carry a meaning, in lower case.

    Each word for a subset is the subset.
    """
    words: set[str] = set()
    for word in _LETTERS_OR_DIGITS.findall(_CAMEL_CASE.sub(" ", name)):
        folded = word.casefold()
        if folded not in NEUTRAL:
            words.add(SUBSET_BY_WORD.get(folded, folded))
    return words


def subsets_of(names: Iterable[str]) -> dict[str, str | None]:
    """The subset that each of several names means, read together.

    Where none means one by itself, the words that all have in common carry no meaning, if each
    name then means a subset: `pets_train` and `pets_val` do; `train_station` and `bus_station` do
    not.
    """
    distinct = list(dict.fromkeys(names))
    subset_by_name = {name: subset_of(name) for name in distinct}
    if any(subset_by_name.values()) or len(distinct) < 2:
        return subset_by_name
    in_all = set.intersection(*(_all_words(name) for name in distinct))
    without_common = {name: _without(name, in_all) for name in distinct}
    subsets = {name: subset_of(rest) for name, rest in without_common.items()}
    if all(subsets.values()) and len(set(subsets.values())) > 1:
        return subsets
    return subset_by_name


@dataclass(frozen=True)
class SubsetNames:
    """The meaning of the names of a dataset's parts.

    Args:
        chosen: Subset → the name that is taken for it, in the order of `SUBSETS`.
        rivals: Subset → further names that mean it as well.
        others: Names that mean no subset.
    """

    chosen: dict[str, str]
    rivals: dict[str, list[str]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    @property
    def are_subsets(self) -> bool:
        """Whether the names divide a dataset.

        One word for a subset among other names does not: beside `beach` and `market`, `train` may
        be a scene.
        """
        return len(self.chosen) > 1 or (bool(self.chosen) and not self.others)

    @property
    def assumed(self) -> dict[str, str]:
        """Subset → the one other name beside a single name that means a subset; else empty.

        `holdout` beside `train` is assumed to be `test`, and `photos` beside `val` or `test` to be
        `train`. If both were read as one set, a detector would be tested on images that it may
        have been trained on.
        """
        if len(self.chosen) != 1 or len(self.others) != 1:
            return {}
        subset = "test" if "train" in self.chosen else "train"
        return {subset: self.others[0]}

    @property
    def unused(self) -> list[str]:
        """The names that are not taken for a subset, though others are."""
        names = [name for rivals in self.rivals.values() for name in rivals]
        return [*names, *self.others]


def read_names(names: Iterable[str]) -> SubsetNames:
    """The meaning of the names of a dataset's parts: folders, files, splits.

    >>> read_names(["Test", "dev", "Training", "val"]).chosen
    {'train': 'Training', 'val': 'val', 'test': 'Test'}
    """
    subset_by_name = subsets_of(names)
    chosen: dict[str, str] = {}
    rivals: dict[str, list[str]] = {}
    for subset in SUBSETS:
        candidates = [name for name, meaning in subset_by_name.items() if meaning == subset]
        if candidates:
            first, *further = sorted(candidates, key=_preference)
            chosen[subset] = first
        if len(candidates) > 1:
            rivals[subset] = further
    others = [name for name, meaning in subset_by_name.items() if meaning is None]
    return SubsetNames(chosen, rivals, others)


def _preference(name: str) -> int:
    """The rank of a name among several for one subset; names of one rank stay in their order."""
    word = _subset_word(name)
    if word is None:
        return len(SUBSET_BY_WORD)
    return list(SUBSET_BY_WORD).index(word)


def _subset_word(name: str) -> str | None:
    """The word of `SUBSET_BY_WORD` that a name consists of, besides neutral words and numbers."""
    for words in _readings(name):
        meaningful = tuple(dict.fromkeys(word for word in words if word not in NEUTRAL))
        if meaningful in PAIRS:
            return PAIRS[meaningful]
        if len({SUBSET_BY_WORD.get(word) for word in meaningful}) == 1:
            word = meaningful[0]
            if word in SUBSET_BY_WORD:
                return word
    return None


def _readings(name: str) -> Iterator[Sequence[str]]:
    """The words of a name in lower case, without numbers.

    Read without regard to case (`TRAIN`, `Train`), then with a word at each capital (`ValImages`).
    """
    for text in (name, _CAMEL_CASE.sub(" ", name)):
        words: list[str] = []
        for word in _LETTERS_OR_DIGITS.findall(text):
            if not word.isdecimal():
                words += _without_set(word.casefold())
        yield words


def _without_set(word: str) -> list[str]:
    """A word, and that before `set` where it is a word for a subset: `trainset`, `testset`."""
    for ending in ("set", "sets"):
        if word.removesuffix(ending) in SUBSET_BY_WORD:
            return [word.removesuffix(ending)]
    return [word]


def _all_words(name: str) -> set[str]:
    words = _LETTERS_OR_DIGITS.findall(_CAMEL_CASE.sub(" ", name))
    return {word.casefold() for word in words}


def _without(name: str, words: set[str]) -> str:
    """A name without some of its words."""
    own_words = _LETTERS_OR_DIGITS.findall(_CAMEL_CASE.sub(" ", name))
    return " ".join(word for word in own_words if word.casefold() not in words)
