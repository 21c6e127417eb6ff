"""The stages that a change of a part of params.yaml reruns, read from dvc.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from farther.incremental.code import CODE
from farther.incremental.stage_digests import ENTRY_KEYS
from farther.pipeline.described_keys import is_chosen
from farther.pipeline.dvc_file import ROOT
from farther.tables.documents import read_yaml

#: An entry of a section, as stages are addressed by it: `infer@RUN`.
ENTRIES = {
    "benchmarks": "BENCHMARK",
    "datasets": "DATASET",
    "derived": "DATASET",
    "detectors": "RUN",
    "enrich": "BENCHMARK",
}


@cache
def _stages() -> dict[str, Any]:
    """The stages of dvc.yaml by name, without `foreach` and `do`."""
    content = read_yaml(ROOT / "dvc.yaml")
    return {name: stage.get("do", stage) for name, stage in content["stages"].items()}


def after_any_change() -> tuple[str, ...]:
    """The stages that depend on the file params.yaml: they run after each change of it."""
    return tuple(
        name for name, stage in _stages().items() if "params.yaml" in stage.get("deps", ())
    )


def reruns(path: str) -> tuple[str, ...]:
    """The stages that DVC reruns when a part of params.yaml changes.

    The stages that depend on their outputs follow where these change.

    Args:
        path: A section or a part of it: `inference`, `embed.encoder`, `detectors.RUN.passes.PASS`.

    Returns:
        Their names; `infer@RUN` where only those of the changed entry rerun. Empty for a part that
        commands alone read.

    >>> reruns("threshold"), reruns("embed.images"), reruns("review")
    (('fit',), ('embed',), ())
    """
    names = []
    for name, stage in _stages().items():
        for parameter in _parameters(stage):
            if _overlaps(parameter, path):
                names.append(_address(name, parameter))
        if f"${{{path}}}" in stage.get("deps", ()):
            names.append(name)
    if not names and path.partition(".")[0] in after_any_change():
        names.append(path.partition(".")[0])
    return tuple(dict.fromkeys(names))


def _parameters(stage: Mapping[str, Any]) -> Iterator[str]:
    """The parts of params.yaml that a stage depends on.

    Entries without titles have digests in artifacts/code.json.
    """
    for parameter in stage.get("params", ()):
        if isinstance(parameter, str):
            yield parameter
            continue
        for key in parameter[CODE.as_posix()]:
            if key.partition(".")[0] in ENTRY_KEYS:
                yield key


def _overlaps(parameter: str, path: str) -> bool:
    """Whether a parameter in dvc.yaml is a part of a path, or the other way round."""
    pairs = zip(parameter.split("."), path.split("."), strict=False)
    return all(key in (part, "${key}") or is_chosen(part) for key, part in pairs)


def _address(stage: str, parameter: str) -> str:
    """The name of a stage, with the entry where it depends on one entry of a section alone."""
    if "${key}" in parameter:
        return f"{stage}@{ENTRIES[parameter.partition('.')[0]]}"
    return stage
