"""Methods fitted to a run, and scores of its splits, as by the stages `fit` and `score`."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farther.scoring.entries import read_entry
from farther.scoring.fit import FitSummary, fit_run
from farther.scoring.inputs import RunRegions
from farther.scoring.score import ScoreSummary, score_run
from farther.scoring.search import search


@dataclass
class FittedAndScored:
    """Summaries of both stages."""

    fit: FitSummary
    score: ScoreSummary


def fit_and_score(
    entries: Mapping[str, Mapping[str, Any]],
    run: RunRegions,
    folder: Path,
    code: Mapping[str, str] | None = None,
    scored: Sequence[str] = (),
) -> FittedAndScored:
    """Fits entries of params.yaml, and scores all splits.

    Args:
        entries: The section `methods`.
        run: The regions.
        folder: Gets the folders `fitted` and `scores`.
        code: Digest of the code of each entry and method; "1" where none is given.
        scored: See `fit_run`.
    """
    code_digests = defaultdict(lambda: "1", code or {})
    method_entries = [read_entry(name, values, entries) for name, values in entries.items()]
    fit_code = {entry.name: code_digests[entry.name] for entry in method_entries}
    fitted = folder / "fitted"
    passes = run.passes or folder / "no passes"
    fit_summary = fit_run(method_entries, run, fitted, fit_code, scored, search)
    score_summary = score_run(
        run.folder, passes, fitted, folder / "scores", code_digests.__getitem__
    )
    return FittedAndScored(fit_summary, score_summary)


def write_fitted(folder: Path, methods: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes the list of fitted methods and their descriptions, without their states.

    Args:
        folder: `artifacts/fitted/<run>`.
        methods: Fields of `method.json` of each entry; `name` is the entry's where it is not given.
    """
    for name, fields in methods.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "method.json").write_text(json.dumps({"name": name, **fields}))
    list_methods(folder, list(methods))


def list_methods(folder: Path, names: Sequence[str]) -> None:
    """Writes the list of a run's fitted methods, whose folders may be there already."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"entries": [{"name": name} for name in names], "not_scored": ["train"]}
    (folder / "methods.json").write_text(json.dumps(content))
