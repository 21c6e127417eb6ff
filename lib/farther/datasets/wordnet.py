"""Similarity of class names in WordNet, and the resulting distance of a class: ID, near or far.

The mean of three path-based similarities, with a threshold, decides which classes of another
dataset count as ID in Recalcati et al., 2023, arXiv:2404.10474 (Table IV: T40, T45, T50). That
table has *more* ID classes at T50 than at T40, so its threshold cannot be the least similarity of
an ID class; read as the largest distance (1 - similarity), it fits. The paper does not say how it
brings Leacock and Chodorow's similarity, which is not bounded by 1, to the scale of the others;
here it is divided by its largest value, unless `leacock_chodorow` is "raw".
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from farther.datasets.hierarchy import ClassHierarchy, HierarchyFile, NameSimilarity, Node, Scale
from farther.errors import DataError, FartherError, ParameterError, first_line
from farther.naming.registry import STRICT, Parameters
from farther.tables.endings import YAML, has_ending
from farther.tables.files import is_file
from farther.tables.folders import listed, resolved

# Imported in functions: nltk, an optional package.

#: Files that a folder of WordNet has.
NEEDED = ("index.noun", "data.noun")
#: Largest number of bytes of a file of WordNet; NLTK reads its lines without a limit.
LARGEST = 2**27

#: The node above all physical things.
PHYSICAL = "physical_entity.n.01"
#: The node above all people.
PERSON = "person.n.01"

#: Lexicographers' files whose nouns name no thing, by name and by number; NegLabel's published code
#: leaves them out.
NO_THINGS = {"noun.group", "14", "noun.person", "18", "noun.quantity", "23"}

#: Number of lexicographers' files, which `lexnames` names.
LEXICAL_FILES = 45

#: The published thresholds, as the largest distance (1 - mean similarity) of an ID class.
PUBLISHED = {"T40": 0.40, "T45": 0.45, "T50": 0.50}


@checked(config=STRICT, kw_only=True)
class WordNetParams(Parameters):
    """A local WordNet, and the distances of class names at which classes are ID, near or far.

    Args:
        folder: WordNet's `dict` folder (`data.noun`, `index.noun`, `lexnames`, …), of version 3.0
            or 3.1.
        synsets: YAML file that maps class names to synsets: the name, then a synset
            ("rider.n.03"), a word of WordNet, or a list of them. None: names are looked up as they
            are.
        threshold: The largest distance of an ID class: "T40", "T45", "T50", or a number.
        near: The largest distance of a near class.
        leacock_chodorow: "normalised": Leacock and Chodorow's similarity is divided by its
            largest value, log 2D; "raw": it is not.
    """

    folder: Path
    synsets: Path | None = None
    threshold: Literal["T40", "T45", "T50"] | Annotated[float, Field(ge=0, le=1)] = "T40"
    near: Annotated[float, Field(ge=0, le=1)] = 0.60
    leacock_chodorow: Scale = "normalised"

    @property
    def id_distance(self) -> float:
        """`threshold` as a number."""
        if isinstance(self.threshold, str):
            return PUBLISHED[self.threshold]
        return self.threshold

    def __post_init__(self) -> None:
        if self.near < self.id_distance:
            raise ParameterError(
                f"parameter 'near': {self.near} is below the threshold of ID, {self.id_distance}"
            )


class WordNet(ClassHierarchy):
    """A local WordNet, read by NLTK.

    Args:
        path: Its `dict` folder.
        synsets: Class name → its synsets ("rider.n.03") or words ("television set").
        scale: See `WordNetParams.leacock_chodorow`.
        senses: The sense of a word: its "first", or the first "physical" one where it has one
            ("van" is a truck, not the avant-garde; "crane" is not Stephen Crane; "mug" is neither a
            quantity nor a person).

    Raises:
        FartherError: NLTK is not installed.
        DataError: the folder does not hold WordNet's files.
    """

    def __init__(
        self,
        path: str | Path,
        synsets: Mapping[str, Sequence[str]] | None = None,
        scale: Scale = "normalised",
        senses: Literal["first", "physical"] = "first",
    ):
        super().__init__(path, synsets, scale)
        self.senses = senses
        self._reader = _open(self.path)

    @cached_property
    def depth(self) -> int:
        """Edges of the longest path from the root, over all nouns."""
        return _undamaged(self._depth, self.path)

    def _depth(self) -> int:
        root = next(self._reader.all_synsets("n"))
        # The similarity of a node to itself is log 2D, for which NLTK computes D.
        return round(math.exp(root.lch_similarity(root)) / 2)

    def nouns(self) -> list[str]:
        """The words of all synsets, in WordNet's order; see `ClassHierarchy.nouns`."""
        return _undamaged(self._nouns, self.path)

    def _nouns(self) -> list[str]:
        words: dict[str, None] = {}
        for synset in self._reader.all_synsets("n"):
            if synset.lexname() not in NO_THINGS:
                for word in synset.lemma_names():
                    words[word.replace("_", " ")] = None
        return list(words)

    def _above(self, node: Node) -> Sequence[Node]:
        synset = self._reader.synset(node)
        hypernyms = (*synset.hypernyms(), *synset.instance_hypernyms())
        return [hypernym.name() for hypernym in hypernyms]

    def _first(self, word: str) -> Node | None:
        if re.fullmatch(r"n\d{8}", word):
            # ImageNet's folders have the offset of a synset in WordNet 3.0 as their name.
            return self._at(int(word[1:]))
        lemma = re.sub(r"[\s-]+", "_", word.strip().lower())
        nodes = [synset.name() for synset in self._reader.synsets(lemma, "n")]
        if not nodes:
            return None
        if self.senses == "first":
            return nodes[0]
        return self._first_physical(nodes)

    def _first_physical(self, nodes: Sequence[Node]) -> Node:
        """The first of several senses, or a later one that is a physical thing where it is not.

        Senses that are not people are preferred among the later ones.
        """
        if self._is_physical(nodes[0]):
            return nodes[0]
        physical = [node for node in nodes if self._is_physical(node)]
        for node in physical:
            if PERSON not in self._ancestors(node):
                return node
        if physical:
            return physical[0]
        return nodes[0]

    def _is_physical(self, node: Node) -> bool:
        """True for a kind of physical thing.

        False for a single thing ("Stephen Crane") and for abstractions.
        """
        if PHYSICAL not in self._ancestors(node):
            return False
        return not self._reader.synset(node).instance_hypernyms()

    def _at(self, offset: int) -> Node | None:
        """The noun at an offset in the file; None where there is none."""
        try:
            return str(self._reader.synset_from_pos_and_offset("n", offset).name())
        except DataError:
            return None

    def _exact(self, name: str) -> Node | None:
        from nltk.corpus.reader.wordnet import WordNetError

        if not re.fullmatch(r".+\.n\.\d\d", name):
            return self._first(name)
        try:
            return self._reader.synset(name).name()
        except WordNetError:
            return None


