"""What one line of params.yaml's section `methods` says.

    methods:
      gen: {}
      gen_published: {method: gen, protocol: published-code}
      sharpness: {power: 2}
      knn: {search: {ood_split: coco_choose, grids: {knn: {k: [1, 10, 50]}}}}

The name of the line names its folders and its row in tables. It is a method's name too, unless `method` says which one
is meant, so that one method may stand there with several choices of parameters. `search` and `oracle` let the
parameters be chosen; all other keys are the method's parameters.

A method that farther does not know is looked for in the file of its name in a folder of one's own.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass

from farther.errors import ParameterError
from farther.methods.base import METHODS, Method
from farther.registry import STRICT, build
from farther.tables.files import digest, inside

#: Where the pipeline looks for methods that farther does not know.
OWN = Path("data/methods")
PACKAGE = "farther.methods"
#: Modules that every entry's folders are made by.
MACHINERY = ("calibration", "entries", "fitting", "hyperparameters", "scoring")


@dataclass(config=STRICT, kw_only=True)
class Choice:
    """How parameters are chosen: the best by AUROC of ID validation regions against those of an OOD split.

    Args:
        ood_split: Name of the OOD split.
        grids: For each method to try, the values to try of each parameter.
    """

    ood_split: str
    grids: dict[str, dict[str, list[Any]]] = field(default_factory=dict)


@dataclass(config=STRICT, kw_only=True)
class Entry:
    """One line of the section `methods`, checked.

    Args:
        name: Its name.
        method: The method.
        params: Its parameters.
        search: Choose parameters on an OOD split that no result is reported on.
        oracle: Choose them on one that results are reported on, and say so.
    """

    name: str
    method: str
    params: dict[str, Any]
    search: Choice | None = None
    oracle: Choice | None = None

    def create(self) -> Method:
        """The method with its parameters, before anything is chosen.

        Raises:
            ParameterError: a parameter is unknown, or a value does not fit.
        """
        return METHODS.create(self.method, **self.params)


def read_entry(name: str, values: Mapping[str, Any], own: Path = OWN) -> Entry:
    """An entry, checked; methods in files of one's own are made known.

    Args:
        name, values: The line's name, and what it says.
        own: Folder of one's own methods, `<method>.py` each.

    Raises:
        ParameterError: the method is unknown, both kinds of choice are asked for, or parameters are given to a choice.
    """
    params = dict(values)
    made = build(
        Entry,
        f"methods.{name}",
        {
            "name": name,
            "method": params.pop("method", name),
            "search": params.pop("search", None),
            "oracle": params.pop("oracle", None),
            "params": params,
        },
    )
    choice = made.search or made.oracle
    if made.search and made.oracle:
        raise ParameterError(f"methods.{name}: 'search' and 'oracle' exclude each other")
    if choice and made.params:
        raise ParameterError(f"methods.{name}: {sorted(made.params)}: with a choice, parameters stand in its 'grids'")
    for method in choice.grids if choice else [made.method]:
        find(method, own)
    return made


def find(method: str, own: Path = OWN) -> type[Method]:
    """The class of a method that farther knows, or that `<own>/<method>.py` registers.

    Raises:
        ParameterError: neither is the case, or both are.
        DataError: the name leads out of the folder.
    """
    file = inside(own, f"{method}.py")
    known = METHODS.get(method) if method in METHODS.names() else None
    if not file.exists():
        return known or METHODS.get(method)  # the latter raises, and lists what is known
    if known is not None:
        if inspect.getfile(known) != str(file.resolve()):
            raise ParameterError(f"{file}: farther has a method {method!r}; give yours another name")
        return known
    _import(file)
    if method not in METHODS.names():
        raise ParameterError(f'{file} does not register {method!r}: write @register("{method}") above its class')
    return METHODS.get(method)


def _import(file: Path) -> None:
    name = f"farther_own_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise ParameterError(f"{file}: not a Python file that can be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def source_files(cls: type) -> list[Path]:
    """The files that a method's code is in: its own, and those of this package that it imports from, sorted."""
    found: dict[str, Path] = {}
    waiting = [cls.__module__]
    while waiting:
        name = waiting.pop()
        if name in found or not (name == cls.__module__ or name.startswith(f"{PACKAGE}.")):
            continue
        module = sys.modules[name]
        found[name] = Path(inspect.getfile(module))
        values = list(vars(module).values())
        waiting += [v.__name__ if inspect.ismodule(v) else str(getattr(v, "__module__", "")) for v in values]
    return sorted(found.values())


def code_digests(entries: Mapping[str, Mapping[str, Any]], own: Path = OWN) -> dict[str, str]:
    """For each entry, a name for all the code that its scores are made by.

    The pipeline fits and scores a method again when this changes, and leaves the others alone.

    Raises:
        ParameterError: see `read_entry`.
    """
    shared = [Path(__file__).with_name(f"{module}.py") for module in MACHINERY]
    digests = {}
    for name, values in entries.items():
        entry = read_entry(name, values or {}, own)
        choice = entry.search or entry.oracle
        methods = sorted(choice.grids) if choice else [entry.method]
        digests[name] = digest(*shared, *(file for method in methods for file in source_files(find(method, own))))
    return digests
