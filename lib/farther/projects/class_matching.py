"""Matching of a dataset's categories with ID classes by their names.

A category is an ID class, overlaps with one, is near to one, or is unknown. Only equal names and
synonyms are applied. Matches by similarity are suggestions, written as comments with the
similarity: similar names do not say whether a detector was trained on both.
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
#: Lowest similarity by WordNet of a near category: the widest threshold of Recalcati et al., 2023.
NEAR = 1 - PUBLISHED["T50"]

#: "same" is applied; "resembles" (by spelling), "overlap" and "near" are suggested in comments;
#: "unknown" is everything else.
Relation = Literal["same", "resembles", "overlap", "near", "unknown"]


@dataclass(frozen=True)
class ClassMatch:
    """The relation of a category to the ID classes.

    Args:
        category: Its name in the dataset.
        relation: To the ID class; the first of `Relation` that holds.
        id_class: The ID class, "" for an unknown category; "various" for several that the category
            contains.
        reason: The reason, with the similarity, for a comment.
        similarity: The similarity that decided, 0 to 1; matches are listed by it.
    """

    category: str
    relation: Relation = "unknown"
    id_class: str = ""
    reason: str = ""
    similarity: float = 0.0


@dataclass(frozen=True)
class Lookup:
    """Sources of synonyms and of similarities of names.

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
        """Opens the sources.

        Args:
            data: Folder of `names/classes.yaml` and `similarity/synsets.yaml`.
            wordnet: WordNet's `dict` folder; None to do without.
            clip: See `encoder_params`; None to do without.
        """
        opened_wordnet = None
        if wordnet is not None:
            synsets = read_synsets(data / "similarity/synsets.yaml")
            opened_wordnet = WordNet(wordnet, synsets, senses="physical")
        encoder = None
        if clip is not None:
            encoder = Encoder(encoder_params(clip))
        return cls(ClassNames(data / "names/classes.yaml"), opened_wordnet, encoder)


def encoder_params(text: str) -> EncoderParams:
    """The parameters of a CLIP.

    Args:
        text: `local-dir:FOLDER`, `hf-hub:OWNER/NAME`, or `ARCHITECTURE:WEIGHTS` of open_clip.
    """
    if text.startswith((LOCAL, HUB)):
        return EncoderParams(model=text)
    model, _, pretrained = text.partition(":")
    return EncoderParams(model=model, pretrained=pretrained or None)


def match_classes(
    categories: Sequence[str], id_classes: Sequence[str], lookup: Lookup | None = None
) -> list[ClassMatch]:
    """One match per category.

    Args:
        categories: Categories of a dataset.
        id_classes: Names of the ID classes.
        lookup: Sources of synonyms and similarities; without, names are compared by spelling.
    """
    lookup = lookup or Lookup()
    match_by_category = _same_classes(categories, id_classes, lookup)
    remaining = [name for name in categories if name not in match_by_category]
    matches_by_source = [_by_spelling(remaining, id_classes)]
    if lookup.wordnet:
        matches_by_source.append(_by_wordnet(remaining, id_classes, lookup.wordnet))
    if lookup.clip:
        matches_by_source.append(_by_clip(remaining, id_classes, lookup.clip))
    for name in remaining:
        matches = [matches[name] for matches in matches_by_source if name in matches]
        match_by_category[name] = _strongest(name, matches)
    return [match_by_category[name] for name in categories]


def _strongest(category: str, matches: Sequence[ClassMatch]) -> ClassMatch:
    """The match with the first relation, and all reasons for its ID class."""
    if not matches:
        return ClassMatch(category)
    strongest = min(matches, key=_precedence)
    of_its_class = [match for match in matches if match.id_class == strongest.id_class]
    reasons = [match.reason for match in of_its_class if match.reason]
    return replace(strongest, reason=", ".join(reasons))


def _precedence(match: ClassMatch) -> int:
    return get_args(Relation).index(match.relation)


def _same_classes(
    categories: Sequence[str], id_classes: Sequence[str], lookup: Lookup
) -> dict[str, ClassMatch]:
    """Matches of the categories that are ID classes."""
    meaning_by_name: Mapping[str, str] = {}
    if lookup.names is not None:
        meaning_by_name = _meanings(lookup.names, [*categories, *id_classes])
    class_by_plain_name = {plain_name(name): name for name in id_classes}
    named_classes = [name for name in id_classes if name in meaning_by_name]
    class_by_meaning = {meaning_by_name[name]: name for name in named_classes}

    matches = {}
    for name in categories:
        if name in id_classes:
            matches[name] = ClassMatch(name, "same", name, "the same name")
            continue
        id_class = class_by_plain_name.get(plain_name(name))
        if id_class is not None:
            reason = "the same name except for case or number"
            matches[name] = ClassMatch(name, "same", id_class, reason)
            continue
        if name in meaning_by_name and meaning_by_name[name] in class_by_meaning:
            id_class = class_by_meaning[meaning_by_name[name]]
            matches[name] = ClassMatch(name, "same", id_class, "a synonym in farther's list")
            continue
        if lookup.wordnet:
            synonym = _class_with_same_synset(name, id_classes, lookup.wordnet)
            if synonym:
                matches[name] = ClassMatch(name, "same", synonym, "a synonym in WordNet")
    return matches


