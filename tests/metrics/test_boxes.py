"""Pairs of boxes that overlap, against a loop."""

import numpy as np

from farther.metrics.matching import boxes


def overlap(box, other, *, is_crowd):
    """IoU of two boxes, or the share of the first one in a crowd."""
    sides = np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2])
    shared = np.prod(np.maximum(sides, 0))
    area = np.prod(box[2:] - box[:2])
    if is_crowd:
        return shared / area
    return shared / (area + np.prod(other[2:] - other[:2]) - shared)


def test_pairs_are_all_that_overlap_however_many_are_looked_at_at_a_time(monkeypatch):
    random = np.random.default_rng(1)
    corners = random.uniform(0, 30, (60, 2))
    box = np.concatenate([corners, corners + random.uniform(1, 20, (60, 2))], axis=1)
    image = random.integers(0, 3, 60)
    is_crowd = random.random(30) < 0.3
    expected = set()
    for i in range(30):
        for j in range(30):
            is_same_image = image[i] == image[30 + j]
            if is_same_image and overlap(box[i], box[30 + j], is_crowd=is_crowd[j]) >= 0.2:
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
