"""Exact and approximate search against distances taken one by one."""

import numpy as np
import pytest

from farther import methods
from farther.methods.parts.inverted_file import InvertedFile
from farther.methods.parts.neighbours import largest_products, nearest

RNG = np.random.default_rng(0)
STORED = RNG.normal(size=(500, 6)).astype(np.float32)
QUERIES = RNG.normal(size=(40, 6)).astype(np.float32)
DISTANCES = np.linalg.norm(QUERIES[:, None] - STORED, axis=2)


@pytest.fixture(params=["faiss", "products"])
def _library(request, monkeypatch):
    if request.param == "products":
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        monkeypatch.setattr("farther.methods.parts.neighbours.BLOCK", 1500)  # three queries at a time


@pytest.mark.usefixtures("_library")
def test_the_nearest_come_first():
    np.testing.assert_array_equal(nearest(STORED, QUERIES, 7), DISTANCES.argsort(axis=1)[:, :7])


@pytest.mark.usefixtures("_library")
def test_the_largest_inner_products_are_found():
    expected = np.sort(QUERIES @ STORED.T, axis=1)[:, -4:]
    np.testing.assert_allclose(np.sort(largest_products(STORED, QUERIES, 4), axis=1), expected, rtol=1e-5)


@pytest.mark.usefixtures("_library")
def test_all_stored_vectors_can_be_asked_for():
    np.testing.assert_array_equal(np.sort(nearest(STORED[:5], QUERIES, 5), axis=1), np.tile(np.arange(5), (40, 1)))


def test_an_index_that_looks_through_all_lists_is_exact():
    index = InvertedFile.build(STORED, seed=0)
    found = index.stored[index.nearest(QUERIES, 7, probes=len(index.centroids))]
    np.testing.assert_array_equal(found, STORED[DISTANCES.argsort(axis=1)[:, :7]])
    assert index.recall(7, probes=len(index.centroids), seed=0) == 1.0


def test_every_vector_stands_in_the_list_of_its_nearest_centroid():
    index = InvertedFile.build(STORED, seed=0)
    listed = np.repeat(np.arange(len(index.centroids)), np.diff(index.starts))
    distances = np.linalg.norm(index.stored[:, None] - index.centroids, axis=2)
    np.testing.assert_array_equal(listed, distances.argmin(axis=1))
    assert sorted(map(tuple, index.stored)) == sorted(map(tuple, STORED))


def test_recall_grows_with_the_lists_looked_through():
    index = InvertedFile.build(STORED, seed=0)
    recalls = [index.recall(5, probes, seed=0) for probes in (1, 4, 22)]
    assert 0.2 < recalls[0] < recalls[1] <= recalls[2] == 1.0


def test_the_recall_is_the_share_of_the_true_neighbours_that_are_found():
    index = InvertedFile.build(STORED, seed=0)
    distances = np.linalg.norm(index.stored[:, None] - index.stored, axis=2)
    true = distances.argsort(axis=1)[:, 1:6]  # the first is the vector itself
    found = index.nearest(index.stored, 6, probes=2)
    expected = np.mean([np.isin(row, near).mean() for row, near in zip(true, found, strict=True)])
    assert index.recall(5, probes=2, seed=3, sample=len(STORED)) == pytest.approx(expected)
    few = [index.recall(5, probes=2, seed=seed, sample=50) for seed in (3, 3, 4)]
    assert few[0] == few[1] != few[2]
    assert few == pytest.approx([expected] * 3, abs=0.15)


def test_lists_with_too_few_vectors_are_no_reason_to_find_fewer():
    index = InvertedFile.build(STORED, seed=0)
    found = index.nearest(QUERIES, 100, probes=1)
    assert (np.diff(np.sort(found, axis=1), axis=1) > 0).all()
    assert found.min() >= 0


def test_an_approximate_knn_states_its_recall_and_scores_no_higher_than_the_exact_one(make):
    train, test = make(600, seed=1), make(100, seed=2, shift=1.0)
    exact = methods.create("knn", k=5).fit(train).score(test)
    fitted = methods.create("knn", k=5, index="approximate", probes=3).fit(train)
    assert 0.5 < fitted.recall_ < 1.0
    scores = fitted.score(test)
    assert (scores <= exact + 1e-6).all()
    assert np.mean(np.isclose(scores, exact, rtol=1e-6)) > 0.5


def test_a_saved_approximate_index_scores_the_same(make, tmp_path):
    fitted = methods.create("knn", k=5, index="approximate").fit(make(600, seed=1))
    fitted.save(tmp_path / "state")
    test = make(50, seed=2)
    loaded = methods.load(tmp_path / "state")
    np.testing.assert_array_equal(loaded.score(test), fitted.score(test))
    assert loaded.recall_ == fitted.recall_
