"""Ingested tables: selection of images, and damaged or absent tables."""

import pytest
from tests.support.labelled import labelled
from tests.support.messages import OUTSIDE

from farther.curation import LabelledImages
from farther.curation.sources import smallest_by_digest
from farther.errors import DataError, ParameterError
from farther.tables.documents import write_json


def test_a_smaller_number_of_images_is_part_of_a_larger_one_with_all_objects_in_order():
    shown = {f"image {n}": ["Kite", "Otter"][: 1 + n % 2] for n in range(50)}
    source = labelled("photos", shown)
    some, more = source.at_most(10), source.at_most(20)
    assert len(some.images) == 10
    assert set(some.images.image_id) < set(more.images.image_id)
    assert list(some.images.image_id) == [i for i in shown if i in set(some.images.image_id)]
    assert len(some.objects) == sum(len(shown[i]) for i in some.images.image_id)
    assert source.at_most(50) is source.at_most(None) is source


def test_the_same_images_are_selected_in_every_version():
    names = [f"{n:06d}" for n in range(100)]
    assert smallest_by_digest(names, 4) == [
        "000030",
        "000046",
        "000065",
        "000096",
    ]  # others would change everyone's splits


def test_an_object_without_its_image_is_refused():
    with pytest.raises(DataError, match="row 1: field 'image_id': 'b' is not in the images table"):
        LabelledImages(
            labelled("photos", {"a": []}).images,
            labelled("photos", {"a": ["Kite"], "b": ["Kite"]}).objects,
        )


def test_unknown_datasets_and_subsets_are_refused_with_the_known_ones(tables):
    with pytest.raises(
        ParameterError, match=r"no dataset is called 'foto'\. Known: drawings, id, photos"
    ):
        tables.source("foto", "val")
    with pytest.raises(
        ParameterError, match=r"no subset of 'photos' is called 'test'\. Known: val"
    ):
        tables.source("photos", "test")
    with pytest.raises(DataError, match=OUTSIDE):
        tables.source("../tables/photos", "val")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"categories": "Cat"}, "field 'categories': "),
        (
            {"categories": ["Cat", "Cat"]},
            r"field 'categories': expected names that differ .*, found \['Cat', 'Cat'\]",
        ),
        ({"categories": [], "parents": {"Cat": "Animal"}}, "field 'parents.Cat': "),
        ([], "Input should be a valid dictionary"),
    ],
)
def test_a_damaged_categories_file_is_named_with_its_field(tables, content, problem):
    file = tables.path / "photos" / "categories.json"
    write_json(file, content)
    with pytest.raises(DataError, match=rf"categories\.json: {problem}"):
        tables.categories("photos")
