"""Reads `params.yaml`."""

import re
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from farther.errors import LISTED, DataError, ParameterError, choose, shorten
from farther.naming.canonical_names import canonicalise
from farther.tables.documents import parse_yaml
from farther.tables.files import file_ending, read_text
from farther.tables.schema import Schema, check

ABSENT = "the file does not exist. Run this in a project's folder, or name the file with --params"

#: The file of a project's parameters.
PARAMS = Path("params.yaml")

#: The text that is read in the place of `PARAMS`: see `use_snapshot`.
_snapshot: str | None = None

#: Names become parts of commands, paths and addresses.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")

#: Names that entries of a section cannot have, and what has them.
RESERVED = {
    "detectors": {
        "datasets": "section 'sources' has it for datasets",
        "embed": "section 'sources' has it for the weights of CLIP",
        "similarity": "the stage 'stratify' writes artifacts/plots/similarity",
    },
}

#: The folder of a derived dataset, of a kind and a name.
DERIVED = "artifacts/derived/{}/{}"

#: Paths of keys whose values define names as their keys; "*" is any key.
NAMED = (
    ("datasets",),
    ("derived", "*"),
    ("benchmarks",),
    ("benchmarks", "*", "splits"),
    ("benchmarks", "*", "shifted"),
    ("benchmarks", "*", "shifted_val"),
    ("detectors",),
    ("detectors", "*", "passes"),
    ("detectors", "*", "proposals"),
    ("methods",),
    ("train",),
    ("train_clip",),
)


def read_params(file: str | Path = "params.yaml") -> dict[str, Any]:
    """All sections of a file of parameters.

    Each is checked to be a mapping or empty, and names to match `NAME`. Section `datasets` has the
    derived datasets, too. Where `use_snapshot` set the text of params.yaml, this is read.

    Raises:
        ParameterError: the file is absent, is not YAML or exceeds the limits of `read_yaml`, a
            section is of another type, or a name has other characters; names file, section and
            name.
    """
    return deepcopy(_cached_parse(_text_of(file), str(file)))


def _text_of(file: str | Path) -> str:
    if _snapshot is not None and Path(file) == PARAMS:
        return _snapshot
    try:
        return read_text(file, ABSENT)
    except DataError as error:
        raise ParameterError(str(error)) from None


def snapshot() -> str:
    """The text of params.yaml that this process uses, for `use_snapshot` in its worker processes.

    Raises:
        ParameterError: see `read_params`.
    """
    return _text_of(PARAMS)


def use_snapshot(text: str | None) -> None:
    """Has this process read a text in the place of params.yaml; None ends it.

    A stage reads params.yaml once: an edit while it runs changes none of what it does.
    """
    global _snapshot
    _snapshot = text


def section(*keys: str, file: str | Path = "params.yaml") -> Any:
    """The part of a file of parameters at `keys`; an empty section is an empty dict.

    Raises:
        ParameterError: there is no such part (the message lists those that there are), or see
            `read_params`.
    """
    value: Any = read_params(file)
    for depth, key in enumerate(keys):
        if not isinstance(value, dict) or key not in value:
            path = ".".join(keys[: depth + 1])
            raise ParameterError(f"{file}: no {path!r}. Known here: {_known_keys(value)}")
        value = value[key]
    if value is None:
        return {}
    return value


def _known_keys(value: Any) -> str:
    """The keys of a dict, or another value, for a message."""
    if isinstance(value, dict):
        return ", ".join(str(key) for key in list(value)[:LISTED])
    return shorten(value)


def parse(text: str, file: str = "params.yaml") -> dict[str, Any]:
    """The sections of a text, checked as `read_params` does.

    Section `datasets` has the derived datasets, too. Methods have their registered names, however
    they are written (`farther.naming.canonical_names`).

    >>> parse("methods: {odin: {method: MaxLogit, on: perturbed, keep: true}, kNN: {k: 5}}")
    {'methods': {'odin': {'method': 'mls', 'on': 'perturbed', 'keep': True}, 'knn': {'k': 5}}}
    """
    try:
        params = parse_yaml(text, file)
    except DataError as error:
        raise ParameterError(str(error)) from None
    if not isinstance(params, dict):
        raise ParameterError(f"{file}: expected sections, found {shorten(params)}")
    for name, value in params.items():
        _mapping(value, file, str(name))
    for path in NAMED:
        _check_names(params, file, path)
    for name, entry in (params.get("detectors") or {}).items():
        _check_run(entry or {}, file, f"detectors.{name}")
    canonicalise(params, file)
    _add_derived(params, file)
    for path in NAMED:
        _check_case(params, file, path)
    return params


_cached_parse = lru_cache(maxsize=4)(parse)


class RunEntry(Schema):
    """A run: one detector on one benchmark. An entry of the section `detectors`.

    Args:
        title: The detector's name in the report; by default the run's, without the benchmark's.
        adapter: Program that runs the network, or reads detections that another program wrote.
        benchmark: Name of the benchmark, in the section `benchmarks`.
        weights: The checkpoint, the folder of a model, or the file of detections. For some adapters
            the name of a model on the hub, `owner/name`.
        params: Parameters of the adapter.
        classes: The ID class, as the class mapping writes it, of each of the detector's classes
            whose name differs; null for a class that is not an ID class: its detections count as
            unknown.
        threshold: Keys of the section `threshold`, in the place of those there, for this run alone.
        passes: Extra inference (MC dropout, test-time augmentation, ensembles, crops, …), by a name
            that a method's `pass` gives.
        proposals: Class-agnostic boxes for objects that the detector misses, by a name.
    """

    title: str | None = None
    adapter: str | None = None
    benchmark: str | None = None
    weights: str | None = None
    params: dict[str, Any] | None = None
    classes: dict[str, str | None] | None = None
    threshold: dict[str, Any] | None = None
    passes: dict[str, Any] | None = None
    proposals: dict[str, Any] | None = None


