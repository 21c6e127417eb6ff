"""JSON and YAML: files are written whole or not at all, and read with limits.

A damaged or hostile file is a `DataError` that names file and line, or field.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic_core import from_json

from farther.errors import DataError, shorten
from farther.tables.files import digest, read_text
from farther.tables.writing import write_aside

#: Most characters of a YAML text.
YAML_SIZE = 32 * 2**20
#: Most values of a YAML text, those that aliases repeat included.
YAML_VALUES = 1_000_000
#: Most levels of a YAML or JSON text: datasets, models and parameters have fewer than ten.
DEPTH = 100
#: The same of JSON: the limit of the parser that is asked first.
JSON_DEPTH = 201
#: Most characters of a YAML number; `1:1:1:…` takes quadratic time.
DIGITS = 400

#: Most bytes of a JSON file that is read at once.
JSON_BYTES = 2**28
#: The same for a file with the annotations of millions of objects.
ANNOTATION_BYTES = 2**32
#: Field of the digest in files of `write_sealed`.
SEAL = "digest"
_NUMBER = re.compile(r"[-+0-9_.:xa-fA-F]+")
#: An exponent with which a number may be too large for float64. What follows tells it from a hash.
_LARGE_EXPONENT = re.compile(rb"[eE]\+?[0-9]{3,}(?=[\s,\]}]|\Z)")
#: Digits of an integer that float64 may not hold.
_MANY_DIGITS = b"0" * 200
#: Puts 0 in the place of each digit, and e in that of E.
_DIGITS_AS_ZERO = bytes.maketrans(b"123456789E", b"000000000e")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
#: With libyaml, if PyYAML has it: without, a `dvc.lock` of many stages takes seconds.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


#: The first line of a merge conflict, as git writes it: values are never in the first column.
_CONFLICT = re.compile(r"^<{7}(?= |$)", re.MULTILINE)
#: Files that stages write, of which either version of a merge will do.
_COMPUTED = ("dvc.lock", "artifacts")


class _Loader(_SafeLoader):
    """PyYAML's safe loader with the booleans of YAML 1.2, as in DVC.

    `on`, `off`, `yes` and `no` are text. A value that a constructor of the loader refuses is a
    YAMLError with its line, and so is a key that occurs twice in a mapping.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:  # noqa: FBT001
        keys = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in keys:
                problem = f"the key {_cut(repr(key.value))} occurs twice: delete one of them"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            keys.add((key.tag, key.value))
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            kind = node.tag.rpartition(":")[2]
            problem = f"not a value of the type {kind!r} that can be read: {_cut(error)}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


def _without_booleans(resolvers: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":bool")]


_Loader.yaml_implicit_resolvers = {
    character: _without_booleans(resolvers)
    for character, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), [*"tTfF"]
)


def check_merged(text: str, file: str | Path | None = None) -> None:
    """Refuses a text with a merge conflict of git.

    Raises:
        DataError: it has one; names file and line, and says how to resolve it.
    """
    if "<<<<<<<" not in text:
        return
    conflict = _CONFLICT.search(text)
    if conflict is None:
        return
    line = text.count("\n", 0, conflict.start()) + 1
    name = Path(file or "")
    advice = "keep one of the versions, and delete the lines of <, = and >"
    if set(_COMPUTED) & set(name.parts):
        advice = f"run `git checkout --theirs {name}`, then `farther repro`"
    raise DataError(f"a merge conflict at line {line}: {advice}", file=file)


def write_json(path: str | Path, value: Any) -> None:
    """Writes JSON that git can compare by lines: keys in their order, one per line, and no NaN.

    Raises:
        ValueError: `value` holds a NaN or an infinity, which JSON cannot.
    """
    text = json_text(value)
    with write_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def json_text(value: Any) -> str:
    """The text of a file of `write_json`.

    Raises:
        ValueError: `value` holds a NaN or an infinity, which JSON cannot.
    """
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_sealed(path: str | Path, value: Mapping[str, Any]) -> None:
    """Writes an object and a digest of its content, for files that only farther writes."""
    write_json(path, {**value, SEAL: _content_digest(value)})


