"""Sizes that an Arrow stream declares, before anything is decompressed: a damaged one may ask for any amount of memory.

Only the part of the metadata that names sizes is read; they are FlatBuffers, see
arrow.apache.org/docs/format/Columnar.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

#: Most bytes of a decompressed batch of rows with the dictionaries before it.
BATCH_BYTES = 2**31


def check_sizes(stream: pa.NativeFile) -> None:
    """Reads the messages of a stream up to its end, without decompressing them.

    Raises:
        ValueError, struct.error: a batch would have more than `BATCH_BYTES`, or its metadata are
            damaged.
    """
    dictionaries = 0
    for message in pa.ipc.MessageReader.open_stream(stream):
        total = dictionaries + sum(_decompressed(message))
        if total > BATCH_BYTES:
            raise ValueError(f"{total:,} bytes when decompressed; at most {BATCH_BYTES:,} are")
        dictionaries = total if message.type == "dictionary" else dictionaries


def _decompressed(message: pa.ipc.Message) -> Iterator[int]:
    """Sizes of the compressed buffers of a message once they are decompressed, with which they begin."""
    if message.type not in ("record batch", "dictionary"):
        return
    metadata, body = message.metadata.to_pybytes(), message.body
    batch = _table(metadata, _table(metadata, 0)[2])
    if message.type == "dictionary":
        batch = _table(metadata, batch[1])
    if not (batch[2] and batch[3]):  # without buffers, or not compressed
        return
    start = batch[2] + struct.unpack_from("<I", metadata, batch[2])[0]
    (count,) = struct.unpack_from("<I", metadata, start)
    for place, length in struct.iter_unpack("<qq", metadata[start + 4 : start + 4 + 16 * count]):
        (size,) = struct.unpack_from("<q", body, place) if length else (0,)
        if size < -1:
            raise ValueError(f"a buffer of {size:,} bytes")
        yield max(0, size)  # −1 for one that is stored as it is


def _table(metadata: bytes, place: int) -> list[int]:
    """Where the first four fields of the table are that a field refers to; 0 for one that it does not have."""
    table = place + struct.unpack_from("<I", metadata, place)[0]
    start = table - struct.unpack_from("<i", metadata, table)[0]
    count = min(4, struct.unpack_from("<H", metadata, start)[0] // 2 - 2)
    offsets = struct.unpack_from(f"<{count}H", metadata, start + 4)
    return [table + offset if offset else 0 for offset in (*offsets, *[0] * (4 - count))]
