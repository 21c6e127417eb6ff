"""`farther list params`: the keys of params.yaml, with types, defaults, meaning and what reruns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from farther.command.output import as_json, hanging, next_step, paragraph, table
from farther.command.project import Json, argument
from farther.text.terminal import say

if TYPE_CHECKING:
    from farther.pipeline.described_keys import Key, KeyTable
    from farther.pipeline.params_schema import Section

#: Columns that keys, and their meanings below them, are indented by.
KEY_INDENT, MEANING_INDENT = 2, 6


def _names(*_: Any) -> list[str]:
    """Names of the sections, for the shell."""
    from farther.pipeline.params_schema import SECTION_BY_NAME

    return list(SECTION_BY_NAME)


def params(
    section: Annotated[
        str | None, argument("SECTION", "Section to describe, or a key in it.", _names)
    ] = None,
    json: Json = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of params.yaml, for editors.")
    ] = False,
) -> None:
    """List the sections of params.yaml, or describe the keys of one.

    Each key has its type, its default, its meaning and the stages that it reruns. The JSON schema
    has the project's extensions, too.

    \b
    Examples:
      farther list params
      farther list params threshold
      farther list params evaluate.proposals
      farther list params detectors.passes
      farther list params --schema > params.schema.json
    """
    from farther.pipeline.described_keys import find_tables, tables_of
    from farther.pipeline.params_schema import SECTION_BY_NAME, SECTIONS, params_schema

    if schema:
        say(as_json(params_schema()))
    elif json and section is None:
        say(as_json([_section_entry(known, tables_of(known)) for known in SECTIONS]))
    elif section is None:
        rows = [(known.name, known.summary) for known in SECTIONS]
        say(table(("section", "sets"), rows))
        next_step("farther list params SECTION")
    else:
        tables = find_tables(section)
        known = SECTION_BY_NAME[section.partition(".")[0]]
        if json:
            say(as_json([_section_entry(known, tables)]))
        else:
            say(_section_text(known, tables))
            next_step(f"edit '{known.name}' in params.yaml, then farther repro")


def _section_text(section: Section, tables: list[KeyTable]) -> str:
    """What a section sets, and some of its tables, in 80 columns."""
    if not tables:
        text = "Its keys are on the page params.yaml of the documentation."
        return paragraph(f"{section.name}: {section.summary} {text}")
    blocks = []
    stages_above = ""
    for described in tables:
        summary = described.summary or section.summary
        stages = _reruns_text(described.path)
        blocks.append(paragraph(f"{described.title}: {summary}"))
        for text in (*described.text.split("\n\n"), described.further):
            if text:
                blocks.append(paragraph(text))
        if stages != stages_above:
            blocks.append(paragraph(stages))
        blocks += [_key_text(key) for key in described.keys]
        if not described.keys:
            blocks.append(f"{' ' * KEY_INDENT}no further keys")
        stages_above = stages
    return "\n\n".join(blocks)


def _key_text(key: Key) -> str:
    """A key with its type and default, and its meaning below."""
    head = f"{key.name}: {key.type.replace('`', '')}; {key.default_phrase}"
    meaning = key.meaning
    if key.tables:
        meaning += f" See {' and '.join(key.tables)}."
    return f"{hanging(head, KEY_INDENT, MEANING_INDENT)}\n{paragraph(meaning, MEANING_INDENT)}"


def _reruns_text(path: str) -> str:
    """A sentence on the stages that a change of a part of params.yaml reruns."""
    from farther.pipeline.reruns import reruns

    stages = reruns(path)
    if not stages:
        return "Reruns: no stage; commands read it."
    return f"Reruns: {', '.join(stages)}, and later stages whose inputs change."


def _section_entry(section: Section, tables: list[KeyTable]) -> dict[str, Any]:
    """A section and some of its tables, for JSON."""
    from farther.pipeline.reruns import reruns

    return {
        "name": section.name,
        "summary": section.summary,
        "reruns": list(reruns(section.name)),
        "tables": [_table_entry(described) for described in tables],
    }


def _table_entry(described: KeyTable) -> dict[str, Any]:
    from farther.pipeline.reruns import reruns

    return {
        "path": described.path,
        "variant": described.variant,
        "summary": described.summary,
        "text": described.text,
        "further": described.further,
        "reruns": list(reruns(described.path)),
        "keys": [_key_entry(key) for key in described.keys],
    }


def _key_entry(key: Key) -> dict[str, Any]:
    """A key for JSON; `default` is null where the key is required, and where the default is so."""
    return {
        "name": key.name,
        "type": key.type.replace("`", ""),
        "required": key.is_required,
        "default": key.default if key.has_value else None,
        "default_text": key.written_default,
        "meaning": key.meaning,
        "tables": list(key.tables),
    }
