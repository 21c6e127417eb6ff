"""The reference page is written from the code, so it cannot say anything else than the code does."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from farther import methods
from farther.methods.base import METHODS
from farther.methods.document import reference

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


def test_the_page_in_the_repository_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "run `python -m farther.methods.document > docs/methods.md` and commit the page"
    )


def test_the_example_of_a_method_works(make):
    _, _, rest = reference().partition("## Adding a method")
    code = rest.split("```python\n")[1].split("```")[0]
    known = dict(METHODS._classes)
    try:
        exec(code, {"__name__": "example"})
        regions = make()
        scores = methods.create("sharpness").fit(regions).score(regions)
    finally:
        METHODS._classes.clear()
        METHODS._classes.update(known)
    largest = regions.logits.max(axis=1).astype(np.float64)
    np.testing.assert_allclose(scores, largest / largest.std(), rtol=1e-6)


@pytest.mark.parametrize("name", methods.names())
def test_a_method_has_a_formula_a_source_and_a_word_on_each_parameter(name):
    _, entry = reference().split(f"\n## {name}\n")
    entry = entry.split("\n## ")[0]
    assert "> score = " in entry
    assert "Source: " in entry
    for field in dataclasses.fields(methods.get(name)):
        (row,) = [line for line in entry.splitlines() if line.startswith(f"| `{field.name}` |")]
        assert len(row.split("|")[3].strip()) > 3
