"""Claims about tables, files and registered names."""

import hashlib
import multiprocessing
import struct
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pydantic.dataclasses import dataclass

from farther.errors import DataError, ParameterError
from farther.registry import STRICT, Registry, build
from farther.tables import Images, Objects, Regions, Scores, stored, table
from farther.tables.annotations import REGION_OUTCOMES, RegionOutcomes
from farther.tables.columns import SMALL_TABLE, first_repeated
from farther.tables.documents import write_json
from farther.tables.files import digest, inside
from farther.tables.parquet import scan_parquet, write_parquet


def objects(**changes) -> Objects:
    columns = {
        "image_id": ["a", "a", "b"],
        "object_id": [1, 2, 3],
        "box": [[0, 0, 1, 1], [0, 0, 2, 2], [1, 1, 3, 4]],
        "category": ["cat", "dog", "cat"],
    }
    return Objects(**{**columns, **changes})


def test_rows_are_selected_by_mask_index_and_slice():
    table = objects()
    assert list(table[table.category == "cat"].object_id) == [1, 3]
    assert list(table[np.array([2, 0])].object_id) == [3, 1]
    assert list(table[1:].image_id) == ["a", "b"]
    assert list(table[0].object_id) == [1]
    assert list(table[-1].category) == ["cat"]
    assert [len(row) for row in table] == [1, 1, 1]


def test_a_table_is_shown_by_its_class_and_its_number_of_rows():
    assert f"{objects()}, {objects()[:0]!r}" == "Objects(3 rows), Objects(0 rows)"


def test_rows_that_are_not_there_are_refused():
    table = objects()
    assert list(table[np.array([-1])].object_id) == [3]
    for wrong in (np.array([3]), np.array([True, False])):
        with pytest.raises(IndexError):
            table[wrong]


def _selected_in_child(table: Objects, queue: multiprocessing.Queue) -> None:
    kept = table[table.category == "cat"].with_columns(is_crowd=[True, False])
    queue.put(list(Objects.concatenate([kept, table[np.array([1])]]).object_id))


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
def test_a_forked_process_selects_changes_and_joins_rows():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_selected_in_child, args=(objects(), queue), daemon=True)
    child.start()
    assert queue.get(timeout=60) == [1, 3, 2]
    child.join()


def test_a_column_can_be_taken_away_again():
    table = Regions(
        image_id=["a"],
        region_id=[0],
        box=[[0, 0, 1, 1]],
        score=[0.5],
        label=[0],
        logits=[[1.0, 0.0]],
    )
    with_latent = table.with_columns(latent=[[1.0]])
    assert with_latent.latent.shape == (1, 1)
    assert with_latent.with_columns(latent=None).latent is None


def test_absent_flags_are_false():
    assert not objects().is_crowd.any()
    assert objects(is_crowd=[True, False, False]).is_crowd.sum() == 1


def test_only_a_crowd_of_that_name_stands_for_what_nobody_annotated():
    table = objects(category=["unlabelled", "unlabelled", "cat"], is_crowd=[True, False, True])
    assert table.is_unlabelled.tolist() == [True, False, False]


@pytest.mark.parametrize(
    "sizes", [(3, 5), (SMALL_TABLE, SMALL_TABLE + 1, 2), (0, 4, 0, 300), (400, 300), (0, 0)]
)
def test_tables_are_joined_in_order_whether_they_have_few_rows_or_many(sizes):
    random = np.random.default_rng(1)
    parts = [
        {
            "image_id": [f"image {n}" for n in random.integers(0, 9, size)],
            "region_id": random.integers(0, 99, size),
            "score": random.normal(size=size),
        }
        for size in sizes
    ]
    joined = Scores.concatenate([Scores(**part) for part in parts])
    assert len(joined) == sum(sizes)
    for name, values in joined.columns().items():
        assert values.tolist() == [value for part in parts for value in part[name]]
    assert_frame_equal(joined.frame, pl.concat(Scores(**part).frame for part in parts))


def test_no_tables_cannot_be_joined():
    with pytest.raises(ValueError, match="nothing to concatenate"):
        Scores.concatenate([])


def test_vectors_in_place_of_texts_are_refused_before_they_become_objects():
    vectors = pl.Series("category", np.zeros((3, 5), np.float32))
    with pytest.raises(
        DataError, match=r"row 0: field 'category': expected text, found Array\(Float32"
    ):
        Objects.from_frame(objects().frame.with_columns(vectors))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("category", pl.Series(["cat", None, "dog"])),
        ("category", pl.Series(["cat", None, "dog"], dtype=pl.Categorical)),
        ("object_id", pl.Series([1, None, 2])),
        ("is_crowd", pl.Series([True, None, False])),
        ("box", pl.Series([[0.0, 0, 1, 1], None, [0, 0, 2, 2]])),
    ],
)
def test_a_null_is_refused_by_row_and_field(name, values):
    with pytest.raises(DataError, match=f"row 1: field '{name}': the value is null"):
        objects(**{name: values})


