"""Which categories of a dataset are ID classes, overlap with one, or are near to one: proposals by their names.

Only equal names and synonyms are applied. What follows from similarity is written as a comment,
with the value: that two names are similar does not say whether a detector was taught the one by the
other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, Self, get_args

import numpy as np

from farther.curation.rules import VARIOUS, plain_name
from farther.datasets import ClassNames
from farther.datasets.hierarchy import read_synsets
from farther.datasets.wordnet import PUBLISHED, WordNet
from farther.images.clip import HUB, LOCAL, Encoder, EncoderParams

#: Similarity from which on two names are pointed out; see `difflib.SequenceMatcher`.
ALIKE = 0.8
#: Least similarity by WordNet of a near category: the widest threshold of Recalcati et al., 2023.
NEAR = 1 - PUBLISHED["T50"]

#: "same" is applied; "resembles" (by spelling), "overlap" and "near" are proposed in comments;
#: "unknown" is all else.
Relation = Literal["same", "resembles", "overlap", "near", "unknown"]


@dataclass(frozen=True)
class Proposal:
    """What a category was taken for.

    Args:
        category: Its name in the dataset.
        relation: To the ID class; the first that holds.
        id_class: The ID class, "" for an unknown category; "various" for several that the category
            contains.
        reason: Why, for a comment, with the similarity.
        similarity: Of what decided, 0 to 1; proposals are listed by it.
    """

    category: str
    relation: Relation = "unknown"
    id_class: str = ""
    reason: str = ""
    similarity: float = 0.0


@dataclass(frozen=True)
class Lookup:
    """Where names are looked up.

    Args:
        names: Names of the same class in different datasets.
        wordnet: WordNet, with the physical senses of nouns.
        clip: A CLIP, for the similarity of names.
    """

    names: ClassNames | None = None
    wordnet: WordNet | None = None
    clip: Encoder | None = None

    @classmethod
    def open(cls, data: Path, wordnet: str | Path | None = None, clip: str | None = None) -> Self:
        """Opens what is given.

        Args:
            data: Folder of `names/classes.yaml` and `similarity/synsets.yaml`.
            wordnet: WordNet's `dict` folder.
            clip: See `encoder_params`.
        """
        synsets = None if wordnet is None else read_synsets(data / "similarity/synsets.yaml")
        return cls(
            ClassNames(data / "names/classes.yaml"),
            None if wordnet is None else WordNet(wordnet, synsets, senses="physical"),
            None if clip is None else Encoder(encoder_params(clip)),
        )


def encoder_params(text: str) -> EncoderParams:
    """The CLIP that a text names: `local-dir:FOLDER`, `hf-hub:OWNER/NAME`, or `ARCHITECTURE:WEIGHTS` of open_clip."""
    if text.startswith((LOCAL, HUB)):
        return EncoderParams(model=text)
    model, _, pretrained = text.partition(":")
    return EncoderParams(model=model, pretrained=pretrained or None)


def propose(
    categories: Sequence[str], id_classes: Sequence[str], lookup: Lookup | None = None
) -> list[Proposal]:
    """One proposal per category.

    Args:
        categories: Categories of a dataset.
        id_classes: Names of the ID classes.
        lookup: Where names are looked up; names of equal or similar spelling are found without.
    """
    lookup = lookup or Lookup()
    found = _same(categories, id_classes, lookup)
    others = [name for name in categories if name not in found]
    proposals = [_resembling(others, id_classes)]
    proposals += [_by_wordnet(others, id_classes, lookup.wordnet)] if lookup.wordnet else []
    proposals += [_by_clip(others, id_classes, lookup.clip)] if lookup.clip else []
    for name in others:
        each = [by[name] for by in proposals if name in by] or [Proposal(name)]
        first = min(each, key=lambda one: get_args(Relation).index(one.relation))
        reasons = [one.reason for one in each if one.reason and one.id_class == first.id_class]
        found[name] = replace(first, reason=", ".join(reasons))
    return [found[name] for name in categories]


def _same(
    categories: Sequence[str], id_classes: Sequence[str], lookup: Lookup
) -> dict[str, Proposal]:
    """The categories that are ID classes."""
    synonyms = {} if lookup.names is None else _synonyms(lookup.names, [*categories, *id_classes])
    plain = {plain_name(name): name for name in id_classes}
    meanings = {synonyms[name]: name for name in id_classes if name in synonyms}
    found = {}
    for name in categories:
        if name in id_classes:
            found[name] = Proposal(name, "same", name, "the same name")
        elif plain_name(name) in plain:
            found[name] = Proposal(
                name, "same", plain[plain_name(name)], "the same name except for case or number"
            )
        elif (meaning := synonyms.get(name)) in meanings:
            found[name] = Proposal(
                name, "same", meanings[str(meaning)], "a synonym in farther's list"
            )
        elif lookup.wordnet and (synonym := _same_synset(name, id_classes, lookup.wordnet)):
            found[name] = Proposal(name, "same", synonym, "a synonym in WordNet")
    return found


def _synonyms(names: ClassNames, wanted: Sequence[str]) -> Mapping[str, str]:
    """The class that each name means in any dataset of a file of names, where all datasets agree."""
    found = {}
    for name in wanted:
        meanings = {
            names.meaning(name, dataset) for dataset in names.datasets if names.knows(name, dataset)
        }
        if len(meanings) == 1:
            found[name] = meanings.pop()
    return found


def _same_synset(name: str, id_classes: Sequence[str], wordnet: WordNet) -> str:
    """The ID class with a synset of a name, "" for none; only names that WordNet has whole."""
    synsets = set(wordnet.synsets(name)) if wordnet.has(name) else set()
    return next(
        (one for one in id_classes if wordnet.has(one) and synsets & set(wordnet.synsets(one))), ""
    )


def _resembling(categories: Sequence[str], id_classes: Sequence[str]) -> dict[str, Proposal]:
    """The categories that are spelt like an ID class."""
    plain = {plain_name(name): name for name in id_classes}
    close = {
        name: get_close_matches(plain_name(name), plain, n=1, cutoff=ALIKE) for name in categories
    }
    return {
        name: Proposal(name, "resembles", plain[one[0]], "similar spelling")
        for name, one in close.items()
        if one
    }


def _by_wordnet(
    categories: Sequence[str], id_classes: Sequence[str], wordnet: WordNet
) -> dict[str, Proposal]:
    """Kinds of ID classes, categories that contain ID classes, and categories that are near to one."""
    known = {word: name for name in id_classes if (word := _word(name, wordnet))}
    found = {}
    for name in categories:
        nearest = wordnet.nearest(word, known) if (word := _word(name, wordnet)) else None
        if nearest is None:
            continue
        above = [one for other, one in known.items() if wordnet.is_a(word, other)]
        below = [one for other, one in known.items() if wordnet.is_a(other, word)]
        relation: Relation = (
            "overlap" if above or below else "near" if nearest.mean >= NEAR else "unknown"
        )
        id_class, reason = known[nearest.other], f"WordNet {nearest.mean:.2f}"
        if above:
            id_class, reason = above[0], f"a kind of {above[0]} in WordNet"
        elif below:
            id_class, reason = (
                below[0] if len(below) == 1 else VARIOUS,
                f"in WordNet it includes {', '.join(below)}",
            )
        found[name] = Proposal(name, relation, id_class, reason, nearest.mean)
    return found


def _word(name: str, wordnet: WordNet) -> str:
    """A name if WordNet has it, else its last word, else "" ("wooden chair" is a chair)."""
    words = re.findall(r"[^\W_]+", name)
    return next((word for word in (name, *words[-1:]) if wordnet.has(word)), "")


def _by_clip(
    categories: Sequence[str], id_classes: Sequence[str], clip: Encoder
) -> dict[str, Proposal]:
    """Categories whose names are similar to that of an ID class.

    Cosines of models differ, so each is compared with those of the names themselves: a category
    more similar to an ID class than any two ID classes to each other overlaps, and one at least as
    similar as the names are to their nearest in the median is near.
    """
    names = [*id_classes, *categories]
    vectors = clip.names([name.replace("_", " ") for name in names])
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, -1)
    usual, known = float(np.median(cosine.max(axis=1))), len(id_classes)
    closest = float(cosine[:known, :known].max()) if known > 1 else 1.0
    found = {}
    for name, row in zip(categories, cosine[known:, :known], strict=True):
        value = float(row.max())
        relation: Relation = (
            "overlap" if value > closest else "near" if value >= usual else "unknown"
        )
        found[name] = Proposal(
            name, relation, id_classes[int(row.argmax())], f"CLIP {value:.2f}", value
        )
    return found
