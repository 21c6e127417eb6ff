"""Items of output folders: when they are made again, and what their record says of them."""

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.support.messages import OUTSIDE

from farther.errors import DataError
from farther.incremental import keyed
from farther.incremental.keyed import Keyed, content_digest, key_of, record_path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "artifacts/scores/run"


@pytest.fixture
def forced(monkeypatch):
    monkeypatch.setenv(keyed.FORCE, "1")


def make(items: Keyed, name: str, key: str, text: str = "made") -> None:
    with items.make(name, key) as path:
        path.write_text(text)


def names_below(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))


def update(folder: Path, keys: dict[str, str]) -> list[str]:
    """Each item holds its own name; returns the lines of the log."""
    lines: list[str] = []

    def write(item: str, path: Path) -> str:
        path.write_text(item)
        return "written"

    Keyed(folder).update(keys, write, lines.append)
    return lines


# --------------------------------------------------------------------------------------------------
# current or not


def test_an_item_is_current_until_its_key_changes(folder):
    make(Keyed(folder), "a/b.txt", "1")
    items = Keyed(folder)
    assert items.is_current("a/b.txt", "1")
    assert not items.is_current("a/b.txt", "2")


def test_an_item_that_was_deleted_is_not_current(folder):
    make(Keyed(folder), "a.txt", "1")
    (folder / "a.txt").unlink()
    assert not Keyed(folder).is_current("a.txt", "1")


def test_an_item_that_was_replaced_by_another_valid_file_is_made_again(folder):
    keys = {"a": "1", "b": "2"}
    update(folder, keys)
    shutil.copy(folder / "a", folder / "b")
    assert Keyed(folder).outdated(keys) == ["b"]
    assert update(folder, keys) == ["a: unchanged", "b: written"]
    assert (folder / "b").read_text() == "b"


@pytest.mark.parametrize("change", ["more", "less", "renamed", "rewritten"])
def test_an_item_that_is_a_folder_is_made_again_when_any_file_of_it_changes(folder, change):
    with Keyed(folder).make("method", "1") as path:
        path.mkdir()
        (path / "method.json").write_text("{}")
        (path / "state").write_text("0.5")
    state = folder / "method/state"
    if change == "more":
        (folder / "method/other").write_text("0.5")
    elif change == "less":
        state.unlink()
    elif change == "renamed":
        state.rename(folder / "method/other")
    else:
        state.write_text("0.6")
    assert not Keyed(folder).is_current("method", "1")


def test_an_item_whose_content_was_put_back_is_current(folder):
    make(Keyed(folder), "a.txt", "1")
    (folder / "a.txt").write_text("other")
    (folder / "a.txt").write_text("made")
    assert Keyed(folder).is_current("a.txt", "1")


def test_an_error_leaves_the_earlier_item_and_its_key(folder):
    items = Keyed(folder)
    make(items, "a.txt", "1")
    with pytest.raises(RuntimeError), items.make("a.txt", "2") as path:
        path.write_text("half")
        raise RuntimeError
    assert Keyed(folder).is_current("a.txt", "1")
    assert (folder / "a.txt").read_text() == "made"
    assert names_below(folder) == ["a.txt"]


def test_an_item_that_was_replaced_by_a_process_that_was_killed_is_current_under_no_key(
    folder, monkeypatch
):
    items = Keyed(folder)
    make(items, "a.txt", "1")
    monkeypatch.setattr(items, "record", lambda *_: None)  # it was killed here
    make(items, "a.txt", "2", "other")
    assert (folder / "a.txt").read_text() == "other"
    items = Keyed(folder)
    assert not items.is_current("a.txt", "1")
    assert not items.is_current("a.txt", "2")


def test_an_item_that_was_changed_in_place_is_current_once_its_content_is_recorded(folder):
    items = Keyed(folder)
    make(items, "a.txt", "1")
    (folder / "a.txt").write_text("with columns of another stage")
    assert not Keyed(folder).is_current("a.txt", "1")
    items.refresh("a.txt")
    assert Keyed(folder).is_current("a.txt", "1")


def test_recording_all_items_forgets_those_of_before(folder):
    make(Keyed(folder), "a.txt", "1")
    (folder / "b.txt").write_text("written by other means")
    Keyed(folder).record_all({"b.txt": "2"})
    items = Keyed(folder)
    assert items.is_current("b.txt", "2")
    assert not items.is_current("a.txt", "1")


# --------------------------------------------------------------------------------------------------
# what is made again


