"""Matching of categories with ID classes by names; by CLIP in `tests/similarity`."""

from pathlib import Path

from farther.datasets import ClassNames
from farther.projects import Lookup
from farther.projects.class_matching import match_classes

NAMES = ClassNames(Path(__file__).parents[2] / "data/names/classes.yaml")


def test_equal_names_and_synonyms_are_proposed_and_doubtful_ones_are_pointed_out():
    matches = match_classes(
        ["Person", "cats", "tvmonitor", "persn", "zebra"], ["person", "cat", "tv"], Lookup(NAMES)
    )
    assert [(match.category, match.relation, match.id_class) for match in matches] == [
        ("Person", "same", "person"),
        ("cats", "same", "cat"),
        ("tvmonitor", "same", "tv"),
        ("persn", "resembles", "person"),
        ("zebra", "unknown", ""),
    ]
    assert matches[2].reason == "a synonym in farther's list"
