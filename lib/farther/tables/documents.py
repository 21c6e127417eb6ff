"""JSON and YAML: written whole or not at all, and loaders with limits.

What is damaged or hostile is a `DataError` that names file and line, or field.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from farther.errors import DataError, shorten
from farther.tables.files import digest, read_text
from farther.tables.writing import write_aside

#: Most characters of a YAML text.
YAML_SIZE = 32 * 2**20
#: Most values of a YAML text, those that aliases repeat included.
YAML_VALUES = 1_000_000
#: Most levels of a YAML or JSON text: datasets, models and parameters have fewer than ten.
DEPTH = 100
#: Most characters of a YAML number; `1:1:1:…` takes quadratic time.
DIGITS = 400

#: Most bytes of a JSON file that is read at once, and of one with the annotations of millions of
#: objects.
JSON_BYTES, ANNOTATION_BYTES = 2**28, 2**32
#: Field of the digest in files of `write_sealed`.
SEAL = "digest"
_NUMBER = re.compile(r"[-+0-9_.:xa-fA-F]+")
#: A number that float64 may not hold: it has hundreds of digits, or an exponent of three.
_OUTSIZED = re.compile(r"\d{200}|[eE]\+?\d{3}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_BASE: Any = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # libyaml: a `dvc.lock` of many stages takes seconds without


class _Loader(_BASE):
    """PyYAML's safe loader with the booleans of YAML 1.2, as DVC has them: `on`, `off`, `yes` and `no` are text.

    A value that its constructors cannot make is a YAMLError with its line.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            kind = node.tag.rpartition(":")[2]
            problem = f"not a value of the type {kind!r} that can be read: {_cut(error)}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), [*"tTfF"]
)


