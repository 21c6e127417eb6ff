"""What a project is made of: the stages of its dvc.yaml, and the files that the package ships for it.

Each module that `farther.pipeline.stages` names is a stage: `python -m farther.pipeline.ingest voc`
runs one as dvc.yaml does. A wheel has the other files in the folder `project` beside this module;
a clone, whose own files they are, has them at its top.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from farther.errors import ParameterError
from farther.pipeline.dvc_file import ROOT, dvc_yaml
from farther.pipeline.stages import STAGES, ignored_by_git

#: Stages of the demo, and those that need a CLIP model.
DEMO = tuple(stage.name for stage in STAGES if stage.is_demo)
CLIP = tuple(stage.name for stage in STAGES if stage.needs_clip)
#: What the dvc.yaml of a project becomes where it is written anew.
EARLIER = "dvc.yaml.earlier"
#: Folders that stages depend on, which may be empty.
FOLDERS = ("data/candidates", "data/decisions", "data/published", "data/similarity", "extensions")
#: What DVC leaves out: times are of one machine.
IGNORED_BY_DVC = ("__pycache__", "*.pyc", ".work", "/artifacts/report/times.js")


def profiles() -> dict[str, Path]:
    """The profiles that farther has: whole files of parameters, by name."""
    return {
        file.stem: file
        for file in sorted((ROOT / "profiles").glob("*.yaml"), key=lambda file: file.stem)
    }


def write_pipeline(folder: Path, *, clip: bool) -> None:
    """Writes dvc.yaml, templates of its plots, the folders that stages depend on, and what git and DVC leave out.

    A dvc.yaml that is there and differs becomes dvc.yaml.earlier. Files of other names stay as they
    are.

    Raises:
        ParameterError: there is a dvc.yaml.earlier, which would be lost.
    """
    check_replaceable(folder, clip=clip)
    folder.mkdir(parents=True, exist_ok=True)
    text = _text(clip=clip)
    file = folder / "dvc.yaml"
    if file.exists() and file.read_text(encoding="utf-8") != text:
        file.replace(folder / EARLIER)
    file.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / ".dvc/plots", folder / ".dvc/plots", dirs_exist_ok=True)
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
        if not any((folder / name).iterdir()):
            (folder / name / ".gitkeep").touch()
    _add_lines(folder / ".gitignore", ignored_by_git())
    _add_lines(folder / ".dvcignore", IGNORED_BY_DVC)


def check_replaceable(folder: Path, *, clip: bool) -> None:
    """Refuses to replace the dvc.yaml of a folder where it differs and cannot be kept.

    Raises:
        ParameterError: there is a dvc.yaml.earlier, which would be lost.
    """
    file = folder / "dvc.yaml"
    earlier = folder / EARLIER
    if not earlier.exists() or not file.exists():
        return
    if file.read_text(encoding="utf-8") != _text(clip=clip):
        raise ParameterError(
            f"{earlier} exists: move it away, because the current dvc.yaml gets this name"
        )


def _text(*, clip: bool) -> str:
    return dvc_yaml(DEMO if clip else (*DEMO, *CLIP))


def _add_lines(file: Path, lines: Iterable[str]) -> None:
    """Adds lines that a text file does not have to its end."""
    present = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    added = [line for line in lines if line not in present]
    file.write_text("\n".join([*present, *added]) + "\n", encoding="utf-8")


def write_named_files(params: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes the shipped files that a profile's parameters name, and those that these name, where they are absent.

    Args:
        params: The parameters.
        folder: The project's folder.

    Returns:
        What was written, relative to the folder.
    """
    from farther.tables.documents import (
        read_yaml,
    )  # not above: it takes longer than a short command
    from farther.tables.files import inside
    from farther.tables.writing import write_aside

    written = []
    wanted = [Path(text) for text in _texts(params) if text.startswith("data/")]
    if (params.get("report") or {}).get("published"):
        wanted += [file.relative_to(ROOT) for file in sorted((ROOT / "data/published").iterdir())]
    while wanted:
        name = wanted.pop()
        source = ROOT / name
        if not source.is_file():
            continue
        if name.parent == Path("data/benchmarks"):
            beside = [text for text in _texts(read_yaml(source)) if text.startswith("../")]
            wanted += [Path("data", text.removeprefix("../")) for text in beside]
        target = inside(folder, str(name))
        if not target.exists():
            with write_aside(target) as aside:
                shutil.copyfile(source, aside)
            written.append(name)
    return written


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
