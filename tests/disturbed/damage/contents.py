"""Damage of the content of tables, tensors, images and archives; the files remain whole."""

from __future__ import annotations

import gzip
import io
import json
import math
import pickle
import random
import struct
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.disturbed.damage.texts import damaged, tree
from tests.disturbed.damage.values import CANARY, NUMBERS, TEXTS, Evil, one_of

WRITABLE = [t for t in TEXTS if "\ud800" not in t and "\udcff" not in t]
FLOATS = [n for n in NUMBERS if abs(n) < 1e308 or n != n or abs(n) == math.inf]
INTEGERS = [n for n in NUMBERS if isinstance(n, int) and -(2**63) <= n < 2**63]


def read_table(content: bytes) -> pa.Table:
    if content[:4] == b"PAR1":
        return pq.read_table(io.BytesIO(content))
    source = io.BytesIO(content)
    return (
        pa.ipc.open_file(source) if content[:6] == b"ARROW1" else pa.ipc.open_stream(source)
    ).read_all()


def table(content: bytes, chance: random.Random) -> bytes:
    """A Parquet or Arrow file that is whole, and whose columns are others."""
    made = read_table(content)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        made = columns(made, chance)
    sink = io.BytesIO()
    if content[:4] == b"PAR1":
        pq.write_table(
            made,
            sink,
            compression=one_of(chance, "zstd none snappy gzip brotli lz4"),
            row_group_size=chance.choice([1, 3, 10_000]) if made.num_rows < 1000 else 10_000,
            data_page_version=one_of(chance, "1.0 2.0"),
            store_schema=chance.random() < 0.8,
            use_dictionary=chance.random() < 0.5,
            write_statistics=chance.random() < 0.7,
        )
    else:
        format_ = pa.ipc.new_file if chance.random() < 0.5 else pa.ipc.new_stream
        options = pa.ipc.IpcWriteOptions(compression=chance.choice([None, "zstd", "lz4"]))
        with format_(sink, made.schema, options=options) as writer:
            writer.write_table(made)
    return sink.getvalue()


#: Types that a column is cast to.
TYPES = [
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary(3), pa.float16(), pa.float32(), pa.float64(), pa.int8(), pa.uint8(),
    pa.int64(), pa.uint64(), pa.bool_(), pa.timestamp("ns"), pa.timestamp("us", "Europe/Zurich"), pa.time64("us"), pa.null(), pa.decimal128(20, 5), pa.decimal256(40, 3),
    pa.date32(), pa.duration("s"), pa.list_(pa.string()), pa.large_list(pa.float32()), pa.list_(pa.float32()), pa.list_(pa.float64(), 4), pa.list_(pa.list_(pa.float32())),
    pa.struct([("x", pa.float32())]), pa.map_(pa.string(), pa.float32()), pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.float64()),
    pa.run_end_encoded(pa.int32(), pa.float64()), pa.run_end_encoded(pa.int32(), pa.string()), pa.list_view(pa.float32()), pa.binary_view(), pa.list_(pa.float32(), 0),
    pa.struct([]), pa.month_day_nano_interval(), pa.date64(), pa.uuid(), pa.json_(), pa.list_(pa.null()), pa.decimal128(38, -5), pa.binary(0), pa.int16(), pa.uint32(),
]  # fmt: skip
METADATA = (b"{", b"\xff", b"[" * 5000, b'{"info": 1}', b"9" * 5000)


