"""Objects of a DVC remote, fetched a part at a time into a folder that is then deleted."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from farther.command.dvc_project import (
    FOLDER,
    Output,
    answer,
    errors_of,
    object_path,
    run_dvc,
)
from farther.errors import DataError

#: Bytes that are fetched together; an output that is larger is fetched by itself.
PART = 1 << 30
#: The name of an object in an error of DVC, and why it was not fetched.
REASON = re.compile(r"\b([0-9a-f]{32})\b\S*(?: -| is corrupted:)? (.+)")


@dataclass
class Fetched:
    """Some outputs, and where the objects of a remote are that they need.

    Args:
        outputs: The outputs.
        cache: A folder with the objects that arrived, laid out as DVC's cache. They are as they are
            on the remote, damaged or not.
        reasons: Why an object did not arrive, by its MD5, where DVC gives a reason.
    """

    outputs: Sequence[Output]
    cache: Path
    reasons: dict[str, str] = field(default_factory=dict)


def fetch(remote: str, settings: Mapping[str, str], outputs: Sequence[Output]) -> Iterator[Fetched]:
    """Fetches the objects of outputs from a remote of any kind.

    Each part is deleted when the next one is asked for. DVC fetches into a project of its own,
    below `.dvc/tmp`, which has the settings of this one and an empty cache. In it a file tracks
    each output.

    Args:
        remote: Name of the remote.
        settings: The project's settings.
        outputs: The outputs.

    Raises:
        DataError: the remote cannot be used.
    """
    temporary = Path(answer("root")) / ".dvc/tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    for part in _parts(outputs):
        with tempfile.TemporaryDirectory(prefix="farther-check-", dir=temporary) as folder:
            project = Path(folder)
            _write_project(project, remote, settings, part)
            fetched = Fetched(part, project / "cache")
            _fetch(project, remote, range(len(part)), fetched)
            yield fetched


def _parts(outputs: Sequence[Output]) -> Iterator[list[Output]]:
    """Outputs in their order, as many together as `PART` has room for."""
    part: list[Output] = []
    size = 0
    for output in outputs:
        if part and size + output.size > PART:
            yield part
            part = []
            size = 0
        part.append(output)
        size += output.size
    if part:
        yield part


def _write_project(
    folder: Path, remote: str, settings: Mapping[str, str], outputs: Sequence[Output]
) -> None:
    """Writes a project of DVC whose outputs are those of another one."""
    sections: dict[str, dict[str, str]] = {
        "core": {
            "no_scm": "true",
            "analytics": "false",
            "check_update": "false",
            "site_cache_dir": str(folder / "site"),
        },
        "cache": {"dir": str(folder / "cache")},
        _section(remote): {},
    }
    for name, value in settings.items():
        kind, _, rest = name.partition(".")
        if kind == "remote":
            other, _, option = rest.rpartition(".")
            sections.setdefault(_section(other), {})[option] = value
    sections[_section(remote)]["verify"] = "false"  # a damaged object is fetched as it is

    lines = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        for option, value in options.items():
            lines.append(f'{option} = """{value}"""')
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for number, output in enumerate(outputs):
        text = f"outs:\n- md5: {output.oid}\n  hash: md5\n  path: output{number}\n"
        (folder / _tracking(number)).write_text(text, encoding="utf-8")


def _section(remote: str) -> str:
    """The section of a remote in a file of settings."""
    return f"""'remote "{remote}"'"""


def _tracking(number: int) -> str:
    """Name of the file that tracks an output."""
    return f"output{number}.dvc"


def _fetch(project: Path, remote: str, numbers: Sequence[int], fetched: Fetched) -> None:
    """Fetches outputs, and again one by one if that fails because of an object.

    DVC fetches nothing at all if the list of one folder cannot be read.

    Args:
        project: The temporary project.
        remote: Name of the remote.
        numbers: Numbers of the outputs.
        fetched: Gets the objects and the reasons.

    Raises:
        DataError: a failure that is not about an object.
    """
    files = map(_tracking, numbers)
    finished = run_dvc("fetch", "--remote", remote, *files, folder=project)
    if finished.returncode == 0:  # objects that the remote lacks are no failure
        return
    errors = errors_of(finished)
    reasons = {}
    for error in errors:
        named = REASON.search(error)
        if named:
            reasons[named[1]] = named[2]
    if not reasons:
        raise DataError(next(iter(errors), "`dvc fetch` failed"))
    if len(numbers) > 1:
        for number in numbers:
            _fetch(project, remote, [number], fetched)
        return
    fetched.reasons.update(reasons)
    _fetch_list(project, remote, fetched.outputs[numbers[0]], fetched)


def _fetch_list(project: Path, remote: str, output: Output, fetched: Fetched) -> None:
    """Fetches the list of a folder, which DVC does not keep where a file did not arrive.

    Raises:
        DataError: it cannot be read, although DVC has just seen it.
    """
    name = object_path(output.oid)
    copy = fetched.cache / name
    if not output.oid.endswith(FOLDER) or copy.exists():
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    answer("get-url", f"remote://{remote}/{name}", str(copy), folder=project)
