"""Paths that are not files of text."""

import os

import pytest

from farther.errors import DataError
from farther.tables.documents import (
    read_json,
    read_yaml,
)
from farther.tables.files import read_text


def test_a_path_that_is_not_a_file_of_text_is_an_error_that_names_it(tmp_path):
    (tmp_path / "latin").write_bytes(b"\xe9")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("latin", "loop", "folder", "pipe", "absent", "n" * 300, "nul\0"):
        for read in (read_text, read_json, read_yaml):
            with pytest.raises(DataError) as error:
                read(tmp_path / name)
            assert error.value.file == str(tmp_path / name)
