"""The rules file of a benchmark: categories that are ID classes, overlap with one, or are near to one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.curation.class_similarity import FARTHEST, ROUNDING, ClassesBy, ClassSimilarity
from farther.curation.division import Division
from farther.curation.parameters import Benchmark
from farther.curation.sources import Categories
from farther.datasets import ClassNames
from farther.errors import DataError, ParameterError, shorten
from farther.registry import STRICT, build
from farther.tables import SortedClasses
from farther.tables.documents import read_yaml

Kind = Literal["ID class", "overlap", "near"]

#: Kinds of rules by falling precedence: a labelled ID class, an overlap with one, nearness to one.
PRECEDENCE: tuple[Kind, ...] = get_args(Kind)

#: Instead of an ID class, for a category that is near to, or overlaps with, not a single one
#: (FMIYC's Table 6).
VARIOUS = "various"

#: Similarity of two names from which on one may be a misspelling of the other; see
#: `difflib.SequenceMatcher`.
ALIKE = 0.87

#: Vocabulary of a dataset → ID class → categories.
Listing = dict[str, dict[str, list[str]]]


@dataclass(config=STRICT, frozen=True)
class Rule:
    """Consequence of a labelled category for its image.

    Args:
        kind: `ID class` and `overlap` remove the image, `near` puts it into the near split.
        category: The category, as the rules file writes it.
        id_class: The ID class that it is, overlaps with, or is near to.
        similarity: Similarity of the two names, where it decided; see `ClassesBy`.
    """

    kind: Kind
    category: str
    id_class: str
    similarity: float | None = None

    def __str__(self) -> str:
        similar = "" if self.similarity is None else f" (similarity {self.similarity:.2f})"
        return f"{self.kind}: {self.category} → {self.id_class}{similar}"

    @property
    def precedence(self) -> int:
        """Its place in `PRECEDENCE`; the lowest decides."""
        return PRECEDENCE.index(self.kind)


@dataclass(config=STRICT, kw_only=True)
class _Lists:
    """The lists of one protocol."""

    overlap: Listing = Field(default_factory=dict)
    near: Listing = Field(default_factory=dict)
    far: dict[str, list[str]] = Field(default_factory=dict)
    every_class_listed: bool = False
    classes_by: ClassesBy | None = None
    extends: str | None = None


@dataclass(config=STRICT, kw_only=True)
class _RulesFile:
    """A rules file with the names of its ID classes."""

    id_classes: dict[str, dict[str, list[str]]]
    protocols: dict[str, _Lists]
    similar: list[list[str]] = Field(default_factory=list)


@dataclass(config=STRICT, kw_only=True)
class _NamedRulesFile(_RulesFile):
    """A rules file whose ID classes are a list, with their names in another file."""

    id_classes: list[str]  # type: ignore[assignment]
    names: str
    vocabulary: str


class Rules:
    """The rules of a benchmark under one protocol.

    Args:
        path: The rules file (YAML). `id_classes` lists the ID classes as the dataset `vocabulary`
            calls them; the file `names` (see `farther.datasets.ClassNames`; relative to the rules
            file) gives their names in other datasets. Without these two, `id_classes` gives each ID
            class with its names by dataset. `protocols` gives, for each protocol, the lists
            `overlap` and `near`, by dataset vocabulary and ID class. With `classes_by` (see
            `ClassesBy`), classes that no list names are sorted by the similarity of their names to
            the ID classes', but for those of the list `far`, by dataset vocabulary. With
            `every_class_listed`, people have sorted all classes: one that no list names is refused,
            and similarity decides nothing. A protocol may extend another one: its lists are added
            to the other's, and the other's `classes_by` counts if it has none. `similar` lists
            groups of ID classes that are easily confused, for the diagnosis of errors; a class may
            be in several, or in none.
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
        self.path = Path(path)
        written = _read(self.path)
        id_classes, self._names = written.id_classes, None
        if isinstance(written, _NamedRulesFile):
            self._names = ClassNames(self.path.parent / written.names)
            id_classes = _named(written.id_classes, self._names, written.vocabulary)
        self._all_classes = tuple(id_classes)
        self.id_classes = self._all_classes
        if division is not None:
            self.id_classes = self._known_classes(division)
        self.unknown_classes = tuple(
            name for name in self._all_classes if name not in self.id_classes
        )
        if unknown := sorted(
            {name for group in written.similar for name in group} - set(id_classes)
        ):
            raise DataError(
                f"{unknown[0]!r} is not among id_classes", file=self.path, field="similar"
            )
        self.similar = self._similar_groups(written.similar)
        lists = _chain(written.protocols, protocol, self.path)
        self.protocol = protocol
        self.every_class_listed = any(part.every_class_listed for part in lists)
        self.classes_by = next(
            (part.classes_by for part in lists if part.classes_by is not None), None
        )
        self._rules: dict[str, list[Rule]] = {}
        self._far: dict[str, set[str]] = {}
        for id_class, names in id_classes.items():
            self._add("ID class", id_class, names)
        if division is not None:
            self._add_divided(dataset, id_classes)
        for part in lists:
            self._add_listing("overlap", part.overlap)
            self._add_listing("near", part.near)
            for vocabulary, categories in part.far.items():
                self._rules.setdefault(vocabulary, [])
                self._far.setdefault(vocabulary, set()).update(
                    category.casefold() for category in categories
                )

    def _known_classes(self, division: Division) -> tuple[str, ...]:
        """The known classes of a division; ParameterError, with the rules file, where it does not fit them."""
        try:
            return division.known_classes(self._all_classes)
        except ParameterError as error:
            raise ParameterError(f"{self.path}: {error}") from None

    def _similar_groups(self, groups: Sequence[Sequence[str]]) -> list[list[str]]:
        """Groups of similar classes, of ID classes only; a group of one class is none."""
        found = []
        for group in groups:
            known = [name for name in group if name in self.id_classes]
            if len(known) > 1 or len(known) == len(group):
                found.append(known)
        return found

    def _add_divided(
        self, dataset: str, id_classes: Mapping[str, Mapping[str, Iterable[str]]]
    ) -> None:
        """Rules on the classes of the ID dataset: known ones are ID classes, unknown ones are near."""
        for name in self._all_classes:
            called = tuple(id_classes[name].get(dataset, ())) or (name,)
            if name not in self.id_classes:
                rules = [Rule("near", category, VARIOUS) for category in called]
            elif dataset in id_classes[name]:
                rules = []
            else:
                rules = [Rule("ID class", category, name) for category in called]
            self._rules.setdefault(dataset, []).extend(rules)

    @property
    def vocabularies(self) -> tuple[str, ...]:
        """Names of the dataset vocabularies in the file."""
        return tuple(self._rules)

    def of(self, vocabulary: str) -> list[Rule]:
        """The rules for datasets that use a vocabulary, in the file's order.

        With `classes_by`, a dataset for which the file does not name ID classes has the ID classes'
        names.

        Raises:
            ParameterError: the file has no such vocabulary; the message lists those it has.
        """
        rules = self._rules.get(vocabulary, [])
        if self.classes_by is not None and not any(rule.kind == "ID class" for rule in rules):
            return [*(Rule("ID class", name, name) for name in self.id_classes), *rules]
        if vocabulary not in self._rules:
            known = ", ".join(self._rules)
            problem = f"{self.path}: no rules for the vocabulary {vocabulary!r}. Known: {known}. Name one of these as "
            problem += "`vocabulary` of the split if its categories have those names, or list the names of the ID "
            raise ParameterError(
                f"{problem}classes under {vocabulary!r}; {{}} if the dataset shows none of them"
            )
        return rules

    def by_category(self, vocabulary: str, categories: Categories) -> dict[str, Rule]:
        """The rule that decides for each category of a dataset; a category without one is not in the result.

        The rule on a category's name decides. Where there is none, a rule of kind `ID class` or
        `overlap` on something above it in the dataset's class hierarchy decides, the nearest one: a
        hand is part of a person. Rules of kind `near` do not reach down: what is not on the near
        list is far (FMIYC, Appendix B). Where a name has several rules, the first in `PRECEDENCE`
        decides. Case is ignored.

        A category that none of these decides is sorted by similarity, with `classes_by`.

        Raises:
            ParameterError: see `of`.
            DataError: see `ClassSimilarity`; a category is in no list of a protocol with
                `every_class_listed`.
        """
        by_name: dict[str, Rule] = {}
        for rule in sorted(self.of(vocabulary), key=lambda rule: rule.precedence):
            by_name.setdefault(rule.category.casefold(), rule)
        reaching = {name for name, rule in by_name.items() if rule.kind != "near"}
        decided, far = {}, self._far.get(vocabulary, ())
        unlisted = []
        for category in categories.names:
            names = [category]
            if category.casefold() not in by_name:
                names = categories.nearest_above(category, reaching)
            if names:
                decided[category] = min(
                    (by_name[name.casefold()] for name in names), key=lambda rule: rule.precedence
                )
            elif category.casefold() in far:
                continue
            elif self.every_class_listed:
                unlisted.append(category)
            elif (similar := self._by_similarity(category)) is not None:
                decided[category] = similar
        if unlisted:
            raise DataError(
                f"{len(unlisted):,} of the {len(categories.names):,} classes of {vocabulary!r} are in no list, such as "
                f"{', '.join(unlisted[:3])}: write each below `overlap` (OODness 1), `near` (2) or `far` (3)",
                file=self.path,
                field=f"protocols.{self.protocol}",
            )
        return decided

    @cached_property
    def similarity(self) -> ClassSimilarity | None:
        """Similarity of class names to the ID classes; None without `classes_by`. Errors as for `ClassSimilarity`."""
        by = self.classes_by
        return None if by is None else ClassSimilarity(by, self.path.parent, self.id_classes)

    def _by_similarity(self, category: str) -> Rule | None:
        if self.similarity is None or (nearest := self.similarity.nearest(category)) is None:
            return None
        by, (id_class, similarity) = self.similarity.by, nearest
        kind: Kind = "overlap" if similarity >= by.overlap_above - ROUNDING else "near"
        return (
            Rule(kind, category, id_class, similarity)
            if similarity >= by.near_above - ROUNDING
            else None
        )

    def sorted_classes(
        self, dataset: str, vocabulary: str, categories: Categories
    ) -> SortedClasses:
        """OODness of each category of a dataset; errors as for `by_category`."""
        decided = self.by_category(vocabulary, categories)
        columns: dict[str, list[Any]] = {name: [] for name in SortedClasses.empty().names}
        for category in categories.names:
            nearest = None
            if self.similarity is not None:
                nearest = self.similarity.nearest(category)
            id_class, similarity = nearest or ("", -1.0)
            columns["nearest"].append(id_class)
            columns["similarity"].append(similarity)

            rule = decided.get(category)
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
        """One message per category without a rule that resembles a name of an ID class: a typo, or a missing rule.

        Such a category counts as unknown. The list `far` of a protocol says that it is meant. With
        `keeps_known` a category that is called as an ID class is one. Errors as for `of`.
        """
        decided, far = self.by_category(vocabulary, categories), self._far.get(vocabulary, ())
        names = {plain_name(name): name for name in self.id_classes}
        for rules in self._rules.values():
            names |= {
                plain_name(rule.category): rule.id_class
                for rule in rules
                if rule.kind == "ID class"
            }
        found = []
        for category in categories.names:
            if (
                category in decided
                or category.casefold() in far
                or (keeps_known and category in self.id_classes)
            ):
                continue
            plain = plain_name(category)
            close = (
                [plain] if plain in names else get_close_matches(plain, names, n=1, cutoff=ALIKE)
            )
            if close:
                found.append(
                    f"{self.path}: {vocabulary}: {category!r} has no rule and counts as unknown, but resembles the "
                    f"ID class {names[close[0]]!r}. List it as a name of that class, or under far.{vocabulary}"
                )
        return found

    def unnamed(self, vocabulary: str, categories: Categories) -> list[str]:
        """The categories that neither a rule nor the file of names has in a vocabulary; errors as for `of`."""
        decided, far = self.by_category(vocabulary, categories), self._far.get(vocabulary, ())
        listed = {*decided, *(name for name in categories.names if name.casefold() in far)}
        names = self._names
        return [
            name
            for name in categories.names
            if name not in listed and not (names is not None and names.knows(name, vocabulary))
        ]

    def without_category(self, vocabulary: str, categories: Categories) -> list[Rule]:
        """The rules on categories that the dataset does not have, as a category or an ancestor; errors as for `of`."""
        known = {name.casefold() for name in categories.all()}
        return [rule for rule in self.of(vocabulary) if rule.category.casefold() not in known]

    def _add_listing(self, kind: Kind, listing: Listing) -> None:
        for vocabulary, by_class in listing.items():
            self._rules.setdefault(
                vocabulary, []
            )  # a vocabulary may have no category that a rule is about
            for id_class, names in by_class.items():
                if id_class not in (*self._all_classes, VARIOUS):
                    field = f"{kind}.{vocabulary}"
                    raise DataError(
                        f"{id_class!r} is not among id_classes", file=self.path, field=field
                    )
                self._add(kind, id_class, {vocabulary: names})

    def _add(self, kind: Kind, id_class: str, names: Mapping[str, Iterable[str]]) -> None:
        for vocabulary, categories in names.items():
            rules = self._rules.setdefault(vocabulary, [])
            if id_class in self.unknown_classes:
                continue
            rules.extend(Rule(kind, category, id_class) for category in categories)


