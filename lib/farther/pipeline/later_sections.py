"""Checks of the sections of params.yaml that only late stages read.

A wrong value there would else be refused when inference is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farther import extensions
from farther.canonical_names import CHOICES
from farther.evaluation.cost import CostParams
from farther.evaluation.deploy.results import Budget
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.threshold import ThresholdSettings
from farther.registry import build
from farther.report.settings import ReportSettings
from farther.scoring.device import ScoringSettings
from farther.scoring.entries import read_entry
from farther.scoring.inputs import FitSection

#: The class that reads a section, for sections without entries.
CLASSES: dict[str, type] = {
    "threshold": ThresholdSettings,
    "fit": FitSection,
    "scoring": ScoringSettings,
    "evaluate": EvaluationSettings,
    "deploy": Budget,
    "cost": CostParams,
    "report": ReportSettings,
}


def check_later_sections(params: Mapping[str, Any]) -> None:
    """Checks keys and values of what stages after `infer` read; absent sections are left out.

    Whether splits, runs and files that they name are there is checked where they are used, and so
    are methods of extensions: an error in the code of one does not keep the others from running.

    Args:
        params: All sections of params.yaml.

    Raises:
        ParameterError: as the stage would raise it.
    """
    for name, cls in CLASSES.items():
        if params.get(name) is not None:
            build(cls, f"params.yaml: {name}", params[name])
    threshold = params.get("threshold") or {}
    for run, detector in (params.get("detectors") or {}).items():
        own = (detector or {}).get("threshold") or {}
        build(ThresholdSettings, f"params.yaml: detectors.{run}.threshold", {**threshold, **own})
    names_of_extensions = extensions.by_name().keys()
    for name, values in (params.get("methods") or {}).items():
        if names_of_extensions.isdisjoint(_methods_of(name, values or {})):
            entry = read_entry(name, values or {})
            if entry.search is None and entry.oracle is None:
                entry.create()


def _methods_of(name: str, values: Mapping[str, Any]) -> list[str]:
    """Names of the methods of an entry, which may choose one of several."""
    methods = [str(values.get("method", name))]
    for choice in CHOICES:
        methods.extend((values.get(choice) or {}).get("grids") or {})
    return methods
