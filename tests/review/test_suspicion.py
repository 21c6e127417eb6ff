"""Evidence for unlabelled objects, worked out by hand."""

import numpy as np
import pytest

from farther.review.suspicion import explained, surplus


def test_labels_explain_a_detection_by_one_box_or_by_all_that_fill_it():
    whole = np.array([[0, 0, 4, 4]])
    quarters = np.array([[0, 0, 2, 2], [2, 0, 4, 2], [0, 2, 2, 4], [2, 2, 4, 4.0]])
    everyone = np.zeros(4, np.int64)
    assert explained(whole, quarters, everyone).tolist() == [1.0]
    assert explained(whole, whole.astype(float), np.array([0])).tolist() == [1.0]
    assert explained(whole, np.array([[8, 8, 9, 9.0]]), np.array([0])).tolist() == [0.0]
    assert explained(whole, np.zeros((0, 4)), np.zeros(0, np.int64)).tolist() == [0.0]
    # IoU 1/4 and a quarter covered: 1 - sqrt(3/4 · 3/4)
    assert explained(whole, quarters[:1], np.array([0])) == pytest.approx([0.25])


def test_surplus_is_what_the_best_id_name_fits_better_than_the_best_labelled_name():
    images = np.array([[1, 0], [0.6, 0.8], [0, 1.0]])
    found = surplus(
        images, np.array([[1.0, 0], [0.8, 0.6]]), np.array([[0, 1.0], [0.6, 0.8]]), np.array([1, 1])
    )
    np.testing.assert_allclose(found, [1, 0.96 - 1, 0.6])
