"""A JSON list that is written as it grows, so that memory does not."""

from __future__ import annotations

from pathlib import Path


class JsonList:
    """Writes `[item, item, ...]`, one item a line, between an optional head and tail."""

    def __init__(self, path: Path, head: str = ""):
        self._file = path.open("w", encoding="utf-8")
        self._file.write(head + "[")
        self._separator = "\n"

    def append(self, item: str) -> None:
        """Add one item, already encoded."""
        self._file.write(self._separator + item)
        self._separator = ",\n"

    def close(self, tail: str = "") -> None:
        """End the list, write the tail, close the file."""
        self._file.write("\n]" + tail + "\n")
        self._file.close()
