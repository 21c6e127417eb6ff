"""All metrics of one run (a detector on a benchmark), from the files of the earlier stages.

Outputs, below the artifacts folder:

    metrics/<run>/<split>/<method>.json      the metrics to compare: auroc, fpr95, nose, ap_u, p_u, r_u, user-defined
    metrics/<run>/detector.json              map50, map, threshold; of a classifier accuracy, nll and ece too
    metrics/<run>/methods.json               of each method: means over near and far splits; errors on ID images
    metrics/<run>/<split>/detector.json      the share of images without any detection
    outcomes/<run>/<method>/<split>.parquet, <split>.objects.parquet
                                             the outcome of each detection and of each object
    plots/<run>/roc.csv, pr.csv              curves: split, method, x, y
    plots/<run>/tau.csv, confidence.csv      metrics over τ and over t*
    plots/<run>/wilderness.csv, reliability.csv
    evaluation/<run>.json                    everything, with counts, parameters, intervals and digests
    evaluation/<run>/                        results and replicates of each method, kept from run to run

`outcomes/<run>` and `evaluation/<run>` are kept: only methods whose inputs, parameters or code changed are evaluated
again. Comparisons between methods are computed from the stored replicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from farther.evaluation import intervals
from farther.evaluation.classes import evaluate_classes
from farther.evaluation.gains import gains
from farther.evaluation.inputs import RunInputs
from farther.evaluation.methods import Evaluated, read_methods
from farther.evaluation.parts import Parts
from farther.evaluation.results import DrawnImages, Evaluation, MethodResults
from farther.evaluation.threshold import stored_threshold
from farther.evaluation.write import write_run


def evaluate_run(
    inputs: RunInputs,
    methods: Sequence[str],
    code: str,
    log: Callable[[list[str]], None] | None = None,
    user_defined: Mapping[str, str] | None = None,
) -> Evaluation:
    """Computes and writes all metrics of a run; only what changed since the last time is computed.

    Args:
        inputs: The run's splits, and how it is evaluated.
        methods: Names in section `methods` of params.yaml.
        code: Digest of the code of metrics; with another one, everything is computed.
        log: Called with the names of the methods that were evaluated, "the detector" among them if it was.
        user_defined: Digest of the code of each user-defined metric.

    Returns:
        The content of `evaluation/<run>.json`.

    Raises:
        DataError: an input is absent or wrong; names file, row and field.
    """
    files, settings = inputs.files, inputs.settings
    applicable, refused = read_methods(files, list(methods))
    parts = Parts(inputs, code, user_defined)
    detector, each = parts.all(applicable)
    parts.keep_only(list(each))
    evaluation = Evaluation(
        run=files.run,
        benchmark=files.benchmark,
        settings=settings,
        threshold=inputs.threshold,
        threshold_rule=stored_threshold(files.threshold).rule,
        detector=inputs.id_split.folder.header.detector,
        **vars(detector),
        bootstrap=_bootstrap(inputs),
        methods=_with_comparisons(each, inputs),
        not_applicable=refused,
        classes=evaluate_classes(inputs, list(each)),
        gains=gains(each),
    )
    write_run(files, evaluation, {name: part.frames for name, part in each.items()})
    if log is not None:
        log([name for name in ("the detector", *each) if name in parts.computed])
    return evaluation


def _bootstrap(inputs: RunInputs) -> dict[str, DrawnImages]:
    """What the replicates of each split draw; {} without replicates."""
    draws = {inputs.id_split.name: inputs.id_draws, **{split.name: split.draws for split in inputs.tested}}
    return {name: DrawnImages(**drawn.facts()) for name, drawn in draws.items() if drawn is not None}


def _with_comparisons(each: dict[str, Evaluated], inputs: RunInputs) -> dict[str, MethodResults]:
    """The results of all methods, each compared with the best one of each split."""
    results = {name: part.results for name, part in each.items()}
    settings = inputs.settings
    for split in [tested.name for tested in inputs.tested] if settings.replicates else ():
        of_split = {name: found.splits[split] for name, found in results.items()}
        replicates = {name: part.replicates[split] for name, part in each.items()}
        for name, compared in intervals.against_best(of_split, replicates, settings.comparisons).items():
            of_split[name].against_best = compared
    return results
