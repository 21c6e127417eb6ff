"""Methods fitted to the training regions of a run: the work of the stage `fit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.errors import DataError, ParameterError
from farther.incremental.keyed import Keyed, key_of
from farther.methods.base import (
    METHODS,
    FitError,
    Method,
    RegionsLike,
    count_rows,
    describe_refused,
)
from farther.methods.loading import not_applicable, read_method
from farther.naming import extensions
from farther.scoring.entries import MethodEntry
from farther.scoring.fitted import ENTRIES, FittedEntries, FittedEntry
from farther.scoring.inputs import RunRegions
from farther.tables import TrueClasses
from farther.tables.documents import write_json
from farther.tables.folders import listed

#: Type of `farther.scoring.search.search`.
SearchParameters = Callable[..., Any]


@dataclass
class FitSummary:
    """What was done for a run.

    Args:
        fitted: Entries that were fitted.
        unchanged: Number of entries for which nothing was done.
        refused: {entry: why it does not apply to the run}.
        remarks: {entry: remarks on what was fitted; see `Method.remarks`}.
        failed: {entry: file, line and text of the error in its extension}.
    """

    fitted: list[str] = field(default_factory=list)
    unchanged: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = []
        if self.fitted:
            parts.append(f"fitted {', '.join(self.fitted)}")
        if self.unchanged:
            parts.append(f"{self.unchanged} method{'' if self.unchanged == 1 else 's'} unchanged")
        if self.refused:
            parts.append(f"not applicable: {', '.join(self.refused)}")
        for name, remarks in self.remarks.items():
            parts.append(f"{name}: {', '.join(remarks)}")
        return "; ".join(parts) or "no methods"


def fit_run(
    entries: Sequence[MethodEntry],
    run: RunRegions,
    folder: Path,
    code: Mapping[str, str],
    scored: Sequence[str] = (),
    search: SearchParameters | None = None,
) -> FitSummary:
    """Fits the entries whose parameters, code or regions changed; deletes what is of no entry.

    Args:
        entries: Entries of the section `methods`.
        run: The regions of the run.
        folder: The folder of the fitted methods; see `farther.scoring.fitted`.
        code: Digest of the code of each entry.
        scored: Splits that are scored even if methods learn from them.
        search: `farther.scoring.search.search`, for entries that choose parameters. It is given,
            not imported: its metric is no part of the code that fits the other methods.

    Raises:
        ParameterError: a parameter is unknown, or would be searched on a test split.
        DataError: a split is absent or damaged.
    """
    summary = FitSummary()
    states = Keyed(folder)
    listing = _listing(entries, run, scored)
    keys = {entry.name: _fit_key(entry, run, code[entry.name]) for entry in entries}
    keys[ENTRIES] = key_of([], listing.model_dump())

    outdated = states.outdated(keys)
    if ENTRIES in outdated:
        with states.make(ENTRIES, keys[ENTRIES]) as file:
            write_json(file, listing.model_dump())
    for entry in entries:
        if entry.name in outdated:
            _fit_again(entry, run, states, keys[entry.name], summary, search)
        else:
            summary.unchanged += 1
        if entry.name not in summary.failed:
            reason = not_applicable(states.path(entry.name))
            if reason is not None:
                summary.refused[entry.name] = reason
    return summary


def _listing(
    entries: Sequence[MethodEntry], run: RunRegions, scored: Sequence[str]
) -> FittedEntries:
    """The content of `methods.json`."""
    learned = {type(run.settings).split, run.settings.split}
    for entry in entries:
        if entry.fit_split is not None:
            learned.add(entry.fit_split)
    not_scored = learned.difference(scored, [run.settings.calibration_split])
    fitted_entries = []
    for entry in entries:
        fitted_entry = FittedEntry(
            name=entry.name, pass_name=entry.pass_name, passes_beside=list(entry.passes_beside)
        )
        fitted_entries.append(fitted_entry)
    return FittedEntries(entries=fitted_entries, not_scored=sorted(not_scored))


def _fit_again(
    entry: MethodEntry,
    run: RunRegions,
    states: Keyed,
    key: str,
    summary: FitSummary,
    search: SearchParameters | None,
) -> None:
    """Fits an entry; an error in an extension ends nothing but its own method."""
    try:
        with states.make(entry.name, key) as folder:
            reason = fit_entry(entry, run, folder, search)
    except Exception as error:
        failure = extensions.failure(error)
        if failure is None:
            raise
        summary.failed[entry.name] = failure
        return
    if reason is not None:
        return
    summary.fitted.append(entry.name)
    remarks = read_method(states.path(entry.name)).get("remarks", [])
    if remarks:
        summary.remarks[entry.name] = remarks


def _fit_key(entry: MethodEntry, run: RunRegions, code: str) -> str:
    """Digest of everything that an entry is fitted from."""
    params = {
        "entry": asdict(entry),
        "settings": asdict(run.settings),
        "threshold": run.operating,
        "code": code,
        "regions": run.digests_for(entry),
    }
    if entry.ood_split is not None:
        params["test_splits"] = sorted(run.test_splits)
    tables = [run.truth] if run.truth is not None else []
    if run.settings.labels == "annotated" and run.splits is not None:
        tables.append(run.objects_of(entry))
    if run.splits is not None and entry.methods == ["imported"]:
        tables += listed(run.splits, "*/images.parquet")
    return key_of(tables, params)


def fit_entry(
    entry: MethodEntry, run: RunRegions, folder: Path, search: SearchParameters | None = None
) -> str | None:
    """Fits the method of an entry, its parameters chosen first where the entry asks for that.

    The folder gets what `Method.save` writes. `choice` in `method.json` says how parameters were
    chosen: the splits, whether it is an oracle, every trial. A method that cannot be fitted leaves
    a `method.json` with the reason.

    Returns:
        Why the method does not apply, or None when it was fitted.

    Raises:
        ParameterError: a parameter is unknown, or would be searched on a test split.
    """
    choice = entry.search or entry.oracle
    extra: dict[str, Any] = {}
    remarks: list[str] = []
    try:
        source = run.on(entry)
        if choice is None:
            method = entry.create()
        elif search is None:
            raise ParameterError(
                f"methods.{entry.name}: parameters are chosen by `farther.scoring.search.search`"
            )
        else:
            searched = search(
                choice.grids, source, choice.ood_split, oracle=entry.oracle is not None
            )
            method = METHODS.create(searched.best.name, **searched.best.params)
            extra["choice"] = asdict(searched)
            remarks = searched.remarks()
        fit_method(method, source)
    except FitError as error:
        reason = str(error)
        write_json(folder / "method.json", describe_refused(entry.methods[0], reason))
        return reason
    if remarks:
        extra["remarks"] = [*remarks, *method.remarks()]
    method.write_into(folder, extra)
    return None


def fit_method(method: Method, run: RunRegions) -> None:
    """Fits a method in place, to the training regions and to all else that it learns from.

    Raises:
        FitError: it cannot be fitted; or the run is a pass without the split that τ is taken from.
    """
    run.fit(method)
    calibration = run.calibration
    if method.fixed_threshold is None and count_rows(calibration) == 0:
        raise FitError("there are no in-distribution scores to take the threshold τ from")
    if method.wants_truth:
        method.learn_truth(calibration, true_columns(calibration, run.truth))


def true_columns(regions: RegionsLike, truth: str | Path | None) -> np.ndarray:
    """The logits column of each detection's true class, shape (N,), for `Method.learn_truth`.

    Raises:
        FitError: there is no table of true classes.
        DataError: the table is damaged, or lacks a detection.
    """
    if truth is None:
        raise FitError(
            "the true classes of the ID validation detections are needed, and were not given"
        )
    header = regions.header
    background = -1 if header.background_index is None else header.background_index
    column = {name: k for k, name in enumerate(header.classes)}
    keys = pl.concat([batch.frame.select("image_id", "region_id") for batch in regions.batches([])])
    classes = TrueClasses.read(truth).frame
    joined = keys.join(classes, on=["image_id", "region_id"], how="left", maintain_order="left")
    absent = joined.filter(pl.col("category").is_null())
    if absent.height:
        image, region = absent.row(0)[:2]
        problem = f"no row for region {region} of image {image!r}; was it made of other regions?"
        raise DataError(problem, file=truth)
    columns = joined["category"].replace_strict(column, default=background, return_dtype=pl.Int64)
    return columns.to_numpy()
