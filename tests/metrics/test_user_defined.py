"""User-defined metrics: parameters, and names that are taken."""

from farther import Metric, register
from farther.metrics.catalogue import COMPARED
from farther.metrics.user_defined import create_all


def test_user_defined_metrics_have_the_parameters_that_are_asked_for():
    @register("largest_score")
    class LargestScore(Metric):
        most: float = 1.0

        def compute(self, case):
            return min(self.most, case.scores.max())

    default = create_all({"largest_score": {}}, taken=COMPARED)
    given = create_all({"largest_score": {"most": 2.0}}, taken=COMPARED)
    assert (default["largest_score"].most, given["largest_score"].most) == (1.0, 2.0)
    assert create_all({}, taken=COMPARED) == {}
