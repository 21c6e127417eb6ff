"""All figures of one run (a detector on a benchmark) from the files that the stages before have written.

The files of a run, below the artifacts folder:

    splits/<benchmark>/<split>/images.parquet, objects.parquet
    regions/<run>/<split>/                   detections
    thresholds/<run>.json                    operating threshold t*
    fitted/<run>/<method>/method.json        a method's parameters, or why it does not apply
    fitted/<run>/<method>/threshold.json     its threshold τ
    scores/<run>/<method>/<split>.parquet    its scores
    metrics/<run>/<split>/<method>.json      written here: the figures to compare
    metrics/<run>/detector.json              written here: the detector's own figures
    plots/<run>/roc.csv, pr.csv              written here: curves
    evaluation/<run>.json                    written here: everything, with counts, parameters and digests
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.errors import DataError
from farther.metrics import closed_set, ood, open_set, operating_threshold
from farther.metrics.boxes import image_numbers
from farther.registry import STRICT
from farther.tables import Images, Objects, Regions, RegionsFolder, Scores
from farther.tables.files import digest, inside, read_json, write_aside, write_json

#: Points of a curve that are kept for plotting.
CURVE_POINTS = 200

#: Figures that stand in a metrics file.
COMPARED = ("auroc", "fpr95", "nose", "ap_u", "p_u", "r_u")


@dataclass(config=STRICT, kw_only=True)
class ThresholdSettings:
    """How the operating threshold is chosen: section `threshold` of params.yaml.

    Args:
        split: ID split it is chosen on.
        rule, tolerance: see `farther.metrics.operating_threshold.choose`.
    """

    split: str = "val"
    rule: operating_threshold.Rule = "best_f1"
    tolerance: float = Field(default=0.0, ge=0, le=1)


@dataclass(config=STRICT, kw_only=True)
class EvaluationSettings:
    """How runs are evaluated: section `evaluate` of params.yaml.

    Args:
        id_split: ID split that the OOD splits are compared with.
        iou, protocol: see `farther.metrics.open_set.evaluate`.
    """

    id_split: str = "test"
    iou: float = Field(default=0.5, gt=0, le=1)
    protocol: open_set.Protocol = "paper"


class RunFiles:
    """Where the files of a run lie.

    Args:
        run: Its name in section `detectors` of params.yaml.
        benchmark: The name of its benchmark.
        root: The artifacts folder.

    Raises:
        DataError: a name leads out of its folder.
    """

    def __init__(self, run: str, benchmark: str, root: str | Path = "artifacts"):
        self.run = run
        self.benchmark = benchmark
        self.root = Path(root)
        self.threshold = inside(self.root / "thresholds", f"{run}.json")
        self.metrics = inside(self.root / "metrics", run)
        self.plots = inside(self.root / "plots", run)
        self.evaluation = inside(self.root / "evaluation", f"{run}.json")

    def images(self, split: str) -> Path:
        """The table of the split's images."""
        return inside(self.root / "splits", f"{self.benchmark}/{split}/images.parquet")

    def objects(self, split: str) -> Path:
        """The table of the split's annotated objects."""
        return inside(self.root / "splits", f"{self.benchmark}/{split}/objects.parquet")

    def regions(self, split: str) -> Path:
        """The folder of the detector's regions in the split."""
        return inside(self.root / "regions", f"{self.run}/{split}")

    def fitted(self, method: str) -> Path:
        """The folder of a method's fitted state."""
        return inside(self.root / "fitted", f"{self.run}/{method}")

    def scores(self, method: str, split: str) -> Path:
        """The table of a method's scores of the split's regions."""
        return inside(self.root / "scores", f"{self.run}/{method}/{split}.parquet")


def choose_threshold(files: RunFiles, settings: ThresholdSettings) -> None:
    """Chooses the operating threshold of a run and writes `thresholds/<run>.json`.

    Raises:
        DataError: an input is absent or wrong, or has too little to choose from.
        ParameterError: see `operating_threshold.choose`.
    """
    split = RunSplit(files, settings.split)
    chosen = operating_threshold.choose(split.objects, split.regions(), settings.rule, settings.tolerance)
    write_json(files.threshold, {**chosen, "settings": asdict(settings), "inputs": split.inputs()})


