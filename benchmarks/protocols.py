"""Both protocols on the demo: which point of the published code causes which difference.

    python benchmarks/protocols.py                 in the folder of a finished demo
    python benchmarks/protocols.py --project DIR   with the demo in another folder

Each run of VOC, one per architecture, is measured as the paper does, then with one point of the
published code at a time, then with all of them. Prints a Markdown table per run
(benchmarks/README.md): a row per method and point, of those points that change a metric of the
method by at least 0.0005. Regions are kept in `--work`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from farther import detectors, methods
from farther.datasets import image_roots
from farther.detectors.inference import InferenceParams
from farther.detectors.split_inference import infer_splits
from farther.methods.tau import Rule
from farther.metrics import ood, open_set
from farther.metrics.closed_set import operating_threshold
from farther.metrics.matching import not_of_known
from farther.params import section
from farther.scoring.fit import fit_method
from farther.scoring.inputs import RunRegions
from farther.tables import Objects, Regions, RegionsFolder
from farther.terms import Protocol

METRICS = {
    "auroc": "AUROC",
    "fpr95": "FPR95",
    "ap_u": "AP_U",
    "p_u": "P_U",
    "r_u": "R_U",
    "nose": "nOSE",
}
SMALLEST = 0.0005
LARD = ("lard_mahalanobis", "lard_knn", "lard_gmm")
#: Parameters of the methods under the paper's protocol.
PAPER: dict[str, dict[str, Any]] = {
    "msp": {},
    "energy": {},
    "gen": {},
    "knn": {"k": 10},
    "ddu": {},
    "lard_mahalanobis": {"components": 32},
    "lard_knn": {"components": 32, "k": 10},
    "lard_gmm": {"components": 32},
}


@dataclass(frozen=True)
class Settings:
    """What is measured: all that a point of the protocol may change.

    Args:
        detector: Parameters of the adapter.
        methods: Parameters of each method.
        rule: Of t*; None takes the demo's.
        threshold_rule: Of τ.
        protocol: Of matching and metrics.
    """

    detector: Mapping[str, Any] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rule: float | None = None
    threshold_rule: Rule = "percentile"
    protocol: Protocol = "paper"

    def of_method(self, name: str) -> dict[str, Any]:
        """All parameters of a method."""
        return {**PAPER[name], **self.methods.get(name, {})}


def points(adapter: str) -> dict[str, Settings]:
    """Each point of the published code that concerns an adapter, alone, then all."""
    code: Protocol = "published-code"
    k = {"faster_rcnn": 10, "yolo": 8, "detr": 12}[adapter]
    t_star = {"faster_rcnn": None, "yolo": 0.25, "detr": 0.3}[adapter]
    kept = {"background": "keep"}
    found = {"paper": Settings()}
    if adapter == "yolo":
        found["logits: log σ"] = Settings(detector={"logits": "log_sigmoid"})
    if adapter == "detr":
        found["one class per query"] = Settings(detector={"per_query": "one"})
    if adapter == "faster_rcnn":
        found["background kept"] = Settings(methods={"msp": kept, "energy": kept, "gen": kept})
        found["latents of all levels"] = Settings(detector={"latent": "levels"})
    of_all_gaussians: dict[str, dict[str, Any]] = {
        n: {"protocol": code} for n in ("ddu", "lard_gmm")
    }
    found |= {
        "ROI grid 16, sampling −1": Settings(detector={"latent_size": 16, "latent_sampling": -1}),
        "GEN: γ 0.1": Settings(methods={"gen": {"gamma": 0.1}}),
        f"kNN: k {k}": Settings(methods={"knn": {"k": k}, "lard_knn": {"k": k}}),
        "DDU, GMM: float32, equal weights": Settings(methods=of_all_gaussians),
        "LaRD: one Gaussian": Settings(methods={"lard_mahalanobis": {"gaussian": "single"}}),
        "LaRD: whitened, kNN at unit norm": Settings(methods={"lard_knn": {"protocol": code}}),
        "LaRD without PCA": Settings(methods={name: {"components": None} for name in LARD}),
        "τ: mean − 1.645 σ": Settings(threshold_rule="gaussian"),
        "matching, AP_U by confidence": Settings(protocol=code),
    }
    if t_star is not None:
        found[f"t* {t_star}"] = Settings(rule=t_star)
    everything: dict[str, dict[str, Any]] = {name: {"protocol": code} for name in PAPER}
    everything |= {"knn": {"protocol": code, "k": k}, "lard_knn": {"protocol": code, "k": k}}
    found["published code"] = Settings({"protocol": code}, everything, t_star, "gaussian", code)
    return found


class Demo:
    """A finished demo, and regions of its detectors under other parameters.

    Args:
        project: Its folder, with `params.yaml` and `artifacts`.
        work: Folder for the regions.
        ood_split: The OOD split that is measured.
    """

    def __init__(self, project: Path, work: Path, ood_split: str):
        self.project = project
        self.work = work
        self.ood_split = ood_split
        self.params = project / "params.yaml"
        self.artifacts = project / "artifacts"
        self.roots = image_roots(
            section("datasets", file=self.params), self.artifacts / "tables", project
        )
        self.splits = work / "splits"
        for split in ("train", "val", "test", ood_split):
            self.splits.mkdir(parents=True, exist_ok=True)
            link = self.splits / split
            if not link.exists():
                link.symlink_to((self.artifacts / "splits" / "voc" / split).resolve())

    def objects(self, split: str) -> Objects:
        """Ground truth of a split."""
        return Objects.read(self.splits / split / "objects.parquet")

    def regions(self, run: str, changed: Mapping[str, Any]) -> Path:
        """Folder of the regions of a run whose detector has other parameters."""
        entry = section("detectors", run, file=self.params)
        params = {**entry.get("params", {}), **changed}
        detector: Any = detectors.create(
            entry["adapter"], weights=self.project / entry["weights"], **params
        )
        name = "-".join([run, *(f"{key}={value}" for key, value in changed.items())])
        inference = InferenceParams(**section("inference", file=self.params))
        out, unfinished = self.work / "regions" / name, self.work / "unfinished" / name
        infer_splits(
            detector,
            self.splits,
            self.roots,
            out,
            unfinished,
            inference,
            progress=False,
            log=lambda line: None,
        )
        return out


class Measured:
    """Metrics of a run's methods under settings; methods are fitted once per set of parameters."""

    def __init__(self, demo: Demo, run: str):
        self.demo = demo
        self.run = run
        self._fitted: dict[str, tuple[methods.Method, float]] = {}

    def metrics(self, settings: Settings) -> dict[str, dict[str, float]]:
        """{method: {metric: value}} of the methods that apply."""
        folder = self.demo.regions(self.run, settings.detector)
        demo_rule = section("threshold", file=self.demo.params)["rule"]
        rule = demo_rule if settings.rule is None else settings.rule
        operating = operating_threshold.choose(
            self.demo.objects("val"), _read(folder / "val"), rule
        )["threshold"]
        run = RunRegions(folder, operating)
        known, unknown = (_read(folder / s).above(operating) for s in ("test", self.demo.ood_split))
        found = {}
        for name in PAPER:
            method = methods.create(name, **settings.of_method(name))
            if method.missing(known):
                continue
            key = (
                f"{folder} {operating} {settings.threshold_rule} {name} {settings.of_method(name)}"
            )
            if key not in self._fitted:
                fit_method(method, run)
                self._fitted[key] = method, _tau(method, run, settings)
            method, tau = self._fitted[key]
            found[name] = self._evaluate(
                settings, method.score(known), unknown, method.score(unknown), tau
            )
        return found

    def _evaluate(
        self,
        settings: Settings,
        id_scores: np.ndarray,
        regions: Regions,
        scores: np.ndarray,
        tau: float,
    ) -> dict[str, float]:
        objects, classes = self.demo.objects(self.demo.ood_split), regions.header.known_classes
        separation = ood.evaluate(id_scores, scores[not_of_known(objects, regions, classes)])
        flagged = open_set.evaluate(
            objects,
            regions,
            scores < tau,
            0.5,
            settings.protocol,
            unknown_score=-scores,
            known_classes=classes,
        )
        return {name: {**separation, **flagged}[name] for name in METRICS}


