"""Runs whose self-awareness is evaluated: a small one to work out by hand, and a random one."""

import shutil

import numpy as np
import pytest

from farther.evaluation.files import Roles, RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import SelfAwarenessResults
from farther.evaluation.self_aware_run import SelfAwareRun
from farther.evaluation.self_awareness import evaluate_self_awareness
from farther.evaluation.settings import EvaluationSettings
from farther.tables import Images, Objects, Regions

FIRST = (0, 0, 100, 100)
SECOND = (200, 0, 300, 100)
NOWHERE = (700, 700, 800, 800)

#: Roles of the splits of `shifted_run`.
ROLES = Roles(["far"], {"c1": 1, "c5": 5}, "pseudo_ood")


def write_split(
    files: RunFiles, split: str, objects: Objects, regions: Regions, names: list[str]
) -> None:
    """Writes images, objects and regions of a split."""
    count = len(names)
    sides = np.full(count, 900)
    images = Images(
        image_id=names,
        dataset=["d"] * count,
        file=names,
        width=sides,
        height=sides,
        digest=["0"] * count,
    )
    images.write(files.images(split))
    objects.write(files.objects(split))
    regions.write(files.regions(split))


def write_threshold(files: RunFiles, threshold: float) -> None:
    files.threshold.parent.mkdir(parents=True)
    files.threshold.write_text(f'{{"threshold": {threshold}}}')


def evaluate_small(files: RunFiles, tested=("far",), **settings) -> SelfAwarenessResults:
    """Self-awareness of `small_run`, without replicates unless the settings say so."""
    chosen = EvaluationSettings(**{"replicates": 0, **settings})
    return evaluate_self_awareness(RunInputs(files, Roles(list(tested)), chosen))


def inputs(files: RunFiles, **settings) -> RunInputs:
    """Inputs of `shifted_run`."""
    return RunInputs(files, ROLES, EvaluationSettings(**{"replicates": 100, **settings}))


def evaluate_shifted(files: RunFiles, **settings) -> SelfAwarenessResults:
    """Self-awareness of `shifted_run`."""
    return evaluate_self_awareness(inputs(files, **settings))


@pytest.fixture
def small_run(tmp_path, objects, regions):
    """Two ID images, three OOD images; no shifted ones."""
    files = RunFiles("r", "voc", tmp_path)
    known = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    id_regions = regions(
        ("i1", FIRST, 0.9, "cat"), ("i2", FIRST, 0.7, "dog"), ("i2", NOWHERE, 0.1, "dog")
    )
    for split in ("val", "test"):
        write_split(files, split, known, id_regions, ["i1", "i2"])

    unknown = objects(("o1", FIRST, "fox"), ("o2", FIRST, "bear"))
    ood_regions = regions(
        ("o1", FIRST, 0.8), ("o1", SECOND, 0.6), ("o2", FIRST, 0.2), ("o2", NOWHERE, 0.3)
    )
    write_split(files, "far", unknown, ood_regions, ["o1", "o2", "o3"])
    write_threshold(files, 0.5)
    return files


@pytest.fixture(scope="session")
def shifted_run(tmp_path_factory, world, objects, regions):
    """A run with shifted splits, with fewer and less certain detections, and pseudo-OOD images.

    In one image of the split `c5` nothing is detected. Tests that change it take `changed_run`.
    """
    files = RunFiles("r", "voc", tmp_path_factory.mktemp("shifted") / "artifacts")
    val_objects, val_regions = world(0, images=60)
    test_objects, test_regions = world(1, images=60)
    mild = test_regions.with_columns(score=test_regions.score * 0.9)
    strong = test_regions.with_columns(score=test_regions.score * 0.5)[::2]
    strong = strong[strong.image_id != strong.image_id[0]]
    _write_world(files, "val", val_objects, val_regions)
    _write_world(files, "test", test_objects, test_regions)
    _write_world(files, "c1", test_objects, mild)
    _write_world(files, "c5", test_objects, strong)

    names = sorted(set(val_objects.image_id))
    on_objects = val_regions[np.isin(val_regions.image_id.astype(str), names)]
    pseudo_ood = on_objects.with_columns(score=on_objects.score * 0.3)
    write_split(files, "pseudo_ood", objects(), pseudo_ood, names)

    images = [f"o{number}" for number in range(30)]
    foxes = objects(*[(name, FIRST, "fox") for name in images])
    rows = [(name, FIRST, 0.1 + number / 50) for number, name in enumerate(images)]
    write_split(files, "far", foxes, regions(*rows, classes=test_regions.classes), images)
    write_threshold(files, 0.1)
    return files


@pytest.fixture
def changed_run(shifted_run, tmp_path):
    """A copy of `shifted_run` that a test may change."""
    root = shutil.copytree(shifted_run.root, tmp_path / "artifacts")
    return RunFiles("r", "voc", root)


@pytest.fixture(scope="session")
def run(shifted_run):
    """Self-awareness of `shifted_run`, step by step."""
    return SelfAwareRun(inputs(shifted_run))


@pytest.fixture(scope="session")
def shifted_results(shifted_run):
    """Results of self-awareness of `shifted_run`."""
    return evaluate_shifted(shifted_run)


def _write_world(files: RunFiles, split: str, objects: Objects, regions: Regions) -> None:
    names = sorted(set(objects.image_id) | set(regions.image_id))
    write_split(files, split, objects, regions, names)
