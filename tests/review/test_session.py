"""What a reviewer sees and does, without the page. `conftest.PHOTOS` says what the photos show."""

import csv

import pytest

from farther.curation import Decision, ImageKey, time_after
from farther.errors import DataError, ParameterError
from farther.review import Catalogue, Filters, Session


def names(session: Session, **filters: str) -> str:
    return "".join(
        session.catalogue.images.image_id[row] for row in session.queue(Filters(**filters))
    )


def row(session: Session, image: str) -> int:
    return session.catalogue.row(ImageKey("photos", "val", image))


def lines(session: Session) -> list[list[str]]:
    with session.file.path.open(newline="") as file:
        return [line[1:] for line in csv.reader(file)][1:]


def undo(session: Session) -> None:
    session.undo(session.summary()["undo"]["time"])


def test_images_with_an_unlabelled_object_of_an_id_class_come_first(ann):
    assert names(ann) == "ecabdf"
    assert names(ann, suspicious="yes") == "e"


def test_a_detection_on_a_labelled_object_is_not_suspicious(ann):
    assert ann.catalogue.suspicion[row(ann, "d")] == 0
    shown = ann.image(row(ann, "e"))
    assert [(one["name"], one["unlabelled"]) for one in shown["detections"]] == [
        ("cat", 0.9),
        ("dog", 0.0),
    ]


def test_an_image_says_which_label_and_which_rule_decided(ann):
    shown = ann.image(row(ann, "a"))
    assert (shown["fate"], shown["split"]) == ("removed", "")
    assert shown["by_rules"] == "removed; ID class: Cat → cat (object 0, Cat)"
    assert [(label["name"], label["decides"]) for label in shown["labels"]] == [("Cat", True)]


def test_a_decision_is_on_disk_when_decide_returns(ann):
    ann.decide(row(ann, "e"), "remove", "cat", "behind the kite")
    assert lines(ann) == [["ann", "photos", "val", "e", "remove", "cat", "behind the kite"]]
    shown = ann.image(row(ann, "e"))
    assert (shown["fate"], shown["decided"]) == ("removed", "decision: removed → cat, by ann")


def test_asking_twice_for_the_same_decision_writes_one_line(ann):
    for _ in range(2):
        ann.decide(row(ann, "b"), "far")
    assert len(lines(ann)) == 1


def test_undo_restores_what_the_reviewer_said_before(ann):
    ann.decide(row(ann, "b"), "far")
    ann.decide(row(ann, "b"), "near")
    undo(ann)
    assert ann.image(row(ann, "b"))["mine"]["decision"] == "far"
    undo(ann)
    assert ann.image(row(ann, "b"))["mine"] is None
    assert ann.summary()["undo"] is None
    assert [line[4] for line in lines(ann)] == ["far", "near", "undo", "undo"]


def test_undo_asked_twice_takes_back_one_decision(ann):
    ann.decide(row(ann, "b"), "far")
    ann.decide(row(ann, "c"), "near")
    time = ann.summary()["undo"]["time"]
    ann.undo(time)
    with pytest.raises(ParameterError, match="already undone"):
        ann.undo(time)
    assert ann.summary()["mine"] == 1


def test_undo_takes_back_ones_own_decisions_only(ann, bob):
    ann.decide(row(ann, "b"), "far")
    bob.decide(row(bob, "c"), "near")
    undo(ann)
    assert ann.summary()["reviewers"] == [["bob", 1]]


@pytest.mark.parametrize(
    ("decision", "id_class", "note", "found"),
    [
        ("maybe", "", "", "expected one of keep, remove, near, far"),
        ("remove", "zebra", "", "'zebra' is not an ID class. Known: cat, dog, person"),
        ("remove", "", "", "needs the ID class"),
        ("near", "cat", "", "only 'remove' has an ID class"),
        ("near", "", "two\nlines", "expected text in one line"),
    ],
)
def test_a_decision_that_cannot_be_is_refused_and_not_written(ann, decision, id_class, note, found):
    with pytest.raises((ParameterError, DataError), match=found):
        ann.decide(0, decision, id_class, note)
    assert ann.summary()["mine"] == 0


