"""`farther explain number`: definition of a metric's value, its counts, thresholds and inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from farther.command.comparison import evaluated_method
from farther.command.output import coloured, table
from farther.command.project import Project
from farther.errors import ParameterError, choose
from farther.evaluation.files import RunFiles
from farther.evaluation.groups import GROUPS
from farther.evaluation.long_table import Result, Results
from farther.evaluation.paired import StoredEvaluation
from farther.evaluation.threshold import stored_tau
from farther.metrics.catalogue import METRICS, Metric, metric_name
from farther.tables.files import inside

#: Counts of a split in an explanation.
SPLIT_COUNTS = ("images", "failed_images", "objects", "regions")


def explain_number(
    project: Project, run: str, method: str, split: str, metric: str
) -> dict[str, Any]:
    """The origin of a value in `artifacts/metrics` or `artifacts/results`.

    Args:
        project: The project that the run belongs to.
        run: Its name in section `detectors`.
        method: A method of the run; any for metrics of the detector (map, threshold, no_detection,
            accuracy).
        split: An OOD split; any for metrics of the detector and of a method on ID images.
        metric: A name in `farther.metrics.catalogue.METRICS`.

    Returns:
        Value, meaning, formula with its counts, interval, thresholds, protocol, digests of what was
        read, files and stages.

    Raises:
        DataError: the run was not evaluated yet.
        ParameterError: one of the names is not known, or the metric was not evaluated for the run.
    """
    run = project.run(run)
    evaluation = StoredEvaluation(project.artifacts, run)
    definition = METRICS[metric_name(metric)]
    if definition.group in ("detector", "classifier", "error_budget"):
        return _of_detector(evaluation, definition)
    if definition.group != "split":
        _refuse_dash(definition, method, "a method")
    if definition.group in ("misclassification", "costs"):
        return _of_id_images(project, evaluation, method, definition)
    _refuse_dash(definition, split, "an OOD split")
    tested_splits = set(evaluation.description.inputs)
    tested_splits.discard(evaluation.description.settings.calibration_split)
    split = choose("split of this run", split, tested_splits)
    if definition.group == "split":
        return _of_split_counts(evaluation, split, definition)
    return _of_split(project, evaluation, method, split, definition)


def _refuse_dash(metric: Metric, name: str, what: str) -> None:
    """Refuses a dash in the place of a name that a metric needs.

    Raises:
        ParameterError: the name is a dash.
    """
    if name == "-":
        raise ParameterError(f"{metric.name} is a metric of {what}: name {what} in the place of -")


def _of_detector(evaluation: StoredEvaluation, metric: Metric) -> dict[str, Any]:
    """A metric of the run on the ID split, whatever the method."""
    if metric.group == "error_budget":
        return _of_error_budget(evaluation, metric)
    if metric.group == "classifier" and not evaluation.is_classifier:
        raise ParameterError(
            f"{metric.name} is a metric of image classifiers; {evaluation.run} is an object "
            "detector"
        )
    split = "" if metric.name == "threshold" else evaluation.id_split
    texts = {"threshold_rule": evaluation.description.threshold_rule}
    computation = {
        **_computed(evaluation.result(split, "", metric), _fill(metric.formula, texts)),
    }
    file = f"artifacts/metrics/{evaluation.run}/detector.json"
    return _explanation(evaluation, metric, computation, [evaluation.id_split], [file])


def _of_error_budget(evaluation: StoredEvaluation, metric: Metric) -> dict[str, Any]:
    """A gain from correcting a kind of error on known objects."""
    if evaluation.is_classifier:
        raise ParameterError(
            f"{metric.name} is a metric of object detectors; {evaluation.run} is an image "
            "classifier"
        )
    split = evaluation.id_split
    table = evaluation.results.table
    gain = evaluation.result(split, "", metric)
    errors = table.values("errors", split=split, part=f"error={metric.key}")["count"].value
    ap = table.values("errors", split=split)["ap"].value
    computation = {
        "value": gain.value,
        "formula": metric.formula.format(count=errors, ap=ap or 0),
        "interval": gain.interval,
    }
    file = _long_table(evaluation)
    return _explanation(evaluation, metric, computation, [split], [file])


def _of_id_images(
    project: Project, evaluation: StoredEvaluation, method: str, metric: Metric
) -> dict[str, Any]:
    """A metric of a method on the ID split."""
    method = evaluated_method(evaluation, method)
    splits = [evaluation.id_split]
    values = evaluation.results.table.values(metric.group, split=evaluation.id_split, method=method)
    computation = {
        **_computed(values[metric.key], _fill(metric.formula, _numbers(values))),
        **_of_method(project, evaluation, method),
    }
    files = [
        f"artifacts/metrics/{evaluation.run}/methods.json",
        *_method_files(evaluation, method, splits),
    ]
    return _explanation(evaluation, metric, computation, splits, files)


def _of_split_counts(evaluation: StoredEvaluation, split: str, metric: Metric) -> dict[str, Any]:
    """A metric of the run on an OOD split, whatever the method."""
    counts = evaluation.results.table.values("split", split=split)
    computation = {
        "value": counts[metric.key].value,
        "formula": _fill(metric.formula, _numbers(counts)),
    }
    return _explanation(evaluation, metric, computation, [split], [_long_table(evaluation)])


def _of_split(
    project: Project, evaluation: StoredEvaluation, method: str, split: str, metric: Metric
) -> dict[str, Any]:
    """A metric of a method on an OOD split."""
    run = evaluation.run
    id_split = evaluation.id_split
    method = evaluated_method(evaluation, method)
    if split == id_split:
        raise ParameterError(
            f"{split!r} is the ID split, which OOD splits are compared with: name an OOD split"
        )
    group = GROUPS[metric.group]
    table = evaluation.results.table
    values = table.values(metric.group, split=split, method=method)
    if metric.key not in values:
        raise ParameterError(f"{metric.name} was not evaluated for {run} on {split}: {group.needs}")
    against_best = None
    best = table.from_best(split, method).get(metric.name)
    if best and best.best != method:
        why_none = best.no_interval if best.p is None else ""
        against_best = {"best": best.best, "interval": best.interval, "p": best.p}
        against_best["why_none"] = why_none
    computation = {
        **_computed(values[metric.key], _fill(metric.formula, _numbers(values))),
        "against_best": against_best,
        **_of_method(project, evaluation, method),
    }
    roles = RunFiles(run, evaluation.description.benchmark, project.artifacts).roles
    scored_splits = dict.fromkeys([split, id_split, *group.read_splits(roles, split)])
    files = [
        f"artifacts/metrics/{run}/{split}/{method}.json",
        *_method_files(evaluation, method, scored_splits),
    ]
    return _explanation(evaluation, metric, computation, [id_split, split], files)


def _computed(result: Result, formula: str) -> dict[str, Any]:
    """A value, its formula with the counts, its interval, and why it has none."""
    return {
        "value": result.value,
        "formula": formula,
        "interval": result.interval,
        "no_interval": result.no_interval,
    }


def _numbers(values: Results) -> dict[str, Any]:
    """Values by their keys, without their intervals."""
    return {key: result.value for key, result in values.items()}


def _long_table(evaluation: StoredEvaluation) -> str:
    """The file of all values of a run."""
    return f"artifacts/results/{evaluation.run}.parquet"


def _of_method(project: Project, evaluation: StoredEvaluation, method: str) -> dict[str, Any]:
    """A method's threshold, its parameters, and the regions that it was fitted on."""
    fitted = evaluation.description.fitted[method]
    of_tau = evaluation.results.table.values("threshold", method=method)
    file = f"{evaluation.run}/methods/{method}/threshold.json"
    tau = stored_tau(inside(project.artifacts / "evaluation", file))
    return {
        "tau": {
            **tau.model_dump(),
            "id_regions_kept": of_tau["id_regions_kept"].value,
            "id_regions": of_tau["id_regions"].value,
        },
        "method": {"name": fitted.name, "params": fitted.params},
        "remarks": fitted.remarks,
        "chosen": fitted.choice and asdict(fitted.choice),
        "fitted_on": fitted.state.get("fitted_on_", {}).get("regions"),
    }


