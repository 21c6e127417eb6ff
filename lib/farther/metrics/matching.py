"""Who is matched with whom: detections choose objects in the order of their confidence."""

from __future__ import annotations

import numpy as np

from farther.metrics.boxes import Pairs


def ranks(score: np.ndarray, image: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Place of each row when sorted by falling score, ndarray of shape (N,), int64.

    Args:
        image, number: Equal scores go by the image, then by the row's number in it, so that the order in which rows
            stand in a table decides nothing.
    """
    rank = np.empty(len(score), dtype=np.int64)
    falling = -np.asarray(score, dtype=np.float64)
    step = np.diff(image)
    if np.all((step > 0) | ((step == 0) & (number[1:] >= number[:-1]))):
        # As tables are stored; sorting by one key is several times as fast.
        rank[np.argsort(falling, kind="stable")] = np.arange(len(score))
    else:
        rank[np.lexsort((number, image, falling))] = np.arange(len(score))
    return rank


def ranks_within(score: np.ndarray, group: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Place of each row among the rows of its group when sorted by falling score, from 0; equal scores by `number`."""
    order = np.lexsort((number, -np.asarray(score, dtype=np.float64), group))
    in_order = group[order]
    first = np.flatnonzero(np.diff(in_order, prepend=in_order[:1] - 1))
    length = np.diff(np.append(first, len(order)))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.repeat(first, length)
    return place


def assign(pairs: Pairs, rank: np.ndarray, reusable: np.ndarray) -> np.ndarray:
    """Greedy one-to-one matching: in the order of their rank, regions take the object they want most of those left.

    Args:
        pairs: Whom a region may take; sorted by region, and within a region the most wanted first.
        rank: ndarray of shape (N,), int64: a different number below N for each region, the smaller chooses first.
        reusable: ndarray of shape (M,), bool: objects that any number of regions may take.

    Returns:
        ndarray of shape (N,), int64: the object's row, or −1.

    All regions choose at once; where two want one object, the later in rank goes on to its next choice, until nobody
    has to (Gale and Shapley, 1962). As all objects prefer the same ranks, that ends where choosing one by one would.
    """
    matched = np.full(len(rank), -1, dtype=np.int64)
    if not len(pairs):
        return matched
    choice = np.flatnonzero(np.diff(pairs.region, prepend=-1))
    end = np.append(choice[1:], len(pairs))
    holder = np.full(len(reusable), len(rank), dtype=np.int64)
    own_rank = rank[pairs.region[choice]]
    while True:
        wanted = pairs.target[choice]
        np.minimum.at(holder, wanted, own_rank)
        refused = (own_rank > holder[wanted]) & ~reusable[wanted]
        if not refused.any():
            matched[pairs.region[choice]] = wanted
            return matched
        choice = choice + refused
        left = choice < end
        choice, end, own_rank = choice[left], end[left], own_rank[left]
