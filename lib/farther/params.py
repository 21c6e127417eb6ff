"""What a stage reads of `params.yaml`, and the digest of its code in `artifacts/code.json`."""

import re
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from farther.code import CODE
from farther.errors import DataError, ParameterError
from farther.tables.files import read_json


def section(*keys: str, file: str | Path = "params.yaml") -> Any:
    """The part of a file of parameters at `keys`; an empty section is an empty dict.

    Raises:
        ParameterError: there is no such part; the message lists those that there are.
    """
    value = _parsed(Path(file).read_text(encoding="utf-8"))
    for depth, key in enumerate(keys):
        if not isinstance(value, dict) or key not in value:
            known = ", ".join(map(str, value)) if isinstance(value, dict) else repr(value)
            raise ParameterError(f"{file}: no {'.'.join(keys[: depth + 1])!r}. Known here: {known}")
        value = value[key]
    return {} if value is None else deepcopy(value)


class _Loader(yaml.SafeLoader):
    """YAML with the booleans of version 1.2, as DVC reads the same file: `on`, `off`, `yes` and `no` are text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), [*"tTfF"])


def parse(text: str) -> Any:
    """The content of a file of parameters.

    >>> parse("{method: mls, on: perturbed, keep: true}")
    {'method': 'mls', 'on': 'perturbed', 'keep': True}
    """
    return yaml.load(text, _Loader)


@lru_cache(maxsize=4)
def _parsed(text: str) -> Any:
    return parse(text)


def code_digest(*keys: str, file: str | Path = CODE) -> str:
    """The digest of a stage's code: `code_digest("curate")`, `code_digest("infer", "yolo")`.

    Raises:
        DataError: the stage `code` has not run since the stage or the name was added.
    """
    value = read_json(file)
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, str):
        raise DataError(f"no digest of {'.'.join(keys)!r}; run `dvc repro code`", file=file)
    return value
