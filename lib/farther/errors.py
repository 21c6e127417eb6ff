"""Errors that a user can fix, raised or found before anything runs.

Each says what was found, where, and what to do.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import Repr
from typing import Any, Literal

from farther.text.printable import printable, printable_line

#: Most names that a message lists.
LISTED = 40

#: Most known names that a message lists where a name is like none of them.
FEW = 10

#: Most similar names that a message suggests.
SUGGESTED = 3

#: Similarity from which on more than one name is suggested (`difflib`).
CLOSE = 0.8

#: Most characters of a value that a message repeats.
SHOWN = 200

#: Most characters of a message.
MESSAGE = 4_000

#: States of findings that keep something from running.
PROBLEMS = ("missing", "wrong")

#: Annotations and detections are opened up to this size.
OPENED_BYTES = 50_000_000

#: A run of characters without a space that is too long for a message; paths may be longer.
_LONG = re.compile(rf"[^\s/]{{{SHOWN},}}|\S{{1000,}}")

_REPR = Repr()
_REPR.maxlevel = 4
_REPR.maxlong = SHOWN
_REPR.maxother = SHOWN
_REPR.maxstring = SHOWN
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxfrozenset = _REPR.maxdict = 10


class FartherError(Exception):
    """Base of every error that farther raises on purpose.

    Words of a message that are too long, as files may hold them, are cut, and what a terminal would
    obey is escaped.
    """

    def __init__(self, message: object = ""):
        super().__init__(_message(str(message)))


class ParameterError(FartherError):
    """A name or a parameter that a user wrote is unknown or has a wrong value."""


class AmbiguousNameError(ParameterError):
    """A name that a user wrote may mean several things."""


class DataError(FartherError):
    """A file holds something that cannot be used.

    The message starts with the place, as precisely as it is known: `file: row 3: field 'box': …`.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | str | None = None,
        field: str | None = None,
    ):
        self.problem = problem
        self.file: str | None = None
        self.row = row
        self.field: str | None = None
        place = []
        if file:
            self.file = str(file)[:MESSAGE]
            place.append(printable_line(self.file))
        if row is not None:
            place.append(f"row {row}")
        if field is not None:
            self.field = _message(str(field))
            place.append(f"field '{field}'")
        super().__init__(": ".join([*place, problem]))

    def within(self, file: str | Path) -> DataError:
        """The same error with the file, where it names none."""
        return DataError(self.problem, file=self.file or file, row=self.row, field=self.field)


def choose(
    kind: str,
    name: str,
    known: Iterable[str],
    aliases: Mapping[str, Iterable[str]] | None = None,
    listed_by: str = "",
) -> str:
    """The known name that a user means.

    With `aliases`, case, spaces, hyphens and the like do not matter (`plain_name`). A name that is
    written exactly as a known name, or else as an alias, comes before similar ones.

    Args:
        kind: What it names, in the singular ("run").
        name: What the user wrote.
        known: The known names.
        aliases: {known name: its other names}; None where a name must be written as it is.
        listed_by: The command that lists the known names; "" where there is none.

    Raises:
        ParameterError: it is not known; the message suggests the nearest names, or else says which
            there are.
        AmbiguousNameError: it may mean several names; the message lists these.

    >>> choose("metric", "R-U", ["r_u", "p_u"], aliases={})
    'r_u'
    >>> choose("method", "EBO", ["energy", "msp"], {"energy": ["Energy", "EBO"]})
    'energy'
    """
    names = sorted(set(known))
    if not isinstance(name, str) or len(name) > SHOWN:
        raise ParameterError(f"unknown {kind} {shorten(name)}. {known_names(names, listed_by)}")
    if name in names:
        return name
    other_names: dict[str, list[str]] = {known_name: [] for known_name in names}
    for known_name, others in (aliases or {}).items():
        if known_name in other_names:
            other_names[known_name] += others
    if aliases is not None:
        meant = _meant(name, other_names)
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise AmbiguousNameError(
                f"{kind} {name!r} may mean {_listed(meant, 'or')}: write one of these"
            )

    similar = _similar(name, other_names)
    if not similar:
        raise ParameterError(f"unknown {kind} {name!r}. {known_names(names, listed_by)}")
    hint = f"Did you mean {_listed(similar, 'or')}?"
    if listed_by:
        hint += f" All: `{listed_by}`"
    raise ParameterError(f"unknown {kind} {name!r}. {hint}")


def known_names(names: Iterable[str], listed_by: str = "") -> str:
    """Which names there are, for a message: all if they are few, else the command that lists them.

    >>> known_names(["knn", "msp"])
    'Known: knn, msp'
    >>> known_names([])
    'Known: none'
    """
    names = list(names)
    if len(names) <= FEW:
        return f"Known: {', '.join(names) or 'none'}"
    if listed_by:
        return f"`{listed_by}` lists the {len(names):,} known ones"
    return f"Known: {', '.join(names[:FEW])} and {len(names) - FEW:,} more"


