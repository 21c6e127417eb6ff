"""Damage of bytes, and of JSON, YAML, XML and other text."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from tests.disturbed.damage.values import (
    BYTES,
    CANARY,
    KEYS,
    NUMBERS,
    TEXTS,
    TYPED,
    XML,
    YAML,
    one_of,
)

FRONTS = (
    *(
        b"\xef\xbb\xbf",
        b"\n",
        b"#!/bin/sh\n" + CANARY.encode() + b"\n",
        b"PK\x03\x04",
        b"\x1f\x8b",
        b"PAR1",
    ),
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
)
LINE_ENDS = (b"\r\n", b"\r", b"\n\n", b"\0\n", b" \n", b"\x0b\n", b"\xe2\x80\xa8")
WORDS = (b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80")


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Other bytes."""
    made = bytearray(content)
    size = len(made)
    if not size:
        return chance.choice(BYTES)

    def place() -> int:
        """Somewhere, more often near the ends, where headers and footers are."""
        near = chance.random()
        low, high = (
            (0, min(size, 300))
            if near < 0.3
            else (max(0, size - 900), size)
            if near < 0.6
            else (0, size)
        )
        return chance.randrange(low, high)

    kinds = "flip flip flip flip flip set set set cut cut drop twice insert insert swap many end lines coding front"
    kind = one_of(chance, kinds)
    at = place()
    if kind == "flip":
        for _ in range(chance.choice([1, 1, 2, 5, 30])):
            made[place()] ^= 1 << chance.randrange(8)
    elif kind == "set":
        for _ in range(chance.choice([1, 1, 4, 20])):
            at = place()
            made[at : at + 4] = chance.choice([*WORDS, bytes([chance.randrange(256)])])
    elif kind == "cut":
        del made[at:]
    elif kind == "drop":
        del made[at : at + chance.choice([1, 4, 50, 1000])]
    elif kind == "twice":
        made[at:at] = made[at : at + chance.choice([1, 10, 200])] * chance.choice([1, 1, 3, 200])
    elif kind == "insert":
        made[at:at] = chance.choice(BYTES) * chance.choice([1, 1, 2, 5000])
    elif kind == "swap":
        b, n = place(), chance.choice([1, 8, 64])
        made[at : at + n], made[b : b + n] = made[b : b + n], made[at : at + n]
    elif kind == "many":
        for _ in range(max(1, size // 50)):
            made[place()] = chance.randrange(256)
    elif kind == "end":
        made += chance.choice([b"\0" * 100, chance.randbytes(50), bytes(made[:200]), b"\n\n{}"])
    elif kind == "front":
        made[:0] = chance.choice(FRONTS)
    elif kind == "lines":
        made = made.replace(b"\n", chance.choice(LINE_ENDS))
    elif kind == "coding":
        coding = one_of(chance, "utf-16 utf-16-le utf-8-sig utf-32 latin-1")
        return content.decode(errors="replace").encode(coding, errors="replace")
    return bytes(made)


def changed(text: str, pattern: str, new: str | Callable[[str], str], chance: random.Random) -> str:
    """The text with one match of a pattern replaced, if there is one."""
    matches = list(re.finditer(pattern, text, re.MULTILINE))
    if not matches:
        return text
    one = chance.choice(matches)
    return text[: one.start()] + (new if isinstance(new, str) else new(one[0])) + text[one.end() :]


def words(content: bytes, chance: random.Random) -> bytes:
    """Another word, number or line in a text."""
    text = content.decode(errors="surrogateescape")
    kind = one_of(chance, "number number word word line twice gone swapped snippet")
    if kind in ("number", "word"):
        new = str(chance.choice(NUMBERS))[:600] if chance.random() < 0.7 else chance.choice(TEXTS)
        pattern = r"-?\d+(?:\.\d+)?" if kind == "number" else r"[^\s,:\"'<>{}\[\]/]+"
        return changed(text, pattern, new, chance).encode(errors="surrogatepass")
    lines = text.split("\n")
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    if kind == "line":
        lines[at] = chance.choice(TEXTS)
    elif kind == "twice":
        lines[at:at] = [lines[at]] * chance.choice([1, 1, 50])
    elif kind == "gone":
        del lines[at]
    elif kind == "swapped":
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at:at] = [
            chance.choice(YAML + XML + ('"' + "x" * 200_000 + '",1', ",".join("a" * 3000), '"'))
        ]
    return "\n".join(lines).encode(errors="surrogatepass")


def json_file(content: bytes, chance: random.Random) -> bytes:
    """JSON with one node changed, or the same values in another notation."""
    value = json.loads(content)
    if chance.random() < 0.12:
        return _notation(value, chance).encode(errors="surrogatepass")
    text = json.dumps(tree(value, chance))
    if chance.random() < 0.05:  # keys twice
        text = re.sub(
            r'"(\w+)": ', lambda m: f'"{m[1]}": 0, "{m[1]}": ', text, count=chance.choice([1, 3])
        )
    return text.encode()


#: Other notations of a number `{}` in JSON, and of any number in YAML.
JSON_NUMBERS = "{}E+400 1e-999 0{} +{} {}. - 0x1F {}e0 {}.0 Infinity -0 -0.0 " + "1" * 400
YAML_NUMBERS = "1_000 0o17 017 0b1 1e3 .5 5. +.inf .NaN 1:30 2001-01-01 1,5 0x_"
YAML_TAGS = (
    "!!str !!float !!python/name:os.system !x !!set !!omap !!binary !!bool !!null !!seq !!timestamp"
)


def _notation(value: Any, chance: random.Random) -> str:
    """Other text for a tree: order of keys, notation of numbers, what is not quite JSON."""
    text = json.dumps(value)
    kind = one_of(
        chance, "order case unknown keys number number escapes comment comma quotes two forms"
    )
    if kind in ("order", "case", "unknown", "keys"):
        return json.dumps(_other_keys(value, kind, chance))
    if kind == "number":
        new = one_of(chance, JSON_NUMBERS)
        return changed(
            text,
            r"(?<=[\s\[])-?\d+(?:\.\d+)?(?=[,}\]])",
            lambda old: new.replace("{}", old),
            chance,
        )
    if kind == "escapes":
        return re.sub(r"(?<=\")[a-z](?=\w)", lambda m: f"\\u{ord(m[0]):04x}", text)
    if kind == "comment":
        return f"// a comment\n{text}"
    if kind == "comma":
        return re.sub(r"([}\]])", r",\1", text, count=1)
    if kind == "quotes":
        return text.replace('"', "'")
    if kind == "forms":
        return json.dumps(value, ensure_ascii=False, indent=chance.choice([0, 3, 200]))
    return text + chance.choice(["\n", " ", ""]) + text


def _other_keys(value: Any, kind: str, chance: random.Random) -> Any:
    """The tree with the keys of each mapping in another order or another case, or with more of them."""
    if isinstance(value, list):
        return [_other_keys(one, kind, chance) for one in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    if kind == "order":
        chance.shuffle(keys)
    rename = {"case": str.upper, "keys": lambda key: f"{key} "}.get(kind, lambda key: key)
    few = kind != "order" and chance.random() < 0.7  # most mappings stay as they are
    names = {key: rename(key) if isinstance(key, str) and not few else key for key in keys}
    made = {names[key]: _other_keys(value[key], kind, chance) for key in keys}
    return {**made, "unknown key": 1} if kind == "unknown" and not few else made


def json_lines(content: bytes, chance: random.Random) -> bytes:
    """JSON lines with one of them changed."""
    lines = content.splitlines()
    at = chance.randrange(len(lines))
    lines[at] = json_file(lines[at], chance)
    return b"\n".join(lines)


def yaml_file(content: bytes, chance: random.Random) -> bytes:
    """YAML with one node changed, or the same values in another notation."""
    import yaml

    if chance.random() < 0.15:
        return chance.choice([b"", content]) + chance.choice(YAML).encode()
    value = yaml.safe_load(content)
    if chance.random() < 0.12:
        return _yaml_notation(value, chance)
    made = tree(value, chance)
    try:
        return yaml.safe_dump(made, sort_keys=False).encode(errors="surrogatepass")
    except Exception:
        return json.dumps(made).encode()


def _yaml_notation(value: Any, chance: random.Random) -> bytes:
    """Other text for a tree: order of keys, anchors, merged mappings, tags, other numbers, another encoding."""
    import yaml

    text = yaml.safe_dump(value, sort_keys=False)
    kind = one_of(
        chance, "order case unknown keys merge anchor tag number flow coding again type type key"
    )
    coding = "utf-8"
    if kind in ("order", "case", "unknown", "keys"):
        text = yaml.safe_dump(_other_keys(value, kind, chance), sort_keys=False)
    elif kind == "merge":
        merged = r"\1\2:\n\1  <<: {x: 1, root: y}"
        text = re.sub(
            r"^( *)(\w+): *$", merged, text, count=chance.choice([1, 3, 0]), flags=re.MULTILINE
        )
    elif kind == "anchor":
        text = re.sub(r": (\S+)$", r": &a \1", text, count=1, flags=re.MULTILINE) + "more: *a\n"
    elif kind == "tag":
        text = changed(text, r": (?=\S)", f": {one_of(chance, YAML_TAGS)} ", chance)
    elif kind == "number":
        new = f": {one_of(chance, YAML_NUMBERS)}"
        text = re.sub(r": \d\S*$", new, text, count=chance.choice([1, 2, 0]), flags=re.MULTILINE)
    elif kind == "type":
        text = changed(text, r"(?<=: )\S.*$", chance.choice(TYPED), chance)
    elif kind == "key":
        text = changed(text, r"[^\s:-]+(?=:)", chance.choice(KEYS), chance)
    elif kind == "flow":
        text = json.dumps(value)
    elif kind == "again":
        text += text
    else:
        coding = chance.choice(["utf-16", "utf-8-sig", "utf-16-be"])
    return text.encode(coding, errors="surrogatepass")


def csv_file(content: bytes, chance: random.Random) -> bytes:
    """A CSV file with other columns, rows or quotes."""
    text = content.decode(errors="surrogateescape")
    rows = [line.split(",") for line in text.splitlines()]
    at, column = chance.randrange(len(rows)), chance.randrange(len(rows[0]))
    value = chance.choice(
        ["x" * 2_000_000, *(str(chance.choice([*TEXTS, *NUMBERS])) for _ in range(2))]
    )
    kinds: dict[str, Callable[[], list[list[str]]]] = {
        "order": lambda: [row[::-1] for row in rows],
        "gone": lambda: [row[:column] + row[column + 1 :] for row in rows],
        "twice": lambda: [row + row[column : column + 1] for row in rows],
        "more": lambda: [
            row + ["x"] * chance.choice([1, 1000]) * (k == at) for k, row in enumerate(rows)
        ],
        "blank": lambda: [*rows[:at], [""], [" "], [","], *rows[at:]],
        "many": lambda: rows + rows[-1:] * 30_000,
        "quotes": lambda: [
            [f'"{f}"' if chance.random() < 0.9 else f'"{f}\r\n""' for f in row] for row in rows
        ],
        "no head": lambda: rows[1:],
        "head": lambda: [
            [
                chance.choice([name.upper(), f" {name}", f'"{name}"', f"\ufeff{name}"])
                for name in rows[0]
            ],
            *rows[1:],
        ],
    }
    kind = chance.choice(["separator", "field", "field", "field", *kinds])
    if kind == "separator":
        return text.replace(",", chance.choice([";", "\t", "|", ", "])).encode(
            errors="surrogateescape"
        )
    if kind == "field":
        rows[at] = [value if k == column else field for k, field in enumerate(rows[at])]
    made = kinds[kind]() if kind in kinds else rows
    return "\n".join(",".join(row) for row in made).encode(errors="surrogatepass") + b"\n"


def readme(content: bytes, chance: random.Random) -> bytes:
    """A README whose head of YAML is another."""
    _, head, rest = content.split(b"---\n", 2)
    return b"---\n" + yaml_file(head, chance) + b"---\n" + rest


def tree(value: Any, chance: random.Random) -> Any:
    """The value with one node changed, sometimes up to four."""
    for _ in range(chance.choice([1, 1, 1, 1, 2, 4])):
        places = list(_places(value))
        if not places or chance.random() < 0.02:
            return _special(value, chance)
        holder, key = chance.choice(places)
        _change(holder, key, places, chance)
    return value


def _places(value: Any) -> Any:
    """Each holder and key of a tree; a change may have put a node into itself, so each node is visited once."""
    open_nodes, seen = [value], set()
    while open_nodes:
        node = open_nodes.pop()
        if id(node) in seen and isinstance(node, (dict, list)):
            continue
        seen.add(id(node))
        inner = (
            list(node)
            if isinstance(node, dict)
            else range(len(node))
            if isinstance(node, list)
            else ()
        )
        for key in inner:
            yield node, key
            open_nodes.append(node[key])


def _change(holder: Any, key: Any, places: list, chance: random.Random) -> None:
    kinds = "special " * 8 + "gone gone gone copy copy rename more wrapped again empty"
    kind, value = one_of(chance, kinds), holder[key]
    if kind == "gone":
        del holder[key]
    elif kind == "copy":
        other, place = chance.choice(places)
        try:
            holder[key] = json.loads(json.dumps(other[place], default=str))
        except (LookupError, TypeError):
            holder[key] = None
    elif kind == "rename" and isinstance(holder, dict):
        holder[chance.choice([*TEXTS, *map(str, NUMBERS)])[:1000]] = holder.pop(key)
    elif kind == "more" and isinstance(holder, dict):
        names = (
            chance.choice(TEXTS)[:1000],
            "auto_map",
            "trust_remote_code",
            "_class",
            "format",
            "id",
        )
        holder[chance.choice(names)] = _special(None, chance)
    elif kind == "wrapped":
        holder[key] = chance.choice([[value], {"x": value}, [value] * 3, str(value)[:1000]])
    elif kind == "again" and isinstance(holder, list):
        holder.insert(key, value)
    elif kind == "empty":
        holder[key] = chance.choice([[], {}, "", None, 0, False])
    else:
        holder[key] = _special(value, chance)


def _special(value: Any, chance: random.Random) -> Any:
    kind = chance.choice(["number"] * 5 + ["text"] * 4 + ["other", "deep", "long", "near", "near"])
    if (
        kind == "near"
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < 1e15
    ):
        others = [-value, value + 1, value - 1, value * 2, value * 1000, value / 3]
        return chance.choice([*others, float(value), str(value), bool(value)])
    if kind == "number":
        return chance.choice(NUMBERS)
    if kind == "other":
        nested = [
            [None],
            [[]],
            {"": None},
            [1, "a"],
            {"a": {"b": []}},
            [1.5] * 4,
            [[1, 2]],
            ["a", "a"],
        ]
        return chance.choice([None, True, False, [], {}, *nested])
    if kind == "deep":
        made: Any = 1
        for _ in range(chance.choice([5, 90, 101, 900])):
            made = [made] if chance.random() < 0.5 else {"a": made}
        return made
    if kind == "long":
        return chance.choice(
            [[0] * 100_000, ["x"] * 10_000, {str(k): k for k in range(10_000)}, [[]] * 50_000]
        )
    return chance.choice(TEXTS)


def xml(content: bytes, chance: random.Random) -> bytes:
    """XML with another element."""
    text = content.decode()
    one = chance.choice(list(re.finditer(r"<(\w+)>([^<]*)</\1>", text)))
    new = str(chance.choice([*TEXTS, *NUMBERS]))
    kinds = {
        "text": f"<{one[1]}>{new}</{one[1]}>", "tag": f"<{new[:50]}>{one[2]}</{new[:50]}>", "gone": "", "twice": one[0] * 2,
        "snippet": one[0] + chance.choice(XML), "attribute": f'<{one[1]} x="{one[2]}" x="1"/>', "space": f'<n:{one[1]} xmlns:n="u">{one[2]}</n:{one[1]}>',
        "comment": f"<{one[1]}><!-- -->{one[2]}<?x y?></{one[1]}>", "many": one[0] * 20_000, "deep": f"<{one[1]}>{one[0]}</{one[1]}>",
    }  # fmt: skip
    made = kinds[chance.choice(["text", *kinds])]
    return (text[: one.start()] + made + text[one.end() :]).encode(errors="surrogatepass")
