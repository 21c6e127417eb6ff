"""Makes one of the files in profiles/ the project's params.yaml.

A profile is a whole file of parameters: datasets, benchmarks, detectors and
methods of one experiment. It replaces params.yaml, which is what DVC reads,
so everything else works as before: `dvc repro`, `dvc exp run -S`, a git
branch for each profile. Comments stay. A params.yaml that git has not
recorded is not replaced, unless --force says so.

Without a name, the profiles are listed.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from farther.command.project import choose
from farther.errors import ParameterError

NAME = "profile"
SUMMARY = "list profiles, or make one the project's params.yaml"
EXAMPLES = """
farther profile
farther profile fmiyc --data /mnt/datasets
farther doctor && dvc repro report
git switch main                       # back to the demo
"""

#: Where profiles lie, and the folder that they call the data's.
PROFILES = Path("profiles")
DATA = "/data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this subcommand."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the file profiles/NAME.yaml")
    parser.add_argument("--data", metavar="DIR", help=f"where datasets and checkpoints lie, instead of {DATA}")
    parser.add_argument("--force", action="store_true", help="replace a params.yaml that git has not recorded")


def run(given: argparse.Namespace) -> int:
    """Lists the profiles, or writes params.yaml."""
    known = {file.stem: file for file in sorted(PROFILES.glob("*.yaml"), key=lambda file: file.stem)}
    if not known:
        raise ParameterError(f"there is no folder {PROFILES}/ with files .yaml here; run this in a project's folder")
    if given.name is None:
        from farther.command.output import table

        print(table(("profile", "what it runs"), [(name, _first_comment(file)) for name, file in known.items()]))
        return 0
    source = known[choose("profile", given.name, known)]
    text = placed(source.read_text(encoding="utf-8"), given.data or DATA)
    params = Path("params.yaml")
    if not given.force and params.exists() and params.read_text(encoding="utf-8") != text and not _recorded(params):
        raise ParameterError(f"{params} has changes that git has not recorded; commit them, or add --force")
    _write(params, text)
    print(f"{params} is now {source}. `farther doctor` says what is missing, then `dvc repro report` runs it.")
    return 0


def placed(text: str, data: str) -> str:
    """A profile's text with another folder for the data.

    >>> placed("root: /data/coco  # not data/benchmarks/voc.yaml", "/mnt/d")
    'root: /mnt/d/coco  # not data/benchmarks/voc.yaml'

    Raises:
        ParameterError: the folder's name is relative, or has characters that YAML would read otherwise.
    """
    folder = str(Path(data).expanduser())
    if not Path(folder).is_absolute() or re.search(r"[^\w./@+-]", folder):
        raise ParameterError(f"--data: expected an absolute path without spaces, quotes and the like, found {data!r}")
    return re.sub(rf"(?<![\w./-]){DATA}/", lambda _: f"{folder}/", text)


def _recorded(file: Path) -> bool:
    """Whether git has the file's content."""
    from farther.command.needs.machine import git

    return git(Path(), "status", "--porcelain", "--", str(file)) == ""


def _write(file: Path, text: str) -> None:
    from farther.tables.files import write_aside

    with write_aside(file) as aside:
        aside.write_text(text, encoding="utf-8")


def _first_comment(file: Path) -> str:
    """The first paragraph of the comment that a profile begins with."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#") or line.strip() == "#":
            break
        lines.append(line.lstrip("# "))
    return " ".join(lines)
