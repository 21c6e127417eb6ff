"""Text of YAML files that people edit.

The line of a key, and new entries that leave every other line as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from farther.errors import ParameterError


@dataclass(frozen=True)
class _Entry:
    """An entry of a mapping."""

    key: yaml.Node
    value: yaml.Node


def _entry(node: yaml.Node | None, key: str) -> _Entry | None:
    """The entry of a key in a mapping; None without one, and for what is not a mapping."""
    if not isinstance(node, yaml.MappingNode):
        return None
    for key_node, value_node in node.value:
        if key_node.value == key:
            return _Entry(key_node, value_node)
    return None


def line_of(text: str, keys: Sequence[str]) -> int:
    """The line of a nested key, from 1; that of the innermost existing one if it is absent.

    >>> line_of("a: 1\\nb:\\n  c: 2\\n", ["b", "c"])
    3
    """
    node = yaml.compose(text)
    line = 1
    for key in keys:
        entry = _entry(node, key)
        if entry is None:
            break
        line = entry.key.start_mark.line + 1
        node = entry.value
    return line


def inserted(text: str, keys: Sequence[str], lines: Sequence[str], flow: str = "") -> str:
    """A text with an additional entry in a mapping.

    It goes below the mapping's last entry and the comments there.

    Args:
        text: The file.
        keys: The mapping's place, from the outermost key. The last one is created if it is absent.
        lines: The entry and its comments, without the mapping's indentation.
        flow: The entry for a mapping within braces; by default the first line.

    Raises:
        ParameterError: there is no mapping.

    >>> print(inserted("a:\\n  b: 1\\n  # of b\\n\\nc: {}\\n", ["a"], ["d: 2"]), end="")
    a:
      b: 1
      # of b
      d: 2
    <BLANKLINE>
    c: {}
    >>> inserted("c: {d: 1}    # of c\\n", ["c"], ["e: 2"])
    'c: {d: 1, e: 2}    # of c\\n'
    """
    flow = flow or lines[0]
    node = yaml.compose(text)
    key_column = 0
    for depth, key in enumerate(keys):
        entry = _entry(node, key)
        is_last = depth == len(keys) - 1
        if entry is None and is_last and isinstance(node, yaml.MappingNode):
            block = [f"{key}:", *(f"  {line}" for line in lines)]
            return inserted(text, keys[:-1], block, f"{key}: {{{flow}}}")
        if entry is None:
            node = None
            key_column = 0
        else:
            node = entry.value
            key_column = entry.key.start_mark.column

    if node is None or not _is_mapping_or_null(node):
        raise ParameterError(
            f"{'.'.join(keys)}: expected a mapping to add `{flow}` to; write it there by hand"
        )
    if not isinstance(node, yaml.MappingNode) or not node.value:
        return _in_new_block(text, node, key_column + 2, lines)
    if node.flow_style:
        end = node.value[-1][1].end_mark.index
        return f"{text[:end]}, {flow}{text[end:]}"
    return _in_block(text, node, lines)


def _is_mapping_or_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode) or node.tag == "tag:yaml.org,2002:null"


def _in_new_block(text: str, node: yaml.Node, column: int, lines: Sequence[str]) -> str:
    """The text with a block in the place of `{}` or null."""
    start = node.start_mark.index
    end = node.end_mark.index
    rows = (text[:start].rstrip(" ") + text[end:]).splitlines(keepends=True)
    return _with_lines(rows, node.start_mark.line + 1, column, lines)


def _in_block(text: str, node: yaml.MappingNode, lines: Sequence[str]) -> str:
    """The text with lines below the last entry of a block, and below the comments there."""
    rows = text.splitlines(keepends=True)
    column = node.start_mark.column
    end_mark = _last_node(node).end_mark
    row = end_mark.line
    if end_mark.column > 0:
        row += 1
    while row < len(rows) and _is_comment(rows[row], column):
        row += 1
    return _with_lines(rows, row, column, lines)


def _with_lines(rows: list[str], row: int, column: int, lines: Sequence[str]) -> str:
    """The rows of a text with indented lines before one of the rows."""
    if not rows[-1].endswith("\n"):
        rows[-1] += "\n"
    indented = [f"{' ' * column}{line}\n" for line in lines]
    return "".join([*rows[:row], *indented, *rows[row:]])


def _last_node(node: yaml.Node) -> yaml.Node:
    """The last node of a block, which ends where its text ends.

    The end mark of a block itself lies behind the comments below it.
    """
    while isinstance(node, yaml.CollectionNode) and not node.flow_style:
        last = node.value[-1]
        node = last
        if isinstance(last, tuple):
            node = last[1]
    return node


def _is_comment(row: str, column: int) -> bool:
    """True for a comment that belongs to a mapping which begins in a column."""
    text = row.lstrip()
    return text.startswith("#") and len(row) - len(text) >= column
