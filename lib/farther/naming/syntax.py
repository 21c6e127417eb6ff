"""Syntax of modules: the names that they register, what they import, and literals.

Nothing is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

#: Class attributes that say how a registered class is called, and which files it may recognise.
NAMING = frozenset({"title", "aliases", "published_entries", "RECOGNISED_FILES"})

#: The line of a class decorator that registers a name: the decorator and the name.
_REGISTER = re.compile(rb"""^@((?:\w+\.)*register\w*)\(\s*["']([^"'\n]+)["']\s*\)""", re.MULTILINE)


@dataclass(frozen=True)
class Registration:
    """A class that a module makes known under a name.

    Args:
        name: The name: "knn".
        decorator: The class decorator without its argument, as it is written: "register",
            "KINDS.register".
        summary: First paragraph of the class's docstring, in one line.
        title, aliases, published_entries: Class attributes of these names, where they are written
            as literals: the name for readers, other names, and entries of params.yaml by
            published names (`farther.methods.base.Method`).
        recognised_files: See `farther.detectors.adapter.Adapter`.
        functions: Names of the methods in the class's own body.
    """

    name: str
    decorator: str
    summary: str
    title: str = ""
    aliases: tuple[str, ...] = ()
    published_entries: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    recognised_files: tuple[str, ...] = ()
    functions: frozenset[str] = frozenset()


def registered_names(content: bytes) -> list[tuple[str, str]]:
    """Decorator and name of each class that a file of farther registers; the file is not parsed.

    >>> registered_names(b'@KINDS.register("paste")\\nclass Paste: ...')
    [('KINDS.register', 'paste')]
    """
    return [(decorator.decode(), name.decode()) for decorator, name in _REGISTER.findall(content)]


def registrations(file: Path) -> tuple[Registration, ...]:
    """The classes that a file registers, in its order, by a decorator such as `@register("name")`.

    A file without the word `register` is not parsed.

    Raises:
        SyntaxError: it is not Python.
        ValueError: a name is not written as a text.
    """
    state = file.stat()
    return _registrations(file, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4096)
def _registrations(file: Path, changed: int, size: int) -> tuple[Registration, ...]:
    source = file.read_bytes()
    if b"register" not in source:
        return ()
    registered = []
    for node in ast.parse(source, file).body:
        if isinstance(node, ast.ClassDef):
            for decorator in node.decorator_list:
                registered += _registration(node, decorator)
    return tuple(registered)


def _registration(node: ast.ClassDef, decorator: ast.expr) -> list[Registration]:
    """The registration by a class decorator; empty for another decorator.

    Raises:
        ValueError: the name is not written as a text.
    """
    if not isinstance(decorator, ast.Call):
        return []
    decorator_name = ast.unparse(decorator.func)
    function_name = decorator_name.rpartition(".")[2]
    if not function_name.startswith("register"):
        return []
    constants = []
    for argument in decorator.args:
        if isinstance(argument, ast.Constant):
            constants.append(argument.value)
    if len(constants) != 1 or not isinstance(constants[0], str):
        if function_name != "register":  # a decorator of another library
            return []
        problem = f'line {decorator.lineno}: write the name as a text: @{decorator_name}("name")'
        raise ValueError(problem)
    docstring = ast.get_docstring(node) or ""
    summary = docstring.partition("\n\n")[0]
    literals = _literals_of_class(node)
    return [
        Registration(
            name=constants[0],
            decorator=decorator_name,
            summary=" ".join(summary.split()),
            title=str(literals.get("title", "")),
            aliases=tuple(literals.get("aliases", ())),
            published_entries=dict(literals.get("published_entries", {})),
            recognised_files=tuple(literals.get("RECOGNISED_FILES", ())),
            functions=_functions_of_class(node),
        )
    ]


def _functions_of_class(node: ast.ClassDef) -> frozenset[str]:
    """Names of the methods in a class's own body."""
    return frozenset(
        statement.name for statement in node.body if isinstance(statement, ast.FunctionDef)
    )


def _literals_of_class(node: ast.ClassDef) -> dict[str, Any]:
    """The class attributes that say how a class is called; those that are no literals are absent.

    They are those of `NAMING`.
    """
    literals = {}
    for statement in node.body:
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
            continue
        for name in _assigned(statement) & NAMING:
            with suppress(ValueError):
                literals[name] = ast.literal_eval(statement.value)
    return literals


def _assigned(node: ast.Assign | ast.AnnAssign) -> set[str]:
    """The names that a statement assigns to."""
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
    names = set()
    for target in targets:
        if isinstance(target, ast.Name):
            names.add(target.id)
    return names


def imported_modules(file: Path) -> frozenset[str]:
    """Absolute names that a file may import, those of relative imports left out.

    They are `a.b` of `import a.b`, `a` and `a.b` of `from a import b`, also within functions, and
    the texts that `import_module` is called with.

    Raises:
        SyntaxError, ValueError: it is not Python.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes(), file)):
        names.update(_imported(node))
    return frozenset(names)


def imported_at_once(file: Path) -> frozenset[str]:
    """As `imported_modules`, of the imports at the top level alone."""
    names: set[str] = set()
    for node in ast.parse(file.read_bytes(), file).body:
        names.update(_imported(node))
    return frozenset(names)


def _imported(node: ast.AST) -> Iterator[str]:
    """The absolute names that a statement or a call imports."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        yield node.module
        for alias in node.names:
            yield f"{node.module}.{alias.name}"
    elif isinstance(node, ast.Call) and node.args:
        function_name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
        argument = node.args[0]
        if function_name != "import_module" or not isinstance(argument, ast.Constant):
            return
        if isinstance(argument.value, str) and not argument.value.startswith("."):
            yield argument.value


def literal(file: Path, name: str) -> Any:
    """The value that a file assigns to a name at its top level; None without one.

    Raises:
        SyntaxError: it is not Python.
        ValueError: the value is not written as a literal; names the line.
    """
    for node in ast.parse(file.read_bytes(), file).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        if name not in _assigned(node):
            continue
        try:
            return ast.literal_eval(node.value)
        except ValueError:
            raise ValueError(f"line {node.lineno}: {name} is not a literal") from None
    return None
