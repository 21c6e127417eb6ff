"""The rules of a benchmark: which categories are, overlap with, or are near to an ID class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.curation.class_similarity import FARTHEST, ROUNDING, ClassesBy, ClassSimilarity
from farther.curation.division import Division
from farther.curation.parameters import Benchmark
from farther.curation.sources import Categories
from farther.datasets import ClassNames
from farther.errors import DataError, ParameterError, known_names, shorten
from farther.naming.registry import STRICT, Parameters, build
from farther.tables import SortedClasses
from farther.tables.arguments import instance
from farther.tables.documents import read_yaml

Kind = Literal["ID class", "overlap", "near"]

#: Kinds of rules by falling precedence: a labelled ID class, an overlap with one, nearness to one.
PRECEDENCE: tuple[Kind, ...] = get_args(Kind)

#: Instead of an ID class, for a category that is near to, or overlaps with, several of them
#: (FMIYC's Table 6).
VARIOUS = "various"

#: Similarity of two names from which on one may be a misspelling of the other; see
#: `difflib.SequenceMatcher`.
ALIKE = 0.87

#: ID class → its names by dataset.
Names = Mapping[str, Mapping[str, Iterable[str]]]

#: Vocabulary of a dataset → ID class → categories.
Listing = dict[str, dict[str, list[str]]]


@dataclass(config=STRICT, frozen=True)
class CategoryRule(Parameters):
    """Consequence of a labelled category for its image.

    Args:
        kind: `ID class` and `overlap` remove the image, `near` puts it into the near split.
        category: The category, as the class mapping writes it.
        id_class: The ID class that it is, overlaps with, or is near to.
        similarity: Similarity of the two names, where it decided; see `ClassesBy`.
    """

    kind: Kind
    category: str
    id_class: str
    similarity: float | None = None

    def __str__(self) -> str:
        text = f"{self.kind}: {self.category} → {self.id_class}"
        if self.similarity is None:
            return text
        return f"{text} (similarity {self.similarity:.2f})"

    @property
    def precedence(self) -> int:
        """Its place in `PRECEDENCE`; the rule with the lowest decides."""
        return PRECEDENCE.index(self.kind)


@dataclass(config=STRICT, kw_only=True)
class _Lists(Parameters):
    """The lists of one protocol."""

    overlap: Listing = Field(default_factory=dict)
    near: Listing = Field(default_factory=dict)
    far: dict[str, list[str]] = Field(default_factory=dict)
    every_class_listed: bool = False
    classes_by: ClassesBy | None = None
    extends: str | None = None


@dataclass(config=STRICT, kw_only=True)
class _RulesFile(Parameters):
    """A class mapping with the names of its ID classes."""

    id_classes: dict[str, dict[str, list[str]]]
    protocols: dict[str, _Lists]
    similar: list[list[str]] = Field(default_factory=list)


@dataclass(config=STRICT, kw_only=True)
class _NamedRulesFile(_RulesFile):
    """A class mapping whose ID classes are a list, with their names in another file."""

    id_classes: list[str]  # type: ignore[assignment]
    names: str
    vocabulary: str


class Rules:
    """The rules of a benchmark under one protocol.

    Args:
        path: The class mapping, a YAML file. `id_classes` lists the ID classes as the dataset
            `vocabulary` calls them; the file `names` (see `farther.datasets.ClassNames`; relative
            to the class mapping) gives their names in other datasets. Without these two,
            `id_classes` gives each ID class with its names by dataset. `protocols` gives, for each
            protocol, the lists `overlap` and `near`, by dataset vocabulary and ID class. With
            `classes_by` (see `ClassesBy`), classes that no list names are sorted by the similarity
            of their names to the ID classes', but for those of the list `far`, by dataset
            vocabulary. With `every_class_listed`, people have sorted all classes: one that no list
            names is refused, and similarity decides nothing. A protocol may extend another one: its
            lists are added to the other's, and the other's `classes_by` counts if it has none.
            `similar` lists groups of ID classes that are easily confused, for the diagnosis of
            errors; a class may be in several, or in none.
        protocol: Name of one of the file's protocols.
        division: Divides the file's ID classes: the known ones are the ID classes. Rules on an
            unknown class, and on categories that overlap with one or are near to one, do not count.
        dataset: The ID dataset, whose unknown classes are near (see `VARIOUS`); used with a
            division only.

    Attributes:
        id_classes: Names of the ID classes, in the file's order.
        unknown_classes: The file's ID classes that the division takes for unknown; none without a
            division.
        similar: Groups of ID classes that are easily confused.

    Raises:
        DataError: the file is absent or is not YAML of this form; names file and field.
        ParameterError: the file has no such protocol; the division does not fit its ID classes.
    """

    def __init__(
        self,
        path: str | Path,
        protocol: str = "paper",
        division: Division | None = None,
        dataset: str = "",
    ):
        if not isinstance(path, (str, Path)):
            raise DataError(f"expected a path, found {shorten(path)}", field="path")
        self.path = Path(path)
        self.protocol = protocol
        content = _read(self.path)
        self._class_names: ClassNames | None = None
        names: Names = content.id_classes
        if isinstance(content, _NamedRulesFile):
            self._class_names = ClassNames(self.path.parent / content.names)
            names = _names_by_class(content.id_classes, self._class_names, content.vocabulary)

        self._all_classes = tuple(names)
        self.id_classes = self._all_classes
        if division is not None:
            self.id_classes = self._known_classes(division)
        self.unknown_classes = tuple(
            name for name in self._all_classes if name not in self.id_classes
        )
        self.similar = self._similar_groups(content.similar)

        chain = _chain(content.protocols, protocol, self.path)
        self.every_class_listed = any(lists.every_class_listed for lists in chain)
        self.classes_by = _first_classes_by(chain)
        self._similarity: ClassSimilarity | None = None
        self._rules: dict[str, list[CategoryRule]] = {}
        self._far: dict[str, set[str]] = {}
        for id_class, names_by_dataset in names.items():
            self._add("ID class", id_class, names_by_dataset)
        if division is not None:
            self._add_divided(dataset, names)
        for lists in chain:
            self._add_listing("overlap", lists.overlap)
            self._add_listing("near", lists.near)
            self._add_far(lists.far)

    def _known_classes(self, division: Division) -> tuple[str, ...]:
        """The known classes of a division; an error about them names the class mapping."""
        try:
            return division.known_classes(self._all_classes)
        except ParameterError as error:
            raise ParameterError(f"{self.path}: {error}") from None

    def _similar_groups(self, groups: Sequence[Sequence[str]]) -> list[list[str]]:
        """Groups of similar classes without the unknown ones; a single class is not a group."""
        absent = sorted(set().union(*groups) - set(self._all_classes))
        if absent:
            problem = f"{absent[0]!r} is not among id_classes"
            raise DataError(problem, file=self.path, field="similar")
        known_groups = []
        for group in groups:
            known = [name for name in group if name in self.id_classes]
            if len(known) > 1 or len(known) == len(group):
                known_groups.append(known)
        return known_groups

    def _add_divided(self, dataset: str, names: Names) -> None:
        """Rules on the ID dataset's classes: known ones are ID classes, unknown ones are near."""
        rules = self._rules.setdefault(dataset, [])
        for id_class in self._all_classes:
            categories = tuple(names[id_class].get(dataset, ())) or (id_class,)
            if id_class not in self.id_classes:
                rules += [CategoryRule("near", category, VARIOUS) for category in categories]
            elif dataset not in names[id_class]:
                rules += [CategoryRule("ID class", category, id_class) for category in categories]

    def _add_listing(self, kind: Kind, listing: Listing) -> None:
        """Adds the rules of a list of a protocol."""
        for vocabulary, categories_by_class in listing.items():
            # A vocabulary may have no category that a rule is about.
            self._rules.setdefault(vocabulary, [])
            for id_class, categories in categories_by_class.items():
                if id_class not in (*self._all_classes, VARIOUS):
                    problem = f"{id_class!r} is not among id_classes"
                    raise DataError(problem, file=self.path, field=f"{kind}.{vocabulary}")
                self._add(kind, id_class, {vocabulary: categories})

    def _add(
        self, kind: Kind, id_class: str, names_by_vocabulary: Mapping[str, Iterable[str]]
    ) -> None:
        for vocabulary, categories in names_by_vocabulary.items():
            rules = self._rules.setdefault(vocabulary, [])
            if id_class not in self.unknown_classes:
                rules += [CategoryRule(kind, category, id_class) for category in categories]

    def _add_far(self, categories_by_vocabulary: Mapping[str, Iterable[str]]) -> None:
        for vocabulary, categories in categories_by_vocabulary.items():
            self._rules.setdefault(vocabulary, [])
            far = self._far.setdefault(vocabulary, set())
            far.update(category.casefold() for category in categories)

    @property
    def vocabularies(self) -> tuple[str, ...]:
        """Names of the dataset vocabularies in the file."""
        return tuple(self._rules)

    def for_vocabulary(self, vocabulary: str) -> list[CategoryRule]:
        """The rules for datasets that use a vocabulary, in the file's order.

        With `classes_by`, a dataset for which the file does not name ID classes has the ID classes'
        names.

        Raises:
            ParameterError: the file has no such vocabulary; the message lists those it has.
        """
        rules = self._rules.get(vocabulary, [])
        names_id_classes = any(rule.kind == "ID class" for rule in rules)
        if self.classes_by is not None and not names_id_classes:
            own_names = [CategoryRule("ID class", name, name) for name in self.id_classes]
            return [*own_names, *rules]
        if vocabulary not in self._rules:
            id_class = next(iter(self.id_classes), "cat")
            raise ParameterError(
                f"{self.path}: no rules for the vocabulary {vocabulary!r}. "
                f"{known_names(self._rules)}. Name one of these as `vocabulary` of the split if "
                "its categories have those names; else give the ID classes their names there, as "
                f"`{id_class}: {{{vocabulary}: [NAME]}}`, or, if the dataset shows none of them, "
                f"write `{vocabulary}: {{}}` below `near` of the protocol"
            )
        return rules

    def by_category(self, vocabulary: str, categories: Categories) -> dict[str, CategoryRule]:
        """The rule that decides for each category of a dataset; categories without one are absent.

        The rule on a category's name decides. Where there is none, a rule of kind `ID class` or
        `overlap` on something above it in the dataset's class hierarchy decides, the nearest one: a
        hand is part of a person. Rules of kind `near` do not reach down: what is not on the near
        list is far (FMIYC, Appendix B). Where a name has several rules, the first in `PRECEDENCE`
        decides. Case is ignored.

        With `classes_by`, a category that none of these decides is sorted by similarity.

        Raises:
            ParameterError: see `of`.
            DataError: see `ClassSimilarity`; a category is in no list of a protocol with
                `every_class_listed`.
        """
        rule_by_name: dict[str, CategoryRule] = {}
        for rule in sorted(self.for_vocabulary(vocabulary), key=_precedence):
            rule_by_name.setdefault(rule.category.casefold(), rule)
        inherited = {name for name, rule in rule_by_name.items() if rule.kind != "near"}

        decisive: dict[str, CategoryRule] = {}
        unlisted = []
        for category in categories.names:
            names = [category]
            if category.casefold() not in rule_by_name:
                names = categories.nearest_above(category, inherited)
            rules = [rule_by_name[name.casefold()] for name in names]
            if rules:
                decisive[category] = min(rules, key=_precedence)
                continue
            if self._is_listed_far(vocabulary, category):
                continue
            if self.every_class_listed:
                unlisted.append(category)
                continue
            by_similarity = self._by_similarity(category)
            if by_similarity is not None:
                decisive[category] = by_similarity
        if unlisted:
            examples = ", ".join(unlisted[:3])
            problem = (
                f"{len(unlisted):,} of the {len(categories.names):,} classes of {vocabulary!r} are "
                f"in no list, such as {examples}: "
                "write each below `overlap` (OODness 1), `near` (2) or `far` (3)"
            )
            raise DataError(problem, file=self.path, field=f"protocols.{self.protocol}")
        return decisive

    def _is_listed_far(self, vocabulary: str, category: str) -> bool:
        return category.casefold() in self._far.get(vocabulary, ())

    @property
    def similarity(self) -> ClassSimilarity | None:
        """Similarity of class names to the ID classes; None without `classes_by`.

        Raises:
            DataError: see `ClassSimilarity`.
        """
        self.open_hierarchy()
        return self._similarity

    def open_hierarchy(self) -> None:
        """Opens the hierarchy of `classes_by`, if there is one and it is not open yet.

        Raises:
            DataError: see `ClassSimilarity`.
        """
        if self.classes_by is None or self._similarity is not None:
            return
        self._similarity = ClassSimilarity(self.classes_by, self.path.parent, self.id_classes)

    def _by_similarity(self, category: str) -> CategoryRule | None:
        """The rule on a category by its similarity to the nearest ID class."""
        if self.similarity is None:
            return None
        nearest = self.similarity.nearest(category)
        if nearest is None:
            return None
        id_class, similarity = nearest
        limits = self.similarity.by
        if similarity >= limits.overlap_above - ROUNDING:
            return CategoryRule("overlap", category, id_class, similarity)
        if similarity >= limits.near_above - ROUNDING:
            return CategoryRule("near", category, id_class, similarity)
        return None

    def sorted_classes(
        self, dataset: str, vocabulary: str, categories: Categories
    ) -> SortedClasses:
        """OODness of each category of a dataset; errors as for `by_category`."""
        decisive = self.by_category(vocabulary, categories)
        columns: dict[str, list[Any]] = {name: [] for name in SortedClasses.empty().names}
        for category in categories.names:
            nearest = None
            if self.similarity is not None:
                nearest = self.similarity.nearest(category)
            id_class, similarity = nearest or ("", -1.0)
            columns["nearest"].append(id_class)
            columns["similarity"].append(similarity)

            rule = decisive.get(category)
            if rule is None:
                columns["oodness"].append(FARTHEST)
                columns["rule"].append("")
            else:
                columns["oodness"].append(rule.precedence)
                columns["rule"].append(str(rule))
                id_class = rule.id_class
            columns["id_class"].append(id_class)
            columns["dataset"].append(dataset)
            columns["category"].append(category)
        return SortedClasses(**columns)

    def doubtful(
        self, vocabulary: str, categories: Categories, *, keeps_known: bool = False
    ) -> list[str]:
        """Messages about categories without a rule that resemble the name of an ID class.

        Such a category counts as unknown: it is a misspelling, or lacks a rule. The list `far` of a
        protocol says that it is unknown indeed.

        Args:
            vocabulary: The vocabulary of the dataset.
            categories: Its categories.
            keeps_known: Whether a category with the name of an ID class is one.

        Raises:
            ParameterError, DataError: as for `by_category`.
        """
        decisive = self.by_category(vocabulary, categories)
        id_class_by_name = self._id_class_by_plain_name()
        messages = []
        for category in categories.names:
            if category in decisive or self._is_listed_far(vocabulary, category):
                continue
            if keeps_known and category in self.id_classes:
                continue
            name = plain_name(category)
            similar_names = [name]
            if name not in id_class_by_name:
                similar_names = get_close_matches(name, id_class_by_name, n=1, cutoff=ALIKE)
            if similar_names:
                id_class = id_class_by_name[similar_names[0]]
                messages.append(
                    f"{self.path}: {vocabulary}: {category!r} has no rule and counts as unknown, "
                    f"but resembles the ID class {id_class!r}. "
                    f"List it as a name of that class, or under far.{vocabulary}"
                )
        return messages

    def _id_class_by_plain_name(self) -> dict[str, str]:
        """The ID class behind each plain name, in any vocabulary."""
        id_class_by_name = {plain_name(name): name for name in self.id_classes}
        for rules in self._rules.values():
            for rule in rules:
                if rule.kind == "ID class":
                    id_class_by_name[plain_name(rule.category)] = rule.id_class
        return id_class_by_name

    def unnamed(self, vocabulary: str, categories: Categories) -> list[str]:
        """The categories that a vocabulary has neither in a rule nor in the file of names.

        Raises:
            ParameterError, DataError: as for `by_category`.
        """
        decisive = self.by_category(vocabulary, categories)
        unnamed = []
        for name in categories.names:
            if name in decisive or self._is_listed_far(vocabulary, name):
                continue
            if self._class_names is not None and self._class_names.knows(name, vocabulary):
                continue
            unnamed.append(name)
        return unnamed

    def without_category(self, vocabulary: str, categories: Categories) -> list[CategoryRule]:
        """The rules on names that are neither categories of the dataset nor ancestors of one.

        Raises:
            ParameterError: as for `of`.
        """
        known = {name.casefold() for name in categories.all()}
        return [
            rule
            for rule in self.for_vocabulary(vocabulary)
            if rule.category.casefold() not in known
        ]


