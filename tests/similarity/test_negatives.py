"""Negative prompts mined from a hierarchy of kinds, by embeddings that are worked out by hand."""

import numpy as np
import pytest

from farther.datasets.hierarchy import HierarchyFile
from farther.datasets.wordnet import WordNet
from farther.similarity.negatives import MiningParams, mine_negatives

KINDS = "thing: {animal: {dog: [poodle], fox: }, vehicle: [bus, kite], scenery: [cloud, hill]}"

#: Cosine of each noun with "dog" and with "bus".
COSINES = {
    "thing": (0.1, 0.9),
    "animal": (0.7, 0.1),
    "dog": (1.0, 0.2),
    "poodle": (0.0, 0.0),
    "fox": (0.6, 0.2),
    "vehicle": (0.1, 0.8),
    "bus": (0.2, 1.0),
    "kite": (0.3, 0.4),
    "scenery": (0.25, 0.05),
    "cloud": (0.1, 0.1),
    "hill": (0.0, 0.2),
}


class Encoder:
    """The classes' embeddings are the axes, so that a noun's are its cosines."""

    def names(self, names, templates=()):
        rows = {**COSINES, "DOG": (1.0, 0.0), "Bus": (0.0, 1.0)}
        return np.array([rows[name] for name in names], np.float32)


@pytest.fixture
def kinds(tmp_path):
    (tmp_path / "kinds.yaml").write_text(KINDS)
    return HierarchyFile(tmp_path / "kinds.yaml")


def mine(kinds, categories=(), leave_out=False, **params):
    return mine_negatives(
        Encoder(), kinds, ["DOG", "Bus"], categories, MiningParams(**params), leave_out=leave_out
    )


def test_the_nouns_that_are_farthest_from_their_nearest_class_come_first(kinds):
    found = mine(kinds, quantile=1.0, count=4)
    assert found.prompts == ["cloud", "hill", "scenery", "kite"]
    np.testing.assert_allclose(found.cosines, [0.1, 0.2, 0.25, 0.4], rtol=1e-6)


def test_the_quantile_lets_a_noun_be_near_to_few_classes(kinds):
    found = mine(kinds, quantile=0.5, count=2)  # the mean of two cosines
    assert found.prompts == ["cloud", "hill"]
    np.testing.assert_allclose(found.cosines, [0.1, 0.1], atol=1e-6)


def test_an_id_class_and_its_kinds_are_no_negatives(kinds):
    assert not {"dog", "poodle", "bus"} & set(mine(kinds, count=100).prompts)


def test_negatives_that_name_a_test_category_are_leaks_or_left_out(kinds):
    categories = ["Cloud", "Fox", "sea"]
    found = mine(kinds, categories, quantile=1.0, count=4)
    assert found.leaks == {"cloud": "Cloud"}
    without = mine(kinds, categories, leave_out=True, quantile=1.0, count=4)
    assert without.leaks == {}
    assert without.prompts == ["hill", "scenery", "kite", "animal"]


def test_words_of_one_synset_are_one_name(tmp_path, write_wordnet, encoder):
    wordnet = WordNet(write_wordnet(tmp_path / "dict"))
    found = mine_negatives(encoder, wordnet, ["television set"], ["couch"])
    assert found.leaks == {"sofa": "couch", "couch": "couch"}
    assert "television receiver" not in found.prompts
    assert "physical object" in found.prompts


def test_nouns_for_groups_people_and_quantities_are_left_out(tmp_path, write_wordnet):
    folder = write_wordnet(tmp_path / "dict")
    assert "dog" in WordNet(folder).nouns()
    (folder / "data.noun").write_text(
        (folder / "data.noun").read_text().replace(" 03 n ", " 18 n ")
    )
    lines = [
        f"{number:02d}\t{name}\t1\n"
        for number, name in enumerate(["noun.some"] * 18 + ["noun.person"])
    ]
    (folder / "lexnames").write_text("".join(lines))
    assert WordNet(folder).nouns() == []
