"""Images with an unknown object against the same scenes without it: values worked out by hand."""

import numpy as np
import pytest

from farther.errors import DataError
from farther.metrics.open_set import image_pairs
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.tables import Objects, Regions

CAR, SIGN, DOG = [0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10]
PAIRS = {"a-dog": "a", "b-dog": "b"}


def regions(rows):
    """Rows of (image, box, class, score)."""
    image_id, box, name, score = zip(*rows, strict=True)
    return Regions(
        image_id=image_id,
        region_id=np.arange(len(rows)),
        box=box,
        score=score,
        label=[("car", "sign").index(class_name) for class_name in name],
        logits=np.zeros((len(rows), 2)),
        classes=("car", "sign"),
    )


def car_sign_and_dog():
    """A car, a sign and a dog in each image with an object."""
    image_id, boxes, category = [], [], []
    for image in PAIRS:
        image_id += [image] * 3
        boxes += [CAR, SIGN, DOG]
        category += ["car", "sign", "dog"]
    return Objects(image_id=image_id, object_id=np.arange(len(boxes)), box=boxes, category=category)


def outcomes(with_object, without, *, flagged=(), base_flagged=()):
    """Both outcomes; regions are flagged by their numbers."""
    objects = car_sign_and_dog()
    rules = MatchingRules(known_classes=("car", "sign"))
    with_regions = regions(with_object)
    copies, row = image_pairs.partner_regions(regions(without), PAIRS)
    is_flagged = np.isin(np.arange(len(with_regions)), flagged)
    return (
        OpenSetSplit.of(objects, with_regions, rules).match(is_flagged),
        OpenSetSplit.of(objects, copies, rules).match(np.isin(row, base_flagged)),
    )


def test_what_is_detected_at_the_place_without_the_object_is_not_because_of_it():
    both = outcomes(
        with_object=[("a-dog", DOG, "car", 0.9), ("b-dog", DOG, "car", 0.9)],
        without=[("b", DOG, "car", 0.8), ("other", DOG, "car", 0.8)],
        flagged=[0],
    )
    found = image_pairs.metrics(*both)
    assert found["with"] == {"found": 0.5, "misclassified": 0.5, "known": 0.0}
    assert found["without"] == {"found": 0.0, "misclassified": 0.5, "known": 0.0}
    assert (found["found"], found["misclassified"], found["known"]) == (0.5, 0.0, 0.0)


def test_known_objects_that_are_lost_or_flagged_beside_the_unknown_one_are_its_cost():
    both = outcomes(
        with_object=[
            ("a-dog", CAR, "car", 0.9),
            ("a-dog", SIGN, "sign", 0.9),
            ("b-dog", CAR, "sign", 0.9),
        ],
        without=[
            ("a", CAR, "car", 0.9),
            ("a", SIGN, "sign", 0.9),
            ("b", CAR, "car", 0.9),
            ("b", SIGN, "sign", 0.9),
        ],
        flagged=[1],
        base_flagged=[3],
    )
    found = image_pairs.metrics(*both)
    assert (found["with"]["known"], found["without"]["known"]) == (0.25, 0.75)
    assert found["known"] == -0.5


def test_scenes_are_drawn_with_both_of_their_images():
    both = outcomes([("a-dog", DOG, "car", 0.9)], [("b", CAR, "car", 0.9)])
    weights = np.array([[1, 1, 1, 1, 1, 1], [2, 2, 2, 0, 0, 0], [0, 0, 0, 2, 2, 2]])
    drawn = image_pairs.metrics(*both, weights=weights)
    assert drawn["misclassified"].tolist() == [0.5, 1.0, 0.0]
    assert drawn["known"].tolist() == [-0.25, 0.0, -0.5]


def test_several_images_of_one_scene_have_one_partner_and_others_none():
    images = {"1": "b1-dog.png", "2": "b1-boar.png", "3": "c2-dog.png", "4": "note"}
    assert image_pairs.base_images(images, {"b": "b1.jpg", "d": "d4.jpg"}, "^([a-z][0-9])[-.]") == {
        "1": "b",
        "2": "b",
    }
    with pytest.raises(DataError, match=r"'b' and 'c' have the same part 'b1'"):
        image_pairs.base_images(images, {"b": "b1", "c": "b1-2"}, "^([a-z][0-9])")