def _tau(method: methods.Method, run: RunRegions, settings: Settings) -> float:
    """The method's own threshold, or the one that keeps 95% of the ID validation detections."""
    if method.fixed_threshold is not None:
        return method.fixed_threshold
    return methods.threshold(method.score(run.calibration), rule=settings.threshold_rule)


def _read(folder: Path) -> Regions:
    return Regions.concatenate(list(RegionsFolder(folder).batches()))


def rows(measured: Measured, adapter: str) -> Iterator[str]:
    """Rows of the table of one run."""
    found = {point: measured.metrics(settings) for point, settings in points(adapter).items()}
    for method, paper in found["paper"].items():
        for point, of_point in found.items():
            values = of_point[method]
            change = max(abs((values[name] or 0) - (paper[name] or 0)) for name in METRICS)
            if point in ("paper", "published code") or change >= SMALLEST:
                before = {} if point == "paper" else paper
                shown = (_shown(values[name], before.get(name)) for name in METRICS)
                yield f"| {method if point == 'paper' else ''} | {point} | {' | '.join(shown)} |"


def _shown(value: float | None, before: float | None) -> str:
    """A value; empty if it is the one before."""
    if value is None:
        return "–"
    return f"{value:.3f}" if before is None or abs(value - before) >= SMALLEST else ""


def main() -> None:
    """Prints a table per run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--project", type=Path, default=Path(), help="folder of a finished demo")
    parser.add_argument(
        "--work", type=Path, default=Path("artifacts/.work/protocols"), help="folder for regions"
    )
    parser.add_argument("--split", default="coco_near", help="OOD split of benchmark voc")
    parser.add_argument(
        "--runs", nargs="*", default=["voc-faster_rcnn", "voc-yolov8", "voc-rtdetr"]
    )
    options = parser.parse_args()
    demo = Demo(options.project, options.work, options.split)
    for run in options.runs:
        adapter = section("detectors", run, "adapter", file=demo.params)
        print(f"\n### {run}, {options.split}\n\n| method | | {' | '.join(METRICS.values())} |")
        print(f"| --- | --- |{' ---: |' * len(METRICS)}")
        for row in rows(Measured(demo, run), adapter):
            print(row, flush=True)


if __name__ == "__main__":
    main()
