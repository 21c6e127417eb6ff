"""The description of a method: its documentation, and how a run fitted it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from farther.documentation import describe
from farther.evaluation.results import FittedMethod
from farther.methods.base import METHODS
from farther.methods.reference import NEEDS
from farther.report.listing import Listing
from farther.report.results import Run, title_of
from farther.scoring.entries import read_entry


class MethodText(NamedTuple):
    """The documentation of a method: its docstring in parts, what it reads of a region, and its parameters."""

    name: str
    summary: str
    more: str
    formula: str
    references: list[str]
    reads: list[str]
    parameters: Listing | None


def texts_of(entry: str, values: Mapping[str, Any]) -> list[MethodText]:
    """The documentation of a line of section `methods`: of its method, or of all methods that it chooses from."""
    read = read_entry(entry, values)
    choice = read.search or read.oracle
    return [_text(name) for name in (sorted(choice.grids) if choice else [read.method])]


def _text(name: str) -> MethodText:
    cls = METHODS.get(name)
    text = describe(cls)
    rows = [
        {"Parameter": p.name, "Default": p.default, "Meaning": p.description}
        for p in text.parameters
    ]
    parameters = Listing.of(f"Parameters of {name}.", rows) if rows else None
    references = [
        " ".join(part.split()) for part in text.sections.get("References", "").split("\n\n") if part
    ]
    reads = [NEEDS.get(need, need) for need in sorted(cls.needs)]
    return MethodText(
        name,
        text.summary,
        text.text,
        text.sections.get("Formula", ""),
        references,
        reads,
        parameters,
    )


def how_chosen(fitted: FittedMethod) -> str:
    """Sentence on the choice of a fitted method's parameters, "" where they were given."""
    choice = fitted.choice
    if not choice:
        return ""
    best = f"the best of {len(choice.trials)} by AUROC of ID split {choice.id_split!r} against OOD split "
    if choice.oracle:
        return f"ORACLE, chosen on test data: {best}{choice.ood_split!r}, which results are reported on"
    return f"chosen by search: {best}{choice.ood_split!r}, an OOD validation split"


def remarks(run: Run, method: str) -> list[str]:
    """Remarks on a run's fitted method that matter when its values are compared with others."""
    fitted = run.fitted(method)
    return [*filter(None, [how_chosen(fitted)]), *fitted.remarks]


def note_on(run: Run) -> str:
    """All remarks on a run's methods in one paragraph, "" where there are none."""
    found = {method: remarks(run, method) for method in run.methods}
    parts = [f"{title_of(method)}: {'; '.join(texts)}" for method, texts in found.items() if texts]
    return f"{run.full_title}, {'. '.join(parts)}." if parts else ""


def parameters(run: Run, method: str) -> dict[str, Any]:
    """Cells on a fitted method: its parameters and how they were chosen, τ, and the share of ID detections above it."""
    given = run.fitted(method).params
    written = ", ".join(f"{key} = {word(value)}" for key, value in given.items()) or "none"
    found = run.method(method)
    return {
        "Parameters": "; ".join([written, *remarks(run, method)]),
        "τ": found and f"{found.tau:.6g}",
        "ID above τ (%)": found and found.id_regions_kept,
    }


def word(value: Any) -> str:
    """A value of a parameter in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {word(part)}" for key, part in value.items()) or "none"
    return "none" if value is None else str(value)
