"""Weights of replicates: what is held in memory at once."""

from itertools import chain

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
