"""Folders of Parquet shards that are written one by one, so that a killed run can resume."""

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

    All files are first written to a work folder: `rows/` there becomes the folder, and beside it
    are `started.json` (the inputs of the rows) and `part-00000.json` … (one for each finished
    shard). Every file is written aside and then renamed, so that no file there is incomplete.
    `close` renames `rows/` to `path`.

    Args:
        path: The folder.
        key: Digest of all inputs of the rows. A run with the same key keeps the finished shards in
            the work folder; other work is deleted.
        work: Folder for unfinished work, on the file system of `path`; see `unfinished` for the
            default.
        facts: Further values that must be the same, as JSON.

    Attributes:
        rows: The folder `rows/` in the work folder.

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
        inputs = {**(facts or {}), "key": key}
        inputs_file = self.work / "started.json"
        if not _has_content(inputs_file, inputs):
            shutil.rmtree(self.work, ignore_errors=True)
        self.rows.mkdir(parents=True, exist_ok=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.rows.stat().st_dev != self.path.parent.stat().st_dev:
            problem = f"not on the file system of {self.path}; choose a work folder that is"
            raise DataError(problem, file=self.work)
        write_json(inputs_file, inputs)

    @abstractmethod
    def _describe(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """Content of the file that describes the folder.

        Args:
            parts: Content of each shard's `part-00000.json`, in order: `file`, `rows`, `images`,
                `columns` and `failures`; see `write_shard`.
        """

    def finished(self, shard: int) -> bool:
        """Whether a shard was written completely, by this run or an earlier one."""
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

        Args:
            shard: Number of the shard.
            table: The rows.
            images: Number of images, those that failed included.
            failures: `{"image_id": …, "reason": …}` of each image that failed.
        """
        # Not in `rows/`, where a killed process would leave an incomplete file.
        complete_file = self.work / _file(shard)
        with write_aside(complete_file) as aside:
            write_parquet(table.frame, aside)
        complete_file.replace(self.rows / complete_file.name)
        entry = {
            "file": _file(shard),
            "rows": len(table),
            "images": images,
            "columns": table.frame.columns,
        }
        write_json(self._part(shard), {**entry, "failures": list(failures)})

    def close(self, shards: int) -> None:
        """Completes the folder, which replaces an earlier one, and deletes the work folder.

        Args:
            shards: Number of shards.

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


def _has_content(file: Path, value: dict[str, Any]) -> bool:
    """Whether a JSON file exists and has a value."""
    return file.exists() and read_json(file) == json.loads(json.dumps(value))


def _file(shard: int) -> str:
    return f"part-{shard:05d}.parquet"
