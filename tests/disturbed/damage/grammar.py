"""Damage that knows the grammar of a file and nothing of its format: parts of it go, move, repeat or nest."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

Span = tuple[int, int]

#: Levels of nesting, and most characters of what is repeated.
LEVELS, MOST = (1, 2, 50, 99, 101, 400, 1000, 5000), 3_000_000
#: Share of the changes that make a text larger than what is read at once elsewhere, and the spaces
#: that do.
LARGE, SPACES = 0.01, 34 * 2**20


def mutate(folder: Path, files: list[Path], chance: random.Random) -> str:
    """Changes one to three parts of one file that has a grammar; says how."""
    known = [path for path in files if path.suffix in GRAMMARS and not path.is_symlink()]
    if not known:
        return ""
    path = chance.choice(known)
    content, said = path.read_bytes(), []
    for _ in range(1 if path.suffix == ".parquet" else chance.choice([1, 1, 1, 2, 3])):
        is_table = path.suffix == ".parquet"
        content, how = _table(content, chance) if is_table else _text(content, path.suffix, chance)
        said.append(how)
    path.unlink()
    path.write_bytes(content)
    return f"{path.relative_to(folder)}: {', '.join(said)}"


def _text(content: bytes, suffix: str, chance: random.Random) -> tuple[bytes, str]:
    """A text with one of its parts changed."""
    spans, between, (opening, closing) = GRAMMARS[suffix]
    text = content.decode(errors="surrogateescape")
    found = list(spans(text))[:50_000]
    if not found or len(text) > MOST:
        return content, "as it is"
    (start, end), (first, last) = chance.choice(found), chance.choice(found)
    part, other = text[start:end], text[first:last]
    kind = chance.choice(
        ["gone", "twice", "many", "swapped", "other", "into", "deep", "deep", "long", "empty"]
    )
    kind = "large" if chance.random() < LARGE else kind
    levels = chance.choice(LEVELS)
    new = {
        "gone": "",
        "twice": f"{part}{between}{part}",
        "many": between.join([part] * min(20_000, MOST // max(len(part), 1) + 1)),
        "other": other,
        "into": f"{opening}{part}{between}{other}{closing}",
        "deep": opening * levels + part + closing * levels,
        "large": opening * levels + part + " " * SPACES * (kind == "large") + closing * levels,
        "long": part[:-1] + part[-2:-1] * 100_000 + part[-1:],
        "empty": part[:1] + part[-1:],
    }
    if kind == "swapped":
        (a, b), (c, d) = sorted([(start, end), (first, last)])
        made = (
            text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]
            if b <= c
            else text[:start] + other + text[end:]
        )
    else:
        made = text[:start] + new[kind] + text[end:]
    return made.encode(
        errors="surrogateescape"
    ), f"{kind} {levels if kind in ('deep', 'large') else ''} {part[:30]!r}"


def _json(text: str) -> Iterator[Span]:
    """Values, and members with their keys."""
    opened: list[int] = []
    key, last = None, (0, 0)
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+', text):
        if token[0] in "[{":
            opened.append(token.start())
            continue
        if token[0] in "]}":
            start = opened.pop() if opened else token.start()
        elif token[0] in ":,":
            key = last if token[0] == ":" else None
            continue
        else:
            start = token.start()
        last = (start, token.end())
        yield last
        if key is not None and key[1] <= start:
            yield key[0], token.end()


def _xml(text: str) -> Iterator[Span]:
    """Elements, and the texts within."""
    opened: list[Span] = []
    for tag in re.finditer(r"<(/?)[^\s<>/!?][^<>]*?(/?)>", text):
        if tag[2]:
            yield tag.span()
        elif tag[1] and opened:
            start, inner = opened.pop()
            yield start, tag.end()
            yield inner, tag.start()
        elif not tag[1]:
            opened.append(tag.span())


def _yaml(text: str) -> Iterator[Span]:
    """Lines with all that is indented below them, and their words."""
    opened: list[tuple[int, int]] = []  # indentation and start of the lines above that go on
    for line in re.finditer(r"^( *)(\S[^\n]*)(?:\n|\Z)", text, re.MULTILINE):
        while opened and opened[-1][0] >= len(line[1]):
            yield opened.pop()[1], line.start()
        opened.append((len(line[1]), line.start(2)))
        yield from (
            (line.start(2) + word.start(), line.start(2) + word.end())
            for word in _WORD.finditer(line[2])
        )
    yield from ((start, len(text)) for _, start in opened)


def _rows(text: str) -> Iterator[Span]:
    """Lines and the cells in them."""
    for line in re.finditer(r"[^\n]*\n|[^\n]+\Z", text):
        yield line.span()
        yield from (
            (line.start() + word.start(), line.start() + word.end())
            for word in _WORD.finditer(line[0])
        )


_WORD = re.compile(r"[^\s,;:\[\]{}]+")
GRAMMARS: dict[str, tuple[Callable[[str], Iterator[Span]], str, tuple[str, str]]] = {
    ".json": (_json, ", ", ('{"a": [', "]}")),
    ".jsonl": (_json, ", ", ("[", "]")),
    ".yaml": (_yaml, "\n", ("[", "]")),
    ".xml": (_xml, "", ("<object>", "</object>")),
    ".csv": (_rows, ",", ('"', '"')),
    ".txt": (_rows, " ", (" ", " ")),
    ".parquet": (_rows, "", ("", "")),
}


def _table(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    """A Parquet file with another schema of the same values."""
    table = pq.ParquetFile(io.BytesIO(content)).read()
    names = table.column_names
    at, other = chance.randrange(len(names)), chance.randrange(len(names))
    kind = chance.choice(["list", "struct", "renamed", "values", "moved", "gone", "metadata"])
    if kind in ("list", "struct"):
        values = table.column(at).combine_chunks()
        for _ in range(levels := chance.choice([1, 2, 20, 60])):
            if kind == "list":
                values = pa.ListArray.from_arrays(
                    pa.array(range(len(values) + 1), pa.int32()), values
                )
            else:
                values = pa.StructArray.from_arrays([values], names=["a"])
        table, kind = table.set_column(at, names[at], values), f"{kind} {levels}"
    elif kind == "renamed":
        table = table.rename_columns(
            [names[other] if n == at else name for n, name in enumerate(names)]
        )
    elif kind == "values":
        table = table.set_column(at, names[at], table.column(other))
    elif kind == "moved":
        table = table.select(chance.sample(range(len(names)), len(names)))
    elif kind == "gone":
        table = table.remove_column(at)
    else:
        table = table.replace_schema_metadata({b"a": b"x" * chance.choice([1, 10**6])})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue(), f"{kind} {names[at]}"