def read_sealed(path: str | Path, advice: str) -> dict[str, Any]:
    """The object in a file of `write_sealed`.

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
    if sealed != _content_digest(value):
        problem = f"damaged or edited: its content does not match its digest; {advice}"
        raise DataError(problem, file=path, field=SEAL)
    return value


def _content_digest(value: Mapping[str, Any]) -> str:
    return digest(json.dumps(value, ensure_ascii=False))


def read_yaml(path: str | Path, absent: str = "the file does not exist") -> Any:
    """Content of a YAML file; see `read_text` and `parse_yaml`."""
    return parse_yaml(read_text(path, absent), path)


def parse_yaml(text: str, file: str | Path | None = None) -> Any:
    """The value of a YAML text.

    Raises:
        DataError: it has a merge conflict, is not YAML, holds a value that is not of its type
            (`!!int x`, `2020-13-45`), or exceeds `YAML_SIZE`, `YAML_VALUES`, `DEPTH` or `DIGITS`;
            names file and line.
    """
    if len(text) > YAML_SIZE:
        problem = f"{len(text):,} characters; at most {YAML_SIZE:,} are read as YAML"
        raise DataError(problem, file=file)
    check_merged(text, file)
    try:
        _check_events(text, file)
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        problem = f"not YAML: {_cut(error.problem or error.context)}"
        mark = error.problem_mark or error.context_mark
        if mark is not None:
            problem = f"{problem} (line {mark.line + 1}, column {mark.column + 1})"
        raise DataError(problem, file=file) from None
    except yaml.YAMLError as error:
        raise DataError(f"not YAML: {_cut(error)}", file=file) from None
    except RecursionError:
        raise DataError("not readable YAML: nested too deeply", file=file) from None


@dataclass
class _OpenCollection:
    """A list or mapping of which the end is not read yet.

    Args:
        anchor: Its anchor, if it has one.
        values_before: Number of values before it.
    """

    anchor: str | None
    values_before: int


def _check_events(text: str, file: str | Path | None) -> None:
    """Refuses a text that would take unlimited time or memory to construct.

    An alias counts as many values as it repeats.
    """
    values_by_anchor: dict[str, int] = {}
    open_collections: list[_OpenCollection] = []
    total = 0
    for event in yaml.parse(text, Loader=_SafeLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            collection = open_collections.pop()
            if collection.anchor is not None:
                values_by_anchor[collection.anchor] = total - collection.values_before
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in values_by_anchor:
                alias = shorten(event.anchor)
                problem = f"the alias {alias} has no anchor before it, or is within it"
                raise _not_readable_yaml(problem, event, file)
            total += values_by_anchor[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            open_collections.append(_OpenCollection(event.anchor, total))
            total += 1
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                values_by_anchor[event.anchor] = 1
            if _is_long_number(event):
                problem = f"a number of {len(event.value):,} characters; at most {DIGITS} are read"
                raise _not_readable_yaml(problem, event, file)
        if len(open_collections) > DEPTH:
            raise _not_readable_yaml(f"nested more than {DEPTH} levels deep", event, file)
        if total > YAML_VALUES:
            problem = f"more than {YAML_VALUES:,} values, those that aliases repeat included"
            raise _not_readable_yaml(problem, event, file)


def _is_long_number(event: yaml.ScalarEvent) -> bool:
    """Whether a scalar may be read as a number of more than `DIGITS` characters."""
    if len(event.value) <= DIGITS:
        return False
    is_plain = event.implicit[0] or event.tag is not None
    return is_plain and _NUMBER.fullmatch(event.value) is not None


def _not_readable_yaml(problem: str, event: Any, file: str | Path | None) -> DataError:
    return DataError(f"not readable YAML: {problem} (line {event.start_mark.line + 1})", file=file)


def read_json(path: str | Path, without: Iterable[str] = (), limit: int = JSON_BYTES) -> Any:
    """Content of a JSON file; see `read_text` and `parse_json`.

    Args:
        path: The file.
        without: Fields to drop, wherever they are.
        limit: Most bytes of the file.
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

    Args:
        text: The text.
        file, row, field: Place of the text, for messages.
        without: Fields to drop, wherever they are.

    Raises:
        DataError: it is not UTF-8 or not JSON, has a merge conflict, is nested too deeply, or has a
            number of thousands of digits or one that is not finite, or half of a surrogate pair;
            names file, row (the line unless `row` is given) and field.
    """
    dropped_fields = tuple(without)
    if not dropped_fields:
        with suppress(ValueError):
            return faultless_json(text)

    def drop(fields: dict[str, Any]) -> dict[str, Any]:
        for name in dropped_fields:
            fields.pop(name, None)
        return fields

    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        has_outsized_number = _has_outsized_number(text.encode("utf-8", "surrogatepass"))
        value = json.loads(
            text,
            object_hook=drop if dropped_fields else None,
            parse_int=_integer if has_outsized_number else None,
            parse_float=_finite if has_outsized_number else None,
            parse_constant=_finite,
        )
        _check_depth(value)
        if "\\u" in text and _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        if isinstance(text, str):
            check_merged(text, file)
        problem = f"not JSON: {error.msg} (column {error.colno}); is the file complete?"
        if row is None and field is None:
            row = error.lineno
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 at byte {error.start}"
    except UnicodeEncodeError:
        problem = "not readable JSON: \\ud800 to \\udfff occur in pairs only"
    except RecursionError:
        problem = f"not readable JSON: nested more than {JSON_DEPTH} levels deep"
    except _NotFiniteError as error:
        problem = (
            f"not readable JSON: the number {_cut(error)} is not finite; write one that is, or null"
        )
        field = field or _path_of_not_finite(text)
    except (ValueError, OverflowError) as error:  # a number of hundreds or thousands of digits
        problem = f"not readable JSON: {_cut(error)}"
    else:
        return value
    raise DataError(problem, file=file, row=row, field=field)


def faultless_json(text: str | bytes) -> Any:
    """The value of a JSON text, in half of the time that `json.loads` takes.

    Raises:
        ValueError: there may be something that `parse_json` refuses.
    """
    content = text
    if isinstance(content, str):
        content = content.encode()
    if _has_outsized_number(content):
        raise ValueError
    return from_json(content, allow_inf_nan=False)


def _has_outsized_number(content: bytes) -> bool:
    """Whether a JSON text has a number that float64 may not hold."""
    # Searches for fixed bytes take a tenth of the time of a search for a pattern.
    digits_as_zero = content.translate(_DIGITS_AS_ZERO)
    if _MANY_DIGITS in digits_as_zero:
        return True
    if b"e000" in digits_as_zero or b"e+000" in digits_as_zero:
        return _LARGE_EXPONENT.search(content) is not None
    return False


def _integer(digits: str) -> int:
    """An integer that a float can hold: arithmetic with any other fails."""
    float(int(digits))
    return int(digits)


class _NotFiniteError(ValueError):
    """NaN, Infinity, or a number beyond float64, which Python reads, but which are not JSON."""


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NotFiniteError(text)
    return number


def _path_of_not_finite(text: str | bytes) -> str | None:
    """Path of the first number that is not finite: fields and positions, joined by dots."""
    try:
        level = [("", json.loads(text, parse_int=str))]
    except (ValueError, RecursionError):  # the text after the number is not JSON
        return None
    for _ in range(JSON_DEPTH):
        next_level = []
        for path, value in level:
            if isinstance(value, float) and not math.isfinite(value) and path:
                return path
            for key, inner_value in _items(value):
                next_level.append((f"{path}.{key}".lstrip("."), inner_value))
        level = next_level
    return None


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """Keys or positions, and values, of an object or a list; nothing for other values."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list):
        return enumerate(value)
    return ()


def _check_depth(value: Any) -> None:
    """RecursionError for a value with more than `JSON_DEPTH` levels of lists and objects."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(JSON_DEPTH):
        level = _inner_collections(level)
        if not level:
            return
    raise RecursionError


def _inner_collections(collections: Iterable[Any]) -> list[Any]:
    """The lists and objects directly within lists and objects."""
    inner = []
    for collection in collections:
        values = collection
        if type(collection) is dict:
            values = collection.values()
        inner += [value for value in values if type(value) is dict or type(value) is list]
    return inner


def _cut(problem: Any) -> str:
    """The first line of a message, at most 200 characters."""
    line = str(problem).partition("\n")[0]
    if len(line) <= 200:
        return line
    return f"{line[:199]}…"