def read_rules(benchmark: Benchmark, root: str | Path = ".") -> Rules:
    """The rules of a benchmark, with its division of classes.

    Args:
        benchmark: The benchmark.
        root: The project's folder, which the path of the rules file is relative to.

    Raises:
        DataError, ParameterError: see `Rules`.
    """
    return Rules(Path(root) / benchmark.rules, benchmark.protocol, benchmark.division, benchmark.id)


def plain_name(name: str) -> str:
    """A name in lower case, in the singular, without blanks and punctuation."""
    return re.sub(r"[\W_]", "", name.casefold()).removesuffix("s")


def _read(path: Path) -> _RulesFile:
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise DataError(f"expected a mapping, found {shorten(content)}", file=path)
    form = _NamedRulesFile if isinstance(content.get("id_classes"), list) else _RulesFile
    try:
        return build(form, "rules file", {str(key): value for key, value in content.items()})
    except ParameterError as error:
        raise DataError(str(error), file=path) from None


def _named(
    id_classes: Sequence[str], names: ClassNames, vocabulary: str
) -> dict[str, dict[str, list[str]]]:
    """Names of each ID class by dataset, from a file of names."""
    if unknown := [name for name in id_classes if not names.knows(name, vocabulary)]:
        lines = "; ".join(f"{name}: {{{vocabulary}: [{name}]}}" for name in unknown)
        problem = f"{vocabulary!r} has no class called {', '.join(map(repr, unknown))}; add {lines}"
        raise DataError(problem, file=names.path)
    by_dataset = {
        name: {one: names.same(name, vocabulary, one) for one in names.datasets}
        for name in id_classes
    }
    return {
        name: {one: list(called) for one, called in by.items() if called}
        for name, by in by_dataset.items()
    }


def _chain(protocols: dict[str, _Lists], name: str, path: Path) -> list[_Lists]:
    """The lists of a protocol, then those of the protocols that it extends."""
    if name not in protocols:
        raise ParameterError(f"{path}: no protocol {name!r}. Known: {', '.join(protocols)}")
    chain: dict[str, _Lists] = {}
    current: str | None = name
    while current is not None:
        if current not in protocols:
            raise DataError(
                f"{current!r} is not a protocol of this file", file=path, field="extends"
            )
        if current in chain:
            raise DataError(f"{current!r} extends itself", file=path, field="extends")
        chain[current] = protocols[current]
        current = protocols[current].extends
    return list(chain.values())
