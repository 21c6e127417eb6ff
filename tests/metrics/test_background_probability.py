"""Probability of a detection's class against that of the background."""

import numpy as np
import pytest
from scipy.special import softmax

from farther.errors import DataError
from farther.metrics.statistics import bootstrap
from farther.metrics.wilderness import background_probability
from farther.tables import Regions

CLASSES = ("cat", "dog", "nothing")


def with_logits(logits, label, **header):
    count = len(label)
    return Regions(
        image_id=[f"{n % 5}" for n in range(count)],
        region_id=np.arange(count),
        box=np.tile([0.0, 0, 9, 9], (count, 1)),
        score=np.full(count, 0.5),
        label=label,
        logits=logits,
        **{"classes": CLASSES, "background_index": 2, **header},
    )


def test_a_margin_is_the_difference_of_two_softmax_probabilities():
    rng = np.random.default_rng(0)
    logits, label = rng.normal(0, 30, (50, 3)).astype(np.float32), rng.integers(0, 2, 50)
    p = softmax(logits.astype(np.float64), axis=1)
    found = background_probability.margins(with_logits(logits, label))
    np.testing.assert_allclose(found, p[np.arange(50), label] - p[:, 2], atol=1e-12)


def test_rejecting_the_background_is_counted_on_either_side():
    found = background_probability.metrics(np.array([0.9, 0.2, -0.5, 0.1]), np.array([-0.7, 0.3]))
    assert (found["rejected_known"], found["rejected_unknown"]) == (0.25, 0.5)
    # Of the eight pairs the known one is larger in 0.9 twice, 0.2, -0.5 and 0.1 once.
    assert found["auroc"] == 5 / 8


def test_replicates_of_unit_weights_are_the_value_and_an_empty_side_has_none():
    rng = np.random.default_rng(1)
    known, unknown = rng.uniform(-1, 1, 40), rng.uniform(-1, 1, 30)
    images = np.array([f"{n}" for n in range(10)], dtype=object)
    draws = bootstrap.ImageDraws(images, 2, seed=0)
    draws.weights[0] = 1
    rows = draws.rows(np.repeat(images, 4)), draws.rows(np.repeat(images, 3))
    found = background_probability.metrics(known, unknown, *rows)
    plain = background_probability.metrics(known, unknown)
    assert {name: values[0] for name, values in found.items()} == pytest.approx(plain)
    assert found["auroc"][1] != pytest.approx(plain["auroc"])
    empty = background_probability.metrics(known, unknown[:0])
    assert empty["rejected_unknown"] is None and empty["auroc"] is None


def test_classes_have_mean_and_deviation_and_the_histogram_all_margins():
    margin, name = (
        np.array([0.5, -0.5, 1.0, -1.0]),
        np.array(["cat", "cat", "dog", "cat"], dtype=object),
    )
    found = background_probability.by_class(margin, name)
    assert found["dog"] == {"mean": 1.0, "sd": 0.0, "rejected": 0.0, "detections": 1}
    assert (found["cat"]["mean"], found["cat"]["rejected"]) == pytest.approx((-1 / 3, 2 / 3))
    assert found["cat"]["sd"] == pytest.approx(np.sqrt((0.5**2 * 2 + 1) / 3 - 1 / 9))
    shares = background_probability.histogram(margin)
    assert (shares[0], shares[-1], sum(shares)) == (0.25, 0.25, 1)
    assert len(shares) == 40, "bins of 0.05 over [-1, 1]"
    assert background_probability.histogram(margin[:0]) == []


@pytest.mark.parametrize("header", [{"background_index": None}, {"activation": "sigmoid"}])
def test_detectors_without_such_a_column_are_refused(header):
    regions = with_logits(np.zeros((1, 3), np.float32), [0], **header)
    assert not background_probability.applies(regions)
    with pytest.raises(DataError, match="a column for the background"):
        background_probability.margins(regions)


def test_margins_of_large_logits_are_finite():
    found = Regions(
        image_id=["a", "a"],
        region_id=[0, 1],
        box=np.ones((2, 4)),
        score=[0.5, 0.5],
        label=[1, 1],
        logits=[[1000.0, 1000.0 + np.log(3.0), 0.0], [-1000.0, -1000.0 + np.log(3.0), -5000.0]],
        classes=("background", "cat", "dog"),
        background_index=0,
    )
    assert background_probability.margins(found) == pytest.approx([0.5, 0.5], abs=1e-4)