def test_an_update_makes_what_is_new_changed_or_damaged_and_deletes_the_rest(folder):
    assert update(folder, {"a": "1", "b": "1", "c": "1"}) == [
        "a: written",
        "b: written",
        "c: written",
    ]
    (folder / "b").write_text("damaged")
    keys = {"b": "1", "c": "2", "d": "1"}
    assert update(folder, keys) == ["a: removed", "b: written", "c: written", "d: written"]
    assert update(folder, keys) == ["b: unchanged", "c: unchanged", "d: unchanged"]
    # A file of the name of a deleted item is not that item.
    assert update(folder, {"b": "1"}) == ["c: removed", "d: removed", "b: unchanged"]
    (folder / "d").write_text("d")
    assert update(folder, {"b": "1", "d": "1"}) == ["b: unchanged", "d: written"]


def test_outdated_items_are_in_the_order_of_their_keys_and_all_others_are_deleted(folder):
    update(folder, {"a": "1", "b": "1", "z": "1"})
    assert Keyed(folder).outdated({"z": "2", "c": "1", "a": "2", "b": "1"}) == ["z", "c", "a"]
    assert Keyed(folder).outdated({"b": "1"}) == []
    assert names_below(folder) == ["b"]


def test_everything_that_belongs_to_no_item_is_deleted(folder):
    items = Keyed(folder)
    for name in ("a/b.txt", "a/c.txt", "d.txt"):
        make(items, name, "1")
    (folder / ".123.d.txt").write_text("of a killed process")
    (folder / "old").mkdir()
    (folder / "keys.json").write_text("{}")
    assert items.keep_only(["a/b.txt"]) == ["a/c.txt", "d.txt"]
    assert names_below(folder) == ["a", "a/b.txt"]
    assert not Keyed(folder).is_current("d.txt", "1")


def test_a_folder_without_items_holds_a_file_that_says_so_until_it_gets_one(folder):
    update(folder, {"a": "1"})
    update(folder, {})
    assert names_below(folder) == [keyed.EMPTY]
    assert "nothing to store" in (folder / keyed.EMPTY).read_text()
    update(folder, {"a": "1"})
    assert names_below(folder) == ["a"]


# --------------------------------------------------------------------------------------------------
# forced


def test_a_forced_stage_makes_every_item_again_and_each_once(folder, monkeypatch):
    keys = {"a": "1", "b": "1"}
    update(folder, keys)
    monkeypatch.setenv(keyed.FORCE, "1")
    assert update(folder, keys) == ["a: written", "b: written"]
    items = Keyed(folder)
    assert items.outdated(keys) == ["a", "b"]
    make(items, "a", "1")
    assert items.outdated(keys) == ["b"]
    monkeypatch.setenv(keyed.FORCE, "0")
    assert Keyed(folder).outdated({"a": "1"}) == []


def test_a_forced_stage_deletes_nothing_before_it_is_made_again(folder, forced):
    update(folder, {"a": "1"})
    Keyed(folder).outdated({"a": "1"})
    assert names_below(folder) == ["a"]


PYTHON = "/home/user/.venv/bin/python"
DVC = "/home/user/.venv/bin/dvc"


@pytest.mark.parametrize(
    "command_line",
    [
        ["dvc", "repro", "-f"],
        ["dvc", "repro", "--force"],
        ["dvc", "repro", "-sf", "score@voc"],
        ["dvc", "-v", "repro", "-f"],
        [PYTHON, DVC, "repro", "score@voc", "--force"],
        [PYTHON, "-m", "dvc", "repro", "-f"],
        ["dvc", "exp", "run", "-f"],
    ],
    ids=" ".join,
)
def test_the_command_line_of_a_forced_dvc_repro_is_recognised(command_line):
    assert keyed._forces(command_line)


@pytest.mark.parametrize(
    "command_line",
    [
        [],
        ["dvc", "repro"],
        ["dvc", "repro", "-v"],
        ["dvc", "repro", "--file", "dvc.yaml"],
        ["dvc", "repro", "--pull", "f"],
        ["dvc", "repro", "-f1"],
        ["dvc", "checkout", "-f"],
        [PYTHON, "stages/score.py", "voc"],
        [PYTHON, "-m", "pytest", "-f"],
        ["bash", "-c", "dvc repro -f"],
    ],
    ids=" ".join,
)
def test_other_command_lines_force_nothing(command_line):
    assert not keyed._forces(command_line)


@pytest.mark.parametrize(
    ("arguments", "is_forced"), [(["repro", "--force"], True), (["repro"], False)]
)
def test_a_stage_that_dvc_started_reads_the_command_line_of_dvc(monkeypatch, arguments, is_forced):
    class Process:
        def __init__(self, command_line):
            self._command_line = command_line

        def cmdline(self):
            return self._command_line

        def parents(self):
            return [
                Process(["/bin/sh", "-c", "python stages/score.py voc"]),
                Process([PYTHON, DVC, *arguments]),
            ]

    monkeypatch.delenv(keyed.FORCE, raising=False)
    monkeypatch.setattr(
        keyed.psutil, "Process", lambda: Process([PYTHON, "stages/score.py", "voc"])
    )
    assert keyed.is_forced() == is_forced


