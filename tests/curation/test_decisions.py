"""Decisions of reviewers: valid files, active lines, and their effect in `curate`."""

import random
import resource
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from tests.support.labelled import labelled
from tests.support.messages import ABSENT

from farther.curation import (
    Categories,
    Curation,
    Decision,
    DecisionsFile,
    LabelledImages,
    ReviewDecisions,
    benchmark,
    curate,
    explain,
    time_after,
)
from farther.curation.decisions import LINES
from farther.errors import DataError, FartherError

RULES = """
id_classes: {cat: {photos: [Cat]}, dog: {photos: [Dog]}}
protocols: {paper: {overlap: {photos: {}}, near: {photos: {dog: [Fox]}}}}
"""

PHOTOS = {"a": ["Cat"], "b": ["Fox"], "c": ["Kite"], "d": ["Cat", "Fox"], "e": []}

HEADER = "time,reviewer,dataset,subset,image_id,decision,id_class,note\n"


class InMemory:
    """Tables of `PHOTOS`, and of an ID dataset with one image per subset."""

    def source(self, dataset: str, subset: str) -> LabelledImages:
        if dataset == "photos":
            return labelled(dataset, PHOTOS)
        return labelled(dataset, {f"{subset}-pet": ["cat"]})

    def categories(self, dataset: str) -> Categories:
        if dataset == "photos":
            return Categories(("Cat", "Dog", "Fox", "Kite"))
        return Categories(("cat", "dog"))


