"""A second score where the first is undecided."""

import numpy as np
import pytest

from farther import methods
from farther.errors import DataError, ParameterError
from farther.methods import FitError
from farther.tables import Regions


def cascade(**params):
    return methods.create("cascade", **{"first": "energy", "then": "mahalanobis", **params})


def learned(make, **params):
    method = cascade(**params).fit(make(seed=1))
    method.learn_validation(make(seed=2))
    return method


def toy(first, second):
    """Regions whose confidence is the first score, and whose `uncertainty` orders the second."""
    count = len(first)
    return Regions(
        image_id=[f"image {number // 2}" for number in range(count)],
        region_id=np.arange(count),
        box=np.tile([0.0, 0.0, 1.0, 1.0], (count, 1)),
        score=np.array(first),
        label=np.zeros(count),
        logits=np.zeros((count, 1)),
        uncertainty=-np.array(second),
    )


def ranks(scores):
    return np.argsort(np.argsort(scores)).tolist()


def test_the_band_is_worked_out_by_hand():
    # Shares of the first: 1/11 … 10/11. `share: 0.3` around 0.05: three detections, up to 3.5/11.
    train = toy(np.arange(1, 11) / 10, [3, 1, 2, 0, 0, 0, 0, 0, 0, 0])
    method = cascade(first="confidence", then="uncertainty", share=0.3).fit(train)
    np.testing.assert_allclose(method.band_, [0, 3.5 / 11])
    assert method.asked_ == {"detections": 0.3, "images": 2 / 5}
    low, high = method.band_
    of_second = np.array([3, 1, 2]) / 4
    expected = [*(low + (high - low) * of_second), *(np.arange(4, 11) / 11)]
    np.testing.assert_allclose(method.score(train), expected)


def test_a_band_above_0_leaves_the_lowest_to_the_first():
    train = toy(np.arange(1, 11) / 10, np.arange(10))
    method = cascade(first="confidence", then="uncertainty", share=0.2, around=0.4).fit(train)
    np.testing.assert_allclose(method.band_, [3.5 / 11, 5.5 / 11])
    second = [9, 8, 7, 4, 3, 0, 0, 0, 0, 0]
    rows = train.with_columns(uncertainty=-np.array(second, float))
    assert ranks(method.score(rows)) == [0, 1, 2, 4, 3, 5, 6, 7, 8, 9]


def test_scores_outside_of_the_band_are_the_shares_of_the_first(make):
    method = learned(make, share=0.2)
    rows = make(seed=3, shift=2.0)
    scores = method.score(rows)
    opinion = method.first_opinion(rows)
    np.testing.assert_allclose(scores[~opinion.is_undecided], opinion.score[~opinion.is_undecided])
    low, high = method.band_
    in_band = (scores > low) & (scores < high)
    np.testing.assert_array_equal(in_band, opinion.is_undecided)
    assert 0 < in_band.sum() < len(rows)


def test_a_share_of_1_orders_as_the_second_does(make):
    method = learned(make, share=1.0)
    rows = make(seed=3)
    second = methods.create("mahalanobis").fit(make(seed=1)).score(rows)
    validation = methods.create("mahalanobis").fit(make(seed=1)).score(make(seed=2))
    inside = (second > validation.min()) & (second < validation.max())
    scores = method.score(rows)[inside]
    assert np.all(np.diff(scores[np.argsort(second[inside])]) >= -1e-9)
    assert method.asked_ == {"detections": 1.0, "images": 1.0}


def test_the_score_is_a_share_of_validation_detections(make):
    method = cascade(share=0.3).fit(make(seed=1))
    validation = make(2000, seed=2)
    method.learn_validation(validation)
    below = (method.score(validation)[:, None] < [0.05, 0.15, 0.5]).mean(axis=0)
    np.testing.assert_allclose(below, [0.05, 0.15, 0.5], atol=0.01)


def test_the_second_is_computed_for_the_detections_in_the_band_alone(make, monkeypatch):
    method = learned(make, share=0.2)
    counts = []
    cls = methods.get("mahalanobis")
    score = cls._score

    def watched(self, rows):
        counts.append(len(rows.regions))
        return score(self, rows)

    monkeypatch.setattr(cls, "_score", watched)
    rows = make(seed=3)
    method.score(rows)
    assert sum(counts) == method.first_opinion(rows).is_undecided.sum() < len(rows)


