"""All figures of one run (a detector on a benchmark), from the files that the stages before have written.

What is written, below the artifacts folder:

    metrics/<run>/<split>/<method>.json      the figures to compare: auroc, fpr95, nose, ap_u, p_u, r_u
    metrics/<run>/detector.json              map50, map, threshold
    metrics/<run>/<split>/detector.json      the share of images without any detection
    outcomes/<run>/<method>/<split>.parquet, <split>.objects.parquet
                                             the outcome of each detection and of each object
    plots/<run>/roc.csv, pr.csv              curves: split, method, x, y
    plots/<run>/tau.csv, confidence.csv      figures over τ and over t*
    plots/<run>/wilderness.csv, reliability.csv
    evaluation/<run>.json                    everything, with counts, parameters, intervals and digests
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from farther.errors import DataError
from farther.evaluation import intervals, sweeps
from farther.evaluation.files import RunFiles, RunSplit, aligned_scores, thin
from farther.evaluation.intervals import COMPARED
from farther.evaluation.outcomes import tables as outcome_tables
from farther.metrics import (
    bootstrap,
    bootstrap_closed,
    bootstrap_known,
    calibration,
    closed_set,
    ood,
    open_set,
    self_awareness,
    wilderness,
)
from farther.metrics.comparisons import Comparisons
from farther.metrics.figures import Case, Figure, create_all
from farther.metrics.precision_recall import Curve
from farther.metrics.true_classes import not_of_known
from farther.registry import STRICT
from farther.tables import ObjectOutcomes, Objects, RegionOutcomes, Regions
from farther.tables.files import inside, read_json, write_aside, write_json

#: The recall at which errors are diagnosed and unknowns are confused (Dhamija et al., 2020, Figs. 3 and 4).
DIAGNOSIS_RECALL = 0.3


@checked_dataclass(config=STRICT, kw_only=True)
class EvaluationSettings:
    """How runs are evaluated: section `evaluate` of params.yaml.

    Args:
        id_split: ID split that the OOD splits are compared with.
        calibration_split: ID split that the thresholds of self-awareness are chosen on.
        iou, protocol: see `farther.metrics.open_set.evaluate`.
        replicates: Of the bootstrap over images that gives the intervals; 0 for none.
        recomputed_replicates: The same for the figures of wilderness and self-awareness, which each replicate computes
            anew: about 0.1 s each on 20,000 regions; 0 for none.
        seed: Of the bootstrap, and of the order in which wild images are added.
        comparisons: "all_pairs" allows for the number of methods in what is clearly worse than the best; "single"
            compares each with the best as if there were no other. See `farther.metrics.comparisons.compare_with`.
        kept: Shares of ID regions that τ is moved to keep, for the curves over τ.
        confidences: Operating thresholds for the curves over t*.
        supercategories: {category: supercategory}, for figures by supercategory; none when empty.
        more: Figures of one's own, and the parameters of each; see `farther.metrics.figures`.
    """

    id_split: str = "test"
    calibration_split: str = "val"
    iou: float = Field(default=0.5, gt=0, le=1)
    protocol: open_set.Protocol = "paper"
    replicates: int = Field(default=200, ge=0)
    recomputed_replicates: int = Field(default=0, ge=0)
    seed: int = 0
    comparisons: Comparisons = "all_pairs"
    kept: tuple[float, ...] = sweeps.KEPT
    confidences: tuple[float, ...] = sweeps.CONFIDENCES
    supercategories: dict[str, str] = Field(default_factory=dict)
    more: dict[str, dict[str, Any]] = Field(default_factory=dict)


def evaluate_run(
    files: RunFiles, methods: Sequence[str], ood_splits: Sequence[str], settings: EvaluationSettings
) -> dict[str, Any]:
    """Computes and writes all figures of a run; what an earlier evaluation wrote is replaced as a whole.

    Args:
        methods: Names in section `methods` of params.yaml.
        ood_splits: Names of the benchmark's OOD splits.

    Returns:
        What stands in `evaluation/<run>.json`. A method that does not apply to the detector is listed under
        `not_applicable` with the reason, and has no figures.

    Raises:
        DataError: an input is absent or wrong; names file, row and field.
    """
    more = create_all(settings.more, taken=COMPARED)
    chosen = read_json(files.threshold)
    threshold = _number(chosen, "threshold", files.threshold)
    id_split = RunSplit(files, settings.id_split)
    tested = [RunSplit(files, name) for name in ood_splits]
    _refuse_foreign_classes(id_split)
    methods_used, refused = _methods(files, methods)
    reference = _scored(files, id_split, methods_used)
    id_made = reference.above(threshold)
    plots = _Plots()
    report: dict[str, Any] = {
        "run": files.run,
        "benchmark": files.benchmark,
        "settings": asdict(settings),
        "threshold": threshold,
        "threshold_rule": chosen.get("rule"),
        "detector": id_split.folder.header.detector,
        "closed_set": _closed_set(id_split, settings),
        "wilderness": _wilderness(id_split, [s for s in tested if not _shows_known(s)], settings, plots),
        "self_awareness": _self_awareness(files, id_split, tested, settings, plots),
        "splits": {id_split.name: id_split.summary(id_made.regions)},
        "methods": {name: _method_summary(method, id_made.scores[name]) for name, method in methods_used.items()},
        "not_applicable": refused,
    }
    taus = {name: method.tau for name, method in methods_used.items()}
    closed = closed_set.Labelled(id_split.objects, reference.regions).verdicts(closed_set.COCO_IOUS)
    made_closed = closed_set.Labelled(id_split.objects, id_made.regions)
    for name, scores in id_made.scores.items():
        plots.closed_tau[name] = sweeps.closed_set_over_tau(made_closed, scores, settings.kept)
    for split in tested:
        scored = _scored(files, split, methods_used)
        made = scored.above(threshold)
        report["splits"][split.name] = split.summary(made.regions)
        for name, figures in _split_figures(id_split, id_made, split, made, taus, settings, more, plots).items():
            report["methods"][name]["splits"][split.name] = figures
        # Below the detector's own threshold nothing was stored.
        stored = max(s.folder.header.score_threshold for s in (split, id_split))
        confidences = [c for c in settings.confidences if c >= stored]
        sweep = sweeps.over_confidence(
            split.objects,
            scored,
            reference,
            taus,
            confidences,
            settings.iou,
            settings.protocol,
            split.folder.header.known_classes,
            closed,
        )
        plots.confidence.extend((split.name, *row.values()) for row in sweep)
    _write(files, report, plots)
    return report


@dataclass(frozen=True)
class _Method:
    """A method that applies: its threshold τ, and what was fitted."""

    tau: float
    fitted: dict[str, Any]


def _methods(files: RunFiles, names: Sequence[str]) -> tuple[dict[str, _Method], dict[str, str]]:
    """Methods that have scores, and the reasons of those that do not apply to this run's detector."""
    applicable, refused = {}, {}
    for name in names:
        fitted = read_json(files.fitted(name) / "method.json")
        if fitted.get("not_applicable"):
            refused[name] = str(fitted["not_applicable"])
        else:
            source = files.fitted(name) / "threshold.json"
            applicable[name] = _Method(_number(read_json(source), "threshold", source), fitted)
    return applicable, refused


