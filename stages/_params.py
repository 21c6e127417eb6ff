"""What a stage reads of `params.yaml`, or of another file of parameters."""

from pathlib import Path
from typing import Any

import yaml

from farther.errors import ParameterError


def section(*keys: str, file: str = "params.yaml") -> Any:
    """The part of a file of parameters at `keys`; an empty section is an empty dict.

    Raises:
        ParameterError: there is no such part; the message lists what stands there instead.
    """
    value = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    for depth, key in enumerate(keys):
        if not isinstance(value, dict) or key not in value:
            known = ", ".join(map(str, value)) if isinstance(value, dict) else repr(value)
            raise ParameterError(f"{file}: no {'.'.join(keys[: depth + 1])!r}. Known here: {known}")
        value = value[key]
    return {} if value is None else value
