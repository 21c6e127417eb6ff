"""A changed copy of a project gives what a fresh project gives: no result that is kept is stale.

One change at a time of a key of params.yaml or of an input file. Stages run in this process, all of
them, so that keys alone decide what is kept; which stages DVC starts is compared in `test_declared`
and `test_pipeline`.
"""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.stages.in_process import OF_RUN, run
from tests.stages.test_imported_run import FAR, KNOWN, as_results, draw
from tests.support.cases import SEED
from tests.support.extensions import forget_extensions

from farther.incremental.keyed import content_digest
from farther.tables import Images, Objects

RUNS = ("first", "second")
INFER = tuple(f"infer {name}" for name in RUNS)
STAGES = (
    "code_digests",
    *INFER,
    *(f"{stage} {name}" for name in RUNS for stage in OF_RUN),
    "report",
)

#: Another valid value of each key.
PARAMS = {
    "inference.shard_images": 3,
    "threshold.rule": "best_f1",
    "threshold.tolerance": 0.1,
    "threshold.split": "test",
    "fit.split": "val",
    "fit.calibration_split": "test",
    "fit.keep": 0.7,
    "fit.threshold_rule": "gaussian",
    "fit.labels": "annotated",
    "fit.max_regions": 9,
    "fit.seed": 3,
    "methods.knn.k": 2,
    "methods.energy.temperature": 3.0,
    "methods.react.percentile": 80,
    "methods.knn.fit_on": "val",
    "methods.knn.runs": ["first"],
    "evaluate.iou": 0.7,
    "evaluate.protocol": "published-code",
    "evaluate.aupr": "trapezoid",
    "evaluate.separation": ["uu"],
    "evaluate.replicates": 120,
    "evaluate.drawn_images": 3,
    "evaluate.seed": 5,
    "evaluate.comparisons": "single",
    "evaluate.kept": [0.9, 0.95],
    "evaluate.confidences": [0.4],
    "evaluate.supercategories": {"fox": "canine"},
    "evaluate.self_awareness.aggregate": "top-2",
    "evaluate.proposals.alarms": 0.5,
    "evaluate.proposals.rates": [0.3],
    "evaluate.user_defined": {},
    "deploy.max_false_alarms": 0.4,
    "detectors.first.classes": {"cat": "dog", "dog": "cat"},
    "detectors.first.title": "Another title",
    "detectors.first.threshold": {"rule": 0.3},
    "detectors.first.proposals.second.iou": 0.3,
    "benchmarks.pets.title": "Animals",
    "report.few": 3,
}


def rewrite_json(file: Path, edit: Callable[[list], object]) -> None:
    content = json.loads(file.read_text())
    edit(content)
    file.write_text(json.dumps(content))


def other_logits(project: Path) -> None:
    """Logits alone change: no box, no score, no label."""
    rewrite_json(
        project / "first.json",
        lambda rows: rows[0].update(logits=[z + 3 for z in rows[0]["logits"]]),
    )


def other_features(project: Path) -> None:
    rewrite_json(project / "first.json", lambda rows: rows[0].update(features=[5.0, -4.0, 2.0]))


def other_box(project: Path) -> None:
    rewrite_json(project / "second.json", lambda rows: rows[-1].update(bbox=[1.0, 1.0, 5.0, 5.0]))


def other_proposals(project: Path) -> None:
    rewrite_json(
        project / "boxes.json",
        lambda rows: rows[-1].update(bbox=[70.0, 5.0, 20.0, 20.0], score=0.99),
    )


def other_objects(project: Path) -> None:
    file = project / "artifacts/splits/pets/far/objects.parquet"
    objects = Objects.read(file)
    objects[1:].write(file)


def other_metric(project: Path) -> None:
    file = project / "extensions/metric.py"
    file.write_text(file.read_text().replace("FACTOR = 1", "FACTOR = 2"))


def other_metric_data(project: Path) -> None:
    (project / "extensions/weights.json").write_text("[0.25]")


def other_helper(project: Path) -> None:
    file = project / "extensions/helper.py"
    file.write_text(file.read_text().replace("SIGN = 1", "SIGN = -1"))


def replaced_scores(project: Path) -> None:
    """Scores of another method in the place of a method's own: valid, and not what was made."""
    for split in ("val", "test", "far"):
        folder = project / "artifacts/scores/first"
        shutil.copy(folder / f"msp/{split}.parquet", folder / f"energy/{split}.parquet")


def replaced_state(project: Path) -> None:
    shutil.rmtree(project / "artifacts/fitted/first/energy")
    shutil.copytree(
        project / "artifacts/fitted/first/msp", project / "artifacts/fitted/first/energy"
    )


def deleted_state(project: Path) -> None:
    (project / "artifacts/fitted/first/knn/state.safetensors").unlink()


def deleted_outcomes(project: Path) -> None:
    shutil.rmtree(project / "artifacts/outcomes/first/knn")


FILES = (
    *(
        other_logits,
        other_features,
        other_box,
        other_proposals,
        other_objects,
        other_metric,
        other_metric_data,
    ),
    *(other_helper, replaced_scores, replaced_state, deleted_state, deleted_outcomes),
)

METRIC = '''
import json
from pathlib import Path

from farther import Metric, register

FACTOR = 1


@register("mean_score")
class MeanScore(Metric):
    """Mean of the scores."""

    def compute(self, case):
        weight = json.loads(Path("extensions/weights.json").read_text())[0]
        return FACTOR * weight * float(case.scores.mean())
'''

