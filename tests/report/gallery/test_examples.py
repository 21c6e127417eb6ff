"""Example images are chosen by the outcomes that the evaluation wrote."""

import shutil
from collections.abc import Iterable

import pytest

from farther.report.gallery.examples import ReadImages, choose_examples
from farther.report.gallery.outcomes import SplitOutcomes
from farther.tables import ObjectOutcomes


@pytest.fixture
def copy(project, tmp_path):
    """A project that a test may change."""
    copy = type(project)(tmp_path / "copy")
    shutil.copytree(project.root, copy.root, ignore=shutil.ignore_patterns("report"))
    return copy


def shown(project, split: str, method: str, count: int = 10) -> Iterable:
    return choose_examples(
        SplitOutcomes.read(project.run, split, project.artifacts),
        method,
        ReadImages(project.roots),
        count,
        64,
    )


def change_outcomes(project, outcomes: list[str]) -> None:
    file = project.artifacts / "outcomes" / "net" / "one" / "wild.objects.parquet"
    table = ObjectOutcomes.read(file)
    columns = ("image_id", "object_id", "category", "region_id")
    ObjectOutcomes(**{name: getattr(table, name) for name in columns}, outcome=outcomes).write(file)


def test_outcomes_take_turns_and_no_image_comes_twice(project):
    # `two` misclassifies the zebra of w1, finds that of w2 and misses the gnus of w2 and w3.
    assert [example.image_id for example in shown(project, "wild", "two")] == ["w2", "w1", "w3"]
    assert [example.image_id for example in shown(project, "many", "one", count=4)] == [
        "m00",
        "m30",
        "m01",
        "m31",
    ]


def test_images_whose_objects_are_all_known_are_not_shown(copy):
    # As on a split that keeps objects of known classes: the evaluation does not count the object of
    # w1.
    change_outcomes(copy, ["not_counted", "misclassified", "missed", "missed"])
    assert [example.image_id for example in shown(copy, "wild", "one")] == ["w2", "w3"]


def test_an_outcome_that_the_evaluation_changes_changes_the_choice(copy):
    assert next(iter(shown(copy, "wild", "one"))).image_id == "w1"
    change_outcomes(copy, ["missed", "found", "missed", "missed"])
    assert next(iter(shown(copy, "wild", "one"))).image_id == "w2"


def test_detections_are_flagged_by_the_method(project):
    first = next(iter(shown(project, "wild", "one")))
    assert [(mark.kind, mark.text) for mark in first.marks] == [
        ("truth", "zebra"),
        ("unknown", "? dog 60%"),
        ("unknown", "? cat 90%"),
    ]
    by_two = shown(project, "wild", "two")[1]
    assert [(mark.kind, mark.text) for mark in by_two.marks] == [
        ("truth", "zebra"),
        ("known", "dog 60%"),
        ("known", "cat 90%"),
    ]
