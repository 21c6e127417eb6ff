"""`farther explain number`: the definition of a metric's value, the counts in it, the thresholds, and what was read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from farther.command.output import as_json, coloured, next_step, table
from farther.command.project import PARAMS, Json, Params, Project, argument, metrics, splits
from farther.errors import DataError, ParameterError, choose
from farther.terminal import say

if TYPE_CHECKING:
    from farther.evaluation.results import Evaluation, MethodResults
    from farther.metrics.catalogue import Metric

#: Keys in an evaluation, of metrics whose name differs from their key.
CLOSED_SET = {"map": "ap", "map50": "ap50"}


def number(
    run: Annotated[str, argument("RUN", "Name under 'detectors'.", "detectors")],
    method: Annotated[
        str, argument("METHOD", "Name under 'methods'; any for metrics of the detector.", "methods")
    ],
    split: Annotated[str, argument("SPLIT", "OOD split; any for metrics of the ID split.", splits)],
    metric: Annotated[str, argument("METRIC", "See farther list metrics.", metrics)],
    json: Json = False,
    params: Params = PARAMS,
) -> None:
    """Explain how a metric's value was computed.

    Shows the metric's meaning, its formula with the counts in it, the 95% interval, t* and τ with
    the rules that chose them, the method's parameters, the checkpoint, the digests of the inputs,
    and the files and stages involved.

    \b
    Examples:
      farther explain number voc-vos knn coco_near nose
      farther explain number voc-vos - - map          # a metric of the detector
      farther explain number voc-vos knn - misclassification_aurc
    """
    found = explain_number(Project(params), run, method, split, metric)
    if json:
        say(as_json(found))
        return
    say("\n".join(_shown(found)))
    best = found.get("against_best")
    next_step(
        f"farther compare --run {run} --methods {method} {best['best']} --split {split}"
        if best
        else "farther open"
    )


def explain_number(
    project: Project, run: str, method: str, split: str, metric: str
) -> dict[str, Any]:
    """The origin of a value in `artifacts/metrics` or `artifacts/evaluation`.

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
    from farther.evaluation.results import read_evaluation
    from farther.metrics.catalogue import METRICS
    from farther.tables.files import inside

    choose("run", run, project.section("detectors"))
    file = inside(project.artifacts / "evaluation", f"{run}.json")
    if not file.is_file():
        raise DataError(f"{run} was not evaluated yet: run `dvc repro`", file=file)
    report = read_evaluation(file)
    chosen = METRICS[choose("metric", metric, METRICS)]
    if chosen.group in ("detector", "classifier", "error_budget"):
        return _of_detector(report, chosen)
    if chosen.group in ("misclassification", "costs"):
        return _of_id_images(project, report, method, chosen)
    split = choose(
        "split of this run", split, set(report.splits) - {report.settings.calibration_split}
    )
    if chosen.group == "split":
        counts = report.splits[split]
        found = {"value": counts.no_detection, "formula": _filled(chosen.formula, vars(counts))}
        return _explained(report, chosen, found, [split], [f"artifacts/evaluation/{run}.json"])
    return _of_split(project, report, method, split, chosen)


def _of_detector(report: Evaluation, metric: Metric) -> dict[str, Any]:
    """A metric of the run on the ID split, whatever the method."""
    if metric.group == "error_budget":
        return _of_error_budget(report, metric)
    key = CLOSED_SET.get(metric.name, metric.key)
    results = report.closed_set if metric.group == "detector" else report.classifier
    if results is None:
        raise ParameterError(
            f"{metric.name} is a metric of image classifiers; {report.run} is an object detector"
        )
    found = {
        "value": report.threshold if metric.name == "threshold" else results.values[key],
        "formula": _filled(metric.formula, vars(report)),
        "interval": results.intervals.get(key),
    }
    file = f"artifacts/metrics/{report.run}/detector.json"
    return _explained(report, metric, found, [report.settings.id_split], [file])


