"""A run in miniature with an ID split and an OOD split, and its evaluation."""

import json

import numpy as np
import pytest
from tests.support.fitting import list_methods, write_fitted

from farther.evaluation import evaluate as evaluation
from farther.evaluation import files as run
from farther.evaluation.inputs import RunInputs
from farther.evaluation.settings import EvaluationSettings
from farther.scoring.inputs import TauSettings
from farther.tables import Images, Scores

FIRST = [0, 0, 100, 100]
SECOND = [200, 0, 300, 100]
NOWHERE = [700, 700, 800, 800]


@pytest.fixture
def files(tmp_path, objects, regions):
    """A run with an ID split and an OOD split, where method `msp` applies and `vim` does not."""
    return write_run(tmp_path, objects, regions)


@pytest.fixture(scope="session")
def evaluated_run(tmp_path_factory, objects, regions):
    """The same run and its evaluation by `evaluate`, for tests that change no file."""
    files = write_run(tmp_path_factory.mktemp("evaluated"), objects, regions)
    return files, evaluate(files)


def write_run(folder, objects, regions):
    """Writes the run of `files` into a folder."""
    files = run.RunFiles("r", "voc", folder)
    id_objects = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    id_regions = regions(
        ("i1", FIRST, 0.9, "cat"), ("i2", FIRST, 0.7, "dog"), ("i2", NOWHERE, 0.1, "dog")
    )
    ood_objects = objects(("o1", FIRST, "fox"), ("o1", SECOND, "fox"), ("o2", FIRST, "bear"))
    ood_regions = regions(
        ("o1", FIRST, 0.8), ("o1", SECOND, 0.6), ("o2", FIRST, 0.2), ("o2", NOWHERE, 0.3)
    )
    for split, table, found in (("val", id_objects, id_regions), ("test", id_objects, id_regions)):
        write_split(files, split, table, found)
    write_split(files, "far", ood_objects, ood_regions, extra="o3")
    write_json(files.threshold, {"threshold": 0.5, "rule": 0.5})
    write_fitted(
        files.all_fitted,
        {"msp": {"fixed_threshold": 0.65}, "vim": {"not_applicable": "there are no features"}},
    )
    write_scores(files, "msp", "test", id_regions, [0.9, 0.7, 0.1])
    # Shuffled rows: the join is by image and region, not by place.
    write_scores(files, "msp", "far", ood_regions[[3, 1, 0, 2]], [0.3, 0.6, 0.8, 0.2])
    return files


def write_split(files, split, objects, regions, extra=None):
    names = sorted({*objects.image_id, *([extra] if extra else [])})
    count = len(names)
    Images(
        image_id=names,
        dataset=["d"] * count,
        file=names,
        width=np.full(count, 900),
        height=np.full(count, 900),
        digest=["0"] * count,
    ).write(files.images(split))
    objects.write(files.objects(split))
    regions.write(files.regions(split))


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_scores(files, method, split, regions, scores):
    table = Scores(image_id=regions.image_id, region_id=regions.region_id, score=scores)
    table.write(files.scores(method, split))


def evaluated(files, methods, splits, settings):
    list_methods(files.all_fitted, methods)
    return evaluated_inputs(RunInputs(files, run.Roles(splits), settings))


def evaluated_inputs(inputs):
    results, _ = evaluation.evaluate_run(inputs, TauSettings(), evaluation.EvaluationCode(""))
    return results


def evaluate(files, methods=("msp", "vim")):
    return evaluated(files, methods, ["far"], EvaluationSettings(replicates=100))
