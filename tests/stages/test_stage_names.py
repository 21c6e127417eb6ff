"""Texts name stages that dvc.yaml has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]

#: Stages of dvc.yaml, the name that their scripts share, and those of the demo's training.
STAGES = {"derive", "train", "unknown"}
STAGES |= yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"].keys()

#: Where texts are; their endings.
FOLDERS = ("lib", "docs", "benchmarks", "stages", "README.md", "CONTRIBUTING.md", "params.yaml")
ENDINGS = {".py", ".md", ".jinja", ".html", ".js", ".yaml"}

COMMAND = re.compile(
    r"(?:dvc|farther) repro((?: +(?:--[a-z-]+|[a-z_]+(?:@[\w*-]+)?))*)(?=[`<\"')])"
)
STAGE = re.compile(r"\bstages? `([a-z_]+)`")


def stages_in(text: str) -> set[str]:
    """Names of stages in commands and sentences."""
    names = set(STAGE.findall(text))
    for words in COMMAND.findall(text):
        for word in words.split():
            if not word.startswith("-"):
                names.add(word.partition("@")[0])
    return names


def test_names_are_found_in_commands_and_sentences():
    text = "the stage `cost`; `dvc repro --force infer@a report`, <code>farther repro fit</code>"
    assert stages_in(text) == {"cost", "infer", "report", "fit"}


def test_texts_name_stages_that_are_there():
    listed = subprocess.run(
        ["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    wrong = {}
    for name in listed.stdout.splitlines():
        file = ROOT / name
        if file.suffix in ENDINGS and file.is_file():
            unknown = stages_in(file.read_text(encoding="utf-8")) - STAGES
            if unknown:
                wrong[name] = unknown
    assert wrong == {}
