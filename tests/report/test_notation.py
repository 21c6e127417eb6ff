"""Pages print values in words and numbers, never as Python writes them."""

import re

import pytest

from farther.report.documented import word

#: A list of texts, a list of letters, a set, a dictionary, an object, a truth value.
OF_PYTHON = re.compile(r"\['|', '|\{'|<\w+ object|(?:^|[=,] )(?:True|False|None)(?:$|,)")


@pytest.mark.parametrize(
    "name", ["index", "compare", "methods", "data", "provenance", "detectors/pets-net"]
)
def test_no_page_prints_a_value_as_python_writes_it(report_of_two, read, name):
    visible = [
        text
        for tag in ("a", "p", "li", "td", "th", "dd", "h1", "h2", "h3", "summary")
        for text in read(report_of_two / f"{name}.html").texts(tag)
    ]
    assert visible
    assert [text for text in visible if OF_PYTHON.search(text)] == []


def test_values_in_words():
    assert word({"layer": ["layer1", "layer2"], "whiten": None}) == (
        "layer = [layer1, layer2], whiten = none"
    )
    assert (word(True), word([]), word(0.5)) == ("true", "[]", "0.5")
