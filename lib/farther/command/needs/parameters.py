"""Parameters: names and values that no stage would take, found before the first one runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from farther.command.needs.checkpoints import make_detector
from farther.command.needs.finding import Finding
from farther.command.project import Project
from farther.errors import FartherError


def parameters(project: Project) -> list[Finding]:
    """One finding for each wrong entry, or one that says that there is none."""
    found = [
        Finding("parameters", name, "wrong", str(error))
        for name, check in _checks(project)
        if (error := _error(check)) is not None
    ]
    return found or [Finding("parameters", str(project.file), "ok", "names and values are known")]


def _error(check: Callable[[], Any]) -> FartherError | None:
    try:
        check()
    except FartherError as error:
        return error
    return None


def _checks(project: Project) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What each entry is called, and what raises where it is wrong."""
    from farther.detectors.inference import InferenceParams
    from farther.evaluation.evaluate import EvaluationSettings
    from farther.evaluation.files import ThresholdSettings
    from farther.registry import build
    from farther.scoring.entries import read_entry
    from farther.scoring.fit import FitSettings

    def method(name: str, values: dict[str, Any] | None) -> None:
        read_entry(name, values or {}).create()

    for name, values in project.section("methods").items():
        yield f"methods.{name}", partial(method, name, values)
    for name, values in project.section("detectors").items():
        yield f"detectors.{name}", partial(make_detector, values)
        yield f"detectors.{name}", partial(project.benchmark, str(values.get("benchmark")))
    sections: dict[str, type] = {
        "inference": InferenceParams,
        "threshold": ThresholdSettings,
        "fit": FitSettings,
        "evaluate": EvaluationSettings,
    }
    for name, cls in sections.items():
        yield name, partial(build, cls, name, dict(project.section(name)))
