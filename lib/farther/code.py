"""One answer to "which code is this result made by": a digest of modules and of everything in farther that they import.

Comments, docstrings and formatting do not count: a change that cannot change a result changes no digest.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

#: The package whose modules are followed; the versions of other packages are pinned elsewhere.
PACKAGE = "farther"


def digest_of(*modules: str) -> str:
    """Digest of the code of modules and of their import closure within farther: 32 hexadecimal digits.

    Args:
        modules: Dotted names to start at; they need not be part of farther.
    """
    total = blake2b(digest_size=16)
    for name, file in source_files(*modules).items():
        total.update(f"{name}\0{_code(file)}\0".encode())
    return total.hexdigest()


def source_files(*modules: str, package: str = PACKAGE) -> dict[str, Path]:
    """The files of modules and of all modules of a package that they import, directly or through others.

    Imports inside functions count too: they are read from the syntax tree, and nothing of farther is imported.

    Args:
        modules: Dotted names to start at; they need not be part of the package.
        package: Name of the package whose modules are followed.

    Returns:
        {dotted name: file}, sorted by name. Modules without a source file (a notebook's) are left out.
    """
    found: dict[str, Path] = {}
    queue = list(modules)
    while queue:
        name = queue.pop()
        file = None if name in found else _file(name)
        if file is not None:
            found[name] = file
            queue += [n for n in _parsed(file, name)[1] if n.startswith(f"{package}.")]
    return {name: found[name] for name in sorted(found)}


def _file(name: str) -> Path | None:
    """The source file of a module; None where `name` is not a module, or one without source."""
    root = Path(__file__).parent
    if name.startswith(f"{PACKAGE}."):
        path = root.joinpath(*name.split(".")[1:])
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


def _code(file: Path) -> str:
    return _parsed(file, "")[0]


def _parsed(file: Path, module: str) -> tuple[str, tuple[str, ...]]:
    """Digest of a file's syntax tree, and the dotted names that it imports or, in `from a import b`, might import."""
    state = file.stat()
    return _parse(file, module, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4096)
def _parse(file: Path, module: str, changed: int, size: int) -> tuple[str, tuple[str, ...]]:
    tree = ast.parse(file.read_bytes(), file)
    names = tuple(_imports(tree, file, module)) if module else ()
    return blake2b(ast.dump(_without_docstrings(tree)).encode(), digest_size=16).hexdigest(), names


def _imports(tree: ast.AST, file: Path, module: str) -> Iterator[str]:
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            value = first.value if isinstance(first, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                node.body = node.body[1:]
    return tree
