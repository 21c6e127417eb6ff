"""The ways through the code that the page on the design describes: what they name exists."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESIGN = (ROOT / "docs/design.md").read_text()

#: "`scoring/fit.py: fit_run`": a module below the library, and a name in it.
NAMED = re.findall(r"`((?:\w+/)*\w+)\.py: ([\w.]+)`", DESIGN)


def test_both_ways_name_their_modules():
    assert len(NAMED) >= 12


@pytest.mark.parametrize(("module", "name"), NAMED)
def test_what_the_ways_name_is_there(module, name):
    holder = import_module(f"farther.{module.replace('/', '.')}")
    for part in name.split("."):
        holder = getattr(holder, part)
    assert callable(holder)
