"""Digests of code: of farther's packages, of modules that register names, and of extensions.

A digest is over the bytes of files: Python and data, comments and docstrings included. No import is
followed. What counts with a package is

- all of its files, and those of the packages that it imports (`IMPORTS`), except modules that
  register a name which users write, such as `knn`: these count where they are named. Those that
  other modules import count with their package, too (`IMPORTED`);
- the modules at the top level of farther.

Extensions count as a whole: the files of the folder `extensions/`, or of a package that has
extensions; the files of the project's modules and packages that these import; and the files and
folders that one of them declares as `WATCHED`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from farther.errors import DataError, ParameterError
from farther.naming import extensions
from farther.naming.extras import PACKAGES, source_file
from farther.naming.syntax import imported_modules, literal, registered_names
from farther.tables.documents import read_json

#: Where the stage `code` writes the digests of all stages.
CODE = Path("artifacts/code.json")

#: The folders of modules that all packages import.
SHARED = ("farther", "farther/incremental", "farther/naming", "farther/text")

#: The packages that each package of farther imports.
IMPORTS = {
    "tables": (),
    "images": ("tables",),
    "datasets": ("images", "tables"),
    "methods": ("tables",),
    "metrics": ("tables",),
    "detectors": ("images", "tables"),
    "curation": ("datasets", "tables"),
    "similarity": ("datasets", "images", "methods", "metrics", "tables"),
    "derived": ("curation", "datasets", "images", "tables"),
    "scoring": ("detectors", "methods", "metrics", "tables"),
    "evaluation": (
        "curation",
        "detectors",
        "images",
        "methods",
        "metrics",
        "scoring",
        "tables",
    ),
    "report": (
        "curation",
        "datasets",
        "evaluation",
        "images",
        "methods",
        "metrics",
        "scoring",
        "tables",
    ),
    "farther_demo": ("curation", "datasets", "tables"),
    "farther_training": (
        "curation",
        "detectors",
        "farther_demo",
        "images",
        "metrics",
        "tables",
    ),
}

#: Packages whose modules register names that users write.
REGISTERING = ("datasets", "derived", "detectors", "methods", "farther_training/trainers")

#: Modules that register names, and that other modules of `IMPORTS` import or create by name.
IMPORTED = (
    "farther.datasets.coco",
    "farther.datasets.huggingface",
    "farther.derived.paste",
    "farther.detectors.dense",
    "farther.detectors.detections",
    "farther.detectors.faster_rcnn",
    "farther.methods.box_uncertainty",
    "farther.methods.ddu",
    "farther.methods.dempster_shafer",
    "farther.methods.entropy",
    "farther.methods.imported",
    "farther.methods.knn",
    "farther.methods.mahalanobis",
    "farther.methods.mcm",
    "farther.methods.vim",
    "farther_training.trainers.faster_rcnn",
)

#: The name in a file of extensions that declares further files and folders, relative to the
#: project: `WATCHED = ["tools/weights.json"]`.
WATCHED = "WATCHED"

#: Folders and files in packages that are not code.
_IGNORED_NAMES = (
    "__pycache__",
    ".git",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".DS_Store",
)
_IGNORED_ENDINGS = (".pyc", ".md")  # descriptions rerun nothing


@dataclass(frozen=True)
class _Content:
    """What a file holds.

    Args:
        digest: Digest of its bytes.
        names: The names that it registers, if it is Python.
    """

    digest: bytes
    names: tuple[str, ...] = ()


class SourceCode:
    """The files of farther and of extensions as they are now.

    Each folder is listed once and each file read once: a new object sees what changed.
    """

    def __init__(self) -> None:
        self._lib = Path(__file__).parents[2]
        self._files: dict[str, dict[str, Path]] = {}
        self._modules_in: dict[str, dict[str, Path]] = {}
        self._contents: dict[Path, _Content] = {}
        self._modules: dict[str, dict[str, str]] = {}
        self._extensions: dict[str, Path] | None = None

    def package_files(self, *packages: str, whole: Iterable[str] = ()) -> dict[str, Path]:
        """The files that count with packages.

        Args:
            packages: Names of packages: "detectors", "farther_demo".
            whole: Packages of which the modules that register names count, too.

        Returns:
            {path relative to the folder of farther's packages: file}.
        """
        files = {}
        for folder in SHARED:
            files.update(self._directly_in(folder))
        for package in _with_imported([*packages, *whole]):
            for label, file in self._files_of(package).items():
                if package in whole or self._is_shared(label, file):
                    files[label] = file
        return files

    def pipeline_files(self, without: Iterable[str]) -> dict[str, Path]:
        """The modules of `farther.pipeline` and `runs` in it, without some, by their last names."""
        excluded = set(without)
        files = {}
        for label, file in {
            **self._directly_in("farther/pipeline"),
            **self._directly_in("farther/pipeline/runs"),
        }.items():
            if file.stem not in excluded:
                files[label] = file
        return files

    def module_files(self, *modules: str) -> dict[str, Path]:
        """The files of modules of farther, by dotted names."""
        files = {}
        for module in modules:
            file = source_file(self._lib, module)
            if file is not None:
                files[self._label(file)] = file
        return files

    def extension_files(self) -> dict[str, Path]:
        """The files that count with extensions; see the module's docstring.

        Returns:
            {path that begins with "./": file}.

        Raises:
            ParameterError: `WATCHED` is not a list of texts; names the file.
        """
        if self._extensions is None:
            self._extensions = _extension_files()
        return self._extensions

    def registered(self, package: str) -> dict[str, str]:
        """The modules of one of `REGISTERING`: {"knn": "farther.methods.knn", …}."""
        if package not in self._modules:
            modules = {}
            for file in _python_files(self._folder(package)):
                for name in self._content(file).names:
                    modules[name] = _dotted(self._label(file))
            self._modules[package] = modules
        return self._modules[package]

    def has(self, package: str) -> bool:
        """Whether a package is installed: a wheel has neither the demo world nor its training."""
        return self._folder(package).is_dir()

    def digest(self, files: Mapping[str, Path]) -> str:
        """Digest of the names and bytes of files.

        Returns:
            16 hexadecimal digits.
        """
        total = blake2b(digest_size=8)
        for label in sorted(files):
            total.update(label.encode(errors="surrogateescape") + b"\0")
            total.update(self._content(files[label]).digest)
        return total.hexdigest()

    def _content(self, file: Path) -> _Content:
        if file not in self._contents:
            self._contents[file] = _read(file)
        return self._contents[file]

    def _directly_in(self, folder: str) -> dict[str, Path]:
        """The Python files in a folder, without those in folders within it."""
        if folder not in self._modules_in:
            files = _python_files(self._lib / folder)
            self._modules_in[folder] = {self._label(file): file for file in files}
        return self._modules_in[folder]

    def _files_of(self, package: str) -> dict[str, Path]:
        """All files of a package, and of packages within it."""
        if package not in self._files:
            files = _files_below(self._folder(package))
            self._files[package] = {self._label(file): file for file in files}
        return self._files[package]

    def _folder(self, package: str) -> Path:
        if package.startswith(PACKAGES):
            return self._lib / package
        return self._lib / "farther" / package

    def _label(self, file: Path) -> str:
        return str(file)[len(str(self._lib)) + 1 :]  # `relative_to` takes many times as long

    def _is_shared(self, label: str, file: Path) -> bool:
        """Whether a file counts with its package, and not only where a name of it is used."""
        folder = label.removeprefix("farther/").rpartition("/")[0]
        if folder not in REGISTERING or file.suffix != ".py":
            return True
        return not self._content(file).names or _dotted(label) in IMPORTED


def package_digest(*packages: str) -> str:
    """Digest of the code of packages of farther: `package_digest("images")`.

    Returns:
        16 hexadecimal digits.
    """
    source = SourceCode()
    return source.digest(source.package_files(*packages))


def modules_digest(*modules: str) -> str:
    """Digest of the code that modules may run.

    Of a module of farther this is its package's, and its own. Of a module of extensions it is all
    code of extensions, and all detectors and methods, which they may import. Of others it is the
    module's file, if it has one.

    Args:
        modules: Dotted names.

    Returns:
        16 hexadecimal digits.
    """
    source = SourceCode()
    packages = set()
    whole: set[str] = set()
    files = source.module_files(*modules)
    for module in modules:
        top, _, inner = module.partition(".")
        if top in PACKAGES:
            package = inner.partition(".")[0] if top == "farther" else top
            if package in IMPORTS:
                packages.add(package)
        elif _is_extension(module):
            whole.update(("detectors", "methods"))
            files |= source.extension_files()
        else:
            path = getattr(sys.modules.get(module), "__file__", None)
            if path is not None:
                files[module] = Path(path)
    files |= source.package_files(*packages, whole=whole)
    return source.digest(files)


def version_digest() -> str:
    """Digest of all code: of farther and of extensions.

    Returns:
        16 hexadecimal digits.
    """
    source = SourceCode()
    files = source.extension_files()
    lib = Path(__file__).parents[2]
    for package in PACKAGES:
        for file in _files_below(lib / package):
            files[file.relative_to(lib).as_posix()] = file
    return source.digest(files)


def _with_imported(packages: Iterable[str]) -> list[str]:
    """Packages, and those that they import, directly or through others; sorted."""
    queue = list(packages)
    visited = set()
    while queue:
        package = queue.pop()
        if package not in visited:
            visited.add(package)
            queue += IMPORTS[package]
    return sorted(visited)


def _dotted(label: str) -> str:
    """Dotted name of the module in a file below the folder of farther's packages."""
    return label.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _read(file: Path) -> _Content:
    try:
        content = file.read_bytes()
    except OSError:  # a link that leads nowhere, or a declared file that is absent
        return _Content(b"cannot be read")
    names = []
    if file.suffix == ".py":
        for decorator, name in registered_names(content):
            if decorator.rpartition(".")[2] == "register":
                names.append(name)
    return _Content(blake2b(content, digest_size=16).digest(), tuple(names))


def _python_files(folder: Path) -> list[Path]:
    """The Python files in a folder, without those in folders within it."""
    return sorted(folder.glob("*.py"))


def _files_below(folder: Path) -> Iterator[Path]:
    """The files in a folder and its sub-folders, except compiled ones and descriptions.

    Hidden files are among them, and links to folders are followed.
    """
    queue = [str(folder)]
    visited = set()
    while queue:
        subfolder = queue.pop()
        real_path = os.path.realpath(subfolder)
        if real_path in visited or not Path(subfolder).is_dir():
            continue
        visited.add(real_path)
        with os.scandir(subfolder) as entries:
            for entry in sorted(entries, key=_name):
                if entry.name in _IGNORED_NAMES or entry.name.endswith(_IGNORED_ENDINGS):
                    continue
                if entry.is_dir():
                    queue.append(entry.path)
                elif entry.is_file() or entry.is_symlink():
                    yield Path(entry.path)


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _is_extension(module: str) -> bool:
    """Whether a module belongs to a package that has extensions."""
    return any(f"{module}.".startswith(f"{package}.") for package in extensions.packages())


def _extension_files() -> dict[str, Path]:
    """See `SourceCode.extension_files`."""
    files: dict[str, Path] = {}
    queue = sorted(extensions.packages().items())
    visited = set()
    while queue:
        name, path = queue.pop()
        if path in visited:
            continue
        visited.add(path)
        found = _labelled(name, path)
        files |= found
        for file in found.values():
            if file.suffix != ".py":
                continue
            # What is not Python, such as a template, is data.
            with suppress(SyntaxError, ValueError):
                queue += _project_packages(file)
                files |= _watched_files(file)
    return files


def _labelled(name: str, path: Path) -> dict[str, Path]:
    """All files of a package or a folder, or the one file of a module, by names for a digest."""
    if not path.is_dir():
        return {f"./{name}{path.suffix}": path}
    return {f"./{name}/{file.relative_to(path).as_posix()}": file for file in _files_below(path)}


def _project_packages(file: Path) -> Iterator[tuple[str, Path]]:
    """Names and paths of the modules and packages in the project's folder that a file imports."""
    for module in sorted(imported_modules(file)):
        name = module.partition(".")[0]
        if name in sys.stdlib_module_names or name in PACKAGES:
            continue
        for path in (Path(name), Path(f"{name}.py")):
            if path.exists():
                yield name, path


def _watched_files(file: Path) -> dict[str, Path]:
    """The files that a file of extensions declares.

    Raises:
        ParameterError: `WATCHED` is not a list of texts.
    """
    try:
        paths = literal(file, WATCHED) or []
    except ValueError as error:
        raise ParameterError(f"{file}: {error}: {_advice()}") from None
    if not isinstance(paths, (list, tuple)) or not all(isinstance(path, str) for path in paths):
        raise ParameterError(f"{file}: {WATCHED} is not a list of paths: {_advice()}")
    files: dict[str, Path] = {}
    for path in paths:
        files |= _labelled(Path(path).with_suffix("").as_posix(), Path(path))
    return files


def _advice() -> str:
    return f'write {WATCHED} = ["tools/weights.json"], relative to the project'


def code_digest(*keys: str, file: str | Path = CODE) -> str:
    """A digest in `artifacts/code.json`: `code_digest("curate")`, `code_digest("infer", "yolo")`.

    See `farther.incremental.stage_digests`.

    Raises:
        DataError: the stage `code` has not run since the stage or the name was added.
    """
    value = read_json(file)
    for key in keys:
        if not isinstance(value, dict):
            value = None
            break
        value = value.get(key)
    if not isinstance(value, str):
        raise DataError(f"no digest of {'.'.join(keys)!r}; run `farther repro code`", file=file)
    return value