class Bench:
    """A benchmark in a folder, whose decisions file can be written."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.file = DecisionsFile(folder / "decisions.csv")
        (folder / "rules.yaml").write_text(RULES)

    def write(self, *decisions: str) -> "Bench":
        """Writes decisions, a second apart.

        Args:
            decisions: Reviewer, image, decision and, where there is one, class: `ann b remove cat`.
        """
        lines = [HEADER]
        for second, decision in enumerate(decisions):
            reviewer, image, word, *classes = decision.split()
            time = f"2026-11-21T09:00:{second:02d}.000Z"
            lines.append(f"{time},{reviewer},photos,val,{image},{word},{''.join(classes)},\n")
        self.file.path.write_text("".join(lines))
        return self

    def curate(self, *distances: str) -> Curation:
        splits = {}
        for distance in distances or ("near", "far"):
            split = {"dataset": "photos", "subset": "val", "distance": distance}
            splits[f"photos_{distance}"] = split
        paths = {"rules": self.folder / "rules.yaml", "decisions": self.file.path}
        return curate(benchmark("b", {"id": "pets", "splits": splits, **paths}), InMemory())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def fates(curation: Curation) -> str:
    """The fates of a to e by their first letters: `r n f r r` by the rules alone."""
    return " ".join(fate[:1] for fate in curation.fates.fate)


def at(
    second: float, reviewer: str = "ann", image: str = "b", decision: str = "near", **more: str
) -> Decision:
    time = datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=second)
    return Decision(time, reviewer, "photos", "val", image, decision, **more)


@pytest.mark.parametrize(
    ("decisions", "expected"),
    [
        ((), "r n f r r"),
        (("ann a keep", "ann d keep", "ann e keep", "ann b keep"), "f n f n f"),
        (("ann b far", "bob b far", "cy b remove cat"), "r f f r r"),
        (("ann b far", "ann b remove cat"), "r r f r r"),
        (("ann b far", "ann b remove cat", "ann b undo"), "r f f r r"),
        (("ann b far", "ann b undo"), "r n f r r"),
    ],
    ids=[
        "without any decision the rules decide",
        "a kept image is near or far by its other labels",
        "more than half of the reviewers decide",
        "a reviewer's last word counts",
        "undo goes back by one",
        "undo of the only word leaves the rules",
    ],
)
def test_the_decisions_that_stand_decide(bench, decisions, expected):
    assert fates(bench.write(*decisions).curate()) == expected


def test_people_override_rules(bench):
    curation = bench.write("ann a far", "ann b remove cat", "ann c near").curate()
    assert fates(curation) == "f r n r r"
    assert list(curation.splits["photos_near"].images.image_id) == ["c"]
    assert list(curation.splits["photos_far"].objects.category) == ["Cat"]
    assert list(curation.fates.rule[:3]) == [
        "decision: far",
        "decision: removed → cat",
        "decision: near",
    ]


def test_where_one_split_takes_near_and_far_both_words_mean_keep(bench):
    curation = bench.write("ann a near", "ann d far", "ann b remove dog").curate("farther")
    assert list(curation.fates.fate) == ["farther", "removed", "farther", "farther", "removed"]


def test_an_image_is_explained_by_who_decided_and_by_what_the_rules_would_have_done(bench):
    curation = bench.write("ann a keep", "bob a far").curate()
    expected = (
        "photos val a: far; decision: far, by ann, bob "
        "(by the rules: removed; ID class: Cat → cat (object 0, Cat))"
    )
    assert explain(curation.fates, "a") == expected


@pytest.mark.parametrize(
    "decisions", [("ann b far", "bob b remove cat"), ("ann b far", "bob b remove dog", "cy b near")]
)
def test_without_a_majority_the_rules_decide_and_the_image_is_listed(bench, decisions):
    curation = bench.write(*decisions).curate()
    assert fates(curation) == "r n f r r"
    (warning,) = curation.warnings
    assert warning.startswith("photos val b: no majority (ann: far, bob: remove → ")
    assert warning.endswith("so the rules decide: near")
    assert curation.fates.decided_by[1] == ""


def test_reviewers_who_name_different_classes_agree_to_remove(bench):
    curation = bench.write("ann b remove dog", "bob b remove cat").curate()
    assert curation.fates.rule[1] == "decision: removed → cat, dog"


def test_the_order_of_lines_does_not_matter_as_git_may_mix_them(bench):
    bench.write("ann b far", "ann b undo", "ann b remove cat")
    header, *lines = bench.file.path.read_text().splitlines(keepends=True)
    bench.file.path.write_text("".join([header, lines[2], lines[1], lines[0], lines[2]]))
    assert fates(bench.curate()) == "r r f r r"
    assert len(bench.file.read()) == 3


def test_the_fates_are_written_and_read_with_who_decided(bench, tmp_path):
    curation = bench.write("ann b far").curate()
    curation.write(tmp_path / "out")
    read = type(curation.fates).read(tmp_path / "out" / "fates.parquet")
    assert list(read.decided_by) == ["", "ann", "", "", ""]
    assert curation.counts()["photos: decision: far"] == 1
    assert not [text for text in curation.warnings if "has no image" not in text]


NINE = "2026-11-21T09:00:00Z"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"{NINE},ann,photos,val,z,keep,,", "field 'image_id': photos val has no image 'z'"),
        (f"{NINE},ann,pets,val,a,keep,,", "field 'dataset': the benchmark draws no OOD images"),
        (f"{NINE},ann,photos,train,a,keep,,", "field 'subset': .* Known: photos val"),
        (
            f"{NINE},ann,photos,val,a,remove,cow,",
            "field 'id_class': 'cow' is not an ID class. Known: cat",
        ),
        (f"{NINE},ann,photos,val,a,remove,,", "field 'note': 'remove' needs the ID class"),
        (f"{NINE},ann,photos,val,a,keep,cat,", "field 'id_class': only 'remove' has an ID class"),
        (f"{NINE},ann,photos,val,a,maybe,,", "field 'decision': expected one of keep, remove"),
        (f"{NINE},,photos,val,a,keep,,", "field 'reviewer'"),
        (
            "2026-11-21T09:00:00,ann,photos,val,a,keep,,",
            "field 'time': expected a time with its zone",
        ),
        (
            "0-11-21T09:00:00Z,ann,photos,val,a,keep,,",
            "field 'time': expected a time with its zone",
        ),
        (
            "yesterday,ann,photos,val,a,keep,,",
            "field 'time': expected a time with its zone, like 2026",
        ),
        (f"{NINE},ann,photos,val,a", "expected 8 values, found 5"),
        (f'{NINE},ann,photos,val,a,keep,,"x', "not CSV"),
        (f"{NINE},ann,photos,val,a,undo,,", "field 'decision': ann has no decision"),
        (
            f"{NINE},ann,photos,val,z,far,,\n2026-11-21T09:00:01Z,ann,photos,val,z,undo,,",
            "field 'image_id'",
        ),
    ],
)
def test_a_line_that_cannot_be_is_refused_with_its_place(bench, line, found):
    bench.file.path.write_text(f"{HEADER}{line}\n")
    with pytest.raises(DataError, match=rf"decisions\.csv: row 2: {found}"):
        bench.curate()


def test_two_words_of_one_reviewer_at_one_time_are_refused(bench):
    line = "2026-11-21T09:00:00Z,ann,photos,val,b,{},,\n"
    bench.file.path.write_text(HEADER + line.format("near") + line.format("far"))
    with pytest.raises(
        DataError, match=r"row 3: .*ann says 'far' about photos val b, and 'near' in row 2"
    ):
        bench.curate()


def test_another_header_a_wrong_encoding_and_an_absent_file_are_refused(bench):
    bench.file.path.write_text("image_id,decision\n")
    with pytest.raises(DataError, match="row 1: expected the columns time,reviewer"):
        bench.curate()
    bench.file.path.write_text(HEADER.replace(",", ";"))
    with pytest.raises(DataError, match=r"found time;reviewer.*Save the file with commas"):
        bench.curate()
    bench.file.path.write_bytes(HEADER.encode() + b"\xff\n")
    with pytest.raises(DataError, match="not UTF-8"):
        bench.curate()
    bench.file.path.unlink()
    with pytest.raises(DataError, match=ABSENT):
        bench.curate()


def test_windows_line_ends_and_an_unfinished_last_line_are_read(bench):
    bench.file.path.write_bytes(
        f"\ufeff{HEADER}2026-11-21T09:00:00Z,ann,photos,val,b,far,,".replace("\n", "\r\n").encode()
    )
    assert fates(bench.curate()) == "r f f r r"


def append(file: DecisionsFile, *decisions: Decision) -> None:
    with file.locked() as descriptor:
        for decision in decisions:
            file.append(descriptor, decision)


def test_what_is_appended_is_read_back_whatever_a_note_holds(bench):
    decisions = [
        at(0, note='a "quoted", odd, note'),
        at(1, reviewer="bob c", decision="remove", id_class="cat"),
    ]
    append(bench.file, *decisions)
    read = bench.file.read()
    assert [read.latest(name) for name in ("ann", "bob c")] == decisions
    assert read.current["reviewer"].to_list() == ["ann", "bob c"]
    assert bench.file.path.read_text().count("\n") == 3
    assert str(decisions[0].image) == "photos val b"


def test_the_first_decision_makes_the_file_and_its_folders(tmp_path):
    file = DecisionsFile(tmp_path / "data" / "decisions" / "pets.csv")
    assert len(file.read()) == 0 and file.state() == ()
    append(file, at(0))
    states = [file.state()]
    append(file, at(1, image="c"))
    assert file.path.read_text() == HEADER + at(0).to_line() + at(1, image="c").to_line()
    assert states != [file.state()]


def test_an_appended_line_is_not_glued_to_one_that_a_person_left_unfinished(bench):
    bench.file.path.write_text(HEADER + at(0).to_line().rstrip("\n"))
    append(bench.file, at(1, image="c"))
    assert len(bench.file.read()) == 2


def test_a_full_disk_leaves_the_file_as_it_was(bench):
    append(bench.file, at(0))
    before = bench.file.path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(FartherError, match="the decision was not saved: only 10 of"):
            append(bench.file, at(1, image="c"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert bench.file.path.read_bytes() == before


def test_a_note_in_two_lines_would_be_two_decisions_and_is_refused():
    with pytest.raises(DataError, match="field 'note': expected text in one line"):
        at(0, note="one\ntwo")


def test_time_goes_on_when_the_clock_is_set_back():
    later_than_now = datetime(9000, 1, 1, tzinfo=UTC)
    assert time_after(later_than_now) == later_than_now + timedelta(milliseconds=1)
    assert time_after(None).microsecond % 1000 == 0


def frame(lines: Sequence[Decision]) -> pl.DataFrame:
    return pl.DataFrame(
        [{"row": row, **asdict(line)} for row, line in enumerate(lines)], schema=LINES
    )


def test_the_last_decision_is_found_after_any_number_of_undos():
    made = [at(0, image="a"), at(1, image="b"), at(2, image="a", decision="far")]
    undone = [at(3, image="a", decision="undo"), at(4, image="b", decision="undo")]

    def latest(*lines: Decision) -> Decision | None:
        return ReviewDecisions(frame(lines)).latest("ann")

    assert latest(*made) == made[2]
    assert latest(*made, undone[0]) == made[1]
    assert latest(*made, *undone) == made[0]
    assert latest() is None


def test_an_undo_takes_back_the_last_decision_on_its_image_that_stands():
    chance = random.Random(5)
    for _ in range(10):
        lines, is_active, standing = [], [], {"a": [], "b": []}
        for second in range(14):
            image = chance.choice("ab")
            undoes = bool(standing[image]) and chance.random() < 0.5
            lines.append(at(second, image=image, decision="undo" if undoes else "near"))
            is_active.append(not undoes)
            if undoes:
                is_active[standing[image].pop()] = False
            else:
                standing[image].append(second)
        assert ReviewDecisions(frame(lines)).frame["is_active"].to_list() == is_active
        more = [at(14 + n, image="a", decision="undo") for n in range(len(standing["a"]) + 1)]
        assert ReviewDecisions(frame([*lines, *more[:-1]])).current.filter(image_id="a").is_empty()
        with pytest.raises(DataError, match="ann has no decision on photos val a to undo"):
            ReviewDecisions(frame([*lines, *more]))