def _method_files(evaluation: StoredEvaluation, method: str, splits: Iterable[str]) -> list[str]:
    """The long table, and the files that a method's metrics on some splits are computed from."""
    run = evaluation.run
    scores = [f"artifacts/scores/{run}/{method}/{split}.parquet" for split in splits]
    return [_long_table(evaluation), *scores, f"artifacts/fitted/{run}/{method}/"]


def _explanation(
    evaluation: StoredEvaluation,
    metric: Metric,
    computation: dict[str, Any],
    splits: list[str],
    files: list[str],
) -> dict[str, Any]:
    """Everything about a value.

    Args:
        evaluation: The evaluation that has it.
        metric: Its definition.
        computation: The value, its formula with the counts, and what is known of its method.
        splits: The splits that it was computed on.
        files: The files that it is stored in and was computed from.
    """
    run = evaluation.run
    description = evaluation.description
    settings = description.settings
    stages = ["evaluate", "fit", f"infer@{run}", "curate"]
    if "tau" in computation:  # a metric of a method
        stages.insert(1, "score")
    columns_by_split = {}
    for split in splits:
        counts = evaluation.results.table.values("split", split=split)
        columns: dict[str, Any] = {name: counts[name].value for name in SPLIT_COUNTS}
        columns["inputs"] = description.inputs[split]
        columns_by_split[split] = columns
    return {
        "metric": metric.name,
        "meaning": metric.meaning,
        "higher_is_better": metric.higher_is_better,
        "source": metric.source,
        "protocol": settings.protocol,
        "iou": settings.iou,
        "t*": {
            "threshold": evaluation.results.detector["threshold"],
            "rule": description.threshold_rule,
        },
        "detector": description.detector,
        "replicates": settings.replicates,
        **computation,
        "splits": columns_by_split,
        "files": [
            *files,
            f"artifacts/thresholds/{run}.json",
            *(f"artifacts/regions/{run}/{split}/" for split in splits),
            *(f"artifacts/splits/{description.benchmark}/{split}/" for split in splits),
        ],
        "stages": stages,
    }


