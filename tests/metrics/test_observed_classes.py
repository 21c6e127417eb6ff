"""Tables without a list of classes, without detections, and without objects."""

import numpy as np
import pytest
import torch
from torchmetrics.detection import MeanAveragePrecision

from farther.errors import DataError
from farther.metrics import closed_set, open_set, self_awareness, wilderness
from farther.metrics.closed_set import operating_threshold
from farther.metrics.self_awareness import calibration_errors
from farther.tables import Objects, Regions

NAMES = np.array(["cat", "dog", "hat", "owl"])
BOX = [[0, 0, 10, 10]]
NOTHING = [{"boxes": [], "scores": [], "labels": []}]


def drawn(seed):
    """Objects of four classes, and detections of two of them and of no other or a fifth one."""
    rng = np.random.default_rng(seed)
    targets = []
    predictions = []
    for _ in range(8):
        corner = rng.uniform(0, 80, (6, 2))
        boxes = np.concatenate([corner, corner + rng.uniform(10, 40, (6, 2))], axis=1)
        boxes = boxes.round()
        labels = rng.integers(0, 4, 6)
        targets.append({"boxes": boxes, "labels": labels})
        found = boxes + rng.normal(0, 2, boxes.shape).round()
        detected = np.where(rng.random(6) < 0.8, labels, 4)
        keep = np.isin(detected, [0, 2, 4])
        scores = rng.random(6).astype(np.float32)
        prediction = {"boxes": found[keep], "scores": scores[keep], "labels": detected[keep]}
        predictions.append(prediction)
    return targets, predictions


def as_tensors(dicts):
    """The same dicts of tensors."""
    tensors = []
    for arrays in dicts:
        converted = {name: torch.as_tensor(values) for name, values in arrays.items()}
        converted["boxes"] = converted["boxes"].float()
        tensors.append(converted)
    return tensors


@pytest.mark.parametrize("seed", range(3))
def test_classes_that_were_never_detected_count_as_in_torchmetrics(seed):
    targets, predictions = drawn(seed)
    # By default torchmetrics has the thresholds in float32, some above the recalls they are for.
    peer = MeanAveragePrecision(
        iou_thresholds=np.linspace(0.5, 0.95, 10).tolist(),
        rec_thresholds=np.linspace(0, 1, 101).tolist(),
    )
    peer.update(as_tensors(predictions), as_tensors(targets))
    expected = peer.compute()
    metrics = closed_set.evaluate(Objects.from_dicts(targets), Regions.from_dicts(predictions))
    assert metrics["ap"] == pytest.approx(float(expected["map"]), abs=1e-5)
    assert metrics["ap50"] == pytest.approx(float(expected["map_50"]), abs=1e-5)
    assert metrics["per_class"]["1"]["ap"] == 0


@pytest.mark.parametrize("seed", range(2))
def test_the_same_in_names_equals_pycocotools(seed, coco):
    targets, predictions = drawn(seed)
    names = np.append(NAMES, "fox")
    for arrays in (*targets, *predictions):
        arrays["labels"] = names[arrays["labels"]].tolist()
    objects = Objects.from_dicts(targets)
    observed = closed_set.evaluate(objects, Regions.from_dicts(predictions))
    given = Regions.from_dicts(predictions, classes=names.tolist())
    assert observed["ap"] == closed_set.evaluate(objects, given)["ap"]
    assert observed["ap"] == pytest.approx(coco(objects, given).stats[0], abs=1e-6)


def test_where_classes_are_given_others_are_left_out():
    targets = [{"boxes": BOX * 2, "labels": ["cat", "fox"]}]
    predictions = [{"boxes": BOX, "scores": [0.9], "labels": ["cat"]}]
    objects = Objects.from_dicts(targets)
    regions = Regions.from_dicts(predictions, classes=["cat"])
    assert closed_set.evaluate(objects, regions)["ap50"] == 1
    observed = Regions.from_dicts(predictions)
    assert closed_set.evaluate(objects, observed)["ap50"] == 0.5
    assert closed_set.evaluate(objects, observed, classes=["cat"])["ap50"] == 1


def test_numbers_of_classes_are_not_compared_with_names():
    objects = Objects.from_dicts([{"boxes": BOX, "labels": [0]}], classes=["cat"])
    regions = Regions.from_dicts([{"boxes": BOX, "scores": [0.9], "labels": [0]}])
    with pytest.raises(DataError, match=r"numbers of classes \(0\), the objects names \('cat'\)"):
        closed_set.evaluate(objects, regions)


def test_that_classes_are_observed_survives_a_file(tmp_path):
    regions = Regions.from_dicts([{"boxes": BOX, "scores": [0.9], "labels": ["cat"]}])
    regions.write(tmp_path / "regions")
    assert Regions.read(tmp_path / "regions").header.are_observed
    assert regions[:0].header.are_observed


def test_objects_that_nothing_detected_are_missed():
    objects = Objects.from_dicts([{"boxes": BOX, "labels": ["cat"]}])
    nothing = Regions.from_dicts(NOTHING)
    assert closed_set.evaluate(objects, nothing)["ap50"] == 0
    assert open_set.evaluate(objects, nothing, is_unknown=np.zeros(0, bool))["missed"] == 1
    assert self_awareness.evaluate(objects, nothing)["lrp"] == 1
    assert calibration_errors.evaluate(objects, nothing)["laece_0"] is None
    assert wilderness.evaluate(objects, nothing, ["0"], nothing, [])["map_closed"] == 0
    assert operating_threshold.choose(objects, nothing, 0.5)["map"] == 0


def test_a_class_that_was_never_detected_counts_in_every_metric_of_known_classes():
    objects = Objects.from_dicts([{"boxes": BOX * 2, "labels": ["cat", "dog"]}])
    regions = Regions.from_dicts([{"boxes": BOX, "scores": [0.9], "labels": ["cat"]}])
    assert self_awareness.evaluate(objects, regions)["lrp"] == 0.5
    assert wilderness.evaluate(objects, regions, ["0"], regions[:0], [])["map_closed"] == 0.5
    assert operating_threshold.choose(objects, regions, 0.5)["map"] == 0.5


@pytest.mark.parametrize("classes", [None, ["cat"]])
def test_without_objects_metrics_have_no_value(classes):
    objects = Objects.from_dicts([])
    nothing = Regions.from_dicts(NOTHING, classes=classes)
    assert closed_set.evaluate(objects, nothing)["ap"] is None
    assert open_set.evaluate(objects, nothing, is_unknown=np.zeros(0, bool))["r_u"] is None
    assert self_awareness.evaluate(objects, nothing)["lrp"] is None
    assert calibration_errors.evaluate(objects, nothing)["d_ece"] is None
    assert wilderness.evaluate(objects, nothing, ["0"], nothing, ["w"])["map_open"] is None
    with pytest.raises(DataError, match="without objects"):
        operating_threshold.choose(objects, nothing, "best_f1")
