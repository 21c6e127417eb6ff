"""Folders of Parquet shards that are written one by one, so that a killed run resumes where it stopped."""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from farther.errors import DataError
from farther.tables.documents import read_json, write_json
from farther.tables.parquet import write_parquet
from farther.tables.table import Table
from farther.tables.writing import delete_work, unfinished, write_aside


class ShardWriter(ABC):
    """Writes a folder shard by shard: `part-00000.parquet` …, and a JSON file that describes them.

    All is first written to a work folder: `rows/` there is the folder to be, and beside it are
    `started.json` (what the rows are made from) and `part-00000.json` … (one for each finished
    shard). Every file is written aside and then renamed, so that a file that is found there is
    whole. `close` renames `rows/` to `path`.

    Args:
        path: The folder to be.
        key: Digest of all that the rows are made from. A run with the same key keeps the finished
            shards that it finds in the work folder; other work is deleted.
        work: Folder for unfinished work, on the file system of `path`; see `unfinished` for the
            default.
        facts: What else must be the same, as JSON.

    Raises:
        DataError: `work` and `path` are on different file systems, so that no rename could connect
            them.
    """

    #: Name of the file that describes the folder.
    DESCRIPTION: ClassVar[str]

    def __init__(
        self,
        path: str | Path,
        key: str,
        work: str | Path | None = None,
        facts: dict[str, Any] | None = None,
    ):
        self.path = Path(path)
        self.key = key
        self.work = Path(work) if work is not None else unfinished(self.path)
        self.rows = self.work / "rows"
        started = {**(facts or {}), "key": key}
        earlier = self.work / "started.json"
        if not earlier.exists() or read_json(earlier) != json.loads(json.dumps(started)):
            shutil.rmtree(self.work, ignore_errors=True)
        self.rows.mkdir(parents=True, exist_ok=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.rows.stat().st_dev != self.path.parent.stat().st_dev:
            raise DataError(
                f"not on the file system of {self.path}; choose a work folder that is",
                file=self.work,
            )
        write_json(earlier, started)

    @abstractmethod
    def _describe(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """Content of the file that describes the folder, from the entries of all shards."""

    def finished(self, shard: int) -> bool:
        """Whether a shard was written whole, by this run or an earlier one."""
        return self._part(shard).exists() and (self.rows / _file(shard)).exists()

    def failures(self, shard: int) -> list[dict[str, str]]:
        """The failures that a finished shard was written with.

        Raises:
            DataError: the shard is not finished.
        """
        return read_json(self._part(shard))["failures"]

    def write_shard(
        self, shard: int, table: Table, images: int = 0, failures: Sequence[dict[str, str]] = ()
    ) -> None:
        """Writes the rows of one shard.

        `images` counts those that failed too; `failures` holds `{"image_id": …, "reason": …}` for
        each of these.
        """
        whole = self.work / _file(
            shard
        )  # not in the folder to be, where a killed process would leave half of it
        with write_aside(whole) as aside:
            write_parquet(table.frame, aside)
        whole.replace(self.rows / whole.name)
        entry = {
            "file": _file(shard),
            "rows": len(table),
            "images": images,
            "columns": table.frame.columns,
        }
        write_json(self._part(shard), {**entry, "failures": list(failures)})

    def close(self, shards: int) -> None:
        """Makes the folder from all shards. What was at `path` is replaced, and the work folder deleted.

        Raises:
            DataError: a shard from 0 to `shards` - 1 was not written.
        """
        parts = []
        for shard in range(shards):
            if not self.finished(shard):
                raise DataError(f"shard {shard} of {shards} was never written", file=self.work)
            parts.append(read_json(self._part(shard)))
        write_json(self.rows / self.DESCRIPTION, self._describe(parts))
        with write_aside(self.path) as aside:
            self.rows.replace(aside)
        delete_work(self.work)

    def _part(self, shard: int) -> Path:
        return self.work / f"part-{shard:05d}.json"


def _file(shard: int) -> str:
    return f"part-{shard:05d}.parquet"
