"""Weights of replicates: what is held in memory at once."""

from itertools import chain

import numpy as np
import pytest

from farther.metrics import weighting


@pytest.mark.parametrize(
    ("rows", "expected"), [(0, [7]), (1, [7]), (5, [2, 2, 2, 1]), (10, [1] * 7), (99, [1] * 7)]
)
def test_blocks_hold_all_replicates_once_and_few_weights_at_a_time(monkeypatch, rows, expected):
    monkeypatch.setattr(weighting, "BLOCK", 10)
    replicates = list(range(7))
    parts = [replicates[block] for block in weighting.blocks(7, rows)]
    assert list(chain.from_iterable(parts)) == replicates
    assert list(map(len, parts)) == expected


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("groups", [3, 100])
@pytest.mark.parametrize("kind", ["few", "many", "fractions"])
def test_totals_by_group_are_exact(kind, groups, replicates):
    random = np.random.default_rng(0)
    image, group = random.integers(0, 5, 40), random.integers(0, groups, 40)
    group[:35] = 0
    weights = {
        "few": random.integers(0, 9, (replicates, 5)),
        "many": random.integers(500_000, 700_000, (replicates, 5)),  # group 0 has more than 2²⁴
        "fractions": random.random((replicates, 5)),
    }[kind]
    expected = [weights[:, image[group == k]].sum(axis=1) for k in range(groups)]
    found = weighting.RowWeights(weights, image).total_by_group(group, groups)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_weights_of_two_sets_of_images_are_joined_whether_they_are_drawn_in_groups_or_not():
    random = np.random.default_rng(0)
    grouped = weighting.GroupWeights(random.integers(0, 3, (4, 2)), np.array([1, 0, 1, 1, 0]))
    plain = random.integers(0, 3, (4, 6))
    values = random.random(5), random.random(6)
    for first, second in ((grouped, plain), (plain, grouped), (plain, plain), (grouped, grouped)):
        one, other = (values[of is plain] for of in (first, second))
        both = weighting.joined(first, second)
        assert both.shape == (4, len(one) + len(other))
        np.testing.assert_allclose(
            both @ np.concatenate([one, other]), first @ one + second @ other
        )
