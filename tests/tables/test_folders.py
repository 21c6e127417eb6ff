"""Folders that are loops or too deep to list, and names that are not UTF-8."""

import os
import subprocess

import pytest

from farther.errors import DataError
from farther.tables.folders import (
    entries,
    files_below,
    find_file,
    in_unicode,
    linked_folders,
    listed,
    refuse_linked_folders,
)


@pytest.fixture
def deepen(tmp_path):
    """Makes folders in each other; Python itself cannot delete them afterwards."""

    def make(name, count):
        at = os.open(tmp_path, os.O_RDONLY)
        for _ in range(count):
            os.mkdir(name, dir_fd=at)
            below = os.open(name, os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.close(at)

    yield make
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)


def test_a_link_to_a_folder_above_ends_there(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    for name in ("x.png", "a/x.png", "a/b/x.png"):
        (tmp_path / name).touch()
    (tmp_path / "a/b/up").symlink_to("..")
    (tmp_path / "a/self.png").symlink_to("self.png")
    found = sorted(path.relative_to(tmp_path).as_posix() for path in files_below(tmp_path))
    assert found == ["a/b/x.png", "a/self.png", "a/x.png", "x.png"]
    assert list(files_below(tmp_path / "nowhere")) == entries(tmp_path / "x.png") == []


def test_folders_deeper_than_calls_go_are_listed(tmp_path, deepen):
    deepen("d", 1500)
    (tmp_path / "d/d/x.png").touch()
    assert list(files_below(tmp_path)) == listed(tmp_path, "**/*.png") == [tmp_path / "d/d/x.png"]
    assert len(listed(tmp_path, "**")) == 1501


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", ["a", "x.png"]),
        ("**/*.png", ["a/b/x.png", "a/y.png", "x.png"]),
        ("**/**/[xz].png", ["a/b/x.png", "x.png"]),
        ("**", ["a", "a/b", "a/b/x.png", "a/broken", "a/up", "a/y.png", "x.png"]),
        ("a/**", ["a/b", "a/b/x.png", "a/broken", "a/up", "a/y.png"]),
        ("a/./?/x.png", ["a/b/x.png"]),
        ("a/??/x.png", ["a/up/x.png"]),
        ("a/b", ["a/b"]),
        ("*/nothing", []),
        ("x.png/*", []),
        (".*", []),
        (".hidden/x.png", []),
        ("a/../x.png", []),
    ],
)
def test_a_pattern_names_files_and_folders_but_no_hidden_ones(tmp_path, pattern, found):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    for name in ("x.png", ".x.png", ".hidden/x.png", "a/y.png", "a/b/x.png"):
        (tmp_path / name).touch()
    (tmp_path / "a/up").symlink_to("..")
    (tmp_path / "a/broken").symlink_to("nowhere")
    assert listed(tmp_path, pattern) == [tmp_path / name for name in found]


@pytest.mark.parametrize("target", ["nowhere", "link"])
@pytest.mark.parametrize("pattern", ["*/x.png", "link/x.png", "link/inner/x.png", "*/*"])
def test_a_pattern_does_not_pass_over_a_folder_that_is_a_broken_link(tmp_path, target, pattern):
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(DataError, match=f"link: a link to '{target}' that leads nowhere"):
        listed(tmp_path, pattern)
    assert listed(tmp_path, "*") == [tmp_path / "link"]


@pytest.mark.parametrize("target", ["nowhere", "link"])
def test_files_behind_a_broken_link_are_not_passed_over(tmp_path, target):
    (tmp_path / "link").symlink_to(target)
    for folder in (tmp_path, tmp_path / "link"):
        with pytest.raises(DataError, match=f"link: a link to '{target}' that leads nowhere"):
            list(files_below(folder))
    (tmp_path / "link").rename(tmp_path / ".#link")  # as an editor marks a file that is open
    assert list(files_below(tmp_path)) == [tmp_path / ".#link"]


