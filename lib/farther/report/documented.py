"""The description of a method: its documentation, and how a run fitted it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from farther.evaluation.results import FittedMethod
from farther.methods.base import METHODS
from farther.methods.reference import NEEDS
from farther.report.listing import Listing
from farther.report.results import Run, title_of
from farther.scoring.entries import read_entry
from farther.text.documentation import describe


class MethodText(NamedTuple):
    """The documentation of a method.

    Args:
        name: The method.
        summary: First sentence of its docstring.
        more: What follows it.
        formula: The formula of the score.
        references: Papers and code.
        reads: The inputs that it reads of a region, in words.
        parameters: Its parameters; None without any.
    """

    name: str
    summary: str
    more: str
    formula: str
    references: list[str]
    reads: list[str]
    parameters: Listing | None


def texts_of(entry: str, values: Mapping[str, Any]) -> list[MethodText]:
    """The documentation of a line of section `methods`.

    It is that of its method, or of all methods that it chooses from.

    Args:
        entry: The line's name.
        values: Its parameters.
    """
    settings = read_entry(entry, values)
    choice = settings.search or settings.oracle
    if choice:
        return [_text(name) for name in sorted(choice.grids)]
    return [_text(settings.method)]


def _text(name: str) -> MethodText:
    cls = METHODS.get(name)
    text = describe(cls)
    parameters = None
    if text.parameters:
        rows = [
            {"Parameter": p.name, "Default": p.default, "Meaning": p.description}
            for p in text.parameters
        ]
        parameters = Listing.from_rows(f"Parameters of {name}.", rows)
    paragraphs = text.sections.get("References", "").split("\n\n")
    references = [" ".join(paragraph.split()) for paragraph in paragraphs if paragraph]
    return MethodText(
        name=name,
        summary=text.summary,
        more=text.text,
        formula=text.sections.get("Formula", ""),
        references=references,
        reads=[NEEDS.get(need, need) for need in sorted(cls.needs)],
        parameters=parameters,
    )


def how_chosen(fitted: FittedMethod) -> str:
    """Sentence on the choice of a fitted method's parameters, "" where the user set them."""
    choice = fitted.choice
    if not choice:
        return ""
    best = (
        f"the best of {len(choice.trials)} by AUROC of ID split {choice.id_split!r} "
        f"against OOD split {choice.ood_split!r}"
    )
    if choice.oracle:
        return f"ORACLE, chosen on test data: {best}, which results are reported on"
    return f"chosen by search: {best}, an OOD validation split"


def remarks(run: Run, method: str) -> list[str]:
    """Remarks on a run's fitted method that matter when its values are compared with others."""
    fitted = run.fitted(method)
    choice = how_chosen(fitted)
    if choice:
        return [choice, *fitted.remarks]
    return list(fitted.remarks)


def note_on(run: Run) -> str:
    """All remarks on a run's methods in one paragraph, "" where there are none."""
    notes = []
    for method in run.methods:
        texts = remarks(run, method)
        if texts:
            notes.append(f"{title_of(method)}: {'; '.join(texts)}")
    if not notes:
        return ""
    return f"{run.full_title}, {'. '.join(notes)}."


def parameters(run: Run, method: str) -> dict[str, Any]:
    """Cells on a fitted method.

    They hold its parameters and how they were chosen, τ, and the share of ID detections above it.
    """
    params = word(run.fitted(method).params)
    cells: dict[str, Any] = {
        "Parameters": "; ".join([params, *remarks(run, method)]),
        "τ": None,
        "ID above τ (%)": None,
    }
    threshold = run.group("", method, "threshold")
    if threshold:
        cells["τ"] = f"{threshold['tau'].value:.6g}"
        cells["ID above τ (%)"] = threshold["id_regions_kept"].value
    return cells


def word(value: Any) -> str:
    """A value of a parameter in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {word(part)}" for key, part in value.items()) or "none"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(word(part) for part in value)}]"
    return str(value)
