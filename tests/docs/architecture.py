"""Draws `docs/architecture.svg`: the stages of dvc.yaml, and the packages by layer.

Each stage has what it writes below `artifacts`; an arrow leads to the stages that read it, unless
another way leads there too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml

from farther.pipeline.stages import STAGES

ROOT = Path(__file__).parents[2]

WIDTH = 560
#: Left edge of the boxes of stages; arrows that pass a stage are left of it.
STAGE_X = 96
STAGE_WIDTH = 92
ROW = 40
BOX = 28
#: Between the lanes of arrows that pass a stage.
LANE = 14
#: Most characters in a line of what a stage writes.
LONGEST = 52
LAYER = 26
MARGIN = 16

#: A value of the entry that a stage is repeated for: `${item.images.dataset}`.
OF_ENTRY = re.compile(r"\$\{item\.([\w.]+)\}")
#: Any other value that dvc.yaml takes from params.yaml.
TEMPLATE = re.compile(r"\$\{[^}]*\}")

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" font-family="{FONT}" role="img" %s>
<title>Stages of the pipeline with what they write, and packages by layer</title>
<defs><marker id="a" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path d="M1 1L7 4L1 7z" fill="#555"/></marker></defs>
"""


def drawing() -> str:
    """The drawing as SVG."""
    recipe = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    written = {}
    read = {}
    for stage in STAGES:
        written[stage.name] = []
        read[stage.name] = []
        for dvc_name in stage.section_by_dvc_name:
            written[stage.name] += paths_written(recipe[dvc_name])
            read[stage.name] += paths_read(recipe[dvc_name], params)

    parts = [text(MARGIN, 28, "Stages and what they write", size=15, weight="bold")]
    top = 44
    parts += arrows(direct(followers(written, read)), top)
    for row, stage in enumerate(STAGES):
        y = top + row * ROW
        parts.append(box(STAGE_X, y, STAGE_WIDTH, stage.name))
        words = ", ".join(outputs(written[stage.name]))
        if stage.kinds:
            words = f"{', '.join(stage.kinds)}: {words}"
        lines = wrap(words, LONGEST)
        for place, line in enumerate(lines):
            shift = 15 * place - 7 * (len(lines) - 1)
            parts.append(text(STAGE_X + STAGE_WIDTH + 12, y + 18 + shift, line, size=12))

    below = top + len(STAGES) * ROW + 24
    parts.append(
        text(MARGIN, below, "Packages: each imports only from below", size=15, weight="bold")
    )
    layers = layers_of_packages()
    for row, packages in enumerate(layers):
        parts += layer(packages, below + 14 + row * LAYER)

    height = below + 14 + len(layers) * LAYER + MARGIN
    head = HEAD % f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    head += frame(WIDTH - 1, height - 1)
    return head + "\n".join(parts) + "\n</svg>\n"


def paths_written(stage: dict[str, Any]) -> list[str]:
    """What a stage of dvc.yaml writes, without records of what it kept."""
    body = stage.get("do", stage)
    paths = []
    for kind in ("outs", "metrics", "plots"):
        for entry in body.get(kind, ()):
            path = entry if isinstance(entry, str) else next(iter(entry))
            if not path.startswith("artifacts/records"):
                paths.append(plain(path))
    return paths


def paths_read(stage: dict[str, Any], params: dict[str, Any]) -> list[str]:
    """Files and folders that a stage of dvc.yaml depends on."""
    body = stage.get("do", stage)
    texts = list(body.get("deps", ()))
    for entry in body.get("params", ()):
        if isinstance(entry, dict):
            texts += entry
    entries = values_of(params, stage.get("foreach", ""))
    paths = []
    for path in texts:
        key = OF_ENTRY.fullmatch(path)
        if key is None:
            paths.append(plain(path))
            continue
        for entry in entries:
            value = entry
            for name in key[1].split("."):
                value = value[name]
            paths.append(value)
    return paths


def values_of(params: dict[str, Any], foreach: str) -> list[dict[str, Any]]:
    """Entries of the section that a stage is repeated for: `${derived.paste}`."""
    section: Any = params
    for name in re.findall(r"\w+", foreach):
        section = section[name]
    return list(section.values()) if foreach else []


def plain(path: str) -> str:
    """A path up to the first name that params.yaml gives."""
    return TEMPLATE.split(path)[0].rstrip("/")


