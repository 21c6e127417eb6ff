"""The data of the dial: a browser counts from them what the metrics count, at every stop."""

import base64
import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from pydantic_core import to_jsonable_python
from tests.support.fitting import write_fitted

from farther.evaluation.deploy import dial
from farther.evaluation.deploy.choose import write_choice
from farther.evaluation.deploy.dial import DialData, dial_data
from farther.evaluation.deploy.results import Budget
from farther.evaluation.deploy.steps import IdImages
from farther.evaluation.files import RunFiles, RunSplit
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import FittedMethod
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.tau import Calibration
from farther.metrics.open_set.outcomes import FOUND, MISCLASSIFIED, MISSED
from farther.metrics.open_set.proposals import apart_from_detections, finders
from farther.scoring.inputs import TauSettings
from farther.tables import Images, Objects, Regions, Scores
from farther.tables.documents import write_json
from farther.tables.schema import read_typed

CLASSES = ("cat", "dog")
#: Split → categories of its objects.
SPLITS = {
    "val": ("cat", "dog"),
    "test": ("cat", "dog"),
    "far": ("fox", "cat"),
    "near": ("elk", "owl", "dog"),
}
METHODS = ("one", "two")
IMAGES = 12


def lay(root: Path) -> Path:
    """A run whose objects, detections and proposals overlap each other; returns the artifacts."""
    artifacts = root / "artifacts"
    random = np.random.default_rng(5)
    for split, categories in SPLITS.items():
        _lay_split(artifacts, split, categories, random)
    roles = {"test": ["far", "near"]}
    write_json(artifacts / "splits/b/roles.json", roles)
    write_json(artifacts / "thresholds/r.json", {"threshold": 0.42})
    fitted = {name: {"name": "msp"} for name in METHODS}
    write_fitted(artifacts / "fitted/r", fitted)
    return artifacts


def _lay_split(artifacts: Path, split: str, categories, random) -> None:
    names = np.array([f"{split}{number:02}" for number in range(IMAGES)], dtype=object)
    sides = np.full(IMAGES, 100)
    folder = artifacts / "splits/b" / split
    Images(
        image_id=names, dataset=["d"] * IMAGES, file=names, width=sides, height=sides, digest=names
    ).write(folder / "images.parquet")

    object_image = np.repeat(names, 4)
    objects = _boxes(len(object_image), random)
    Objects(
        image_id=object_image,
        object_id=np.arange(len(object_image)),
        box=objects,
        category=random.choice(categories, len(object_image)).tolist(),
        is_crowd=random.random(len(object_image)) < 0.1,
        is_difficult=random.random(len(object_image)) < 0.1,
    ).write(folder / "objects.parquet")

    # Detections lie near objects, so that several choose one, and one may choose several.
    of_object = np.sort(random.integers(0, len(objects), 110))
    image = object_image[of_object]
    keys = {"image_id": image, "region_id": _number_in_image(image)}
    confidence = np.round(random.uniform(0.1, 1, len(image)), 1)  # with ties
    regions = Regions(
        **keys,
        box=np.maximum(objects[of_object] + random.integers(-1, 2, (len(image), 4)), 0),
        score=confidence,
        label=random.integers(0, 2, len(image)),
        logits=np.stack([confidence, 1 - confidence], axis=1),
        classes=CLASSES,
    )
    regions.write(artifacts / "regions/r" / split)
    for method in METHODS:
        scores = Scores(**keys, score=np.round(random.normal(size=len(image)), 2))
        scores.write(artifacts / "scores/r" / method / f"{split}.parquet")

    image = np.repeat(names, 3)
    Regions(
        image_id=image,
        region_id=_number_in_image(image),
        box=objects[:: len(objects) // len(image)][: len(image)],
        score=np.round(random.random(len(image)), 2),
        label=np.zeros(len(image)),
        logits=np.zeros((len(image), 1)),
        classes=("object",),
    ).write(artifacts / "proposals/r/boxes" / split)


def _boxes(count: int, random) -> np.ndarray:
    corner = random.integers(0, 12, (count, 2))
    return np.hstack([corner, corner + random.integers(8, 14, (count, 2))]).astype(float)


def _number_in_image(image: np.ndarray) -> np.ndarray:
    first_row = {name: row for row, name in reversed(list(enumerate(image)))}
    return np.array([row - first_row[name] for row, name in enumerate(image)])


def inputs_of(artifacts: Path, **settings) -> RunInputs:
    run_files = RunFiles("r", "b", artifacts)
    return RunInputs(run_files, run_files.roles, EvaluationSettings(replicates=100, **settings))


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory) -> Path:
    return lay(tmp_path_factory.mktemp("dial"))