def _of_error_budget(report: Evaluation, metric: Metric) -> dict[str, Any]:
    """A gain from correcting a kind of error on known objects."""
    budget = report.error_budget
    if budget is None:
        raise ParameterError(
            f"{metric.name} is a metric of object detectors; {report.run} is an image classifier"
        )
    of_kind = budget.kinds[metric.key]
    found = {
        "value": of_kind.gain,
        "formula": metric.formula.format(count=of_kind.count, ap=budget.ap or 0),
        "interval": of_kind.interval,
    }
    file = f"artifacts/evaluation/{report.run}.json"
    return _explained(report, metric, found, [report.settings.id_split], [file])


def _of_id_images(
    project: Project, report: Evaluation, method: str, metric: Metric
) -> dict[str, Any]:
    """A metric of a method on the ID split."""
    evaluated = _evaluated(report, method)
    id_split = report.settings.id_split
    results = evaluated.costs if metric.group == "costs" else evaluated.misclassification
    found = {
        "value": results.values[metric.key],
        "formula": _filled(metric.formula, results.values),
        "interval": results.intervals.get(metric.key),
        **_of_method(project, report, method),
    }
    file = f"artifacts/metrics/{report.run}/methods.json"
    return _explained(
        report, metric, found, [id_split], [file, *_method_files(report, method, [id_split])]
    )


def _of_split(
    project: Project, report: Evaluation, method: str, split: str, metric: Metric
) -> dict[str, Any]:
    """A metric of a method on an OOD split."""
    from farther.evaluation.files import RunFiles
    from farther.evaluation.groups import GROUPS

    run = report.run
    id_split = report.settings.id_split
    evaluated = _evaluated(report, method)
    if split not in evaluated.splits:
        raise ParameterError(
            f"{split!r} is the ID split, which OOD splits are compared with: name an OOD split"
        )
    results = evaluated.splits[split]
    group = GROUPS[metric.group]
    if metric.key not in results.of_group(metric.group):
        raise ParameterError(f"{metric.name} was not evaluated for {run} on {split}: {group.needs}")
    best = results.against_best.get(metric.name)
    found = {
        "value": results.value(metric),
        "formula": _filled(metric.formula, results.of_group(metric.group)),
        "interval": results.interval(metric),
        "against_best": vars(best) if best and best.best != method else None,
        **_of_method(project, report, method),
    }
    more = group.read_splits(RunFiles(run, report.benchmark, project.artifacts).roles, split)
    scored = list(dict.fromkeys([split, id_split, *more]))
    files = [
        f"artifacts/metrics/{run}/{split}/{method}.json",
        *_method_files(report, method, scored),
    ]
    return _explained(report, metric, found, [id_split, split], files)


def _evaluated(report: Evaluation, method: str) -> MethodResults:
    """The results of a method."""
    if method in report.not_applicable:
        raise ParameterError(
            f"{method} does not apply to {report.run}: {report.not_applicable[method]}"
        )
    return report.methods[choose("method of this run", method, report.methods)]


def _of_method(project: Project, report: Evaluation, method: str) -> dict[str, Any]:
    """A method's threshold, its parameters, and what it was fitted on."""
    from farther.evaluation.threshold import stored_tau
    from farther.tables.files import inside

    evaluated = report.methods[method]
    fitted = evaluated.fitted
    tau = stored_tau(
        inside(project.artifacts / "evaluation", f"{report.run}/methods/{method}/threshold.json")
    )
    return {
        "tau": {
            **tau.model_dump(),
            "id_regions_kept": evaluated.id_regions_kept,
            "id_regions": evaluated.id_regions,
        },
        "method": {"name": fitted.name, "params": fitted.params},
        "chosen": fitted.choice and asdict(fitted.choice),
        "fitted_on": fitted.state.get("fitted_on_", {}).get("regions"),
    }


def _method_files(report: Evaluation, method: str, splits: list[str]) -> list[str]:
    """The files of a method that its metrics on some splits are computed from, and the evaluation."""
    scores = [f"artifacts/scores/{report.run}/{method}/{split}.parquet" for split in splits]
    return [
        f"artifacts/evaluation/{report.run}.json",
        *scores,
        f"artifacts/fitted/{report.run}/{method}/",
    ]


