import os

import pytest

from farther.errors import DataError
from farther.keyed import KEYS, Keyed


def make(items: Keyed, name: str, key: str, text: str = "made") -> None:
    with items.make(name, key) as path:
        path.write_text(text)


def test_an_item_is_current_until_its_key_changes(tmp_path):
    make(Keyed(tmp_path), "a/b.txt", "1")
    items = Keyed(tmp_path)
    assert items.is_current("a/b.txt", "1")
    assert not items.is_current("a/b.txt", "2")


def test_an_item_that_was_deleted_is_not_current(tmp_path):
    items = Keyed(tmp_path)
    make(items, "a.txt", "1")
    (tmp_path / "a.txt").unlink()
    assert not items.is_current("a.txt", "1")


def test_an_error_leaves_the_earlier_item_and_its_key(tmp_path):
    items = Keyed(tmp_path)
    make(items, "a.txt", "1")
    with pytest.raises(RuntimeError), items.make("a.txt", "2") as path:
        path.write_text("half")
        raise RuntimeError
    assert Keyed(tmp_path).is_current("a.txt", "1")
    assert (tmp_path / "a.txt").read_text() == "made"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.txt", KEYS]


def test_an_item_that_was_replaced_by_a_process_that_was_killed_is_current_under_no_key(tmp_path, monkeypatch):
    items = Keyed(tmp_path)
    make(items, "a.txt", "1")
    monkeypatch.setattr(items, "record", lambda *_: None)  # it was killed here
    make(items, "a.txt", "2", "other")
    assert (tmp_path / "a.txt").read_text() == "other"
    assert Keyed(tmp_path).key("a.txt") is None


def test_an_update_makes_what_is_new_changed_or_damaged_and_deletes_the_rest(tmp_path):
    told: list[str] = []

    def write(item: str, path) -> str:
        path.write_text(item)
        return "written"

    def update(keys: dict[str, str]) -> list[str]:
        told.clear()
        Keyed(tmp_path).update(keys, write, told.append, lambda path: path.read_text() == path.name)
        return told

    assert update({"a": "1", "b": "1", "c": "1"}) == ["a: written", "b: written", "c: written"]
    (tmp_path / "b").write_text("damaged")
    keys = {"b": "1", "c": "2", "d": "1"}
    assert update(keys) == ["a: removed", "b: written", "c: written", "d: written"]
    assert update(keys) == ["b: unchanged", "c: unchanged", "d: unchanged"]
    # A file of the name of a deleted item is not that item.
    assert update({"b": "1"}) == ["c: removed", "d: removed", "b: unchanged"]
    (tmp_path / "d").write_text("d")
    assert update({"b": "1", "d": "1"}) == ["b: unchanged", "d: written"]


def test_everything_that_belongs_to_no_item_is_deleted(tmp_path):
    items = Keyed(tmp_path)
    for name in ("a/b.txt", "a/c.txt", "d.txt"):
        make(items, name, "1")
    (tmp_path / ".123.d.txt").write_text("of a killed process")
    (tmp_path / "old").mkdir()
    assert items.keep_only(["a/b.txt"]) == ["a/c.txt", "d.txt"]
    assert sorted(str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*")) == ["a", "a/b.txt", KEYS]
    assert not Keyed(tmp_path).is_current("d.txt", "1")


def test_damaged_keys_are_named(tmp_path):
    (tmp_path / KEYS).write_text("[1]")
    with pytest.raises(DataError, match=r"keys\.json"):
        Keyed(tmp_path)


def test_no_item_leaves_its_folder(tmp_path):
    with pytest.raises(DataError, match="leaves its folder"), Keyed(tmp_path / "out").make("../a.txt", "1"):
        pass


def test_a_link_to_a_folder_above_is_refused_and_nothing_there_is_deleted(tmp_path):
    (tmp_path / "precious.txt").write_text("of the user")
    (tmp_path / "scores").symlink_to(tmp_path)
    with pytest.raises(DataError, match=r"scores: a link to a folder that contains it.*delete the link"):
        Keyed(tmp_path / "scores").keep_only([])
    assert (tmp_path / "precious.txt").exists()


def test_a_folder_on_another_disk_may_be_linked(tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "scores").symlink_to(tmp_path / "large")
    make(Keyed(tmp_path / "scores"), "a.txt", "1")
    assert Keyed(tmp_path / "large").is_current("a.txt", "1")


def test_what_is_not_a_folder_is_refused(tmp_path):
    os.mkfifo(tmp_path / "scores")
    with pytest.raises(DataError, match="scores: not a folder: delete it"):
        Keyed(tmp_path / "scores").keep_only([])
