"""Editable parts of source files: functions, constants, class attributes, data; and their edits.

This file knows nothing of how digests are computed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class Unit:
    """A part of a file.

    Args:
        file: Path below the library's folder: "farther/methods/vim.py".
        kind: "function", "constant" (with attributes of classes) or "data".
        name: Its name in the file; "" for a data file.
        line: Its first line; 0 for a data file.
    """

    file: str
    kind: str
    name: str
    line: int


@dataclass(frozen=True)
class Call:
    """A function that a stage called, or a data file that it read.

    Args:
        file: The file.
        line: First line of the function, its decorators included; None for a data file.
        importing: The file that was being imported; None while the stage worked.
        names: Global names and attributes that the function uses.
    """

    file: str
    line: int | None
    importing: str | None
    names: tuple[str, ...]


class Module:
    """The syntax of a file.

    Attributes:
        constants: Assignments at the top level, by name.
        classes: Classes at the top level, by name.
        imported: (dotted module, name there) of each name that it imports; the name is None for a
            module.
    """

    def __init__(self, lib: Path, file: str):
        self.file = file
        tree = ast.parse((lib / file).read_bytes())
        package = file.removesuffix(".py").removesuffix("/__init__").split("/")
        if not file.endswith("/__init__.py"):
            package.pop()
        self.functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
        self.constants: dict[str, ast.Assign | ast.AnnAssign] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.imported: dict[str, tuple[str, str | None]] = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
            for name in assigned_names(node):
                self.constants[name] = node
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                source = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = (source, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        self.imported[alias.asname] = (alias.name, None)

    def function_at(self, line: int) -> Function | None:
        """The innermost function that has a line."""
        around = [node for node in self.functions if first_line(node) <= line <= node.end_lineno]
        return max(around, key=first_line, default=None)


class Library:
    """The files of a library.

    Args:
        lib: The folder of its packages.
    """

    def __init__(self, lib: Path):
        self.lib = lib
        self.module = lru_cache(maxsize=None)(lambda file: Module(lib, file))

    def file_of(self, module: str) -> str | None:
        """The file of a dotted name."""
        path = module.replace(".", "/")
        for file in (f"{path}.py", f"{path}/__init__.py"):
            if (self.lib / file).is_file():
                return file
        return None

    def reached(self, calls: Iterable[Call]) -> set[Unit]:
        """The parts that a stage reaches.

        They are the functions that were called and the data files that were read, while the stage
        worked or while a module was imported of which something else is reached; constants that
        these functions name, here or imported; and the attributes of classes that they name.
        """
        waiting = list(calls)
        units: set[Unit] = set()
        files: set[str] = set()
        while True:
            ready = [call for call in waiting if call.importing is None or call.importing in files]
            if not ready:
                return units
            waiting = [call for call in waiting if call not in ready]
            for call in ready:
                units |= set(self._units_of_call(call))
            files = {unit.file for unit in units}

    def _units_of_call(self, call: Call) -> Iterator[Unit]:
        if call.line is None:
            yield Unit(call.file, "data", "", 0)
            return
        module = self.module(call.file)
        function = module.function_at(call.line)
        if function is not None:
            yield Unit(call.file, "function", function.name, first_line(function))
        for name in call.names:
            yield from self._units_of_name(module, name, call.names)

    def _units_of_name(self, module: Module, name: str, others: tuple[str, ...]) -> Iterator[Unit]:
        """The constant, or the attributes of the class, that a name means in a module."""
        if name in module.constants:
            yield Unit(module.file, "constant", name, module.constants[name].lineno)
        elif name in module.classes:
            for node in module.classes[name].body:
                for attribute in assigned_names(node):
                    yield Unit(module.file, "constant", f"{name}.{attribute}", node.lineno)
        elif name in module.imported:
            source, imported = module.imported[name]
            if imported is not None and self.file_of(f"{source}.{imported}") is not None:
                source, imported = f"{source}.{imported}", None
            file = self.file_of(source)
            if file is None:
                return
            if imported is not None:
                yield from self._units_of_name(self.module(file), imported, others)
                return
            for attribute in others:  # `module.NAME`
                if (
                    attribute in self.module(file).constants
                    or attribute in self.module(file).classes
                ):
                    yield from self._units_of_name(self.module(file), attribute, others)

    def edited(self, unit: Unit) -> bytes:
        """Content of a unit's file after an edit: a further statement or byte, or another value."""
        content = (self.lib / unit.file).read_bytes()
        if unit.kind == "data":
            return content + b" "
        module = self.module(unit.file)
        if unit.kind == "function":
            return with_statement(
                content, next(node for node in module.functions if first_line(node) == unit.line)
            )
        owner, _, attribute = unit.name.rpartition(".")
        body = module.classes[owner].body if owner else module.constants.values()
        node = next(
            node for node in body if node.lineno == unit.line and attribute in assigned_names(node)
        )
        start, end = (
            offset(content, node.value.lineno, node.value.col_offset),
            offset(content, node.value.end_lineno, node.value.end_col_offset),
        )
        return content[:start] + b"(" + content[start:end] + b", 0)" + content[end:]


def assigned_names(node: ast.stmt) -> list[str]:
    """The names that a statement gives a value."""
    targets = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    names = []
    for target in targets:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        names += [part.id for part in parts if isinstance(part, ast.Name)]
    return names


def first_line(node: Function) -> int:
    """First line of a function, its decorators included: that of its code object."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def offset(content: bytes, line: int, column: int) -> int:
    """Offset of a place in the bytes of a file."""
    return sum(len(text) for text in content.split(b"\n")[: line - 1]) + line - 1 + column


def with_statement(content: bytes, node: Function) -> bytes:
    """A file after a statement was added to a function, behind its docstring."""
    first = node.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if has_docstring:
        place = offset(content, first.end_lineno, first.end_col_offset)
        if content[
            offset(content, first.lineno, 0) : offset(content, first.lineno, first.col_offset)
        ].strip():
            return content[:place] + b"; 0" + content[place:]
        return content[:place] + b"\n" + b" " * first.col_offset + b"0" + content[place:]
    lines = [
        first.lineno,
        *(decorator.lineno for decorator in getattr(first, "decorator_list", ())),
    ]
    place = offset(content, min(lines), 0)
    before = content[place : place + first.col_offset]
    if before.strip():  # `def f(): ...`
        return content[: place + first.col_offset] + b"0; " + content[place + first.col_offset :]
    return content[:place] + b" " * first.col_offset + b"0\n" + content[place:]
