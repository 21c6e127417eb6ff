"""The splits of a benchmark, on tables small enough to work out by hand."""

from pathlib import Path

import numpy as np
import pytest
from tests.curation.photos import CATEGORIES, RULES, InMemory, curate_photos, fates, reasons
from tests.support.labelled import labelled

from farther.curation import (
    Categories,
    LabelledImages,
    benchmark,
    curate,
    splits,
)
from farther.curation.sources import smallest_by_digest
from farther.errors import DataError
from farther.tables.documents import read_json
from farther.tables.files import digest


@pytest.mark.parametrize(
    ("photos", "reason", "fate"),
    [
        (["Leopard", "Kite", "Cat"], "ID class: Cat → cat", "removed"),
        (["Plate", "Cat", "Leopard"], "ID class: Cat → cat", "removed"),
        (["Leopard", "Plate"], "overlap: Plate → table", "removed"),
        (["Human hand"], "ID class: Person → person", "removed"),
        (["Knife"], "near: Knife → table", "near"),
        (["Spoon"], "overlap: Tableware → table", "removed"),
        (["Carrot"], "no near category is labelled", "far"),
    ],
    ids=[
        "an ID class removes whatever else is shown",
        "an ID class goes before an overlap",
        "an overlap goes before nearness",
        "a part of a person is a person",
        "the rule on a category goes before that on what lies above it",
        "an overlap reaches down",
        "nearness does not reach down",
    ],
)
def test_the_highest_rule_on_what_is_labelled_decides(rules, photos, reason, fate):
    curation = curate_photos(rules, {"a": photos})
    assert (reasons(curation), fates(curation)) == ({"a": reason}, {"a": fate})


def test_an_image_with_a_near_category_is_near_and_all_others_are_far(rules):
    curation = curate_photos(rules, {"a": ["Kite", "Leopard"], "b": ["Kite"], "c": ["Otter"]})
    assert fates(curation) == {"a": "near", "b": "far", "c": "near"}
    assert list(curation.splits["photos_near"].images.image_id) == ["a", "c"]
    assert list(curation.splits["photos_near"].objects.category) == ["Kite", "Leopard", "Otter"]
    assert list(curation.splits["photos_far"].objects.category) == ["Kite"]


def test_a_farther_split_takes_near_and_far_images_and_no_overlap(rules):
    splits = {"photos_farther": {"dataset": "photos", "subset": "val", "distance": "farther"}}
    curation = curate_photos(
        rules, {"a": ["Leopard"], "b": ["Kite"], "c": ["Plate"], "d": []}, splits=splits
    )
    assert fates(curation) == {"a": "farther", "b": "farther", "c": "removed", "d": "removed"}
    assert list(curation.splits["photos_farther"].images.image_id) == ["a", "b"]


@pytest.mark.parametrize(("empty", "fate"), [("remove", "removed"), ("keep", "far")])
def test_an_image_without_any_object_follows_the_parameter(rules, empty, fate):
    curation = curate_photos(rules, {"a": [], "b": ["Kite"]}, empty=empty)
    assert fates(curation) == {"a": fate, "b": "far"}
    assert reasons(curation)["a"] == "no object is labelled"


def test_no_image_is_in_two_splits_and_none_is_lost(rules):
    random = np.random.default_rng(3)
    photos = {}
    for number in range(300):
        photos[f"{number:03d}"] = list(random.choice(CATEGORIES, random.integers(0, 4)))
    curation = curate_photos(rules, photos)
    near = curation.splits["photos_near"]
    far = curation.splits["photos_far"]
    removed = [image for image, fate in fates(curation).items() if fate == "removed"]
    assert sorted([*near.images.image_id, *far.images.image_id, *removed]) == sorted(photos)
    assert 0 < len(removed) < 300
    overlapping = {"Cat", "Person", "Human hand", "Plate", "Spoon"}
    assert not overlapping & {*near.objects.category, *far.objects.category}
    assert not {"Leopard", "Otter", "Knife"} & set(far.objects.category)


def test_the_order_of_images_and_objects_does_not_change_a_fate(rules):
    photos = {"a": ["Kite", "Leopard"], "b": ["Plate", "Cat"], "c": ["Kite"]}
    turned = {image: photos[image][::-1] for image in reversed(photos)}
    assert reasons(curate_photos(rules, photos)) == reasons(curate_photos(rules, turned))