def _meanings(class_names: ClassNames, names: Sequence[str]) -> Mapping[str, str]:
    """The class that each name means in a file of names; only if all datasets with it agree."""
    meaning_by_name = {}
    for name in names:
        datasets = [dataset for dataset in class_names.datasets if class_names.knows(name, dataset)]
        meanings = {class_names.meaning(name, dataset) for dataset in datasets}
        if len(meanings) == 1:
            meaning_by_name[name] = meanings.pop()
    return meaning_by_name


def _class_with_same_synset(name: str, id_classes: Sequence[str], wordnet: WordNet) -> str:
    """The ID class with a synset of a name, "" for none.

    Names of several words count only if WordNet has them as a whole.
    """
    if not wordnet.has(name):
        return ""
    synsets = set(wordnet.synsets(name))
    for id_class in id_classes:
        if wordnet.has(id_class) and synsets & set(wordnet.synsets(id_class)):
            return id_class
    return ""


def _by_spelling(categories: Sequence[str], id_classes: Sequence[str]) -> dict[str, ClassMatch]:
    """Matches of the categories that are spelt like an ID class."""
    class_by_plain_name = {plain_name(name): name for name in id_classes}
    matches = {}
    for name in categories:
        similar_names = get_close_matches(plain_name(name), class_by_plain_name, n=1, cutoff=ALIKE)
        if similar_names:
            id_class = class_by_plain_name[similar_names[0]]
            matches[name] = ClassMatch(name, "resembles", id_class, "similar spelling")
    return matches


def _by_wordnet(
    categories: Sequence[str], id_classes: Sequence[str], wordnet: WordNet
) -> dict[str, ClassMatch]:
    """Matches of kinds of ID classes, of categories that contain some, and of near categories."""
    class_by_word = {}
    for id_class in id_classes:
        word = _word(id_class, wordnet)
        if word:
            class_by_word[word] = id_class

    matches = {}
    for name in categories:
        word = _word(name, wordnet)
        nearest = wordnet.nearest(word, class_by_word) if word else None
        if nearest is None:
            continue
        similarity = nearest.mean
        above = []
        below = []
        for class_word, id_class in class_by_word.items():
            if wordnet.is_a(word, class_word):
                above.append(id_class)
            if wordnet.is_a(class_word, word):
                below.append(id_class)
        if above:
            reason = f"a kind of {above[0]} in WordNet"
            match = ClassMatch(name, "overlap", above[0], reason, similarity)
        elif below:
            id_class = below[0] if len(below) == 1 else VARIOUS
            reason = f"in WordNet it includes {', '.join(below)}"
            match = ClassMatch(name, "overlap", id_class, reason, similarity)
        else:
            relation: Relation = "near" if similarity >= NEAR else "unknown"
            id_class = class_by_word[nearest.other]
            match = ClassMatch(name, relation, id_class, f"WordNet {similarity:.2f}", similarity)
        matches[name] = match
    return matches


def _word(name: str, wordnet: WordNet) -> str:
    """A name if WordNet has it, else its last word, else "" ("wooden chair" is a chair)."""
    words = re.findall(r"[^\W_]+", name)
    for word in (name, *words[-1:]):
        if wordnet.has(word):
            return word
    return ""


def _by_clip(
    categories: Sequence[str], id_classes: Sequence[str], clip: Encoder
) -> dict[str, ClassMatch]:
    """Matches of categories whose names are similar to that of an ID class.

    Cosines of models differ, so each is compared with those of the names themselves: a category
    more similar to an ID class than any two ID classes to each other overlaps, and one at least as
    similar as the median similarity of a name to its nearest other name is near.
    """
    names = [*id_classes, *categories]
    vectors = clip.names([name.replace("_", " ") for name in names])
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, -1)
    class_count = len(id_classes)
    near_above = float(np.median(cosine.max(axis=1)))
    overlap_above = 1.0
    if class_count > 1:
        overlap_above = float(cosine[:class_count, :class_count].max())

    matches = {}
    for name, row in zip(categories, cosine[class_count:, :class_count], strict=True):
        similarity = float(row.max())
        relation: Relation = "unknown"
        if similarity > overlap_above:
            relation = "overlap"
        elif similarity >= near_above:
            relation = "near"
        id_class = id_classes[int(row.argmax())]
        matches[name] = ClassMatch(name, relation, id_class, f"CLIP {similarity:.2f}", similarity)
    return matches
