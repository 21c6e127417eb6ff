"""Tables of objects."""

from tests.tables.examples import objects


def test_absent_flags_are_false():
    assert not objects().is_crowd.any()
    assert objects(is_crowd=[True, False, False]).is_crowd.sum() == 1


def test_only_a_crowd_of_that_name_stands_for_what_nobody_annotated():
    table = objects(category=["unlabelled", "unlabelled", "cat"], is_crowd=[True, False, True])
    assert table.is_unlabelled.tolist() == [True, False, False]
