"""The classes of a detector and the ID classes of a benchmark."""

import pytest

from farther.detectors.known_classes import check_classes, with_class_names
from farther.errors import ParameterError
from farther.tables import Header

DETECTOR = Header(classes=("background", "airplane", "tv", "dog"), background_index=0)


def test_renamed_classes_keep_their_columns_and_the_background():
    header = with_class_names(DETECTOR, {"tv": "tvmonitor"})
    assert header.classes == ("background", "airplane", "tvmonitor", "dog")
    assert header.background_index == 0
    assert with_class_names(DETECTOR, None) is DETECTOR


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"telly": "tv"}, r"the detector has no class 'telly'. Its classes: airplane, tv, dog"),
        ({"tv": "dog"}, r"two classes of the detector would be called 'dog'"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused(names, message):
    with pytest.raises(ParameterError, match=message):
        with_class_names(DETECTOR, names)


def test_a_class_mapped_to_null_means_unknown_objects_and_is_not_a_known_class():
    header = with_class_names(DETECTOR, {"tv": None, "dog": "hound"})
    assert header.classes == ("background", "airplane", "tv", "hound")
    assert (header.unknown_columns, header.known_classes) == ((2,), ("airplane", "hound"))
    assert check_classes(DETECTOR, {"tv": None}, ["airplane", "dog"]) == []


def test_the_refusal_names_both_lists_and_the_mapping_to_write():
    with pytest.raises(ParameterError) as error:
        check_classes(DETECTOR, None, ["aeroplane", "dog", "tv"])
    assert str(error.value) == (
        "1 of the detector's 3 classes are not ID classes of the benchmark: airplane. "
        "ID classes that it does not have: aeroplane. "
        "Where only the names differ, map them in the run's entry, as in "
        "`classes: {airplane: aeroplane}`. "
        "A class that means unknown objects is mapped to null, as in `classes: {airplane: null}`. "
        "What a detector was taught is not unknown to it: the class mapping needs all its "
        "classes as id_classes"
    )
    assert check_classes(DETECTOR, {"airplane": "aeroplane"}, ["aeroplane", "dog", "tv"]) == []


def test_id_classes_that_the_detector_lacks_are_returned():
    assert check_classes(DETECTOR, None, ["airplane", "dog", "tv", "zebra"]) == ["zebra"]


def test_a_detector_that_was_taught_an_unknown_class_of_a_division_is_refused():
    assert check_classes(DETECTOR, None, ["airplane", "tv", "dog"], ["cat"]) == []
    with pytest.raises(ParameterError) as error:
        check_classes(DETECTOR, None, ["airplane", "tv"], ["cat", "dog"])
    assert str(error.value) == (
        "1 of the detector's 3 classes are unknown by the benchmark's `division`: dog. "
        "The known ones: airplane, tv. "
        "Take a detector that was trained on these, or list its classes as `division: {known: […]}`"
    )