def _add_derived(params: dict[str, Any], file: str) -> None:
    """Adds derived datasets to the section `datasets`.

    Their format is COCO's, in the folder that the stage `derive` writes.
    """
    for kind, entries in (params.get("derived") or {}).items():
        for name in entries or {}:
            datasets = params.get("datasets") or {}
            if name in datasets:
                raise ParameterError(
                    f"{file}: section 'datasets': {name!r} occurs twice: section 'derived.{kind}' "
                    "has it, which is enough: delete the entry, or rename one of them"
                )
            entry = {"format": "coco", "root": DERIVED.format(kind, name)}
            params["datasets"] = {**datasets, name: entry}


def _check_run(entry: dict[str, Any], file: str, where: str) -> None:
    """Checks the types of the values in an entry of the section `detectors`."""
    try:
        check(RunEntry, entry, file)
    except DataError as error:
        raise ParameterError(f"{file}: section {where!r}: {error.field}: {error.problem}") from None


def run_entry(name: str, file: str | Path = "params.yaml") -> dict[str, Any]:
    """The entry `detectors.<name>`, which names an adapter and a benchmark.

    Absent parts are empty dicts.

    Raises:
        ParameterError: there is no such entry, it has a key that is not one of `RunEntry`, or it
            names no adapter or no benchmark.
    """
    entry = dict(section("detectors", name, file=file))
    try:
        check_keys(entry)
    except ParameterError as error:
        raise ParameterError(f"{file}: section 'detectors.{name}': {error}") from None
    for key in ("adapter", "benchmark"):
        if not entry.get(key):
            raise ParameterError(f"{file}: section 'detectors.{name}': {key!r} is missing")
    for key in ("params", "classes", "threshold", "passes", "proposals"):
        entry[key] = entry.get(key) or {}
    return entry


def check_keys(entry: Mapping[str, Any]) -> None:
    """Refuses keys of an entry of the section `detectors` that are not those of `RunEntry`.

    Raises:
        ParameterError: a key is unknown; the message suggests the nearest one.
    """
    for key in entry:
        choose("parameter of a detector", str(key), RunEntry.model_fields)


def _check_case(
    value: Any, file: str, path: tuple[str, ...], parents: tuple[str, ...] = ()
) -> None:
    """Checks that no two names at a path of `NAMED` differ in case alone.

    Names become files and folders, which some disks (those of macOS and Windows, as delivered) call
    the same in any case.

    Args:
        value: A part of the parameters, whose names `_check_names` has checked.
        file: Name of the file, for messages.
        path: The path, relative to the part.
        parents: Keys that lead to the part.
    """
    entries = value or {}
    if path:
        key, *rest = path
        keys = [key]
        if key == "*":
            keys = list(entries)
        for name in keys:
            _check_case(entries.get(name), file, tuple(rest), (*parents, name))
        return
    names_by_fold: dict[str, str] = {}
    for name in entries:
        other = names_by_fold.setdefault(name.casefold(), name)
        if other != name:
            raise ParameterError(
                f"{file}: section {'.'.join(parents)!r}: the names {other!r} and {name!r} differ "
                "in case alone, and would share files on some disks: rename one of them"
            )


def _check_names(
    value: Any, file: str, path: tuple[str, ...], parents: tuple[str, ...] = ()
) -> None:
    """Checks the names at a path of `NAMED`, and that each of them has a mapping or nothing.

    Args:
        value: A part of the parameters.
        file: Name of the file, for messages.
        path: The path, relative to the part.
        parents: Keys that lead to the part.
    """
    mapping = _mapping(value, file, ".".join(parents))
    if not path:
        _check_entries(mapping, file, ".".join(parents))
        return
    key = path[0]
    if key == "*":
        for name, entry in mapping.items():
            _check_names(entry, file, path[1:], (*parents, str(name)))
    elif key in mapping:
        _check_names(mapping[key], file, path[1:], (*parents, key))


def _check_entries(entries: Mapping[str, Any], file: str, where: str) -> None:
    """Checks names, and that each of them has a mapping or nothing."""
    for name, entry in entries.items():
        if not NAME.fullmatch(name):
            raise ParameterError(
                f"{file}: section {where!r}: the name {shorten(name)} is not allowed: write 1 to "
                "100 letters, digits, '.', '_' and '-', with a letter, a digit or '_' first"
            )
        ending = file_ending(name)
        if ending:
            raise ParameterError(
                f"{file}: section {where!r}: the name {shorten(name)} ends like a file that "
                f"farther writes beside it ({ending}): write another name"
            )
        reason = RESERVED.get(where, {}).get(name.casefold())
        if reason is not None:
            raise ParameterError(
                f"{file}: section {where!r}: the name {shorten(name)} is not free, as {reason}: "
                "write another name"
            )
        _mapping(entry, file, f"{where}.{name}")


def _mapping(value: Any, file: str, where: str) -> Mapping[str, Any]:
    """A part of the parameters as a mapping; None is an empty one.

    Raises:
        ParameterError: it is not a mapping, or a key is not a text.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ParameterError(
            f"{file}: section {where!r}: expected names with values, found {shorten(value)}"
        )
    for key in value:
        if not isinstance(key, str):
            advice = "put it in quotes if it is meant as a name"
            raise ParameterError(
                f"{file}: section {where!r}: expected a name, found {shorten(key)}; {advice}"
            )
    return value