def evaluate_run(
    files: RunFiles, methods: Sequence[str], ood_splits: Sequence[str], settings: EvaluationSettings
) -> dict[str, Any]:
    """Computes and writes all figures of a run; what an earlier evaluation wrote is replaced as a whole.

    Args:
        methods: Names in section `methods` of params.yaml.
        ood_splits: Names of the benchmark's OOD splits.

    Returns:
        What stands in `evaluation/<run>.json`.

    Raises:
        DataError: an input is absent or wrong; names file, row and field.
    """
    chosen = read_json(files.threshold)
    threshold = _number(chosen, "threshold", files.threshold)
    id_split = RunSplit(files, settings.id_split)
    id_regions = id_split.regions(threshold)
    applicable, refused = _sort_methods(files, methods)
    report: dict[str, Any] = {
        "run": files.run,
        "benchmark": files.benchmark,
        "settings": asdict(settings),
        "threshold": threshold,
        "threshold_rule": chosen.get("rule"),
        "detector": id_split.folder.header.detector,
        "closed_set": _closed_set(id_split),
        "splits": {},
        "methods": {name: {"fitted": read_json(files.fitted(name) / "method.json")} for name in applicable},
        "not_applicable": refused,
    }
    taus = {name: _tau(files, name) for name in applicable}
    report["splits"][id_split.name] = id_split.summary(id_regions)
    id_scores = {
        name: aligned_scores(id_regions, files.scores(name, id_split.name), len(id_split.folder)) for name in applicable
    }
    for name in applicable:
        kept = id_scores[name] >= taus[name]
        report["methods"][name] |= {
            "tau": taus[name],
            "id_regions": len(kept),
            "id_regions_kept": float(np.mean(kept)) if len(kept) else None,
            "splits": {},
        }
    curves = _Curves()
    for split_name in ood_splits:
        split = RunSplit(files, split_name)
        regions = split.regions(threshold)
        report["splits"][split_name] = split.summary(regions)
        overlaps = open_set.Split(split.objects, regions, settings.iou, settings.protocol)
        for name in applicable:
            scores = aligned_scores(regions, files.scores(name, split_name), len(split.folder))
            outcome = overlaps.judge(scores < taus[name])
            report["methods"][name]["splits"][split_name] = _figures(id_scores[name], scores, outcome)
            curves.add(split_name, name, id_scores[name], scores, outcome)
    _write(files, report, curves)
    return report


class RunSplit:
    """One split of a run: its images and objects, and the detector's regions in them.

    Args:
        files: Where the run's files lie.
        split: The name of the split.

    Objects of images that the detector could not read are left out of `objects`, and counted in `summary`.

    Raises:
        DataError: a table or the regions folder is absent or wrong, or shows an image that the split does not have.
    """

    def __init__(self, files: RunFiles, split: str):
        self.name = split
        self.folder = RegionsFolder(files.regions(split))
        self.source = files.objects(split)
        self._files = {"images": files.images(split), "objects": self.source}
        images = Images.read(self._files["images"])
        objects = Objects.read(self.source)
        failed = {failure["image_id"] for failure in self.folder.failures}
        self.images = frozenset(images.image_id) - failed
        self.failed = len(images) - len(self.images)
        readable = np.fromiter((name not in failed for name in objects.image_id), bool, len(objects))
        self.objects = objects[readable]
        self._refuse_strangers(self.objects.image_id, self.source)
        self._digests: dict[str, str] = {}

    def regions(self, threshold: float = 0.0) -> Regions:
        """The regions whose confidence is at least `threshold`, without what only methods need.

        Raises:
            DataError: a shard is wrong, or shows an image that the split does not have.
        """
        parts = list(self.folder.above(threshold).batches(columns=()))
        regions = Regions.concatenate(parts) if parts else Regions.empty(self.folder.header)
        self._refuse_strangers(regions.image_id, self.folder.path)
        columns = [getattr(regions, name).tobytes() for name in ("region_id", "box", "score", "label")]
        self._digests[f"regions from {threshold:g}"] = digest("\0".join(regions.image_id), *columns)
        return regions

    def summary(self, regions: Regions) -> dict[str, Any]:
        """Counts of the split, and the share of its images that show none of `regions`."""
        seen = len(set(regions.image_id))
        return {
            "images": len(self.images),
            "failed_images": self.failed,
            "objects": len(self.objects),
            "regions": len(regions),
            "no_detection": 1 - seen / len(self.images) if self.images else None,
            "inputs": self.inputs(),
        }

    def inputs(self) -> dict[str, str]:
        """Digests of what was read: files, and the columns of regions that were used."""
        return {name: digest(path) for name, path in self._files.items()} | self._digests

    def _refuse_strangers(self, image_id: np.ndarray, source: Path) -> None:
        strangers = set(image_id) - self.images
        if strangers:
            row = int(np.flatnonzero(image_id == min(strangers))[0])
            problem = f"{min(strangers)!r} is no readable image of split '{self.name}'; run the stages before again"
            raise DataError(problem, file=source, row=row, field="image_id")


