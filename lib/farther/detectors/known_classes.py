"""The classes of a detector compared with the ID classes of its benchmark, and their names there."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping, Sequence

from farther.errors import LISTED, ParameterError
from farther.tables import Header

#: Other names of a detector's classes: {class of the detector: ID class, or None for one that means
#: unknown objects}.
Names = Mapping[str, str | None]


def renamed(header: Header, names: Names | None) -> Header:
    """A header whose classes have the benchmark's names.

    Args:
        header: The detector's.
        names: {class of the detector: ID class}; classes that it leaves out keep their names. One
            with None, as an open-world detector has it, means an unknown object and keeps its name
            too.

    Raises:
        ParameterError: the detector has no such class, or two would have one name.
    """
    if not names:
        return header
    if absent := [name for name in names if name not in header.known_classes]:
        known = _listed(header.known_classes)
        raise ParameterError(
            f"classes: the detector has no class {absent[0]!r}. Its classes: {known}"
        )
    classes = tuple(names.get(name) or name for name in header.classes)
    if twice := next((name for name in classes if classes.count(name) > 1), None):
        raise ParameterError(f"classes: two classes of the detector would be called {twice!r}")
    unknown = {header.classes.index(name) for name, given in names.items() if given is None}
    return dataclasses.replace(
        header, classes=classes, unknown_columns=(*header.unknown_columns, *unknown)
    )


def check_classes(
    header: Header,
    names: Names | None,
    id_classes: Sequence[str],
    unknown_classes: Collection[str] = (),
) -> list[str]:
    """Refuses a detector that was taught classes which its benchmark takes for unknown.

    Args:
        header: The detector's.
        names: See `renamed`.
        id_classes: The ID classes of the benchmark.
        unknown_classes: Classes of the ID dataset that the benchmark's division takes for unknown.

    Returns:
        The ID classes that the detector does not have; it finds none of their objects.

    Raises:
        ParameterError: a class of the detector is not an ID class; lists both, and what to write.
    """
    known = renamed(header, names).known_classes
    taught = [name for name in known if name in unknown_classes]
    if taught:
        raise ParameterError(
            f"{len(taught)} of the detector's {len(known)} classes are unknown by the benchmark's `division`: "
            f"{_listed(taught)}. The known ones: {_listed(id_classes)}. Take a detector that was trained on these, or "
            "list its classes as `division: {known: […]}`"
        )
    extra = [name for name in known if name not in id_classes]
    absent = [name for name in id_classes if name not in known]
    if not extra:
        return absent
    message = f"{len(extra)} of the detector's {len(known)} classes are not ID classes of the benchmark: {_listed(extra)}."
    if absent:
        pairs = _alike(extra, absent) or {extra[0]: absent[0]}
        text = ", ".join(f"{one}: {other}" for one, other in pairs.items())
        message += f" ID classes that it does not have: {_listed(absent)}."
        message += f" Where only the names differ, map them in the run's entry, as in `classes: {{{text}}}`."
    message += f" A class that means unknown objects is mapped to null, as in `classes: {{{extra[0]}: null}}`."
    raise ParameterError(
        f"{message} What a detector was taught is not unknown to it: the rules file needs all its classes as id_classes"
    )


def _alike(names: Sequence[str], others: Sequence[str]) -> dict[str, str]:
    """Names that resemble one of the others, with it: a few."""
    found = {
        name: difflib.get_close_matches(name.casefold(), others, n=1, cutoff=0.7) for name in names
    }
    return dict([(name, close[0]) for name, close in found.items() if close][:5])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
