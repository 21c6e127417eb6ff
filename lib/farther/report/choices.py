"""What a reader must know of how a method was fitted before its figures are compared with others'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farther.report.results import Run, title_of


def how_chosen(fitted: Mapping[str, Any]) -> str:
    """How the parameters of a fitted method were chosen, "" where they were given.

    Args:
        fitted: What its `method.json` holds.
    """
    choice = fitted.get("choice")
    if not choice:
        return ""
    best = f"the best of {len(choice['trials'])} by AUROC of ID split {choice['id_split']!r} against OOD split "
    if choice["oracle"]:
        return f"ORACLE, chosen on test data: {best}{choice['ood_split']!r}, which results are reported on"
    return f"chosen by search: {best}{choice['ood_split']!r}, an OOD validation split"


def index_recall(fitted: Mapping[str, Any]) -> str:
    """How much of the nearest neighbours an approximate index finds, "" where the search is exact."""
    recall = fitted.get("state", {}).get("recall_")
    return "" if recall is None else f"approximate index: finds {100 * float(recall):.1f}% of the nearest neighbours"


def remarks(run: Run, method: str) -> list[str]:
    """All that is to be said of a run's fitted method."""
    fitted = run.fitted(method)
    return [remark for remark in (how_chosen(fitted), index_recall(fitted)) if remark]


def note(run: Run) -> str:
    """A sentence for below the tables of a run, "" where nothing is to be said."""
    said = [f"{title_of(method)}: {'; '.join(found)}" for method in run.methods if (found := remarks(run, method))]
    return f"{run.name}, {'. '.join(said)}." if said else ""
