"""Seeded damage: of bytes, of the structure that a file's kind has, and of a file's place in its folder."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import random
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CANARY = "touch FARTHER_CANARY"

TEXTS = (
    "", " ", "\0", "\n", "\t", "a\nb", "../x", "/etc/passwd", "C:\\x", ".", "..", "-", "x" * 300, "a/" * 3000, "x" * 200_000,
    "\ud800", "\udcff", "é", "e\u0301", "\N{RIGHT-TO-LEFT OVERRIDE}x", "\N{PILE OF POO}" * 70, "\x1b[31m", "\x7f", "\ufeff", "\ufffe",
    "=1+1", "{}", "{0}", "{row!r}", "%s%n", "NaN", "nan", "inf", "-Infinity", "1e999", "-0", "0x10", "1_000", "٣", "²",
    "true", "null", "None", "~", "no", "2020-13-45", "1:2:3", "<<", "*a", "&a", "!!int x", "|", ">", "[", "{", "%YAML 9",
    f"; {CANARY}", f"$({CANARY})", f"`{CANARY}`", f"__import__('os').system('{CANARY}')", f"'{CANARY}'", "\\input /etc/passwd",
    "<script>alert(1)</script>", "<!--", "]]>", "&#0;", "nn.Module", "torch.load", "TorchVision", "file:///etc/passwd",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 255, 65_537, 10**6, 10**7, 10**9, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63),
    2**64, 10**400, -(10**30), 0.5, -0.5, 1e-320, 1e30, 1e300, -1e300, 1.7e308, math.nan, math.inf, -math.inf, 1e-9,
)  # fmt: skip
BYTES = (
    b"\0",
    b"\xff",
    b"\x80",
    b"\x7f",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\r",
    b'"',
    b"'",
    b",",
    b"{",
    b"[",
    b"<",
    b"\xc3",
    b"\xfe\xff",
)
YAML = (
    "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(f"{chr(98 + k)}: &{chr(98 + k)} [{', '.join(['*' + chr(97 + k)] * 9)}]\n" for k in range(9)),
    f"!!python/object/apply:os.system ['{CANARY}']\n", f"x: !!python/object/new:os.system ['{CANARY}']\n", "a: &a [*a]\n", "a: !!binary '%%'\n",
    "? [a, b]\n: 1\n", "a: 2020-13-45\n", "a: !!int x\n", "a: 1\na: 2\n", "<<: [1]\n", "a: 190:20:30:15:59\n", "[" * 5000, "- " * 5000 + "x\n", "--- a\n--- b\n",
    "a: " + "9" * 5000 + "\n", "x: !!timestamp 9999-99-99\n", "\t- a\n", "a: 'b\n", "%TAG ! x:\n--- !a b\n", "a: !!set {a}\n", "a: 2020-01-01\n", "1: 2\n", "null: a\n",
)  # fmt: skip
XML = (
    '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;&x;&x;&x;&x;&x;"><!ENTITY z "&y;&y;&y;&y;&y;&y;&y;&y;">]>',
    '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>', "<a>" * 20_000, "&x;", "<object/>", "<size><width>1e300</width></size>",
    "<bndbox/>", "<![CDATA[x]]>", '<?xml version="1.0" encoding="utf-7"?>', '<?xml version="1.0" encoding="x"?>', "</annotation>", "<name/>", "&#xD800;",
)  # fmt: skip


#: Ends of the names of files that may hold a pickle.
PICKLES = (".pt", ".pth", ".ckpt")


class Evil:
    """A pickle that would run a command."""

    def __reduce__(self) -> Any:
        return os.system, (CANARY,)


def mutate_folder(folder: Path, files: list[Path], chance: random.Random) -> str:
    """Damages one of the files, sometimes up to three; says how. A file may be a link that is shared: it is replaced."""
    said: dict[Path, str] = {}
    for _ in range(1 if chance.random() < 0.85 else chance.randint(2, 3)):
        path = chance.choice(files)
        if chance.random() < 0.06 or not path.is_file():
            how = _replace(path, folder, chance)
        else:
            # A file that was changed is not unpickled here: it may hold the command that it must not run in farther.
            is_valid = path not in said or not path.name.endswith(PICKLES)
            content, how = mutated(path.read_bytes(), path.name, chance, structure=is_valid)
            path.unlink()
            path.write_bytes(content)
        said[path] = f"{said[path]}, {how}" if path in said else f"{path.relative_to(folder)}: {how}"
    return "; ".join(said.values())


def _replace(path: Path, folder: Path, chance: random.Random) -> str:
    """Puts something else than a file in its place."""
    kind = chance.choice(["gone", "folder", "FIFO", "loop", "dangling", "device", "above", "empty", "unlisted"])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "empty":
        path.touch()
    elif kind == "unlisted":
        (path.parent / ("." + path.name)).write_bytes(b"x")
    elif kind != "gone":
        targets = {"loop": path.name, "dangling": "nowhere", "device": "/dev/zero", "above": str(folder)}
        path.symlink_to(targets[kind])
    return kind


def mutated(content: bytes, name: str, chance: random.Random, *, structure: bool = True) -> tuple[bytes, str]:
    """Other content for a file of this name, and what was changed: often its structure, where allowed, else its bytes."""
    kinds: list[Callable[[bytes, random.Random], bytes]] = [
        _STRUCTURES[end] for end in _STRUCTURES if name.endswith(end)
    ]
    kinds += [_text] * name.endswith((".json", ".jsonl", ".yaml", ".xml", ".md"))
    if structure and kinds and chance.random() < 0.65:
        kind = chance.choice(kinds)
        try:
            return kind(content, chance), kind.__name__.strip("_")
        except Exception:  # a first change was so large that the structure is gone
            pass
    return _bytes(content, chance), "bytes"


def _bytes(content: bytes, chance: random.Random) -> bytes:
    made = bytearray(content)
    size = len(made)

    def place() -> int:
        """Somewhere, more often near the ends, where headers and footers are."""
        near = chance.random()
        low, high = (0, min(size, 300)) if near < 0.3 else (max(0, size - 900), size) if near < 0.6 else (0, size)
        return chance.randrange(low, high) if high > low else 0

    kind = chance.choice(
        ["flip"] * 5
        + ["set"] * 3
        + ["cut", "cut", "drop", "twice", "insert", "insert", "swap", "many", "end", "lines", "coding", "front"]
    )
    if not size:
        return chance.choice(BYTES)
    if kind == "flip":
        for _ in range(chance.choice([1, 1, 2, 5, 30])):
            made[place()] ^= 1 << chance.randrange(8)
    elif kind == "set":
        for _ in range(chance.choice([1, 1, 4, 20])):
            at = place()
            made[at : at + 4] = chance.choice(
                [b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80", bytes([chance.randrange(256)])]
            )
    elif kind == "cut":
        del made[place() :]
    elif kind == "drop":
        at = place()
        del made[at : at + chance.choice([1, 4, 50, 1000])]
    elif kind == "twice":
        at = place()
        made[at:at] = made[at : at + chance.choice([1, 10, 200])] * chance.choice([1, 1, 3, 200])
    elif kind == "insert":
        at = place()
        made[at:at] = chance.choice(BYTES) * chance.choice([1, 1, 2, 5000])
    elif kind == "swap":
        a, b, n = place(), place(), chance.choice([1, 8, 64])
        made[a : a + n], made[b : b + n] = made[b : b + n], made[a : a + n]
    elif kind == "many":
        for _ in range(max(1, size // 50)):
            made[place()] = chance.randrange(256)
    elif kind == "end":
        made += chance.choice([b"\0" * 100, chance.randbytes(50), bytes(made[:200]), b"\n\n{}"])
    elif kind == "front":
        made[:0] = chance.choice(
            [
                b"\xef\xbb\xbf",
                b"\n",
                b"#!/bin/sh\n" + CANARY.encode() + b"\n",
                b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
                b"PK\x03\x04",
                b"\x1f\x8b",
                b"PAR1",
            ]
        )
    elif kind == "lines":
        made = made.replace(
            b"\n", chance.choice([b"\r\n", b"\r", b"\n\n", b"\0\n", b" \n", b"\x0b\n", b"\xe2\x80\xa8"])
        )
    elif kind == "coding":
        text = content.decode("utf-8", errors="replace")
        made = bytearray(
            text.encode(chance.choice(["utf-16", "utf-16-le", "utf-8-sig", "utf-32", "latin-1"]), errors="replace")
        )
    return bytes(made)


def _text(content: bytes, chance: random.Random) -> bytes:
    """Another word, number or line in a text."""
    text = content.decode("utf-8", errors="surrogateescape")
    kind = chance.choice(
        ["number", "number", "word", "word", "line", "line twice", "line gone", "lines swapped", "snippet"]
    )
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    if kind in ("number", "word"):
        found = list(re.finditer(r"-?\d+(?:\.\d+)?" if kind == "number" else r"[^\s,:\"'<>{}\[\]/]+", text))
        if found:
            one = chance.choice(found)
            new = str(chance.choice(NUMBERS))[:600] if chance.random() < 0.7 else chance.choice(TEXTS)
            text = text[: one.start()] + new + text[one.end() :]
        return text.encode("utf-8", errors="surrogatepass")
    if kind == "line":
        lines[at] = chance.choice(TEXTS)
    elif kind == "line twice":
        lines[at:at] = [lines[at]] * chance.choice([1, 1, 50])
    elif kind == "line gone":
        del lines[at]
    elif kind == "lines swapped":
        other = chance.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at:at] = [chance.choice(YAML + XML + ('"' + "x" * 200_000 + '",1', ",".join("a" * 3000), '"'))]
    return "\n".join(lines).encode("utf-8", errors="surrogatepass")


def _json(content: bytes, chance: random.Random) -> bytes:
    text = json.dumps(_tree(json.loads(content), chance))
    if chance.random() < 0.05:
        text = re.sub(
            r'"(\w+)": ', lambda m: f'"{m[1]}": 0, "{m[1]}": ', text, count=chance.choice([1, 3])
        )  # keys twice
    return text.encode()


def _json_lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines()
    at = chance.randrange(len(lines))
    lines[at] = _json(lines[at], chance)
    return b"\n".join(lines)


def _yaml(content: bytes, chance: random.Random) -> bytes:
    import yaml

    if chance.random() < 0.15:
        return chance.choice([b"", content]) + chance.choice(YAML).encode()
    made = _tree(yaml.safe_load(content), chance)
    try:
        return yaml.safe_dump(made, sort_keys=False).encode("utf-8", errors="surrogatepass")
    except Exception:
        return json.dumps(made).encode()


def _readme(content: bytes, chance: random.Random) -> bytes:
    _, head, rest = content.split(b"---\n", 2)
    return b"---\n" + _yaml(head, chance) + b"---\n" + rest


def _tree(value: Any, chance: random.Random) -> Any:
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
        inner = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in inner:
            yield node, key
            open_nodes.append(node[key])


def _change(holder: Any, key: Any, places: list, chance: random.Random) -> None:
    kind = chance.choice(
        ["special"] * 8 + ["gone"] * 3 + ["copy", "copy", "rename", "more", "wrapped", "again", "empty"]
    )
    if kind == "gone":
        del holder[key]
    elif kind == "copy":
        other, place = chance.choice(places)
        try:
            holder[key] = json.loads(json.dumps(other[place], default=str))
        except (LookupError, TypeError):
            holder[key] = None
    elif kind == "rename" and isinstance(holder, dict):
        value = holder.pop(key)
        holder[chance.choice([*TEXTS, *map(str, NUMBERS)])[:1000]] = value
    elif kind == "more" and isinstance(holder, dict):
        holder[
            chance.choice([chance.choice(TEXTS)[:1000], "auto_map", "trust_remote_code", "_class", "format", "id"])
        ] = _special(None, chance)
    elif kind == "wrapped":
        holder[key] = chance.choice([[holder[key]], {"x": holder[key]}, [holder[key]] * 3, str(holder[key])[:1000]])
    elif kind == "again" and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif kind == "empty":
        holder[key] = chance.choice([[], {}, "", None, 0, False])
    else:
        holder[key] = _special(holder[key], chance)


def _special(value: Any, chance: random.Random) -> Any:
    kind = chance.choice(["number"] * 5 + ["text"] * 4 + ["other", "deep", "long", "near", "near"])
    if kind == "near" and isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15:
        return chance.choice(
            [-value, value + 1, value - 1, value * 2, value * 1000, value / 3, float(value), str(value), bool(value)]
        )
    if kind == "number":
        return chance.choice(NUMBERS)
    if kind == "other":
        return chance.choice(
            [
                None,
                True,
                False,
                [],
                {},
                [None],
                [[]],
                {"": None},
                [1, "a"],
                {"a": {"b": []}},
                [1.5] * 4,
                [[1, 2]],
                ["a", "a"],
            ]
        )
    if kind == "deep":
        made: Any = 1
        for _ in range(chance.choice([5, 90, 101, 900])):
            made = [made] if chance.random() < 0.5 else {"a": made}
        return made
    if kind == "long":
        return chance.choice([[0] * 100_000, ["x"] * 10_000, {str(k): k for k in range(10_000)}, [[]] * 50_000])
    return chance.choice(TEXTS)


def _xml(content: bytes, chance: random.Random) -> bytes:
    text = content.decode()
    tags = list(re.finditer(r"<(\w+)>([^<]*)</\1>", text))
    one = chance.choice(tags)
    kind = chance.choice(["text", "text", "tag", "gone", "twice", "snippet"])
    new = str(chance.choice([*TEXTS, *NUMBERS]))
    made = {
        "text": f"<{one[1]}>{new}</{one[1]}>", "tag": f"<{new[:50]}>{one[2]}</{new[:50]}>", "gone": "", "twice": one[0] * 2,
        "snippet": one[0] + chance.choice(XML),
    }[kind]  # fmt: skip
    return (text[: one.start()] + made + text[one.end() :]).encode("utf-8", errors="surrogatepass")


# ------------------------------------------------------------------------------------------------ tables and tensors


def _table(content: bytes) -> pa.Table:
    if content[:4] == b"PAR1":
        return pq.read_table(io.BytesIO(content))
    source = io.BytesIO(content)
    return (pa.ipc.open_file(source) if content[:6] == b"ARROW1" else pa.ipc.open_stream(source)).read_all()


def _arrow(content: bytes, chance: random.Random) -> bytes:
    """A Parquet or Arrow file that is whole, and whose columns are others."""
    table = _table(content)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        table = _columns(table, chance)
    sink = io.BytesIO()
    if content[:4] == b"PAR1":
        options = {
            "compression": chance.choice(["zstd", "none", "snappy", "gzip", "brotli", "lz4"]),
            "row_group_size": chance.choice([1, 3, 10_000]),
        }
        options |= {"data_page_version": chance.choice(["1.0", "2.0"]), "store_schema": chance.random() < 0.8}
        pq.write_table(table, sink, **options)
    else:
        with (pa.ipc.new_file if chance.random() < 0.5 else pa.ipc.new_stream)(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def _columns(table: pa.Table, chance: random.Random) -> pa.Table:
    names, rows = table.column_names, table.num_rows
    if not names:
        return pa.table({"a": [1]})
    at = chance.randrange(len(names))
    values = table.column(at).to_pylist()
    kind = chance.choice(
        [
            "gone",
            "twice",
            "renamed",
            "nulls",
            "value",
            "value",
            "value",
            "cast",
            "cast",
            "fewer",
            "again",
            "order",
            "dictionary",
            "nested",
            "wide",
            "metadata",
            "swapped",
        ]
    )
    if kind == "gone":
        return table.remove_column(at)
    if kind == "twice":
        return table.append_column(names[at], table.column(at))
    if kind == "renamed":
        new = chance.choice([t for t in TEXTS if "\ud800" not in t and "\udcff" not in t])[:1000]
        return table.rename_columns([new if k == at else name for k, name in enumerate(names)])
    if kind == "fewer":
        return table.slice(0, chance.choice([0, 0, 1, rows // 2]))
    if kind == "again":
        return pa.concat_tables([table] * chance.choice([2, 3]))
    if kind == "order":
        return table.take(sorted(range(rows), key=lambda _: chance.random()))
    if kind == "metadata":
        return table.replace_schema_metadata(
            {
                chance.choice([b"huggingface", b"x", b"ARROW:schema", b"pandas"]): chance.choice(
                    [b"{", b"\xff", b"[" * 5000, b'{"info": 1}', b"9" * 5000]
                )
            }
        )
    if kind == "swapped":
        other = chance.randrange(len(names))
        return table.set_column(at, names[at], table.column(other))
    if kind == "cast":
        types = [
            pa.string(),
            pa.large_string(),
            pa.binary(),
            pa.float16(),
            pa.float64(),
            pa.int8(),
            pa.uint64(),
            pa.bool_(),
            pa.timestamp("ns"),
            pa.null(),
            pa.decimal256(40, 3),
            pa.date32(),
            pa.duration("s"),
            pa.list_(pa.string()),
        ]
        return table.set_column(at, names[at], _array([None] * rows, values, chance.choice(types)))
    if kind == "dictionary":
        made = table.column(at).combine_chunks()
        return table.set_column(at, names[at], made.dictionary_encode())
    if kind == "nested":
        return table.set_column(at, names[at], pa.array([[value] for value in values]))
    if kind == "wide":
        return table.set_column(
            at, names[at], pa.array([[0.5] * chance.choice([0, 1, 3, 5])] * rows, pa.list_(pa.float32()))
        )
    if kind == "nulls":
        return table.set_column(
            at, names[at], pa.array([None if chance.random() < 0.3 else v for v in values], table.column(at).type)
        )
    return table.set_column(
        at,
        names[at],
        _array(values, [_other(v, chance) if chance.random() < 0.2 else v for v in values], table.column(at).type),
    )


def _array(fallback: list, values: list, kind: Any) -> pa.Array:
    for attempt in (values, [None if isinstance(v, (list, dict)) else str(v) for v in values], fallback):
        try:
            return pa.array(attempt, kind)
        except Exception:
            continue
    return pa.nulls(len(values))


def _other(value: Any, chance: random.Random) -> Any:
    """Another value of the same type, at any depth."""
    if isinstance(value, dict) and value:
        key = chance.choice(list(value))
        return {**value, key: _other(value[key], chance)}
    if isinstance(value, list):
        if value and chance.random() < 0.8:
            return [_other(v, chance) if chance.random() < 0.5 else v for v in value]
        return value[1:] if chance.random() < 0.5 else value * 2
    if isinstance(value, bytes):
        return chance.choice([b"", value[: len(value) // 2], b"%!PS\n", _bytes(value, chance)])
    if isinstance(value, str):
        return chance.choice([t for t in TEXTS if "\ud800" not in t and "\udcff" not in t])
    if isinstance(value, float):
        return float(chance.choice([n for n in NUMBERS if abs(n) < 1e308 or n != n or math.isinf(n)]))
    if isinstance(value, int):
        return chance.choice([n for n in NUMBERS if isinstance(n, int) and -(2**63) <= n < 2**63])
    return None


def _safetensors(content: bytes, chance: random.Random) -> bytes:
    """A safetensors file whose header or arrays are others."""
    from safetensors.numpy import load, save

    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    if chance.random() < 0.5:
        notes = header.get("__metadata__")
        if notes and chance.random() < 0.75:
            name = chance.choice(list(notes))
            try:
                notes[name] = json.dumps(_tree(json.loads(notes[name]), chance))
            except ValueError:
                notes[name] = chance.choice(TEXTS)
            header["__metadata__"] = {k: v.replace("\ud800", "").replace("\udcff", "") for k, v in notes.items()}
        else:
            header = _tree(header, chance)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data
    arrays = load(content)
    name = chance.choice(list(arrays))
    array = arrays[name]
    kind = chance.choice(["gone", "renamed", "values", "values", "shape", "shape", "type", "wide", "more"])
    if kind == "gone":
        del arrays[name]
    elif kind == "renamed":
        arrays[chance.choice([t for t in TEXTS if t.isprintable()])[:300]] = arrays.pop(name)
    elif kind == "values":
        made = array.copy()
        with np.errstate(all="ignore"):
            made.ravel()[: chance.choice([1, 5, made.size])] = np.array(
                float(chance.choice([n for n in NUMBERS if abs(n) < 1e308 or n != n or math.isinf(n)]))
            ).astype(array.dtype)
        arrays[name] = made
    elif kind == "shape":
        shapes = [
            array.ravel(),
            array[:1],
            array[:0],
            array.reshape(1, *array.shape),
            array.T,
            np.concatenate([array.ravel()] * 2),
            np.zeros((), array.dtype),
            np.zeros((0, 7), array.dtype),
        ]
        arrays[name] = np.ascontiguousarray(chance.choice(shapes)) if array.ndim else np.zeros(3, array.dtype)
    elif kind == "type":
        arrays[name] = array.astype(chance.choice([np.int64, np.uint8, np.float64, np.float16, np.bool_]))
    elif kind == "wide":
        arrays[name] = np.zeros(chance.choice([(3, 5), (1,), (2, 2, 2), (1000, 10)]), array.dtype)
    else:
        arrays[chance.choice(["x", "x_", "_y", "fitted_on_", "weight", "bias"])] = np.zeros(3, np.float32)
    text = {k: str(v).replace("\ud800", "") for k, v in header.get("__metadata__", {}).items()}
    return save(arrays, metadata=text or None)


def _torch(content: bytes, chance: random.Random) -> bytes:
    """A PyTorch file with other content: changed weights, or a pickle that runs a command."""
    import torch

    if chance.random() < 0.35:
        evil = pickle.dumps(
            chance.choice([Evil(), {"state_dict": Evil()}, [Evil()], {"model": {"a": Evil()}}]),
            protocol=chance.choice([0, 2, 4]),
        )
        if chance.random() < 0.4:
            return evil
        made = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as given, zipfile.ZipFile(made, "w") as out:
            for name in given.namelist():
                out.writestr(name, evil if name.endswith("data.pkl") else given.read(name))
        return made.getvalue()
    held = torch.load(io.BytesIO(content), weights_only=False)
    part = held.get("state_dict", held)
    if not isinstance(part, dict):
        raise TypeError
    name = chance.choice(list(part))
    value = part[name]
    part[name] = chance.choice(
        [
            None,
            1,
            "x",
            [],
            value,
            torch.zeros(3),
            torch.full_like(value, math.nan) if torch.is_tensor(value) and value.is_floating_point() else 0,
            value[None] if torch.is_tensor(value) else {},
        ]
    )
    if chance.random() < 0.3:
        del part[name]
    if chance.random() < 0.2:
        held = chance.choice([[held], part, None, 3, {"net": 1}, {**held, "state_dict": 5}, torch.zeros(2)])
    sink = io.BytesIO()
    torch.save(held, sink)
    return sink.getvalue()


def _image(content: bytes, chance: random.Random) -> bytes:
    """A file of another format under the image's name, or an image of another kind or size."""
    from PIL import Image

    kind = chance.choice(["format", "format", "eps", "svg", "bomb", "mode", "text"])
    sink = io.BytesIO()
    image = Image.new("RGB", (chance.choice([1, 7, 300]), chance.choice([1, 9, 200])), (9, 200, 3))
    if kind == "eps":
        image.save(sink, "EPS")
    elif kind == "svg":
        return b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
    elif kind == "bomb":
        image.save(sink, "PNG")
        made = bytearray(sink.getvalue())
        made[16:24] = struct.pack(">II", chance.choice([60_000, 2**31 - 1]), 60_000)
        return bytes(made)
    elif kind == "mode":
        image.convert(chance.choice(["1", "L", "P", "RGBA", "CMYK", "I", "F", "LA"])).save(sink, "TIFF")
    elif kind == "text":
        return CANARY.encode()
    else:
        image.save(sink, chance.choice(["GIF", "BMP", "TIFF", "WEBP", "PPM", "PDF", "ICO", "TGA", "JPEG", "PCX"]))
    return sink.getvalue()


#: Kinds of structure by the ending of a file's name.
_STRUCTURES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".json": _json, ".jsonl": _json_lines, ".yaml": _yaml, "README.md": _readme, ".xml": _xml, ".csv": _text, ".txt": _text, ".exc": _text,
    ".noun": _text, ".parquet": _arrow, ".arrow": _arrow, ".safetensors": _safetensors, ".pt": _torch, ".pth": _torch, ".ckpt": _torch,
    ".png": _image, ".jpg": _image,
}  # fmt: skip