def written(artifacts: Path, source="boxes", **settings) -> tuple[RunInputs, DialData]:
    """Writes choices and data of the dial, and reads the latter."""
    inputs = inputs_of(artifacts, **settings)
    budget = Budget(max_false_alarms=0.25, guarantee="none")
    write_choice(inputs, budget, TauSettings(keep=0.9), source=source)
    return inputs, read_typed(DialData, inputs.files.dial)


def expected(inputs: RunInputs, data: DialData, setting) -> dict[str, int]:
    """What the metrics count at a setting."""
    operating = data.operating[setting["operating"]]
    tau = data.methods[setting["method"]].taus[setting["tau"]]
    objectness = np.inf
    if setting["objectness"] >= 0 and setting["operating"] == data.own:
        objectness = data.objectness[setting["objectness"]]

    counts = dict.fromkeys(("found", "byProposals", "misclassified", "missed", "objects"), 0)
    for split in inputs.tested:
        rows = split.regions().score >= operating
        scores = inputs.scores(setting["method"], split)[rows]
        open_set = split.stored_open_set.keeping(rows)
        outcome = open_set.match(scores < tau).of_object
        proposals = Regions.read(inputs.files.proposals("boxes", split.name))
        _, finder = finders(
            split.objects, split.regions().above(operating), proposals, split.matching_rules
        )
        found_by = np.append(proposals.score.astype(float), -np.inf)[finder]
        is_recovered = (outcome == MISSED) & (found_by > objectness)
        counts["byProposals"] += int(is_recovered.sum())
        counts["found"] += int(np.sum((outcome == FOUND) | is_recovered))
        counts["misclassified"] += int(np.sum(outcome == MISCLASSIFIED))
        counts["missed"] += int(np.sum((outcome == MISSED) & ~is_recovered))
        counts["objects"] += int(open_set.is_counted.sum())

    split = inputs.id_split
    steps = IdImages(inputs, split).steps(setting["method"], operating)
    alarmed = set(steps.flagged.below(tau).image)
    proposals = Regions.read(inputs.files.proposals("boxes", split.name))
    is_beside = apart_from_detections(proposals, split.regions().above(operating))
    called = proposals.image_id[is_beside & (proposals.score > objectness)]
    alarmed |= set(np.searchsorted(sorted(split.images), called.astype(str)))
    counts["alarms"] = len(alarmed)
    counts["images"] = len(split.images)
    counts["known"] = len(steps.lost.at)
    counts["lost"] = len(steps.lost.below(tau).at)
    return counts


def counted(tab, tmp_path: Path, data: DialData, settings) -> list[dict[str, int]]:
    """What the page's script counts at each setting."""
    script = files("farther.report").joinpath("static/dial-data.js").read_text()
    page = tmp_path / "page.html"
    page.write_text(f"<script>{script}</script>")
    tab.goto(page.as_uri())
    texts = json.dumps(to_jsonable_python(data))
    tab.evaluate(f"globalThis.data = dial.unpackAll({texts}), true")
    return tab.evaluate(f"{json.dumps(settings)}.map((one) => dial.countsOf(data, one))")