def _method_summary(method: _Method, id_scores: np.ndarray) -> dict[str, Any]:
    share = float(np.mean(id_scores >= method.tau)) if len(id_scores) else None
    counts = {"tau": method.tau, "id_regions": len(id_scores), "id_regions_kept": share}
    return {"fitted": method.fitted, **counts, "splits": {}}


def _scored(files: RunFiles, split: RunSplit, methods: Iterable[str]) -> sweeps.Scored:
    regions = split.regions()
    scores = {name: aligned_scores(regions, files.scores(name, split.name), len(split.folder)) for name in methods}
    return sweeps.Scored(regions, scores, len(split.images))


def _split_figures(
    id_split: RunSplit,
    id_made: sweeps.Scored,
    split: RunSplit,
    made: sweeps.Scored,
    taus: Mapping[str, float],
    settings: EvaluationSettings,
    more: Mapping[str, Figure],
    plots: _Plots,
) -> dict[str, dict[str, Any]]:
    """Figures of all methods on the regions that were made in one OOD split."""
    known = made.regions.header.known_classes
    overlaps = open_set.Split(split.objects, made.regions, settings.iou, settings.protocol, known)
    drawn_from = ((id_split.images, settings.seed), (split.images, settings.seed + 1))
    draws = [bootstrap.ImageDraws(i, settings.replicates, seed) for i, seed in drawn_from if settings.replicates]
    # Detections of known objects, where the images show some, are not out of distribution.
    foreign = not_of_known(split.objects, made.regions, known, settings.iou)
    figures: dict[str, dict[str, Any]] = {}
    replicates: dict[str, dict[str, np.ndarray]] = {}
    for name, tau in taus.items():
        id_scores, scores = id_made.scores[name], made.scores[name]
        sides = ((id_made.regions.image_id, id_scores), (made.regions.image_id[foreign], scores[foreign]))
        unknown = scores < tau
        outcome = overlaps.judge(unknown)
        plots.outcomes[name, split.name] = outcome_tables(outcome, made.regions)
        figures[name] = _separation(sides) | _outcome_figures(outcome, scores)
        figures[name] |= _more_figures(unknown, scores, outcome, made.regions, settings)
        case = Case(id_made.regions, id_scores, made.regions, scores, tau, outcome)
        figures[name]["more"] = {own: figure.compute(case) for own, figure in more.items()}
        plots.add_curves(split.name, name, sides, outcome.curve(-scores))
        plots.add_tau(split.name, name, sweeps.over_tau(overlaps, scores, id_scores, settings.kept))
        if draws:
            by_image = [ood.per_image(image, score) for image, score in sides]
            replicates[name] = {
                **bootstrap.ood_figures(draws[0], *sides[0], draws[1], *sides[1]),
                **bootstrap.open_set_figures(draws[1], outcome, -scores),
            }
            per_image = bootstrap.ood_figures(draws[0], *by_image[0], draws[1], *by_image[1])
            replicates[name] |= {f"per_image_{figure}": values for figure, values in per_image.items()}
            if known_here := _known(overlaps, made.regions):
                arguments = (draws[1], split.objects, made.regions, unknown, known_here, settings.iou)
                drawn = bootstrap_known.known_figures(*arguments, unknown_score=-scores)
                replicates[name] |= {f"known_{figure}": values for figure, values in drawn.items()}
            parts = intervals.of_parts(draws[1], outcome, unknown, -scores, _ious(settings), settings.supercategories)
            figures[name] |= {f"intervals_{part}": found for part, found in parts.items()}
    for name, compared in intervals.against_best(figures, replicates, settings.comparisons).items():
        figures[name] |= {"intervals": intervals.within(replicates[name]), "against_best": compared}
    return figures


