"""Text of YAML files that people edit: the line of a key, and new entries that leave every other line as it is."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from farther.errors import ParameterError


def line_of(text: str, keys: Sequence[str]) -> int:
    """The line of a nested key, from 1; that of the innermost one that is there.

    >>> line_of("a: 1\\nb:\\n  c: 2\\n", ["b", "c"])
    3
    """
    node, line = yaml.compose(text), 1
    for key in keys:
        entries = node.value if isinstance(node, yaml.MappingNode) else []
        found = next(((name, value) for name, value in entries if name.value == key), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def inserted(text: str, keys: Sequence[str], lines: Sequence[str], flow: str = "") -> str:
    """A text with an entry more in a mapping.

    It goes below the mapping's last entry and the comments there.

    Args:
        text: The file.
        keys: The mapping's place, from the outermost key. The last one is made where it is absent.
        lines: The entry and its comments, without the mapping's indentation.
        flow: The entry for a mapping within braces; by default the first line.

    Raises:
        ParameterError: no mapping is there.

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
    node, key_column, flow = yaml.compose(text), 0, flow or lines[0]
    for depth, key in enumerate(keys):
        entries = node.value if isinstance(node, yaml.MappingNode) else []
        found = next(((name, value) for name, value in entries if name.value == key), None)
        if found is None and depth == len(keys) - 1 and isinstance(node, yaml.MappingNode):
            return inserted(
                text, keys[:-1], [f"{key}:", *(f"  {line}" for line in lines)], f"{key}: {{{flow}}}"
            )
        key_node, node = found or (None, None)
        key_column = key_node.start_mark.column if key_node else 0
    if node is None or not (
        isinstance(node, yaml.MappingNode) or node.tag == "tag:yaml.org,2002:null"
    ):
        raise ParameterError(
            f"{'.'.join(keys)}: expected a mapping to add `{flow}` to; write it there by hand"
        )
    if isinstance(node, yaml.MappingNode) and node.flow_style and node.value:
        end = node.value[-1][1].end_mark.index
        return f"{text[:end]}, {flow}{text[end:]}"
    if not node.value or isinstance(node, yaml.ScalarNode):  # {} and null become a block
        start, end = node.start_mark.index, node.end_mark.index
        rows = (text[:start].rstrip(" ") + text[end:]).splitlines(keepends=True)
        column, at = key_column + 2, node.start_mark.line + 1
    else:
        rows, end_mark = text.splitlines(keepends=True), _last(node).end_mark
        column, at = node.start_mark.column, end_mark.line + (end_mark.column > 0)
        while at < len(rows) and _is_comment(rows[at], column):
            at += 1
    if not rows[-1].endswith("\n"):
        rows[-1] += "\n"
    return "".join([*rows[:at], *(f"{' ' * column}{line}\n" for line in lines), *rows[at:]])


def _last(node: yaml.Node) -> yaml.Node:
    """The last node of a block that ends where its text ends: a block's own mark lies behind the comments below it."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node


def _is_comment(row: str, column: int) -> bool:
    """True for a comment that belongs to a mapping which begins in a column."""
    return row.lstrip().startswith("#") and len(row) - len(row.lstrip()) >= column
