"""What methods gain over the detector's own confidence."""

import numpy as np
import pytest
from tests.support.evaluations import method_of

from farther.evaluation.gains import gains
from farther.evaluation.methods import EvaluatedMethod
from farther.evaluation.results import GroupResults, SplitResults
from farther.evaluation.threshold import StoredTau

TAU = StoredTau(threshold=0.5, rule="fixed", keep=None, regions=0)


def evaluated(method, auroc, ap_u, drawn=None):
    """A method with these values in the splits near and far, and replicates of its AUROC."""
    splits = {
        name: SplitResults(
            groups={
                "ood": GroupResults(values={"auroc": a}),
                "open_set": GroupResults(values={"ap_u": u}),
            }
        )
        for name, a, u in zip(("near", "far"), auroc, ap_u, strict=True)
    }
    replicates = {
        name: {}
        if drawn is None
        else {"auroc": np.repeat(drawn[k], 25), "ap_u": np.full(100, np.nan)}
        for k, name in enumerate(splits)
    }
    return EvaluatedMethod(method_of(method, splits=splits), {}, TAU, replicates)


CONFIDENCE = evaluated(
    "confidence",
    [0.6, 0.8],
    [0.1, 0.3],
    [[0.5, 0.6, 0.7, 0.6], [0.8, 0.8, 0.8, 0.81]],
)
KNN = evaluated("knn", [0.7, 0.9], [0.2, None], [[0.6, 0.7, 0.8, 0.7], [0.9, 0.9, 0.9, 0.9]])


def test_a_gain_is_the_difference_of_means_over_splits():
    found = gains({"own": CONFIDENCE, "knn": KNN})
    assert found.baseline == "own"
    assert found.methods["knn"]["auroc"].value == pytest.approx(0.8)
    assert found.methods["knn"]["auroc"].gain == pytest.approx(0.1)
    assert found.methods["own"]["ap_u"].value == pytest.approx(0.2)


def test_its_interval_is_of_paired_replicates():
    """Both methods vary with the images, their difference hardly does."""
    found = gains({"own": CONFIDENCE, "knn": KNN}).methods["knn"]["auroc"]
    assert found.gain_interval == pytest.approx((0.1, 0.1), abs=0.01)
    low, high = found.interval
    assert high - low > 0.05
    assert found.p == pytest.approx(2 / 101)


def test_a_metric_that_one_split_lacks_is_left_out():
    assert "ap_u" not in gains({"own": CONFIDENCE, "knn": KNN}).methods["knn"]


def test_without_a_baseline_there_are_values_but_no_gains():
    found = gains({"knn": KNN})
    assert found.baseline is None
    gain = found.methods["knn"]["auroc"]
    assert (gain.gain, gain.gain_interval, gain.p) == (None, None, None)


def test_without_replicates_there_are_no_intervals():
    plain = evaluated("confidence", [0.5, 0.5], [0.5, 0.5])
    assert gains({"own": plain}).methods["own"]["auroc"].interval is None
