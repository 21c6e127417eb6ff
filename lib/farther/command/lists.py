"""`farther list`: names of methods, detectors, datasets and metrics for params.yaml or commands."""

from __future__ import annotations

import re
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farther.command.output import as_json, next_step, paragraph, table
from farther.command.project import Json, argument
from farther.command.project import metrics as metric_names
from farther.terminal import say

if TYPE_CHECKING:
    from farther.documentation import Description
    from farther.metrics.catalogue import Metric
    from farther.registry import Registry

#: How params.yaml names an entry of a kind.
USAGE = {
    "methods": "write `{}: {{}}` under 'methods' in params.yaml, then farther repro",
    "detectors": "write `adapter: {}` in an entry of 'detectors' in params.yaml",
    "datasets": "write `format: {}` in an entry of 'datasets' in params.yaml",
}

#: The better direction of a metric, by its `higher_is_better`.
DIRECTIONS = {True: "higher", False: "lower", None: "–"}


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
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the full reference in Markdown.")
    ] = False,
) -> None:
    """List the OOD scores, or describe one.

    These names may be used under 'methods' in params.yaml.

    \b
    Examples:
      farther list methods
      farther list methods knn
      farther list methods knn --json
      farther list methods --markdown
    """
    if markdown:
        from farther.methods.reference import reference

        say(reference(), end="")
    else:
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
    from farther.documentation import describe

    registry = registry_of(kind)
    if json:
        names = [name] if name else registry.names()
        say(as_json([_to_entry(known, describe(registry.get(known))) for known in names]))
    elif name:
        say(_to_text(name, describe(registry.get(name))))
        next_step(USAGE[kind].format(name))
    else:
        summaries = registry.summaries  # without importing what the classes need
        rows = []
        for known in registry.names():
            rows.append((known, summaries.get(known) or describe(registry.get(known)).summary))
        say(table(("name", "description"), rows))
        next_step(f"farther list {kind} NAME")


def _to_entry(name: str, description: Description) -> dict[str, Any]:
    return {
        "name": name,
        "summary": description.summary,
        "text": description.text,
        "parameters": [vars(parameter) for parameter in description.parameters],
    }


def _to_text(name: str, description: Description) -> str:
    """Summary, paragraphs, sections and a table of parameters."""
    blocks = [paragraph(f"{name}: {description.summary}")]
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

    These are the names in artifacts/metrics, which `farther explain number` and `farther compare`
    take.

    \b
    Examples:
      farther list metrics
      farther list metrics nose
      farther explain number voc-vos knn coco_near nose
    """
    from dataclasses import asdict

    from farther.errors import choose
    from farther.metrics.catalogue import METRICS

    definitions = list(METRICS.values())
    if name:
        definitions = [METRICS[choose("metric", name, METRICS)]]
    if json:
        say(as_json([asdict(definition) for definition in definitions]))
    elif name:
        say(table(("", ""), _metric_facts(definitions[0])))
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
    from dataclasses import asdict

    facts = []
    for key, value in asdict(definition).items():
        text = value
        if key == "higher_is_better":
            text = DIRECTIONS[value]
        elif key == "formula":
            text = re.sub(r"\{(\w+)\}", r"\1", value)
        elif value is True:
            text = "yes"
        if text and key != "latex":
            facts.append((key, text))
    return facts
