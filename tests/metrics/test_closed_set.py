"""COCO's figures, compared with pycocotools."""

import contextlib
import io

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from farther.errors import DataError
from farther.metrics import boxes, closed_set
from farther.tables import Objects

STATS = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
STATS += ("ar_1", "ar_10", "ar", "ar_small", "ar_medium", "ar_large")


def by_pycocotools(objects, regions):
    """The twelve figures of pycocotools, None where it gives −1."""
    images = {name: i + 1 for i, name in enumerate(sorted({*objects.image_id, *regions.image_id}))}
    classes = {name: i + 1 for i, name in enumerate(regions.classes)}
    truth = COCO()
    with contextlib.redirect_stdout(io.StringIO()):
        truth.dataset = {
            "images": [{"id": number} for number in images.values()],
            "categories": [{"id": number} for number in classes.values()],
            "annotations": [
                {
                    "id": row + 1,
                    "image_id": images[objects.image_id[row]],
                    "category_id": classes[objects.category[row]],
                    "bbox": xywh(objects.box[row]),
                    "area": float(np.prod(xywh(objects.box[row])[2:])),
                    "iscrowd": int(objects.is_crowd[row]),
                }
                for row in range(len(objects))
            ],
        }
        truth.createIndex()
        detections = truth.loadRes(
            [
                {
                    "image_id": images[regions.image_id[row]],
                    "category_id": int(regions.label[row]) + 1,
                    "bbox": xywh(regions.box[row]),
                    "score": float(regions.score[row]),
                }
                for row in range(len(regions))
            ]
        )
        run = COCOeval(truth, detections, "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return {name: None if value == -1 else value for name, value in zip(STATS, run.stats, strict=True)}


def xywh(box):
    xmin, ymin, xmax, ymax = box.astype(float).tolist()
    return [xmin, ymin, xmax - xmin, ymax - ymin]


@pytest.mark.parametrize("seed", range(4))
def test_figures_equal_pycocotools_with_crowds_ties_and_sizes(world, seed):
    objects, regions = world(seed, images=25, classes=("cat", "dog", "hat"))
    found = closed_set.evaluate(objects, regions)
    assert {name: found[name] for name in STATS} == pytest.approx(by_pycocotools(objects, regions), abs=1e-6)


def test_only_the_hundred_best_detections_of_an_image_and_class_count(world):
    objects, regions = world(7, images=2, objects=20, regions=400)
    found = closed_set.evaluate(objects, regions)
    assert {name: found[name] for name in STATS} == pytest.approx(by_pycocotools(objects, regions), abs=1e-6)
    assert closed_set.evaluate(objects, regions, max_detections=10)["ar"] == found["ar_10"]


def test_many_pairs_are_compared_in_blocks_with_the_same_result(world, monkeypatch):
    objects, regions = world(3)
    before = closed_set.evaluate(objects, regions)
    monkeypatch.setattr(boxes, "BLOCK", 50)
    assert closed_set.evaluate(objects, regions) == before


def test_figures_of_a_case_worked_by_hand(objects, regions):
    truth = objects(("a", [0, 0, 10, 10], "cat"), ("a", [50, 0, 60, 10], "cat"))
    # IoU 1 with the first object; nothing; 8/10 with the second one.
    found = regions(("a", [0, 0, 10, 10], 0.9), ("a", [80, 80, 90, 90], 0.8), ("a", [50, 0, 58, 10], 0.7))
    figures = closed_set.evaluate(truth, found)
    # Recall 0 … 0.50 (51 points) at precision 1, the other 50 points at precision 2/3.
    assert figures["ap50"] == pytest.approx((51 + 50 * 2 / 3) / 101)
    # From IoU 0.85 on only one object is found: IoU 0.80 still counts.
    assert figures["ap"] == pytest.approx((7 * (51 + 50 * 2 / 3) + 3 * 51) / 1010)
    assert figures["ar"] == pytest.approx((7 * 1 + 3 * 0.5) / 10)
    assert figures["per_class"]["cat"]["objects"] == 2


def test_a_class_without_objects_is_left_out_of_the_mean(objects, regions):
    truth = objects(("a", [0, 0, 10, 10], "cat"))
    found = regions(("a", [0, 0, 10, 10], 0.9, "cat"), ("a", [0, 0, 10, 10], 0.8, "dog"))
    figures = closed_set.evaluate(truth, found)
    assert figures["ap"] == 1
    assert figures["per_class"]["dog"] == {"ap": None, "ap50": None, "ar": None, "objects": 0}


def test_a_difficult_object_is_treated_as_a_crowd(world):
    objects, regions = world(9)
    marked = Objects(
        **{**objects.columns(), "is_crowd": np.zeros(len(objects), bool), "is_difficult": objects.is_crowd}
    )
    assert closed_set.evaluate(marked, regions) == closed_set.evaluate(objects, regions)


def test_without_objects_all_is_none_and_without_detections_nothing_is_found(objects, regions):
    nothing = closed_set.evaluate(objects(), regions(("a", [0, 0, 5, 5], 0.5)))
    assert nothing["ap"] is None
    assert nothing["ar"] is None
    blind = closed_set.evaluate(objects(("a", [0, 0, 5, 5], "dog")), regions())
    assert (blind["ap"], blind["ar"]) == (0, 0)


def test_objects_of_other_classes_are_not_sought(objects, regions):
    truth = objects(("a", [0, 0, 10, 10], "cat"), ("a", [50, 0, 60, 10], "zebra"))
    assert closed_set.evaluate(truth, regions(("a", [0, 0, 10, 10], 0.9)))["ap"] == 1


@pytest.mark.parametrize("classes", [(), ("cat", "cat")])
def test_classes_must_be_different_names(objects, regions, classes):
    with pytest.raises(DataError, match="classes"):
        closed_set.evaluate(objects(), regions(), classes)


def test_the_order_of_rows_changes_nothing_where_scores_differ(world):
    objects, regions = world(11)
    regions.score[:] = np.random.default_rng(0).permutation(len(regions)) / len(regions)
    shuffled = np.random.default_rng(1).permutation(len(regions))
    before = closed_set.evaluate(objects, regions)
    assert closed_set.evaluate(objects, regions[shuffled]) == before


def test_iou_below_a_half_is_possible(objects, regions):
    truth = objects(("a", [0, 0, 10, 10], "cat"))
    known = closed_set.Labelled(truth, regions(("a", [0, 0, 10, 2], 0.9)))
    assert known.verdicts([0.1, 0.5]).kind.tolist() == [[closed_set.TRUE], [closed_set.FALSE]]
