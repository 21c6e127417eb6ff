"""`farther methods`, `detectors`, `datasets` and `metrics`: the names that params.yaml or another command may use."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from farther.command.output import as_json, paragraph, table
from farther.command.project import Json

if TYPE_CHECKING:
    from farther.registry import Registry


def _completed(kind: str) -> Callable[[str], list[str]]:
    def names(incomplete: str) -> list[str]:
        known = _metrics() if kind == "metrics" else _registry(kind).names()
        return [name for name in known if name.startswith(incomplete)]

    return names


def _registry(kind: str) -> Registry:
    """The registry of a kind, imported when it is needed."""
    if kind == "methods":
        from farther.methods.base import METHODS

        return METHODS
    if kind == "detectors":
        from farther.detectors.base import DETECTORS

        return DETECTORS
    from farther.datasets.base import FORMATS

    return FORMATS


def methods(
    name: Annotated[str | None, typer.Argument(help="One of them.", autocompletion=_completed("methods"))] = None,
    json: Json = False,
) -> None:
    """List the OOD scores, or describe one.

    These names may be used under 'methods' in params.yaml.

    \b
    Examples:
      farther methods
      farther methods knn
      farther methods knn --json
    """
    _show("methods", name, json)


def detectors(
    name: Annotated[str | None, typer.Argument(help="One of them.", autocompletion=_completed("detectors"))] = None,
    json: Json = False,
) -> None:
    """List the detector adapters, or describe one.

    These names may be used as 'adapter' under 'detectors' in params.yaml.

    \b
    Examples:
      farther detectors
      farther detectors yolo
    """
    _show("detectors", name, json)


def datasets(
    name: Annotated[str | None, typer.Argument(help="One of them.", autocompletion=_completed("datasets"))] = None,
    json: Json = False,
) -> None:
    """List the dataset formats, or describe one.

    These names may be used as 'format' under 'datasets' in params.yaml.

    \b
    Examples:
      farther datasets
      farther datasets coco
    """
    _show("datasets", name, json)


def _show(kind: str, name: str | None, json: bool) -> None:
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
        parts += [paragraph(f"{title}: {text}") for title, text in described.sections.items() if title != "Args"]
        if described.parameters:
            rows = [(one.name, one.default, one.description) for one in described.parameters]
            parts.append(table(("parameter", "default", "description"), rows))
        print("\n\n".join(parts))
    else:
        print(table(("name", "description"), [(one, it.summary) for one, it in found.items()]))
        print(f"\n`farther {kind} NAME` lists its parameters.")


def _metrics() -> list[str]:
    from farther.command.definitions import DEFINITIONS

    return list(DEFINITIONS)


def metrics(
    name: Annotated[str | None, typer.Argument(help="One of them.", autocompletion=_completed("metrics"))] = None,
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

    from farther.command.definitions import DEFINITIONS
    from farther.errors import choose

    chosen = [DEFINITIONS[choose("metric", name, DEFINITIONS)]] if name else list(DEFINITIONS.values())
    if json:
        print(as_json([asdict(definition) for definition in chosen]))
    elif name:
        rows = [(key, re.sub(r"[{}]", "", text)) for key, text in asdict(chosen[0]).items() if text]
        print(table(("", ""), rows))
    else:
        listed = [(one.name, one.better or "–", one.says) for one in chosen]
        print(table(("name", "better", "meaning"), listed))
        print("\n`farther metrics NAME` defines one; `farther explain number` shows its inputs.")