def columns(table: pa.Table, chance: random.Random) -> pa.Table:
    """The table with another column, or other rows."""
    names, rows = table.column_names, table.num_rows
    if not names:
        return pa.table({"a": [1]})
    at = chance.randrange(len(names))
    name, column = names[at], table.column(at)
    other_names = [
        *(t[:1000] for t in WRITABLE),
        name.upper(),
        f"{name} ",
        f"{name}.x",
        f"latent.{name}",
    ]
    keys = [b"huggingface", b"x", b"ARROW:schema", b"pandas", *(table.schema.metadata or {})]
    kinds = {
        "gone": lambda: table.remove_column(at),
        "twice": lambda: table.append_column(name, column),
        "renamed": lambda: table.rename_columns(
            [*names[:at], chance.choice(other_names), *names[at + 1 :]]
        ),
        "fewer": lambda: table.slice(0, chance.choice([0, 0, 1, rows // 2])),
        "again": lambda: pa.concat_tables([table] * chance.choice([2, 3])),
        "many": lambda: table.take(
            pa.array(np.arange(chance.choice([5_000, 40_000])) % max(rows, 1))
        ),
        "order": lambda: table.take(sorted(range(rows), key=lambda _: chance.random())),
        "chunks": lambda: (
            pa.concat_tables([table.slice(k, 1) for k in range(rows)]) if rows else table
        ),
        "reversed": lambda: table.select(names[::-1]),
        "metadata": lambda: table.replace_schema_metadata(
            {chance.choice(keys): chance.choice(METADATA)}
        ),
        "swapped": lambda: table.set_column(at, name, table.column(chance.randrange(len(names)))),
        "dictionary": lambda: table.set_column(
            at, name, column.combine_chunks().dictionary_encode()
        ),
    }
    kind = chance.choice([*kinds, *["other"] * 16])
    return (
        table.set_column(at, name, other_column(column, chance))
        if kind == "other"
        else kinds[kind]()
    )


def other_column(column: pa.ChunkedArray, chance: random.Random) -> pa.Array:
    """Other values of the same length."""
    values, rows, type_ = column.to_pylist(), len(column), column.type
    form, number = one_of(chance, "NFD NFKC"), chance.choice([*FLOATS, *INTEGERS])

    def each(change: Callable[[Any], Any], share: float = 1) -> pa.Array:
        """A share of the values changed."""
        return array_of(
            values, [change(v) if chance.random() < share else v for v in values], type_
        )

    kinds = {
        "cast": lambda: array_of([None] * rows, values, chance.choice(TYPES)),
        "nested": lambda: pa.array([[value] for value in values]),
        "wide": lambda: pa.array(
            [[0.5] * chance.choice([0, 1, 3, 5, 3000])] * rows, pa.list_(pa.float32())
        ),
        "ragged": lambda: pa.array(
            [
                v[: chance.randrange(len(v) + 1)]
                if isinstance(v, list) and chance.random() < 0.3
                else v
                for v in values
            ],
            pa.list_(type_.value_type) if hasattr(type_, "value_type") else type_,
        ),
        "null": lambda: pa.array([None] * rows, type_),
        "nulls": lambda: pa.array([None if chance.random() < 0.3 else v for v in values], type_),
        "constant": lambda: pa.array([values[0]] * rows if values else values, type_),
        "same": lambda: each(lambda v: _filled(v, number)),
        "long": lambda: each(lambda _: "x" * 3_000_000, 0.2),
        "unicode": lambda: each(
            lambda v: unicodedata.normalize(form, f"{v}é") if isinstance(v, str) else v
        ),
        "value": lambda: each(lambda v: other(v, chance), 0.2),
    }
    return kinds[chance.choice([*kinds, "cast", "cast", "same", "value", "value"])]()


def _filled(value: Any, number: float) -> Any:
    """The value with each number replaced."""
    if isinstance(value, list):
        return [_filled(v, number) for v in value]
    return number if isinstance(value, (int, float)) else value


def array_of(fallback: list, values: list, kind: Any) -> pa.Array:
    for attempt in (
        values,
        [None if isinstance(v, (list, dict)) else str(v) for v in values],
        fallback,
    ):
        try:
            return pa.array(attempt, kind)
        except Exception:
            continue
    return pa.nulls(len(values))


def other(value: Any, chance: random.Random) -> Any:
    """Another value of the same type, at any depth."""
    if isinstance(value, dict) and value:
        key = chance.choice(list(value))
        return {**value, key: other(value[key], chance)}
    if isinstance(value, list):
        if value and chance.random() < 0.8:
            return [other(v, chance) if chance.random() < 0.5 else v for v in value]
        return value[1:] if chance.random() < 0.5 else value * 2
    if isinstance(value, bytes):
        return chance.choice(
            [b"", value[: len(value) // 2], b"%!PS\n", damaged(value, chance), image(value, chance)]
        )
    if isinstance(value, str):
        return chance.choice(WRITABLE)
    if isinstance(value, float):
        return float(chance.choice(FLOATS))
    if isinstance(value, int):
        return chance.choice(INTEGERS)
    return None


def foreign(chance: random.Random) -> bytes:
    """A whole file of another kind."""
    sink = io.BytesIO()
    kind = one_of(chance, "parquet arrow npy npz zip gzip pickle png text text")
    if kind == "parquet":
        pq.write_table(pa.table({"image_id": ["a"], "x": [1]}), sink)
    elif kind == "arrow":
        with pa.ipc.new_stream(sink, pa.schema([("x", pa.int64())])) as writer:
            writer.write_table(pa.table({"x": [1]}))
    elif kind == "npy":
        np.save(sink, np.zeros(3))
    elif kind == "npz":
        np.savez(sink, x=np.zeros(3))
    elif kind == "zip":
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("../x", bytes(10**6))
    elif kind == "gzip":
        return gzip.compress(b'{"a": 1}', mtime=0)
    elif kind == "pickle":
        return pickle.dumps(chance.choice([Evil(), {"a": 1}, np.zeros(2)]))
    elif kind == "png":
        return image(b"", chance)
    return sink.getvalue() or chance.choice(STRANGE)


STRANGE = (
    *(
        b"\2\0\0\0\0\0\0\0{}",
        b"{}",
        b"[]",
        b"null",
        b"0",
        b'""',
        b"---\n",
        b"a: 1\n",
        b"<a/>",
        b"<!DOCTYPE html><html></html>",
    ),
    *(b"\x7fELF\2\1\1", b"SQLite format 3\0", b"%PDF-1.4\n", b"\0\0\0\x18ftypmp42"),
    b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
)


def safetensors(content: bytes, chance: random.Random) -> bytes:
    """A safetensors file whose header or arrays are others."""
    from safetensors.numpy import load, save

    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    if chance.random() < 0.6:
        notes = header.get("__metadata__")
        draw = chance.random()
        if notes and draw < 0.5:
            name = chance.choice(list(notes))
            try:
                notes[name] = json.dumps(tree(json.loads(notes[name]), chance))
            except ValueError:
                notes[name] = chance.choice(TEXTS)
            header["__metadata__"] = {
                k: v.replace("\ud800", "").replace("\udcff", "") for k, v in notes.items()
            }
        elif draw < 0.8:
            header, data = _tensors(header, data, chance)
        else:
            header = tree(header, chance)
        text = json.dumps(header).encode() + b" " * chance.choice([0, 0, 5])
        if chance.random() < 0.05:  # each key twice
            text = text[:-1] + b", " + text[1:]
        return struct.pack("<Q", len(text)) + text + data
    arrays = load(content)
    name = chance.choice(list(arrays))
    array = arrays.pop(name)
    kind = one_of(chance, "gone renamed values values shape shape type wide more swapped")
    flat, other_names = array.ravel(), [t[:300] for t in TEXTS if t.isprintable()]
    if kind == "renamed":
        arrays[chance.choice(other_names)] = array
    elif kind == "swapped":
        arrays[name] = chance.choice([array, *arrays.values()])
    elif kind == "values":
        arrays[name] = array.copy()
        with np.errstate(all="ignore"):
            new = np.array(float(chance.choice(FLOATS))).astype(array.dtype)
            arrays[name].ravel()[: chance.choice([1, 5, array.size])] = new
    elif kind == "shape" and array.ndim:
        zeros = [np.zeros((), array.dtype), np.zeros((0, 7), array.dtype)]
        others = [
            flat,
            array[:1],
            array[:0],
            array[None],
            array.T,
            np.concatenate([flat, flat]),
            *zeros,
        ]
        arrays[name] = np.ascontiguousarray(chance.choice(others))
    elif kind == "type":
        arrays[name] = array.astype(one_of(chance, "int64 uint8 float64 float16 bool int32"))
    elif kind in ("wide", "shape"):
        arrays[name] = np.zeros(chance.choice([(3, 5), (1,), (2, 2, 2), (1000, 10)]), array.dtype)
    elif kind == "more":
        arrays[name] = array
        arrays[one_of(chance, "x x_ _y fitted_on_ weight bias")] = np.zeros(3, np.float32)
    text = {k: str(v).replace("\ud800", "") for k, v in header.get("__metadata__", {}).items()}
    return save(arrays, metadata=text or None)


#: Bytes of a value of each type; "X" is none.
SIZES = {"F64": 8, "U64": 8, "I32": 4, "X": 4, "BF16": 2, "F16": 2, "I16": 2}
SIZES |= dict.fromkeys(["I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"], 1)


def _tensors(header: dict, data: bytes, chance: random.Random) -> tuple[dict, bytes]:
    """The header with another type, shape or place of one tensor; the sizes agree in many of the cases."""
    one = header[chance.choice([name for name in header if name != "__metadata__"])]
    start, end = one["data_offsets"]
    kind = one_of(chance, "type type overlap hole huge empty flat")
    if kind == "type":
        one["dtype"] = chance.choice(list(SIZES))
        if chance.random() < 0.7:
            one["shape"] = [(end - start) // SIZES[one["dtype"]]]
    elif kind == "overlap":
        one["data_offsets"] = [0, end - start]
    elif kind == "hole":
        data = data[:start] + b"\0" * 64 + data[start:]
    elif kind == "huge":
        one["shape"] = chance.choice(
            [[2**32, 2**32], [2**63], [2**31, 0], [10**6] * 50, [0, 2**62]]
        )
    elif kind == "empty":
        one["data_offsets"], one["shape"] = [start, start], [0]
    else:
        one["shape"] = [int(np.prod(one["shape"]))]
    return header, data


def pickled(content: bytes, chance: random.Random) -> bytes:
    """A PyTorch file with other content: changed weights, or a pickle that runs a command."""
    import torch

    if chance.random() < 0.35:
        kinds = [Evil(), {"state_dict": Evil()}, [Evil()], {"model": {"a": Evil()}}]
        evil = pickle.dumps(chance.choice(kinds), protocol=chance.choice([0, 2, 4]))
        return evil if chance.random() < 0.4 else _zip(content, {"data.pkl": evil})
    if (
        chance.random() < 0.15
    ):  # a storage or the pickle grows when it is decompressed, or is nested
        nested = b"(" * 100_000 if chance.random() < 0.5 else b"\x80\x02" + b"]" * 50_000 + b"."
        large = {"data/0": bytes(300_000_000)}
        return _zip(
            content,
            chance.choice([large, {"data.pkl": nested}, {"data/0": b""}, {"version": b"99\n"}]),
        )
    held = torch.load(io.BytesIO(content), weights_only=False)
    part = held.get("state_dict", held)
    if not isinstance(part, dict):
        raise TypeError
    name = chance.choice(list(part))
    value = part[name]
    others = [None, 1, "x", [], value, torch.zeros(3)]
    if torch.is_tensor(value):
        others += [
            torch.full_like(value, math.nan) if value.is_floating_point() else 0,
            value[None],
            value.double(),
        ]
        others += [value.to_sparse() if value.ndim else 0, value.expand(1000, *value.shape)]
        others += [
            value.to(torch.bfloat16),
            value.to(torch.complex64),
            torch.nn.Parameter(value.float()),
        ]
        others += [torch.zeros(value.shape, device="meta")]
    part[name] = chance.choice(others)
    if chance.random() < 0.3:
        del part[name]
    if chance.random() < 0.2:
        held = chance.choice(
            [[held], part, None, 3, {"net": 1}, {**held, "state_dict": 5}, torch.zeros(2)]
        )
    sink = io.BytesIO()
    torch.save(held, sink, _use_new_zipfile_serialization=chance.random() < 0.9)
    return sink.getvalue()


def _zip(content: bytes, replaced: dict[str, bytes]) -> bytes:
    """The archive with other, compressed content of some members, by the ends of their names."""
    made = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as given,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as out,
    ):
        for name in given.namelist():
            out.writestr(
                name,
                next(
                    (new for end, new in replaced.items() if name.endswith(end)), given.read(name)
                ),
            )
    return made.getvalue()


def image(content: bytes, chance: random.Random) -> bytes:
    """A file of another format under the image's name, or an image of another kind or size."""
    from PIL import Image, PngImagePlugin

    kinds = "format format eps svg bomb mode text orientation colours moving cut notes narrow grey sizes sizes profile"
    kind, sink = one_of(chance, kinds), io.BytesIO()
    made = Image.new(
        "RGB", (chance.choice([1, 7, 40, 300]), chance.choice([1, 9, 30, 200])), (9, 200, 3)
    )
    if kind == "eps":
        made.save(sink, "EPS")
    elif kind == "svg":
        return b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
    elif kind == "bomb":
        made.save(sink, "PNG")
        bomb = bytearray(sink.getvalue())
        bomb[16:24] = struct.pack(">II", chance.choice([60_000, 2**31 - 1, 0]), 60_000)
        return bytes(bomb)
    elif kind == "sizes":
        return _sized(chance)
    elif kind == "profile":
        made.save(
            sink, "PNG", icc_profile=chance.choice([b"x", bytes(5 * 10**6)]), gamma=0.0, dpi=(0, 0)
        )
    elif kind == "mode":
        made.convert(one_of(chance, "1 L P RGBA CMYK I F LA")).save(sink, "TIFF")
    elif kind == "text":
        return CANARY.encode()
    elif kind == "orientation":
        notes = Image.Exif()
        notes[0x0112] = chance.choice([*range(10), 65_535])
        broken = [b"Exif\0\0MM\0*" + b"\xff" * 40, b"Exif\0\0" + bytes(60)]
        made.save(sink, "JPEG", exif=chance.choice([notes.tobytes(), *broken]))
    elif kind == "colours":
        made.convert("CMYK").save(sink, "JPEG", icc_profile=chance.choice([b"", b"\xff" * 200]))
    elif kind == "grey":
        deep = Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50)
        others = [made.convert(mode) for mode in ("P", "1", "LA")]
        chance.choice([deep, *others]).save(sink, "PNG", transparency=0)
    elif kind == "moving":
        of = one_of(chance, "GIF PNG WEBP TIFF")
        frames = [made if of == "WEBP" else made.resize((20 + k, 20)) for k in range(3)]
        made.save(sink, of, save_all=True, append_images=frames)
    elif kind == "cut":
        made.save(sink, one_of(chance, "JPEG PNG WEBP GIF JPEG2000"), progressive=True)
        return sink.getvalue()[: -chance.choice([1, 12, 60, 200])]
    elif kind == "notes":
        info = PngImagePlugin.PngInfo()
        info.add_text("Comment", "x" * 3_000_000, zip=True)
        made.save(sink, "PNG", pnginfo=info)
    elif kind == "narrow":
        made.resize(chance.choice([(1, 60_000), (60_000, 1), (3000, 3000)])).save(sink, "PNG")
    else:
        of = one_of(chance, "GIF BMP TIFF WEBP PPM PDF ICO TGA JPEG PCX JPEG2000 AVIF MPO")
        (made.resize((32, 32)) if of == "ICO" else made).save(
            sink, of
        )  # icons have 16 pixels or more
    return sink.getvalue()


def _sized(chance: random.Random) -> bytes:
    """An image whose header names another size than its pixels have."""
    from PIL import Image

    width, height = (chance.choice([0, 1, 9000, 65_535]) for _ in range(2))
    kind = one_of(chance, "PPM BMP GIF JPEG TIFF")
    sink = io.BytesIO()
    Image.new("RGB", (20, 10)).save(sink, kind)
    made = bytearray(sink.getvalue())
    if kind == "PPM":
        sizes = (
            f"{width * chance.choice([1, -1, 10**9])} {height} {chance.choice([255, 0, 65_536])}"
        )
        return f"P6 {sizes}\n".encode() + bytes(600)
    if kind == "BMP":
        made[18:26] = struct.pack(
            "<ii", width * chance.choice([1, -1]), height * chance.choice([1, -1, 30_000])
        )
    elif kind == "GIF":
        made[6:10] = struct.pack("<HH", width, height)
    elif kind == "JPEG":
        at = made.index(b"\xff\xc0") + 5
        made[at : at + 4] = struct.pack(">HH", height, width)
    else:
        at = made.index(struct.pack("<HHII", 256, 4, 1, 20))
        made[at + 8 : at + 12] = struct.pack("<I", chance.choice([0, 2**31 - 1, 2**32 - 1, 10**5]))
    return bytes(made)


def matlab(content: bytes, chance: random.Random) -> bytes:
    """A MATLAB file of version 5 or 7.3 with another array."""
    if content[:4] != b"\x89HDF" and content[512:516] != b"\x89HDF":
        from scipy.io import loadmat, savemat

        held = {
            name: value
            for name, value in loadmat(io.BytesIO(content)).items()
            if not name.startswith("__")
        }
        name = chance.choice(list(held))
        value = held[name]
        others = [
            value[:1],
            value[:0],
            value[..., None],
            value.ravel(),
            value.astype(float) + 0.5,
            value.astype(complex),
        ]
        held[name] = chance.choice([*others, "x", {"a": 1}, np.array([1, "x"], object)])
        sink = io.BytesIO()
        savemat(sink, held, do_compression=chance.random() < 0.5)
        return sink.getvalue()
    import h5py

    with TemporaryDirectory() as folder:
        path = Path(folder, "a.mat")
        path.write_bytes(content)
        with h5py.File(path, "a") as file:
            names: list[str] = []
            file.visit(names.append)
            name = chance.choice(names)
            del file[name]
            kind = one_of(chance, "gone group text huge loop elsewhere number references empty")
            if kind == "group":
                file.create_group(name)
            elif kind == "text":
                file[name] = "x" * chance.choice([1, 100_000])
            elif kind == "huge":  # 8 TB that are not stored
                file.create_dataset(name, (10**6, 10**6), "f8", chunks=(1000, 1000))
            elif kind == "loop":
                file[name] = h5py.SoftLink(chance.choice(["/", f"/{name}", "/nowhere"]))
            elif kind == "elsewhere":
                file[name] = h5py.ExternalLink("/etc/passwd", "/")
            elif kind == "number":
                file[name] = np.full(
                    chance.choice([(), (1, 1), (7,), (2, 1)]), chance.choice(FLOATS)
                )
            elif kind == "references":
                made = file.create_dataset(name, (2, 1), h5py.ref_dtype)
                made[0, 0] = file.ref
            elif kind == "empty":
                file[name] = h5py.Empty("f8")
        return path.read_bytes()


def idx(content: bytes, chance: random.Random) -> bytes:
    """An IDX file (MNIST) whose header names other sizes."""
    sizes = struct.pack(">I", chance.choice([0, 1, 2**31 - 1, 2**32 - 1, 10**6]))
    at = 4 * chance.randrange(1, max(2, content[3] + 1))
    kind = chance.choice([content[:2], b"\0\0"]) + bytes(
        chance.choice([(8, content[3]), (14, 3), (8, 255), (8, 0)])
    )
    return chance.choice([content[:at] + sizes + content[at + 4 :], kind + content[4:]])


def gzipped(content: bytes, chance: random.Random) -> bytes:
    """A gzip file of other content, or one that grows to 300 MB."""
    inner = gzip.decompress(content)
    bomb = inner[:16] + bytes(10**6)
    bombs = bomb * (300 if chance.random() < 0.05 else 1)
    made = chance.choice([idx(inner, chance), inner[:-1], inner + b"\0", b"", bombs])
    return gzip.compress(made, 1) + chance.choice([b"", b"", b"\0" * 9, b"x", gzip.compress(b"x")])
