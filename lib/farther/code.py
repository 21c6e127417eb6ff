"""Digests of code: of modules, and of everything in farther that they import.

They say what must run again. Comments, docstrings, formatting and the stages' checks do not count: a change that cannot
change a result changes no digest. A data file that a package ships (a template, YAML) counts with the modules beside it
that name it, or the folder it is in. Everything is read from syntax trees; no module is imported.

A name that a package's `__init__.py` imports from one of its modules leads to that module only:
`from farther.tables import Images` does not depend on `farther.tables.regions`.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

#: The packages whose modules are followed; the versions of others are pinned elsewhere.
PACKAGES = ("farther", "farther_demo", "farther_training")

#: The package of the stages.
STAGES = "farther.pipeline"

#: Where the stage `code` writes the digests of all stages.
CODE = Path("artifacts/code.json")


@dataclass(frozen=True)
class Parsed:
    """What a module's syntax tree says.

    Args:
        digest: Of the tree without docstrings.
        imports: (module, name) of each `from module import name`; the name is None for `import module`.
        exports: Where names come from that the module imports at its top level: {name: (module, name there)}.
        defined: Other names of its top level.
        registered: Names that its decorators `@register("name")` make known.
        texts: The texts in it: names of data files are among them.
    """

    digest: str
    imports: tuple[tuple[str, str | None], ...]
    exports: dict[str, tuple[str, str]]
    defined: frozenset[str]
    registered: tuple[str, ...]
    texts: frozenset[str]


def digest_of(*modules: str | Path) -> str:
    """Digest of the code of modules, of their import closure within farther, and of the data files beside them.

    Args:
        modules: Dotted names to start at, or paths of scripts; they need not be part of farther.

    Returns:
        16 hexadecimal digits.
    """
    total = blake2b(digest_size=8)
    for name, file in source_files(*modules).items():
        code = _parsed(file, name).digest if file.suffix == ".py" else None
        content = code or blake2b(file.read_bytes(), digest_size=8).hexdigest()
        total.update(f"{name}\0{content}\0".encode())
    return total.hexdigest()


def source_files(*modules: str | Path, packages: Sequence[str] = PACKAGES) -> dict[str, Path]:
    """Files of modules, of all modules of packages that they import (directly or not), and of the data beside them.

    Imports inside functions count; those for type checkers only do not.

    Args:
        modules: Dotted names to start at, or paths of scripts; they need not be part of the packages.
        packages: Names of the packages whose modules are followed.

    Returns:
        {dotted name, or for a data file its path below its package: file}, sorted by name. Modules without a source
        file (a notebook's) are left out.
    """
    followed = tuple(f"{package}." for package in packages)
    found: dict[str, Path] = {}
    queue: list[tuple[str, str | None]] = []
    seen: set[tuple[str, str | None]] = set()

    def add(name: str, file: Path) -> None:
        found[name] = file
        queue.extend(target for target in _parsed(file, name).imports if f"{target[0]}.".startswith(followed))

    for start in modules:
        if isinstance(start, Path):
            add(start.name, start)
        else:
            queue.append((start, None))
    while queue:
        target = queue.pop()
        if target in seen:
            continue
        seen.add(target)
        for name in _modules_of(*target):
            file = _file(name)
            if file is not None and name not in found:
                add(name, file)
    texts: dict[Path, set[str]] = {}
    for name, file in found.items():
        if name.startswith(followed):
            texts.setdefault(file.parent, set()).update(_parsed(file, name).texts)
    for folder, named in texts.items():
        data = {f"{folder.name}/{file.relative_to(folder)}": file for file in _data_files(folder)}
        found |= {name: file for name, file in data.items() if named.intersection(file.relative_to(folder).parts)}
    return dict(sorted(found.items()))


def registered(package: str) -> dict[str, str]:
    """The modules of a package that register names: {"knn": "farther.methods.knn", …}."""
    return {name: module for module, file in _package_files(package) for name in _parsed(file, module).registered}


def registered_in(file: Path, module: str) -> tuple[str, ...]:
    """The names that a file registers.

    Raises:
        SyntaxError: it is not Python.
    """
    return _parsed(file, module).registered


def modules_of(package: str) -> list[str]:
    """Dotted names of all modules of a package."""
    return [module for module, _ in _package_files(package)]


def packages_of(module: str) -> set[str]:
    """Top-level packages outside farther and the standard library that a module imports.

    Modules of its own package (`farther.detectors`) that it imports are followed.
    """
    own = ".".join(module.split(".")[:2])
    files = source_files(module, packages=[own]).items()
    names = {target[0] for name, file in files if file.suffix == ".py" for target in _parsed(file, name).imports}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {*PACKAGES}


def _modules_of(module: str, name: str | None) -> list[str]:
    """The modules that `import module` or `from module import name` needs."""
    if name is None:
        return [module]
    if _file(f"{module}.{name}") is not None:
        return [f"{module}.{name}"]
    file = _file(module)
    if file is None or file.name != "__init__.py":
        return [module]
    parsed = _parsed(file, module)
    if name in parsed.exports:
        return _modules_of(*parsed.exports[name])
    if "__getattr__" in parsed.defined and name not in parsed.defined:  # it may lead to any module of the package
        return [module for module, _ in _package_files(module)]
    return [module]


def _package_files(package: str) -> Iterator[tuple[str, Path]]:
    """All modules of a package and of the packages within it."""
    init = _file(package)
    for file in sorted(init.parent.rglob("*.py")) if init else ():
        parts = file.relative_to(init.parent).with_suffix("").parts if init else ()
        yield ".".join((package, *(part for part in parts if part != "__init__"))), file


def _data_files(folder: Path) -> Iterator[Path]:
    """What a package ships beside its modules, in its folder and in folders within it that are not packages."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            if entry.name != "__pycache__" and not (entry / "__init__.py").exists():
                yield from _data_files(entry)
        elif entry.suffix not in (".py", ".pyc", ".typed"):
            yield entry


def _file(name: str) -> Path | None:
    """The source file of a module; None where `name` is not a module, or one without source."""
    if name.partition(".")[0] in PACKAGES:
        path = Path(__file__).parents[1].joinpath(*name.split("."))
        candidates = (path.with_suffix(".py"), path / "__init__.py")
        return next((file for file in candidates if file.is_file()), None)
    origin = getattr(sys.modules.get(name), "__file__", None)
    if origin is None and name not in sys.modules:
        try:
            spec = importlib.util.find_spec(name)
        except ImportError:  # `name` is a function or a class within a module
            return None
        origin = None if spec is None else spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _parsed(file: Path, module: str) -> Parsed:
    state = file.stat()
    return _parse(file, module, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4096)
def _parse(file: Path, module: str, changed: int, size: int) -> Parsed:
    tree = ast.parse(file.read_bytes(), file)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    if package == STAGES:  # `check` says what is missing before anything runs: it changes no result
        tree.body = [node for node in tree.body if not getattr(node, "name", "").lstrip("_").startswith("check")]
    exports, defined = {}, set()
    for node in _top_level(tree.body):
        if isinstance(node, ast.ImportFrom):
            exports.update({alias.asname or alias.name: (_source(node, package), alias.name) for alias in node.names})
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined.update(target.id for target in targets if isinstance(target, ast.Name))
    imports, names = tuple(_imports(tree.body, package)), tuple(_registered(tree))
    content = blake2b(_written(_without_docstrings(tree)).encode(), digest_size=8).hexdigest()
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return Parsed(content, imports, exports, frozenset(defined), names, frozenset(texts))


def _written(node: Any) -> str:
    """A syntax tree as text, the same in every Python, which `ast.dump` is not: Python 3.12 added empty fields."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
        return f"{type(node).__name__}({', '.join(f'{name}={_written(value)}' for name, value in fields)})"
    if isinstance(node, list):
        return f"[{', '.join(map(_written, node))}]"
    return ascii(node)


def _top_level(nodes: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those for type checkers only included: they say where a lazy name comes from."""
    for node in nodes:
        if isinstance(node, ast.If) and _for_types_only(node):
            yield from node.body
        else:
            yield node


def _for_types_only(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _statements(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements, those within others too, but not those for type checkers only."""
    for node in nodes:
        yield node
        skipped = ("body",) if isinstance(node, ast.If) and _for_types_only(node) else ()
        for part in ("body", "handlers", "cases", "orelse", "finalbody"):
            if part not in skipped:
                yield from _statements(getattr(node, part, ()))


def _imports(nodes: Iterable[ast.AST], package: str) -> Iterator[tuple[str, str | None]]:
    for node in _statements(nodes):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((_source(node, package), alias.name) for alias in node.names)


def _source(node: ast.ImportFrom, package: str) -> str:
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def _registered(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else ():
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).rpartition(".")[2] == "register":
                yield ast.literal_eval(decorator.args[0])


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in (tree, *_statements(tree.body)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                node.body = node.body[1:]
    return tree
