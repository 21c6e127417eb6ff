"""A checkpoint's card: what a reader must know before using it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from farther.tables.files import write_aside

TEMPLATE = """\
# {name}

Faster R-CNN, architecture `{architecture}`, {millions:.1f} million parameters.
Images are scaled to {min_size} pixels on the shorter side, at most {max_size} on the longer one.

| | mAP50 | mAP |
| --- | --- | --- |
{figures}

Trained on {images} images of `{dataset}` with {objects} objects (data {data_digest}){left_out}.
Classes and their mAP50 on `test`: {classes}.

## Recipe

{recipe}

The same facts for programs: [{name}.json]({name}.json).
"""


def write_card(path: Path, card: dict[str, Any]) -> None:
    """Writes a card as Markdown.

    Args:
        path: The file.
        card: What `farther.training.job.run_job` gives.
    """
    figures = card["figures"].items()
    rows = [f"| {subset} | {_percent(found['map50'])} | {_percent(found['map'])} |" for subset, found in figures]
    per_class = card["figures"]["test"]["map50_per_class"]
    left_out = ", ".join(f"{count} {name}" for name, count in card["left_out"].items())
    values = {
        **card,
        "millions": card["parameters"] / 1e6,
        "figures": "\n".join(rows),
        "left_out": f"; left out: {left_out}" if left_out else "",
        "classes": ", ".join(f"{name} {_percent(per_class.get(name))}" for name in card["classes"]),
        "recipe": "\n".join(_lines(card["recipe"])),
    }
    with write_aside(path) as aside:
        aside.write_text(TEMPLATE.format_map(values), encoding="utf-8")


def _lines(recipe: dict[str, Any], indent: str = "") -> list[str]:
    lines = []
    for name, value in recipe.items():
        if isinstance(value, dict):
            lines += [f"{indent}- {name}", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}- {name}: {value}")
    return lines


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{100 * fraction:.1f}%"
