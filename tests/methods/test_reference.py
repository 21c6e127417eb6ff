"""The reference of methods is generated from the code."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from farther import methods
from farther.methods.base import METHODS
from farther.methods.reference import sections, table
from farther.text.documentation import describe

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


def test_the_table_has_year_reference_and_needs_of_every_method():
    rows = {}
    for line in table().splitlines()[2:]:
        _, title, link, year, paper, code, needs, _ = (cell.strip() for cell in line.split("|"))
        name = re.fullmatch(r"\[`(\w+)`\]\(#\1\)", link)[1]
        rows[name] = (title, year, paper, code, set(re.findall(r"`([\w.]+)`", needs)))
    assert list(rows) == sorted(methods.names())
    for name, (title, _, _, _, needs) in rows.items():
        assert title == methods.get(name).title
        assert needs == methods.get(name).needs
    assert rows["vim"][1:4] == (
        "2022",
        "[arXiv:2203.10807](https://arxiv.org/abs/2203.10807)",
        "[code](https://github.com/haoqiwang/vim)",
    )
    assert rows["gram"][4] == {"gram", "labels"}


def test_the_example_of_a_method_works(make):
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("## Adding a method")
    code = rest.split("```python\n")[1].split("```")[0]
    try:
        exec(code, {"__name__": "example"})
        regions = make()
        scores = methods.create("margin").fit(regions).score(regions)
    finally:
        METHODS._classes.pop("margin", None)
    ascending = np.sort(regions.logits.astype(np.float64), axis=1)
    margins = ascending[:, -1] - ascending[:, -2]
    np.testing.assert_allclose(scores, margins / margins.std(), rtol=1e-6)


@pytest.mark.parametrize("name", methods.names())
def test_a_method_has_a_formula_references_an_example_and_a_description_of_each_parameter(name):
    _, entry = sections().split(f"\n### {name}\n")
    entry = entry.split("\n### ")[0]
    assert "> score = " in entry
    assert "```python\n>>> " in entry
    assert f"(#{name}) |" in table()
    for field in dataclasses.fields(methods.get(name)):
        (row,) = [line for line in entry.splitlines() if line.startswith(f"| `{field.name}` |")]
        assert len(row.split("|")[3].strip()) > 3


@pytest.mark.parametrize("name", [name for name in methods.names() if name != "uncertainty"])
def test_a_published_method_has_its_paper_as_fields_and_among_its_references(name):
    publication = methods.get(name).publication
    assert 2000 < publication.year <= 2026
    references = describe(methods.get(name)).sections["References"]
    for link in filter(None, (publication.link, publication.code)):
        assert link.startswith("https://")
        assert link.removeprefix("https://arxiv.org/abs/") in references, link


@pytest.mark.parametrize(
    "name", [name for name in methods.names() if methods.get(name)._fit is not methods.Method._fit]
)
def test_fitted_attributes_are_documented_and_no_others(name, make):
    params = {
        "knn": {"k": 3},
        "gram": {"layer": ["deep"]},
        "imported": {"file": "theirs.csv"},
        "fused": {"of": ["energy", "msp"]},
        "cascade": {"first": "energy", "then": "msp"},
    }.get(name, {})
    method = methods.create(name, **params).fit(make())
    if method.wants_pass is not None:
        method.learn_pass(make(), make(shift=1.0))
    if name == "imported":
        method.learn_scores({})
    found = vars(method)
    fitted = {
        attribute
        for attribute in found
        if attribute.endswith("_") and not attribute.endswith("fitted_on_")
    }
    documented = set(
        re.findall(r"\w+_(?=[:,])", describe(methods.get(name)).sections["Attributes"])
    )
    assert fitted <= documented
    assert documented - fitted <= {"centroids_", "recall_"}  # of an approximate index
