"""Sizes that an Arrow file declares, before anything is decompressed: a damaged one may ask for any amount of memory.

Only the part of the metadata that names sizes is read; they are FlatBuffers, see
arrow.apache.org/docs/format/Columnar.html.
"""

from __future__ import annotations

import struct
from io import SEEK_END, BufferedReader
from pathlib import Path

from farther.errors import DataError
from farther.tables.files import open_binary

#: Most bytes of a decompressed batch of rows with the dictionaries before it, and of the description of a batch.
BATCH_BYTES, METADATA_BYTES = 2**31, 2**26
#: First bytes of the file format, which is the stream format between eight bytes and a footer.
MAGIC = b"ARROW1"
#: Where the stream begins in a file of the file format.
STREAM = 8
#: Kinds of message.
DICTIONARIES, ROWS = 2, 3


def check_arrow(path: str | Path) -> None:
    """Checks the sizes in a file of Arrow's stream or file format, and that its end was written.

    Raises:
        DataError: the file is absent or cut off, a batch would have more than `BATCH_BYTES`, or it is not Arrow's.
    """
    with open_binary(path) as file:
        dictionaries = 0
        try:
            end = file.seek(0, SEEK_END)
            file.seek(0)
            file.seek(STREAM if file.read(len(MAGIC)) == MAGIC else 0)
            while (metadata := _metadata(file)) is not None:
                start = file.tell()
                kind, size, buffers = _message(metadata)
                if not 0 <= size <= end - start:
                    raise ValueError(f"{size:,} bytes of rows, but the file has {end - start:,} more")
                total = dictionaries + sum(_decompressed(file, start + place) for place in buffers)
                if total > BATCH_BYTES:
                    raise ValueError(f"{total:,} bytes when decompressed; at most {BATCH_BYTES:,} are")
                dictionaries = total if kind == DICTIONARIES else dictionaries
                file.seek(start + size)
        except (struct.error, IndexError, OSError, OverflowError, ValueError) as error:
            raise DataError(f"not a readable Arrow file: {error}; is it whole?", file=path) from None


def _metadata(file: BufferedReader) -> bytes | None:
    """Description of the next message; None at the end of the stream."""
    (size,) = struct.unpack("<i", file.read(4))
    if size == -1:
        (size,) = struct.unpack("<i", file.read(4))
    if not 0 <= size <= METADATA_BYTES:
        raise ValueError(f"a description of {size:,} bytes")
    return file.read(size) if size else None


def _message(metadata: bytes) -> tuple[int, int, list[int]]:
    """Kind of a message, size of its content, and places in it of the buffers that are compressed."""
    (root,) = struct.unpack_from("<I", metadata)
    fields = _fields(metadata, root)
    kind = metadata[fields[1]] if fields[1] else 0
    (size,) = struct.unpack_from("<q", metadata, fields[3]) if fields[3] else (0,)
    batch = _table(metadata, fields[2]) if kind in (DICTIONARIES, ROWS) and fields[2] else [0] * 4
    if kind == DICTIONARIES and batch[1]:
        batch = _table(metadata, batch[1])
    if not (batch[2] and batch[3]):  # without buffers, or not compressed
        return kind, size, []
    start = batch[2] + struct.unpack_from("<I", metadata, batch[2])[0]
    (count,) = struct.unpack_from("<I", metadata, start)
    places = struct.iter_unpack("<qq", metadata[start + 4 : start + 4 + 16 * count])
    return kind, size, [place for place, length in places if length]


def _fields(metadata: bytes, table: int) -> list[int]:
    """Where the first four fields of a table are; 0 for one that it does not have."""
    start = table - struct.unpack_from("<i", metadata, table)[0]
    if start < 0:
        raise ValueError("its description is damaged")
    (size,) = struct.unpack_from("<H", metadata, start)
    count = min(4, max(0, size // 2 - 2))
    offsets = struct.unpack_from(f"<{count}H", metadata, start + 4)
    return [table + offset if offset else 0 for offset in (*offsets, *[0] * (4 - count))]


def _table(metadata: bytes, place: int) -> list[int]:
    """The fields of the table that a field refers to."""
    return _fields(metadata, place + struct.unpack_from("<I", metadata, place)[0])


def _decompressed(file: BufferedReader, place: int) -> int:
    """Size of a buffer once it is decompressed, which it begins with; 0 for one that is stored as it is."""
    file.seek(place)
    (size,) = struct.unpack("<q", file.read(8))
    if size < -1:
        raise ValueError(f"a buffer of {size:,} bytes")
    return max(0, size)