#: Images and scores of the regions on the ID side, and on the OOD side.
_Sides = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _separation(sides: _Sides) -> dict[str, Any]:
    """How well the scores separate regions, and images."""
    id_scores, scores = (score for _, score in sides)
    by_image = [ood.per_image(image, score)[1] for image, score in sides]
    return {
        "ood": {"id_regions": len(id_scores), "ood_regions": len(scores), **ood.evaluate(id_scores, scores)},
        "ood_per_image": {"id_images": len(by_image[0]), "ood_images": len(by_image[1]), **ood.evaluate(*by_image)},
    }


def _outcome_figures(outcome: open_set.Outcome, scores: np.ndarray) -> dict[str, Any]:
    return {
        "open_set": outcome.figures(unknown_score=-scores),
        "ap_u_by_confidence": outcome.figures()["ap_u"],
        "by_category": outcome.by_category(),
        "by_size": outcome.by_size(),
    }


def _more_figures(
    unknown: np.ndarray, scores: np.ndarray, outcome: open_set.Outcome, regions: Regions, settings: EvaluationSettings
) -> dict[str, Any]:
    """Means over IoU thresholds; by supercategory where there are any; known classes where they share the images."""
    split, ious = outcome.split, _ious(settings)
    result: dict[str, Any] = {"open_set_over_iou": split.figures_over(ious, unknown, -scores) if ious else None}
    if settings.supercategories:
        result["by_supercategory"] = outcome.by_supercategory(settings.supercategories)
    if known := _known(split, regions):
        arguments = (split.objects, regions, unknown, known, settings.iou)
        result["known"] = open_set.evaluate_known(*arguments, unknown_score=-scores)
    return result


def _ious(settings: EvaluationSettings) -> list[float]:
    """COCO's IoU thresholds from the chosen one on."""
    return [iou for iou in closed_set.COCO_IOUS.tolist() if iou >= settings.iou]


def _known(split: open_set.Split, regions: Regions) -> list[str]:
    """Classes of the detector that have objects in the split."""
    return [name for name in regions.header.known_classes if name in set(split.objects.category)]


def _closed_set(split: RunSplit, settings: EvaluationSettings) -> dict[str, Any]:
    figures = closed_set.evaluate(split.objects, split.regions())
    if settings.replicates:
        draws = bootstrap.ImageDraws(split.images, settings.replicates, settings.seed)
        drawn = bootstrap_closed.closed_set_figures(draws, closed_set.Labelled(split.objects, split.regions()))
        figures["intervals"] = intervals.within(drawn)
    return figures


def _shows_known(split: RunSplit) -> bool:
    """Whether objects of known classes are annotated in a split."""
    return bool(np.isin(split.objects.category.astype(str), split.folder.header.known_classes).any())


