"""What a project is made of: the stages of its dvc.yaml, and the files that the package ships for it.

Each module is a stage: `python -m farther.pipeline.ingest voc` runs one as dvc.yaml does. A wheel has the other files
in the folder `project` beside this module; a clone, whose own files they are, has them at its top.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from farther.errors import ParameterError
from farther.tables.documents import read_yaml
from farther.tables.files import inside
from farther.tables.writing import write_aside

ROOT = next(root for root in (Path(__file__).parent / "project", Path(__file__).parents[3]) if root.is_dir())

#: The stages that read parameters, in the order in which they run; each has a `check`, and a `main`.
STAGES = ("derive", "ingest", "curate", "embed", "stratify", "infer", "evaluate", "proposals", "cost", "report")

#: Stages of the demo, and those that need a CLIP model.
DEMO, CLIP = ("demo",), ("embed", "stratify")
#: Folders that stages depend on, which may be empty.
FOLDERS = ("data/candidates", "data/decisions", "data/published", "data/similarity", "extensions")
#: What git leaves out: artifacts but for the small ones.
IGNORED_BY_GIT = (
    *("__pycache__/", ".work/", "/artifacts/*"),
    *(f"!/artifacts/{name}" for name in ("counts/", "metrics/", "plots/", "recovered/", "seeds.json")),
    "/artifacts/recovered/*/",
)
#: What DVC leaves out: times are of one machine.
IGNORED_BY_DVC = ("__pycache__", "*.pyc", ".work", "/artifacts/report/times.js")

_BLOCKS = re.compile(r"\n\n(?=(?:  #.*\n)*  \w+:\n)")
_CODE_DEPS = re.compile(r"^    deps: \[stages, .*\]$", re.MULTILINE)


def profiles() -> dict[str, Path]:
    """The profiles that farther has: whole files of parameters, by name."""
    return {file.stem: file for file in sorted((ROOT / "profiles").glob("*.yaml"), key=lambda file: file.stem)}


def dvc_yaml(without: Collection[str] = DEMO) -> str:
    """Text of a project's dvc.yaml: that of farther's own, whose commands start the installed package.

    Args:
        without: Stages to leave out.
    """
    head, *stages = _BLOCKS.split((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    kept = [stage for stage in stages if re.findall(r"^  (\w+):$", stage, re.MULTILINE)[0] not in without]
    text = re.sub(r"python stages/(\w+)\.py", r"python -m farther.pipeline.\1", "\n\n".join([head, *kept]))
    text = _CODE_DEPS.sub("    deps: [extensions]\n    always_changed: true  # another farther may be installed", text)
    if "embed" in without:  # passes over crops are the only other use of CLIP
        for part in (', "${embed.weights}"', "embed.encoder, ", "      - artifacts/similarity\n"):
            text = text.replace(part, "")
    return text.rstrip() + "\n"


def write_pipeline(folder: Path, *, clip: bool) -> None:
    """Writes dvc.yaml, templates of its plots, the folders that stages depend on, and what git and DVC leave out.

    A dvc.yaml that is there and differs becomes dvc.yaml.earlier. Files of other names stay as they are.

    Raises:
        ParameterError: there is a dvc.yaml.earlier, which would be lost.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text, file = dvc_yaml(DEMO if clip else (*DEMO, *CLIP)), folder / "dvc.yaml"
    if file.exists() and file.read_text(encoding="utf-8") != text:
        if (kept := folder / "dvc.yaml.earlier").exists():
            raise ParameterError(f"{kept} exists: move it away, because the current dvc.yaml gets this name")
        file.replace(kept)
    file.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / ".dvc/plots", folder / ".dvc/plots", dirs_exist_ok=True)
    for name in FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
        if not any((folder / name).iterdir()):
            (folder / name / ".gitkeep").touch()
    for file, wanted in ((folder / ".gitignore", IGNORED_BY_GIT), (folder / ".dvcignore", IGNORED_BY_DVC)):
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        lines += [line for line in wanted if line not in lines]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_named_files(params: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes the shipped files that a profile's parameters name, and those that these name, where they are absent.

    Args:
        params: The parameters.
        folder: The project's folder.

    Returns:
        What was written, relative to the folder.
    """
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
