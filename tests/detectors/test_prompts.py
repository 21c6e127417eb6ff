"""Prompts of text encoders."""

import pytest

from farther.detectors.prompts import Prompts
from farther.errors import DataError, ParameterError


def test_negative_prompts_follow_the_classes_and_are_the_unknown_columns():
    prompts = Prompts.of(
        ("cat", "dog"), ("a {}", "one {} in a {} house"), [" traffic light ", "object"]
    )
    assert prompts.columns == ("cat", "dog", "traffic light", "object")
    assert prompts.unknown_columns == (2, 3)
    assert prompts.sentences()[1][2] == "one traffic light in a traffic light house"


def test_a_file_of_prompts_is_the_same_as_their_list_whatever_its_blank_lines_and_comments(
    tmp_path,
):
    file = tmp_path / "negatives.txt"
    file.write_text("# mined\n\nlamp\r\n  street sign \n", encoding="utf-8")
    listed = Prompts.of(("cat",), "a {}", ["lamp", "street sign"])
    assert Prompts.of(("cat",), "a {}", file) == listed
    file.write_text("lamp\nstreet\n", encoding="utf-8")
    assert Prompts.of(("cat",), "a {}", file).identity() != listed.identity()


def test_a_class_that_becomes_a_negative_prompt_changes_the_identity():
    assert (
        Prompts.of(("cat", "dog"), "{}").identity()
        != Prompts.of(("cat",), "{}", ["dog"]).identity()
    )


@pytest.mark.parametrize(
    ("classes", "template", "unknown", "message"),
    [
        (("cat",), "a {}", [" "], "'unknown': the prompt ' ' is empty"),
        (("cat", ""), "a {}", [], "'classes': the prompt '' is empty"),
        (("cat",), "a {}", ["lamp", "Lamp "], "the prompt 'Lamp ' is listed twice"),
        (("cat", "traffic light"), "a {}", ["Traffic  light"], "is also the class 'traffic light'"),
        (("cat", "cat"), "a {}", [], "'classes': the prompt 'cat' is listed twice"),
        (("cat",), "a {}", ["a\nb"], "line break"),
        (("cat",), "a {}", ["x" * 501], "has 501 characters; at most 500"),
        (("cat",), ["a {}", "a photo"], [], "'template': 'a photo' lacks {}"),
        (("cat",), "{}", [str(n) for n in range(2**15)], "at most 32,767 are read"),
    ],
)
def test_bad_prompts_are_refused_by_name(classes, template, unknown, message):
    with pytest.raises(
        ParameterError, match="(?s)" + message.replace("{", r"\{").replace("}", r"\}")
    ):
        Prompts.of(classes, template, unknown)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"lamp\n\ncat\n", r"negatives.txt: row 3: the prompt 'cat' is also the class 'cat'"),
        (b"\n# none\n", "has no prompt; write one per line"),
        (b"lamp\n\xff\n", "not UTF-8 at byte 5"),
        (None, "the file does not exist"),
    ],
)
def test_a_bad_file_of_prompts_is_refused_with_its_line(content, message, tmp_path):
    file = tmp_path / "negatives.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        Prompts.of(("cat",), "a {}", file)
