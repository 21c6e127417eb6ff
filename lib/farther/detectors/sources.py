"""Which source files a detector's results depend on."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path


def source_files(module: str, package: str) -> list[Path]:
    """The file of a module and those of all modules of a package that it imports, directly or through others.

    Imports inside functions count too: they are found in the text.

    Args:
        module: Dotted name of the module to start at; it need not lie in the package.
        package: Dotted name of the package whose modules are followed.

    Returns:
        The files, sorted by the name of their module. A module without a file (a notebook's) has none.
    """
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = None if name in found else _file(name)
        if file is not None:
            found[name] = file
            waiting += [n for n in _imported(file, name) if n.startswith(f"{package}.")]
    return [found[name] for name in sorted(found)]


def _file(name: str) -> Path | None:
    """The source file of a module; None where `name` is no module, or one without source."""
    if name in sys.modules:
        path = getattr(sys.modules[name], "__file__", None)
    else:
        try:
            spec = importlib.util.find_spec(name)
        except ImportError:  # `name` is a function or a class within a module
            return None
        path = None if spec is None else spec.origin
    return Path(path) if path is not None and path.endswith(".py") else None


def _imported(file: Path, module: str) -> tuple[str, ...]:
    """Dotted names that a source file imports, and those that it might: in `from a import b`, `a.b` may be a module."""
    state = file.stat()
    return _imported_by(file, module, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=1024)
def _imported_by(file: Path, module: str, changed: int, size: int) -> tuple[str, ...]:
    """`_imported`, remembered for as long as the file stays as it is: each split of a run asks again."""
    return tuple(_names(ast.parse(file.read_bytes(), file), file, module))


def _names(tree: ast.AST, file: Path, module: str) -> Iterator[str]:
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)
