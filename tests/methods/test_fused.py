"""Several scores as one."""

import numpy as np
import pytest
from scipy.stats import combine_pvalues

from farther import methods
from farther.errors import ParameterError
from farther.methods import FitError
from farther.methods.combined import Knots

PAIR = ("energy", "mahalanobis")


def fused(**params):
    return methods.create("fused", **{"of": PAIR, **params})


def p_values(make, validation, rows):
    """(1 + number of validation scores below) / (n + 1) up to interpolation, by part."""
    shares = []
    for name in PAIR:
        part = methods.create(name).fit(make(seed=1))
        reference = np.sort(part.score(validation))
        ranks = np.interp(part.score(rows), reference, np.arange(1, len(reference) + 1))
        shares.append(ranks / (len(reference) + 1))
    return np.stack(shares, axis=1)


def learned(make, **params):
    method = fused(**params).fit(make(seed=1))
    method.learn_validation(make(seed=2))
    return method


def test_each_part_becomes_the_share_of_validation_detections_below_it(make):
    rows = make(seed=3, shift=2.0)
    expected = p_values(make, make(seed=2), rows).mean(axis=1)
    np.testing.assert_allclose(learned(make, by="mean").score(rows), expected, atol=2e-3)


@pytest.mark.parametrize("by", ["fisher", "simes"])
def test_shares_are_combined_as_p_values(make, by):
    rows = make(seed=3, shift=2.0)
    shares = p_values(make, make(seed=2), rows)
    scores = learned(make, by=by).score(rows)
    if by == "fisher":
        statistic = [combine_pvalues(row, "fisher").statistic for row in shares]
        np.testing.assert_allclose(-2 * scores, statistic, rtol=0.02)
    else:
        lower = shares.min(axis=1)
        higher = shares.max(axis=1)
        np.testing.assert_allclose(scores, np.minimum(2 * lower, higher), atol=2 / 301)


def test_logistic_learns_to_trust_the_part_that_tells_ood_from_id(make):
    method = fused(of=("confidence", "mahalanobis"), by="logistic", ood_split="pasted")
    method.fit(make(seed=1))
    method.learn_validation(make(seed=2))
    rng = np.random.default_rng(0)
    shifted = make(seed=3, shift=4.0)
    # The confidence of unknown detections says nothing.
    unknown = shifted.with_columns(score=rng.choice(make(seed=2).score, len(shifted)))
    method.learn_split(make(seed=2), unknown)
    of_confidence, of_mahalanobis = method.weights_
    assert of_mahalanobis > 5 * abs(of_confidence)
    assert method.score(make(seed=4)).mean() > method.score(make(seed=5, shift=4.0)).mean()


def test_parts_have_their_own_parameters(make):
    rows = make(seed=3)
    twice = methods.create("fused", of={"energy": {"temperature": 2.0}, "msp": {}}).fit(
        make(seed=1)
    )
    once = methods.create("fused", of=["energy", "msp"]).fit(make(seed=1))
    assert not np.allclose(twice.score(rows), once.score(rows))
    again = {"a": {"method": "knn", "k": 1}, "b": {"method": "knn", "k": 9}}
    both = methods.create("fused", of=again).fit(make(seed=1))
    assert both.parts == {"a": "knn", "b": "knn"}
    assert np.isfinite(both.score(rows)).all()


def test_a_fused_method_is_saved_with_the_state_of_its_parts(make, tmp_path):
    method = learned(make)
    method.save(tmp_path / "fused")
    loaded = methods.load(tmp_path / "fused")
    rows = make(seed=3)
    np.testing.assert_allclose(loaded.score(rows), method.score(rows), rtol=1e-9)


def test_with_annotated_classes_it_learns_as_the_part_that_reads_them():
    assert fused().annotation == "class"
    assert methods.create("fused", of=["msp", "energy"]).annotation == "unused"


def test_the_inputs_are_those_of_all_parts():
    assert fused().inputs == {"logits", "features", "labels"}
    assert methods.create("fused", of=["msp", "knn"]).columns == ["features"]


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"of": ["energy"]}, "needs two"),
        ({"of": ["energy", "EBO"]}, "twice"),
        ({"of": ["energy", "enrgy"]}, "enrgy"),
        ({"of": {"energy": {"temperatur": 2}, "msp": {}}}, "temperatur"),
        ({"by": "logistic"}, "ood_split"),
        ({"ood_split": "pasted"}, "logistic"),
        ({"of": ["native", "msp"]}, "native"),
        ({"of": ["temperature_scaling", "msp"]}, "true classes"),
        ({"of": ["safe", "msp"]}, "safe"),
        ({"of": ["she", "mahalanobis"]}, "different ways"),
    ],
)
def test_what_cannot_be_fused_is_named(params, problem):
    with pytest.raises(ParameterError, match=problem):
        fused(**params)


def test_without_validation_detections_it_cannot_be_fitted(make):
    method = fused().fit(make(seed=1))
    with pytest.raises(FitError, match="validation"):
        method.learn_validation(make(count=0))


def test_equal_scores_are_one_knot_with_all_of_their_share():
    knots = Knots.of(np.array([3.0, 1.0, 1.0, 2.0]))
    assert knots.scores.tolist() == [1, 2, 3]
    np.testing.assert_allclose(knots.shares, [2 / 5, 3 / 5, 4 / 5])
    same = Knots.of(np.ones(3))
    assert (same.scores.tolist(), same.shares.tolist()) == ([1.0], [0.75])


def test_many_scores_are_stored_as_quantiles():
    scores = np.random.default_rng(0).normal(size=20_000)
    knots = Knots.of(scores)
    assert len(knots.scores) <= 1024
    exact = (np.searchsorted(np.sort(scores), 0.3, side="right")) / 20_001
    assert np.interp(0.3, knots.scores, knots.shares) == pytest.approx(exact, abs=1e-3)
