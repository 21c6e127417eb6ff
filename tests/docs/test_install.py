"""docs/install.md lists the extras that there are."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_extras_is_that_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = re.findall(r"^\| (`.+?`) \|", (ROOT / "docs/install.md").read_text(), flags=re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(extras)