def test_id_splits_pass_through_unchanged(rules):
    curation = curate_photos(rules, {"a": ["Kite"]}, subsets={"train": "train", "test": "held-out"})
    assert list(curation.splits["test"].images.image_id) == ["held-out-image"]
    assert list(curation.splits) == ["train", "test", "photos_near", "photos_far"]


def test_shifted_and_pseudo_ood_splits_take_all_images_of_their_subsets(rules):
    shifted = {"c3": {"dataset": "id_shifted", "subset": "c3", "severity": 3}}
    blank = {"dataset": "id_blank", "subset": "blank"}
    curation = curate_photos(rules, {"a": ["Kite"]}, shifted=shifted, pseudo_ood=blank)
    assert list(curation.splits)[3:5] == ["c3", "pseudo_ood"]
    assert list(curation.splits["c3"].images.image_id) == ["c3-image"]
    assert list(curation.splits["pseudo_ood"].images.image_id) == ["blank-image"]
    assert fates(curation) == {"a": "far"}


def test_another_protocol_adds_its_lists_to_those_that_it_extends(rules):
    found = [
        fates(curate_photos(rules, {"a": ["Lynx"], "b": ["Leopard"]}, protocol=name))
        for name in ("paper", "published-code")
    ]
    assert found == [{"a": "far", "b": "near"}, {"a": "near", "b": "near"}]


def test_a_rule_on_a_category_that_the_dataset_lacks_is_a_warning(rules):
    warnings = curate_photos(rules, {"a": ["Kite"]}).warnings
    assert len(warnings) == 2  # and an empty split
    assert warnings[0].endswith(
        "1 rule names a category that photos does not have: ID class: Dining table → table"
    )


def test_images_that_an_id_split_shares_with_another_split_are_a_warning(rules):
    assert not any(
        "in common" in text
        for text in curate_photos(rules, {"a": ["Kite"], "b": ["Otter"]}).warnings
    )
    subsets = {"train": "train", "val": "val", "test": "val"}
    warnings = curate_photos(
        rules, {"train-image": ["Kite"], "b": ["Otter"]}, subsets=subsets
    ).warnings
    assert [text for text in warnings if "in common" in text] == [
        "splits 'val' and 'test' have 1 image in common: neither is held out from the other",
        "splits 'train' and 'photos_far' have 1 image in common: "
        "neither is held out from the other",
    ]


def test_metrics_count_images_by_split_and_by_rule(rules):
    photos = {
        "a": ["Cat"],
        "b": ["Cat", "Kite"],
        "c": ["Leopard", "Leopard"],
        "d": ["Kite"],
        "e": [],
    }
    counts = curate_photos(rules, photos).counts()
    assert counts["photos_near.images"] == 1
    assert counts["photos_near.objects"] == 2
    assert counts["removed.images"] == 3
    assert counts["photos: ID class: Cat → cat"] == 2
    assert counts["photos: no object is labelled"] == 1
    assert counts["photos: near: Leopard → cat"] == 1


def test_an_id_split_takes_at_most_so_many_images(rules, tables):
    chosen = {**params(rules), "id": "photos", "most": {"test": 2}}
    assert len(curate(benchmark("b", chosen), tables).splits["test"].images) == 2


# --------------------------------------------------------------------------------------------------
# on disk


def params(rules: Path, **splits: str) -> dict:
    named = {
        name: {
            "dataset": source,
            "subset": "val",
            "distance": name.split("_")[1],
            "vocabulary": "photos",
        }
        for name, source in splits.items()
    }
    return {"id": "id", "rules": str(rules), "splits": named, "subsets": {"test": "val"}}


def digests(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): digest(p) for p in sorted(folder.rglob("*.parquet"))}


def test_adding_a_split_leaves_the_files_of_the_others_byte_for_byte(rules, tables, tmp_path):
    few = params(rules, photos_near="photos")
    many = params(rules, drawings_far="drawings", photos_near="photos")
    curate(benchmark("b", few), tables).write(tmp_path / "few")
    curate(benchmark("b", many), tables).write(tmp_path / "many")
    before, after = digests(tmp_path / "few"), digests(tmp_path / "many")
    assert before.pop("fates.parquet") != after["fates.parquet"]
    assert before.pop("classes.parquet") != after["classes.parquet"]
    assert before == {name: after[name] for name in before}
    assert "drawings_far/images.parquet" in after


