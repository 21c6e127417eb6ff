"""Names that users write, and the typed parameters behind them.

A *kind* of thing (a method, a detector, a dataset format) has one `Registry`. Each thing is a pydantic dataclass
in a module of its own, registered beside its code. The registry imports all modules of its package the first time
a name is asked for, so adding a thing is adding one file.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, ValidationError

from farther.errors import ParameterError

T = TypeVar("T")
C = TypeVar("C", bound=type)

#: What every registered dataclass uses: `@dataclass(config=STRICT, kw_only=True)`. Unknown parameters are refused.
STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class Registry(Generic[T]):
    """The known names of one kind of thing.

    Args:
        kind: What a name stands for, in the singular ("method"); used in messages.
        package: Dotted name of the package whose modules register themselves.
    """

    def __init__(self, kind: str, package: str):
        self.kind = kind
        self._package = package
        self._classes: dict[str, type[T]] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator that makes a class known as `name`, and sets its attribute `name`.

        A class without a `title` in its body (the name for readers) gets `name` as its title too.

        Raises:
            ParameterError: another class has that name.
        """

        def add(cls: C) -> C:
            known = self._classes.get(name)
            if known is not None and known.__qualname__ != cls.__qualname__:
                raise ParameterError(f"two {self.kind}s are called {name!r}: {known!r} and {cls!r}")
            cls.name = name  # type: ignore[attr-defined]
            if "title" not in vars(cls):
                cls.title = name  # type: ignore[attr-defined]
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        """All known names, sorted."""
        self._load()
        return sorted(self._classes)

    def get(self, name: str) -> type[T]:
        """The class behind a name.

        Raises:
            ParameterError: the name is unknown; the message lists the known ones.
        """
        self._load()
        if name not in self._classes:
            close = difflib.get_close_matches(name, self._classes, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ParameterError(f"unknown {self.kind} {name!r}.{hint} Known: {', '.join(self.names())}")
        return self._classes[name]

    def create(self, name: str, **params: Any) -> T:
        """An instance of the class behind a name, its parameters checked.

        Raises:
            ParameterError: the name or a parameter is unknown, or a value does not fit; lists what is known.
        """
        return build(self.get(name), f"{self.kind} {name!r}", params)

    def _load(self) -> None:
        if self._loaded:
            return
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self._package}.{module.name}")
        self._loaded = True


def build(cls: type[T], what: str, params: dict[str, Any]) -> T:
    """`cls(**params)` for a pydantic dataclass, with errors in plain words.

    Args:
        what: How messages call the thing: "method 'knn'".

    Raises:
        ParameterError: a parameter is unknown or has a wrong value.
    """
    try:
        return cls(**params)
    except ValidationError as error:
        raise ParameterError(_explain(cls, what, error)) from None


def parameters(cls: type) -> dict[str, Any]:
    """Names of a dataclass's constructor parameters and their defaults (`dataclasses.MISSING` where there is none)."""
    return {f.name: f.default for f in fields(cls) if f.init}


def _explain(cls: type, what: str, error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            known = ", ".join(parameters(cls)) or "none"
            lines.append(f"{what}: unknown parameter {name!r}. Known: {known}")
        elif name:
            lines.append(f"{what}: parameter {name!r}: {problem['msg']}, found {problem.get('input')!r}")
        else:  # several parameters do not fit together: a class says which
            lines.append(f"{what}: {problem['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)
