"""Exact and approximate search against distances taken one by one."""

import numpy as np
import pytest

from farther import methods
from farther.methods import FitError
from farther.methods.neighbours import (
    cell_centroids,
    inverted_file,
    largest_products,
    nearest,
    nearest_in_cells,
    smallest,
)

pytest.importorskip("faiss")  # absent on macOS
RNG = np.random.default_rng(0)
STORED = RNG.normal(size=(500, 6)).astype(np.float32)
QUERIES = RNG.normal(size=(40, 6)).astype(np.float32)
DISTANCES = np.linalg.norm(QUERIES[:, None] - STORED, axis=2)


@pytest.fixture(params=["faiss", "without faiss"])
def _library(request, monkeypatch):
    if request.param == "without faiss":
        monkeypatch.setattr("farther.methods.neighbours.has_faiss", lambda: False)
        monkeypatch.setattr("farther.methods.neighbours.PRODUCTS", 1500)  # three queries at a time


@pytest.mark.usefixtures("_library")
def test_the_nearest_come_first():
    np.testing.assert_array_equal(nearest(STORED, QUERIES, 7), DISTANCES.argsort(axis=1)[:, :7])


@pytest.mark.usefixtures("_library")
def test_the_largest_inner_products_are_found():
    expected = np.sort(QUERIES @ STORED.T, axis=1)[:, -4:]
    np.testing.assert_allclose(
        np.sort(largest_products(STORED, QUERIES, 4), axis=1), expected, rtol=1e-5
    )


@pytest.mark.usefixtures("_library")
def test_all_stored_vectors_can_be_asked_for():
    np.testing.assert_array_equal(
        np.sort(nearest(STORED[:5], QUERIES, 5), axis=1), np.tile(np.arange(5), (40, 1))
    )


CENTROIDS = cell_centroids(STORED, seed=0)
INDEX = inverted_file(CENTROIDS, STORED)


def test_a_search_of_all_cells_is_exact():
    found = nearest_in_cells(INDEX, QUERIES, 7, probes=len(CENTROIDS))
    np.testing.assert_array_equal(found, DISTANCES.argsort(axis=1)[:, :7])


@pytest.mark.parametrize("several", [3, 1000])  # with ties, and all but without
def test_the_smallest_values_of_a_row_are_found(several):
    values = RNG.integers(several, size=(30, 20)).astype(np.float32)
    for k in (1, 4, 20, 25):
        found, columns = smallest(values, k)
        np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(values, axis=1)[:, :k])
        np.testing.assert_array_equal(np.take_along_axis(values, columns, axis=1), found)
        assert (np.diff(np.sort(columns, axis=1), axis=1) > 0).all()


def test_vectors_far_from_the_origin_are_told_apart():
    far = np.float32(1000)
    index = inverted_file(CENTROIDS + far, STORED + far)
    found = nearest_in_cells(index, QUERIES + far, 7, probes=len(CENTROIDS))
    true = np.linalg.norm((QUERIES + far)[:, None] - (STORED + far), axis=2)
    expected = np.sort(true, axis=1)[:, :7]
    np.testing.assert_allclose(np.take_along_axis(true, found, axis=1), expected, rtol=5e-3)


def test_the_same_seed_gives_the_same_cells():
    np.testing.assert_array_equal(cell_centroids(STORED, seed=0), CENTROIDS)
    assert not np.array_equal(cell_centroids(STORED, seed=1), CENTROIDS)


def test_a_search_of_one_cell_finds_members_of_the_nearest_cell():
    found = nearest_in_cells(INDEX, QUERIES, 1, probes=1)[:, 0]
    cell_of_query = np.linalg.norm(QUERIES[:, None] - CENTROIDS, axis=2).argmin(axis=1)
    cell_of_vector = np.linalg.norm(STORED[:, None] - CENTROIDS, axis=2).argmin(axis=1)
    np.testing.assert_array_equal(cell_of_vector[found], cell_of_query)


def test_cells_with_fewer_vectors_than_neighbours_are_no_reason_to_find_fewer():
    found = nearest_in_cells(INDEX, QUERIES, 100, probes=1)
    np.testing.assert_array_equal(found, DISTANCES.argsort(axis=1)[:, :100])


def test_recall_grows_with_the_cells_searched(make):
    train = make(600, seed=1)
    recalls = [
        methods.create("knn", k=5, index="approximate", probes=n).fit(train).recall_
        for n in (1, 4, 25)
    ]
    assert 0.2 < recalls[0] < recalls[1] <= recalls[2] == 1.0


def test_the_recall_is_the_share_of_the_true_neighbours_that_are_found(make):
    fitted = methods.create("knn", k=5, index="approximate", probes=2).fit(make(250, seed=1))
    distances = np.linalg.norm(fitted.stored_[:, None] - fitted.stored_, axis=2)
    true = distances.argsort(axis=1)[:, 1:6]  # the first is the vector itself
    index = inverted_file(fitted.centroids_, fitted.stored_)
    found = nearest_in_cells(index, fitted.stored_, 6, probes=2)
    expected = np.mean([np.isin(row, near).mean() for row, near in zip(true, found, strict=True)])
    assert fitted.recall_ == pytest.approx(expected, abs=1e-3)  # features with ties


def test_an_approximate_index_without_faiss_says_what_to_install(make, monkeypatch):
    monkeypatch.setattr("farther.methods.neighbours.has_faiss", lambda: False)
    monkeypatch.setattr("farther.methods.knn.has_faiss", lambda: False)
    with pytest.raises(FitError, match=r"pip install 'farther\[fast\]'"):
        methods.create("knn", k=5, index="approximate").fit(make())


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
    np.testing.assert_allclose(loaded.score(test), fitted.score(test), rtol=1e-9)
    assert loaded.recall_ == fitted.recall_
