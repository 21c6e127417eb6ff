"""Which categories of a dataset are ID classes: equal names, names that mean the same, and names that resemble."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from farther.datasets import ClassNames

#: Similarity from which on two names are pointed out; see `difflib.SequenceMatcher`.
ALIKE = 0.8


@dataclass(frozen=True)
class Proposal:
    """What a category was taken for.

    Args:
        category: Its name in the dataset.
        id_class: The ID class that it is; "" for an unknown one.
        reason: Why, for a comment.
        doubtful: The ID class that an unknown category's name resembles; "" for none.
    """

    category: str
    id_class: str
    reason: str
    doubtful: str = ""


def propose(
    categories: Sequence[str], id_classes: Sequence[str], names: Path | None = None, wordnet: Path | None = None
) -> list[Proposal]:
    """One proposal per category.

    Args:
        categories: Categories of a dataset.
        id_classes: Names of the ID classes.
        names: A file of names, see `farther.datasets.ClassNames`.
        wordnet: WordNet's `dict` folder.
    """
    synonyms = {} if names is None else _synonyms(ClassNames(names), [*categories, *id_classes])
    plain = {_plain(name): name for name in id_classes}
    meanings = {synonyms[name]: name for name in id_classes if name in synonyms}
    same = {} if wordnet is None else _same_synset(wordnet, categories, id_classes)
    found = []
    for category in categories:
        if category in id_classes:
            found.append(Proposal(category, category, "the same name"))
        elif _plain(category) in plain:
            found.append(Proposal(category, plain[_plain(category)], "the same name but for case or number"))
        elif (meaning := synonyms.get(category)) in meanings:
            found.append(Proposal(category, meanings[str(meaning)], "a synonym by data/names/classes.yaml"))
        elif category in same:
            found.append(Proposal(category, same[category], "a synonym by WordNet"))
        else:
            close = get_close_matches(_plain(category), plain, n=1, cutoff=ALIKE)
            found.append(Proposal(category, "", "unknown", plain[close[0]] if close else ""))
    return found


def _plain(name: str) -> str:
    """A name in lower case, in the singular, without blanks and punctuation."""
    return re.sub(r"[\W_]", "", name.casefold()).removesuffix("s")


def _synonyms(names: ClassNames, wanted: Sequence[str]) -> Mapping[str, str]:
    """The class that each name means in any dataset of a file of names, where all datasets agree."""
    found = {}
    for name in wanted:
        meanings = {names.meaning(name, dataset) for dataset in names.datasets if names.knows(name, dataset)}
        if len(meanings) == 1:
            found[name] = meanings.pop()
    return found


def _same_synset(wordnet: Path, categories: Sequence[str], id_classes: Sequence[str]) -> dict[str, str]:
    from farther.datasets.wordnet import WordNet

    hierarchy = WordNet(wordnet)
    nearest = {category: hierarchy.nearest(category, id_classes) for category in categories}
    return {name: one.other for name, one in nearest.items() if one is not None and one.path == 1}
