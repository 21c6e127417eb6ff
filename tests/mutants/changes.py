"""Small realistic bugs: each changes one place of a module's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: What takes the place of an operator.
OPERATORS: dict[type, tuple[type, ...]] = {
    **{
        ast.Lt: (ast.LtE, ast.GtE),
        ast.LtE: (ast.Lt, ast.Gt),
        ast.Gt: (ast.GtE, ast.LtE),
        ast.GtE: (ast.Gt, ast.Lt),
    },
    **{ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,)},
    **{ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.And: (ast.Or,), ast.Or: (ast.And,)},
    **{ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,)},
    **{ast.FloorDiv: (ast.Mult,), ast.BitAnd: (ast.BitOr,), ast.BitOr: (ast.BitAnd,)},
}
#: Statements that are left out.
LEFT_OUT = (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)
#: Arguments that only check, show or group: another value gives the same results.
UNSEEN = (
    "strict",
    "stacklevel",
    "leave",
    "disable",
    "chunksize",
    "repr",
    "frozen",
    "slots",
    "kw_only",
)


@dataclass(frozen=True)
class Change:
    """A bug.

    Args:
        line: Where it is.
        span: First and last line of the body of the outermost function that it is in; None where it
            is in none.
        text: What it replaces by what.
        apply: Makes it in the tree that it was found in.
    """

    line: int
    span: tuple[int, int] | None
    text: str
    apply: Callable[[], None]


def changes(tree: ast.Module) -> Iterator[Change]:
    """All changes of a tree, in the order of the file."""
    yield from _inside(tree, None)


def _inside(node: ast.AST, span: tuple[int, int] | None) -> Iterator[Change]:
    """Yields the changes inside a node, but for annotations, decorators and docstrings.

    Zeros are left out that would become −1 as an index, which is the same of one element, or in a
    comparison, which is the same for whole numbers as another operator.
    """
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for at, child in enumerate(field) if isinstance(field, list) else [(None, field)]:
            if (
                not isinstance(child, ast.AST)
                or _is_text(child)
                or getattr(child, "arg", "") in UNSEEN
            ):
                continue
            within = span
            if span is None and isinstance(child, ast.FunctionDef):
                within = (child.body[0].lineno, child.end_lineno or child.lineno)
            for new in _instead(child):
                if not (
                    isinstance(node, (ast.Subscript, ast.Compare)) and ast.unparse(new) == "-1"
                ):
                    yield _change(node, name, at, child, new, within)
            yield from _inside(child, within)


def _change(
    node: ast.AST,
    name: str,
    at: int | None,
    child: ast.AST,
    new: ast.AST,
    span: tuple[int, int] | None,
) -> Change:
    def apply() -> None:
        ast.fix_missing_locations(ast.copy_location(new, child))
        if at is None:
            setattr(node, name, new)
        else:
            getattr(node, name)[at] = new

    line = getattr(child, "lineno", None) or getattr(node, "lineno", 1)
    if isinstance(child, (ast.operator, ast.cmpop, ast.boolop)):
        text = f"{type(child).__name__} -> {type(new).__name__}: {ast.unparse(node)}"
    else:
        text = f"{ast.unparse(child)} -> {ast.unparse(new)}"
    return Change(line, span, " ".join(text.split())[:160], apply)


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    for other in OPERATORS.get(type(node), ()):
        yield other()
    match node:
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case ast.If() | ast.IfExp() if not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
            other = ast.UnaryOp(ast.Not(), node.test)
            kind = type(node)
            yield ast.copy_location(kind(other, node.body, node.orelse), node)
        case (
            ast.Expr(value=ast.Call())
            | ast.AugAssign()
            | ast.Raise()
            | ast.Continue()
            | ast.Break()
            | ast.Delete()
        ):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