def _explained(
    report: Evaluation, metric: Metric, found: dict[str, Any], splits: list[str], files: list[str]
) -> dict[str, Any]:
    """All about a value: of the metric, of the value itself (`found`), of its inputs, and the files and stages."""
    run = report.run
    benchmark = report.benchmark
    settings = report.settings
    wanted = ("images", "failed_images", "objects", "regions", "inputs")
    stages = [f"evaluate@{run}", f"fit@{run}", f"infer@{run}", "curate"]
    if "tau" in found:  # a metric of a method
        stages.insert(1, f"score@{run}")
    return {
        "metric": metric.name,
        "meaning": metric.meaning,
        "higher_is_better": metric.higher_is_better,
        "source": metric.source,
        "protocol": settings.protocol,
        "iou": settings.iou,
        "t*": {"threshold": report.threshold, "rule": report.threshold_rule},
        "detector": report.detector,
        "replicates": settings.replicates,
        **found,
        "splits": {
            name: {key: getattr(report.splits[name], key) for key in wanted} for name in splits
        },
        "files": [
            *files,
            f"artifacts/thresholds/{run}.json",
            *(f"artifacts/regions/{run}/{split}/" for split in splits),
            *(f"artifacts/splits/{benchmark}/{split}/" for split in splits),
        ],
        "stages": stages,
    }


def _filled(formula: str, values: Mapping[str, Any]) -> str:
    """The formula with the counts that it names."""
    return formula.format_map(defaultdict(lambda: "?", values))


def _shown(found: dict[str, Any]) -> Iterator[str]:
    none = "undefined"
    none += "".join(
        f"; {name} has no objects with boxes"
        for name, of in found["splits"].items()
        if not of["objects"]
    )
    value = none if found["value"] is None else f"{found['value']:.6g}"
    yield coloured(f"{found['metric']} = {value}", "head")
    yield ""
    yield table(("", ""), list(_facts(found)))
    yield ""
    for name, split in found["splits"].items():
        yield coloured(f"split {name}", "head")
        yield f"  {split['images']} images ({split['failed_images']} unreadable), {split['objects']} objects"
        yield f"  {split['regions']} detections at or above t*"
        yield from (f"  {what:<8} {digest}" for what, digest in split["inputs"].items())
    yield ""
    yield coloured("files, and the stages that wrote them", "head")
    yield from (f"  {file}" for file in found["files"])
    yield table(("", ""), [("  stages", ", ".join(found["stages"]))])


def _facts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    better = {True: " Higher is better.", False: " Lower is better.", None: ""}[
        found["higher_is_better"]
    ]
    yield "meaning", found["meaning"] + better
    yield "computed", found["formula"]
    yield "defined", found["source"]
    if found.get("interval"):
        low, high = found["interval"]
        yield (
            "interval",
            f"{low:.4f} … {high:.4f}: 95%, {found['replicates']} bootstrap replicates over images",
        )
    if found.get("against_best"):
        best = found["against_best"]
        p = "" if best["p"] is None else f", p = {best['p']:.3f}"
        yield "best", f"{best['best']} is the best method here{p}"
    yield "protocol", f"{found['protocol']}, IoU {found['iou']:g}"
    yield (
        "t*",
        f"{found['t*']['threshold']:.6g}, by rule {found['t*']['rule']}: regions below it are discarded",
    )
    if "tau" in found:
        tau = found["tau"]
        rule = "fixed by the method"
        if tau["keep"] is not None:
            rule = f"by rule {tau['rule']} to keep {tau['keep']:g} of {tau['regions']} ID calibration regions"
        kept = f"it keeps {tau['id_regions_kept']:.4f} of the {tau['id_regions']} ID test regions"
        yield "τ", f"{tau['threshold']:.6g}, {rule}; {kept}"
        params = (
            ", ".join(f"{key}={value}" for key, value in found["method"]["params"].items())
            or "no parameters"
        )
        on = f", fitted on {found['fitted_on']} regions" if found["fitted_on"] else ""
        yield "method", f"{found['method']['name']} ({params}){on}"
        if found["chosen"]:
            kind = (
                "an oracle: chosen on test data"
                if found["chosen"]["oracle"]
                else "chosen on a validation split"
            )
            yield (
                "chosen",
                f"{len(found['chosen']['trials'])} trials on {found['chosen']['ood_split']}; {kind}",
            )
    detector = found["detector"]
    yield "detector", f"{detector.get('name')}, weights {detector.get('weights_digest')}"
