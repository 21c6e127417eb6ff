"""The publisher's statements."""

import pytest

from farther.errors import DataError
from farther.publication import read_words


def test_words_come_from_a_file(tmp_path):
    file = tmp_path / "words.yaml"
    file.write_text(
        "title: Mine\npublished: 2026-11-21\ncreators: [Ann, Ben]\nanswers: {host: Ann's group.}\n"
    )
    words = read_words(file)
    assert (words.title, words.creators, words.answers["host"]) == (
        "Mine",
        ("Ann", "Ben"),
        "Ann's group.",
    )
    assert words.published is not None
    assert words.published.isoformat() == "2026-11-21"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("answers: {who: me}", "unknown question 'who'. Known: purpose, creators"),
        ("licence: cc0", "unknown parameter 'licence'. Known: title"),
        ("[a, b]", "expected a mapping from title, summary, … to text, found"),
        ("a: [", "not YAML"),
        (None, "does not exist"),
    ],
)
def test_wrong_words_are_refused_in_plain_words(tmp_path, text, message):
    file = tmp_path / "words.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_words(file)
    assert str(file) in str(caught.value)