def test_reviewers_see_each_others_decisions_only_after_their_own(ann, bob):
    bob.decide(row(bob, "b"), "remove", "dog")
    shown = ann.image(row(ann, "b"))
    assert (shown["others"], shown["hidden"], shown["fate"], shown["decided"]) == (
        [],
        1,
        "near",
        "",
    )
    ann.decide(row(ann, "b"), "remove", "dog")
    shown = ann.image(row(ann, "b"))
    assert [one["reviewer"] for one in shown["others"]] == ["bob"]
    assert shown["decided"] == "decision: removed → dog, by ann, bob"


def test_disagreements_and_agreement_are_counted(ann, bob):
    for image, ours, theirs in [
        ("b", "near", "near"),
        ("c", "far", "far"),
        ("d", "near", "far"),
        ("e", "far", "far"),
    ]:
        ann.decide(row(ann, image), ours)
        bob.decide(row(bob, image), theirs)
    assert names(ann, state="disagreed") == "d"
    found = ann.summary()
    assert (found["disagreements"], found["undecided"]) == (1, 1)
    # p_o = 3/4; by chance near·near + far·far = 2/4·1/4 + 2/4·3/4 = 1/2
    expected = {"first": "ann", "second": "bob", "images": 4, "equal": 3, "kappa": 0.5}
    assert found["agreement"] == [expected]


def test_filters_narrow_the_queue(ann, bob):
    ann.decide(row(ann, "c"), "near")
    bob.decide(row(bob, "b"), "near")
    assert names(ann, state="undecided") == "eabdf"
    assert names(ann, state="decided") == "c"
    assert names(ann, state="new") == "eadf"
    assert names(ann, split="photos_near", order="table") == "bcd"
    assert names(ann, fate="removed") == "af"
    assert names(ann, rule="near: Fox → dog") == "bd"
    assert names(ann, image="e") == "e"


def test_a_farther_image_can_only_be_kept_or_removed(project, catalogue, file):
    catalogue.kept[:] = "farther"
    session = Session(catalogue, file, "ann")
    assert session.image(0)["choices"] == ["keep", "remove"]
    with pytest.raises(ParameterError, match="expected one of keep, remove, found 'near'"):
        session.decide(0, "near")


def test_what_another_program_writes_is_seen(ann, file):
    assert ann.summary()["mine"] == 0
    with file.locked() as descriptor:
        file.append(descriptor, Decision(time_after(None), "ann", "photos", "val", "c", "keep"))
    assert ann.summary()["mine"] == 1


def test_nothing_is_written_to_a_file_that_was_damaged_meanwhile(ann, file):
    ann.decide(row(ann, "b"), "near")
    damaged = file.path.read_text() + "half a li"
    file.path.write_text(damaged)
    for _ in range(2):
        with pytest.raises(DataError, match=r"tiny.csv: row 3: expected 8 values, found 1"):
            ann.decide(row(ann, "c"), "near")
    assert file.path.read_text() == damaged


def test_doubtful_similarity_can_come_first(project, catalogue, file):
    from farther.similarity import ImageSimilarity

    folder = project / "artifacts" / "similarity" / "tiny"
    ids, margins = ["d", "b", "e"], [0.02, 0.3, -0.1]
    splits = ["photos_near", "photos_near", "photos_far"]
    ImageSimilarity(
        image_id=ids,
        dataset=["photos"] * 3,
        split=splits,
        distance=["near", "near", "far"],
        similarity=[0.8, 0.9, 0.85],
        neighbour=["pet-train"] * 3,
        id_class=["dog", "dog", "cat"],
        class_similarity=[0.5] * 3,
        suggested=["near", "near", "near"],
        margin=margins,
    ).write(folder / "images.parquet")
    session = Session(Catalogue.read("tiny", catalogue.benchmark, {}, project), file, "ann")
    assert names(session, order="similarity").startswith("edb")
    assert session.image(row(session, "e"))["similarity"] == {
        "similarity": 0.85,
        "id_class": "cat",
        "suggested": "near",
    }
    assert session.image(row(session, "a"))["similarity"] is None