def random_settings(data: DialData, count: int) -> list[dict]:
    random = np.random.default_rng(3)
    settings = []
    for name, method in data.methods.items():
        settings.append(
            {
                "method": name,
                "operating": data.own,
                "tau": method.own[data.own],
                "objectness": -1,
            }
        )
        for number in range(count):
            operating = int(random.integers(len(data.operating)))
            if number % 2:
                operating = data.own
            settings.append(
                {
                    "method": name,
                    "operating": operating,
                    "tau": int(random.integers(len(method.taus))),
                    "objectness": int(random.integers(-1, len(data.objectness))),
                }
            )
    return settings


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
def test_the_browser_counts_what_the_metrics_count_at_every_stop(
    artifacts, tab, tmp_path, protocol
):
    inputs, data = written(artifacts, protocol=protocol)
    settings = random_settings(data, 30)
    counts = counted(tab, tmp_path, data, settings)
    assert counts == [expected(inputs, data, setting) for setting in settings]
    # The settings differ in all that is counted.
    for name in ("found", "byProposals", "misclassified", "missed", "alarms", "lost"):
        assert len({one[name] for one in counts}) > 2, name


def test_the_stops_hold_the_thresholds_of_the_pipeline_and_of_all_choices(artifacts):
    inputs, data = written(artifacts)
    settings = TauSettings(keep=0.9)
    assert data.operating[data.own] == inputs.threshold == 0.42
    assert {0.2, 0.5, 0.95} <= set(data.operating)
    for name, method in data.methods.items():
        assert method.taus == sorted(set(method.taus))
        assert len(method.taus) <= dial.STOPS
        own = Calibration(inputs, settings).tau_of(name, FittedMethod(name="msp")).threshold
        assert method.taus[method.own[data.own]] == own

        validation = RunSplit(inputs.files, "val")
        at_half = inputs.scores(name, validation)[validation.regions().score >= 0.5]
        tau = method.taus[method.own[data.operating.index(0.5)]]
        assert np.mean(at_half >= tau) >= 0.9


def test_each_limit_of_the_dial_is_what_choosing_for_it_gives(artifacts):
    inputs = inputs_of(artifacts)
    budget = Budget(max_false_alarms=0.25, guarantee="none")
    choices = write_choice(inputs, budget, source="boxes")
    limits = [stop.limit for stop in choices.dial]
    assert limits == sorted(limits)
    assert {0.01, 0.25, 0.3} <= set(limits)
    for stop in choices.dial:
        if stop.limit == 0.25:
            assert stop.choice == choices.choice
        if stop.limit in (0.1, 0.3):
            of_limit = Budget(max_false_alarms=stop.limit, guarantee="none")
            alone = write_choice(inputs, of_limit, source="boxes").choice
            assert stop.choice == replace(alone, by_split={}, folds=())


def test_large_data_are_a_sample_of_images_whose_number_is_kept(artifacts, monkeypatch):
    made = []

    def recording(source, largest=dial.LARGEST):
        made.append(source)
        return dial_data(source, largest)

    monkeypatch.setattr("farther.evaluation.deploy.choose.dial_data", recording)
    _, whole = written(artifacts)
    size = len(json.dumps(to_jsonable_python(whole)))
    sample = dial_data(made[0], largest=int(0.9 * size))
    assert len(json.dumps(to_jsonable_python(sample))) <= 0.9 * size
    assert whole.ood_images.of == sample.ood_images.of == len(whole.ood_images.names) == 2 * IMAGES
    assert len(sample.ood_images.names) < 2 * IMAGES
    assert set(sample.id_images.names) < set(whole.id_images.names)
    images = np.frombuffer(base64.b64decode(sample.object_image), dtype="<u4")
    assert images.max() < len(sample.ood_images.names)
    assert sample.operating == whole.operating


def test_without_a_choice_there_are_no_data_of_an_earlier_one(artifacts, monkeypatch):
    inputs, _ = written(artifacts)
    monkeypatch.setattr(
        "farther.evaluation.deploy.choose._Chooser._why_nothing_can_be_chosen", lambda self: "so"
    )
    choices = write_choice(inputs, Budget(max_false_alarms=0.25))
    assert choices.dial == []
    assert not inputs.files.dial.exists()
