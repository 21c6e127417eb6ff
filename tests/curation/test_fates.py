"""Fates of images: their explanation, counts of categories, and published splits."""

from collections import Counter

import numpy as np
import pytest
from tests.curation.photos import CATEGORIES, curate_photos
from tests.support.labelled import labelled

from farther.curation import explain
from farther.curation.fates import PUBLISHED, as_published, category_counts
from farther.errors import ParameterError


def test_explain_names_the_rule_and_the_object_that_decided(rules):
    curation = curate_photos(rules, {"a": ["Kite", "Spoon"], "b": ["Kite"]})
    assert (
        explain(curation.fates, "a")
        == "photos val a: removed; overlap: Tableware → table (object 1, Spoon)"
    )
    assert explain(curation.fates, "b") == "photos val b: far; no near category is labelled"
    with pytest.raises(ParameterError, match="no image 'z'"):
        explain(curation.fates, "z")


def test_categories_are_counted_the_most_frequent_first():
    random = np.random.default_rng(4)
    names = [*CATEGORIES, "unlabelled*"]
    photos = {}
    counts = Counter[str]()
    images = Counter[str]()
    for number in range(60):
        categories = [str(name) for name in random.choice(names, random.integers(0, 5))]
        photos[str(number)] = categories
        counts.update(categories)
        images.update(set(categories))
    del counts["unlabelled*"]
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    rows = list(category_counts(labelled("photos", photos).objects).iter_rows())
    assert rows == [(name, counts[name], images[name]) for name in ordered]
    assert len(set(counts.values())) < len(counts)  # some are equally frequent


@pytest.mark.parametrize(
    ("distance", "empty", "expected"),
    [
        ("near", "keep", ["near"] * 3),
        ("far", "keep", ["far"] * 3),
        ("farther", "keep", ["farther"] * 3),
        ("near", "remove", ["near", "near", "removed"]),
    ],
)
def test_of_a_split_as_published_only_empty_images_may_be_removed(distance, empty, expected):
    source = labelled("d", {"a": ["person"], "b": ["zebra"], "c": []})
    found = as_published(source, "s", distance, empty)
    assert found.fate.tolist() == expected
    assert found.rule.tolist()[:2] == [PUBLISHED] * 2
    assert found.object_id.tolist() == [-1] * 3
