"""Proposals: which are left, what they find, FROC against a loop, AR@k against pycocotools."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from farther.errors import DataError
from farther.evaluation.settings import ProposalSettings
from farther.metrics.matching.boxes import overlaps
from farther.metrics.open_set.outcomes import MatchingRules
from farther.metrics.open_set.proposals import (
    Recovery,
    apart_from_detections,
    average_recall,
    finders,
    thresholds,
)
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.tables import Objects, Regions

RANDOM = np.random.default_rng(5)


def boxes(count, size=100):
    corner = RANDOM.uniform(0, size, (count, 2))
    return np.hstack([corner, corner + RANDOM.uniform(4, size, (count, 2))]).astype(np.float32)


def table(images, count, near=None):
    """Random regions; half of them are boxes of `near`, moved a little."""
    image_id = np.array([f"i{n % images}" for n in range(count)], dtype=object)
    box = boxes(count)
    if near is not None:
        rows = np.flatnonzero(RANDOM.random(count) < 0.5)
        of = RANDOM.integers(0, len(near), len(rows))
        box[rows] = near.box[of] + RANDOM.uniform(-4, 4, (len(rows), 4)).astype(np.float32)
        box[:, 2:] = np.maximum(box[:, 2:], box[:, :2] + 1)
        image_id[rows] = near.image_id[of]
    order = np.argsort(image_id, kind="stable")
    score = RANDOM.permutation(np.arange(1, count + 1)) / (count + 1)
    return Regions(
        image_id=image_id[order],
        region_id=np.arange(count),
        box=box[order],
        score=score,
        label=np.zeros(count, int),
        logits=np.zeros((count, 2)),
        classes=("fox", "hen"),
    )


def ground_truth(images=8, count=40):
    category = RANDOM.choice(["fox", "yak", "emu"], count)
    image_id = np.array([f"i{n % images}" for n in range(count)], dtype=object)
    crowd = RANDOM.random(count) < 0.1
    return Objects(
        image_id=image_id,
        object_id=np.arange(count),
        box=boxes(count),
        category=category,
        is_crowd=crowd,
    )


def pairwise(first, second, *, share_of_first=False):
    """IoUs of all pairs, or shares of the first box: shape (len(first), len(second))."""
    is_crowd = np.array([share_of_first])
    table = np.zeros((len(first), len(second)))
    for row, box in enumerate(first):
        for column, other in enumerate(second):
            table[row, column] = overlaps(box[None], other[None], is_crowd)[0]
    return table


def is_counted(objects, row, known):
    return not objects.is_crowd[row] and objects.category[row] not in known


def by_loop(objects, detections, proposals, known):
    """Missed objects and the objectness that finds them, image by image, proposal by proposal."""
    counted = [row for row in range(len(objects)) if is_counted(objects, row, known)]
    missed = {}
    objectness = dict.fromkeys(counted, -np.inf)
    for image in set(objects.image_id):
        free = {row for row in counted if objects.image_id[row] == image}
        detected = detections.box[detections.image_id == image]
        for row in free:
            missed[row] = not (pairwise(objects.box[[row]], detected) >= 0.5).any()
        of_image = np.flatnonzero(proposals.image_id == image)
        for proposal in sorted(of_image, key=lambda row: -proposals.score[row]):
            box = proposals.box[[proposal]]
            overlaps_detection = (pairwise(box, detected) >= 0.5).any()
            if overlaps_detection or (pairwise(box, detected, share_of_first=True) > 0.5).any():
                continue
            candidates = []
            for row in free:
                iou = pairwise(box, objects.box[[row]])[0, 0]
                if iou >= 0.5:
                    candidates.append((iou, row))
            if candidates:
                _, best = max(candidates)
                free.remove(best)
                if missed[best]:
                    objectness[best] = proposals.score[proposal]
    return np.array([missed[row] for row in counted]), np.array(list(objectness.values()))


def test_missed_objects_and_what_finds_them_equal_a_loop_over_images():
    for _ in range(5):
        objects = ground_truth()
        detections, proposals = table(8, 30, objects), table(8, 80, objects)
        found = Recovery.of(objects, detections, proposals, MatchingRules(known_classes=["fox"]))
        missed, objectness = by_loop(objects, detections, proposals, {"fox"})
        assert missed.any()
        assert np.isfinite(objectness).any()
        np.testing.assert_array_equal(found.missed, missed)
        np.testing.assert_allclose(found.objectness, objectness)
        assert set(found.category) <= {"yak", "emu"}


def test_froc_equals_counting_alarms_at_every_threshold():
    objects = ground_truth()
    detections, proposals, alarms = table(8, 30, objects), table(8, 90, objects), RANDOM.random(37)
    found = Recovery.of(objects, detections, proposals, MatchingRules(known_classes=["fox"]))
    rates, images = [0.0, 0.5, 1.0, 3.0, 9.0], 10
    for rate, (tau,) in zip(rates, thresholds(alarms, rates, images), strict=True):
        # No lower threshold has as few alarms.
        assert np.sum(alarms > tau) <= rate * images
        lower = alarms[alarms < tau].max(initial=-np.inf)
        assert np.isinf(tau) or np.sum(alarms > lower) > rate * images
        values = found.missed_shares(np.array([tau]))
        assert values["recovered"][0] == np.mean(found.objectness > tau)
        assert values["missed"][0] - values["recovered"][0] == pytest.approx(
            values["still_missed"][0]
        )


def test_weights_of_a_replicate_equal_counting_its_images_one_by_one():
    objects = ground_truth()
    detections, proposals, alarms = table(8, 30, objects), table(8, 90, objects), RANDOM.random(37)
    place = RANDOM.integers(0, 10, 37)
    found = Recovery.of(objects, detections, proposals, MatchingRules(known_classes=["fox"]))
    names = sorted(set(objects.image_id))
    draws, of_id = (
        ImageDraws(names, 4, seed=1),
        ImageDraws([f"{n:02}" for n in range(10)], 4, seed=2),
    )
    tau = thresholds(alarms, [0.7], 10, of_id.weights, place)[0]
    values = found.missed_shares(tau, draws.weights, draws.places(found.image_id))
    for b in range(4):
        drawn = np.repeat(alarms, np.asarray(of_id.weights)[b][place])
        assert tau[b] == thresholds(drawn, [0.7], 10)[0, 0]
        rows = np.repeat(np.arange(len(found.missed)), draws.times(b)[draws.places(found.image_id)])
        once = found[rows].missed_shares(np.array([tau[b]]))
        assert {k: v[0] for k, v in once.items()} == pytest.approx(
            {k: v[b] for k, v in values.items()}
        )


def corner_and_size(box):
    xmin, ymin, xmax, ymax = box.astype(float).tolist()
    return [xmin, ymin, xmax - xmin, ymax - ymin]


def recall_by_pycocotools(objects, proposals, max_detections):
    """Recall of the unknown objects, whatever the class: (IoUs, categories, areas, maxDets)."""
    images = sorted(set(objects.image_id))
    annotations = []
    for row in range(len(objects)):
        if is_counted(objects, row, {"fox"}):
            box = corner_and_size(objects.box[row])
            annotation = {
                "id": row + 1,
                "image_id": images.index(objects.image_id[row]),
                "category_id": 1,
                "iscrowd": 0,
                "bbox": box,
                "area": float(np.prod(box[2:])),
            }
            annotations.append(annotation)
    detections = []
    for row in range(len(proposals)):
        detection = {
            "image_id": images.index(proposals.image_id[row]),
            "category_id": 1,
            "bbox": corner_and_size(proposals.box[row]),
            "score": float(proposals.score[row]),
        }
        detections.append(detection)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": [{"id": number} for number in range(len(images))],
            "categories": [{"id": 1}],
            "annotations": annotations,
        }
        truth.createIndex()
        run = COCOeval(truth, truth.loadRes(detections), "bbox")
        run.params.useCats = 0
        run.params.maxDets = max_detections
        run.evaluate()
        run.accumulate()
    return run.eval["recall"]


def test_average_recall_equals_pycocotools():
    objects = ground_truth(count=60)
    proposals = table(8, 200, objects)
    ours = average_recall(objects, proposals, (3, 10), ["fox"])
    recall = recall_by_pycocotools(objects, proposals, [1, 3, 10]).mean(axis=0)  # over IoUs
    assert ours["ar@3"] == pytest.approx(recall[0, 0, 1])
    assert ours["ar@10"] == pytest.approx(recall[0, 0, 2])
    for k, size in enumerate(("small", "medium", "large"), start=1):
        expected = recall[0, k, 2]
        assert ours[f"ar@10_{size}"] == (None if expected < 0 else pytest.approx(expected))


@pytest.mark.parametrize(
    ("better", "found"), [(9, (1, 1)), (10, (0, 1)), (99, (0, 1)), (100, (0, 0))]
)
def test_the_10_and_the_100_best_proposals_of_an_image_count(better, found):
    fox = Objects(image_id=["a"], object_id=[0], box=[[0, 0, 10, 10]], category=["fox"])
    score = np.linspace(0.9, 0.1, better + 1)
    box = np.array([[50, 50, 60, 60]] * better + [[0, 0, 10, 10]])
    columns = {
        "image_id": ["a"] * len(box),
        "region_id": np.arange(len(box)),
        "label": np.zeros(len(box), int),
    }
    proposals = Regions(
        box=box, score=score, logits=np.zeros((len(box), 1)), classes=("cat",), **columns
    )
    recall = average_recall(fox, proposals)
    assert (recall["ar@10"], recall["ar@100"]) == found
    assert recall["ar@100_small"] == recall["ar@100"]


def test_objects_of_several_splits_keep_what_finds_them_though_they_share_names_of_images():
    splits = {}
    for name in ("near", "far"):
        objects = ground_truth()
        splits[name] = Recovery.of(objects, table(8, 30, objects), table(8, 80, objects))
    both = Recovery.joined(list(splits.items()))
    assert both.image_id.tolist() == [
        f"{name}/{image}" for name, of in splits.items() for image in of.image_id
    ]
    for column in ("missed", "objectness", "size", "category"):
        expected = np.concatenate([getattr(of, column) for of in splits.values()])
        np.testing.assert_array_equal(getattr(both, column), expected)


def test_settings_that_are_not_given_are_those_of_the_docs():
    page = (Path(__file__).parents[2] / "docs/proposals.md").read_text(encoding="utf-8")
    written = yaml.safe_load(re.search(r"`evaluate.proposals` has [^`]*`({[^`]*})`", page)[1])
    assert {name: getattr(ProposalSettings(), name) for name in written} == written | {
        "rates": tuple(written["rates"])
    }


def test_a_proposal_on_a_detection_or_inside_of_one_says_nothing_new():
    shared = {"score": [0.5], "label": [0], "logits": [[0.0]], "region_id": [0], "image_id": ["a"]}
    detection = Regions(box=[[0, 0, 10, 10]], **shared)
    for box, stays in (
        ([0, 0, 10, 5], False),
        ([0, 5, 10, 15], True),
        ([1, 1, 3, 3], False),
        ([0, 4, 10, 14], False),
    ):
        assert apart_from_detections(Regions(box=[box], **shared), detection).item() is stays


def test_an_object_at_the_limit_of_two_sizes_is_of_both_as_in_coco():
    shared = {"image_id": ["a"], "object_id": [0], "category": ["yak"]}
    for side, sizes in ((32, ("small", "medium")), (96, ("medium", "large")), (97, ("large",))):
        found = average_recall(Objects(box=[[0, 0, side, side]], **shared), table(1, 3))
        assert {
            name for name in ("small", "medium", "large") if found[f"ar@100_{name}"] is not None
        } == set(sizes)


def test_rules_are_those_that_are_given_or_the_usual_ones():
    proposal = Regions(
        box=[[0, 0, 10, 6]], score=[0.5], label=[0], logits=[[0.0]], region_id=[0], image_id=["a"]
    )
    truth = Objects(image_id=["a"], object_id=[0], box=[[0, 0, 10, 10]], category=["yak"])
    for rules, row in ((None, 0), (MatchingRules(), 0), (MatchingRules(0.7), -1)):
        missed, found = finders(truth, proposal[:0], proposal, rules)
        assert (missed.tolist(), found.tolist()) == ([True], [row])


def test_alarms_need_images():
    with pytest.raises(DataError, match="no ID image"):
        thresholds(np.zeros(3), [1.0], 0)
