"""Similarity of classes to the ID classes, and the class that decides on an image."""

import pytest
from tests.support.labelled import labelled

from farther.curation.class_similarity import ClassesBy, ClassSimilarity, image_classes
from farther.errors import ParameterError
from farther.tables import SortedClasses


@pytest.fixture
def similarity(tmp_path):
    """Path similarity to dogs and cats: 1 / (1 + edges between two kinds)."""
    kinds = "entity: {animal: {canine: [dog, wolf], feline: [cat]}}\n"
    (tmp_path / "kinds.yaml").write_text(kinds)
    by = ClassesBy(near_above=0.3, similarity="path", hierarchy="kinds.yaml")
    return ClassSimilarity(by, tmp_path, ["dog", "cat"])


def test_the_nearest_id_class_is_that_with_the_shortest_path(similarity):
    id_class, value = similarity.nearest("wolf")
    assert (id_class, value) == ("dog", pytest.approx(1 / 3))
    assert similarity.nearest("unicorn") is None
    assert similarity.nearest("wolf") == (id_class, value)


def test_each_category_is_paired_once_with_each_id_class(similarity):
    pairs = similarity.pairs(["wolf", "unicorn", "wolf"])
    assert pairs.category.tolist() == ["wolf", "wolf"]
    assert pairs.id_class.tolist() == ["dog", "cat"]
    assert pairs.path.tolist() == pytest.approx([1 / 3, 1 / 5])
    assert similarity.unknown(["unicorn", "wolf", "kite"]) == ["unicorn", "kite"]


def test_an_overlap_needs_no_less_similarity_than_nearness():
    with pytest.raises(ParameterError, match=r"overlap_above = 0\.2 is below near_above = 0\.3"):
        ClassesBy(near_above=0.3, overlap_above=0.2)


def test_the_class_of_lowest_oodness_decides_on_an_image():
    classes = SortedClasses(
        dataset=["photos"] * 3,
        category=["Cat", "Fox", "Kite"],
        oodness=[0, 2, 3],
        rule=["", "", ""],
        id_class=["", "", ""],
        similarity=[-1.0, -1.0, -1.0],
        nearest=["", "", ""],
    )
    photos = {"a": ["Kite", "Fox"], "b": [], "c": ["Whale", "Kite"], "d": ["Kite", "Cat", "Fox"]}
    decisive = image_classes(labelled("photos", photos), classes)
    assert decisive.image_id.tolist() == ["a", "b", "c", "d"]
    assert decisive.category.tolist() == ["Fox", "", "Whale", "Cat"]
    assert decisive.oodness.tolist() == [2, 3, 3, 0]
