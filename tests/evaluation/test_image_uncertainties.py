"""Image uncertainty by the uncertainty of detections, and accuracy by split."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import bernoulli, entropy, multivariate_normal
from sklearn.metrics import roc_auc_score
from tests.evaluation.self_aware_runs import FIRST, evaluate_shifted, write_split

from farther.evaluation.files import Roles
from farther.evaluation.image_uncertainties import detection_uncertainties
from farther.evaluation.inputs import RunInputs
from farther.evaluation.self_awareness import evaluate_self_awareness
from farther.evaluation.settings import EvaluationSettings
from farther.metrics import closed_set, self_awareness
from farther.metrics.matching import above_of_class
from farther.tables import Images, Objects, Regions, RegionsFolder

#: Uncertainties of detectors that give each class a probability of its own.
SIGMOID_UNCERTAINTIES = ("entropy, mean of sigmoids", "entropy, largest sigmoid")

#: Uncertainties of detectors that give boxes a variance.
BOX_UNCERTAINTIES = (
    "box determinant",
    "box trace",
    "box entropy",
    "entropy + box entropy",
    "4 · entropy + box entropy",
    "both entropies, normalised",
)


@pytest.fixture
def with_variance(changed_run):
    """The run with a sigmoid head and variances of boxes, which are larger on OOD images."""
    for number, split in enumerate(("val", "test", "far", "c1", "c5", "pseudo_ood")):
        regions = Regions.read(changed_run.regions(split))
        rng = np.random.default_rng(number)
        variance = rng.uniform(0.5, 2, (len(regions), 4)).astype(np.float32)
        if split == "far":
            variance *= 2
        columns = {**regions.columns(), "box_variance": variance}
        with_variance = Regions(**columns, classes=regions.classes, activation="sigmoid")
        with_variance.write(changed_run.regions(split))
    return changed_run


def class_entropy(regions):
    """Entropy of the softmax over a detection's logits."""
    return entropy(softmax(regions.logits.astype(float), axis=1), axis=1)


def box_entropy(regions):
    """Entropy of the Gaussian of a detection's box, one by one."""
    entropies = []
    for variance in regions.box_variance.astype(float):
        gaussian = multivariate_normal(np.zeros(4), np.diag(variance))
        entropies.append(gaussian.entropy())
    return np.array(entropies)


@dataclass
class Range:
    """Smallest and largest value on the ID validation split."""

    low: float
    high: float

    def scaled(self, values):
        return (values - self.low) / (self.high - self.low)


def expected_uncertainties(regions, class_range, box_range):
    """Each uncertainty of detections, but Dempster–Shafer, by its formula."""
    of_class = class_entropy(regions)
    of_box = box_entropy(regions)
    logits = regions.logits.astype(float)
    variance = regions.box_variance.astype(float)
    return {
        "1 − confidence": 1 - regions.score.astype(float),
        "entropy": of_class,
        "entropy, largest sigmoid": bernoulli(expit(logits.max(axis=1))).entropy(),
        "entropy, mean of sigmoids": bernoulli(expit(logits)).entropy().mean(axis=1),
        "box determinant": variance.prod(axis=1),
        "box trace": variance.sum(axis=1),
        "box entropy": of_box,
        "entropy + box entropy": of_class + of_box,
        "4 · entropy + box entropy": 4 * of_class + of_box,
        "both entropies, normalised": class_range.scaled(of_class) + box_range.scaled(of_box),
    }


def of_images(uncertainty, regions, names):
    """Mean of an image's three smallest uncertainties, image by image; large without detections."""
    uncertainties = []
    for name in names:
        of_image = np.sort(uncertainty[regions.image_id == name])[:3]
        uncertainties.append(of_image.mean() if len(of_image) else 1e12)
    return uncertainties


def test_uncertainties_are_those_of_a_loop_over_images(with_variance):
    results = evaluate_shifted(with_variance).uncertainties
    validation = Regions.read(with_variance.regions("val"))
    of_class = class_entropy(validation)
    of_box = box_entropy(validation)
    class_range = Range(of_class.min(), of_class.max())
    box_range = Range(of_box.min(), of_box.max())

    sides = []
    for split in ("test", "far"):
        regions = Regions.read(with_variance.regions(split))
        names = sorted(Images.read(with_variance.images(split)).image_id)
        side = {}
        for title, uncertainty in expected_uncertainties(regions, class_range, box_range).items():
            side[title] = of_images(uncertainty, regions, names)
        sides.append(side)

    id_side, ood_side = sides
    assert set(results) == {*id_side, "Dempster–Shafer"}
    for title in id_side:
        is_ood = np.repeat([0, 1], [len(id_side[title]), len(ood_side[title])])
        expected = roc_auc_score(is_ood, np.concatenate([id_side[title], ood_side[title]]))
        assert results[title].values["top-3"] == pytest.approx(expected, abs=1e-6), title
        interval = results[title].intervals["top-3"]
        assert interval is None or interval[0] <= expected <= interval[1]


def test_all_aggregates_are_of_the_confidence_and_the_box_determinant(with_variance):
    results = evaluate_shifted(with_variance).uncertainties
    aggregates = ["sum", "mean", "top-5", "top-3", "top-2", "min"]
    assert list(results["1 − confidence"].values) == aggregates
    assert list(results["box determinant"].values) == aggregates
    assert list(results["box trace"].values) == ["top-3"]


def stored_split(regions, folder):
    """A split with these stored regions."""
    regions.write(folder)
    return SimpleNamespace(folder=RegionsFolder(folder), regions=lambda: regions)


def uncertainties_of(split, held_out=None):
    """{name: uncertainty of each detection} of one split."""
    uncertainties = {}
    for title, arrays in detection_uncertainties([split], lambda: held_out or split):
        (uncertainties[title],) = arrays
    return uncertainties


