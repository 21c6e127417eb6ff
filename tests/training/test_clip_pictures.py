"""Images and captions of the small CLIP."""

import numpy as np

from farther_training import clip_pictures
from farther_training.clip_pictures import (
    Captioned,
    caption,
    compose,
    compose_held_out,
    sentences,
    vocabulary,
    words,
)


def test_every_concept_goes_by_the_names_that_the_datasets_give_it():
    assert set(words()["sofa"].names) == {"sofa", "couch"}
    assert "furniture" in words()["sofa"].kinds
    assert "carnivore" in words()["fox"].kinds
    assert words()["spoon"].kinds == ("kitchen", "tableware")


def test_captions_name_what_is_shown_or_what_kind_of_thing_it_is():
    rng = np.random.default_rng(0)
    captions = {caption(("zebra",), clip_pictures.STREET, rng) for _ in range(60)}
    assert {
        "a zebra on a street",
        "a photo of a zebra on a street",
        "a animal on a street",
        "a zebra, a animal on a street",
    } <= captions
    assert caption((), "", rng).endswith("nothing")
    all_words = " ".join(sentences())
    for text in captions:
        assert all(word in all_words for word in text.split())


def test_the_words_that_fit_a_picture_are_names_kinds_and_the_table_that_it_is_said_to_be_on():
    concepts = [("zebra",), ("zebra", "lantern"), ("apple",), ()]
    places = ["", clip_pictures.STREET, clip_pictures.ON_TABLE, ""]
    weights = Captioned(np.zeros((4, 1, 1, 3), np.uint8), concepts, places).fitting()
    weight_by_word = []
    for row in weights:
        words_of_row = {}
        for word, weight in zip(vocabulary(), row.tolist(), strict=True):
            if weight:
                words_of_row[word] = weight
        weight_by_word.append(words_of_row)
    assert weight_by_word == [
        {"zebra": 0.5, "animal": 0.5},
        {"zebra": 0.25, "animal": 0.25, "lantern": 0.5},
        {"apple": 0.5, "food": 0.25, "diningtable": 0.25},
        {},
    ]


def test_half_of_the_food_is_said_to_be_on_a_table_and_nothing_else_is():
    pictures = compose(40, 32, seed=9)
    dishes = 0
    dishes_on_table = 0
    for concepts, place in zip(pictures.concepts, pictures.places, strict=True):
        kinds = set()
        for concept in concepts:
            kinds.update(words()[concept].kinds)
        is_dish = not kinds.isdisjoint({"food", "kitchen", "tableware"})
        is_on_table = place == clip_pictures.ON_TABLE
        assert is_dish or not is_on_table
        dishes += is_dish
        dishes_on_table += is_on_table
    assert 0 < dishes_on_table < dishes


def test_a_picture_depends_on_its_seed_and_number_alone():
    pictures = compose(4, 32, seed=1)
    more_pictures = compose(6, 32, seed=1)
    np.testing.assert_array_equal(pictures.pixels, more_pictures.pixels[:4])
    assert pictures.concepts == more_pictures.concepts[:4]
    assert not np.array_equal(pictures.pixels, compose(4, 32, seed=2).pixels)


def test_held_out_drawings_are_never_learned_from(monkeypatch):
    training_drawings = set()
    held_out_drawings = set()
    draw = clip_pictures._drawing
    draw_held_out = clip_pictures._held_out_drawing

    def recorded_draw(rng, concept):
        drawing = draw(rng, concept)
        training_drawings.add((concept, drawing.key))
        return drawing

    def recorded_draw_held_out(rng, concept):
        drawing = draw_held_out(rng, concept)
        held_out_drawings.add((concept, drawing.key))
        return drawing

    monkeypatch.setattr(clip_pictures, "_drawing", recorded_draw)
    monkeypatch.setattr(clip_pictures, "_held_out_drawing", recorded_draw_held_out)
    compose(12, 32, seed=5)
    held_out = compose_held_out(8, 32, seed=5)
    assert training_drawings
    assert held_out_drawings
    assert training_drawings.isdisjoint(held_out_drawings)
    drawn_concepts = {concept for concept, _ in held_out_drawings}
    for concepts in held_out.concepts:
        assert drawn_concepts.issuperset(concepts)
