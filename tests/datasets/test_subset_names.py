"""The subset that a name means."""

import random
from itertools import product

import pytest

from farther.datasets.subset_names import read_names, subset_of, subsets_of

WORDS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
NO_SUBSETS = (
    "train_station",
    "station-train",
    "TrainStation",
    "trains",
    "trainers",
    "valley",
    "Valley2017",
    "validator",
    "testbed",
    "TestBed",
    "contest",
    "latest",
    "devices",
    "beach",
    "val_test",
    "images",
    "2017",
    "",
    "_",
    "été_train",
)


def spellings() -> list[tuple[str, str]]:
    """Names and the subset that each means: cases, separators, numbers and neutral words."""
    names: list[tuple[str, str]] = []
    draw = random.Random(7)
    for subset, words in WORDS.items():
        for word, separator, number in product(words, "_-. ", ("", "2017", "2")):
            parts = [word, number] if number else [word]
            for before, after in ((), ()), (("instances",), ()), (("coco",), ("images",)):
                name = separator.join([*before, *parts, *after])
                mixed = "".join(draw.choice((letter, letter.upper())) for letter in name)
                names += [(spelt, subset) for spelt in (name, name.upper(), name.title(), mixed)]
            names.append((f"{word}{number}", subset))
            names.append((f"{word.title()}Images{number}", subset))
            names.append((f"_{word}_", subset))
    return names


def test_a_word_for_a_subset_means_it_in_every_spelling():
    wrong = {name: subset_of(name) for name, subset in spellings() if subset_of(name) != subset}
    assert wrong == {}


@pytest.mark.parametrize("name", NO_SUBSETS)
def test_other_words_mean_no_subset_in_every_case(name):
    assert {subset_of(name), subset_of(name.upper()), subset_of(name.title())} == {None}


@pytest.mark.parametrize(
    ("name", "subset"),
    [
        ("obj_train_data", "train"),
        ("_annotations.valid", "val"),
        ("person_keypoints_val2017", "val"),
        ("image_info_test-dev2017", "test"),
        ("trainset", "train"),
        ("trainval", "train"),
    ],
)
def test_names_of_published_files_mean_their_subset(name, subset):
    assert subset_of(name) == subset


def test_words_that_all_names_share_carry_no_meaning_if_then_each_means_a_subset():
    assert subsets_of(["pets_train", "pets_Val"]) == {"pets_train": "train", "pets_Val": "val"}
    assert set(subsets_of(["train_station", "bus_station"]).values()) == {None}
    assert set(subsets_of(["train_station"]).values()) == {None}


def test_the_usual_word_is_preferred_and_the_other_named():
    reading = read_names(["dev", "Test", "trainval", "valid", "train"])
    assert reading.chosen == {"train": "train", "val": "valid", "test": "Test"}
    assert reading.rivals == {"train": ["trainval"], "val": ["dev"]}
    assert reading.are_subsets


def test_one_word_for_a_subset_among_other_names_divides_nothing():
    assert not read_names(["beach", "train", "market"]).are_subsets
    assert read_names(["train", "test", "market"]).are_subsets
    assert read_names(["train"]).are_subsets


def test_the_one_other_name_is_assumed_to_be_what_a_detector_was_not_trained_on():
    assert read_names(["train", "holdout"]).assumed == {"test": "holdout"}
    assert read_names(["photos", "test"]).assumed == {"train": "photos"}
    assert read_names(["beach", "train", "market"]).assumed == {}
    assert read_names(["train", "test", "market"]).assumed == {}
