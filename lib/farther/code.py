"""Digests of code: of modules, and of all files of farther and of extensions that they reach.

Stages whose digest changed run again. Comments and layout do not count, and docstrings only on
request; everything else of a reached file does. Files are reached

- by imports within farther, also those inside functions. A name that a package's `__init__.py`
  imports from one of its modules leads to that module only: `from farther.tables import Images`
  does not reach `farther.tables.regions`;
- as data beside a module (a template, YAML): with the modules of its folder that name it or the
  folder it is in;
- by names: a module that calls `create` and imports something of `farther.methods`, for example,
  reaches the methods whose names are texts in it: `create("entropy")`. Names in params.yaml are not
  known here: see `farther.pipeline.code_digests`;
- as extensions: all files of the folder `extensions/`, or of a package that has extensions, and the
  modules of the project that they import.

Modules of `WITHOUT_EFFECT` do not. Everything is read from syntax trees; no module is imported.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from farther import extensions
from farther.syntax import ModuleSyntax, module_syntax, registrations

#: The packages whose modules are followed; the versions of others are pinned elsewhere.
PACKAGES = ("farther", "farther_demo", "farther_training")

#: Packages whose modules register classes that other modules may create by name.
REGISTERING = ("farther.datasets", "farther.derived", "farther.detectors", "farther.methods")

#: Where the stage `code` writes the digests of all stages.
CODE = Path("artifacts/code.json")

#: Modules whose code changes no result, with the reason. The modules that they import count, and so
#: do they where a digest starts at them.
WITHOUT_EFFECT = {
    "farther": "imports what is named; the report, which prints its version, asks for it",
    "farther.code": "computes digests of code",
    "farther.cores": "counts cores and frees memory",
    "farther.extensions": "finds and imports the files of extensions, which count themselves",
    "farther.extras": "words for a package that is absent",
    "farther.keyed": "decides what is made again",
    "farther.pipeline.adoption": "decides what of an earlier version is made again",
    "farther.pipeline.cluster": "decides where a stage works",
    "farther.methods.torch_form": (
        "scores tensors in loops of users and in graphs, and nothing in a stage"
    ),
    "farther.metrics": "imports what is named",
    "farther.registry": "finds and checks what params.yaml names; the classes count themselves",
    "farther.stage": "starts a stage and words its errors",
    "farther.syntax": "reads syntax trees for digests and names",
    "farther.terminal": "prints to the terminal",
    "farther.tables": "imports what is named",
    "farther.tables.files": "checks paths; names for functions that are elsewhere",
    "farther.tables.opening": "opens files",
    "farther.tables.writing": "writes what it is given, and locks",
}

#: Files in a package of extensions that are not its code.
_IGNORED_NAMES = ("__pycache__",)
_IGNORED_SUFFIXES = (".pyc",)


@dataclass(frozen=True)
class SourceFile:
    """A file of code, or of data that code reads.

    Args:
        label: Its name in digests and messages: a module's dotted name, or the end of its path, the
            same on every machine.
        path: Its path.
        module: Dotted name of its module; None for data.
    """

    label: str
    path: Path
    module: str | None = None


class Sources:
    """The source files as they are now; each is looked up and read once.

    Args:
        packages: Names of the packages whose modules are followed.
        without_effect: Dotted names of modules that do not count.
    """

    def __init__(
        self, packages: Sequence[str] = PACKAGES, without_effect: Iterable[str] = WITHOUT_EFFECT
    ):
        self._followed = tuple(f"{package}." for package in packages)
        self._without_effect = frozenset(without_effect)
        self._reached: dict[str | Path, frozenset[SourceFile]] = {}
        self._imported: dict[SourceFile, list[SourceFile]] = {}
        self._data: dict[SourceFile, set[SourceFile]] = {}
        self._data_files: dict[Path, list[SourceFile]] = {}
        self._files: dict[str, Path | None] = {}
        self._registered: dict[str, dict[str, str]] = {}
        self._resolved: dict[tuple[str, str | None], list[SourceFile]] = {}
        self._syntax: dict[SourceFile, ModuleSyntax | None] = {}
        self._content: dict[Path, str] = {}

    def reached(self, *starts: str | Path) -> set[SourceFile]:
        """The files that count with modules.

        Args:
            starts: Dotted names of modules, or paths of scripts; they need not be part of the
                packages.
        """
        files: set[SourceFile] = set()
        for start in starts:
            if start not in self._reached:
                self._reached[start] = frozenset(self._follow(start))
            files |= self._reached[start]
        return files

    def digest(self, *starts: str | Path, docstrings: bool = False) -> str:
        """Digest of the files that count with modules.

        Args:
            starts: See `reached`.
            docstrings: Whether docstrings count, too: of a stage that prints them.

        Returns:
            16 hexadecimal digits.
        """
        lines = []
        for source in self.reached(*starts):
            syntax = self._parsed(source)
            if syntax is None:
                content = self._bytes_digest(source.path)
            elif docstrings:
                content = syntax.digest + syntax.docstrings
            else:
                content = syntax.digest
            lines.append(f"{source.label}\0{content}\0")
        return blake2b("".join(sorted(lines)).encode(), digest_size=8).hexdigest()

    def _follow(self, start: str | Path) -> set[SourceFile]:
        """The files that one module reaches."""
        if isinstance(start, Path):
            queue = [SourceFile(start.name, start, start.stem)]
        else:
            queue = list(self._files_of_import(start, None))
        visited = set(queue)
        counted = set()
        while queue:
            source = queue.pop()
            if source.module == start or source.module not in self._without_effect:
                counted.add(source)
                counted |= self._data_beside(source)
            for imported in self._imports(source):
                if imported not in visited:
                    visited.add(imported)
                    queue.append(imported)
        return counted

    def _imports(self, source: SourceFile) -> list[SourceFile]:
        """The files behind the imports of a module that are followed."""
        if source not in self._imported:
            self._imported[source] = self._find_imports(source)
        return self._imported[source]

    def _find_imports(self, source: SourceFile) -> list[SourceFile]:
        syntax = self._parsed(source)
        if syntax is None:
            return []
        imported: list[SourceFile] = []
        for module, name in syntax.imports:
            if f"{module}.".startswith(self._followed):
                imported += self._files_of_import(module, name)
            elif source.label.startswith(OUTSIDE):
                imported += _project_modules(module)
        if syntax.creates:
            for module in self._created(syntax):
                imported += self._files_of_import(module, None)
        return imported

    def _created(self, syntax: ModuleSyntax) -> list[str]:
        """The modules of classes that a module may create by names that are texts in it."""
        modules = []
        imports = [f"{module}.{name}." for module, name in syntax.imports]
        for package in REGISTERING:
            is_imported = any(imported.startswith(f"{package}.") for imported in imports)
            if not is_imported or not f"{package}.".startswith(self._followed):
                continue
            if package not in self._registered:
                self._registered[package] = registered(package)
            for name, module in self._registered[package].items():
                if name in syntax.texts:
                    modules.append(module)
        return modules

    def _files_of_import(self, module: str, name: str | None) -> list[SourceFile]:
        """The files that `import module` or `from module import name` reads directly."""
        target = (module, name)
        if target not in self._resolved:
            self._resolved[target] = self._resolve(module, name)
        return self._resolved[target]

    def _resolve(self, module: str, name: str | None) -> list[SourceFile]:
        if module.partition(".")[0] not in PACKAGES:
            package = extensions.package_of(module)
            if package is not None:
                return _package_contents(package, extensions.packages()[package])
        sources = []
        for needed in self._modules_of_import(module, name):
            file = self._file(needed)
            if file is not None:
                sources.append(SourceFile(needed, file, needed))
        return sources

    def _modules_of_import(self, module: str, name: str | None) -> list[str]:
        """Dotted names of the modules that `import module` or `from module import name` needs."""
        if name is None:
            return [module]
        if self._file(f"{module}.{name}") is not None:
            return [f"{module}.{name}"]
        file = self._file(module)
        if file is None or file.name != "__init__.py":
            return [module]
        syntax = self._parsed(SourceFile(module, file, module))
        if syntax is None:
            return [module]
        if name in syntax.exports:
            return self._modules_of_import(*syntax.exports[name])
        if "__getattr__" in syntax.defined and name not in syntax.defined:
            # The name may lead to any module of the package.
            return modules_of(module)
        return [module]

    def _data_beside(self, source: SourceFile) -> set[SourceFile]:
        """The data files in the folder of a module, and in its sub-folders, that it names."""
        if source not in self._data:
            self._data[source] = self._find_data(source)
        return self._data[source]

    def _find_data(self, source: SourceFile) -> set[SourceFile]:
        syntax = self._parsed(source)
        if syntax is None or not f"{source.module}.".startswith(self._followed):
            return set()
        folder = source.path.parent
        if folder not in self._data_files:
            self._data_files[folder] = list(_data_files(folder))
        data = set()
        for file in self._data_files[folder]:
            inner = file.label.split("/")[1:]
            if syntax.texts.intersection(inner):
                data.add(file)
        return data

    def _file(self, module: str) -> Path | None:
        """The source file of a module; see the function `_file`."""
        if module not in self._files:
            self._files[module] = _file(module)
        return self._files[module]

    def _parsed(self, source: SourceFile) -> ModuleSyntax | None:
        """The syntax of a module.

        None for data, and for files of an extension that are not Python.
        """
        if source not in self._syntax:
            self._syntax[source] = _parse(source)
        return self._syntax[source]

    def _bytes_digest(self, file: Path) -> str:
        if file not in self._content:
            self._content[file] = blake2b(file.read_bytes(), digest_size=8).hexdigest()
        return self._content[file]


def digest_of(*modules: str | Path) -> str:
    """Digest of the code of modules and of all files that they reach; see the module's docstring.

    Args:
        modules: Dotted names to start at, or paths of scripts; they need not be part of farther.
            The name of a module of extensions stands for its whole folder or package.

    Returns:
        16 hexadecimal digits.
    """
    return Sources().digest(*modules)


def source_files(*modules: str | Path, packages: Sequence[str] = PACKAGES) -> dict[str, Path]:
    """The files that count with modules: see `digest_of`.

    Args:
        modules: Dotted names to start at, or paths of scripts; they need not be part of the
            packages.
        packages: Names of the packages whose modules are followed.

    Returns:
        {dotted name, or for a data file the end of its path: file}, sorted by name. Files of one
        label have more of their paths in it. Modules without a source file (a notebook's) are left
        out.
    """
    reached = Sources(packages).reached(*modules)
    files: dict[str, Path] = {}
    for source in sorted(reached, key=lambda source: (source.label, source.path)):
        label = source.label
        for parent in source.path.parents:
            if label not in files:
                break
            label = f"{parent.name}/{label}"
        files[label] = source.path
    return dict(sorted(files.items()))


def registered(package: str) -> dict[str, str]:
    """The modules of a package that register names: {"knn": "farther.methods.knn", …}."""
    modules = {}
    for module, file in _package_files(package):
        for entry in registrations(file):
            if entry.decorator.rpartition(".")[2] == "register":
                modules[entry.name] = module
    return modules


def modules_of(package: str) -> list[str]:
    """Dotted names of all modules of a package."""
    return [module for module, _ in _package_files(package)]


def defines(module: str, name: str) -> bool:
    """Whether a module of farther has a function, class or variable of a name at its top level."""
    file = _file(module)
    return file is not None and name in module_syntax(file, module).defined


def packages_of(module: str) -> set[str]:
    """Top-level packages outside farther and the standard library that a module imports.

    Modules of its own package (`farther.detectors`) that it imports are followed, but for those of
    `WITHOUT_EFFECT`.
    """
    own_package = ".".join(module.split(".")[:2])
    names = set()
    for name, file in source_files(module, packages=[own_package]).items():
        if file.suffix != ".py" or name in WITHOUT_EFFECT:
            continue
        for imported, _ in module_syntax(file, name).imports:
            names.add(imported.partition(".")[0])
    return names - sys.stdlib_module_names - set(PACKAGES)


#: Prefix of the labels of files outside farther, whose imports of the project's modules are
#: followed.
OUTSIDE = "./"


def _package_contents(package: str, path: Path) -> list[SourceFile]:
    """All files of a package of extensions, or the one file of a module."""
    if path.is_file():
        return [SourceFile(f"{OUTSIDE}{package}.py", path, package)]
    sources = []
    for file in _files_below(path):
        inner = file.relative_to(path)
        module = None
        if file.suffix == ".py":
            module = _module_name(package, inner)
        sources.append(SourceFile(f"{OUTSIDE}{package}/{inner.as_posix()}", file, module))
    return sources


def _project_modules(module: str) -> list[SourceFile]:
    """The files in the project's folder that `import module` may read: a module or a package."""
    name = module.partition(".")[0]
    if name in sys.stdlib_module_names or name in PACKAGES or not name:
        return []
    file = Path(f"{name}.py")
    if file.is_file():
        return [SourceFile(f"{OUTSIDE}{name}.py", file, name)]
    sources = []
    if Path(name).is_dir():
        for source in _package_contents(name, Path(name)):
            if source.module is not None:
                sources.append(source)
    return sources


def _parse(source: SourceFile) -> ModuleSyntax | None:
    """See `Sources._parsed`."""
    if source.module is None:
        return None
    try:
        return module_syntax(source.path, source.module)
    except (ImportError, SyntaxError, ValueError):
        if source.label.startswith(OUTSIDE):  # importing it raises the same error
            return None
        raise


def _files_below(folder: Path) -> Iterator[Path]:
    """The files in a folder and its sub-folders, except hidden and compiled ones.

    Links to folders are followed.
    """
    queue = [folder]
    visited = set()
    while queue:
        subfolder = queue.pop()
        real_path = os.path.realpath(subfolder)
        if real_path in visited:
            continue
        visited.add(real_path)
        for entry in sorted(subfolder.iterdir()):
            if _is_ignored(entry):
                continue
            if entry.is_dir():
                queue.append(entry)
            elif entry.is_file():
                yield entry


def _is_ignored(entry: Path) -> bool:
    """Whether a file or folder of a package of extensions is not its code."""
    if entry.name.startswith("."):
        return True
    return entry.name in _IGNORED_NAMES or entry.suffix in _IGNORED_SUFFIXES


def _package_files(package: str) -> Iterator[tuple[str, Path]]:
    """All modules of a package and of the packages within it, with their files."""
    init = _file(package)
    if init is None:
        return
    for file in sorted(init.parent.rglob("*.py")):
        yield _module_name(package, file.relative_to(init.parent)), file


def _module_name(package: str, file: Path) -> str:
    """Dotted name of the module in a file, given by its path relative to the package's folder."""
    parts = list(file.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join([package, *parts])


def _data_files(folder: Path, label: str = "") -> Iterator[SourceFile]:
    """Data files of a package: in its folder and in sub-folders that are not packages."""
    label = label or folder.name
    for entry in folder.iterdir():
        if entry.is_dir():
            is_package = (entry / "__init__.py").exists()
            if entry.name != "__pycache__" and not is_package:
                yield from _data_files(entry, f"{label}/{entry.name}")
        elif entry.suffix not in (".py", ".pyc", ".typed"):
            yield SourceFile(f"{label}/{entry.name}", entry)


def _file(name: str) -> Path | None:
    """The source file of a module; None where `name` is not a module, or one without source."""
    if name.partition(".")[0] in PACKAGES:
        path = Path(__file__).parents[1].joinpath(*name.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
        return None
    origin = _origin(name)
    if origin is None or not origin.endswith(".py"):
        return None
    return Path(origin)


def _origin(name: str) -> str | None:
    """The path that Python loads a module outside farther from; None where there is none."""
    if name in sys.modules:
        file: str | None = getattr(sys.modules[name], "__file__", None)
        return file
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:  # `name` is a function or a class within a module
        return None
    if spec is None:
        return None
    return spec.origin