def _wilderness(
    id_split: RunSplit, tested: Sequence[RunSplit], settings: EvaluationSettings, plots: _Plots
) -> dict[str, Any]:
    """Wilderness impact with the images of OOD splits as the wild ones, and what goes wrong in them."""
    objects, regions = id_split.objects, id_split.regions()
    wild = [_named_by_split(split) for split in tested]
    images = [name for _, _, names in wild for name in names]
    wild_regions = Regions.concatenate([r for _, r, _ in wild]) if wild else regions[:0]
    impact = wilderness.Wilderness(
        objects, regions, id_split.images, wild_regions, images, iou=settings.iou, seed=settings.seed
    )
    result = impact.figures()
    for recall, at in result["at_recall"].items():
        plots.wilderness.extend((recall, *row) for row in zip(result["ratios"], at["impact"], strict=True))
    points = dict(zip(impact.classes, impact.operating_points(DIAGNOSIS_RECALL), strict=True))
    all_objects = Objects.concatenate([objects, *(o for o, _, _ in wild)])
    all_regions = Regions.concatenate([regions, wild_regions])
    causes = wilderness.diagnose(all_objects, all_regions, points, wild_images=images, iou=settings.iou)
    tally = {cause: int(np.sum(causes == cause)) for cause in wilderness.CAUSES}
    confusion = wilderness.confusion(all_objects, all_regions, points)
    result["best_f"] = impact.best_f_table()
    if settings.recomputed_replicates:
        drawn_from = ((id_split.images, settings.seed), (images, settings.seed + 1))
        closed, drawn = (bootstrap.ImageDraws(i, settings.recomputed_replicates, seed) for i, seed in drawn_from)
        found = bootstrap.wilderness_figures(closed, objects, regions, drawn, wild_regions, seed=settings.seed)
        result["intervals"] = {name: bootstrap.interval(values) for name, values in found.items()}
    return {**result, "diagnosis_recall": DIAGNOSIS_RECALL, "diagnosis": tally, "confusion": confusion}


def _named_by_split(split: RunSplit) -> tuple[Objects, Regions, list[str]]:
    """A split's objects, regions and images; the split's name in front of the images', which another may have too."""

    def longer(names: Iterable[str]) -> np.ndarray:
        return np.array([f"{split.name}/{name}" for name in names], dtype=object)

    objects, regions = split.objects, split.regions()
    return (
        Objects(**{**objects.columns(), "image_id": longer(objects.image_id)}),
        Regions(**{**regions.columns(), "image_id": longer(regions.image_id)}, header=regions.header),
        sorted(longer(split.images)),
    )


def _self_awareness(
    files: RunFiles, id_split: RunSplit, tested: Sequence[RunSplit], settings: EvaluationSettings, plots: _Plots
) -> dict[str, Any]:
    """Calibration and accuracy of what the detector stands by, and which images it turns away.

    The calibration split gives the LRP-optimal confidence thresholds, the calibrators, and the image threshold, which
    accepts 95% of its images.
    """
    held_out = RunSplit(files, settings.calibration_split)
    thresholds = self_awareness.lrp_thresholds(held_out.objects, held_out.regions())
    learnt_from = self_awareness.above(held_out.regions(), thresholds)
    made = self_awareness.above(id_split.regions(), thresholds)
    level = ood.threshold_at(_image_scores(held_out), 0.95)
    images, scores = sorted(id_split.images), _image_scores(id_split)
    rejected = [] if level is None else [name for name, s in zip(images, scores, strict=True) if s < level]
    figures = self_awareness.evaluate(id_split.objects, made, rejected=rejected)
    if settings.recomputed_replicates:
        draws = bootstrap.ImageDraws(images, settings.recomputed_replicates, settings.seed)
        # The objects of images that are turned away are missed.
        stood_by = made[~np.isin(made.image_id.astype(str), rejected)]
        drawn = bootstrap.figures_of(draws, id_split.objects, stood_by, self_awareness.evaluate)
        figures["intervals"] = {name: bootstrap.interval(values) for name, values in drawn.items()}
    calibrated = {}
    for kind in get_args(calibration.Kind):
        calibrators = calibration.fit(kind, held_out.objects, learnt_from)
        after = self_awareness.evaluate(id_split.objects, calibration.apply(calibrators, made), rejected=rejected)
        calibrated[kind] = {name: after[name] for name in ("laece", "idq")}
    diagram = figures["reliability"]
    plots.reliability.extend(zip(diagram["confidence"], diagram["performance"], diagram["detections"], strict=True))
    by_split = {}
    for split in tested:
        others = _image_scores(split)
        accepted = {} if level is None else self_awareness.balanced_accuracy(scores, others, level)
        by_split[split.name] = {"auroc": ood.auroc(scores, others), **accepted}
    chosen = {"confidence_thresholds": thresholds, "image_threshold": level}
    return {**chosen, **figures, "rejected_images": len(rejected), "calibrated": calibrated, "splits": by_split}


