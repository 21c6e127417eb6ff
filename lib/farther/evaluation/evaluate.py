"""All metrics of one run (a detector on a benchmark), from the files of the earlier stages.

Outputs, below the artifacts folder:

    metrics/<run>/<split>/<method>.json
        the metrics to compare: auroc, fpr95, nose, ap_u, p_u, r_u, user-defined metrics
    metrics/<run>/detector.json
        map50, map, threshold; of a classifier accuracy, nll and ece too
    metrics/<run>/methods.json
        of each method: means over near and far splits; errors on ID images
    metrics/<run>/<split>/detector.json
        the share of images without any detection
    outcomes/<run>/<method>/<split>.parquet, <split>.objects.parquet
        the outcome of each detection and of each object
    plots/<run>/roc.csv, pr.csv
        curves: split, method, x, y
    plots/<run>/tau.csv, confidence.csv
        metrics over τ and over t*
    plots/<run>/wilderness.csv, reliability.csv
    results/<run>.parquet
        the long table of all values (`farther.evaluation.long_table`), which files of metrics,
        reports and commands are selections of
    results/<run>.json
        how the run was evaluated: settings, methods, hashes; and its curves and histograms
    evaluation/<run>/
        stored results and replicates of each method

`outcomes/<run>` and `evaluation/<run>` are kept: only methods whose inputs, parameters or code
changed are evaluated again. Comparisons between methods are computed from the stored replicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from farther.evaluation import intervals
from farther.evaluation.classifier_types import classifier_type
from farther.evaluation.gains import gains
from farther.evaluation.groups import GROUPS
from farther.evaluation.inputs import RunInputs
from farther.evaluation.kept_results import KeptResults
from farther.evaluation.methods import EvaluatedMethod, FittedRun, too_few_images
from farther.evaluation.results import DrawnImages, Evaluation, MethodResults
from farther.evaluation.threshold import stored_threshold
from farther.evaluation.write import write_run
from farther.scoring.inputs import TauSettings


@dataclass(frozen=True)
class EvaluationCode:
    """Hashes of code.

    Args:
        metrics: Hash of the code of all metrics that are part of farther.
        user_defined: Hash of the code of each user-defined metric.
    """

    metrics: str
    user_defined: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluatedRun:
    """The metrics of a run.

    Args:
        evaluation: All metrics of the run.
        frames: {method: {kind of plot: rows}}.
        computed: What was computed and not kept: "the detector", and methods.
    """

    evaluation: Evaluation
    frames: dict[str, dict[str, pl.DataFrame]]
    computed: list[str]


def evaluate_run(
    inputs: RunInputs, tau: TauSettings, code: EvaluationCode
) -> tuple[Evaluation, list[str]]:
    """Computes and writes all metrics of a run without proposals; see `compute_metrics`.

    Returns:
        All metrics of the run; and what was computed: "the detector", and methods.

    Raises:
        DataError: an input is absent or wrong; names file, row and field.
    """
    run = compute_metrics(inputs, tau, code)
    write_run(inputs.files, run.evaluation, run.frames)
    return run.evaluation, run.computed


def compute_metrics(inputs: RunInputs, tau: TauSettings, code: EvaluationCode) -> EvaluatedRun:
    """Computes all metrics of a run's detector and methods that changed since the last time.

    Args:
        inputs: The run's splits, and how it is evaluated.
        tau: How τ is chosen.
        code: Hashes of the code that computes the metrics.

    Raises:
        DataError: an input is absent or wrong; names file, row and field.
    """
    files = inputs.files
    fitted = FittedRun.read(files)
    kept = KeptResults(inputs, fitted, tau, code.metrics, code.user_defined)
    detector, evaluated = kept.update()

    folder = inputs.id_split.folder
    evaluation = Evaluation(
        run=files.run,
        benchmark=files.benchmark,
        settings=inputs.settings,
        threshold=inputs.threshold,
        threshold_rule=stored_threshold(files.threshold).rule,
        detector=folder.header.detector,
        classifier_type=classifier_type(folder.header, has_logits=folder.has("logits")),
        **vars(detector),
        bootstrap=_bootstrap(inputs),
        tau_images=kept.tau_images(evaluated),
        methods=_with_comparisons(evaluated, inputs),
        not_applicable=fitted.refused,
        classes=kept.classes(evaluated),
        gains=gains(evaluated),
    )
    frames = {name: method.frames for name, method in evaluated.items()}
    computed = [name for name in ("the detector", *evaluated) if name in kept.computed]
    return EvaluatedRun(evaluation, frames, computed)


def _bootstrap(inputs: RunInputs) -> dict[str, DrawnImages]:
    """The bootstrap of each split; {} without replicates."""
    draws_by_split = {inputs.id_split.name: inputs.id_draws}
    for split in inputs.tested:
        draws_by_split[split.name] = split.draws

    bootstrap_by_split = {}
    for name, draws in draws_by_split.items():
        if draws is not None:
            bootstrap_by_split[name] = DrawnImages(**draws.facts())
    return bootstrap_by_split


def _with_comparisons(
    evaluated: Mapping[str, EvaluatedMethod], inputs: RunInputs
) -> dict[str, MethodResults]:
    """The results of all methods, each compared with the best one of each split."""
    results = {name: method.results for name, method in evaluated.items()}
    settings = inputs.settings
    if not settings.replicates:
        return results

    for split in inputs.tested:
        split_results = {name: method.splits[split.name] for name, method in results.items()}
        replicates = {name: method.replicates[split.name] for name, method in evaluated.items()}
        few_images = {name: too_few_images(split, inputs, group) for name, group in GROUPS.items()}
        compared = intervals.against_best(
            split_results, replicates, settings.comparisons, few_images.__getitem__
        )
        for name, differences in compared.items():
            split_results[name].against_best = differences
    return results
