"""The rules file of a benchmark: categories that are ID classes, overlap with one, or are near to one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic.dataclasses import dataclass

from farther.curation.sources import Categories
from farther.datasets import ClassNames
from farther.datasets.records import read_yaml
from farther.errors import DataError, ParameterError
from farther.registry import STRICT, build

Kind = Literal["ID class", "overlap", "near"]

#: Kinds of rules by falling precedence: a labelled ID class, an overlap with one, nearness to one.
PRECEDENCE: tuple[Kind, ...] = get_args(Kind)

#: Instead of an ID class, for a category that is near to, or overlaps with, not a single one (FMIYC's Table 6).
VARIOUS = "various"

#: Vocabulary of a dataset → ID class → categories.
Listing = dict[str, dict[str, list[str]]]


@dataclass(config=STRICT, frozen=True)
class Rule:
    """Consequence of a labelled category for its image.

    Args:
        kind: `ID class` and `overlap` remove the image, `near` puts it into the near split.
        category: The category, as the rules file writes it.
        id_class: The ID class that it is, overlaps with, or is near to.
    """

    kind: Kind
    category: str
    id_class: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.category} → {self.id_class}"

    @property
    def precedence(self) -> int:
        """Its place in `PRECEDENCE`; the lowest decides."""
        return PRECEDENCE.index(self.kind)


@dataclass(config=STRICT, kw_only=True)
class _Lists:
    """The lists of one protocol."""

    overlap: Listing
    near: Listing
    extends: str | None = None


@dataclass(config=STRICT, kw_only=True)
class _File:
    """A rules file with the names of its ID classes."""

    id_classes: dict[str, dict[str, list[str]]]
    protocols: dict[str, _Lists]

    def by_class(self, path: Path) -> dict[str, dict[str, list[str]]]:
        """Names of each ID class by dataset."""
        return self.id_classes


@dataclass(config=STRICT, kw_only=True)
class _NamedFile:
    """A rules file whose ID classes are a list, with their names in another file."""

    id_classes: list[str]
    names: str
    vocabulary: str
    protocols: dict[str, _Lists]

    def by_class(self, path: Path) -> dict[str, dict[str, list[str]]]:
        """Names of each ID class by dataset; `names` is relative to the rules file `path`."""
        names = ClassNames(path.parent / self.names)
        return {
            name: {
                other: list(called) for other in names.datasets if (called := names.same(name, self.vocabulary, other))
            }
            for name in self.id_classes
        }


class Rules:
    """The rules of a benchmark under one protocol.

    Args:
        path: The rules file (YAML). `id_classes` lists the ID classes as the dataset `vocabulary` calls them; the file
            `names` (see `farther.datasets.ClassNames`; relative to the rules file) gives their names in other datasets.
            Without these two, `id_classes` gives each ID class with its names by dataset. `protocols` gives, for each
            protocol, the lists `overlap` and `near`, by dataset vocabulary and ID class. A protocol may extend
            another one: its lists are added to the other's.
        protocol: Name of one of the file's protocols.

    Attributes:
        id_classes: Names of the ID classes, in the file's order.

    Raises:
        DataError: the file is absent or is not YAML of this form; names file and field.
        ParameterError: the file has no such protocol.
    """

    def __init__(self, path: str | Path, protocol: str = "paper"):
        self.path = Path(path)
        written = _read(self.path)
        id_classes = written.by_class(self.path)
        self.id_classes = tuple(id_classes)
        lists = _chain(written.protocols, protocol, self.path)
        self._rules: dict[str, list[Rule]] = {}
        for id_class, names in id_classes.items():
            self._add("ID class", id_class, names)
        for part in lists:
            self._add_listing("overlap", part.overlap)
            self._add_listing("near", part.near)

    @property
    def vocabularies(self) -> tuple[str, ...]:
        """Names of the dataset vocabularies in the file."""
        return tuple(self._rules)

    def of(self, vocabulary: str) -> list[Rule]:
        """The rules for datasets that use a vocabulary, in the file's order.

        Raises:
            ParameterError: the file has no such vocabulary; the message lists those it has.
        """
        if vocabulary not in self._rules:
            known = ", ".join(self._rules)
            raise ParameterError(f"{self.path}: no rules for the vocabulary {vocabulary!r}. Known: {known}")
        return self._rules[vocabulary]

    def by_category(self, vocabulary: str, categories: Categories) -> dict[str, Rule]:
        """The rule that decides for each category of a dataset; a category without one is not in the result.

        The rule on a category's name decides. Where there is none, a rule of kind `ID class` or `overlap`
        on something above it in the dataset's class hierarchy decides, the nearest one: a hand is part of a person.
        Rules of kind `near` do not reach down: what is not on the near list is far (FMIYC, Appendix B). Where a name
        has several rules, the first in `PRECEDENCE` decides. Case is ignored. Errors as for `of`.
        """
        by_name: dict[str, Rule] = {}
        for rule in sorted(self.of(vocabulary), key=lambda rule: rule.precedence):
            by_name.setdefault(rule.category.casefold(), rule)
        reaching = {name for name, rule in by_name.items() if rule.kind != "near"}
        decided = {}
        for category in categories.names:
            names = [category]
            if category.casefold() not in by_name:
                names = categories.nearest_above(category, reaching)
            if names:
                decided[category] = min((by_name[name.casefold()] for name in names), key=lambda rule: rule.precedence)
        return decided

    def without_category(self, vocabulary: str, categories: Categories) -> list[Rule]:
        """The rules on categories that the dataset does not have, as a category or an ancestor; errors as for `of`."""
        known = {name.casefold() for name in categories.all()}
        return [rule for rule in self.of(vocabulary) if rule.category.casefold() not in known]

    def _add_listing(self, kind: Kind, listing: Listing) -> None:
        for vocabulary, by_class in listing.items():
            self._rules.setdefault(vocabulary, [])  # a vocabulary may have no category that a rule is about
            for id_class, names in by_class.items():
                if id_class not in (*self.id_classes, VARIOUS):
                    field = f"{kind}.{vocabulary}"
                    raise DataError(f"{id_class!r} is not among id_classes", file=self.path, field=field)
                self._add(kind, id_class, {vocabulary: names})

    def _add(self, kind: Kind, id_class: str, names: Mapping[str, Iterable[str]]) -> None:
        for vocabulary, categories in names.items():
            rules = self._rules.setdefault(vocabulary, [])
            rules.extend(Rule(kind, category, id_class) for category in categories)


def _read(path: Path) -> _File | _NamedFile:
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise DataError(f"expected a mapping, found {content!r}", file=path)
    protocols = content.get("protocols")
    if isinstance(protocols, dict):
        content["protocols"] = {
            name: _build(_Lists, path, f"protocol {name!r}", lists if isinstance(lists, dict) else {"overlap": lists})
            for name, lists in protocols.items()
        }
    form = _NamedFile if isinstance(content.get("id_classes"), list) else _File
    return _build(form, path, "rules file", content)


def _build(cls: type, path: Path, what: str, content: dict[Any, Any]) -> Any:
    try:
        return build(cls, what, {str(key): value for key, value in content.items()})
    except ParameterError as error:
        raise DataError(str(error), file=path) from None


def _chain(protocols: dict[str, _Lists], name: str, path: Path) -> list[_Lists]:
    """The lists of a protocol, then those of the protocols that it extends."""
    if name not in protocols:
        raise ParameterError(f"{path}: no protocol {name!r}. Known: {', '.join(protocols)}")
    chain: dict[str, _Lists] = {}
    current: str | None = name
    while current is not None:
        if current not in protocols:
            raise DataError(f"{current!r} is not a protocol of this file", file=path, field="extends")
        if current in chain:
            raise DataError(f"{current!r} extends itself", file=path, field="extends")
        chain[current] = protocols[current]
        current = protocols[current].extends
    return list(chain.values())