def open_hierarchy(
    path: str | Path,
    synsets: Mapping[str, Sequence[str]] | None = None,
    scale: Scale = "normalised",
) -> ClassHierarchy:
    """The hierarchy of a YAML file where `path` ends in .yaml, else WordNet.

    For arguments and errors see the two classes.
    """
    if has_ending(str(path), YAML):
        return HierarchyFile(path, synsets, scale)
    return WordNet(path, synsets, scale)


def distance_of(similarity: NameSimilarity, params: WordNetParams) -> str:
    """Distance of a class by its similarity to the nearest ID class: ID, near or far."""
    distance = 1 - similarity.mean
    if distance <= params.id_distance:
        return "ID"
    if distance <= params.near:
        return "near"
    return "far"


def _open(folder: Path) -> Any:
    """NLTK's reader of WordNet.

    Raises:
        FartherError: NLTK is not installed.
        DataError: a file of WordNet is absent, too large or damaged.
    """
    try:
        import nltk.data
        from nltk.corpus.reader.wordnet import WordNetCorpusReader
    except ImportError as error:
        raise FartherError("WordNet is read by NLTK: pip install 'farther[wordnet]'") from error

    class WordNetFiles(WordNetCorpusReader):
        """A WordNet without other languages, which may lack `lexnames`.

        NLTK maps WordNets of other languages by a second WordNet.
        """

        def open(self, file: str) -> Any:
            """A file of WordNet.

            Where `lexnames` is absent, its names are numbers: no similarity depends on them.
            """
            if file == "lexnames" and not is_file(folder / file):
                lines = [f"{number:02d}\t{number:02d}\t1\n" for number in range(LEXICAL_FILES)]
                return StringIO("".join(lines))
            return super().open(file)

        def map_wn(self, version: str = "wordnet") -> None:
            """No map."""

        def synset_from_pos_and_offset(self, pos: str, offset: int) -> Any:
            """The synset at an offset of a file; DataError where there is none."""
            synset = _undamaged(super().synset_from_pos_and_offset, folder, pos, offset)
            if synset is None:
                raise DataError(
                    f"WordNet's files are damaged, or no synset is at {offset}", file=folder
                )
            return synset

        def _synset_from_pos_and_line(self, pos: str, data_file_line: str) -> Any:
            return _undamaged(super()._synset_from_pos_and_line, folder, pos, data_file_line)

    _check_files(folder)
    root = str(resolved(folder))
    if root not in nltk.data.path:
        nltk.data.path.append(root)  # NLTK reads only from folders in this list
    return _undamaged(WordNetFiles, folder, root, None)


def _check_files(folder: Path) -> None:
    """Refuses a folder without WordNet's files, or with files that are too large for them."""
    for name in NEEDED:
        if not (folder / name).is_file():
            raise DataError(
                f"WordNet is not here, {name} is missing: unpack WordNet 3.0 or 3.1 and name its "
                "'dict' folder",
                file=folder,
            )
    for file in listed(folder, "*.*"):
        if not file.is_file():
            continue
        size = file.stat().st_size
        if size > LARGEST:
            raise DataError(
                f"{size:,} bytes; a file of WordNet has fewer than {LARGEST:,}", file=file
            )


def _undamaged(call: Callable[..., Any], folder: Path, *arguments: Any) -> Any:
    """The value of a function of NLTK.

    Raises:
        DataError: a file of WordNet is damaged, which raises nearly any error in NLTK.
    """
    try:
        with warnings.catch_warnings():
            # NLTK warns about functions for other languages, and about absent synsets.
            warnings.simplefilter("ignore", UserWarning)
            return call(*arguments)
    except (MemoryError, DataError):
        raise
    except Exception as error:
        raise DataError(f"WordNet's files are damaged: {first_line(error)}", file=folder) from None
