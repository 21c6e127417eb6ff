"""Damage that leaves a file valid and makes its meaning another: names, ids, units and columns that are confused.

What is accepted must give what the undamaged files give, or a warning that these do not.
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

#: What is written by the targets whose results are compared.
WRITTEN = (".out", "artifacts/regions")
#: Added to the names that are written in two ways; of rows that are compared it is taken away.
ACCENT = "é"
#: Files that are no data.
PARAMETERS = ("reader.json", "params.yaml")
#: Keys and columns of what is named once, and of what names it.
IDS = re.compile(r"(?i)(?:^|_)(?:id|token)$|^file_?name$|^imageid$")
REFERENCES = re.compile(r"_(?:id|token)$")
#: Names whose values a reader can tell apart, as one is never the larger or the images say which is
#: which.
PAIRS = (
    ("xmin", "xmax"),
    ("x1", "x2"),
    ("y1", "y2"),
    ("ymin", "ymax"),
    ("XMin", "XMax"),
    ("width", "height"),
)
#: Keys of lengths in pixels.
LENGTHS = re.compile(r"(?i)bbox|box|bounding_box|[xy](?:min|max)|[xy][12]")


def mutate(folder: Path, files: list[Path], chance: random.Random) -> str:
    """Changes the meaning of one file; says how, or nothing where there is no such file."""
    known = [path for path in files if path.suffix in (".json", ".jsonl", ".xml", ".csv", ".txt")]
    known = [
        path
        for path in known
        if path.name not in PARAMETERS and folder / "artifacts" not in path.parents
    ]
    for path in chance.sample(known, len(known)):
        text = path.read_text(encoding="utf-8")
        for change in chance.sample(CHANGES, len(CHANGES)):
            made = change(text, path.suffix, files, chance)
            if made is not None and made[0] != text:
                path.unlink()
                path.write_text(made[0], encoding="utf-8")
                return f"{path.relative_to(folder)}: {change.__name__.strip('_')} {made[1]}"
    return ""


def outcome(folder: Path, printed: list[str]) -> tuple[dict[str, Any], Counter[str]]:
    """The rows of all tables that were written, and the warnings, which are written or printed."""
    tables: dict[str, Any] = {}
    warnings = Counter(line for line in printed if re.search("ignored|are they in", line))
    for place in WRITTEN:
        for file in sorted((folder / place).rglob("*")):
            if file.suffix == ".parquet":
                name = str(file.relative_to(folder))
                tables[name] = sorted(
                    repr(row).replace(ACCENT, "") for row in pq.read_table(file).to_pylist()
                )
            elif file.name == "warnings.json":
                warnings += Counter(
                    json.dumps(one) for one in json.loads(file.read_text())["warnings"]
                )
            elif file.name == "regions.json":
                warnings += Counter(
                    map(json.dumps, json.loads(file.read_text()).get("failures", ()))
                )
    return tables, warnings


Change = tuple[str, str] | None


def _spelling(text: str, suffix: str, files: list[Path], chance: random.Random) -> Change:
    """One of several mentions of a name is written otherwise."""
    stems = {name for path in files for name in (path.name, path.stem)}
    places = list(_VALUES[suffix](text))
    counts = Counter(text[start:end] for start, end in places)
    names = [
        (start, end)
        for start, end in places
        if counts[text[start:end]] > 1 or text[start:end] in stems
    ]
    names = [(start, end) for start, end in names if re.search(r"[^\W\d_]", text[start:end])]
    if not names:
        return None
    start, end = chance.choice(names)
    name = text[start:end]
    others = [name.swapcase(), name.title(), f"{name} ", f" {name}", f"{name}\u200b", ""]
    if new := chance.choice(others[:2] if suffix == ".txt" else others):
        return text[:start] + new + text[end:], f"{name!r} -> {new!r}"
    # All have an accent, one of them in two characters.
    places = [place for place in places if text[slice(*place)] == name and place != (start, end)]
    for first, last in sorted([*places, (start, end)], reverse=True):
        accent = ACCENT if (first, last) != (start, end) else unicodedata.normalize("NFD", ACCENT)
        text = text[:last] + accent + text[last:]
    return text, f"the accent of {name!r}"


def _twice(text: str, suffix: str, files: list[Path], chance: random.Random) -> Change:
    """An id that is unique in a list is that of another row."""
    return _in_rows(text, suffix, chance, lambda values, at: values[at - 1], unique=True)


def _nowhere(text: str, suffix: str, files: list[Path], chance: random.Random) -> Change:
    """An id is one that nothing has."""

    def other(values: list[Any], at: int) -> Any:
        return values[at] + 1000 if isinstance(values[at], int) else f"{values[at]}0"

    return _in_rows(text, suffix, chance, other, unique=False)


def _in_rows(
    text: str,
    suffix: str,
    chance: random.Random,
    other: Callable[[list[Any], int], Any],
    *,
    unique: bool,
) -> Change:
    """Another id in one row of a list of a JSON file."""
    if suffix != ".json":
        return None
    content = json.loads(text)
    found = [
        (rows, key)
        for rows in _lists(content)
        for key in rows[0]
        if (IDS if unique else REFERENCES).search(key)
        and all(isinstance(row.get(key), int | str) for row in rows)
    ]
    found = [
        (rows, key)
        for rows, key in found
        if len(rows) > 1 and (not unique or len({r[key] for r in rows}) == len(rows))
    ]
    if not found:
        return None
    rows, key = chance.choice(found)
    at = chance.randrange(len(rows))
    old, rows[at][key] = rows[at][key], other([row[key] for row in rows], at)
    return json.dumps(content), f"{key} {old!r} -> {rows[at][key]!r}"


def _lists(value: Any) -> Iterator[list[dict[str, Any]]]:
    """All lists of objects."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        yield value
    for one in inner:
        yield from _lists(one)


