"""Fixture `deploy`: a small run of one of the demo's detectors, and bundles of its methods."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.support.evaluations import evaluation_of

from farther import detectors
from farther.detectors.inference import InferenceParams
from farther.detectors.passes import infer_passes, read_passes
from farther.detectors.proposal_sources import read_sources, selections
from farther.detectors.split_inference import infer_splits
from farther.evaluation.files import RunFiles
from farther.evaluation.results import RunDescription, write_results
from farther.evaluation.threshold import StoredTau
from farther.images.plan import Plan
from farther.methods.loading import read_method
from farther.methods.tau import threshold
from farther.metrics.self_awareness import image_uncertainty
from farther.metrics.self_awareness.calibration import Linear
from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.monitor import BundleSource, Chosen, Monitor, ProposalChoice, write_bundle
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
        row = rng.integers(height)
        column = rng.integers(width)
        radius = rng.integers(6, 24)
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
    proposals: dict[str, ProposalChoice] = field(default_factory=dict)

    @property
    def files(self) -> RunFiles:
        return RunFiles("run", "drawn", self.folder / "artifacts")

    def source(self, method: str) -> BundleSource:
        entry = read_entry(method, self.methods[method], self.methods)
        return BundleSource(self.files, self.entry, entry, INFERENCE)

    def bundle(self, method: str, proposals: str | None = None, **options: Any) -> Path:
        """A bundle with the thresholds of the run, and with proposals of a source.

        Args:
            method: The method.
            proposals: The source.
            options: Of `write_bundle`.
        """
        source = self.source(method)
        if proposals is not None:
            thresholds = source.thresholds
            source = replace(
                source, chosen=Chosen(*thresholds, proposals=self.proposals[proposals])
            )
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
        pass_name = read_entry(method, self.methods[method]).pass_name
        folder = self.files.regions("val")
        if pass_name is not None:
            folder = self.folder / f"artifacts/passes/run/{pass_name}/val"
        regions = Regions.read(folder)
        scores = Scores.read(self.files.scores(method, "val")).score
        is_confident = regions.score >= self.operating
        return regions[is_confident], scores[is_confident]


def make(
    folder: Path,
    entry: dict[str, Any],
    methods: dict[str, dict[str, Any]],
    operating: float,
    further: tuple[str, ...] = (),
) -> Deployed:
    """Writes random images and runs the pipeline's stages on them.

    Args:
        folder: The project.
        entry: Entry of the run in params.yaml.
        methods: Entries of the methods.
        operating: t*.
        further: Splits beside `train` and `val`.
    """
    deployed = Deployed(folder, entry, methods, operating)
    for index, split in enumerate(("train", "val", *further)):
        write_split(folder, split, first_scene=100 * index)
    detector = detectors.create(entry["adapter"], weights=entry["weights"], **entry["params"])
    run_detector(deployed, detector)
    run_methods(deployed)
    write_json(deployed.files.threshold, {"threshold": operating, "settings": {"split": "val"}})
    write_self_awareness(deployed, detector)
    return deployed


def write_split(folder: Path, split: str, first_scene: int) -> None:
    """Writes a split of ten scenes without objects, and its images."""
    (folder / split).mkdir(exist_ok=True)
    columns: dict[str, list[Any]] = {
        "image_id": [],
        "dataset": [],
        "file": [],
        "width": [],
        "height": [],
        "digest": [],
    }
    for number in range(first_scene, first_scene + 10):
        pixels = scene(number)
        height, width, _ = pixels.shape
        Image.fromarray(pixels).save(folder / split / f"{number}.png")
        columns["image_id"].append(f"{split}-{number}")
        columns["dataset"].append("drawn")
        columns["file"].append(f"{split}/{number}.png")
        columns["width"].append(width)
        columns["height"].append(height)
        columns["digest"].append("")

    tables = folder / "artifacts/splits/drawn" / split
    Images(**columns).write(tables / "images.parquet")
    Objects.empty().write(tables / "objects.parquet")


def run_detector(deployed: Deployed, detector: detectors.Detector) -> None:
    """Stores the regions of all splits, and those of the run's passes."""
    artifacts = deployed.folder / "artifacts"
    splits = artifacts / "splits/drawn"
    roots = {"drawn": deployed.folder}
    regions = artifacts / "regions/run"
    classes = deployed.entry.get("classes")
    infer_splits(
        detector,
        splits,
        roots,
        regions,
        artifacts / ".work/r",
        INFERENCE,
        classes=classes,
        progress=False,
        log=_discard,
    )
    infer_passes(
        detector,
        read_passes("run", deployed.entry.get("passes")),
        splits,
        roots,
        regions,
        artifacts / "passes/run",
        artifacts / ".work/p",
        INFERENCE,
        classes=classes,
        log=_discard,
    )


def run_methods(deployed: Deployed) -> None:
    """Fits the methods, and writes their scores and τ."""
    artifacts = deployed.folder / "artifacts"
    regions = artifacts / "regions/run"
    passes = artifacts / "passes/run"
    fitted = deployed.files.all_fitted
    methods = deployed.methods
    entries = [read_entry(name, values, methods) for name, values in methods.items()]
    fit_run(
        entries,
        RunRegions(regions, deployed.operating, passes=passes),
        fitted,
        dict.fromkeys(deployed.methods, ""),
    )
    score_run(regions, passes, fitted, artifacts / "scores/run", lambda method: "")
    for entry in applicable(fitted, read_entries(fitted)):
        write_tau(deployed.files, entry.name, deployed.operating)


def write_self_awareness(deployed: Deployed, detector: detectors.Detector) -> None:
    """Writes calibrators, and the median uncertainty of the images as the threshold to refuse."""
    known = detector.header().known_classes
    calibrators = {name: Linear(0.7, 0.1 / (k + 1)) for k, name in enumerate(known)}
    uncertainty = image_uncertainty.of_confidence(
        Regions.read(deployed.files.regions("val")), list(deployed.images().image_id)
    )
    median = float(np.sort(uncertainty)[len(uncertainty) // 2])
    self_aware = SelfAwareDetector(dict.fromkeys(known, 0.3), calibrators, median)
    evaluation = evaluation_of(self_awareness={"detector": self_aware})
    write_results(deployed.files.description, RunDescription.of(evaluation))


def _discard(_line: str) -> None:
    """A log that nobody reads."""


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
    """Infers the proposals of a source, and keeps the threshold that was chosen for them."""
    artifacts = deployed.folder / "artifacts"
    entry = deployed.entry
    detector = detectors.create(entry["adapter"], weights=entry["weights"], **entry["params"])
    sources = read_sources("run", {name: entry["proposals"][name]})
    infer_splits(
        detector,
        artifacts / "splits/drawn",
        {"drawn": deployed.folder},
        artifacts / "regions/run",
        artifacts / ".work/r",
        INFERENCE,
        classes=entry.get("classes"),
        proposals=(artifacts / "proposals/run", selections("run", sources, detector)),
        progress=False,
        log=_discard,
    )
    deployed.proposals[name] = ProposalChoice(name, threshold, iou=0.5)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """PyTorch on one thread, as in the pipeline."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
