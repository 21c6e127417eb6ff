"""Changes of the parameters of the current folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from farther.params import parse


def change(edit: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrites params.yaml after an edit of its content."""
    params = parse(Path("params.yaml").read_text())
    edit(params)
    Path("params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
