"""A checkpoint's card: what a reader must know before using it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farther.tables.files import write_aside, write_json

TEMPLATE = """\
# {name}

{kind}, {millions:.1f} million parameters.
{scaling}
| | mAP50 | mAP |
| --- | --- | --- |
{figures}

Trained on {images} images of `{dataset}` with {objects} objects (data {data_digest}){left_out}.
Classes and their mAP50 on `{test}`: {classes}.

{sections}

The same facts for programs: [{name}.json]({name}.json).
"""


def write_card(
    weights: Path, card: Mapping[str, Any], kind: str, scaling: str = "", sections: Mapping[str, str] | None = None
) -> None:
    """Writes a card beside its checkpoint: as JSON for programs, as Markdown for people.

    Args:
        weights: The checkpoint.
        card: What `farther.tools.training.job.run_job` gives.
        kind: What was trained, in a few words.
        scaling: What is done to images, in a sentence.
        sections: Facts of the card that follow its recipe in sections of their own: their names, by title.
    """
    write_json(weights.with_suffix(".json"), card)
    with write_aside(weights.with_suffix(".md")) as aside:
        aside.write_text(_markdown(card, kind, scaling, {"Recipe": "recipe", **(sections or {})}), encoding="utf-8")


def _markdown(card: Mapping[str, Any], kind: str, scaling: str, sections: Mapping[str, str]) -> str:
    figures = card["figures"]
    test = list(figures)[-1]
    rows = [f"| {name} | {_percent(found['map50'])} | {_percent(found['map'])} |" for name, found in figures.items()]
    per_class = figures[test]["map50_per_class"]
    left_out = ", ".join(f"{count} {name}" for name, count in card["left_out"].items())
    values = {
        **card,
        "kind": kind,
        "scaling": f"{scaling}\n" if scaling else "",
        "millions": card["parameters"] / 1e6,
        "figures": "\n".join(rows),
        "left_out": f"; left out: {left_out}" if left_out else "",
        "test": test,
        "classes": ", ".join(f"{name} {_percent(per_class.get(name))}" for name in card["classes"]),
        "sections": "\n\n".join("\n".join([f"## {title}\n", *_lines(card[name])]) for title, name in sections.items()),
    }
    return TEMPLATE.format_map(values)


def _lines(values: Mapping[str, Any], indent: str = "") -> list[str]:
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}- {name}", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}- {name}: {value}")
    return lines


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{100 * fraction:.1f}%"
