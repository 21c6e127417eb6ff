"""The published splits: what is refused, and boxes that give the same edges back."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.publication.conftest import collect_publication
from tests.support.drawn import drawn

from farther.curation.sources import LabelledImages
from farther.errors import DataError, ParameterError
from farther.publication.contents import xywh
from farther.tables import Images


@settings(drawn, max_examples=50)
@given(arrays.arrays(np.float32, (5, 4), elements=st.floats(0, 16384, width=32)))
def test_any_box_gives_its_edges_back_from_corner_and_size(values):
    edges = np.concatenate(
        [np.minimum(values[:, :2], values[:, 2:]), np.maximum(values[:, :2], values[:, 2:])], axis=1
    )
    boxes = xywh(edges)
    low, high = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    assert np.array_equal(np.concatenate([low, high], axis=1).astype(np.float32), edges)


def test_an_object_of_a_category_that_its_dataset_lacks_is_refused(project):
    split = collect_publication(project).splits[0]
    objects = split.objects.with_columns(category=["zebra", "unicorn"])
    with pytest.raises(DataError, match="row 1: field 'category': 'unicorn' is not a category"):
        replace(split, source=LabelledImages(split.images, objects))


def test_an_unknown_or_an_empty_split_is_refused(project, tmp_path):
    with pytest.raises(
        ParameterError, match=r"unknown split of benchmark 'pets' 'moon'\. Known: .*open_far"
    ):
        collect_publication(project, ["moon"])
    root = tmp_path / "project"
    shutil.copytree(project, root)
    Images.empty().write(root / "artifacts/splits/pets/open_far/images.parquet")
    with pytest.raises(ParameterError, match=r"split 'open_far' has no images"):
        collect_publication(root)