def test_entropy_and_dempster_shafer_count_the_background_as_a_class(tmp_path, regions):
    # SAOD, Eqs. A.6 and A.7, over K + 1 classes: cat 0.5, dog 0.3, background 0.2.
    probabilities = np.array([0.5, 0.3, 0.2])
    detection = regions(("a", FIRST, 0.5))
    columns = {**detection.columns(), "logits": np.log(probabilities)[None].astype(np.float32)}
    with_background = Regions(
        **columns,
        classes=("cat", "dog", "background"),
        background_index=2,
        activation="softmax",
    )
    uncertainties = uncertainties_of(stored_split(with_background, tmp_path / "r"))
    # 1.0297, not 0.6616
    assert uncertainties["entropy"] == pytest.approx(entropy(probabilities), abs=1e-6)
    # (K + 1) / (K + 1 + Σ exp z), where the exponentials are the probabilities; not 2 / 2.8
    assert uncertainties["Dempster–Shafer"] == pytest.approx(3 / 4, abs=1e-6)


@pytest.mark.parametrize(
    ("activation", "variance", "expected"),
    [
        ("softmax", False, ()),
        ("sigmoid", False, SIGMOID_UNCERTAINTIES),
        ("softmax", True, BOX_UNCERTAINTIES),
        ("sigmoid", True, (*SIGMOID_UNCERTAINTIES, *BOX_UNCERTAINTIES)),
    ],
)
def test_uncertainties_are_those_of_the_stored_columns_and_of_the_head(
    tmp_path, regions, activation, variance, expected
):
    table = regions(("a", FIRST, 0.9), ("b", FIRST, 0.6))
    columns = table.columns()
    if variance:
        columns["box_variance"] = np.ones((2, 4), np.float32)
    table = Regions(**columns, classes=table.classes, activation=activation)
    uncertainties = uncertainties_of(stored_split(table, tmp_path / "r"))
    assert set(uncertainties) == {"1 − confidence", "entropy", "Dempster–Shafer", *expected}
    for uncertainty in uncertainties.values():
        assert len(uncertainty) == 2


@pytest.mark.parametrize("known", [20, 1, 0])
def test_entropies_are_added_as_they_are_weighted_and_from_0_to_1_in_validation_images(
    tmp_path, regions, known
):
    random = np.random.default_rng(0)

    def random_split(name, count):
        scores = random.uniform(0.5, 1, count)
        table = regions(*[("a", FIRST, score) for score in scores])
        variance = np.exp(random.normal(size=(count, 4))).astype(np.float32)
        columns = {**table.columns(), "box_variance": variance}
        return stored_split(Regions(**columns, classes=table.classes), tmp_path / name)

    split = random_split("test", 9)
    held_out = random_split("val", known)
    uncertainties = uncertainties_of(split, held_out)
    of_held_out = uncertainties_of(held_out)

    sum_of_scaled = 0
    for name in ("entropy", "box entropy"):
        low = of_held_out[name].min() if known else 0
        # A single value has no range, and is 0; without values, the entropies stay as they are.
        size = np.ptp(of_held_out[name]) if known > 1 else 1
        sum_of_scaled = sum_of_scaled + (uncertainties[name] - low) / size
    assert uncertainties["both entropies, normalised"] == pytest.approx(sum_of_scaled)
    balanced = 4 * uncertainties["entropy"] + uncertainties["box entropy"]
    assert uncertainties["4 · entropy + box entropy"] == pytest.approx(balanced)


def test_accuracy_is_coco_s_ap_on_each_split_and_lrp_above_the_thresholds(
    shifted_run, shifted_results
):
    results = shifted_results
    assert list(results.accuracy) == ["val", "test", "c1", "c5"]
    for split, accuracy in results.accuracy.items():
        objects = Objects.read(shifted_run.objects(split))
        regions = Regions.read(shifted_run.regions(split))
        expected = closed_set.evaluate(objects, regions)["ap"]
        assert accuracy.values["ap"] == pytest.approx(expected)
        low, high = accuracy.intervals["ap"]
        assert low <= accuracy.values["ap"] <= high

    objects = Objects.read(shifted_run.objects("val"))
    regions = Regions.read(shifted_run.regions("val"))
    is_kept = above_of_class(regions, results.detector.confidence_thresholds)
    expected = self_awareness.evaluate(objects, regions[is_kept])["lrp"]
    on_validation = results.accuracy["val"]
    assert on_validation.values["lrp"] == pytest.approx(expected)
    low, high = on_validation.intervals["lrp"]
    assert low <= on_validation.values["lrp"] <= high


def test_shifted_validation_images_have_an_average_precision_and_no_part_in_daq(
    changed_run, shifted_results
):
    objects = Objects.read(changed_run.objects("val"))
    regions = Regions.read(changed_run.regions("val"))
    every_third = regions[::3]
    names = sorted(set(objects.image_id) | set(regions.image_id))
    write_split(changed_run, "val_c1", objects, every_third, names)
    roles = Roles(["far"], {"c1": 1, "c5": 5}, "pseudo_ood", shifted_val={"val_c1": 1})
    results = evaluate_self_awareness(
        RunInputs(changed_run, roles, EvaluationSettings(replicates=100))
    )
    # T(Val) of Table A.8.
    accuracy = results.accuracy["val_c1"]
    expected = closed_set.evaluate(objects, every_third)["ap"]
    assert accuracy.values["ap"] == pytest.approx(expected)
    low, high = accuracy.intervals["ap"]
    assert low < accuracy.values["ap"] < high

    without = shifted_results
    assert results.values == without.values
    assert set(results.accuracy) - set(without.accuracy) == {"val_c1"}
