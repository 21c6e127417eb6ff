"""ID images in which reviewers saw unlabelled objects, and proposals measured without them."""

from datetime import UTC, datetime

import numpy as np
import pytest
from tests.evaluation.evaluated_runs import write_json, write_split

from farther.curation.decisions import Decision, DecisionsFile
from farther.detectors.proposal_sources import read_sources
from farther.errors import DataError
from farther.evaluation.files import RunFiles
from farther.evaluation.recovery import evaluate_proposals
from farther.evaluation.reviewed_images import check_reviewed, reviewed_file, with_unlabelled
from farther.evaluation.settings import EvaluationSettings, ProposalSettings
from farther.tables import Objects, Regions

FOX, CLOCK = [0, 0, 50, 50], [100, 0, 160, 60]


def decide(file, *decisions):
    """Appends decisions (reviewer, split, image, choice)."""
    with DecisionsFile(file).locked() as opened:
        for second, (reviewer, split, image, choice) in enumerate(decisions):
            time = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
            note = "a sofa" if choice == "remove" else ""
            decision = Decision(time, reviewer, "d", split, image, choice, note=note)
            DecisionsFile(file).append(opened, decision)


def regions(images, box, score):
    """One region of each image, all with this box and score."""
    count = len(images)
    return Regions(
        image_id=list(images),
        region_id=np.arange(count),
        box=[box] * count,
        score=[score] * count,
        label=np.zeros(count, int),
        logits=np.zeros((count, 1)),
        classes=("fox",),
    )


def test_an_image_has_unlabelled_objects_where_most_of_its_reviewers_saw_one(tmp_path):
    file = tmp_path / "b.id.csv"
    assert with_unlabelled(file, ["test"]) is None
    decide(
        file,
        ("ann", "test", "most", "remove"),
        ("bob", "test", "most", "remove"),
        ("eve", "test", "most", "keep"),
        ("ann", "test", "half", "remove"),
        ("bob", "test", "half", "keep"),
        ("ann", "test", "none", "keep"),
        ("ann", "val", "alone", "remove"),
    )
    by_split = with_unlabelled(file, ["val", "test", "other"])
    assert by_split == {"val": {"alone"}, "test": {"most"}, "other": set()}
    assert with_unlabelled(file, ["other"]) is None


def test_decisions_about_images_that_a_split_does_not_have_are_refused(tmp_path):
    file = tmp_path / "b.id.csv"
    check_reviewed(file, {"test": ["a"]})
    decide(
        file,
        ("ann", "test", "a", "keep"),
        ("ann", "near", "other", "keep"),
        ("ann", "test", "gone", "keep"),
    )
    check_reviewed(file, {"test": ["a", "gone"], "val": []})
    with pytest.raises(
        DataError,
        match=r"row 4: field 'image_id': 1 of 2 decisions about split 'test' .*, as 'gone'",
    ):
        check_reviewed(file, {"test": ["a"]})


@pytest.fixture
def files(tmp_path):
    """A run on four ID images; in two of them, a and b, a proposal lies on no detection."""
    made = RunFiles("run", "b", tmp_path / "artifacts")
    foxes = Objects(image_id=list("abcd"), object_id=range(4), box=[FOX] * 4, category=["fox"] * 4)
    for split in ("val", "test"):
        write_split(made, split, foxes, regions("abcd", FOX, 0.9))
        regions("ab", CLOCK, 0.7).write(made.proposals("rpn", split))
    write_json(made.threshold, {"threshold": 0.5})
    write_json(made.root / "splits/b/roles.json", {"test": [], "distance": {}})
    return made


def test_a_source_is_measured_a_second_time_only_where_reviewers_saw_an_unlabelled_object(files):
    settings = EvaluationSettings(replicates=0, proposals=ProposalSettings(alarms=1))
    sources = read_sources("run", {"rpn": {}})
    file = reviewed_file("b", files.root.parent)

    decide(file, ("ann", "test", "a", "keep"))
    assert list(evaluate_proposals(files, sources, settings).sources) == ["rpn"]

    decide(file, ("ann", "test", "b", "remove"), ("ann", "near", "c", "remove"))
    results = evaluate_proposals(files, sources, settings).sources
    assert [(name, source.rule) for name, source in results.items()] == [
        ("rpn", "objectness"),
        ("rpn, reviewed", "reviewed"),
    ]
    assert results["rpn"].proposals == 2 / 4
    assert results["rpn, reviewed"].proposals == 1 / 3
