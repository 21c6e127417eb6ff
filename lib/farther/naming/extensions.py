"""What users add to farther: methods, detectors, dataset formats and metrics.

They are classes in Python files of the project's folder `extensions/`, under any file names, or in
a package that names its module under the entry point group `farther.extensions`:

    # extensions/sharpness.py
    from farther import Method, register

    @register("largest_logit")
    class LargestLogit(Method):
        def _score(self, rows):
            return rows.xp.max(rows.logits(), axis=1)

Which names a file registers is read from its syntax, so a file is imported only when one of its
names is used. A file may import others of the folder (`from .helpers import f`) and read what is
stored there, so the code of a name is the whole folder, or the whole package.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from pydantic.dataclasses import dataclass

from farther.errors import FartherError, ParameterError
from farther.naming.parameter_checks import STRICT
from farther.naming.syntax import Registration, imported_modules, registrations

C = TypeVar("C", bound=type)

#: The project's folder of extensions, which is their package, too.
FOLDER = Path("extensions")
#: The entry point group of packages that have extensions.
GROUP = "farther.extensions"


def register(name: str) -> Callable[[C], C]:
    """Class decorator that registers a Method, Detector, Reader or Metric under a name.

    The class becomes a pydantic dataclass, if it is not one: its fields are its parameters.

    Args:
        name: What params.yaml calls it.

    Raises:
        ParameterError: the class is none of these, or another one has the name.

    Example:
        >>> from farther import Method, register
        >>> @register("area")
        ... class Area(Method):
        ...     power: float = 0.5
        ...
        ...     def _score(self, rows):
        ...         box = rows.array("box")
        ...         return (box[:, 2:] - box[:, :2]).prod(axis=1) ** self.power
        >>> Area(power=1).name
        'area'
    """

    def add(cls: C) -> C:
        registry = getattr(cls, "REGISTRY", None)
        if registry is None:
            raise ParameterError(
                f"{cls.__name__}: derive it from Method, Detector, Reader or Metric of farther"
            )
        checked: type = cls
        if "__pydantic_fields__" not in vars(cls):
            checked = dataclass(config=STRICT, kw_only=True)(cls)
        registered: C = registry.register(name)(checked)
        return registered

    return add


def sources() -> dict[str, Path]:
    """The modules that may have extensions, and their files.

    Those of the project's folder, then those of packages.
    """
    own: dict[str, Path] = {}
    for file in sorted(FOLDER.glob("*.py")):
        if not file.name.startswith("."):  # macOS writes ._name.py beside a module
            own[f"{FOLDER.name}.{file.stem}"] = file
    return own | _of_packages()


@cache
def _of_packages() -> dict[str, Path]:
    files_by_module: dict[str, Path] = {}
    for point in entry_points(group=GROUP):
        spec = importlib.util.find_spec(point.module)
        if spec is None or spec.origin is None:
            raise ParameterError(
                f"entry point {point.name!r} of {GROUP}: there is no module {point.module!r}"
            )
        files_by_module[point.module] = Path(spec.origin)
        for folder in spec.submodule_search_locations or ():
            for file in sorted(Path(folder).glob("*.py")):
                if file.stem != "__init__":
                    files_by_module[f"{point.module}.{file.stem}"] = file
    return files_by_module


def packages() -> dict[str, Path]:
    """The packages that have extensions, and their folders; of a module in no package, its file.

    They are the project's folder, where it exists, and the outermost package of each entry point's
    module.

    Raises:
        ParameterError: an entry point names a module that does not exist.
    """
    folders = {}
    if FOLDER.is_dir():
        folders[FOLDER.name] = FOLDER
    return folders | _entry_point_packages()


@cache
def _entry_point_packages() -> dict[str, Path]:
    folders = {}
    for module in _of_packages():
        package, folder = _outermost_package(module)
        folders[package] = folder
    return folders


def _outermost_package(module: str) -> tuple[str, Path]:
    """Name and folder of the first package with an `__init__.py` on the way to a module.

    Name and file without one.
    """
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            file = Path(spec.origin)
            return name, file.parent if file.name == "__init__.py" else file
    raise ParameterError(f"entry points of {GROUP}: there is no module {module!r}")


def names() -> dict[str, list[str]]:
    """The names that each module registers, read from its syntax.

    Raises:
        ParameterError: see `written`.
    """
    registered = {}
    for module, entries in written().items():
        registered[module] = [entry.name for entry in entries]
    return registered


def written() -> dict[str, list[Registration]]:
    """The registrations in each module, read from its syntax.

    Raises:
        ParameterError: a file is not Python; names file and line.
    """
    registered = {}
    for module, file in sources().items():
        try:
            imported_modules(file)  # parsed where nothing is registered, too: others may import it
            registered[module] = [
                entry for entry in registrations(file) if _is_ours(entry.decorator)
            ]
        except SyntaxError as error:
            raise ParameterError(f"{file}, line {error.lineno}: {error.msg}") from None
        except ValueError as error:
            raise ParameterError(f"{file}: {error}") from None
    return registered


def _is_ours(decorator: str) -> bool:
    """Whether a class decorator is `register`, imported or as an attribute: `farther.register`."""
    return decorator.rpartition(".")[2] == "register"


def by_name() -> dict[str, str]:
    """The module that registers each name."""
    modules = {}
    for module, registered in names().items():
        modules.update(dict.fromkeys(registered, module))
    return modules


def load(name: str | None = None) -> None:
    """Imports the modules that register a name, all when None.

    Those that are imported stay as they are.

    Raises:
        ParameterError: importing one fails; names file and line.
    """
    files = sources()
    for module, registered in names().items():
        if registered and (name is None or name in registered):
            _import(module, files[module])


def _import(module: str, file: Path) -> None:
    if module in sys.modules:
        return
    here = str(Path.cwd())
    if here not in sys.path:  # processes that are started for the work get the same path
        sys.path.append(here)
    try:
        imported = importlib.import_module(module)
    except Exception as error:
        raise ParameterError(failure(error) or f"{file}: {describe(error)}") from error
    if Path(imported.__file__ or "").resolve() != file.resolve():
        raise ParameterError(f"{file}: hidden by {imported.__file__}, a module of the same name")


def failure(error: BaseException) -> str | None:
    """File, line and text of an error that arose in an extension, at its innermost line there.

    None for others.
    """
    files = {file.resolve(): file for file in sources().values()}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = files.get(Path(frame.filename).resolve())
        if file is not None:
            return f"{file}, line {frame.lineno}: {describe(error)}"
    return None


def describe(error: BaseException) -> str:
    """The text of an error, with its type where it is none of farther's."""
    if isinstance(error, FartherError):
        return str(error)
    return f"{type(error).__name__}: {error}"
