"""`farther benchmark profile`: a published benchmark as the project's params.yaml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from farther.command.committed import uncommitted
from farther.command.init import begin
from farther.command.output import as_json, next_step, table
from farther.command.project import PARAMS, Json, argument, option
from farther.errors import ParameterError, choose, shorten
from farther.pipeline import profiles, write_named_files, write_pipeline
from farther.tables.writing import write_aside
from farther.text.terminal import say

#: The folder that profiles name for data.
DATA = "/data"


def _known(*_: Any) -> dict[str, Path]:
    """{name: file} of each profile."""
    return profiles()


def profile(
    name: Annotated[str | None, argument("NAME", "Name of the profile.", _known)] = None,
    data: Annotated[str, option("DIR", "Folder of the datasets and checkpoints.")] = DATA,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a params.yaml with uncommitted changes.")
    ] = False,
    json: Json = False,
) -> None:
    """List profiles, or use one as params.yaml.

    A profile is a complete file of parameters: datasets, benchmarks, detectors and methods of one
    experiment. It replaces params.yaml, which DVC reads, so everything else works as before: `dvc
    repro`, `dvc exp run -S`, a git branch for each profile. Comments are kept. A params.yaml with
    uncommitted changes is replaced only with --force. Class mappings and published tables that it
    names are written if they are absent; a new folder also gets the pipeline.

    \b
    Examples:
      farther benchmark profile                              # lists the profiles
      farther benchmark profile --json                       # for programs
      farther benchmark profile fmiyc --data /mnt/datasets
      farther doctor && farther repro report
      git switch main                              # back to the demo
    """
    from farther.params import parse
    from farther.tables.files import read_text

    known = _known()
    if name is None:
        rows = [(known_name, _first_comment(file)) for known_name, file in known.items()]
        if json:
            say(as_json([{"name": row[0], "description": row[1]} for row in rows]))
            return
        say(table(("profile", "description"), rows))
        next_step("farther benchmark profile NAME --data DIR")
        return
    if json:
        raise ParameterError("--json lists the profiles: leave out NAME, or --json")
    name = choose("profile", name, known, aliases={}, listed_by="farther benchmark profile")
    source = known[name]
    text = placed(read_text(source), data).replace("$schema=../", "$schema=", 1)
    is_changed = PARAMS.exists() and read_text(PARAMS) != text
    if is_changed and not force and uncommitted(Path(), str(PARAMS)) != []:
        raise ParameterError(f"{PARAMS} has uncommitted changes; commit them, or add --force")
    with write_aside(PARAMS) as aside:
        aside.write_text(text, encoding="utf-8")
    files = write_named_files(parse(text), Path())
    if files:
        count = "1 file" if len(files) == 1 else f"{len(files)} files"
        folders = sorted({str(file.parent) for file in files})
        say(f"wrote {count} in {', '.join(folders)}")
    if not Path("dvc.yaml").exists():
        begin(Path())
        write_pipeline(Path(), clip=True)
    say(f"{PARAMS} is now profile {name}.")
    next_step("farther doctor")


def placed(text: str, data: str) -> str:
    """A profile's text with another folder for the data.

    >>> placed("root: /data/coco  # not data/benchmarks/voc.yaml", "/mnt/d")
    'root: /mnt/d/coco  # not data/benchmarks/voc.yaml'
    """
    folder = str(Path(data).expanduser())
    if not Path(folder).is_absolute() or re.search(r"[^\w./@+-]", folder):
        raise ParameterError(
            f"--data: expected an absolute path without spaces or quotes, found {shorten(data)}"
        )
    # The folder has no backslash, which `re.sub` would read as an escape.
    return re.sub(rf"(?<![\w./-]){DATA}/", f"{folder}/", text)


def _first_comment(file: Path) -> str:
    """The first paragraph of the comment that a profile begins with."""
    from farther.tables.files import read_text

    words = []
    for line in read_text(file).splitlines():
        if line.startswith("# yaml-language-server:"):
            continue
        if not re.match("# *[^# ]", line):
            break
        words.append(line.lstrip("# "))
    return " ".join(words)