def test_where_many_have_the_same_score_the_band_may_hold_none(make):
    regions = make(seed=1)
    same = regions.with_columns(score=np.full(len(regions), 0.5))
    with pytest.raises(FitError, match="in the band of 'confidence'"):
        cascade(first="confidence").fit(same)


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"then": "energy"}, "same name"),
        ({"then": {"knn": {}, "msp": {}}}, "needs one method"),
        ({"then": {"knn": {"kk": 3}}}, "kk"),
        ({"then": "fused"}, "'of' is missing"),
        ({"then": {"fused": {"of": ["msp", "knn"]}}}, "made of others"),
        ({"first": {"knn": {"pass": "crop"}}}, "only 'then' can score a pass"),
        ({"then": {"knn": {"pass": 3}}}, "name of a pass"),
        ({"share": 0}, "share"),
        ({"share": 1.5}, "share"),
        ({"first": "she"}, "different ways"),
    ],
)
def test_what_is_no_cascade_is_named(params, problem):
    with pytest.raises(ParameterError, match=problem):
        cascade(**params)


def test_a_part_that_cannot_be_fitted_is_named(make):
    with pytest.raises(FitError, match=r"cascade, its part 'knn': .*k"):
        cascade(then={"knn": {"k": 10**6}}).fit(make(seed=1))


def beside(make, **kwargs):
    """Regions with the columns of a pass of other vectors, and other classes, beside their own."""
    rows = make(background=True, **kwargs)
    seed = kwargs.get("seed", 0) + 50
    of_pass = make(shift=kwargs.get("shift", 0.0), count=len(rows), seed=seed, dimensions=16)
    of_pass = of_pass.with_columns(image_id=rows.image_id, region_id=rows.region_id)
    return rows.beside({"crop": of_pass}), of_pass


@pytest.mark.parametrize("name", ["knn", "msp", "vim", "mahalanobis"])
def test_a_part_may_score_a_pass(make, name):
    train, pass_train = beside(make, seed=1)
    rows, pass_rows = beside(make, seed=2)
    method = cascade(then={"there": {"method": name, "pass": "crop"}}, share=1.0).fit(train)
    of_pass = pass_train.with_columns(label=train.label)
    alone = methods.create(name).fit(of_pass).score(pass_rows.with_columns(label=rows.label))
    inside = (method.score(rows) > 1 / 301) & (method.score(rows) < 300 / 301)
    order = np.argsort(alone[inside])
    assert np.all(np.diff(method.score(rows)[inside][order]) >= -1e-9)
    assert method.passes_beside == ("crop",)


@pytest.mark.parametrize("name", ["knn", "msp", "vim", "mahalanobis"])
def test_tensors_of_a_pass_score_as_arrays_do(make, name, tmp_path):
    train, _ = beside(make, seed=1)
    rows, _ = beside(make, seed=2, shift=1.0)
    part = {"there": {"method": name, "pass": "crop"}}
    for method in (
        cascade(then=part, share=0.6),
        methods.create("fused", of={"energy": {}, **part}),
    ):
        method.fit(train).save(tmp_path / method.name)
        loaded = methods.load(tmp_path / method.name)
        expected = method.score(rows)
        module = loaded.to_torch(header=train.header)
        np.testing.assert_allclose(module.score_regions(rows), expected, atol=1e-6)
        with pytest.raises(DataError, match="reads the pass 'crop'"):
            loaded.to_torch()


def test_without_the_columns_of_a_pass_the_method_says_which_it_misses(make):
    method = cascade(then={"knn": {"pass": "crop"}})
    with pytest.raises(FitError, match=r"needs pass\.crop/features"):
        method.fit(make())


def test_a_pass_with_other_classes_than_it_was_fitted_to_is_refused(make):
    train, _ = beside(make, seed=1)
    method = cascade(then={"msp": {"pass": "crop"}}).fit(train)
    rows = make(background=True, seed=2)
    other = make(count=len(rows), classes=4, seed=3)
    with pytest.raises(DataError, match="was fitted on"):
        method.score(rows.beside({"crop": other}))


def test_rows_of_a_pass_are_those_of_the_detections(make):
    rows = make(10)
    with pytest.raises(DataError, match="not those of the run"):
        rows.beside({"crop": make(9)})
    with pytest.raises(DataError, match="not those of the run"):
        rows.beside({"crop": make(10)[::-1]})
