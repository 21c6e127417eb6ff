"""CSV files and digests."""

import hashlib
import struct
from pathlib import Path

import pytest

from farther.errors import DataError
from farther.tables.files import csv_rows, digest


def test_a_field_of_a_csv_file_that_is_too_long_is_named_with_its_row(tmp_path):
    file = tmp_path / "a.csv"
    for length in (131_072, 131_073):
        file.write_text(f"a,b\n1,2\n{'x' * length},3\n")
        if length == 131_072:
            assert list(csv_rows(file))[2] == ["x" * length, "3"]
        else:
            with pytest.raises(
                DataError, match=r"a\.csv: row 3: not readable CSV: field larger than"
            ):
                list(csv_rows(file))


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


def test_a_digest_takes_the_name_of_a_file_that_is_not_utf_8():
    assert digest("a\udcff") != digest("a")
