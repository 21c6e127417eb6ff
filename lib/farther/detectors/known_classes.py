"""The classes of a detector, compared with the ID classes of its benchmark."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping, Sequence

from farther.errors import LISTED, ParameterError
from farther.tables import Header

#: Names of a detector's classes in the benchmark: {class of the detector: ID class, or None for a
#: class of unknown objects}.
ClassNames = Mapping[str, str | None]
#: Largest number of similar names in a message.
EXAMPLES = 5


def with_class_names(header: Header, names: ClassNames | None) -> Header:
    """A header whose classes have the benchmark's names.

    Args:
        header: The detector's.
        names: {class of the detector: ID class}; other classes keep their names. A class with None,
            as in an open-world detector, means an unknown object and keeps its name too.

    Raises:
        ParameterError: the detector has no such class, or two would have one name.
    """
    if not names:
        return header
    for name in names:
        if name not in header.known_classes:
            known = _listed(header.known_classes)
            raise ParameterError(
                f"classes: the detector has no class {name!r}. Its classes: {known}"
            )
    classes = tuple(names.get(name) or name for name in header.classes)
    for name in classes:
        if classes.count(name) > 1:
            raise ParameterError(f"classes: two classes of the detector would be called {name!r}")

    unknown_names = [name for name, id_class in names.items() if id_class is None]
    unknown_columns = {header.classes.index(name) for name in unknown_names}
    return dataclasses.replace(
        header, classes=classes, unknown_columns=(*header.unknown_columns, *unknown_columns)
    )


def check_classes(
    header: Header,
    names: ClassNames | None,
    id_classes: Sequence[str],
    unknown_classes: Collection[str] = (),
) -> list[str]:
    """Refuses a detector that was trained on classes that are unknown in its benchmark.

    Args:
        header: The detector's.
        names: See `with_class_names`.
        id_classes: The ID classes of the benchmark.
        unknown_classes: Classes of the ID dataset that are unknown by the benchmark's division.

    Returns:
        The ID classes that the detector does not have; it detects none of their objects.

    Raises:
        ParameterError: a class of the detector is not an ID class; lists both, and what to write.
    """
    known = with_class_names(header, names).known_classes
    trained_unknown = [name for name in known if name in unknown_classes]
    if trained_unknown:
        raise ParameterError(
            f"{len(trained_unknown)} of the detector's {len(known)} classes are unknown by the "
            f"benchmark's `division`: {_listed(trained_unknown)}. The known ones: "
            f"{_listed(id_classes)}. Take a detector that was trained on these, or list its "
            "classes as `division: {known: […]}`"
        )
    extra = [name for name in known if name not in id_classes]
    absent = [name for name in id_classes if name not in known]
    if not extra:
        return absent

    message = (
        f"{len(extra)} of the detector's {len(known)} classes are not ID classes of the benchmark: "
        f"{_listed(extra)}."
    )
    if absent:
        similar = _similar_names(extra, absent) or {extra[0]: absent[0]}
        pairs = ", ".join(f"{name}: {id_class}" for name, id_class in similar.items())
        message += (
            f" ID classes that it does not have: {_listed(absent)}. Where only the names differ, "
            f"map them in the run's entry, as in `classes: {{{pairs}}}`."
        )
    raise ParameterError(
        f"{message} A class that means unknown objects is mapped to null, as in "
        f"`classes: {{{extra[0]}: null}}`. What a detector was taught is not unknown to it: the "
        "class mapping needs all its classes as id_classes"
    )


def _similar_names(names: Sequence[str], candidates: Sequence[str]) -> dict[str, str]:
    """The most similar candidate of each name; at most five names, those with a similar one."""
    similar: dict[str, str] = {}
    for name in names:
        matches = difflib.get_close_matches(name.casefold(), candidates, n=1, cutoff=0.7)
        if matches:
            similar[name] = matches[0]
        if len(similar) == EXAMPLES:
            break
    return similar


def _listed(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    text = ", ".join(names[:LISTED])
    if len(names) > LISTED:
        return f"{text} and {len(names) - LISTED} more"
    return text
