"""Names of methods and metrics as farther writes them, for those that users write in params.yaml.

A method may be called by its title and by its aliases, in any case, with hyphens, underscores and
spaces alike: `kNN`, `ViM`, `EBO`, `max-logit`. Files and results have the registered name alone, so
an alias leads to the same files, cache keys and results. Names are read from the syntax of modules;
none is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from farther.errors import FartherError, ParameterError, choose
from farther.naming import extensions
from farther.naming.registry import WrittenNames, other_names

#: The names that farther's own methods register.
METHODS = WrittenNames("farther.methods")

#: Keys of an entry of `methods` that choose a method and its parameters from grids.
CHOICES = ("search", "oracle")


def canonicalise(params: dict[str, Any], file: str) -> None:
    """Replaces names of methods and user-defined metrics by their registered names, in place.

    They are the keys of `methods` that name a method, `method` and the keys of `grids` in its
    entries, `report.method`, and the keys of `evaluate.user_defined`. Unknown and ambiguous names
    stay, to be refused where they are used.

    Args:
        params: Sections of a file of parameters.
        file: Its name, for messages.

    Raises:
        ParameterError: two entries of a section are the same method or metric.
    """
    methods = params.get("methods")
    if isinstance(methods, dict):
        params["methods"] = _with_canonical_methods(methods, file)
    report = params.get("report")
    if isinstance(report, dict) and isinstance(report.get("method"), str):
        with suppress(FartherError):
            report["method"] = choose_entry("method", report["method"], params.get("methods") or {})
    evaluate = params.get("evaluate")
    if isinstance(evaluate, dict) and isinstance(evaluate.get("user_defined"), dict):
        metrics: dict[str, Any] = {}
        for name, values in evaluate["user_defined"].items():
            section = "evaluate.user_defined"
            _add(metrics, canonical(name, _aliases_of_extensions()), values, file, section)
        evaluate["user_defined"] = metrics


def _with_canonical_methods(entries: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The section `methods` with registered names."""
    renamed: dict[str, Any] = {}
    for name, values in entries.items():
        if not isinstance(values, dict):
            _add(renamed, canonical_method(name), values, file, "methods")
            continue
        has_grids = False
        for key in CHOICES:
            choice = values.get(key)
            if isinstance(choice, dict) and isinstance(choice.get("grids"), dict):
                has_grids = has_grids or bool(choice["grids"])
                grids: dict[str, Any] = {}
                for method, grid in choice["grids"].items():
                    section = f"methods.{name}.{key}.grids"
                    _add(grids, canonical_method(method), grid, file, section)
                choice["grids"] = grids
        if "method" in values:
            values["method"] = canonical_method(values["method"])
            _add(renamed, name, values, file, "methods")
        elif has_grids:  # the grids name the methods, so the entry's name is free
            _add(renamed, name, values, file, "methods")
        else:
            _add(renamed, canonical_method(name), values, file, "methods")
    return renamed


def _add(entries: dict[str, Any], name: str, values: Any, file: str, section: str) -> None:
    """Adds an entry to a section.

    Raises:
        ParameterError: the section has one of that name.
    """
    if name in entries:
        advice = "delete one"
        if section == "methods":
            advice = f"delete one, or give it another name and `method: {name}`"
        raise ParameterError(
            f"{file}: section {section!r}: two entries are {name!r} (a name may be written in any "
            f"case, and as an alias): {advice}"
        )
    entries[name] = values


def canonical_method(name: Any) -> Any:
    """The registered name of a method, by any of its names; an unknown name as it is."""
    if not isinstance(name, str) or name in METHODS.modules:
        return name
    return canonical(name, {**METHODS.aliases, **_aliases_of_extensions()})


def canonical(name: Any, aliases: Mapping[str, tuple[str, ...]]) -> Any:
    """The registered name, by any of its names; an unknown or ambiguous name as it is.

    Args:
        name: What a user wrote.
        aliases: {registered name: its other names}.
    """
    with suppress(FartherError):
        return choose("name", name, aliases, aliases)
    return name


def _aliases_of_extensions() -> dict[str, tuple[str, ...]]:
    """{name that an extension registers: its other names}; {} where a file cannot be read."""
    aliases = {}
    with suppress(FartherError):  # the command that uses an extension says what is wrong
        for registrations in extensions.written().values():
            for registration in registrations:
                aliases[registration.name] = other_names(registration)
    return aliases


def choose_entry(kind: str, name: str, entries: Mapping[str, Any]) -> str:
    """The entry of the section `methods` that a user means.

    A name is that of an entry, or one of the names of the method that an entry uses. An entry that
    is named as its method comes before other entries of that method.

    Args:
        kind: What it names, for messages ("method").
        name: What the user wrote.
        entries: Section `methods`, or {entry: {"method": its method}}.

    Raises:
        ParameterError: there is no such entry; the message suggests the nearest names.
        AmbiguousNameError: several entries may be meant; the message lists them.

    >>> choose_entry("method", "EBO", {"energy": {}, "energy_10": {"method": "energy"}})
    'energy'
    >>> choose_entry("method", "ViM", {"vim_100": {"method": "vim", "components": 100}})
    'vim_100'
    """
    aliases_by_method = {**METHODS.aliases, **_aliases_of_extensions()}
    aliases: dict[str, tuple[str, ...]] = {}
    for entry, values in entries.items():
        method = (values or {}).get("method", entry)
        if not isinstance(method, str):
            continue
        others = aliases_by_method.get(method, ())
        if method == entry:
            aliases[entry] = others
        elif method not in entries:
            aliases[entry] = (method, *others)
    return choose(kind, name, entries, aliases)


def how_to_have(name: str) -> str:
    """What to write in params.yaml to have a method, by any of its names; "" for other names.

    >>> how_to_have("GEN")
    "`gen: {}` under 'methods'"
    """
    method = canonical_method(name)
    if isinstance(method, str) and method in METHODS.modules:
        return f"`{method}: {{}}` under 'methods'"
    return ", or ".join(METHODS.entries_to_write(name))
