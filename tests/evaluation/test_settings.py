"""Settings of the evaluation: ranges, defaults and removed keys."""

import numpy as np
import pytest

from farther.errors import ParameterError
from farther.evaluation.settings import EvaluationSettings, ProposalSettings, SelfAwarenessSettings
from farther.evaluation.threshold import ThresholdSettings
from farther.naming.registry import build


@pytest.mark.parametrize(
    ("field", "wrong", "right"),
    [
        ("iou", [0, 1.1], [0.01, 1]),
        ("replicates", [-1], [0]),
        ("drawn_images", [0], [1]),
    ],
)
def test_settings_have_a_range(field, wrong, right):
    for value in wrong:
        with pytest.raises(ParameterError, match=f"parameter '{field}': Input should be"):
            build(EvaluationSettings, "section 'evaluate'", {field: value})
    for value in right:
        assert (
            getattr(build(EvaluationSettings, "section 'evaluate'", {field: value}), field) == value
        )


@pytest.mark.parametrize(
    ("settings", "field", "wrong", "right"),
    [
        (SelfAwarenessSettings, "iou", [0, 1], [0.01, 0.99]),
        (ProposalSettings, "alarms", [0], [0.01]),
        (ThresholdSettings, "tolerance", [-0.1, 1.1], [0.1, 1]),
        (ProposalSettings, "rates", [(), (-0.1,), (np.inf,)], [(0.0, 2.0)]),
    ],
)
def test_settings_of_sections_have_a_range(settings, field, wrong, right):
    for value in wrong:
        with pytest.raises(ParameterError, match=f"parameter '{field}.*': .* should"):
            build(settings, "section", {field: value})
    for value in right:
        assert getattr(build(settings, "section", {field: value}), field) == value


def test_200_replicates_of_all_images_are_drawn_by_default():
    drawn = EvaluationSettings().draws(["a", "b", "c"]).weights
    assert drawn.shape == (200, 3)
    assert EvaluationSettings(replicates=0).draws(["a"]) is None
