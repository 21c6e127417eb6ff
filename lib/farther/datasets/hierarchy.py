"""Similarity of class names in a hierarchy of kinds: WordNet, or a YAML file."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from farther.datasets.records import are_texts, read_mapping
from farther.errors import DataError, shorten

Scale = Literal["normalised", "raw"]

#: Similarities of two names; "mean" is the mean of the others.
Measure = Literal["mean", "path", "wu_palmer", "leacock_chodorow"]

#: A kind in a hierarchy, by a name that is unique there: a synset ("dog.n.01"), or a name of the
#: file.
Node: TypeAlias = str


@dataclass(frozen=True, order=True)
class NameSimilarity:
    """Similarity of two names.

    Args:
        mean: Mean of the other three.
        path: 1 / (1 + edges of the shortest path).
        wu_palmer: Wu and Palmer (1994): depth of the lowest common hypernym, relative to the depths
            of both.
        leacock_chodorow: Leacock and Chodorow (1998): -log((1 + edges) / 2D), D the depth of the
            hierarchy.
        other: The name that the similarity is to.
    """

    mean: float
    path: float
    wu_palmer: float
    leacock_chodorow: float
    other: str = ""


class ClassHierarchy(ABC):
    """A hierarchy of kinds, in which class names are looked up.

    Args:
        path: The file or folder that it is read from.
        synsets: Class name → its nodes, or words that are looked up; see `read_synsets`.
        scale: "normalised": Leacock and Chodorow's similarity is divided by its largest value;
            "raw": it is not.
    """

    def __init__(
        self,
        path: str | Path,
        synsets: Mapping[str, Sequence[str]] | None = None,
        scale: Scale = "normalised",
    ):
        self.path = Path(path)
        self.scale = scale
        self._given = {name.casefold(): tuple(words) for name, words in (synsets or {}).items()}
        self._found: dict[str, tuple[Node, ...]] = {}
        self._distances: dict[Node, dict[Node, int]] = {}
        self._depths: dict[Node, tuple[int, int]] = {}

    @cached_property
    @abstractmethod
    def depth(self) -> int:
        """Edges of the longest path from the root."""

    @abstractmethod
    def nouns(self) -> list[str]:
        """All words for things, without those for people, groups and quantities where they are told apart."""

    @abstractmethod
    def _above(self, node: Node) -> Sequence[Node]:
        """The nodes directly above a node."""

    @abstractmethod
    def _first(self, word: str) -> Node | None:
        """The node of a word's first sense."""

    def _exact(self, name: str) -> Node | None:
        """The node of a name in the mapping: a node's name, or a word."""
        return self._first(name)

    def synsets(self, name: str) -> tuple[Node, ...]:
        """The nodes of a class name, as "horse.n.01"; () where there is none.

        They are those that the mapping gives; else the first noun of that name, or of its part
        before a slash ("field" of "field/wild"); else, for a compound name, the first noun of each
        of its words.

        Raises:
            DataError: the hierarchy does not have a node or word of the mapping.
        """
        if name not in self._found:
            given = self._given.get(name.casefold())
            nodes = (
                self._looked_up(name) if given is None else [self._exact(word) for word in given]
            )
            if given is not None and None in nodes:
                problem = f"the synset mapping of {name!r} names {given[nodes.index(None)]!r}, which this hierarchy lacks"
                raise DataError(problem, file=self.path)
            self._found[name] = tuple(node for node in nodes if node is not None)
        return self._found[name]

    def has(self, name: str) -> bool:
        """True if the mapping or the hierarchy has the whole name."""
        return name.casefold() in self._given or self._first(name) is not None

    def is_a(self, one: str, other: str) -> bool:
        """True if a node of the one name is, or is below, a node of the other."""
        return any(
            node in self._ancestors(below)
            for below in self.synsets(one)
            for node in self.synsets(other)
        )

    def similarity(self, one: str, other: str) -> NameSimilarity | None:
        """Similarity of two class names: that of their most similar nodes; None if one has none."""
        found = [self._pair(a, b, other) for a in self.synsets(one) for b in self.synsets(other)]
        return max(found, default=None)

    def nearest(
        self, name: str, among: Iterable[str], measure: Measure = "mean"
    ) -> NameSimilarity | None:
        """The most similar of several names; None if none has a node.

        Of equals it is one that the hierarchy has whole, not word by word, and of these the first.
        """
        found = [
            similarity
            for other in among
            if (similarity := self.similarity(name, other)) is not None
        ]

        def rank(similarity: NameSimilarity) -> tuple[float, bool]:
            return float(getattr(similarity, measure)), self._first(similarity.other) is not None

        return max(found, key=rank, default=None)

    def _looked_up(self, name: str) -> list[Node | None]:
        for whole in (name, name.partition("/")[0]):
            if (node := self._first(whole)) is not None:
                return [node]
        return [self._first(word) for word in re.findall(r"[^\W_]+", name)]

    def _pair(self, one: Node, other: Node, name: str) -> NameSimilarity:
        first, second = self._ancestors(one), self._ancestors(other)
        common = sorted(first.keys() & second.keys())
        path = wu_palmer = leacock_chodorow = 0.0
        if common:
            edges = min(first[node] + second[node] for node in common)
            path = 1 / (1 + edges)
            lowest = max(self._depth_of(node)[0] for node in common)
            deepest = [node for node in common if self._depth_of(node)[0] == lowest]
            above = one if one in deepest else deepest[0]
            depth = self._depth_of(above)[1] + 1
            wu_palmer = 2 * depth / (first[above] + second[above] + 2 * depth)
            if one == other:
                wu_palmer = (
                    1.0  # the formula gives less where paths of several lengths lead to the root
                )
            leacock_chodorow = math.log(2 * self.depth / (1 + edges))
            if self.scale == "normalised":
                leacock_chodorow /= math.log(2 * self.depth)
        return NameSimilarity(
            math.fsum((path, wu_palmer, leacock_chodorow)) / 3,
            path,
            wu_palmer,
            leacock_chodorow,
            name,
        )

    def _ancestors(self, node: Node) -> dict[Node, int]:
        """All nodes above a node and itself, and the edges of the shortest path to each."""
        if node not in self._distances:
            found = {node: 0}
            for above in self._above(node):
                for ancestor, edges in self._ancestors(above).items():
                    found[ancestor] = min(edges + 1, found.get(ancestor, edges + 1))
            self._distances[node] = found
        return self._distances[node]

    def _depth_of(self, node: Node) -> tuple[int, int]:
        """Edges of the shortest and of the longest path from the root."""
        if node not in self._depths:
            above = [self._depth_of(one) for one in self._above(node)]
            shortest, longest = (
                min((a for a, _ in above), default=-1),
                max((b for _, b in above), default=-1),
            )
            self._depths[node] = shortest + 1, longest + 1
        return self._depths[node]


