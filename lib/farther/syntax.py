"""Syntax of modules: imports, registered names, texts, and a digest of what can change a result.

Nothing is imported. A tree is parsed once per process, until its file changes.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeGuard

#: Class attributes that say how a registered class is called.
NAMING = frozenset({"title", "aliases", "published_entries"})


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
    """

    name: str
    decorator: str
    summary: str
    title: str = ""
    aliases: tuple[str, ...] = ()
    published_entries: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class ModuleSyntax:
    """The content of a module's syntax tree.

    Args:
        digest: Digest of the tree without docstrings; comments and layout are in no tree.
        docstrings: Digest of the docstrings.
        imports: (module, name) of each `from module import name`; the name is None for `import
            module`.
        exports: Origins of the names that the module imports at its top level: {name: (module,
            name there)}.
        defined: Other names of its top level.
        texts: The texts in it: names of data files and of registered classes are among them.
        creates: Whether it has a name or an attribute `create`: it may make registered classes by
            their names.
    """

    digest: str
    docstrings: str
    imports: tuple[tuple[str, str | None], ...]
    exports: dict[str, tuple[str, str]]
    defined: frozenset[str]
    texts: frozenset[str]
    creates: bool


def registrations(file: Path) -> tuple[Registration, ...]:
    """The classes that a file registers, in its order, by a decorator such as `@register("name")`.

    A file without the word `register` is not parsed.

    Raises:
        SyntaxError: it is not Python.
        ValueError: a name is not written as a text.
    """
    state = file.stat()
    return _registrations(file, state.st_mtime_ns, state.st_size)


def module_syntax(file: Path, module: str) -> ModuleSyntax:
    """Imports, names, texts and digests of a module.

    Args:
        file: Its source file.
        module: Its dotted name, which relative imports start from.

    Raises:
        SyntaxError: it is not Python.
    """
    state = file.stat()
    return _module_syntax(file, module, state.st_mtime_ns, state.st_size)


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
        )
    ]


def _literals_of_class(node: ast.ClassDef) -> dict[str, Any]:
    """The class attributes that say how a class is called; those that are no literals are absent.

    They are `title`, `aliases` and `published_entries`.
    """
    literals = {}
    for statement in node.body:
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
            continue
        for name in _assigned(statement) & NAMING:
            with suppress(ValueError):
                literals[name] = ast.literal_eval(statement.value)
    return literals


@lru_cache(maxsize=4096)
def _module_syntax(file: Path, module: str, changed: int, size: int) -> ModuleSyntax:
    """See `module_syntax`; `changed` and `size` of the file are part of the cache's key."""
    if file.name == "__init__.py":
        package = module
    else:
        package = module.rpartition(".")[0]
    try:
        return _syntax_of_source(file.read_bytes(), package)
    except SyntaxError as error:
        error.filename = str(file)
        raise


@lru_cache(maxsize=4096)
def _syntax_of_source(source: bytes, package: str) -> ModuleSyntax:
    """The syntax of a module, wherever its file is.

    Args:
        source: The content of the file.
        package: Dotted name of its package, which relative imports start from.
    """
    tree = ast.parse(source)
    exports: dict[str, tuple[str, str]] = {}
    defined: set[str] = set()
    for statement in _top_level(tree.body):
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                exports[alias.asname or alias.name] = (_source(statement, package), alias.name)
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined.add(statement.name)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            defined |= _assigned(statement)

    statements = list(_statements(tree.body))
    imports = tuple(_imports(statements, package))
    docstrings = _take_docstrings([tree, *statements])
    text = _TreeText()
    digest = _digest(text.of(tree))
    return ModuleSyntax(
        digest=digest,
        docstrings=_digest("\0".join(docstrings)),
        imports=imports,
        exports=exports,
        defined=frozenset(defined),
        texts=frozenset(text.texts.union(docstrings)),
        creates="create" in text.identifiers,
    )


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _assigned(node: ast.Assign | ast.AnnAssign) -> set[str]:
    """The names that a statement assigns to."""
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
    names = set()
    for target in targets:
        if isinstance(target, ast.Name):
            names.add(target.id)
    return names


class _TreeText:
    """A syntax tree as text that is equal in every Python.

    `ast.dump` is not: Python 3.12 added empty fields.

    Attributes:
        texts: The texts in the trees so far.
        identifiers: Names and attributes in them.
    """

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.identifiers: set[str] = set()

    def of(self, node: ast.AST) -> str:
        """The text of a tree."""
        kind = type(node)
        if not kind._fields:
            return f"{kind.__name__}()"
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                self.texts.add(node.value)
        elif isinstance(node, ast.Name):
            self.identifiers.add(node.id)
        elif isinstance(node, ast.Attribute):
            self.identifiers.add(node.attr)

        fields = []
        for name in kind._fields:
            value = getattr(node, name, None)
            if value is None:
                continue
            if isinstance(value, ast.AST):
                fields.append(f"{name}={self.of(value)}")
            elif not isinstance(value, list):
                fields.append(f"{name}={value!a}")
            elif value:
                fields.append(f"{name}=[{', '.join(self._elements(value))}]")
        return f"{kind.__name__}({', '.join(fields)})"

    def _elements(self, nodes: list[Any]) -> Iterator[str]:
        """The texts of the elements of a field: trees, texts, or None for what is left out."""
        for node in nodes:
            if isinstance(node, ast.AST):
                yield self.of(node)
            else:
                yield ascii(node)


def _top_level(nodes: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements at the top level of a module, including those for type checkers only.

    The latter tell which module a lazily imported name comes from.
    """
    for node in nodes:
        if _is_for_types_only(node):
            yield from node.body
        else:
            yield node


def _is_for_types_only(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether a statement is `if TYPE_CHECKING:`."""
    if not isinstance(node, ast.If):
        return False
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _statements(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements, including nested ones, except those for type checkers only."""
    for node in nodes:
        yield node
        if not _is_for_types_only(node):
            yield from _statements(getattr(node, "body", ()))
        for block in ("handlers", "cases", "orelse", "finalbody"):
            yield from _statements(getattr(node, block, ()))


def _imports(statements: Iterable[ast.AST], package: str) -> Iterator[tuple[str, str | None]]:
    """(module, name) of each import; the name is None for `import module`."""
    for node in statements:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield _source(node, package), alias.name


def _source(node: ast.ImportFrom, package: str) -> str:
    """The absolute name of the module that a statement imports from."""
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def _take_docstrings(nodes: Iterable[ast.AST]) -> list[str]:
    """Removes the docstrings of modules, classes and functions and returns them."""
    docstrings = []
    for node in nodes:
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if not node.body or not isinstance(node.body[0], ast.Expr):
            continue
        value = node.body[0].value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            docstrings.append(value.value)
            node.body = node.body[1:]
    return docstrings
