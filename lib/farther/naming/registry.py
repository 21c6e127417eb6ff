"""Names that users write, and the typed parameters behind them.

A *kind* of thing (a method, a detector, a dataset format) has one `Registry`. Each thing is a
pydantic dataclass in a module, registered beside its code. Which module registers a name is read
from its syntax (`farther.naming.syntax`), so a module is imported only when one of its names is
used, and it may import what its code needs. The classes that users add are in
`farther.naming.extensions`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from farther.errors import AmbiguousNameError, ParameterError, choose, plain_name
from farther.naming import extensions
from farther.naming.extras import AbsentPackagesError, packages_of
from farther.naming.parameter_checks import LONGEST_NAME as LONGEST_NAME
from farther.naming.parameter_checks import LONGEST_PATH as LONGEST_PATH
from farther.naming.parameter_checks import STRICT as STRICT
from farther.naming.parameter_checks import Parameters as Parameters
from farther.naming.parameter_checks import build as build
from farther.naming.parameter_checks import parameters as parameters
from farther.naming.syntax import Registration, registered_names, registrations

T = TypeVar("T")
C = TypeVar("C", bound=type)


class WrittenNames:
    """The names that the modules of a package register, read from their syntax.

    No module of the package is imported, nor the package itself.

    Args:
        package: Dotted name of the package.
        decorator: The class decorator that registers a name, as it is written in the modules.

    Attributes:
        package: The package.
    """

    def __init__(self, package: str, decorator: str = "register"):
        self.package = package
        self._decorator = decorator

    @cached_property
    def modules(self) -> dict[str, str]:
        """The module of the package that registers each name."""
        modules = {}
        for module, file in self._files():
            for decorator, name in registered_names(file.read_bytes()):
                if decorator == self._decorator:
                    modules[name] = module
        return modules

    @cached_property
    def registrations(self) -> dict[str, Registration]:
        """The registration of each name."""
        by_name = {}
        for _, file in self._files():
            for registration in self._registrations(file):
                by_name[registration.name] = registration
        return by_name

    @property
    def aliases(self) -> dict[str, tuple[str, ...]]:
        """Title and further names of each name."""
        aliases = {}
        for name, registration in self.registrations.items():
            aliases[name] = other_names(registration)
        return aliases

    def published_title(self, entry: str) -> str:
        """The published name of an entry that is named after it; "" for others."""
        for registration in self.registrations.values():
            for published in registration.published_entries:
                if plain_name(published) == plain_name(entry):
                    return str(published)
        return ""

    def entries_to_write(self, name: str) -> list[str]:
        """What to write in params.yaml for a published name, by each method; empty for others."""
        texts = []
        for registration in self.registrations.values():
            for published, (entry, of_pass) in registration.published_entries.items():
                if isinstance(name, str) and plain_name(published) == plain_name(name):
                    texts.append(
                        f"`{entry}` under 'methods' and `{of_pass}` under 'passes' of a detector"
                    )
        return texts

    def _files(self) -> Iterator[tuple[str, Path]]:
        """The modules of the package, without those of packages in it, and their files."""
        spec = importlib.util.find_spec(self.package)
        if spec is None:
            raise ModuleNotFoundError(f"no package {self.package!r}")
        for folder in spec.submodule_search_locations or ():
            for file in sorted(Path(folder).glob("*.py")):
                yield f"{self.package}.{file.stem}", file

    def _registrations(self, file: Path) -> list[Registration]:
        """The registrations of a file by this decorator, not by another one."""
        return [entry for entry in registrations(file) if entry.decorator == self._decorator]


def other_names(registered: Any) -> tuple[str, ...]:
    """Title and aliases of a class, or of its registration; those that are its name left out."""
    names = dict.fromkeys((registered.title, *getattr(registered, "aliases", ())))
    return tuple(name for name in names if name and name != registered.name)


def different_names(name: str, others: Sequence[str]) -> list[str]:
    """The other names of a thing that differ from its name in more than the writing.

    >>> different_names("knn", ["kNN", "k-nearest neighbours"])
    ['k-nearest neighbours']
    """
    return [other for other in others if plain_name(other) != plain_name(name)]


class Registry(Generic[T]):
    """The known names of one kind of thing.

    Args:
        kind: The kind of thing that is registered, in the singular ("method"); used in messages.
        package: Dotted name of the package whose modules register names.
        decorator: The class decorator that registers a name, as it is written in the modules.
        spelling: "exact": a name is found as it was registered; "any": also by its title and its
            aliases, in any case, with hyphens, underscores and spaces alike.
        listed_by: The command that lists the names; "" where there is none.
        key: The key of params.yaml that gives the name; by default the kind.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        decorator: str = "register",
        spelling: Literal["exact", "any"] = "exact",
        listed_by: str = "",
        key: str = "",
    ):
        self.kind = kind
        self._listed_by = listed_by
        self._key = key or kind
        self.written = WrittenNames(package, decorator)
        self._spelling = spelling
        self._classes: dict[str, type[T]] = {}

    @property
    def modules(self) -> dict[str, str]:
        """The module of the package that registers each name."""
        return self.written.modules

    @property
    def summaries(self) -> dict[str, str]:
        """First paragraph of the docstring of each class of the package; no module is imported."""
        return {name: entry.summary for name, entry in self.written.registrations.items()}

    @property
    def aliases(self) -> dict[str, tuple[str, ...]]:
        """Title and further names of each known name."""
        extensions.load()
        aliases = self.written.aliases
        for name, cls in self._classes.items():
            aliases[name] = other_names(cls)
        return aliases

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator that makes a class known as `name`, and sets its attribute `name`.

        A class without a `title` in its body (the name for readers) gets `name` as its title too,
        one without `aliases` has none. Two classes of one name are a ParameterError.
        """

        def add(cls: C) -> C:
            # `modules` reads the syntax of the whole package, for which each process would wait:
            # only classes of others may have a name that the package has.
            is_own = cls.__module__.startswith(f"{self.written.package}.")
            if not is_own and name in self.modules:
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
            if "aliases" not in vars(cls):  # those of a base class are its own
                cls.aliases = ()  # type: ignore[attr-defined]
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        """All known names, sorted."""
        extensions.load()
        return sorted({*self.modules, *self._classes})

    def defining(self, function: str) -> list[str]:
        """Names of the classes with a method of this name in their own body.

        Those of extensions, which are imported, then those of the package, whose modules are not;
        each sorted.
        """
        extensions.load()
        own_names: list[str] = []
        for name, registration in self.written.registrations.items():
            if function in registration.functions:
                own_names.append(name)
        others: list[str] = []
        for name, cls in self._classes.items():
            if name not in self.modules and function in vars(cls):
                others.append(name)
        return [*sorted(others), *sorted(own_names)]

    def check(self, name: str) -> None:
        """Refuses an unknown name, as `canonical` does; imports no module of the package for it.

        Raises:
            ParameterError, AmbiguousNameError: see `canonical`.
        """
        if not isinstance(name, str) or name not in self.modules:
            self.canonical(name)

    def canonical(self, name: str) -> str:
        """The name under which a class is registered, by any of its names.

        Raises:
            ParameterError: the name is unknown; the message suggests the nearest ones. Or it means
                an entry of params.yaml; the message has that entry.
            AmbiguousNameError: the name may mean several; the message lists them.
        """
        if isinstance(name, str):
            if name in self.modules:
                self._import(name)
            extensions.load(name)
            if name in self._classes:
                return name
        aliases = self.aliases if self._spelling == "any" else None
        try:
            return choose(self._key, name, self.names(), aliases, self._listed_by)
        except AmbiguousNameError:
            raise
        except ParameterError:
            entries = self.written.entries_to_write(name)
            if not entries:
                raise
            raise ParameterError(
                f"{self.kind} {name!r} stands for an entry of params.yaml: write "
                f"{', or '.join(entries)}"
            ) from None

    def get(self, name: str) -> type[T]:
        """The class behind a name, its module imported.

        Raises:
            ParameterError: see `canonical`.
            AbsentPackagesError: packages that it needs are not installed.
        """
        name = self.canonical(name)
        if name in self.modules:
            self._import(name)
        return self._classes[name]

    def _import(self, name: str) -> None:
        """Imports the module that registers a name.

        Raises:
            AbsentPackagesError: packages that it needs are not installed; names all of them.
        """
        module = self.modules[name]
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            packages = packages_of(module)
            if (error.name or "").partition(".")[0] not in packages:
                raise
            raise AbsentPackagesError(f"{self.kind} {name!r}", packages) from error

    def create(self, name: str, /, **params: Any) -> T:
        """An instance of the class behind a name, its parameters checked.

        Raises:
            ParameterError: the name or a parameter is unknown, or a value does not fit; lists what
                is known.
        """
        return build(self.get(name), f"{self.kind} {name!r}", params)


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
