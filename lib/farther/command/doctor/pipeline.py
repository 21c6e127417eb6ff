"""Checks of dvc.yaml against params.yaml for `farther doctor`: DVC starts no stage otherwise."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from farther.command.project import Project
from farther.errors import PROBLEMS, Finding
from farther.pipeline import CLIP, DEMO, ROOT, dvc_yaml
from farther.pipeline.params_schema import SECTION_BY_NAME
from farther.tables.documents import read_yaml

#: A value that DVC fills in: `${item.root}`, `${embed.weights}`.
REFERENCE = re.compile(r"\$\{([\w.]+)\}")

#: Least similarity of a section's name, from 0 to 1, to one that it may be meant as.
SIMILAR = 0.7

#: Where the demo's datasets are written.
DEMO_ROOT = "artifacts/demo/"


def pipeline(project: Project) -> list[Finding]:
    """One finding for each value or file that dvc.yaml needs and that is not there."""
    file = project.folder / "dvc.yaml"
    if not file.is_file():
        text = "not here: `farther init` or `farther benchmark profile` writes it"
        return [Finding("pipeline", "dvc.yaml", "note", text)]
    stages = (read_yaml(file) or {}).get("stages") or {}
    if not has_demo(project):
        stages.pop("demo", None)  # nothing depends on it
    findings = list(_misspelt(project))
    for name, stage in stages.items():
        for finding in _missing(project, name, stage):
            if finding not in findings:
                findings.append(finding)
    if not any(finding.state in PROBLEMS for finding in findings):
        findings.append(_state(file))
    return findings


def _misspelt(project: Project) -> Iterator[Finding]:
    """Sections that nothing reads and whose names resemble a section that is absent."""
    absent = [name for name in SECTION_BY_NAME if name not in project.params]
    for name in project.params:
        if name in SECTION_BY_NAME:
            continue
        for similar in difflib.get_close_matches(name, absent, n=1, cutoff=SIMILAR):
            text = f"no section that farther reads; did you mean {similar!r}? See"
            yield Finding("pipeline", name, "note", f"{text} `farther list params`")


def has_demo(project: Project) -> bool:
    """Whether a dataset is of the demo world."""
    return any(
        str((params or {}).get("root")).startswith(DEMO_ROOT)
        for params in project.section("datasets").values()
    )


def _state(file: Path) -> Finding:
    """Whether dvc.yaml is the one of this version."""
    if _is_of_this_version(file.read_text(encoding="utf-8")):
        return Finding("pipeline", "dvc.yaml", "ok", "every value and file that it names exists")
    advice = "`farther init --pipeline` writes this version's and keeps yours as dvc.yaml.earlier"
    return Finding(
        "pipeline", "dvc.yaml", "note", f"written for another version of farther; {advice}"
    )


def _is_of_this_version(text: str) -> bool:
    """Whether a text is farther's own dvc.yaml, or one that it writes into projects."""
    if text == (ROOT / "dvc.yaml").read_text(encoding="utf-8"):
        return True
    return text in (dvc_yaml(DEMO), dvc_yaml((*DEMO, *CLIP)))


def _missing(project: Project, name: str, stage: dict[str, Any]) -> Iterator[Finding]:
    """What a stage needs and does not have: values, files, and sections.

    Args:
        project: The project.
        name: Name of the stage.
        stage: Its entry in dvc.yaml.
    """
    body = stage.get("do", stage)
    deps = body.get("deps") or []
    params = body.get("params") or []
    foreach = stage.get("foreach")
    items: dict[str, Any] = {}
    if isinstance(foreach, str):
        section = foreach.strip("${}")
        entries = _value(project.params, section)
        if not isinstance(entries, dict):
            text = f"section {section!r} is missing; stage {name!r} needs it"
            yield _finding(section, f"{text}; write {{}} if it is empty")
            return
        items = {f"{section}.{key}": entry for key, entry in entries.items()}
    for text in (*deps, *params):
        for reference in REFERENCE.findall(str(text)):
            yield from _missing_values(project, name, reference, items)
    for dep in deps:
        is_own = not REFERENCE.search(dep) and not dep.startswith("artifacts")
        if is_own and not (project.folder / dep).exists():
            yield _finding(dep, f"not there; stage {name!r} depends on it")
    if "params.yaml" in deps and name in SECTION_BY_NAME:
        params = [*params, name]
    for key in params:
        # A dict has keys of another file.
        if not isinstance(key, str) or REFERENCE.search(key):
            continue
        if key not in project.params and _value(project.params, key) is None:
            text = f"section {key!r} is missing; stage {name!r} needs it"
            yield _finding(key, f"{text}; write {{}} for the defaults")


def _missing_values(
    project: Project, stage: str, reference: str, items: dict[str, Any]
) -> Iterator[Finding]:
    """The parameters that a reference of a stage needs and that are not there.

    Args:
        project: The project.
        stage: Name of the stage.
        reference: What is between `${` and `}`.
        items: {place in params.yaml: entry} of the stage's `foreach`.
    """
    if reference in ("item", "key"):
        return
    if not reference.startswith("item."):
        if _value(project.params, reference) is None:
            yield _finding(reference, f"missing; stage {stage!r} needs it")
        return
    key = reference.removeprefix("item.")
    for place, item in items.items():
        if _value(item, key) is None:
            yield _finding(place, f"{key!r} is missing; stage {stage!r} needs it")


def _finding(name: str, text: str) -> Finding:
    return Finding("pipeline", name, "missing", text)


def _value(values: Any, key: str) -> Any:
    """The value at a key with dots, or None."""
    for part in key.split("."):
        if not isinstance(values, dict):
            return None
        values = values.get(part)
    return values
