"""Checks of the sections of params.yaml that only late stages read.

A wrong value there would else be refused when inference is over. What was checked before, by the
same code, is not checked again: the classes that check take seconds to import.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from farther.naming import extensions
from farther.naming.canonical_names import CHOICES
from farther.naming.registry import build
from farther.tables.content import digest

#: The class that reads a section, for sections without entries: module and name.
CLASSES = {
    "threshold": ("farther.evaluation.threshold", "ThresholdSettings"),
    "fit": ("farther.scoring.inputs", "FitSection"),
    "scoring": ("farther.scoring.device", "ScoringSettings"),
    "evaluate": ("farther.evaluation.settings", "EvaluationSettings"),
    "deploy": ("farther.evaluation.deploy.results", "Budget"),
    "cost": ("farther.evaluation.cost", "CostParams"),
    "report": ("farther.report.settings", "ReportSettings"),
    "resources": ("farther.pipeline.workers", "Resources"),
}


@dataclass(frozen=True)
class _Check:
    """A check of a part of params.yaml.

    Args:
        name: The part: "evaluate", "methods.knn".
        value: What is checked.
        run: Checks it.
    """

    name: str
    value: Any
    run: Callable[[], object]


def check_later_sections(
    params: Mapping[str, Any], checked: Mapping[str, str] | None = None, code: str = ""
) -> dict[str, str]:
    """Checks keys and values of what stages after `infer` read; absent sections are left out.

    Whether splits, runs and files that they name are there is checked where they are used, and so
    are methods of extensions: an error in the code of one does not keep the others from running.

    Args:
        params: All sections of params.yaml.
        checked: What an earlier call returned: these parts are not checked again.
        code: Digest of the code.

    Returns:
        {part: digest of the part and of the code}.

    Raises:
        ParameterError: as the stage would raise it.
    """
    digest_by_part = {}
    for check in _checks(params):
        part_digest = digest(code, json.dumps(check.value, default=str))
        if (checked or {}).get(check.name) != part_digest:
            check.run()
        digest_by_part[check.name] = part_digest
    return digest_by_part


def class_of(section: str) -> type:
    """The class of `CLASSES` that reads a section."""
    module, name = CLASSES[section]
    cls: type = getattr(importlib.import_module(module), name)
    return cls


def _checks(params: Mapping[str, Any]) -> Iterator[_Check]:
    """One check per section, per run and per method."""
    for name in CLASSES:
        if params.get(name) is not None:
            yield _Check(name, params[name], partial(_check_section, name, name, params[name]))
    threshold = params.get("threshold") or {}
    for run, detector in (params.get("detectors") or {}).items():
        name = f"detectors.{run}.threshold"
        value = {**threshold, **((detector or {}).get("threshold") or {})}
        yield _Check(name, value, partial(_check_section, "threshold", name, value))
    names_of_extensions = extensions.by_name().keys()
    methods = params.get("methods") or {}
    for name, values in methods.items():
        if names_of_extensions.isdisjoint(_methods_of(name, values or {})):
            check = partial(_check_method, name, values or {}, methods)
            yield _Check(f"methods.{name}", [values, _named_entries(values or {}, methods)], check)


def _check_section(section: str, name: str, value: Any) -> None:
    """Checks a section, or another part of params.yaml that has its keys."""
    build(class_of(section), f"params.yaml: {name}", value)


def _named_entries(values: Mapping[str, Any], methods: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `methods` that an entry names, such as those that it is made of."""
    named = {}
    for value in values.values():
        names = value if isinstance(value, list) else [value]
        for name in names:
            if isinstance(name, str) and name in methods:
                named[name] = methods[name]
    return named


def _check_method(name: str, values: Mapping[str, Any], methods: Mapping[str, Any]) -> None:
    """Checks an entry of `methods`."""
    # It imports NumPy and Polars, which other sections do not need.
    from farther.scoring.entries import read_entry

    entry = read_entry(name, values, methods)
    if entry.search is None and entry.oracle is None:
        entry.create()


def _methods_of(name: str, values: Mapping[str, Any]) -> list[str]:
    """Names of the methods of an entry, which may choose one of several."""
    methods = [str(values.get("method", name))]
    for choice in CHOICES:
        methods.extend((values.get(choice) or {}).get("grids") or {})
    return methods
