"""A method fitted to the training regions of a run, and its threshold τ, in one folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.errors import DataError
from farther.methods.base import METHODS, FitError, Method, RegionsLike, describe
from farther.methods.loading import read_method
from farther.methods.tau import threshold
from farther.scoring.entries import MethodEntry
from farther.scoring.inputs import RunRegions
from farther.scoring.search import search
from farther.tables import TrueClasses
from farther.tables.documents import write_json


def fit_entry(entry: MethodEntry, run: RunRegions, folder: Path) -> str | None:
    """Fits the method of an entry, its parameters chosen first where the entry asks for that, and takes τ.

    The folder gets what `Method.save` writes, and `threshold.json`: τ, the rule, the fraction, and the number of
    regions that it was taken from. `choice` in `method.json` says how parameters were chosen: the splits, whether it is
    an oracle, every trial. A method that cannot be fitted leaves a `method.json` with the reason, and no τ.

    Returns:
        Why the method does not apply, or None when it was fitted.

    Raises:
        ParameterError: a parameter is unknown, or would be searched on a test split.
    """
    choice = entry.search or entry.oracle
    method = METHODS.create(entry.methods[0]) if choice else entry.create()
    extra: dict[str, Any] = {}
    try:
        run = run.on(entry)
        if choice is not None:
            found = search(choice.grids, run, choice.ood_split, oracle=entry.oracle is not None)
            method = METHODS.create(found.best.name, **found.best.params)
            extra = {"choice": asdict(found)}
        tau = fit_method(method, run)
    except FitError as error:
        reason = str(error)
        write_json(folder / "method.json", {**describe(method), "not_applicable": reason, "state": {}})
        return reason
    method.write_into(folder)
    write_json(folder / "method.json", {**read_method(folder), **extra})
    write_json(folder / "threshold.json", tau)
    return None


def fit_method(method: Method, run: RunRegions) -> dict[str, Any]:
    """Fits a method in place; returns τ, its rule and fraction, and the number of regions that it was taken from."""
    settings, calibration = run.settings, run.calibration
    run.teach(method)
    if method.wants_truth:
        method.learn_truth(calibration, true_columns(calibration, run.truth))
    if method.fixed_threshold is not None:
        return {"threshold": method.fixed_threshold, "rule": "fixed", "keep": None, "regions": 0}
    try:
        scores = method.score(calibration)
    except DataError as error:
        raise error.within(run.folder / settings.calibration_split) from None
    tau = threshold(scores, settings.keep, settings.threshold_rule)
    return {"threshold": tau, "rule": settings.threshold_rule, "keep": settings.keep, "regions": len(scores)}


def true_columns(regions: RegionsLike, truth: str | Path | None) -> np.ndarray:
    """The logits column of each detection's true class, shape (N,), for `Method.learn_truth`.

    Raises:
        FitError: there is no table of true classes.
        DataError: the table is damaged, or lacks a detection.
    """
    if truth is None:
        raise FitError("the true classes of the ID validation detections are needed, and were not given")
    header = regions.header
    background = -1 if header.background_index is None else header.background_index
    column = {name: k for k, name in enumerate(header.classes)}
    keys = pl.concat([batch.frame.select("image_id", "region_id") for batch in regions.batches([])])
    joined = keys.join(TrueClasses.read(truth).frame, on=["image_id", "region_id"], how="left", maintain_order="left")
    if (absent := joined.filter(pl.col("category").is_null())).height:
        image, region = absent.row(0)[:2]
        raise DataError(f"no row for region {region} of image {image!r}; was it made of other regions?", file=truth)
    return joined["category"].replace_strict(column, default=background, return_dtype=pl.Int64).to_numpy()