def write_json(path: str | Path, value: Any) -> None:
    """Writes JSON that git diffs well: keys in the order given, one per line, and no NaN.

    Raises:
        ValueError: `value` holds a NaN or an infinity, which JSON cannot.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with write_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_sealed(path: str | Path, value: Mapping[str, Any]) -> None:
    """Writes an object as `write_json` does, with a digest of its content, for files that only farther writes."""
    write_json(path, {**value, SEAL: _content_digest(value)})


def read_sealed(path: str | Path, advice: str) -> dict[str, Any]:
    """The object in a file of `write_sealed`; one without a digest, of an earlier version, is returned unchecked.

    Args:
        path: The file.
        advice: What to do where it is damaged, for the message.

    Raises:
        DataError: it is absent, holds no object, or its content does not match its digest.
    """
    value: Any = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"expected an object, found {shorten(value)}: {advice}", file=path)
    sealed = value.pop(SEAL, None)
    if sealed is not None and sealed != _content_digest(value):
        raise DataError(
            f"damaged or edited: its content does not match its digest; {advice}",
            file=path,
            field=SEAL,
        )
    return value


def _content_digest(value: Mapping[str, Any]) -> str:
    return digest(json.dumps(value, ensure_ascii=False))


def read_yaml(path: str | Path, absent: str = "the file does not exist") -> Any:
    """Content of a YAML file; see `read_text` and `parse_yaml`."""
    return parse_yaml(read_text(path, absent), path)


def parse_yaml(text: str, file: str | Path | None = None) -> Any:
    """The value of a YAML text.

    Raises:
        DataError: it is not YAML, holds a value that is not of its type (`!!int x`, `2020-13-45`),
            or exceeds `YAML_SIZE`, `YAML_VALUES`, `DEPTH` or `DIGITS`; names file and line.
    """
    if len(text) > YAML_SIZE:
        raise DataError(
            f"{len(text):,} characters; at most {YAML_SIZE:,} are read as YAML", file=file
        )
    try:
        _check_events(text, file)
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise DataError(
            f"not YAML: {_cut(error.problem or error.context)}{place}", file=file
        ) from None
    except yaml.YAMLError as error:
        raise DataError(f"not YAML: {_cut(error)}", file=file) from None
    except RecursionError:
        raise DataError("not readable YAML: nested too deeply", file=file) from None


def _check_events(text: str, file: str | Path | None) -> None:
    """Refuses what would take unlimited time or memory to construct: an alias counts as all that it repeats."""
    sizes: dict[str, int] = {}
    opened: list[
        tuple[str | None, int]
    ] = []  # anchor of each open collection, and the number of values before it
    total = 0
    for event in yaml.parse(text, Loader=_BASE):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise _refused(
                    f"the alias {shorten(event.anchor)} has no anchor before it, or is within it",
                    event,
                    file,
                )
            total += sizes[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, total))
            total += 1
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
            is_plain = event.implicit[0] or event.tag is not None
            if is_plain and len(event.value) > DIGITS and _NUMBER.fullmatch(event.value):
                raise _refused(
                    f"a number of {len(event.value):,} characters; at most {DIGITS} are read",
                    event,
                    file,
                )
        if len(opened) > DEPTH:
            raise _refused(f"nested more than {DEPTH} levels deep", event, file)
        if total > YAML_VALUES:
            raise _refused(
                f"more than {YAML_VALUES:,} values, those that aliases repeat included", event, file
            )


def _refused(problem: str, event: Any, file: str | Path | None) -> DataError:
    return DataError(f"not readable YAML: {problem} (line {event.start_mark.line + 1})", file=file)


def read_json(path: str | Path, without: Iterable[str] = (), limit: int = JSON_BYTES) -> Any:
    """Content of a JSON file of at most `limit` bytes; the fields `without` are dropped wherever they are.

    See `read_text` and `parse_json`.
    """
    return parse_json(read_text(path, limit=limit), path, without=without)


def parse_json(
    text: str | bytes,
    file: str | Path | None = None,
    *,
    row: int | str | None = None,
    field: str | None = None,
    without: Iterable[str] = (),
) -> Any:
    """The value of a JSON text.

    Raises:
        DataError: it is not UTF-8 or not JSON, is nested too deeply, or has a number of thousands
            of digits or one that is not finite, or half of a surrogate pair; names file, row (the
            line unless `row` is given) and field.
    """
    unwanted = tuple(without)

    def drop(fields: dict[str, Any]) -> dict[str, Any]:
        for name in unwanted:
            fields.pop(name, None)
        return fields

    try:
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        outsized = _OUTSIZED.search(text)
        value = json.loads(
            text,
            object_hook=drop if unwanted else None,
            parse_int=_integer if outsized else None,
            parse_float=_finite if outsized else None,
            parse_constant=_finite,
        )
        _check_depth(value)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg} (column {error.colno}); is the file complete?"
        line = error.lineno if row is None and field is None else row
        raise DataError(problem, file=file, row=line, field=field) from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"not UTF-8 at byte {error.start}", file=file, row=row, field=field
        ) from None
    except UnicodeEncodeError:
        problem = "not readable JSON: \\ud800 to \\udfff occur in pairs only"
        raise DataError(problem, file=file, row=row, field=field) from None
    except RecursionError:
        problem = f"not readable JSON: nested more than {DEPTH} levels deep"
        raise DataError(problem, file=file, row=row, field=field) from None
    except _NotFiniteError as error:
        problem = (
            f"not readable JSON: the number {_cut(error)} is not finite; write one that is, or null"
        )
        raise DataError(
            problem, file=file, row=row, field=field or _place_of_not_finite(text)
        ) from None
    except (ValueError, OverflowError) as error:  # a number of hundreds or thousands of digits
        raise DataError(
            f"not readable JSON: {_cut(error)}", file=file, row=row, field=field
        ) from None
    return value


def _integer(digits: str) -> int:
    float(int(digits))  # arithmetic with one that no float holds fails anywhere
    return int(digits)


class _NotFiniteError(ValueError):
    """NaN, Infinity, or a number beyond float64: Python reads them, JSON has none of them."""


def _finite(text: str) -> float:
    if math.isfinite(number := float(text)):
        return number
    raise _NotFiniteError(text)


def _place_of_not_finite(text: str | bytes) -> str | None:
    """The fields and positions, joined by dots, that lead to the first number that is not finite."""
    try:
        level = [("", json.loads(text, parse_int=str))]
    except (ValueError, RecursionError):  # what follows the number is not JSON
        return None
    for _ in range(DEPTH):
        if found := next(
            (name for name, one in level if isinstance(one, float) and not math.isfinite(one)), None
        ):
            return found
        level = [
            (f"{name}.{key}".lstrip("."), inner)
            for name, one in level
            for key, inner in _items(one)
        ]
    return None


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    return (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(DEPTH):
        inner = (one for held in level for one in (held.values() if type(held) is dict else held))
        level = [one for one in inner if type(one) is dict or type(one) is list]
        if not level:
            return
    raise RecursionError


def _cut(problem: Any) -> str:
    text = str(problem).partition("\n")[0]
    return text if len(text) <= 200 else f"{text[:199]}…"
