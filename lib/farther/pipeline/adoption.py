"""Results of `infer` and `embed` that an earlier version of farther made and that this one keeps.

`farther init --pipeline` writes `{"adopt": true, "inputs": …}` as the records of a stage, for which
DVC says that nothing but code changed since. The stage then keeps what is there without making it
again, unless its inputs have changed by the time it runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from farther.detectors.inference import network_record
from farther.keyed import EARLIER_KEYS, record_path
from farther.params import read_params
from farther.tables import Images
from farther.tables.documents import read_json, write_json
from farther.tables.files import digest
from farther.tables.folders import files_below, listed

ADOPT = "adopt"
#: Keys of parameters that may name folders of files: checkpoints, proposals.
FOLDER_KEYS = ("weights", "file")


def record_files(folder: Path, stage: str, run: str | None = None) -> list[Path]:
    """The records of the output folders of a stage; see `farther.keyed`.

    Args:
        folder: The project's folder.
        stage: "infer" or "embed".
        run: The run of `infer`.
    """
    artifacts = folder / "artifacts"
    if run is None:
        return [record_path(dataset) for dataset in listed(artifacts / "embeddings", "*")]
    proposals = artifacts / "proposals" / run
    records = [
        record_path(artifacts / "regions" / run),
        record_path(artifacts / "passes" / run),
        network_record(proposals),
    ]
    # Each source of imported proposals has keys of its own.
    for source in listed(proposals, "*"):
        if (source / EARLIER_KEYS).is_file():
            records.append(record_path(source))
    return records


def adopt(folder: Path, stage: str, run: str | None = None) -> None:
    """Has a stage keep what it made, as long as its inputs are those of now.

    Args:
        folder: The project's folder.
        stage, run: See `record_files`.

    Raises:
        FartherError: an input is absent or damaged.
    """
    inputs = inputs_digest(folder, stage, run)
    for file in record_files(folder, stage, run):
        write_json(file, {ADOPT: True, "inputs": inputs})


def withdraw_if_changed(stage: str, run: str | None = None) -> None:
    """Deletes the records of an adoption where the stage's inputs have changed since.

    The stage then makes everything again. It is called in the project's folder.

    Args:
        stage, run: See `record_files`.

    Raises:
        FartherError: a record or an input is damaged.
    """
    inputs = None
    for file in record_files(Path(), stage, run):
        if not file.exists():
            continue
        record = read_json(file)
        if not isinstance(record, dict) or not record.get(ADOPT):
            continue
        if inputs is None:
            inputs = inputs_digest(Path(), stage, run)
        if record.get("inputs") != inputs:
            file.unlink()


def inputs_digest(folder: Path, stage: str, run: str | None = None) -> str:
    """Digest of parameters, files that these name, and images that a stage reads.

    Args:
        folder: The project's folder.
        stage, run: See `record_files`.

    Raises:
        FartherError: an input is absent or damaged.
    """
    params = read_params(folder / "params.yaml")
    embed = params.get("embed") or {}
    if run is None:
        read: list[Any] = [embed]
        tables = folder / "artifacts/tables"
    else:
        entry = params["detectors"][run]
        read = [entry, params.get("inference"), embed.get("encoder")]
        tables = folder / "artifacts/splits" / entry["benchmark"]
    parts: list[str | Path] = [json.dumps(read, sort_keys=True)]
    for key, text in _texts(read):
        parts.extend(_files_at(folder / text, with_folders=key in FOLDER_KEYS))
    parts.extend(_contents(tables))
    return digest(*parts)


def _contents(folder: Path) -> Iterator[str]:
    """Images and class names below a folder, as texts: another version may write other columns."""
    for file in listed(folder, "**/images.parquet"):
        images = Images.read(file)
        yield str(file.parent.relative_to(folder))
        yield json.dumps([images.image_id.tolist(), images.digest.tolist()])
    for name in ("id_classes.json", "categories.json"):
        for file in listed(folder, f"**/{name}"):
            yield f"{file.parent.relative_to(folder)} {json.dumps(read_json(file))}"


def _files_at(path: Path, *, with_folders: bool) -> Iterable[str | Path]:
    """The file at a path, or the names and files below it; nothing where there is none."""
    try:
        if path.is_file():
            return [path]
        if not with_folders or not path.is_dir():
            return []
    except (OSError, ValueError):  # a text that cannot be a path
        return []
    parts: list[str | Path] = []
    for file in sorted(files_below(path)):
        parts.extend([str(file.relative_to(path)), file])
    return parts


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(key, text) of all texts within lists and mappings: some of them are paths."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)
