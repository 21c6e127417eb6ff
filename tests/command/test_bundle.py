"""Thresholds of a bundle that are set by hand."""

import pytest
from tests.evaluation.deployable import lay

from farther.command.bundled import ThresholdsByHand, set_by_hand
from farther.command.project import Project
from farther.errors import ParameterError


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    lay(tmp_path)
    monkeypatch.chdir(tmp_path)
    return Project()


def test_thresholds_by_hand_are_those_of_the_bundle(project):
    by_hand = ThresholdsByHand(threshold=0.6, tau=0.25, objectness=None)
    assert by_hand.is_given
    assert by_hand.checked_method("one", None, []) == "one"
    chosen = set_by_hand(project, "r", by_hand, None)
    assert (chosen.operating, chosen.tau, chosen.proposals) == (0.6, 0.25, None)
    assert (chosen.budget, chosen.measured) == (None, None)


def test_without_a_threshold_t_is_that_of_the_run(project):
    by_hand = ThresholdsByHand(threshold=None, tau=0.0, objectness=None)
    chosen = set_by_hand(project, "r", by_hand, None)
    assert (chosen.operating, chosen.tau) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("values", "method", "source", "limits", "problem"),
    [
        ((None, 0.2, None), None, None, [], "name METHOD, and give --tau"),
        ((0.5, None, None), "one", None, [], "name METHOD, and give --tau"),
        ((1.5, 0.2, None), "one", None, [], "--threshold: expected a confidence from 0 to 1"),
        ((None, float("nan"), None), "one", None, [], "--tau: expected a number, found nan"),
        ((None, 0.2, 0.5), "one", None, [], "give both --proposals and --objectness"),
        ((None, 0.2, None), "one", "rpn", [], "give both --proposals and --objectness"),
        ((None, 0.2, None), "one", None, ["max_recall_loss"], "--max-recall-loss chooses"),
    ],
)
def test_incomplete_or_contradicting_thresholds_are_refused(
    values, method, source, limits, problem
):
    with pytest.raises(ParameterError) as refused:
        ThresholdsByHand(*values).checked_method(method, source, limits)
    assert problem in str(refused.value)