def test_writing_again_drops_the_splits_that_are_gone(rules, tables, tmp_path):
    curate(benchmark("b", params(rules, photos_far="photos", photos_near="photos")), tables).write(
        tmp_path / "out"
    )
    curate(benchmark("b", params(rules, photos_near="photos")), tables).write(tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "classes.parquet",
        "fates.parquet",
        "id_classes.json",
        "photos_near",
        "seen_unknowns.json",
        "test",
        "warnings.json",
    ]
    assert read_json(tmp_path / "out" / "warnings.json")["count"] >= 1


def test_images_of_classes_that_overlap_with_an_id_class_may_be_a_shifted_split(rules):
    photos = {"a": ["Plate"], "b": ["Kite"], "c": ["Cat", "Kite"], "d": []}
    shifted = {
        "plates": {"dataset": "photos", "subset": "val", "severity": 1, "classes": "by rules"}
    }
    split = curate_photos(rules, photos, shifted=shifted).splits["plates"]
    assert split.images.image_id.tolist() == ["a", "c"]
    assert split.objects.category.tolist() == ["table", "cat"]


def test_an_id_split_may_be_made_of_another_dataset(rules):
    photos = {
        "a": ["Cat", "Leopard"],
        "b": ["Kite"],
        "c": ["Cat", "Plate"],
        "d": ["Person", "Human hand"],
    }
    subsets = {"val": "val", "test": {"dataset": "photos", "subset": "val"}}
    split = curate_photos(rules, photos, subsets=subsets).splits["test"]
    assert split.images.image_id.tolist() == ["a", "d"]
    subsets["test"]["empty"] = "keep"
    split = curate_photos(rules, photos, subsets=subsets).splits["test"]
    assert split.images.image_id.tolist() == ["a", "b", "d"]
    assert split.objects.category.tolist() == ["cat", "person", "person"]


def test_an_id_split_may_leave_out_images_that_show_other_classes_too(rules):
    photos = {"a": ["Cat", "Leopard"], "b": ["Kite"], "c": ["Cat", "Cat"], "d": [], "e": ["Person"]}
    split = {"dataset": "photos", "subset": "val", "others": "remove"}
    for empty, expected in (("remove", ["c", "e"]), ("keep", ["c", "d", "e"])):
        subsets = {"val": "val", "test": {**split, "empty": empty}}
        found = curate_photos(rules, photos, subsets=subsets).splits["test"]
        assert found.images.image_id.tolist() == expected
        assert found.objects.category.tolist() == ["cat", "cat", "person"]


def test_an_id_split_of_images_that_nobody_annotated_is_refused(rules):
    tables = InMemory(
        id={"a": ["cat"], "b": ["unlabelled*"], "c": ["unlabelled*"]}, photos={"x": ["Kite"]}
    )
    splits = {"kites": {"dataset": "photos", "subset": "val", "distance": "far"}}
    params = {"id": "id", "rules": rules, "splits": splits, "subsets": {"held-out": "all"}}
    with pytest.raises(
        DataError,
        match="ID split 'held-out': 2 images of id all have no boxes, which the ID classes",
    ):
        curate(benchmark("b", params), tables)


def test_names_that_the_hierarchy_of_classes_lacks_are_warnings(tmp_path):
    (tmp_path / "kinds.yaml").write_text("entity: {animal: {canine: [dog, wolf], feline: [cat]}}\n")
    (tmp_path / "rules.yaml").write_text(
        "{id_classes: {dog: {}, unicorn: {}}, protocols: {paper: {classes_by: {similarity: path, "
        "near_above: 0.3, hierarchy: kinds.yaml}}}}"
    )
    splits = {"photos_far": {"dataset": "photos", "subset": "val", "distance": "far"}}
    params = benchmark(
        "b", {"id": "photos", "rules": tmp_path / "rules.yaml", "splits": splits, "subsets": {}}
    )
    tables = InMemory(photos={"a": ["Wolf"], "b": ["Kite"]})
    tables.categories = lambda dataset: Categories(("dog", "unicorn", "Wolf", "Cat", "Kite"))
    curation = curate(params, tables)
    assert fates(curation) == {"a": "near", "b": "far"}
    lacking = [
        text.removeprefix(f"{tmp_path}/kinds.yaml: ")
        for text in curation.warnings
        if "no kind" in text
    ]
    assert lacking == ["no kind is called 'unicorn'", "no kind is called 'Kite'"]
    assert set(curation.pairs.category) == {"dog", "Wolf", "Cat"}