def followers(written: dict[str, list[str]], read: dict[str, list[str]]) -> dict[str, set[str]]:
    """Stage → later stages that read what it writes."""
    names = [stage.name for stage in STAGES]
    by_stage: dict[str, set[str]] = {}
    for row, name in enumerate(names):
        by_stage[name] = {
            other
            for other in names[row + 1 :]
            if any(shares(a, b) for a in written[name] for b in read[other])
        }
    return by_stage


def shares(output: str, dependency: str) -> bool:
    """Whether one path is the other, or in it."""
    first, second = f"{output}/", f"{dependency}/"
    return first.startswith(second) or second.startswith(first)


def direct(after: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    """Pairs of stages, without those that are connected by stages between."""
    reached: dict[str, set[str]] = {}
    for name in reversed(after):
        reached[name] = set(after[name]).union(*(reached[other] for other in after[name]))
    for name, others in after.items():
        for other in sorted(others):
            if not any(other in reached[between] for between in others):
                yield name, other


def outputs(paths: list[str]) -> list[str]:
    """Names of outputs, each once."""
    names = [path.removeprefix("artifacts/") for path in paths]
    names = [name.partition("/")[0] if not name.startswith("data/") else name for name in names]
    return list(dict.fromkeys(names))


def layers_of_packages() -> list[list[str]]:
    """Packages by layer, highest first, as import-linter checks them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [names.split(" | ") for names in contract["layers"] if names != "__main__"]


def frame(width: int, height: int) -> str:
    """A white page with a border."""
    return (
        f'<rect x="0.5" y="0.5" width="{width}" height="{height}" rx="10" fill="#fff" '
        'stroke="#bbb"/>\n'
    )


def arrows(pairs: Iterator[tuple[str, str]], top: int) -> Iterator[str]:
    """An arrow per pair: straight to the next stage, else in a lane left of the stages between."""
    rows = {stage.name: row for row, stage in enumerate(STAGES)}
    lanes: list[list[range]] = []
    for start, end in sorted(pairs, key=lambda pair: rows[pair[1]] - rows[pair[0]]):
        y = top + rows[start] * ROW + BOX
        if rows[end] == rows[start] + 1:
            yield path(f"M{STAGE_X + STAGE_WIDTH // 2} {y}v{ROW - BOX - 1}")
            continue
        passed = range(rows[start], rows[end] + 1)
        x = STAGE_X - LANE * (1 + lane_of(passed, lanes))
        target = top + rows[end] * ROW + BOX // 2 - 4
        yield path(
            f"M{STAGE_X} {y - 8}H{x + 6}Q{x} {y - 8} {x} {y - 2}"
            f"V{target - 6}Q{x} {target} {x + 6} {target}H{STAGE_X - 1}"
        )


def lane_of(passed: range, lanes: list[list[range]]) -> int:
    """The first lane in which no arrow is beside these rows; the arrow is put into it."""
    for number, taken in enumerate(lanes):
        if not any(set(passed) & set(others) for others in taken):
            taken.append(passed)
            return number
    lanes.append([passed])
    return len(lanes) - 1


def layer(packages: list[str], y: int) -> Iterator[str]:
    """A box per package of a layer."""
    gap = 6
    width = (WIDTH - 2 * MARGIN - gap * (len(packages) - 1)) / len(packages)
    for place, package in enumerate(packages):
        x = MARGIN + place * (width + gap)
        yield (
            f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{LAYER - 4}" rx="4" '
            'fill="#e9f2fa" stroke="#7aa5bd"/>'
        )
        yield text(x + width / 2, y + 15, package, size=12, anchor="middle")


def box(x: int, y: int, width: int, name: str) -> str:
    """A stage's box."""
    label = text(x + width / 2, y + 19, name, size=13, color="#fff", anchor="middle", weight="bold")
    return f'<rect x="{x}" y="{y}" width="{width}" height="{BOX}" rx="6" fill="#0072B2"/>\n{label}'


def path(steps: str) -> str:
    """An arrow."""
    return f'<path d="{steps}" stroke="#555" stroke-width="1.5" fill="none" marker-end="url(#a)"/>'


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int,
    color: str = "#111",
    anchor: str = "start",
    weight: str = "normal",
) -> str:
    """Words at a place."""
    return (
        f'<text x="{x:g}" y="{y}" font-size="{size}" fill="{color}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(words)}</text>'
    )
