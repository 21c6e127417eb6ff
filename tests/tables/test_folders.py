"""Folders that are loops or too deep to list, and names that are not UTF-8."""

import os
import subprocess

import pytest

from farther.errors import DataError
from farther.tables.folders import entries, files_below, in_unicode, listed


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
