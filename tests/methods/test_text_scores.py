"""Scores by the cosines of image and text embeddings."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from pytorch_ood.detector import MCM

from farther import methods
from farther.methods import FitError
from farther.tables import Regions


@pytest.mark.parametrize("temperature", [1.0, 0.01])
def test_mcm_is_that_of_pytorch_ood(make, temperature):
    regions = make(seed=2, shift=2.0)
    there = MCM(None, torch.from_numpy(np.array(regions.weight)), temperature)
    expected = -there.predict_features(torch.from_numpy(np.array(regions.features)))
    method = methods.create("mcm", temperature=temperature).fit(regions)
    for scores in (method.score(regions), method.to_torch().score_regions(regions)):
        assert_allclose(scores, expected, rtol=1e-4)


def negatives(cosines: list[float], known: int) -> Regions:
    """One region with embedding (1, 0), given its cosines with the texts.

    The first `known` texts are those of the known classes.
    """
    weight = 100 * np.array([[c, np.sqrt(1 - c * c)] for c in cosines])
    values = {
        "features": np.array([[2.0, 0.0]], np.float32),
        "logits": np.array([[*cosines]], np.float32),
    }
    return Regions(
        image_id=["street"],
        region_id=[0],
        box=[[0, 0, 1, 1]],
        score=[0.9],
        label=[0],
        weight=weight,
        bias=np.zeros(len(cosines)),
        classes=tuple(f"text {k}" for k in range(len(cosines))),
        unknown_columns=tuple(range(known, len(cosines))),
        **values,
    )


def test_mcm_does_not_count_negative_prompts():
    known = np.exp([0.3, 0.2])
    found = methods.create("mcm").score(negatives([0.3, 0.2, 0.25], 2))
    assert_allclose(found, [known[0] / known.sum()], rtol=1e-6)


def test_neg_label_is_the_share_of_the_known_among_known_and_negatives():
    cosines = [0.30, 0.20, 0.28, 0.10]
    e = np.exp(np.array(cosines) / 0.05)
    expected = (e[0] + e[1]) / e.sum()
    found = methods.create("neg_label", temperature=0.05, groups=1).score(negatives(cosines, 2))
    assert_allclose(found, [expected], rtol=1e-5)


def test_neg_label_is_the_mean_over_groups_of_equally_many_negatives():
    cosines = [0.30, 0.25, 0.20, 0.15]
    e = np.exp(np.array(cosines) / 0.05)
    each = [e[0] / (e[0] + one) for one in e[1:]]
    found = methods.create("neg_label", temperature=0.05, groups=100).score(negatives(cosines, 1))
    assert_allclose(found, [np.mean(each)], rtol=1e-5)
    two = methods.create("neg_label", temperature=0.05, groups=2).score(negatives(cosines, 1))
    pairs = [
        np.mean([a, b]) for a, b in ((each[0], each[1]), (each[0], each[2]), (each[1], each[2]))
    ]
    assert np.isclose(two, pairs, rtol=1e-5).any()  # one of three is left over


def test_neg_label_needs_negative_prompts(make):
    with pytest.raises(FitError, match="neg_label needs negative prompts"):
        methods.create("neg_label").fit(make())