@pytest.mark.parametrize("pattern", ["", ".", "/x/*.png"])
def test_a_pattern_is_below_its_folder(tmp_path, pattern):
    with pytest.raises(DataError, match="not a pattern of files below the folder: "):
        listed(tmp_path, pattern)


def test_folders_whose_path_is_too_long_are_refused_by_name(tmp_path, deepen):
    deepen("d" * 200, 25)
    for find in (lambda: list(files_below(tmp_path)), lambda: listed(tmp_path, "**/*.png")):
        with pytest.raises(DataError, match="the folder cannot be listed: File name too long"):
            find()


def test_names_that_are_not_utf_8_are_refused_where_tables_would_hold_them(tmp_path):
    file = tmp_path / os.fsdecode(b"\xff.png")
    file.touch()
    for find in (lambda: listed(tmp_path, "*"), lambda: in_unicode(file)):
        with pytest.raises(DataError, match=r"\\udcff.png: the name is not UTF-8: rename it"):
            find()
    assert list(files_below(tmp_path)) == [file]


@pytest.mark.parametrize("junk", ["._a.png", ".DS_Store", "Thumbs.db", "DESKTOP.INI", "Icon\r"])
def test_files_of_systems_are_in_no_list(tmp_path, junk):
    for folder in ("", "a", "__MACOSX", "a/@eaDir", ".ipynb_checkpoints"):
        (tmp_path / folder).mkdir(exist_ok=True)
        for name in ("x.png", junk):
            (tmp_path / folder / name).touch()
    own = [tmp_path / "a/x.png", tmp_path / "x.png"]
    assert sorted(files_below(tmp_path)) == listed(tmp_path, "**/*.png") == own
    assert [entry.name for entry in entries(tmp_path)] == ["a", "x.png"]


def test_names_that_look_like_those_of_systems_are_listed(tmp_path):
    names = ["MACOSX", "_a.png", "desktop.ini.png", "thumbs", "x.DS_Store"]
    for name in names:
        (tmp_path / name).touch()
    assert [entry.name for entry in entries(tmp_path)] == names


def test_the_ending_of_a_pattern_matches_in_any_case_and_the_rest_does_not(tmp_path):
    for name in ("a.xml", "b.XML", "B.Xml", "c.xm", "xml"):
        (tmp_path / name).touch()
    assert [path.name for path in listed(tmp_path, "*.xml")] == ["B.Xml", "a.xml", "b.XML"]
    assert [path.name for path in listed(tmp_path, "[ab].XML")] == ["a.xml", "b.XML"]
    assert [path.name for path in listed(tmp_path, "B.*")] == ["B.Xml"]


def test_a_file_is_found_by_its_ending_in_another_case(tmp_path):
    (tmp_path / "a.JSON").touch()
    assert find_file(tmp_path / "a.json") == tmp_path / "a.JSON"
    assert find_file(tmp_path / "A.json") == tmp_path / "A.json"
    (tmp_path / "a.json").touch()
    with pytest.raises(DataError, match="differ in the case"):
        find_file(tmp_path / "a.json")


def test_links_to_folders_are_found_and_refused_with_what_to_do(tmp_path):
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "far/image.png").touch()
    (tmp_path / "root/val").mkdir(parents=True)
    (tmp_path / "root/image.png").symlink_to(tmp_path / "far/image.png")
    (tmp_path / "root/nowhere").symlink_to("absent")
    refuse_linked_folders(tmp_path / "root")

    (tmp_path / "root/val/more").symlink_to(tmp_path / "far")
    assert list(linked_folders(tmp_path / "root")) == [tmp_path / "root/val/more"]
    with pytest.raises(DataError, match=r"val/more: a link to the folder .*far.*of its own"):
        refuse_linked_folders(tmp_path / "root")


def test_a_folder_that_is_a_link_itself_is_not_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    refuse_linked_folders(tmp_path / "root")