@pytest.mark.parametrize("rows", [3, SMALL_TABLE + 1])
def test_a_text_that_a_column_does_not_allow_is_refused_by_row(rows):
    shared = {
        "image_id": ["a"] * rows,
        "region_id": np.arange(rows),
        "object_id": np.zeros(rows),
        "iou": [0.5] * rows,
    }
    outcome = [*REGION_OUTCOMES, *["known"] * rows][:rows]
    assert RegionOutcomes(**shared, outcome=outcome).outcome.tolist() == outcome
    with pytest.raises(
        DataError,
        match="row 2: field 'outcome': unknown outcome 'lost'; known: found, misclassified",
    ):
        RegionOutcomes(**shared, outcome=[*outcome[:2], "lost", *outcome[3:]])


def test_tables_survive_the_disk(tmp_path: Path):
    objects().write(tmp_path / "objects.parquet")
    again = Objects.read(tmp_path / "objects.parquet")
    for name, values in objects().columns().items():
        assert (again.columns()[name] == values).all()
    Objects.empty().write(tmp_path / "empty.parquet")
    assert len(Objects.read(tmp_path / "empty.parquet")) == 0


def test_a_value_that_must_be_unique_is_refused_twice():
    with pytest.raises(DataError, match="row 2: field 'object_id': 1 is in an earlier row too"):
        objects(object_id=[1, 2, 1])
    with pytest.raises(DataError, match="row 1: field 'image_id'"):
        Images(
            image_id=["a", "a"],
            dataset=["x"] * 2,
            file=["f"] * 2,
            width=[1, 1],
            height=[1, 1],
            digest=["", ""],
        )


def test_the_first_repeated_value_is_that_which_a_loop_finds():
    random = np.random.default_rng(2)
    drawn = [random.integers(0, 3 * n + 1, n).tolist() for n in range(12) for _ in range(10)]
    found = []
    for numbers in (*drawn, *map(sorted, drawn), list(range(9))):
        first = next((row for row, number in enumerate(numbers) if number in numbers[:row]), None)
        texts = [f"{number}" for number in numbers]
        series = pl.Series(numbers, dtype=pl.Int64), pl.Series(texts, dtype=pl.String)
        for given in (np.array(numbers, np.int64), np.array(texts, object), *series):
            assert first_repeated(given) == first
        found.append(first)
    assert None in found and len(set(found)) > 5


def test_a_score_is_never_nan():
    with pytest.raises(DataError, match="row 1: field 'score'"):
        Scores(image_id=["a", "a"], region_id=[0, 1], score=[0.5, np.nan])


def test_json_has_letters_as_they_are_and_keys_in_their_order_one_per_line(tmp_path: Path):
    write_json(tmp_path / "value.json", {"b": "é", "a": ["日本"]})
    text = (tmp_path / "value.json").read_text(encoding="utf-8")
    assert text == '{\n  "b": "é",\n  "a": [\n    "日本"\n  ]\n}\n'


def test_json_has_no_nan(tmp_path: Path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "value.json", float("nan"))


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "", "."])
def test_a_name_that_leaves_its_folder_is_refused(tmp_path: Path, name: str):
    with pytest.raises(DataError, match="leaves its folder"):
        inside(tmp_path, name)


