"""The operating threshold t* of a run, and the true classes of the detections it is from."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.errors import DataError, ParameterError
from farther.evaluation.files import RunFiles, RunSplit
from farther.metrics.closed_set import operating_threshold
from farther.metrics.matching import true_classes
from farther.naming.registry import STRICT, Parameters
from farther.tables.documents import read_json, write_json
from farther.tables.schema import Schema, check


@dataclass(config=STRICT, kw_only=True)
class ThresholdSettings(Parameters):
    """The operating threshold t*: section `threshold` of params.yaml.

    Detections with a confidence below t* are discarded before anything is measured. At a lower t*
    fewer unknown objects are missed, more are misclassified, and more detections are wrong. For a
    lower t*, write it as a number, `rule: 0.1`, here for all runs, or as `threshold: {rule: 0.1}`
    in the entry of one run under `detectors`. Inference does not run again: detections are stored
    from a lower confidence on, for networks the `score_threshold` among the adapter's `params`.
    Classifiers of whole images have no t*.

    Args:
        split: ID split that t* is chosen on.
        rule: "best_f1": for each class the confidence with the best F1 at IoU 0.5, then the mean
            over the classes. "best_map": the largest confidence that costs no more than `tolerance`
            of the mAP (IoU 0.50 to 0.95) of all stored detections. A number from 0 to 1: that
            number is t*.
        tolerance: For "best_map": the share of the mAP that may be lost, from 0 to 1.

    Raises:
        ParameterError: the rule is a number outside 0 to 1.
    """

    split: str = "val"
    rule: operating_threshold.Rule = "best_f1"
    tolerance: float = Field(default=0.0, ge=0, le=1)

    def __post_init__(self) -> None:
        if isinstance(self.rule, float) and not 0 <= self.rule <= 1:
            raise ParameterError(
                f"threshold: parameter 'rule': expected a number from 0 to 1, found {self.rule:g}"
            )


def choose_threshold(files: RunFiles, settings: ThresholdSettings) -> float:
    """Chooses the operating threshold t* of a run.

    Writes `thresholds/<run>.json` and `truth/<run>.parquet`.

    Raises:
        DataError: an input is absent or wrong, or has too little to choose from.
        ParameterError: see `operating_threshold.choose`.
    """
    split = RunSplit(files, settings.split)
    regions = split.regions()
    try:
        chosen = operating_threshold.choose(
            split.objects, regions, settings.rule, settings.tolerance, split.table
        )
    except DataError as error:
        raise DataError(error.problem, file=split.source) from None

    true_classes(split.objects, regions).write(files.truth)
    content = {**chosen, "settings": asdict(settings), "inputs": split.digests()}
    write_json(files.threshold, content)
    return read_threshold(files.threshold)


class StoredThreshold(Schema):
    """The content of `thresholds/<run>.json`.

    Args:
        threshold: t*.
        rule: The rule that chose it.
        settings: The settings of `choose_threshold`.
    """

    threshold: float
    rule: str | float | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


class StoredTau(Schema):
    """The content of `evaluation/<run>/methods/<method>/threshold.json`.

    Args:
        threshold: τ.
        rule: The rule that chose it.
        keep: The fraction of the scores that it keeps; None for a fixed τ.
        regions: Number of scores that it was chosen from.
        replicates: τ in each bootstrap replicate; [] where it is the same in all of them.
    """

    threshold: float
    rule: str
    keep: float | None
    regions: int
    replicates: list[float] = Field(default_factory=list)

    @property
    def taus(self) -> np.ndarray:
        """τ in each replicate, ndarray of shape (B,), or the same in all, of shape (1,)."""
        return np.array(self.replicates or [self.threshold])


def read_threshold(file: Path) -> float:
    """The threshold (t* or τ) that a JSON file holds.

    Raises:
        DataError: the file is absent or damaged, or its `threshold` is not a finite number.
    """
    return stored_threshold(file).threshold


def stored_threshold(file: Path) -> StoredThreshold:
    """The content of the file of an operating threshold; errors as in `read_threshold`."""
    return check(StoredThreshold, read_json(file), file)


def stored_tau(file: Path) -> StoredTau:
    """The content of the file of a method's threshold; errors as in `read_threshold`."""
    return check(StoredTau, read_json(file), file)
