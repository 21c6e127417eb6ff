"""`farther methods`, `detectors`, `datasets` and `metrics`: the names that params.yaml or another command may use."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer

from farther.command.output import as_json, paragraph, table
from farther.command.project import Json

if TYPE_CHECKING:
    from farther.registry import Registry


def _completed(kind: str) -> Callable[[str], list[str]]:
    def names(incomplete: str) -> list[str]:
        from farther.metrics.catalogue import METRICS

        known = list(METRICS) if kind == "metrics" else _registry(kind).names()
        return [name for name in known if name.startswith(incomplete)]

    return names


def _registry(kind: str) -> Registry:
    """The registry of a kind, imported when it is needed."""
    if kind == "methods":
        from farther.methods.base import METHODS

        return METHODS
    if kind == "detectors":
        from farther.detectors.base import registry

        return registry
    from farther.datasets.base import FORMATS

    return FORMATS


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One of them.", autocompletion=_completed("methods"))
    ] = None,
    json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the reference of all in Markdown.")] = False,
) -> None:
    """List the OOD scores, or describe one.

    These names may be used under 'methods' in params.yaml.

    \b
    Examples:
      farther methods
      farther methods knn
      farther methods knn --json
      farther methods --markdown
    """
    if markdown:
        from farther.methods.reference import reference

        print(reference(), end="")
    else:
        _show("methods", name, json=json)


def detectors(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One of them.", autocompletion=_completed("detectors"))
    ] = None,
    json: Json = False,
) -> None:
    """List the detector adapters, or describe one.

    These names may be used as 'adapter' under 'detectors' in params.yaml.

    \b
    Examples:
      farther detectors
      farther detectors yolo
    """
    _show("detectors", name, json=json)


def datasets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One of them.", autocompletion=_completed("datasets"))
    ] = None,
    json: Json = False,
) -> None:
    """List the dataset formats, or describe one.

    These names may be used as 'format' under 'datasets' in params.yaml.

    \b
    Examples:
      farther datasets
      farther datasets coco
    """
    _show("datasets", name, json=json)


def _show(kind: str, name: str | None, *, json: bool) -> None:
    """Prints all names of a kind, or everything about one."""
    from farther.registry import describe

    registry = _registry(kind)
    found = {one: describe(registry.get(one)) for one in ([name] if name else registry.names())}
    if json:
        entries = [
            {"name": one, "summary": it.summary, "text": it.text, "parameters": [vars(p) for p in it.parameters]}
            for one, it in found.items()
        ]
        print(as_json(entries))
    elif name:
        described = found[name]
        parts = [paragraph(f"{name}: {described.summary}"), *map(paragraph, filter(None, described.text.split("\n\n")))]
        sections = {title: text for title, text in described.sections.items() if title != "Args"}
        for title, text in sections.items():
            lines = title in ("Attributes", "Example")
            parts.append(f"{title}:\n{indent(text, '    ')}" if lines else paragraph(f"{title}: {text}"))
        if described.parameters:
            rows = [(one.name, one.default, one.description) for one in described.parameters]
            parts.append(table(("parameter", "default", "description"), rows))
        print("\n\n".join(parts))
    else:
        print(table(("name", "description"), [(one, it.summary) for one, it in found.items()]))
        print(f"\n`farther {kind} NAME` lists its parameters.")


class _Names(dict[str, str]):
    """Fills the places of counts in a formula with their names."""

    def __missing__(self, key: str) -> str:
        return key


def metrics(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One of them.", autocompletion=_completed("metrics"))
    ] = None,
    json: Json = False,
) -> None:
    """List the metrics, or define one.

    These are the names in artifacts/metrics, which `farther explain number` and `farther compare` take.

    \b
    Examples:
      farther metrics
      farther metrics nose
      farther explain number voc-vos knn coco_near nose
    """
    from dataclasses import asdict

    from farther.errors import choose
    from farther.metrics.catalogue import METRICS

    chosen = [METRICS[choose("metric", name, METRICS)]] if name else list(METRICS.values())
    better = {True: "higher", False: "lower", None: "–"}
    if json:
        print(as_json([asdict(metric) for metric in chosen]))
    elif name:
        facts = asdict(chosen[0]) | {"latex": "", "higher_is_better": better[chosen[0].higher_is_better]}
        rows = [(key, text.format_map(_Names())) for key, text in facts.items() if text]
        print(table(("", ""), rows))
    else:
        print(
            table(
                ("name", "better", "meaning"), [(one.name, better[one.higher_is_better], one.meaning) for one in chosen]
            )
        )
        print("\n`farther metrics NAME` defines one; `farther explain number` shows its inputs.")
