"""Similarity of class names in a hierarchy of kinds: WordNet, or a YAML file.

References:
    Wu and Palmer, "Verb Semantics and Lexical Selection", 1994.
    Leacock and Chodorow, "Combining Local Context and WordNet Similarity for Word Sense
    Identification", 1998.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from farther.datasets.records import are_texts, read_mapping
from farther.errors import DataError, shorten

Scale = Literal["normalised", "raw"]

#: Similarities of two names; "mean" is the mean of the others.
Measure = Literal["mean", "path", "wu_palmer", "leacock_chodorow"]

#: A kind in a hierarchy, by its unique name there: a synset ("dog.n.01"), or a name in the file.
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


class _Depths(NamedTuple):
    """Edges of the shortest and of the longest path from the root to a node."""

    shortest: int
    longest: int


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
        self._mapping: dict[str, tuple[str, ...]] = {}
        for name, words in (synsets or {}).items():
            self._mapping[name.casefold()] = tuple(words)
        self._nodes_by_name: dict[str, tuple[Node, ...]] = {}
        self._ancestors_by_node: dict[Node, dict[Node, int]] = {}
        self._depths_by_node: dict[Node, _Depths] = {}

    @cached_property
    @abstractmethod
    def depth(self) -> int:
        """Edges of the longest path from the root."""

    @abstractmethod
    def nouns(self) -> list[str]:
        """All words for things.

        Words for people, groups and quantities are left out where the hierarchy marks them.
        """

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

        They are the nodes of the mapping; else the first noun of that name, or of its part before a
        slash ("field" of "field/wild"); else, for a compound name, the first noun of each of its
        words.

        Raises:
            DataError: the hierarchy does not have a node or word of the mapping.
        """
        if name not in self._nodes_by_name:
            if name.casefold() in self._mapping:
                self._nodes_by_name[name] = self._mapped_nodes(name)
            else:
                self._nodes_by_name[name] = self._nodes_of_words(name)
        return self._nodes_by_name[name]

    def has(self, name: str) -> bool:
        """True if the mapping or the hierarchy has the name, and not only its words."""
        return name.casefold() in self._mapping or self._first(name) is not None

    def is_a(self, name: str, ancestor: str) -> bool:
        """True if a node of `name` is, or is below, a node of `ancestor`."""
        ancestor_nodes = self.synsets(ancestor)
        for node in self.synsets(name):
            if not self._ancestors(node).keys().isdisjoint(ancestor_nodes):
                return True
        return False

    def similarity(self, name: str, reference: str) -> NameSimilarity | None:
        """Similarity of two class names: that of their most similar nodes; None if one has none.

        Args:
            name: A class name.
            reference: Another one, which the result is labelled with.
        """
        pairs = product(self.synsets(name), self.synsets(reference))
        similarities = [self._node_similarity(*pair, reference) for pair in pairs]
        return max(similarities, default=None)

    def nearest(
        self, name: str, among: Iterable[str], measure: Measure = "mean"
    ) -> NameSimilarity | None:
        """The most similar of several names; None if none has a node.

        Ties are resolved in favour of a name that the hierarchy has itself, not only its words, and
        then of the first one.
        """
        similarities = []
        for reference in among:
            similarity = self.similarity(name, reference)
            if similarity is not None:
                similarities.append(similarity)

        def rank(similarity: NameSimilarity) -> tuple[float, bool]:
            has_node = self._first(similarity.other) is not None
            return float(getattr(similarity, measure)), has_node

        return max(similarities, key=rank, default=None)

    def _mapped_nodes(self, name: str) -> tuple[Node, ...]:
        """The nodes that the mapping has for a name."""
        nodes = []
        for word in self._mapping[name.casefold()]:
            node = self._exact(word)
            if node is None:
                raise DataError(
                    f"the synset mapping of {name!r} names {word!r}, which this hierarchy lacks",
                    file=self.path,
                )
            nodes.append(node)
        return tuple(nodes)

    def _nodes_of_words(self, name: str) -> tuple[Node, ...]:
        """The node of a name or of its part before a slash, else the nodes of its words."""
        for term in (name, name.partition("/")[0]):
            node = self._first(term)
            if node is not None:
                return (node,)
        nodes = []
        for word in re.findall(r"[^\W_]+", name):
            node = self._first(word)
            if node is not None:
                nodes.append(node)
        return tuple(nodes)

    def _node_similarity(self, node: Node, reference: Node, name: str) -> NameSimilarity:
        """Similarity of two nodes; all similarities are 0 where they have no common ancestor.

        Args:
            node, reference: The nodes.
            name: Name of the reference, for `NameSimilarity.other`.
        """
        node_ancestors = self._ancestors(node)
        reference_ancestors = self._ancestors(reference)
        common = sorted(node_ancestors.keys() & reference_ancestors.keys())
        if not common:
            return NameSimilarity(0.0, 0.0, 0.0, 0.0, name)

        edges_by_ancestor = {
            ancestor: node_ancestors[ancestor] + reference_ancestors[ancestor]
            for ancestor in common
        }
        edges = min(edges_by_ancestor.values())
        path = 1 / (1 + edges)

        if node == reference:
            # The formula gives less than 1 where paths of several lengths lead to the root.
            wu_palmer = 1.0
        else:
            hypernym = self._lowest_hypernym(common, node)
            depth = self._depths(hypernym).longest + 1
            wu_palmer = 2 * depth / (edges_by_ancestor[hypernym] + 2 * depth)

        leacock_chodorow = math.log(2 * self.depth / (1 + edges))
        if self.scale == "normalised":
            leacock_chodorow /= math.log(2 * self.depth)
        mean = math.fsum((path, wu_palmer, leacock_chodorow)) / 3
        return NameSimilarity(mean, path, wu_palmer, leacock_chodorow, name)

    def _lowest_hypernym(self, common: Sequence[Node], node: Node) -> Node:
        """The lowest of several hypernyms of a node: the node itself among equals, else the first.

        Args:
            common: Common hypernyms, sorted.
            node: One of the nodes that they are common to.
        """
        lowest_depth = max(self._depths(ancestor).shortest for ancestor in common)
        lowest = [
            ancestor for ancestor in common if self._depths(ancestor).shortest == lowest_depth
        ]
        if node in lowest:
            return node
        return lowest[0]

    def _ancestors(self, node: Node) -> dict[Node, int]:
        """The node and all nodes above it, with the edges of the shortest path to each."""
        if node not in self._ancestors_by_node:
            ancestors = {node: 0}
            for above in self._above(node):
                for ancestor, edges in self._ancestors(above).items():
                    shortest = ancestors.get(ancestor, edges + 1)
                    ancestors[ancestor] = min(edges + 1, shortest)
            self._ancestors_by_node[node] = ancestors
        return self._ancestors_by_node[node]

    def _depths(self, node: Node) -> _Depths:
        """Depth of a node by its shortest and by its longest path from the root."""
        if node not in self._depths_by_node:
            depths_above = [self._depths(above) for above in self._above(node)]
            shortest = min((depths.shortest for depths in depths_above), default=-1)
            longest = max((depths.longest for depths in depths_above), default=-1)
            self._depths_by_node[node] = _Depths(shortest + 1, longest + 1)
        return self._depths_by_node[node]