def _columns(text: str, suffix: str, files: list[Path], chance: random.Random) -> Change:
    """Two columns have each other's names."""
    pairs = [pair for pair in PAIRS if all(re.search(rf"\b{name}\b", text) for name in pair)]
    if not pairs:
        return None
    one, other = chance.choice(pairs)
    swapped = re.sub(rf"\b(?:{one}|{other})\b", lambda name: other if name[0] == one else one, text)
    return swapped, f"{one} <-> {other}"


def _units(text: str, suffix: str, files: list[Path], chance: random.Random) -> Change:
    """Boxes are in another unit."""
    factor = chance.choice([100, 0.001])
    if suffix == ".json":
        return json.dumps(_scaled(json.loads(text), factor)), f"boxes x {factor}"
    if suffix == ".xml":
        pattern = r"(<[xy](?:min|max)>)([\d.]+)"
        return re.sub(
            pattern, lambda found: f"{found[1]}{float(found[2]) * factor:g}", text
        ), f"boxes x {factor}"
    lines = [re.split(r"([,\s])", line) for line in text.splitlines()]
    names = lines[0] if suffix == ".csv" else ["class", "", "x1", "", "y1", "", "x2", "", "y2"]
    at = [number for number, name in enumerate(names) if LENGTHS.fullmatch(name)]
    rows = [
        cells
        for cells in lines
        if len(at) == 4 and len(cells) > at[-1] and all(map(_is_number, (cells[n] for n in at)))
    ]
    for cells in rows:
        for number in at:
            cells[number] = f"{float(cells[number]) * factor:g}"
    return ("\n".join(map("".join, lines)), f"boxes x {factor}") if rows else None


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(?:\.\d+)?", text) is not None


def _scaled(value: Any, factor: float, *, inside: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            key: _scaled(one, factor, inside=bool(LENGTHS.fullmatch(key)))
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_scaled(one, factor, inside=inside) for one in value]
    return value * factor if inside and isinstance(value, int | float) else value


def _matches(pattern: str) -> Callable[[str], Iterator[tuple[int, int]]]:
    return lambda text: (found.span(1) for found in re.finditer(pattern, text))


#: Values that are texts, by the ending of a file's name.
_VALUES = {
    **dict.fromkeys((".json", ".jsonl"), _matches(r'[:\[,]\s*"([^"\\]+)"(?!\s*:)')),
    ".xml": _matches(r">([^<>\s][^<>]*)<"),
    ".csv": _matches(r"(?<=[,\n])([^,\n]+)"),
    ".txt": _matches(r"([^\s/]+)"),
}
CHANGES = (_spelling, _spelling, _twice, _nowhere, _columns, _units)