def test_how_far_out_each_class_is_is_listed(rules):
    classes = curate_photos(rules, {"a": ["Kite"]}).classes
    assert dict(zip(classes.category, classes.oodness, strict=True)) == {
        **dict.fromkeys(["Cat", "Person", "Human hand"], 0),
        **dict.fromkeys(["Plate", "Spoon"], 1),
        **dict.fromkeys(["Knife", "Leopard", "Otter"], 2),
        **dict.fromkeys(["Lynx", "Carrot", "Kite"], 3),
    }


def test_an_empty_split_is_reported_and_an_empty_id_split_is_refused(rules):
    assert (
        len(curate_photos(rules, {}).splits["photos_near"].images)
        == len(curate_photos(rules, {}).fates)
        == 0
    )
    assert (
        "split 'photos_near' has no image, and is not tested"
        in curate_photos(rules, {"a": ["Kite"]}).warnings
    )
    with pytest.raises(
        DataError, match=r"ID split 'val' has no image: photos val has none that the rules let in"
    ):
        curate_photos(
            rules,
            {"a": ["Kite"]},
            subsets={"train": "train", "val": {"dataset": "photos", "subset": "val"}},
        )


def test_with_the_vocabulary_of_another_dataset_only_unknown_names_are_warnings(
    tmp_path,
):
    text = RULES.replace("photos:", "other:")
    (tmp_path / "rules.yaml").write_text(text)
    splits = {
        "photos_far": {
            "dataset": "photos",
            "subset": "val",
            "distance": "far",
            "vocabulary": "other",
        }
    }
    params = benchmark("b", {"id": "id", "rules": tmp_path / "rules.yaml", "splits": splits})
    warnings = curate(params, InMemory(photos={"a": ["Kite"]})).warnings
    assert warnings == [
        "photos: vocabulary 'other' does not have 'Lynx', 'Carrot', 'Kite': counted as unknown"
    ]


# ------------------------------------------------------------------------------------------- splits
# as published


class OneSubset(InMemory):
    """An ID dataset of one subset: four frames per video, each frame's bytes under two names."""

    def __init__(self, count: int):
        super().__init__(photos={"a": ["Kite"]})
        self.count = count

    def source(self, dataset: str, subset: str) -> LabelledImages:
        if dataset != "id":
            return super().source(dataset, subset)
        categories_by_image = {}
        for number in range(self.count):
            name = f"video{number // 4}_{number % 4}"
            categories_by_image[name] = ["cat"]
            categories_by_image[f"{name}_copy"] = ["cat"]
        frames = labelled(dataset, categories_by_image)
        digests = [digest(name.removesuffix("_copy")) for name in frames.images.image_id]
        return LabelledImages(frames.images.with_columns(digest=digests), frames.objects)


SHARES = {"train": 0.6, "val": 0.2, "test": 0.2}


def divided(rules: Path, count: int, **options: str) -> dict[str, set[str]]:
    """Names of the images of each part of a subset.

    Args:
        rules: The class mapping.
        count: Number of frames of the subset.
        options: Further parameters of each part.
    """
    parts = {name: {"of": "all", "part": share, **options} for name, share in SHARES.items()}
    splits = {"kites": {"dataset": "photos", "subset": "all", "distance": "farther"}}
    params = {"id": "id", "rules": rules, "splits": splits, "subsets": parts}
    curation = curate(benchmark("b", params), OneSubset(count))
    assert not any("in common" in warning for warning in curation.warnings)
    return {name: set(curation.splits[name].images.image_id) for name in parts}


def test_parts_of_a_subset_share_no_image_and_keep_theirs_when_images_are_added(rules):
    parts = divided(rules, 400)
    assert sum(len(part) for part in parts.values()) == len(set().union(*parts.values())) == 800
    for name, share in SHARES.items():
        assert abs(len(parts[name]) / 800 - share) < 4 * (share * (1 - share) / 400) ** 0.5
        originals = {image.removesuffix("_copy") for image in parts[name]}
        assert originals <= parts[name]  # equal bytes stay together
    more = divided(rules, 500)
    assert all(parts[name] <= more[name] for name in parts)


