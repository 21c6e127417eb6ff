"""Imports of farther's modules: none goes in a circle, and those in functions have a reason."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LIB = Path(__file__).parents[1] / "lib"

#: Its modules import inside functions what a command needs: see its docstring.
COMMANDS = "farther/command/"

#: Begins the comment of a module whose functions import, and says why.
REASON = "# Imported in functions:"


@dataclass(frozen=True)
class Import:
    """An import.

    Args:
        line: Number of its line, from 1.
        names: Dotted names: modules, or names in modules.
        in_function: Whether it runs only when a function is called.
    """

    line: int
    names: tuple[str, ...]
    in_function: bool


@cache
def imports_of(file: Path) -> tuple[Import, ...]:
    """The imports of a file."""
    return tuple(imports_in(ast.parse(file.read_text())))


def imports_in(tree: ast.AST, *, in_function: bool = False) -> Iterator[Import]:
    """The imports of a piece of code."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            names = tuple(alias.name for alias in node.names)
            yield Import(node.lineno, names, in_function)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(f"{node.module}.{alias.name}" for alias in node.names)
            yield Import(node.lineno, names, in_function)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from imports_in(node, in_function=in_function or is_function)


@cache
def source_files() -> dict[str, Path]:
    """The files of farther by the dotted names of their modules."""
    files = {}
    for file in sorted((LIB / "farther").rglob("*.py")):
        parts = file.relative_to(LIB).with_suffix("").parts
        files[".".join(parts).removesuffix(".__init__")] = file
    return files


def test_an_import_in_a_function_says_which_cost_it_avoids():
    without_reason = []
    for file in source_files().values():
        name = file.relative_to(LIB).as_posix()
        text = file.read_text()
        if name.startswith(COMMANDS) or REASON in text:
            continue
        lines = text.splitlines()
        explained = 0  # the last line that a comment explains
        for found in imports_of(file):
            if not found.in_function:
                continue
            here, above = lines[found.line - 1], lines[found.line - 2].strip()
            if "  # " in here or above.startswith("#") or explained == found.line - 1:
                explained = found.line
            else:
                without_reason.append(f"{name}:{found.line}: {here.strip()}")
    assert without_reason == []


def test_modules_do_not_import_each_other():
    files = source_files()
    imported = {}
    for name, file in files.items():
        modules = set()
        for found in imports_of(file):
            for imported_name in found.names:
                package = imported_name.rpartition(".")[0]
                modules.add(imported_name if imported_name in files else package)
        imported[name] = modules - {name}
    imported["farther"] = set()  # names that load when they are first used
    while True:
        # Modules that import none of the others are in no circle.
        ends = {name for name, modules in imported.items() if not modules & imported.keys()}
        if not ends:
            break
        imported = {name: modules for name, modules in imported.items() if name not in ends}
    assert imported == {}
