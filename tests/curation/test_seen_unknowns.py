"""Unknown categories that images of the training split show."""

from tests.curation.photos import InMemory, curate_photos

from farther.curation import benchmark, curate


def test_unknown_categories_in_training_images_are_counted_with_the_splits_that_test_them(
    rules,
):
    splits = {
        f"photos_{d}": {"dataset": "photos", "subset": "val", "distance": d}
        for d in ("near", "far")
    }
    tables = InMemory(
        id={"t1": ["cat", "kite", "kite"], "t2": ["cat", "Kite_"], "t3": ["cat", "whale"]},
        photos={
            "a": ["Kite", "Leopard"],
            "b": ["Kite"],
            "c": ["Kite", "Otter"],
            "d": ["Cat", "Kite"],
        },
    )
    curation = curate(benchmark("b", {"id": "id", "rules": rules, "splits": splits}), tables)
    # Three kites in two images; a whale is tested nowhere, and leopards and otters are in no
    # training image.
    assert curation.seen == [
        {
            "category": "Kite",
            "objects": 3,
            "images": 2,
            "splits": {"photos_near": 2, "photos_far": 1},
        }
    ]
    assert curation.counts()["seen_unknowns"] == 1
    assert curate_photos(rules, {"a": ["Kite"]}).seen == []


def test_unknown_categories_with_most_objects_in_training_images_come_first(rules):
    splits = {"photos_near": {"dataset": "photos", "subset": "val", "distance": "near"}}
    tables = InMemory(
        id={"t1": ["cat", "otter", "kite", "kite"]}, photos={"a": ["Otter", "Kite", "Leopard"]}
    )
    curation = curate(benchmark("b", {"id": "id", "rules": rules, "splits": splits}), tables)
    assert [unknown["category"] for unknown in curation.seen] == ["Kite", "Otter"]