def test_a_stage_whose_ancestors_cannot_be_read_is_not_forced(monkeypatch):
    def refuse():
        raise keyed.psutil.AccessDenied

    monkeypatch.delenv(keyed.FORCE, raising=False)
    monkeypatch.setattr(keyed.psutil, "Process", refuse)
    assert not keyed.is_forced()


# --------------------------------------------------------------------------------------------------
# the record


def test_folders_of_equal_content_are_equal_whatever_the_keys_are(tmp_path):
    one = tmp_path / "artifacts/scores/one"
    other = tmp_path / "artifacts/scores/other"
    for name in ("a.txt", "b/c.txt"):
        make(Keyed(one), name, "1")
        make(Keyed(other), name, f"another key of {name}")
    assert names_below(one) == names_below(other) == ["a.txt", "b", "b/c.txt"]
    assert content_digest(one) == content_digest(other)


def test_the_record_of_an_output_is_in_the_folder_of_records(tmp_path):
    assert record_path("artifacts/scores/voc") == Path("artifacts/records/scores/voc.json")
    assert record_path("artifacts/embeddings") == Path("artifacts/records/embeddings.json")
    assert record_path("artifacts/choices/voc.json") == Path("artifacts/records/choices/voc.json")
    assert record_path("artifacts/proposals/voc/rpn") == Path(
        "artifacts/records/proposals/voc/rpn.json"
    )
    inner = tmp_path / "artifacts/project/artifacts"
    assert record_path(inner / "scores/voc") == inner / "records/scores/voc.json"


def test_an_output_elsewhere_has_its_record_beside_it(tmp_path):
    make(Keyed(tmp_path / "scores"), "a.txt", "1")
    assert names_below(tmp_path) == ["record of scores.json", "scores", "scores/a.txt"]


def test_a_record_may_be_in_a_file_that_the_caller_names(tmp_path):
    make(Keyed(tmp_path / "scores", tmp_path / "elsewhere/record.json"), "a.txt", "1")
    assert Keyed(tmp_path / "scores", tmp_path / "elsewhere/record.json").is_current("a.txt", "1")
    assert not Keyed(tmp_path / "scores").is_current("a.txt", "1")


def test_a_record_is_the_same_file_in_whatever_order_items_were_made(tmp_path):
    one = tmp_path / "artifacts/scores/one"
    other = tmp_path / "artifacts/scores/other"
    for name in ("a.txt", "b.txt"):
        make(Keyed(one), name, "1")
    for name in ("b.txt", "a.txt"):
        make(Keyed(other), name, "1")
    assert record_path(one).read_bytes() == record_path(other).read_bytes()


@pytest.mark.parametrize(
    "text", ["[1]", "{", '{"items": {"a.txt": "1"}}', '{"items": {"a.txt": {"key": "1"}}}', "\0"]
)
def test_a_damaged_record_is_refused_by_name(folder, text):
    record = record_path(folder)
    record.parent.mkdir(parents=True)
    record.write_text(text)
    with pytest.raises(
        DataError, match=r"scores/run\.json: not a record of kept outputs: delete it, and its"
    ):
        Keyed(folder)


# --------------------------------------------------------------------------------------------------
# versions of packages


def environments(folder: Path) -> dict[str, dict[str, str] | None]:
    """By item, as the record says."""
    record = json.loads(record_path(folder).read_text())
    by_item = {}
    for name, item in record["items"].items():
        number = item["environment"]
        by_item[name] = None if number is None else record["environments"][number]
    return by_item


@pytest.fixture
def installed(monkeypatch):
    """Says which version of numpy, the only package, is installed."""

    def install(version: str) -> None:
        monkeypatch.setattr(keyed, "_installed_version", {"numpy": version}.get)

    return install


def test_versions_are_those_that_made_an_item_and_stay_when_it_is_not_made_again(folder, installed):
    installed("2.3.0")
    update(folder, {"a": "1", "b": "1"})
    installed("2.4.0")
    update(folder, {"a": "1", "b": "2", "c": "1"})
    older = {"numpy": "2.3.0"}
    newer = {"numpy": "2.4.0"}
    assert environments(folder) == {"a": older, "b": newer, "c": newer}
    update(folder, {"b": "2", "c": "1"})
    assert environments(folder) == {"b": newer, "c": newer}
    assert json.loads(record_path(folder).read_text())["environments"] == [newer]