def read_rules(benchmark: Benchmark, root: str | Path = ".") -> Rules:
    """The rules of a benchmark, with its division of classes.

    Args:
        benchmark: The benchmark.
        root: The project's folder, which the path of the class mapping is relative to.

    Raises:
        DataError, ParameterError: see `Rules`; or the benchmark is of another class.
    """
    instance(benchmark, Benchmark, "benchmark")
    return Rules(Path(root) / benchmark.rules, benchmark.protocol, benchmark.division, benchmark.id)


def plain_name(name: str) -> str:
    """A name in lower case, in the singular, without blanks and punctuation."""
    return re.sub(r"[\W_]", "", name.casefold()).removesuffix("s")


def _precedence(rule: CategoryRule) -> int:
    return rule.precedence


def _read(path: Path) -> _RulesFile:
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise DataError(f"expected a mapping, found {shorten(content)}", file=path)
    form: type[_RulesFile] = _RulesFile
    if isinstance(content.get("id_classes"), list):
        form = _NamedRulesFile
    try:
        return build(form, "class mapping", {str(key): value for key, value in content.items()})
    except ParameterError as error:
        raise DataError(str(error), file=path) from None


def _names_by_class(
    id_classes: Sequence[str], class_names: ClassNames, vocabulary: str
) -> dict[str, dict[str, list[str]]]:
    """Names of each ID class by dataset, from a file of names."""
    unknown = [name for name in id_classes if not class_names.knows(name, vocabulary)]
    if unknown:
        names = ", ".join(map(repr, unknown))
        lines = "; ".join(f"{name}: {{{vocabulary}: [{name}]}}" for name in unknown)
        problem = f"{vocabulary!r} has no class called {names}; add {lines}"
        raise DataError(problem, file=class_names.path)

    names_by_class: dict[str, dict[str, list[str]]] = {}
    for id_class in id_classes:
        names_by_dataset = {}
        for dataset in class_names.datasets:
            names_in_dataset = class_names.same(id_class, vocabulary, dataset)
            if names_in_dataset:
                names_by_dataset[dataset] = list(names_in_dataset)
        names_by_class[id_class] = names_by_dataset
    return names_by_class


def _chain(protocols: dict[str, _Lists], name: str, path: Path) -> list[_Lists]:
    """The lists of a protocol, then those of the protocols that it extends."""
    if name not in protocols:
        raise ParameterError(f"{path}: no protocol {name!r}. {known_names(protocols)}")
    chain: dict[str, _Lists] = {}
    current: str | None = name
    while current is not None:
        if current not in protocols:
            problem = f"{current!r} is not a protocol of this file"
            raise DataError(problem, file=path, field="extends")
        if current in chain:
            raise DataError(f"{current!r} extends itself", file=path, field="extends")
        chain[current] = protocols[current]
        current = protocols[current].extends
    return list(chain.values())


def _first_classes_by(chain: Sequence[_Lists]) -> ClassesBy | None:
    """The first `classes_by` of a protocol and of those that it extends."""
    for lists in chain:
        if lists.classes_by is not None:
            return lists.classes_by
    return None