def plain_name(name: str) -> str:
    """A name's letters and digits in lower case, by which names are compared.

    Forms of a character that look alike, such as an accent of its own and ligatures, are one.

    >>> plain_name("AP_U"), plain_name("k-NN"), plain_name("FPR@95"), plain_name("AP₅₀")
    ('apu', 'knn', 'fpr95', 'ap50')
    """
    text = unicodedata.normalize("NFKC", name).casefold()
    return "".join(character for character in text if character.isalnum())


def _meant(name: str, other_names: Mapping[str, Sequence[str]]) -> list[str]:
    """The known names that have a name as one of their others, or that differ in writing only."""
    exact = [known for known, others in other_names.items() if name in others]
    if exact:
        return exact
    wanted = plain_name(name)
    if not wanted:
        return []
    meant = []
    for known, others in other_names.items():
        if wanted in map(plain_name, (known, *others)):
            meant.append(known)
    return meant


def _similar(name: str, other_names: Mapping[str, Sequence[str]]) -> list[str]:
    """At most `SUGGESTED` known names that are nearest to a name, by any of their names.

    Names that begin with it come before others, and known names before aliases.
    """
    wanted = plain_name(name)
    if not wanted:
        return []
    known_by_plain: dict[str, list[str]] = {}
    for known, others in other_names.items():
        for spelling in {plain_name(text) for text in (known, *others)}:
            known_by_plain.setdefault(spelling, []).append(known)
    nearest = _beginning_with(wanted, known_by_plain)
    own_names = [plain_name(known) for known in other_names]
    if any(plain.startswith(wanted) for plain in own_names):
        nearest = _beginning_with(wanted, own_names)
    if not nearest:
        close = difflib.get_close_matches(wanted, known_by_plain, n=SUGGESTED, cutoff=CLOSE)
        nearest = [plain for plain in close if not _extends_another(plain, close)]
    if not nearest:
        nearest = difflib.get_close_matches(wanted, known_by_plain, n=1)
    similar: dict[str, None] = {}
    for plain in nearest:
        similar.update(dict.fromkeys(known_by_plain[plain]))
    return list(similar)[:SUGGESTED]


def _extends_another(name: str, names: Iterable[str]) -> bool:
    """Whether a name begins with another one."""
    return any(name != other and name.startswith(other) for other in names)


def _beginning_with(start: str, names: Iterable[str]) -> list[str]:
    """The names that begin with a text, sorted, without those that extend another one of them.

    >>> _beginning_with("yolo", ["yolov8", "yolov8unknown", "yolov9", "detr"])
    ['yolov8', 'yolov9']
    """
    beginning: list[str] = []
    for name in sorted(names):
        if name.startswith(start) and not (beginning and name.startswith(beginning[-1])):
            beginning.append(name)
    return beginning


def _listed(names: Sequence[str], conjunction: str) -> str:
    """Names in quotes: 'a', 'b' or 'c'."""
    quoted = [repr(name) for name in names]
    if len(quoted) == 1:
        return quoted[0]
    return f"{', '.join(quoted[:-1])} {conjunction} {quoted[-1]}"


def _message(message: str) -> str:
    """A message of at most `MESSAGE` characters, long words cut, control characters escaped."""
    text = _LONG.sub(lambda word: f"{word[0][: SHOWN - 1]}…", message[: 2 * MESSAGE])
    if len(text) > MESSAGE:
        text = f"{text[: MESSAGE - 1]}…"
    return printable(text)


def first_line(error: Exception) -> str:
    """The first line of an error's message; its type where it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def shorten(value: Any) -> str:
    """`repr` of a value in at most 200 characters.

    Of a large or deep value only the beginning is looked at.
    """
    try:
        text = repr(value) if isinstance(value, (bool, float)) else _REPR.repr(value)
    except ValueError:  # an integer of thousands of digits
        text = f"a {type(value).__name__}"
        if isinstance(value, int):
            text = f"a number of {value.bit_length():,} bits"
    if len(text) > SHOWN:
        return f"{text[: SHOWN - 1]}…"
    return text


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    Args:
        topic: "pipeline", "parameters", "packages", "datasets", "checkpoints", "warnings", "disk",
            "GPU" or "repository".
        name: What was checked.
        state: "ok"; "missing" or "wrong": something will not run; "note": worth knowing.
        text: The result in a few words.
        more: Where it belongs, where it comes from, and the like.
        bytes: Approximate size of what is missing; 0 where that is unknown or nothing is missing.
    """

    topic: str
    name: str
    state: Literal["ok", "missing", "wrong", "note"]
    text: str
    more: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0


def refused(name: str, *reads: Callable[[], Any]) -> list[Finding]:
    """Problems of an entry of params.yaml: one finding for each of some calls that refuses it."""
    texts: dict[str, None] = {}
    for read in reads:
        try:
            read()
        except FartherError as error:
            texts[str(error)] = None
        except (
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
        ):  # a text or a number where an entry belongs
            texts["not of the form that the stages expect; compare it with the documentation"] = (
                None
            )
    return [Finding("parameters", name, "wrong", text) for text in texts]