def test_another_version_alone_makes_nothing_again(folder, installed):
    installed("2.3.0")
    update(folder, {"a": "1"})
    installed("2.4.0")
    assert update(folder, {"a": "1"}) == ["a: unchanged"]


def test_versions_of_networks_are_recorded_where_networks_compute():
    of_regions = keyed.package_versions("artifacts/regions/voc")
    of_scores = keyed.package_versions("artifacts/scores/voc")
    assert {"numpy", "polars"} <= set(of_scores)
    assert {"torch", "pillow"} <= set(of_regions)
    assert "torch" not in of_scores


def test_an_output_that_is_made_whole_has_its_versions_recorded(tmp_path, installed):
    installed("2.3.0")
    keyed.write_record(tmp_path / "artifacts/choices/run.json")
    record = json.loads((tmp_path / "artifacts/records/choices/run.json").read_text())
    assert record["environments"] == [{"numpy": "2.3.0"}]


# --------------------------------------------------------------------------------------------------
# keys


@pytest.fixture
def inputs(tmp_path):
    """A folder of two files, and a file."""
    (tmp_path / "inputs/splits").mkdir(parents=True)
    (tmp_path / "inputs/splits/train").write_text("train")
    (tmp_path / "inputs/splits/val").write_text("val")
    (tmp_path / "inputs/weights").write_text("weights")
    return tmp_path / "inputs"


def digest_of_inputs(inputs: Path, **params: object) -> str:
    return key_of(
        [inputs / "splits", inputs / "weights"], {"k": 10, "metric": {"name": "cosine"}, **params}
    )


def test_a_key_of_the_same_inputs_is_the_same_wherever_they_are(inputs, tmp_path):
    shutil.copytree(inputs, tmp_path / "copy")
    assert digest_of_inputs(inputs) == digest_of_inputs(tmp_path / "copy")


@pytest.mark.parametrize("change", ["content", "name", "more", "fewer", "moved", "absent"])
def test_a_key_changes_with_every_file(inputs, change):
    before = digest_of_inputs(inputs)
    if change == "content":
        (inputs / "splits/val").write_text("other")
    elif change == "name":
        (inputs / "splits/val").rename(inputs / "splits/test")
    elif change == "more":
        (inputs / "splits/test").write_text("")
    elif change == "fewer":
        (inputs / "splits/val").unlink()
    elif change == "moved":
        (inputs / "splits/below").mkdir()
        (inputs / "splits/val").rename(inputs / "splits/below/val")
    else:
        (inputs / "weights").unlink()
    assert digest_of_inputs(inputs) != before


@pytest.mark.parametrize(
    "params", [{"k": 12}, {"k": "10"}, {"metric": {"name": "euclidean"}}, {"seed": None}]
)
def test_a_key_changes_with_every_parameter(inputs, params):
    assert digest_of_inputs(inputs, **params) != digest_of_inputs(inputs)


def test_a_key_does_not_depend_on_the_order_of_parameters():
    assert key_of([], {"a": 1, "b": 2}) == key_of([], {"b": 2, "a": 1})


def test_contents_do_not_run_into_each_other(tmp_path):
    """The same characters in other files, or as a name, are another content."""
    for name, files in {
        "one": {"a": "bc"},
        "two": {"ab": "c"},
        "three": {"a": "b", "c": ""},
    }.items():
        for file, text in files.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / file).write_text(text)
    digests = {content_digest(tmp_path / name) for name in ("one", "two", "three")}
    assert len(digests) == 3


# --------------------------------------------------------------------------------------------------
# folders and links


def test_no_item_leaves_its_folder(folder):
    with pytest.raises(DataError, match=OUTSIDE), Keyed(folder).make("../a.txt", "1"):
        pass


def test_a_link_to_a_folder_above_is_refused_and_nothing_there_is_deleted(tmp_path):
    (tmp_path / "precious.txt").write_text("of the user")
    (tmp_path / "scores").symlink_to(tmp_path)
    with pytest.raises(
        DataError, match=r"scores: a link to a folder that contains it.*delete the link"
    ):
        Keyed(tmp_path / "scores").keep_only([])
    assert (tmp_path / "precious.txt").exists()


def test_a_folder_on_another_disk_may_be_linked(tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "scores").symlink_to(tmp_path / "large")
    make(Keyed(tmp_path / "scores"), "a.txt", "1")
    assert (tmp_path / "large/a.txt").read_text() == "made"
    assert Keyed(tmp_path / "scores").is_current("a.txt", "1")


def test_what_is_not_a_folder_is_refused(tmp_path):
    os.mkfifo(tmp_path / "scores")
    with pytest.raises(DataError, match="scores: not a folder: delete it"):
        Keyed(tmp_path / "scores").keep_only([])
