"""Names of files within a folder."""

from pathlib import Path

import pytest
from tests.support.messages import OUTSIDE

from farther.errors import DataError
from farther.tables.files import inside


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "", "."])
def test_a_name_that_leaves_its_folder_is_refused(tmp_path: Path, name: str):
    with pytest.raises(DataError, match=OUTSIDE):
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


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127 + "x"])
def test_a_name_of_255_bytes_is_the_longest(tmp_path: Path, name: str):
    assert inside(tmp_path, name) == tmp_path / name