class HierarchyFile(ClassHierarchy):
    """A hierarchy of kinds from a YAML file.

    The file has nested mappings: `{animal: {carnivore: [dog, fox], equine: [horse, zebra]}}`.

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
        return max(1, *(self._depths(node).longest for node in self._parent))

    def _add(self, content: Any, parent: Node | None) -> None:
        """Adds the kinds below a kind.

        Args:
            content: Mapping of the names of the kinds to what is below them, or list of the names.
            parent: The kind above them; None for the root.
        """
        if are_texts(content):
            content = dict.fromkeys(content)
        if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
            raise DataError(
                f"expected names of kinds, found {shorten(content)}", file=self.path, field=parent
            )
        for name, content_below in content.items():
            node = name.casefold()
            if node in self._parent:
                raise DataError(f"{name!r} occurs twice", file=self.path, field=parent)
            self._parent[node] = parent
            if content_below is not None:
                self._add(content_below, node)

    def nouns(self) -> list[str]:
        """All kinds; see `ClassHierarchy.nouns`."""
        return list(self._parent)

    def _above(self, node: Node) -> Sequence[Node]:
        parent = self._parent[node]
        if parent is None:
            return ()
        return (parent,)

    def _first(self, word: str) -> Node | None:
        node = word.strip().casefold()
        if node in self._parent:
            return node
        return None


def read_synsets(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Reads the mapping of class names to synsets.

    Args:
        path: YAML: class name → a synset ("rider.n.03"), a word of WordNet ("television set"), or a
            list of them. Case is ignored.

    Raises:
        DataError: the file is absent, is not YAML, or has another form; names the class.
    """
    content = read_mapping(Path(path), "class names, each with its synset or synsets")
    synsets_by_class = {}
    for name, value in content.items():
        words = [value] if isinstance(value, str) else value
        if not isinstance(name, str) or not are_texts(words):
            raise DataError(
                f"expected a synset, a word, or a list of them; found {shorten(value)}",
                file=path,
                field=str(name),
            )
        synsets_by_class[name] = tuple(words)
    return synsets_by_class