def test_an_image_between_two_parts_belongs_to_one_of_them(rules, monkeypatch):
    monkeypatch.setattr(splits, "digest", lambda group: group)
    subsets = {
        "train": {"of": "all", "part": 0.5},
        "val": {"of": "all", "part": 0.25},
        "test": {"of": "all", "part": 0.25},
    }
    params = {"id": "id", "rules": rules, "splits": {}, "subsets": subsets}
    positions = [0, 0.5, 0.75, 0.5 - 2**-50, 0.75 - 2**-50, 1 - 2**-50]
    names = [f"{int(position * 16**13):013x}" for position in positions]
    tables = InMemory(id={name: ["cat"] for name in names})
    curation = curate(benchmark("b", params), tables)
    positions_by_part = {}
    for part in subsets:
        images = curation.splits[part].images.image_id
        positions_by_part[part] = [int(image, 16) / 16**13 for image in images]
    assert positions_by_part == {
        "train": [0, 0.5 - 2**-50],
        "val": [0.5, 0.75 - 2**-50],
        "test": [0.75, 1 - 2**-50],
    }


def test_frames_of_a_video_stay_together(rules):
    parts = divided(rules, 200, together=r"(video\d+)_")
    videos = {name: {image.partition("_")[0] for image in part} for name, part in parts.items()}
    assert sum(map(len, videos.values())) == len(set().union(*videos.values())) == 50


def kites_and_leopards() -> dict[str, list[str]]:
    """Five photos of kites, which are far, and five of leopards, which are near."""
    photos = {}
    for number in range(5):
        photos[f"Kite{number}"] = ["Kite"]
        photos[f"Leopard{number}"] = ["Leopard"]
    return photos


def test_two_splits_of_the_same_images_share_none_where_one_takes_what_the_other_leaves(rules):
    photos = kites_and_leopards()
    far = {"dataset": "photos", "subset": "val", "distance": "far"}
    splits = {
        "photos_far": far,
        "validation": {**far, "use": "validation", "rest_of": "photos_far"},
    }
    taken = curate_photos(rules, photos, most={"photos_far": 2}, splits=splits)
    halves = [set(taken.splits[name].images.image_id) for name in ("photos_far", "validation")]
    reordered = dict(reversed(splits.items()))
    again = curate_photos(rules, photos, most={"photos_far": 2}, splits=reordered)
    assert [set(again.splits[name].images.image_id) for name in splits] == halves
    assert [len(half) for half in halves] == [2, 3]
    assert halves[0] | halves[1] == {name for name in photos if name.startswith("Kite")}
    assert set(taken.fates.frame.filter(fate="far")["image_id"]) == halves[0] | halves[1]
    fewer = curate_photos(rules, photos, most={"photos_far": 2, "validation": 1}, splits=splits)
    assert len(fewer.splits["validation"].images) == 1
    assert set(fewer.splits["validation"].images.image_id) < halves[1]
    undrawn = halves[1] - set(fewer.splits["validation"].images.image_id)
    assert {
        name for name in undrawn if reasons(fewer)[name] == "not among the images that `most` draws"
    } == undrawn


def test_an_ood_split_has_at_most_as_many_images_as_asked_for(rules):
    photos = kites_and_leopards()
    whole = curate_photos(rules, photos)
    limited = curate_photos(rules, photos, most={"photos_far": 2})
    far = limited.splits["photos_far"].images.image_id.tolist()
    assert far == smallest_by_digest([f"Kite{number}" for number in range(5)], 2)
    assert (
        limited.splits["photos_near"].images.image_id.tolist()
        == whole.splits["photos_near"].images.image_id.tolist()
    )
    # What is left out is said, image by image.
    for image_id, fate in fates(limited).items():
        if image_id.startswith("Kite") and image_id not in far:
            assert fate == "removed"
            assert reasons(limited)[image_id] == "not among the images that `most` draws"
        else:
            assert fate == fates(whole)[image_id]
    # A larger number adds images and replaces none.
    assert set(far) < set(
        curate_photos(rules, photos, most={"photos_far": 3}).splits["photos_far"].images.image_id
    )
