"""Proposals of `farther init` by WordNet and CLIP, on names whose similarities are known."""

from types import SimpleNamespace

import numpy as np
import pytest

from farther.datasets.wordnet import WordNet
from farther.errors import ParameterError
from farther.projects.class_matching import Lookup, encoder_params, match_classes

#: Words of a synset, and the first word of the one above.
NOUNS = [
    (["entity"], None),
    (["abstraction"], "entity"),
    (["avant_garde", "van"], "abstraction"),
    (["quantity", "mug"], "abstraction"),
    (["physical_entity"], "entity"),
    (["person"], "physical_entity"),
    (["victim", "mug"], "person"),
    (["container", "mug"], "physical_entity"),
    (["vehicle"], "physical_entity"),
    (["car", "auto"], "vehicle"),
    (["lorry", "van"], "vehicle"),
    (["taxi"], "car"),
    (["fruit"], "abstraction"),
]


@pytest.fixture(scope="module")
def wordnet(tmp_path_factory, write_wordnet) -> WordNet:
    return WordNet(
        write_wordnet(tmp_path_factory.mktemp("wordnet") / "dict", NOUNS), senses="physical"
    )


def related(categories, id_classes, lookup):
    return {
        one.category: (one.relation, one.id_class, one.reason)
        for one in match_classes(categories, id_classes, lookup)
    }


def test_wordnet_tells_synonyms_kinds_near_and_other_categories_apart(wordnet):
    found = related(
        ["auto", "taxi", "yellow taxi", "van", "vehicle", "mug", "fruit"],
        ["car"],
        Lookup(wordnet=wordnet),
    )
    assert found == {
        "auto": ("same", "car", "a synonym in WordNet"),
        "taxi": ("overlap", "car", "a kind of car in WordNet"),
        "yellow taxi": ("overlap", "car", "a kind of car in WordNet"),
        "vehicle": ("overlap", "car", "in WordNet it includes car"),
        # van is a lorry: path 1/3, Wu and Palmer 6/8, Leacock and Chodorow log(8/3) / log(8)
        "van": ("near", "car", "WordNet 0.52"),
        # mug is a container: 3 edges, 4/7, log(2) / log(8)
        "mug": ("unknown", "car", "WordNet 0.38"),
        # 5 edges, 2/7, log(8/6) / log(8)
        "fruit": ("unknown", "car", "WordNet 0.20"),
    }


def test_a_category_above_several_id_classes_is_various(wordnet):
    found = related(["vehicle"], ["car", "lorry"], Lookup(wordnet=wordnet))
    assert found["vehicle"] == ("overlap", "various", "in WordNet it includes car, lorry")


def test_a_compound_is_never_a_synonym_of_its_last_word(wordnet):
    assert related(["toy car"], ["car"], Lookup(wordnet=wordnet))["toy car"][0] == "overlap"


def angles(**degrees):
    """A CLIP whose names lie at these angles."""
    radians = {name.replace("_", " "): np.radians(angle) for name, angle in degrees.items()}
    return SimpleNamespace(
        names=lambda names: np.array([[np.cos(radians[n]), np.sin(radians[n])] for n in names])
    )


def test_clip_compares_with_the_similarity_of_the_names_to_each_other():
    # Angles to the nearest other name: cat and puma 10°, dog and wolf 20°, cow 40°, kite 60°: the
    # median is 20°.
    clip = angles(cat=0, dog=50, cow=110, puma=-10, big_wolf=70, kite=170)
    found = related(["puma", "big_wolf", "kite"], ["cat", "dog", "cow"], Lookup(clip=clip))
    assert found["puma"] == (
        "overlap",
        "cat",
        f"CLIP {np.cos(np.radians(10)):.2f}",
    )  # no two ID classes are as close
    assert found["big_wolf"][:2] == ("overlap", "dog")
    assert found["kite"] == ("unknown", "cow", "CLIP 0.50")
    close = related(
        ["wolf", "kite"], ["cat", "dog"], Lookup(clip=angles(cat=0, dog=10, wolf=20, kite=90))
    )
    assert close["wolf"] == ("near", "dog", "CLIP 0.98")
    assert close["kite"][0] == "unknown"


def test_reasons_of_both_are_given_where_they_agree(wordnet):
    clip = angles(car=0, bus=5, tram=40, van=-6, mug=90)  # to the nearest: 5°, 5°, 35°, 6°, 50°
    found = related(["van", "mug"], ["car", "bus", "tram"], Lookup(wordnet=wordnet, clip=clip))
    assert found["van"] == ("near", "car", "WordNet 0.52, CLIP 0.99")


@pytest.mark.parametrize(
    ("text", "model", "pretrained"),
    [
        ("local-dir:data/clip", "local-dir:data/clip", None),
        ("hf-hub:laion/CLIP", "hf-hub:laion/CLIP", None),
        ("ViT-B-32:openai", "ViT-B-32", "openai"),
    ],
)
def test_a_clip_is_named_as_in_the_section_embed(text, model, pretrained):
    params = encoder_params(text)
    assert (params.model, params.pretrained) == (model, pretrained)


def test_an_architecture_without_weights_is_refused(tmp_path):
    (tmp_path / "names").mkdir()
    (tmp_path / "names/classes.yaml").write_text("{}")
    with pytest.raises(ParameterError, match="'ViT-B-32' is an architecture; name its weights"):
        Lookup.open(tmp_path, clip="ViT-B-32")