BASE = '''
from farther import Method, register

SIGN = 1


@register("width")
class Width(Method):
    """The width of a box."""

    def _score(self, rows):
        box = rows.array("box")
        return SIGN * (box[:, 2] - box[:, 0])
'''

DERIVED = '''
from farther import register

from .helper import Width


@register("double_width")
class DoubleWidth(Width):
    """Twice the width of a box."""

    def _score(self, rows):
        return 2 * super()._score(rows)
'''


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A project without artifacts but for its splits."""
    root = tmp_path_factory.mktemp("inputs")
    first, second, boxes = [], [], []
    for seed, split in enumerate(("train", "val", "test", "far")):
        objects, regions = draw(split, seed)
        names = sorted(set(objects.image_id))
        size = [100] * len(names)
        files = [f"{name}.jpg" for name in names]
        folder = root / "artifacts/splits/pets" / split
        images = Images(
            image_id=names,
            dataset=["d"] * len(names),
            file=files,
            width=size,
            height=size,
            digest=names,
        )
        images.write(folder / "images.parquet")
        objects.write(folder / "objects.parquet")
        first += as_results(regions, "logits", "features")
        second += as_results(regions[::2], "logits", "features")
        boxes += as_results(regions)
    (root / "artifacts/splits/pets/id_classes.json").write_text(json.dumps(KNOWN))
    (root / "artifacts/splits/pets/roles.json").write_text(
        json.dumps({"test": ["far"], "distance": {"far": "far"}})
    )
    for name, rows in (("first", first), ("second", second), ("boxes", boxes)):
        (root / f"{name}.json").write_text(json.dumps(rows))
    (root / "extensions").mkdir()
    (root / "extensions/metric.py").write_text(METRIC)
    (root / "extensions/weights.json").write_text("[0.5]")
    (root / "extensions/helper.py").write_text(BASE)
    (root / "extensions/user.py").write_text(DERIVED)
    reading = {"classes": ["background", *KNOWN], "background_index": 0}
    entry = {"adapter": "coco_results", "benchmark": "pets", "params": reading}
    proposals = {
        "second": {"kind": "second_detector", "run": "second"},
        "boxes": {
            "kind": "imported",
            "file": "boxes.json",
            "adapter": "coco_results",
            "params": reading,
        },
    }
    params = {
        "datasets": {"d": {"format": "coco", "root": "d"}},
        "benchmarks": {"pets": {"id": "d", "rules": "-", "splits": {"far": FAR}}},
        "detectors": {
            "first": {**entry, "weights": "first.json", "proposals": proposals},
            "second": {**entry, "weights": "second.json"},
        },
        "inference": {},
        "threshold": {"rule": 0.4},
        "fit": {},
        "methods": {
            "confidence": {},
            "msp": {},
            "energy": {},
            "knn": {"k": 1},
            "react": {},
            "double_width": {},
        },
        "scoring": {},
        "evaluate": {
            **{
                "replicates": 100,
                "kept": [0.95],
                "confidences": [0.5],
                "user_defined": {"mean_score": {}},
            },
            **{"proposals": {}, "self_awareness": {}},
        },
        "deploy": {"max_false_alarms": 0.02},
        "report": {"examples": 0},
    }
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    return root


@pytest.fixture(scope="module")
def finished(inputs: Path, tmp_path_factory) -> Path:
    """The project with all of its artifacts."""
    root = shutil.copytree(inputs, tmp_path_factory.mktemp("finished") / "project")
    make(root)
    return root


def make(root: Path) -> None:
    forget_extensions()
    run(root, *STAGES)


def set_param(root: Path, place: str, value: object) -> None:
    file = root / "params.yaml"
    params = yaml.safe_load(file.read_text())
    *above, last = place.split(".")
    part = params
    for key in above:
        part = part.setdefault(key, {})
    assert part.get(last) != value
    part[last] = value
    file.write_text(yaml.safe_dump(params))


def results(root: Path) -> dict[str, str]:
    """Digest of each output, without records, which hold keys, and without times."""
    left_out = ("artifacts/records", "artifacts/.work", "artifacts/code.json")
    digests = {}
    for file in sorted((root / "artifacts").rglob("*")):
        name = file.relative_to(root).as_posix()
        if file.is_file() and not name.startswith(left_out):
            digests[name] = content_digest(file)
    return digests


def drawn(count: int) -> list:
    """Some of the changes, in an order of SEED; all of them where FARTHER_TEST_ALL is set."""
    changes = [*FILES, *PARAMS]
    if os.environ.get("FARTHER_TEST_ALL"):
        return changes
    print(f"changes of seed {SEED}: FARTHER_TEST_SEED={SEED} draws the same")
    return random.Random(SEED).sample(changes, count)


@pytest.mark.slow
def test_what_is_kept_after_a_change_is_what_a_fresh_project_makes(
    inputs: Path, finished: Path, tmp_path: Path
):
    before = results(finished)
    for number, change in enumerate(drawn(3)):
        print(number, change)
        changed = shutil.copytree(finished, tmp_path / f"{number}-changed")
        fresh = shutil.copytree(inputs, tmp_path / f"{number}-fresh")
        if isinstance(change, str):
            set_param(changed, change, PARAMS[change])
            set_param(fresh, change, PARAMS[change])
        else:
            change(changed)
            if change.__name__.startswith("other"):
                change(fresh)
        make(changed)
        if isinstance(change, str) or change.__name__.startswith("other"):
            make(fresh)
            expected = results(fresh)
            assert expected != before, f"{change} changes nothing, so it tests nothing"
        else:
            expected = before
        assert results(changed) == expected, change
        shutil.rmtree(changed)
        shutil.rmtree(fresh)
