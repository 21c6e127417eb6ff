"""Folders of the `transformers` library and models of the hub: their files, and the classes that they name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from farther.detectors.networks.weights import numbered
from farther.errors import DataError, first_line
from farther.images.bounds import MOST, check_description
from farther.tables.documents import read_json
from farther.tables.files import inside

CONFIG, PROCESSOR, WEIGHTS = "config.json", "preprocessor_config.json", "model.safetensors"
INDEX = "model.safetensors.index.json"

#: The description of a whole processor, as recent releases save it: the image processor's is a field.
WHOLE_PROCESSOR = "processor_config.json"

#: Names of models on the hub, and endings of file names that look like them.
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
FILES = (".safetensors", ".ckpt", ".pt", ".pth", ".bin")


def fetched(
    weights: Path, revision: str | None = None, *, local_files_only: bool = False, more: Sequence[str] = ()
) -> Path:
    """The file or folder `weights`, or the folder that the hub's model of that name was fetched to.

    Args:
        revision: Branch, tag or commit of a model on the hub.
        local_files_only: Use a model on the hub only if it was fetched before.
        more: Names of further files to fetch, if the model has them.

    Raises:
        DataError: it is the name of a model, and the model cannot be fetched.
    """
    name = weights.as_posix()
    if weights.exists() or not HUB_NAME.fullmatch(name) or weights.suffix in FILES:
        return weights
    from huggingface_hub import snapshot_download

    wanted = [CONFIG, PROCESSOR, "*.safetensors", INDEX, *more]
    try:
        found = snapshot_download(name, revision=revision, allow_patterns=wanted, local_files_only=local_files_only)
    except Exception as error:  # no network, no such model, no access, not fetched before: each has its error
        problem = f"no such file or folder, and no such model on the hub: {first_line(error)}"
        raise DataError(problem, file=name) from None
    return Path(found)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The one file of weights in a folder, or all its shards."""
    if not (folder / INDEX).is_file():
        return (folder / WEIGHTS,)
    index = read_json(folder / INDEX)
    shards = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise DataError("expected the file of each weight, by name", file=folder / INDEX, field="weight_map")
    return tuple(inside(folder, name) for name in sorted(set(shards.values())))


def with_index(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Files of a checkpoint, the list of its shards included where there is one."""
    index = files[0].parent / INDEX
    return (*files, index) if index.is_file() else files


def read_description(path: Path, most: float = MOST) -> Any:
    """Content of a configuration whose numbers are within bounds; see `check_description`."""
    content = read_json(path)
    check_description(path, content, most)
    return content


def class_names(path: Path, config: Any) -> list[str]:
    """The classes that a configuration names, in the order of its logits; a name that comes twice gets its number."""
    named = config.get("id2label") if isinstance(config, dict) else None
    numbers = [str(number) for number in range(len(named))] if isinstance(named, dict) else []
    if not isinstance(named, dict) or not named or any(number not in named for number in numbers):
        problem = "expected names for the numbers 0, 1, …; give them with the parameter 'classes'"
        raise DataError(problem, file=path, field="id2label")
    return list(numbered([str(named[number]) for number in numbers]))
