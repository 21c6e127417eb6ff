"""`farther list`: names of methods, detectors, datasets and metrics for params.yaml or commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

from farther.command.output import as_json, hanging, next_step, paragraph, table
from farther.command.project import Json, argument
from farther.command.project import metrics as metric_names
from farther.naming.extras import AbsentPackagesError
from farther.text.terminal import say

if TYPE_CHECKING:
    from farther.metrics.catalogue import Metric
    from farther.naming.registry import Registry
    from farther.text.documentation import Description

#: How params.yaml names an entry of a kind.
USAGE = {
    "methods": "write `{}: {{}}` under 'methods' in params.yaml, then farther repro",
    "detectors": "write `adapter: {}` in an entry of 'detectors' in params.yaml",
    "datasets": "write `format: {}` in an entry of 'datasets' in params.yaml",
}

#: The better direction of a metric, by its `higher_is_better`.
DIRECTIONS = {True: "higher", False: "lower", None: "–"}
#: Column at which the texts of a metric's definition begin.
FACT_INDENT = 18
#: Labels of fields of a metric that differ from the names of the fields.
LABELS = {
    "aliases": "also called",
    "ranked": "ranks methods",
    "averaged": "mean by distance",
    "is_count": "is a count",
    "is_rate": "is per image",
}
#: Whether higher is better, in words, by a metric's `higher_is_better`.
ANSWERS = {True: "yes", False: "no", None: "neither direction is better"}


def registry_of(kind: str) -> Registry:
    """The registry of a kind, imported when it is needed."""
    if kind == "methods":
        from farther.methods.base import METHODS

        return METHODS
    if kind == "detectors":
        from farther.detectors.base import registry

        return registry
    from farther.datasets.base import FORMATS

    return FORMATS


def _argument(kind: str) -> Any:
    """The argument of a command that lists names, with their completion."""
    return argument("NAME", "Name to describe.", lambda *_: registry_of(kind).names())


def methods(
    name: Annotated[str | None, _argument("methods")] = None,
    json: Json = False,
) -> None:
    """List the OOD scores, or describe one.

    These names may be used under 'methods' in params.yaml: the registered name, the title or an
    alias, in any case, with hyphens, underscores and spaces alike.

    \b
    Examples:
      farther list methods
      farther list methods knn
      farther list methods EBO                # energy, as OpenOOD calls it
      farther list methods knn --json
    """
    _describe_kind("methods", name, json=json)


def detectors(
    name: Annotated[str | None, _argument("detectors")] = None,
    json: Json = False,
) -> None:
    """List the detector adapters, or describe one.

    These names may be used as 'adapter' under 'detectors' in params.yaml.

    \b
    Examples:
      farther list detectors
      farther list detectors yolo
    """
    _describe_kind("detectors", name, json=json)


def datasets(
    name: Annotated[str | None, _argument("datasets")] = None,
    json: Json = False,
) -> None:
    """List the dataset formats, or describe one.

    These names may be used as 'format' under 'datasets' in params.yaml.

    \b
    Examples:
      farther list datasets
      farther list datasets coco
    """
    _describe_kind("datasets", name, json=json)


def _describe_kind(kind: str, name: str | None, *, json: bool) -> None:
    """Prints all names of a kind, or everything about one."""
    from farther.text.documentation import describe

    registry = registry_of(kind)
    aliases = registry.aliases
    if name is not None:
        entries = registry.written.entries_to_write(name)
        if entries and not json:
            say(paragraph(f"{name} is a method over a pass. Write {', or '.join(entries)}."))
            return
        name = registry.canonical(name)
    if json:
        rows = []
        for known in [name] if name else registry.names():
            try:
                described = registry.get(known)
            except AbsentPackagesError as error:
                if name:
                    raise
                summary = registry.summaries[known]
                row = {"name": known, "aliases": aliases[known], "summary": summary}
                rows.append({**row, "absent": str(error)})
            else:
                entry = _to_entry(known, aliases[known], describe(described))
                if kind == "methods" and described.publication is not None:
                    entry["publication"] = described.publication._asdict()
                rows.append(entry)
        say(as_json(rows))
    elif name:
        say(_to_text(name, aliases[name], describe(registry.get(name))))
        next_step(USAGE[kind].format(name))
    else:
        say(table(("name", "description"), _summary_rows(registry)))
        next_step(f"farther list {kind} NAME")


def _summary_rows(registry: Registry[Any]) -> list[tuple[str, str]]:
    """(name, description) of each name; the description begins with its aliases."""
    from farther.naming.registry import different_names
    from farther.text.documentation import describe

    aliases = registry.aliases
    summaries = registry.summaries  # without importing what the classes need
    rows = []
    for name in registry.names():
        text = summaries.get(name) or describe(registry.get(name)).summary
        others = different_names(name, aliases[name])
        if others:
            text = f"{text} Also: {', '.join(others)}."
        rows.append((name, text))
    return rows


def _to_entry(name: str, aliases: Sequence[str], description: Description) -> dict[str, Any]:
    return {
        "name": name,
        "aliases": list(aliases),
        "summary": description.summary,
        "text": description.text,
        "parameters": [vars(parameter) for parameter in description.parameters],
    }


def _to_text(name: str, aliases: Sequence[str], description: Description) -> str:
    """Summary, aliases, paragraphs, sections and a table of parameters."""
    blocks = [paragraph(f"{name}: {description.summary}")]
    if aliases:
        blocks.append(paragraph(f"Also called: {', '.join(aliases)}"))
    for text in description.text.split("\n\n"):
        if text:
            blocks.append(paragraph(text))
    for title, text in description.sections.items():
        if title in ("Attributes", "Example"):
            blocks.append(f"{title}:\n{indent(text, '    ')}")
        elif title != "Args":
            blocks.append(paragraph(f"{title}: {text}"))
    if description.parameters:
        rows = []
        for parameter in description.parameters:
            rows.append((parameter.name, parameter.default, parameter.description))
        blocks.append(table(("parameter", "default", "description"), rows))
    return "\n\n".join(blocks)


def metrics(
    name: Annotated[str | None, argument("NAME", "Name to describe.", metric_names)] = None,
    json: Json = False,
) -> None:
    """List the metrics, or define one.

    These are the names in artifacts/metrics. `farther explain number` and `farther compare` take
    them, and titles and aliases in any case.

    \b
    Examples:
      farther list metrics
      farther list metrics nOSE
      farther explain number voc-vos knn coco_near nose
    """
    from farther.metrics.catalogue import METRICS, metric_name

    definitions = list(METRICS.values())
    if name is not None:
        name = metric_name(name)
        definitions = [METRICS[name]]
    if json:
        say(as_json([asdict(definition) for definition in definitions]))
    elif name:
        for label, text in _metric_facts(definitions[0]):
            say(hanging(f"{label:<{FACT_INDENT}}{text}", 0, FACT_INDENT))
        next_step(f"farther explain number RUN METHOD SPLIT {name}")
    else:
        rows = []
        for definition in definitions:
            direction = DIRECTIONS[definition.higher_is_better]
            rows.append((definition.name, direction, definition.meaning))
        say(table(("name", "better", "meaning"), rows))
        next_step("farther list metrics NAME", "farther explain number RUN METHOD SPLIT NAME")


def _metric_facts(definition: Metric) -> list[tuple[str, str]]:
    """(name, text) of each field of a metric's definition that is not empty, but for LaTeX."""
    facts = []
    for key, value in asdict(definition).items():
        text = value
        if key == "higher_is_better":
            text = ANSWERS[value]
        elif key == "aliases":
            text = ", ".join(value)
        elif key == "formula":
            text = re.sub(r"\{(\w+)\}", r"\1", value)
        elif value is True:
            text = "yes"
        if text and key != "latex":
            facts.append((LABELS.get(key, key.replace("_", " ")), text))
    return facts
