import sys

import numpy as np
import pytest

from farther.errors import DataError
from farther.similarity import nearest as package_nearest
from farther.similarity.nearest import BLOCK, nearest, pairs_above

ON_MACOS = pytest.mark.skipif(sys.platform == "darwin", reason="farther has FAISS on Linux only")
ENGINES = ["numpy", pytest.param("faiss", marks=ON_MACOS)]


def unit(rng, rows, width=6):
    vectors = rng.standard_normal((rows, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_largest_cosine_is_found_across_blocks(engine):
    rng = np.random.default_rng(0)
    queries, reference = unit(rng, 50), unit(rng, BLOCK + 700)
    found = nearest(queries, reference, engine)
    cosines = queries @ reference.T
    assert found.row.tolist() == cosines.argmax(axis=1).tolist()
    np.testing.assert_allclose(found.cosine, cosines.max(axis=1), atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_of_equal_references_the_first_is_named(engine):
    reference = np.array([[0, 1], [1, 0], [1, 0]], np.float32)
    assert nearest(np.array([[1, 0]], np.float32), reference, engine).row.tolist() == [1]


def test_a_hand_worked_cosine():
    found = package_nearest(np.array([[0.6, 0.8]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert (found.row[0], round(float(found.cosine[0]), 6)) == (1, 0.8)


def test_a_cosine_is_never_above_one_however_it_rounds():
    vectors = unit(np.random.default_rng(1), 300, 64).astype(np.float16)
    assert nearest(vectors, vectors, "numpy").cosine.max() <= 1


@pytest.mark.parametrize(
    ("reference", "found"), [(np.zeros((0, 2)), "no reference image"), (np.eye(3), "two models")]
)
def test_no_reference_and_embeddings_of_two_models_are_refused(reference, found):
    with pytest.raises(DataError, match=found):
        nearest(np.eye(2), reference)


@pytest.mark.parametrize("engine", ENGINES)
def test_of_no_query_nothing_is_found(engine):
    assert [of.shape for of in vars(nearest(np.zeros((0, 2)), np.eye(2), engine)).values()] == [
        (0,),
        (0,),
    ]


def test_every_pair_of_one_set_comes_once_and_none_with_itself():
    rng = np.random.default_rng(2)
    vectors = unit(rng, BLOCK + 30, 3)
    found = [
        pair
        for i, j, _ in pairs_above(vectors, vectors, 0.9995, first_row=0)
        for pair in zip(i, j, strict=True)
    ]
    i, j = np.nonzero(np.triu(vectors @ vectors.T >= 0.9995, k=1))
    assert len(found) == len(set(found)) > 0
    assert set(found) == set(zip(i.tolist(), j.tolist(), strict=True))


def test_pairs_of_two_sets_are_all_found():
    rng = np.random.default_rng(3)
    one, other = unit(rng, 40, 3), unit(rng, BLOCK + 5, 3)
    found = {pair for i, j, _ in pairs_above(one, other, 0.999) for pair in zip(i, j, strict=True)}
    i, j = np.nonzero(one @ other.T >= 0.999)
    assert found == set(zip(i.tolist(), j.tolist(), strict=True))


def test_a_pair_exactly_at_the_threshold_is_a_pair():
    (pairs,) = pairs_above(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [-1.0, 0.0]]), 0.0)
    i, j, cosine = pairs
    assert (i.tolist(), j.tolist(), cosine.tolist()) == ([0], [0], [0.0])