@pytest.mark.parametrize("name", ["x" * 256, "a/" * 2000 + "a", "\ud800"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str):
    with pytest.raises(DataError, match="is too long, or holds half of a surrogate pair"):
        inside(tmp_path, name)


@pytest.mark.parametrize("name", [3, None, ["a"]])
def test_a_value_of_json_that_is_not_text_is_not_the_name_of_a_file(tmp_path: Path, name: object):
    with pytest.raises(DataError, match="expected the name of a file, found "):
        inside(tmp_path, name)


def test_a_name_within_its_folder_is_a_path_in_it(tmp_path: Path):
    assert inside(tmp_path, "a/./b/../c.txt") == tmp_path / "a" / "c.txt"


def test_a_digest_frames_its_parts(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"ab")
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(tmp_path / "file") == digest(tmp_path / "file") != digest("ab")


def test_a_digest_is_that_of_earlier_versions(tmp_path: Path):
    def framed(*parts: bytes) -> str:
        return hashlib.blake2b(
            b"".join(struct.pack("<Q", len(p)) + p for p in parts), digest_size=16
        ).hexdigest()

    (tmp_path / "file").write_bytes(b"ab" * 99_999)
    content = hashlib.sha256(b"ab" * 99_999).digest()
    assert digest("é", b"", b"\0" * 70_000, tmp_path / "file") == framed(
        "é".encode(), b"", b"\0" * 70_000, content
    )
    assert digest() == framed()


def test_the_first_rows_of_several_files_are_read_and_no_more(tmp_path: Path):
    whole, files = pl.DataFrame({"x": range(10), "y": [f"{n % 3}" for n in range(10)]}), []
    for first, count in ((0, 5), (5, 1), (6, 4)):
        files.append(tmp_path / f"{first}.parquet")
        write_parquet(whole[first : first + count], files[-1])
    is_even = pl.col("x") % 2 == 0
    for count in range(12):
        assert_frame_equal(scan_parquet(files).head(count).collect(), whole.head(count))
        assert_frame_equal(
            scan_parquet(files).filter(is_even).head(count).collect(),
            whole.filter(is_even).head(count),
        )
        some = scan_parquet(files).head(count).filter(is_even).select("y").collect()
        assert_frame_equal(some, whole.head(count).filter(is_even).select("y"))
    files[2].write_text("damaged")
    assert scan_parquet(files).head(6).collect().height == 6
    with pytest.raises(DataError, match=r"6\.parquet: not a readable Parquet file"):
        scan_parquet(files).head(7).collect()


@dataclass(config=STRICT, kw_only=True)
class Toy:
    k: int = 3


def test_an_unknown_parameter_is_refused_with_the_known_ones():
    with pytest.raises(ParameterError, match=r"toy: unknown parameter 'j'\. Known: k"):
        build(Toy, "toy", {"j": 1})
    with pytest.raises(ParameterError, match=r"toy: parameter 'k'.*found 'many'"):
        build(Toy, "toy", {"k": "many"})


def test_an_unknown_name_is_refused_with_the_known_ones():
    known: Registry = Registry("toy", "farther.tables")
    known.register("wooden_horse")(Toy)
    assert known.create("wooden_horse", k=4).k == 4
    with pytest.raises(
        ParameterError, match=r"unknown toy 'wooden_house'. Did you mean 'wooden_horse'\?"
    ):
        known.create("wooden_house")


@pytest.mark.parametrize(
    "texts", [["a"] * 30, list("aabbbc") * 5, list("abcdefgh") * 4, [f"{n}" for n in range(30)]]
)
def test_texts_of_long_columns_are_those_of_short_ones(texts, monkeypatch):
    series, expected = pl.Series("x", texts), np.array(texts, dtype=object)
    for few in (8, 29, 30, 31):
        monkeypatch.setattr(table, "SMALL_TABLE", few)
        found = table.as_numpy(series)
        assert found.dtype == object and (found == expected).all()


def test_lists_of_different_lengths_are_refused_with_the_row():
    ragged = pl.Series([[1.0, 2.0], [3.0, 4.0], [5.0]])
    with pytest.raises(DataError, match=r"row 2: .*1 values, but 2 in row 0"):
        Regions(
            image_id=["a"] * 3,
            region_id=[0, 1, 2],
            box=np.ones((3, 4)),
            score=[1.0] * 3,
            label=[0] * 3,
            logits=ragged,
        )
    with pytest.raises(DataError, match=r"field 'score': expected float32 values, found"):
        Regions(
            image_id=["a"],
            region_id=[0],
            box=np.ones((1, 4)),
            score=["x"],
            label=[0],
            logits=[[1.0]],
        )


def test_what_no_stage_has_written_is_empty_and_what_one_wrote_is_read(tmp_path):
    assert stored.ingest_warnings(tmp_path) == {"counts": {}, "warnings": []}
    assert stored.curate_warnings(tmp_path) == []
    assert stored.read_times(tmp_path / "times.json") == {"machine": None, "runs": {}}
    assert stored.read_cost(tmp_path / "cost.json") == {"images": 0, "runs": {}}
    assert stored.similarities(tmp_path / "similarity.json") == stored.Similarities()
    near = {"images": 3, "similarity": 0.7, "median": 0.7, "low": 0.6, "high": None, "elsewhere": 0}
    write_json(tmp_path / "similarity.json", {"similarity": {"auroc_of_near": 0.5}, "near": near})
    read = stored.similarities(tmp_path / "similarity.json")
    assert (read.splits, read.similarity.auroc_of_near) == ({"near": near}, 0.5)
    write_json(tmp_path / stored.WARNINGS, {"warnings": ["one"]})
    assert stored.curate_warnings(tmp_path) == ["one"]
    times = {"machine": {"processor": "x", "gpu": None}, "runs": {}}
    write_json(tmp_path / "times.json", times)
    assert stored.read_times(tmp_path / "times.json") == times
