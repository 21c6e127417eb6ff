"""`farther list methods`, `detectors`, `datasets` and `metrics`: the names that params.yaml or a command may use."""

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
    from farther.registry import Registry

#: How params.yaml names one of a kind.
WRITTEN = {
    "methods": "write `{}: {{}}` under 'methods' in params.yaml, then farther repro",
    "detectors": "write `adapter: {}` in an entry of 'detectors' in params.yaml",
    "datasets": "write `format: {}` in an entry of 'datasets' in params.yaml",
}


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
        _show("methods", name, json=json)


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
    _show("detectors", name, json=json)


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
    _show("datasets", name, json=json)


def _show(kind: str, name: str | None, *, json: bool) -> None:
    """Prints all names of a kind, or everything about one."""
    from farther.documentation import describe

    registry = registry_of(kind)
    if not (name or json):
        known = registry.summaries  # without importing what the classes need
        listed = [
            (one, known.get(one) or describe(registry.get(one)).summary) for one in registry.names()
        ]
        say(table(("name", "description"), listed))
        next_step(f"farther list {kind} NAME")
        return
    found = {one: describe(registry.get(one)) for one in ([name] if name else registry.names())}
    if json:
        entries = [
            {
                "name": one,
                "summary": it.summary,
                "text": it.text,
                "parameters": [vars(p) for p in it.parameters],
            }
            for one, it in found.items()
        ]
        say(as_json(entries))
    elif name:
        described = found[name]
        parts = [
            paragraph(f"{name}: {described.summary}"),
            *map(paragraph, filter(None, described.text.split("\n\n"))),
        ]
        for title, text in described.sections.items():
            if title in ("Attributes", "Example"):
                parts.append(f"{title}:\n{indent(text, '    ')}")
            elif title != "Args":
                parts.append(paragraph(f"{title}: {text}"))
        if described.parameters:
            rows = [(one.name, one.default, one.description) for one in described.parameters]
            parts.append(table(("parameter", "default", "description"), rows))
        say("\n\n".join(parts))
        next_step(WRITTEN[kind].format(name))


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

    chosen = [METRICS[choose("metric", name, METRICS)]] if name else list(METRICS.values())
    better = {True: "higher", False: "lower", None: "–"}
    if json:
        say(as_json([asdict(metric) for metric in chosen]))
    elif name:
        facts = asdict(chosen[0]) | {
            "latex": "",
            "higher_is_better": better[chosen[0].higher_is_better],
        }
        facts["formula"] = re.sub(r"\{(\w+)\}", r"\1", chosen[0].formula)
        say(
            table(
                ("", ""),
                [(key, "yes" if text is True else text) for key, text in facts.items() if text],
            )
        )
        next_step(f"farther explain number RUN METHOD SPLIT {name}")
    else:
        rows = [(one.name, better[one.higher_is_better], one.meaning) for one in chosen]
        say(table(("name", "better", "meaning"), rows))
        next_step("farther list metrics NAME", "farther explain number RUN METHOD SPLIT NAME")
