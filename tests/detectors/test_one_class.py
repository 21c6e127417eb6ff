"""The adapter without a network: one region per image."""

import numpy as np
from numpy.testing import assert_array_equal

from farther import detectors


def test_each_image_is_one_region_of_the_only_class(tmp_path):
    scores = tmp_path / "scores.csv"
    scores.write_text("image,score\n")
    detector = detectors.create("one_class", weights=scores, device="cpu")
    regions = detector.detect(
        [np.zeros((5, 7, 3), np.uint8), np.zeros((4, 3, 3), np.uint8)], ["a", "b"]
    )
    assert regions.image_id.tolist() == ["a", "b"]
    assert_array_equal(regions.box, [[0, 0, 7, 5], [0, 0, 3, 4]])
    assert regions.score.tolist() == [1, 1]
    assert regions.classes == ("good",)
    assert regions.header.whole_images
    assert regions.logits.tolist() == [[0], [0]]


def test_other_scores_give_the_run_another_identity(tmp_path):
    scores = tmp_path / "scores.csv"
    scores.write_text("image,score\n")
    first = detectors.create("one_class", weights=scores, class_name="fine").identity
    scores.write_text("image,score\na,1\n")
    assert detectors.create("one_class", weights=scores, class_name="fine").identity != first
