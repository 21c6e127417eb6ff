"""The outcome of each detection and of each object, as the evaluation hands it on."""

import numpy as np
import pytest

from farther.errors import DataError
from farther.metrics import open_set
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.tables import ObjectOutcomes, RegionOutcomes

FIRST, SECOND, THIRD, NOWHERE = (
    [0, 0, 100, 100],
    [200, 0, 300, 100],
    [400, 0, 500, 100],
    [700, 700, 800, 800],
)


def test_each_detection_and_each_object_has_one_outcome(objects, regions):
    truth = objects(
        ("a", FIRST, "fox"),
        ("a", SECOND, "fox"),
        ("b", FIRST, "bear"),
        ("b", SECOND, "cat"),
        ("c", FIRST, "fox", True),
    )
    found = regions(
        ("a", [0, 0, 100, 90], 0.9),  # flagged: finds the first
        ("a", FIRST, 0.8),  # flagged: the first is taken
        ("a", [200, 0, 300, 80], 0.7),  # kept: misclassifies the second
        ("a", SECOND, 0.5),  # kept: so does this, less confident
        ("b", SECOND, 0.6, "cat"),  # kept, and right
        ("c", FIRST, 0.4),  # flagged, in a crowd
    )
    flagged = np.array([1, 1, 0, 0, 0, 1], dtype=bool)
    split = OpenSetSplit.of(truth, found, MatchingRules(known_classes=["cat"]))
    of_regions, of_objects = split.match(flagged).tables(found)
    assert of_regions.outcome.tolist() == [
        "found",
        "false_unknown",
        "misclassified",
        "misclassified",
        "known",
        "ignored",
    ]
    assert of_regions.object_id.tolist() == [0, -1, 1, 1, -1, -1]
    assert of_regions.iou == pytest.approx([0.9, 0, 0.8, 1, 0, 0])
    assert of_objects.outcome.tolist() == [
        "found",
        "misclassified",
        "missed",
        "not_counted",
        "not_counted",
    ]
    assert of_objects.region_id.tolist() == [0, 2, -1, -1, -1]


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
def test_the_tables_hold_what_the_counts_are_made_of(world, protocol, tmp_path):
    truth, found = world(3)
    flagged = found.score < 0.4
    outcome = OpenSetSplit.of(truth, found, MatchingRules(0.5, protocol, ["cat"])).match(flagged)
    of_regions, of_objects = outcome.tables(found)
    of_regions.write(tmp_path / "regions.parquet")
    of_objects.write(tmp_path / "objects.parquet")
    of_regions = RegionOutcomes.read(tmp_path / "regions.parquet")
    of_objects = ObjectOutcomes.read(tmp_path / "objects.parquet")
    counts = open_set.metrics(outcome)
    assert (
        (of_objects.outcome == "found").sum()
        == (of_regions.outcome == "found").sum()
        == counts["tp_u"]
    )
    assert (of_objects.outcome == "misclassified").sum() == counts["fn_misclassified"]
    assert (of_regions.outcome == "false_unknown").sum() == counts["fp_u"]
    # A decided object and its region lie in one image.
    for outcome_of, other, key in (
        (of_objects, of_regions, "region_id"),
        (of_regions, of_objects, "object_id"),
    ):
        image = dict(zip(getattr(other, key).tolist(), other.image_id, strict=True))
        decided = getattr(outcome_of, key) >= 0
        numbers = getattr(outcome_of, key)[decided].tolist()
        assert [image[number] for number in numbers] == list(outcome_of.image_id[decided])


def test_an_unknown_outcome_is_refused_with_its_row():
    with pytest.raises(
        DataError, match="row 1: field 'outcome': unknown outcome 'lost'; known: found"
    ):
        ObjectOutcomes(
            image_id=["a", "a"],
            object_id=[0, 1],
            category=["fox"] * 2,
            outcome=["found", "lost"],
            region_id=[0, -1],
        )
