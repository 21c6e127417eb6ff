"""Splits that somebody curated already are taken as they are."""

import numpy as np
import pytest

from farther.curation.fates import PUBLISHED, as_published
from farther.curation.parameters import benchmark
from farther.curation.sources import LabelledImages
from farther.errors import ParameterError
from farther.tables import Images, Objects


@pytest.fixture
def source():
    """Three images: a person, a zebra, and nothing labelled."""
    names = ["a", "b", "c"]
    size = [10, 10, 10]
    images = Images(image_id=names, dataset=["d"] * 3, file=names, width=size, height=size, digest=names)
    box = np.tile(np.array([[0, 0, 5, 5]], np.float32), (2, 1))
    return LabelledImages(images, Objects(image_id=["a", "b"], object_id=[1, 2], box=box, category=["person", "zebra"]))


@pytest.mark.parametrize("distance", ["near", "far", "farther"])
def test_what_is_labelled_does_not_matter(source, distance):
    fates = as_published(source, "s", distance, "keep")
    assert fates.fate.tolist() == [distance] * 3
    assert fates.rule.tolist() == [PUBLISHED] * 3
    assert fates.object_id.tolist() == [-1] * 3


def test_images_without_objects_are_removed_where_they_are_elsewhere(source):
    fates = as_published(source, "s", "near", "remove")
    assert fates.fate.tolist() == ["near", "near", "removed"]


def test_two_splits_cannot_both_be_one_published_split():
    split = {"dataset": "d", "subset": "s", "assigned": "as published"}
    splits = {"one": {**split, "distance": "near"}, "two": {**split, "distance": "far"}}
    with pytest.raises(ParameterError, match="both take"):
        benchmark("x", {"id": "voc", "rules": "rules.yaml", "splits": splits})
