"""Pairs of boxes that overlap, against a loop."""

import numpy as np

from farther.metrics.matching import (
    boxes,
)


def test_pairs_are_all_that_overlap_however_many_are_looked_at_at_a_time(monkeypatch):
    random = np.random.default_rng(1)
    corners = random.uniform(0, 30, (60, 2))
    box = np.concatenate([corners, corners + random.uniform(1, 20, (60, 2))], axis=1)
    image, is_crowd = random.integers(0, 3, 60), random.random(30) < 0.3
    expected = set()
    for i in range(30):
        for j in range(30):
            one, other = box[i], box[30 + j]
            sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
            shared = np.prod(np.maximum(sides, 0))
            area, second = np.prod(one[2:] - one[:2]), np.prod(other[2:] - other[:2])
            if (
                image[i] == image[30 + j]
                and shared / (area if is_crowd[j] else area + second - shared) >= 0.2
            ):
                expected.add((i, j))
    for rows, block in ((1024, 1 << 20), (7, 11), (30, 1)):
        monkeypatch.setattr(boxes, "ROWS", rows)
        monkeypatch.setattr(boxes, "BLOCK", block)
        found = boxes.pairs(box[:30], image[:30], box[30:], image[30:], is_crowd, 0.2)
        assert set(zip(found.region.tolist(), found.target.tolist(), strict=True)) == expected
        assert len(found.region) == len(expected)
    none = boxes.pairs(box[:30], image[:30], box[:0], image[:0], is_crowd[:0], 0.2)
    assert (
        len(none) == len(boxes.pairs(box[:0], image[:0], box[30:], image[30:], is_crowd, 0.2)) == 0
    )
