"""Checks of dvc.yaml against params.yaml for `farther doctor`: what would keep DVC from starting any stage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from farther.command.earlier_project import is_earlier
from farther.command.project import Project
from farther.errors import Finding

#: A value that DVC fills in: `${item.root}`, `${embed.weights}`.
FILLED = re.compile(r"\$\{([\w.]+)\}")

#: What a project needs that links to the library and has copies of its scripts.
EARLIER = (
    "written by an earlier version, with a link `lib` to the library and copies of its scripts. Rewrite it with "
    "`farther init --pipeline`, move your methods from data/methods to extensions/, then delete lib and stages/"
)

#: What a project needs whose pipeline fits, scores and evaluates in one stage.
WITHOUT_FIT = (
    "written by an earlier version, with one stage for fit, score and evaluate: run `farther init --pipeline`, which "
    "keeps yours as dvc.yaml.earlier, and regions that did not change"
)

#: Where the demo's datasets are written.
DRAWN = "artifacts/demo/"


def pipeline(project: Project) -> list[Finding]:
    """One finding for each value or file that dvc.yaml needs and that is not there."""
    from farther.tables.documents import read_yaml

    file = project.folder / "dvc.yaml"
    if not file.is_file():
        return [
            Finding(
                "pipeline",
                "dvc.yaml",
                "note",
                "not here: `farther init` or `farther benchmark profile` writes it",
            )
        ]
    if (project.folder / "lib").is_symlink():
        return [Finding("pipeline", "dvc.yaml", "wrong", EARLIER)]
    stages = (read_yaml(file) or {}).get("stages") or {}
    if is_earlier(stages):
        return [Finding("pipeline", "dvc.yaml", "wrong", WITHOUT_FIT)]
    if not draws_demo(project):
        stages.pop("demo", None)  # nothing depends on it
    texts = {f: None for name, stage in stages.items() for f in _lacking(project, name, stage)}
    wrong = [Finding("pipeline", name, "missing", text) for name, text in texts]
    return wrong or [_state(file)]


def draws_demo(project: Project) -> bool:
    """Whether a dataset is of the demo world."""
    return any(
        str((params or {}).get("root")).startswith(DRAWN)
        for params in project.section("datasets").values()
    )


def _state(file: Path) -> Finding:
    """Whether dvc.yaml is the one of this version."""
    from farther.pipeline import CLIP, DEMO, ROOT, dvc_yaml

    known = [
        (ROOT / "dvc.yaml").read_text(encoding="utf-8"),
        dvc_yaml(DEMO),
        dvc_yaml((*DEMO, *CLIP)),
    ]
    if file.read_text(encoding="utf-8") in known:
        return Finding("pipeline", "dvc.yaml", "ok", "every value and file that it names exists")
    advice = "`farther init --pipeline` writes this version's and keeps yours as dvc.yaml.earlier"
    return Finding(
        "pipeline", "dvc.yaml", "note", f"written for another version of farther; {advice}"
    )


def _lacking(project: Project, name: str, stage: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and descriptions of what a stage lacks."""
    each = stage.get("foreach")
    body = stage.get("do", stage)
    items: dict[str, Any] = {}
    if isinstance(each, str):
        key = each.strip("${}")
        found = _value(project.params, key)
        if not isinstance(found, dict):
            yield (
                key,
                f"section {key!r} is missing; stage {name!r} needs it; write {{}} if it is empty",
            )
            return
        items = {f"{key}.{one}": value for one, value in found.items()}
    texts = [*(body.get("deps") or []), *(body.get("params") or [])]
    for text in texts:
        for reference in FILLED.findall(str(text)):
            if reference in ("item", "key"):
                continue
            if not reference.startswith("item."):
                if _value(project.params, reference) is None:
                    yield reference, f"missing; stage {name!r} needs it"
                continue
            for place, item in items.items():
                if _value(item, reference.removeprefix("item.")) is None:
                    yield (
                        place,
                        f"{reference.removeprefix('item.')!r} is missing; stage {name!r} needs it",
                    )
    for dep in body.get("deps") or []:
        if (
            not FILLED.search(dep)
            and not dep.startswith("artifacts")
            and not (project.folder / dep).exists()
        ):
            yield dep, f"not there; stage {name!r} depends on it"
    for key in _written(body.get("params") or []):
        if (
            not FILLED.search(key)
            and key not in project.params
            and _value(project.params, key) is None
        ):
            yield (
                key,
                f"section {key!r} is missing; stage {name!r} needs it; write {{}} for the defaults",
            )


def _written(params: list[Any]) -> list[str]:
    """Keys of params.yaml among the parameters of a stage."""
    return [key for key in params if isinstance(key, str)]


def _value(values: Any, key: str) -> Any:
    """The value at a key with dots, or None."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values
