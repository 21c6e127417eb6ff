"""Fixture `deploy`: a small run of one of the demo's detectors, and bundles of its methods."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support.evaluations import evaluation_of

from farther import detectors
from farther.detectors.inference import InferenceParams, infer_splits
from farther.detectors.passes import infer_passes, read_passes
from farther.detectors.proposals import read_sources, selections
from farther.evaluation.files import RunFiles
from farther.evaluation.proposals import RecoveredRun, SourceResults
from farther.evaluation.results import write_results
from farther.evaluation.threshold import StoredTau
from farther.images.plan import Plan
from farther.methods.loading import read_method
from farther.methods.tau import threshold
from farther.metrics.self_awareness import image_uncertainty
from farther.metrics.self_awareness.calibration import Linear
from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.monitor import BundleSource, Monitor, write_bundle
from farther.scoring.entries import read_entry
from farther.scoring.fit import fit_run
from farther.scoring.fitted import applicable, read_entries
from farther.scoring.inputs import RunRegions
from farther.scoring.score import score_run
from farther.tables import Images, Objects, Regions, Scores
from farther.tables.documents import write_json

DEMO = Path(__file__).parents[2] / "data/demo"
SIZES = ((96, 64), (64, 96), (80, 80))
COLOURS = ((200, 40, 40), (250, 220, 40), (20, 20, 20), (40, 90, 200))
INFERENCE = InferenceParams(batch_size=4, workers=0)


def scene(number: int) -> np.ndarray:
    """Discs and bars on grey, in one of three shapes."""
    rng = np.random.default_rng(number)
    width, height = SIZES[number % len(SIZES)]
    y, x = np.mgrid[:height, :width]
    pixels = np.full((height, width, 3), 200, np.uint8)
    for _ in range(3):
        row, column, radius = rng.integers(height), rng.integers(width), rng.integers(6, 24)
        pixels[(y - row) ** 2 + (x - column) ** 2 < radius**2] = COLOURS[rng.integers(len(COLOURS))]
        pixels[row : row + 3] = COLOURS[rng.integers(len(COLOURS))]
    return pixels


@dataclass
class Deployed:
    """A run whose artifacts are in a folder, and how it was made."""

    folder: Path
    entry: dict[str, Any]
    methods: dict[str, dict[str, Any]]
    operating: float

    @property
    def files(self) -> RunFiles:
        return RunFiles("run", "drawn", self.folder / "artifacts")

    def source(self, method: str) -> BundleSource:
        return BundleSource(
            self.files, self.entry, read_entry(method, self.methods[method]), INFERENCE
        )

    def bundle(self, method: str, proposals: str | None = None, **options: Any) -> Path:
        source = replace(self.source(method), asked_proposals=proposals)
        return write_bundle(source, self.folder / "bundles" / method, **options)

    def monitor(self, method: str, **options: Any) -> Monitor:
        return Monitor.load(self.bundle(method, **options), device="cpu")

    def images(self) -> Images:
        return Images.read(self.files.images("val"))

    def batches(self, split: str = "val") -> list[tuple[list[str], list[Path]]]:
        """Names and files of the pipeline's batches of a split."""
        plan = Plan(Images.read(self.files.images(split)), {"drawn": self.folder}, INFERENCE)
        return [(batch.image_ids, batch.files) for batch in plan.batches(0)]

    def stored(self, method: str) -> tuple[Regions, np.ndarray]:
        """The pipeline's regions of the validation split at or above t*, and their scores."""
        name = read_entry(method, self.methods[method]).pass_name
        folder = (
            self.files.regions("val")
            if name is None
            else self.folder / f"artifacts/passes/run/{name}/val"
        )
        regions, scores = Regions.read(folder), Scores.read(self.files.scores(method, "val"))
        rows = regions.score >= self.operating
        return regions[rows], scores.score[rows]


