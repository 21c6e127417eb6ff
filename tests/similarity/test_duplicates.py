"""Near-duplicates on the unit circle."""

import numpy as np
from tests.similarity.embedded import split

from farther.similarity.duplicates import near_duplicates


def test_near_duplicates_are_found_within_and_across_splits():
    train, test = split("train", "ID", [0, 90, 180], "voc"), split("near", "near", [91, 1, 45, 1.5])
    pairs, count = near_duplicates([train, test], threshold=np.cos(np.deg2rad(1.2)))
    found = list(
        zip(pairs.split, pairs.image_id, pairs.other_split, pairs.other_image_id, strict=True)
    )
    assert found[0] == ("near", "near 1", "near", "near 3")
    assert set(found[1:]) == {
        ("train", "train 0", "near", "near 1"),
        ("train", "train 1", "near", "near 0"),
    }
    assert count == 3


def test_only_the_closest_duplicates_are_listed_and_all_are_counted():
    many = split("s", "far", np.linspace(0, 3, 40) ** 2)
    some, count = near_duplicates([many], threshold=0.99, limit=10)
    everything, total = near_duplicates([many], threshold=0.99, limit=10_000)
    assert count == total == len(everything) > 100
    assert some.image_id.tolist() == everything.image_id.tolist()[:10]
    assert (np.diff(everything.cosine) <= 0).all()


def test_equal_files_are_told_from_images_that_look_the_same():
    one = split("a", "far", [0, 0, 0])
    one.digest[:2] = "same"
    pairs, _ = near_duplicates([one], threshold=0.999)
    assert pairs.same_file.tolist() == [True, False, False]


def test_of_many_equal_pairs_the_first_are_listed():
    images = split("blank", "far", [0] * 11 + [1, 20, 1])
    listed, found = near_duplicates([images], 0.99, limit=9)
    every, all_found = near_duplicates([images], 0.99, limit=1000)
    assert found == all_found == len(every) == 78
    assert listed.frame.equals(every.frame[:9])
