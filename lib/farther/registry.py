"""Names that users write, and the typed parameters behind them.

A *kind* of thing (a method, a detector, a dataset format) has one `Registry`. Each thing is a
pydantic dataclass in a module, registered beside its code. Which module registers a name is read
from its syntax (`farther.syntax`), so a module is imported only when one of its names is used, and
it may import what its code needs. The classes that users add are in `farther.extensions`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import ValidationError

from farther import extensions
from farther.errors import ParameterError, choose, shorten
from farther.extensions import STRICT as STRICT
from farther.syntax import Registration, registrations

T = TypeVar("T")
C = TypeVar("C", bound=type)

#: Most problems that a message lists.
PROBLEMS = 5


class Registry(Generic[T]):
    """The known names of one kind of thing.

    Args:
        kind: The kind of thing that is registered, in the singular ("method"); used in messages.
        package: Dotted name of the package whose modules register names.
        decorator: The class decorator that registers a name, as it is written in the modules.
    """

    def __init__(self, kind: str, package: str, decorator: str = "register"):
        self.kind = kind
        self._package = package
        self._decorator = decorator
        self._classes: dict[str, type[T]] = {}

    @cached_property
    def modules(self) -> dict[str, str]:
        """The module of the package that registers each name."""
        modules = {}
        for module, file in self._files():
            for registration in self._registrations(file):
                modules[registration.name] = module
        return modules

    @cached_property
    def summaries(self) -> dict[str, str]:
        """First paragraph of the docstring of each class of the package; no module is imported."""
        summaries = {}
        for _, file in self._files():
            for registration in self._registrations(file):
                summaries[registration.name] = registration.summary
        return summaries

    def _files(self) -> Iterator[tuple[str, Path]]:
        """The modules of the package, without those of packages in it, and their files."""
        for folder in importlib.import_module(self._package).__path__:
            for file in sorted(Path(folder).glob("*.py")):
                yield f"{self._package}.{file.stem}", file

    def _registrations(self, file: Path) -> list[Registration]:
        """The registrations of a file in this registry, not in another one."""
        return [entry for entry in registrations(file) if entry.decorator == self._decorator]

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator that makes a class known as `name`, and sets its attribute `name`.

        A class without a `title` in its body (the name for readers) gets `name` as its title too.
        Two classes of one name are a ParameterError.
        """

        def add(cls: C) -> C:
            if self.modules.get(name, cls.__module__) != cls.__module__:
                importlib.import_module(self.modules[name])
            known = self._classes.get(name)
            if known is not None and _full_name(known) != _full_name(cls):
                raise ParameterError(
                    f"two {self.kind}s are called {name!r}: {_full_name(known)} and "
                    f"{_full_name(cls)}; give yours another name"
                )
            cls.name = name  # type: ignore[attr-defined]
            if "title" not in vars(cls):
                cls.title = name  # type: ignore[attr-defined]
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        """All known names, sorted."""
        extensions.load()
        return sorted({*self.modules, *self._classes})

    def get(self, name: str) -> type[T]:
        """The class behind a name, its module imported.

        A ParameterError for an unknown one lists the known names.
        """
        if isinstance(name, str):
            if name in self.modules:
                importlib.import_module(self.modules[name])
            extensions.load(name)
            if name in self._classes:
                return self._classes[name]
        try:
            return self._classes[choose(self.kind, name, self.names())]
        except ParameterError as error:
            raise ParameterError(
                f"{error}. Files in {extensions.FOLDER}/ may register more"
            ) from None

    def create(self, name: str, /, **params: Any) -> T:
        """An instance of the class behind a name, its parameters checked.

        Raises:
            ParameterError: the name or a parameter is unknown, or a value does not fit; lists what
                is known.
        """
        return build(self.get(name), f"{self.kind} {name!r}", params)


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


#: Longest name of a file in bytes, as in most file systems.
LONGEST_NAME = 255
#: Longest path in bytes that is accepted.
LONGEST_PATH = 3_000


def build(cls: type[T], what: str, params: dict[str, Any]) -> T:
    """`cls(**params)` for a pydantic dataclass, with errors in plain words.

    Args:
        what: Name of the thing in messages: "method 'knn'".

    Raises:
        ParameterError: a parameter is unknown or has a wrong value.
    """
    try:
        instance = cls(**params)
    except ValidationError as error:
        raise ParameterError(_explain(cls, what, error)) from None
    for name, path in _paths(vars(instance)):
        sizes = [len(part.encode(errors="replace")) for part in path.parts]
        if max(sizes, default=0) > LONGEST_NAME or sum(sizes) + len(sizes) > LONGEST_PATH:
            raise ParameterError(
                f"{what}: parameter {name!r}: the path is too long: {shorten(str(path))}"
            )
    return instance


def _paths(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Path]]:
    """The paths among parameters, those of nested ones included, with their names."""
    for name, value in values.items():
        if isinstance(value, Path):
            yield f"{prefix}{name}", value
        elif isinstance(value, Mapping):
            yield from _paths(value, f"{prefix}{name}.")
        elif is_dataclass(value) and not isinstance(value, type):
            yield from _paths(vars(value), f"{prefix}{name}.")


def parameters(cls: type) -> dict[str, Any]:
    """Names of a dataclass's constructor parameters and their defaults.

    `dataclasses.MISSING` where there is none.
    """
    defaults = {}
    for field in fields(cls):
        if field.init:
            defaults[field.name] = field.default
    return defaults


def _explain(cls: type, what: str, error: ValidationError) -> str:
    """The problems of parameters in plain words, one per line."""
    lines = []
    for problem in error.errors():
        path = problem["loc"]
        message = problem["msg"].removeprefix("Value error, ")
        name = ".".join(str(part) for part in path if str(part).strip())
        if problem["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            known = ", ".join(parameters(_nested(cls, path[:-1]))) or "none"
            lines.append(f"{what}: unknown parameter {name!r}. Known: {known}")
        elif problem["type"] == "missing":
            lines.append(f"{what}: parameter {name!r} is missing")
        elif name:
            if problem["type"] == "dataclass_type":
                message = f"expected a mapping with {', '.join(parameters(_nested(cls, path)))}"
            lines.append(
                f"{what}: parameter {name!r}: {message}, found {shorten(problem.get('input'))}"
            )
        else:  # a check of the class found that parameters do not fit together
            lines.append(f"{what}: {message}")
    if len(lines) > PROBLEMS:
        lines[PROBLEMS:] = [f"and {len(lines) - PROBLEMS:,} more problems"]
    return "\n".join(lines)


def _nested(cls: Any, path: tuple[int | str, ...]) -> type:
    """The dataclass of the parameters at a path: that of `splits.near` in a benchmark."""
    for name in path:
        field = getattr(cls, "__pydantic_fields__", {}).get(name)
        if field is None:
            continue
        for kind in _kinds(field.annotation):
            if is_dataclass(kind):
                cls = kind
                break
    return cls


def _kinds(hint: Any) -> list[type]:
    """The types that a type hint names."""
    kinds = []
    if isinstance(hint, type):
        kinds.append(hint)
    for argument in get_args(hint):
        kinds += _kinds(argument)
    return kinds