def aligned_scores(regions: Regions, path: Path, stored: int) -> np.ndarray:
    """A method's scores in the order of `regions`, ndarray of shape (N,).

    Args:
        path: A table of scores of all stored regions of the split.
        stored: How many regions the split has.

    Raises:
        DataError: the table has another number of rows, scores a region twice, or lacks one.
    """
    scores = Scores.read(path)
    if len(scores) != stored:
        problem = f"{len(scores)} scores, but {stored} regions; score the split again"
        raise DataError(problem, file=path)
    _, (score_image, region_image) = image_numbers(scores.image_id, regions.image_id)
    span = int(max(scores.region_id.max(initial=0), regions.region_id.max(initial=0))) + 1
    key, wanted = score_image * span + scores.region_id, region_image * span + regions.region_id
    order = np.argsort(key, kind="stable")
    key = key[order]
    twice = np.flatnonzero(key[1:] == key[:-1])
    if len(twice):
        row = int(order[twice[0] + 1])
        problem = f"region {scores.region_id[row]} of {scores.image_id[row]!r} is scored twice"
        raise DataError(problem, file=path, row=row, field="region_id")
    place = np.minimum(np.searchsorted(key, wanted), max(len(key) - 1, 0))
    missing = np.flatnonzero(key[place] != wanted) if len(key) else np.arange(len(wanted))
    if len(missing):
        row = int(missing[0])
        problem = f"region {regions.region_id[row]} of {regions.image_id[row]!r} has no score; score the split again"
        raise DataError(problem, file=path, field="region_id")
    return scores.score[order[place]]


def thin(x: np.ndarray, y: np.ndarray, points: int = CURVE_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most so many points of a curve, evenly spread along its way, both ends included."""
    if len(x) <= points:
        return x, y
    way = np.cumsum(np.abs(np.diff(x, prepend=x[0])) + np.abs(np.diff(y, prepend=y[0])))
    chosen = np.searchsorted(way, np.linspace(0, way[-1], points - 1))
    chosen = np.unique(np.append(chosen, len(x) - 1))
    return x[chosen], y[chosen]


def _closed_set(split: RunSplit) -> dict[str, Any]:
    known = split.folder.header.known_classes
    if len(split.objects) and not np.isin(split.objects.category.astype(str), known).any():
        problem = (
            f"none of the categories ({', '.join(sorted(set(split.objects.category))[:5])}, …) of split '{split.name}' "
            f"is a class of the detector ({', '.join(known[:5])}, …): names must agree"
        )
        raise DataError(problem, file=split.source, field="category")
    return closed_set.evaluate(split.objects, split.regions())


def _sort_methods(files: RunFiles, methods: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Methods that have scores, and the reasons of those that do not apply to this run's detector."""
    applicable, refused = [], {}
    for name in methods:
        reason = read_json(files.fitted(name) / "method.json").get("not_applicable")
        if reason:
            refused[name] = str(reason)
        else:
            applicable.append(name)
    return applicable, refused


def _tau(files: RunFiles, method: str) -> float:
    path = files.fitted(method) / "threshold.json"
    return _number(read_json(path), "threshold", path)


def _number(values: Any, name: str, source: Path) -> float:
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not np.isfinite(value):
        raise DataError(f"expected a number, found {value!r}", file=source, field=name)
    return float(value)


def _figures(id_scores: np.ndarray, scores: np.ndarray, outcome: open_set.Outcome) -> dict[str, Any]:
    return {
        "ood": {"id_regions": len(id_scores), "ood_regions": len(scores), **ood.evaluate(id_scores, scores)},
        "open_set": outcome.figures(unknown_score=-scores),
        "ap_u_by_confidence": outcome.figures()["ap_u"],
        "by_category": outcome.by_category(),
        "by_size": outcome.by_size(),
    }


class _Curves:
    """Rows of the two plot files."""

    def __init__(self) -> None:
        self.roc: list[tuple[str, str, float, float]] = []
        self.pr: list[tuple[str, str, float, float]] = []

    def add(
        self, split: str, method: str, id_scores: np.ndarray, scores: np.ndarray, outcome: open_set.Outcome
    ) -> None:
        if len(id_scores) and len(scores):
            self.roc.extend(self._rows(split, method, *ood.roc(id_scores, scores)))
        curve = outcome.curve(-scores)
        if curve is not None and len(curve.recall):
            self.pr.extend(self._rows(split, method, curve.recall, curve.precision))

    @staticmethod
    def _rows(split: str, method: str, x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, str, float, float]]:
        for at, value in zip(*thin(x, y), strict=True):
            yield split, method, round(float(at), 6), round(float(value), 6)


def _write(files: RunFiles, report: dict[str, Any], curves: _Curves) -> None:
    with write_aside(files.metrics) as folder:
        closed, splits = report["closed_set"], report["splits"]
        detector = {"map50": closed["ap50"], "map": closed["ap"], "threshold": report["threshold"]}
        no_detection = {name: split["no_detection"] for name, split in splits.items()}
        write_json(folder / "detector.json", {**detector, "no_detection": no_detection})
        for method, evaluated in report["methods"].items():
            for split, figures in evaluated["splits"].items():
                flat = figures["ood"] | figures["open_set"]
                write_json(inside(folder, f"{split}/{method}.json"), {name: flat[name] for name in COMPARED})
    with write_aside(files.plots) as folder:
        folder.mkdir()
        for name, rows in (("roc.csv", curves.roc), ("pr.csv", curves.pr)):
            with (folder / name).open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(("split", "method", "x", "y"))
                writer.writerows(rows)
    write_json(files.evaluation, report)