def make(
    folder: Path,
    entry: dict[str, Any],
    methods: dict[str, dict[str, Any]],
    operating: float,
    further: tuple[str, ...] = (),
) -> Deployed:
    """Writes random images and runs the pipeline's stages on them.

    `further` are splits beside `train` and `val`.
    """
    deployed = Deployed(folder, entry, methods, operating)
    splits = folder / "artifacts/splits/drawn"
    for first, split in enumerate(("train", "val", *further)):
        rows = []
        for number in range(100 * first, 100 * first + 10):
            pixels = scene(number)
            (folder / split).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(folder / split / f"{number}.png")
            rows.append(
                (
                    f"{split}-{number}",
                    "drawn",
                    f"{split}/{number}.png",
                    pixels.shape[1],
                    pixels.shape[0],
                    "",
                )
            )
        names = ("image_id", "dataset", "file", "width", "height", "digest")
        Images(**dict(zip(names, zip(*rows, strict=True), strict=True))).write(
            splits / split / "images.parquet"
        )
        Objects.empty().write(splits / split / "objects.parquet")
    weights = {"weights": entry["weights"]}
    detector = detectors.create(entry["adapter"], **weights, **entry["params"])
    artifacts, log = folder / "artifacts", lambda text: None
    regions, passes = artifacts / "regions/run", artifacts / "passes/run"
    roots = {"drawn": folder}
    names = entry.get("classes")
    infer_splits(
        detector,
        splits,
        roots,
        regions,
        artifacts / ".work/r",
        INFERENCE,
        classes=names,
        progress=False,
        log=log,
    )
    made = read_passes("run", entry.get("passes"))
    infer_passes(
        detector,
        made,
        splits,
        roots,
        regions,
        passes,
        artifacts / ".work/p",
        INFERENCE,
        classes=names,
        log=log,
    )
    files = deployed.files
    entries = [read_entry(name, values) for name, values in methods.items()]
    fit_run(
        entries,
        RunRegions(regions, operating, passes=passes),
        files.all_fitted,
        dict.fromkeys(methods, ""),
    )
    score_run(regions, passes, files.all_fitted, artifacts / "scores/run", lambda method: "")
    for entry in applicable(files.all_fitted, read_entries(files.all_fitted)):
        write_tau(files, entry.name, operating)
    write_json(files.threshold, {"threshold": operating, "settings": {"split": "val"}})
    known = detector.header().known_classes
    calibrators = {name: Linear(0.7, 0.1 / (k + 1)) for k, name in enumerate(known)}
    doubt = image_uncertainty.of_confidence(
        Regions.read(files.regions("val")), list(deployed.images().image_id)
    )
    self_aware = SelfAwareDetector(
        dict.fromkeys(known, 0.3), calibrators, float(np.sort(doubt)[len(doubt) // 2])
    )
    write_results(files.evaluation, evaluation_of(self_awareness={"detector": self_aware}))
    return deployed


def write_tau(files: RunFiles, method: str, operating: float) -> None:
    """Writes τ of a method as the stage `evaluate` does.

    It keeps 70% of the detections at or above t*, unless the method has a threshold of its own.
    """
    own = read_method(files.fitted(method)).get("fixed_threshold")
    regions = Regions.read(files.regions("val"))
    is_used = (regions.score >= operating) & ~regions.is_labelled_unknown
    scores = Scores.read(files.scores(method, "val")).score[is_used]
    if own is None:
        tau = StoredTau(
            threshold=threshold(scores, 0.7), rule="percentile", keep=0.7, regions=len(scores)
        )
    else:
        tau = StoredTau(threshold=own, rule="fixed", keep=None, regions=0)
    write_json(files.tau(method), tau.model_dump())


def propose(deployed: Deployed, name: str, threshold: float) -> None:
    """Infers the proposals of a source, and says which threshold was found for them."""
    artifacts, entry = deployed.folder / "artifacts", deployed.entry
    detector = detectors.create(entry["adapter"], weights=entry["weights"], **entry["params"])
    source = read_sources("run", {name: entry["proposals"][name]})
    folders = (
        artifacts / "splits/drawn",
        {"drawn": deployed.folder},
        artifacts / "regions/run",
        artifacts / ".work/r",
    )
    into = artifacts / "proposals/run", selections("run", source, detector)
    names = entry.get("classes")
    infer_splits(
        detector, *folders, INFERENCE, classes=names, proposals=into, progress=False, log=str
    )
    found = SourceResults(
        kind=source[name].name,
        threshold=threshold,
        alarms=0.2,
        proposals=1,
        splits={},
        distances={},
    )
    write_results(
        deployed.files.recovered, RecoveredRun(asked_alarms=0.2, iou=0.5, sources={name: found})
    )


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """PyTorch on one thread, as in the pipeline."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