def _image_scores(split: RunSplit) -> np.ndarray:
    return self_awareness.image_scores(sorted(split.images), split.regions())


def _refuse_foreign_classes(split: RunSplit) -> None:
    known = split.folder.header.known_classes
    if len(split.objects) and not np.isin(split.objects.category.astype(str), known).any():
        problem = (
            f"none of the categories ({', '.join(sorted(set(split.objects.category))[:5])}, …) of split '{split.name}' "
            f"is a class of the detector ({', '.join(known[:5])}, …): names must agree"
        )
        raise DataError(problem, file=split.source, field="category")


def _number(values: Any, name: str, source: Path) -> float:
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not np.isfinite(value):
        raise DataError(f"expected a number, found {value!r}", file=source, field=name)
    return float(value)


@dataclass
class _Plots:
    """Rows of the plot files, each under the columns that `COLUMNS` names."""

    roc: list[tuple[Any, ...]] = field(default_factory=list)
    pr: list[tuple[Any, ...]] = field(default_factory=list)
    tau: list[tuple[Any, ...]] = field(default_factory=list)
    confidence: list[tuple[Any, ...]] = field(default_factory=list)
    wilderness: list[tuple[Any, ...]] = field(default_factory=list)
    reliability: list[tuple[Any, ...]] = field(default_factory=list)
    #: {method: {share of ID regions kept: map50}}, for the last column of `tau`.
    closed_tau: dict[str, dict[float, float | None]] = field(default_factory=dict)
    #: {(method, split): outcome tables}.
    outcomes: dict[tuple[str, str], tuple[RegionOutcomes, ObjectOutcomes]] = field(default_factory=dict)

    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {
        "roc": ("split", "method", "x", "y"),
        "pr": ("split", "method", "x", "y"),
        "tau": (
            *("split", "method", "kept", "tau", "nose", "p_u", "r_u", "fn_missed", "ap_u", "ap_u_11", "aose"),
            "map50",
        ),
        "confidence": (
            *("split", "t", "method", "no_detection", "auroc", "fpr95", "nose", "ap_u", "p_u", "r_u"),
            *("fn_missed", "ap_u_11", "aose", "aupr_in", "aupr_out", "detection_error"),
            *("map50", "map"),
        ),
        "wilderness": ("recall", "ratio", "impact"),
        "reliability": ("confidence", "performance", "detections"),
    }

    def add_curves(self, split: str, method: str, sides: _Sides, curve: Curve | None) -> None:
        (_, id_scores), (_, scores) = sides
        if len(id_scores) and len(scores):
            points = zip(*thin(*ood.roc(id_scores, scores)), strict=True)
            self.roc.extend((split, method, float(x), float(y)) for x, y in points)
        if curve is not None and len(curve.recall):
            points = zip(*thin(curve.recall, curve.precision), strict=True)
            self.pr.extend((split, method, float(x), float(y)) for x, y in points)

    def add_tau(self, split: str, method: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self.tau.extend((split, method, *row.values(), self.closed_tau[method].get(row["kept"])) for row in rows)

    def write(self, folder: Path) -> None:
        folder.mkdir()
        for name, columns in self.COLUMNS.items():
            with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows([_short(value) for value in row] for row in getattr(self, name))


def _short(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _write(files: RunFiles, report: dict[str, Any], plots: _Plots) -> None:
    with write_aside(files.metrics) as folder:
        closed, splits = report["closed_set"], report["splits"]
        detector = {"map50": closed["ap50"], "map": closed["ap"], "threshold": report["threshold"]}
        write_json(folder / "detector.json", detector)
        for name, split in splits.items():
            write_json(inside(folder, f"{name}/detector.json"), {"no_detection": split["no_detection"]})
        for method, evaluated in report["methods"].items():
            for split, figures in evaluated["splits"].items():
                flat = figures["ood"] | figures["open_set"] | figures["more"]
                write_json(
                    inside(folder, f"{split}/{method}.json"),
                    {name: flat[name] for name in (*COMPARED, *figures["more"])},
                )
    with write_aside(files.outcomes) as folder:
        folder.mkdir()
        for (method, split), (of_regions, of_objects) in plots.outcomes.items():
            of_regions.write(inside(folder, f"{method}/{split}.parquet"))
            of_objects.write(inside(folder, f"{method}/{split}.objects.parquet"))
    with write_aside(files.plots) as folder:
        plots.write(folder)
    write_json(files.evaluation, report)