def _fill(formula: str, values: Mapping[str, Any]) -> str:
    """The formula with the counts that it names; "?" for those that are not known."""
    return formula.format_map(defaultdict(lambda: "?", values))


def to_text(explanation: dict[str, Any]) -> Iterator[str]:
    """The lines that are printed."""
    splits = explanation["splits"]
    yield coloured(f"{explanation['metric']} = {_value_text(explanation)}", "head")
    yield ""
    yield table(("", ""), _facts(explanation))
    yield ""
    for name, split in splits.items():
        yield coloured(f"split {name}", "head")
        images = f"{split['images']} images ({split['failed_images']} unreadable)"
        yield f"  {images}, {split['objects']} objects"
        yield f"  {split['regions']} detections at or above t*"
        for kind, digest in split["inputs"].items():
            yield f"  {kind:<8} {digest}"
    yield ""
    yield coloured("files, and the stages that wrote them", "head")
    for file in explanation["files"]:
        yield f"  {file}"
    yield table(("", ""), [("  stages", ", ".join(explanation["stages"]))])


def _value_text(explanation: dict[str, Any]) -> str:
    """The value, or why it is undefined."""
    if explanation["value"] is not None:
        return f"{explanation['value']:.6g}"
    text = "undefined"
    for name, split in explanation["splits"].items():
        if not split["objects"]:
            text += f"; {name} has no objects with boxes that count"
    return text


def _facts(explanation: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, text) of the table's rows."""
    meaning = explanation["meaning"]
    if explanation["higher_is_better"] is not None:
        direction = "Higher" if explanation["higher_is_better"] else "Lower"
        meaning = f"{meaning} {direction} is better."
    facts = [
        ("meaning", meaning),
        ("computed", explanation["formula"]),
        ("defined", explanation["source"]),
    ]
    if explanation.get("interval"):
        low, high = explanation["interval"]
        resamples = f"{explanation['replicates']} bootstrap resamples of images"
        facts.append(("interval", f"[{low:.4f}, {high:.4f}]: 95%, {resamples}"))
    elif explanation.get("no_interval"):
        facts.append(("interval", f"none: {explanation['no_interval']}"))
    if explanation.get("against_best"):
        best = explanation["against_best"]
        p = ""
        if best["p"] is not None:
            p = f", p = {best['p']:.3f}"
        elif best["why_none"]:
            p = f"; no p-value: {best['why_none']}"
        facts.append(("best", f"{best['best']} is the best method here{p}"))
    facts.append(("protocol", f"{explanation['protocol']}, IoU {explanation['iou']:g}"))
    operating = explanation["t*"]
    rule = f"by rule {operating['rule']}: regions below it are discarded"
    facts.append(("t*", f"{operating['threshold']:.6g}, {rule}"))
    if "tau" in explanation:
        facts += _method_facts(explanation)
    detector = explanation["detector"]
    weights = f"weights {detector.get('weights_digest')}"
    facts.append(("detector", f"{detector.get('name')}, {weights}"))
    return facts


def _method_facts(explanation: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, text) of the rows about the method."""
    tau = explanation["tau"]
    rule = "fixed by the method"
    if tau["keep"] is not None:
        regions = f"{tau['regions']} ID calibration regions"
        rule = f"by rule {tau['rule']} to keep {tau['keep']:g} of {regions}"
    kept_share = f"it keeps {tau['id_regions_kept']:.4f} of the {tau['id_regions']} ID test regions"
    facts = [("τ", f"{tau['threshold']:.6g}, {rule}; {kept_share}")]

    method = explanation["method"]
    params = ", ".join(f"{name}={value}" for name, value in method["params"].items())
    text = f"{method['name']} ({params or 'no parameters'})"
    if explanation["fitted_on"]:
        text += f", fitted on {explanation['fitted_on']} regions"
    facts.append(("method", text))
    facts += [("remark", remark) for remark in explanation["remarks"]]

    choice = explanation["chosen"]
    if choice:
        kind = "chosen on a validation split"
        if choice["oracle"]:
            kind = "an oracle: chosen on test data"
        facts.append(("chosen", f"{len(choice['trials'])} trials on {choice['ood_split']}; {kind}"))
    return facts
