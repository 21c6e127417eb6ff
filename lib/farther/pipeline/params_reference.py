"""Reference of params.yaml in Markdown, made from what `farther list params` prints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from farther.pipeline.described_keys import Key, KeyTable, tables_of
from farther.pipeline.params_schema import SECTIONS, Section
from farther.pipeline.reruns import after_any_change, reruns

#: Characters that Markdown takes for markup outside of code.
_MARKUP = re.compile(r"([*_<>\[\]|])")


def reference(tables_by_section: Mapping[str, Sequence[KeyTable]]) -> str:
    """A table of the sections, and one part per section with tables of its keys, in Markdown.

    Args:
        tables_by_section: Tables of sections that the library cannot make: that of the demo world.
    """
    lines = ["| section | sets | reruns |", "| --- | --- | --- |"]
    for section in SECTIONS:
        lines.append(
            f"| [`{section.name}`](#{section.name}) | {_escaped(section.summary)} "
            f"| {_stages_text(section.name)} |"
        )
    stages = ", ".join(f"`{stage}`" for stage in after_any_change())
    note = f"The stages {stages} run after any change of the file, and redo only what changed."
    parts = ["\n".join(lines), note]
    for section in SECTIONS:
        tables = tables_by_section.get(section.name) or tables_of(section)
        parts += _section_parts(section, tables)
    return "\n\n".join(parts) + "\n"


def _section_parts(section: Section, tables: Sequence[KeyTable]) -> list[str]:
    """The heading of a section, and its tables."""
    parts = [f"## {section.name}"]
    anchor_by_path: dict[str, str] = {}
    for table in tables:
        anchor_by_path.setdefault(table.path, anchor(table.title))
    stages_above = ""
    for table in tables:
        if table.title != section.name:
            parts.append(f"### {table.title}")
        parts.append(_escaped(table.summary or section.summary))
        if table.text:
            parts.append(_escaped(table.text))
        if table.further:
            parts.append(_escaped(table.further))
        stages = _stages_text(table.path)
        if stages != stages_above:
            parts.append(f"Reruns: {stages}")
            stages_above = stages
        if table.keys:
            parts.append(_rows(table, anchor_by_path))
    return parts


def _rows(table: KeyTable, anchor_by_path: Mapping[str, str]) -> str:
    """The keys of a table as rows, with links to the tables of the keys in their values."""
    lines = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for key in table.keys:
        meaning = _escaped(key.meaning)
        for path in key.tables:
            meaning += f" Keys: [`{path}`](#{anchor_by_path.get(path, anchor(path))})."
        lines.append(f"| `{key.name}` | {key.type} | {_default(key)} | {meaning} |")
    return "\n".join(lines)


def _default(key: Key) -> str:
    """The default of a key: code if it is a value, else words."""
    if key.has_value:
        return f"`{key.written_default}`"
    return key.written_default


def _stages_text(path: str) -> str:
    """The stages that a part of params.yaml reruns."""
    stages = reruns(path)
    if not stages:
        return "no stage: commands read it"
    return ", ".join(f"`{stage}`" for stage in stages)


def anchor(title: str) -> str:
    """The anchor that MkDocs gives a heading.

    >>> anchor("detectors.RUN.passes.PASS, kind: crops")
    'detectorsrunpassespass-kind-crops'
    """
    words = re.sub(r"[^\w\s-]", "", title).strip().lower()
    return re.sub(r"[-\s]+", "-", words)


def _escaped(text: str) -> str:
    """Text for Markdown: characters of markup outside of code in backticks are escaped.

    >>> _escaped("`t*` and t*")
    '`t*` and t\\\\*'
    """
    parts = text.split("`")
    for number in range(0, len(parts), 2):
        parts[number] = _MARKUP.sub(r"\\\1", parts[number])
    return "`".join(parts)
