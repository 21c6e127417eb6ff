"""The dvc.yaml of a project, made of farther's own."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

#: Where the files are that a project is made of: in a wheel, `project` beside this module; in a
#: clone, its top.
_PLACES = (Path(__file__).parent / "project", Path(__file__).parents[3])
ROOT = next(place for place in _PLACES if place.is_dir())

_SCRIPT = re.compile(r"python stages/(\w+)\.py")
#: Column at which long lines are broken: no line is.
_WIDTH = 100_000


def dvc_yaml(without: Collection[str] = ("demo",)) -> str:
    """Text of a project's dvc.yaml, made from farther's own.

    Its commands start the installed package. Comments above stages and within them are kept.

    Args:
        without: Names of stages to leave out.
    """
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    return _without_stages(text, tuple(without))


@cache
def _without_stages(text: str, without: tuple[str, ...]) -> str:
    """See `dvc_yaml`, of which this is the work; a process often asks for it twice.

    Args:
        text: farther's own dvc.yaml.
        without: Names of stages to leave out.
    """
    from ruamel.yaml import YAML  # takes 50 ms

    yaml = YAML()
    yaml.width = _WIDTH
    yaml.preserve_quotes = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    stages = yaml.load(text)["stages"]
    comments = _comments_above(text, stages)
    outputs = _outputs_of(stages, without)
    blocks = []
    for name, stage in stages.items():
        if name in without:
            continue
        _start_package(stage)
        _leave_out(stage, without, outputs)
        blocks.append("\n".join([*comments[name], *_lines_of(yaml, name, stage)]))
    head = text.partition("\nstages:")[0]
    return f"{head}\nstages:\n\n" + "\n\n".join(blocks) + "\n"


def _comments_above(text: str, stages: Any) -> dict[str, list[str]]:
    """The lines of comments right above the name of each stage."""
    lines = text.splitlines()
    comments = {}
    for name in stages:
        row, _ = stages.lc.key(name)
        first = row
        while lines[first - 1].lstrip().startswith("#"):
            first -= 1
        comments[name] = lines[first:row]
    return comments


def _lines_of(yaml: Any, name: str, stage: Any) -> list[str]:
    """Lines of a stage, indented.

    A parser takes the comment above a stage for the end of the one before it: it is left out here.
    """
    buffer = io.StringIO()
    yaml.dump({name: stage}, buffer)
    lines = buffer.getvalue().splitlines()
    while not lines[-1].strip() or lines[-1].lstrip().startswith("#"):
        lines.pop()
    return [f"  {line}".rstrip() for line in lines]


def _outputs_of(stages: Mapping[str, Any], names: Collection[str]) -> set[str]:
    """Paths of the outputs of some stages."""
    outputs = set()
    for name in names:
        stage = stages[name]
        body = stage.get("do", stage)
        for kind in ("outs", "metrics", "plots"):
            for output in body.get(kind, []):
                outputs.add(output if isinstance(output, str) else next(iter(output)))
    return outputs


def _start_package(stage: Any) -> None:
    """Has the command of a stage start a module of the package in the place of a script."""
    body = stage.get("do", stage)
    body["cmd"] = _SCRIPT.sub(r"python -m farther.pipeline.\1", body["cmd"])


def _leave_out(stage: Any, without: Collection[str], outputs: Collection[str]) -> None:
    """Removes dependencies on stages that are left out: on their outputs, and on their parameters.

    Args:
        stage: An entry of dvc.yaml.
        without: Names of the stages; a section of params.yaml of this name is theirs.
        outputs: Their outputs.
    """
    body = stage.get("do", stage)
    for dependency in list(body.get("deps", [])):
        if dependency in outputs or _is_of(dependency.removeprefix("${"), without):
            body["deps"].remove(dependency)
    for key in list(body.get("params", [])):
        if isinstance(key, str) and _is_of(key, without):
            body["params"].remove(key)


def _is_of(key: str, sections: Collection[str]) -> bool:
    """Whether a key of params.yaml, `embed.encoder`, is in one of some sections."""
    return key.partition(".")[0] in sections