class HierarchyFile(ClassHierarchy):
    """A hierarchy of kinds from a YAML file: `{animal: {carnivore: [dog, fox], equine: [horse, zebra]}}`.

    Args:
        path: The file: nested mappings, lists of the lowest kinds, null for a kind without any
            below. Case is ignored.
        synsets, scale: See `ClassHierarchy`.

    Raises:
        DataError: the file is absent, is not YAML of this form, or has a name twice.
    """

    def __init__(
        self,
        path: str | Path,
        synsets: Mapping[str, Sequence[str]] | None = None,
        scale: Scale = "normalised",
    ):
        super().__init__(path, synsets, scale)
        content = read_mapping(self.path, "one kind that contains all others")
        if len(content) != 1:
            raise DataError(
                f"expected one kind that contains all others, found {len(content)}", file=self.path
            )
        self._parent: dict[Node, Node | None] = {}
        self._add(content, None)

    @cached_property
    def depth(self) -> int:
        """Edges of the longest path from the root; at least 1."""
        return max(1, *(self._depth_of(node)[1] for node in self._parent))

    def _add(self, content: Any, above: Node | None) -> None:
        below = dict.fromkeys(content) if are_texts(content) else content
        if not isinstance(below, dict) or not all(isinstance(name, str) for name in below):
            raise DataError(
                f"expected names of kinds, found {shorten(content)}", file=self.path, field=above
            )
        for name, kinds in below.items():
            node = name.casefold()
            if node in self._parent:
                raise DataError(f"{name!r} occurs twice", file=self.path, field=above)
            self._parent[node] = above
            if kinds is not None:
                self._add(kinds, node)

    def nouns(self) -> list[str]:
        """See `ClassHierarchy.nouns`: all kinds."""
        return list(self._parent)

    def _above(self, node: Node) -> Sequence[Node]:
        above = self._parent[node]
        return () if above is None else (above,)

    def _first(self, word: str) -> Node | None:
        node = word.strip().casefold()
        return node if node in self._parent else None


def read_synsets(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Reads the mapping of class names to synsets.

    Args:
        path: YAML: class name → a synset ("rider.n.03"), a word of WordNet ("television set"), or a
            list of them. Case is ignored.

    Raises:
        DataError: the file is absent, is not YAML, or has another form; names the class.
    """
    mapping = {}
    for name, words in read_mapping(
        Path(path), "class names, each with its synset or synsets"
    ).items():
        listed = [words] if isinstance(words, str) else words
        if not isinstance(name, str) or not are_texts(listed):
            problem = f"expected a synset, a word, or a list of them; found {shorten(words)}"
            raise DataError(problem, file=path, field=str(name))
        mapping[name] = tuple(listed)
    return mapping
