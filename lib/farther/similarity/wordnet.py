"""Similarity of class names by WordNet's hierarchy of nouns, and the resulting distance of a class: ID, near or far.

The mean of three path-based similarities, with a threshold, tells which classes of another dataset count as ID in
"OOD detection with a realistic benchmark" (Table IV: T40, T45, T50). That table has *more* ID classes at T50 than at
T40, so its threshold cannot be the least similarity of an ID class; read as the largest distance (1 - similarity), it
fits. The paper does not say how it brings Leacock and Chodorow's similarity, which is not bounded by 1, to the scale
of the others; here it is divided by its largest value, unless `leacock_chodorow` is "raw".
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from farther.datasets.records import are_texts, read_yaml
from farther.errors import DataError, FartherError, ParameterError
from farther.registry import STRICT

#: Files that NLTK's reader opens. `index.sense`, `cntlist.rev` and the verbs' frames are not needed for similarities.
NEEDED = (
    "lexnames",
    *(f"{kind}.{part}" for kind in ("index", "data") for part in ("noun", "verb", "adj", "adv")),
    *(f"{part}.exc" for part in ("noun", "verb", "adj", "adv")),
)

Scale = Literal["normalised", "raw"]

#: The published thresholds, as the largest distance (1 - mean similarity) of an ID class.
PUBLISHED = {"T40": 0.40, "T45": 0.45, "T50": 0.50}


@checked(config=STRICT, kw_only=True)
class WordNetParams:
    """Parameters of WordNet's similarities.

    Args:
        folder: WordNet's `dict` folder (`data.noun`, `index.noun`, `lexnames`, …), of version 3.0 or 3.1.
        synsets: YAML file that maps class names to synsets; see `read_synsets`. None: names are looked up as they are.
        threshold: The largest distance of an ID class: "T40", "T45", "T50", or a number.
        near: The largest distance of a near class.
        leacock_chodorow: "normalised": that similarity is divided by its largest value, log 2D; "raw": it is not.
    """

    folder: Path
    synsets: Path | None = None
    threshold: Literal["T40", "T45", "T50"] | Annotated[float, Field(ge=0, le=1)] = "T40"
    near: Annotated[float, Field(ge=0, le=1)] = 0.60
    leacock_chodorow: Scale = "normalised"

    @property
    def id_distance(self) -> float:
        """`threshold` as a number."""
        return PUBLISHED[self.threshold] if isinstance(self.threshold, str) else self.threshold

    def __post_init__(self) -> None:
        if self.near < self.id_distance:
            raise ParameterError(f"parameter 'near': {self.near} is below the threshold of ID, {self.id_distance}")


@dataclass(frozen=True, order=True)
class NameSimilarity:
    """Similarity of two names.

    Args:
        mean: Mean of the other three.
        path: 1 / (1 + edges of the shortest path).
        wu_palmer: Wu and Palmer (1994): depth of the lowest common hypernym, relative to the depths of both.
        leacock_chodorow: Leacock and Chodorow (1998): -log((1 + edges) / 2D), D the depth of the hierarchy.
        other: The name that the similarity is to.
    """

    mean: float
    path: float
    wu_palmer: float
    leacock_chodorow: float
    other: str = ""


class WordNet:
    """A local WordNet, read by NLTK.

    Args:
        folder: Its `dict` folder.
        synsets: Class name → its synsets ("rider.n.03") or words ("television set").
        scale: See `WordNetParams.leacock_chodorow`.

    Raises:
        FartherError: NLTK is not installed.
        DataError: the folder does not hold WordNet's files.
    """

    def __init__(
        self, folder: str | Path, synsets: Mapping[str, Sequence[str]] | None = None, scale: Scale = "normalised"
    ):
        self.folder = Path(folder)
        self.scale = scale
        self._given = {name.casefold(): tuple(words) for name, words in (synsets or {}).items()}
        self._reader = _open(self.folder)
        self._found: dict[str, tuple[Any, ...]] = {}

    def synsets(self, name: str) -> tuple[str, ...]:
        """The synsets of a class name, as "horse.n.01"; () where there is none.

        They are those that the mapping gives; else the first noun of that name; else, for a compound name, the first
        noun of each of its words.

        Raises:
            DataError: WordNet does not have a synset or word of the mapping.
        """
        return tuple(synset.name() for synset in self._synsets(name))

    def similarity(self, one: str, other: str) -> NameSimilarity | None:
        """Similarity of two class names: that of their most similar synsets; None if one has none."""
        found = [self._pair(a, b, other) for a in self._synsets(one) for b in self._synsets(other)]
        return max(found, default=None)

    def nearest(self, name: str, among: Iterable[str]) -> NameSimilarity | None:
        """The most similar of several names, the first of equals; None if none has a synset."""
        found = [similarity for other in among if (similarity := self.similarity(name, other)) is not None]
        return max(found, key=lambda similarity: similarity.mean, default=None)

    def _synsets(self, name: str) -> tuple[Any, ...]:
        if name not in self._found:
            given = self._given.get(name.casefold())
            self._found[name] = self._looked_up(name) if given is None else self._mapped(name, given)
        return self._found[name]

    def _mapped(self, name: str, words: Sequence[str]) -> tuple[Any, ...]:
        found = []
        for word in words:
            synset = self._synset(word) if re.fullmatch(r".+\.n\.\d\d", word) else self._first(word)
            if synset is None:
                problem = f"the synset mapping of {name!r} names {word!r}, which this WordNet does not have"
                raise DataError(problem, file=self.folder)
            found.append(synset)
        return tuple(found)

    def _looked_up(self, name: str) -> tuple[Any, ...]:
        whole = self._first(name)
        if whole is not None:
            return (whole,)
        words = [self._first(word) for word in re.findall(r"\w+", name)]
        return tuple(synset for synset in words if synset is not None)

    def _first(self, word: str) -> Any:
        found = self._reader.synsets(re.sub(r"[\s-]+", "_", word.strip().lower()), "n")
        return found[0] if found else None

    def _synset(self, name: str) -> Any:
        from nltk.corpus.reader.wordnet import WordNetError

        try:
            return self._reader.synset(name)
        except WordNetError:
            return None

    def _pair(self, one: Any, other: Any, name: str) -> NameSimilarity:
        path, wu_palmer = one.path_similarity(other) or 0.0, one.wup_similarity(other) or 0.0
        leacock_chodorow = one.lch_similarity(other) or 0.0
        if self.scale == "normalised":
            leacock_chodorow /= one.lch_similarity(one)
        return NameSimilarity(
            math.fsum((path, wu_palmer, leacock_chodorow)) / 3, path, wu_palmer, leacock_chodorow, name
        )


def distance_of(similarity: NameSimilarity, params: WordNetParams) -> str:
    """Distance of a class by its similarity to the nearest ID class: ID, near or far."""
    distance = 1 - similarity.mean
    if distance <= params.id_distance:
        return "ID"
    return "near" if distance <= params.near else "far"


def read_synsets(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Reads the mapping of class names to synsets.

    Args:
        path: YAML: class name → a synset ("rider.n.03"), a word of WordNet ("television set"), or a list of them.
            Case is ignored.

    Raises:
        DataError: the file is absent, is not YAML, or has another form; names the class.
    """
    path = Path(path)
    written = read_yaml(path)
    if not isinstance(written, dict):
        raise DataError("expected class names, each with its synset or synsets", file=path)
    mapping = {}
    for name, words in written.items():
        listed = [words] if isinstance(words, str) else words
        if not isinstance(name, str) or not are_texts(listed):
            raise DataError(
                f"expected a synset, a word, or a list of them; found {words!r}", file=path, field=str(name)
            )
        mapping[name] = tuple(listed)
    return mapping


def _open(folder: Path) -> Any:
    try:
        import nltk.data
        from nltk.corpus.reader.wordnet import WordNetCorpusReader
    except ImportError as error:
        raise FartherError("WordNet is read by NLTK: pip install 'farther[wordnet]'") from error

    class Reader(WordNetCorpusReader):
        """Without the map to WordNets in other languages, which needs a second WordNet."""

        def map_wn(self, version: str = "wordnet") -> None:
            """No map."""

    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing:
        problem = f"WordNet is not here, {missing[0]} is missing: unpack WordNet 3.0 or 3.1 and name its 'dict' folder"
        raise DataError(problem, file=folder)
    root = str(folder.resolve())
    if root not in nltk.data.path:
        nltk.data.path.append(root)  # NLTK reads only from folders in this list
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about the multilingual functions, which are not used
        try:
            return Reader(root, None)
        except MemoryError:
            raise
        except Exception as error:  # a damaged line raises ValueError, AssertionError, WordNetError, …
            problem = f"WordNet's files are damaged: {error or type(error).__name__}"
            raise DataError(problem, file=folder) from None
