"""The parts of a project: the stages of its dvc.yaml, and the files that the package ships for it.

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
from farther.tables.writing import write_aside

#: Stages of the demo, and those that need a CLIP model.
DEMO = tuple(stage.name for stage in STAGES if stage.is_demo)
CLIP = tuple(stage.name for stage in STAGES if stage.needs_clip)
#: What the dvc.yaml of a project becomes where it is written anew.
EARLIER = "dvc.yaml.earlier"
#: The JSON schema of params.yaml, by which editors complete and check it.
SCHEMA = "params.schema.json"
#: Folders that stages depend on, which may be empty.
FOLDERS = ("data/candidates", "data/decisions", "data/published", "data/similarity", "extensions")
#: What DVC leaves out: times are of one machine, and `farther.tables.folders.is_junk` is not read.
IGNORED_BY_DVC = (
    *("__pycache__", "*.pyc", ".work", "/artifacts/report/times.js"),
    *("._*", ".DS_Store", "__MACOSX", "Thumbs.db", "desktop.ini", ".ipynb_checkpoints", "@eaDir"),
)


def profiles() -> dict[str, Path]:
    """The profiles that farther has: whole files of parameters, by name."""
    files = {file.stem: file for file in (ROOT / "profiles").glob("*.yaml")}
    return dict(sorted(files.items()))


def write_pipeline(folder: Path, *, clip: bool) -> None:
    """Writes the files of a project's pipeline.

    These are dvc.yaml, the templates of its plots, the folders that stages depend on, the lists of
    files that git and DVC ignore, and the schema of params.yaml. An existing dvc.yaml that differs
    becomes dvc.yaml.earlier. Files of other names stay as they are.

    Raises:
        ParameterError: there is a dvc.yaml.earlier, which would be lost.
    """
    text = _text(clip=clip)
    _check_replaceable(folder, text)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "dvc.yaml"
    shutil.copytree(ROOT / ".dvc/plots", folder / ".dvc/plots", dirs_exist_ok=True)
    _write_schema(folder)
    for name in FOLDERS:
        subfolder = folder / name
        subfolder.mkdir(parents=True, exist_ok=True)
        if not any(subfolder.iterdir()):
            (subfolder / ".gitkeep").touch()
    _add_lines(folder / ".gitignore", ignored_by_git())
    _add_lines(folder / ".dvcignore", IGNORED_BY_DVC)
    # Last: a folder with a dvc.yaml has the other files.
    if file.exists() and file.read_text(encoding="utf-8") != text:
        file.replace(folder / EARLIER)
    with write_aside(file) as aside:
        aside.write_text(text, encoding="utf-8")


def _write_schema(folder: Path) -> None:
    """Writes the schema of params.yaml into a project."""
    with write_aside(folder / SCHEMA) as aside:
        shutil.copyfile(ROOT / SCHEMA, aside)


def _check_replaceable(folder: Path, text: str) -> None:
    """Refuses to replace the dvc.yaml of a folder where it differs and cannot be kept.

    Args:
        folder: The folder.
        text: What replaces it.

    Raises:
        ParameterError: there is a dvc.yaml.earlier, which would be lost.
    """
    file = folder / "dvc.yaml"
    earlier = folder / EARLIER
    if not earlier.exists() or not file.exists():
        return
    if file.read_text(encoding="utf-8") != text:
        raise ParameterError(
            f"{earlier} exists: move it away, because the current dvc.yaml gets this name"
        )


def _text(*, clip: bool) -> str:
    """Text of a project's dvc.yaml, with or without the stages that need a CLIP model."""
    if clip:
        return dvc_yaml(DEMO)
    return dvc_yaml((*DEMO, *CLIP))


def _add_lines(file: Path, lines: Iterable[str]) -> None:
    """Appends those lines to a text file that it does not have."""
    present = []
    if file.exists():
        present = file.read_text(encoding="utf-8").splitlines()
    missing = [line for line in lines if line not in present]
    file.write_text("\n".join([*present, *missing]) + "\n", encoding="utf-8")


def write_named_files(params: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes the absent files that a profile's parameters name, and those that these files name.

    Args:
        params: The parameters.
        folder: The project's folder.

    Returns:
        Paths of the files that were written, relative to the folder.
    """
    # Imported here, because the import takes longer than a short command.
    from farther.tables.documents import read_yaml
    from farther.tables.files import inside
    from farther.tables.folders import entries

    queue = [Path(text) for text in _texts(params) if text.startswith("data/")]
    if (params.get("report") or {}).get("published"):
        published = [Path(entry.path) for entry in entries(ROOT / "data/published")]
        queue += [file.relative_to(ROOT) for file in published]

    copied_files = []
    while queue:
        name = queue.pop()
        source = ROOT / name
        if not source.is_file():
            continue
        if name.parent == Path("data/benchmarks"):
            for text in _texts(read_yaml(source)):
                if text.startswith("../"):
                    queue.append(Path("data", text.removeprefix("../")))
        target = inside(folder, str(name))
        if not target.exists():
            with write_aside(target) as aside:
                shutil.copyfile(source, aside)
            copied_files.append(name)
    return copied_files


def _texts(value: object) -> Iterator[str]:
    """All texts within dicts and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
