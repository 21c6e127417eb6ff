"""Output that is kept from one run of a stage to the next, and made again only where its key changed.

An item is a file or a folder below the output folder. Its key is a digest of all that it is made from: inputs,
parameters and code (`farther.code.digest_of`). Keys are stored in `keys.json` beside the items, so they travel with
them through `dvc push` and `dvc pull`.

>>> from tempfile import TemporaryDirectory
>>> folder = TemporaryDirectory()
>>> items = Keyed(folder.name)
>>> with items.make("knn/test.txt", key="a1") as path:
...     _ = path.write_text("scores")
>>> items.is_current("knn/test.txt", "a1"), items.is_current("knn/test.txt", "b2")
(True, False)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from farther.errors import DataError
from farther.tables.documents import read_json, write_json
from farther.tables.files import inside
from farther.tables.writing import locked, write_aside

KEYS = "keys.json"


class Keyed:
    """The items of one output folder and their keys; one process at a time may write to it.

    Args:
        folder: The output folder; made when the first item is.

    Raises:
        DataError: its `keys.json` is damaged, or it is not a folder, or a link to a folder that it lies in.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        if self.folder.is_symlink() and self.folder.absolute().is_relative_to(os.path.realpath(folder)):
            problem = "a link to a folder that contains it, whose other files would be deleted: delete the link"
            raise DataError(problem, file=folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise DataError("not a folder: delete it, and it is made again", file=folder)
        file = self.folder / KEYS
        keys = read_json(file) if file.exists() else {}
        if not isinstance(keys, dict) or not all(isinstance(key, str) for key in keys.values()):
            raise DataError("expected {item: key}; delete the file, and its items are made again", file=file)
        self._keys: dict[str, str] = keys

    def path(self, item: str) -> Path:
        """The file or folder of an item.

        Raises:
            DataError: its name leaves the folder.
        """
        return inside(self.folder, item)

    def is_current(self, item: str, key: str) -> bool:
        """Whether an item is there and was made under this key."""
        return self.key(item) == key

    def key(self, item: str) -> str | None:
        """The key that an item was made under; None where it is not there."""
        return self._keys.get(item) if self.path(item).exists() else None

    @contextmanager
    def make(self, item: str, key: str) -> Iterator[Path]:
        """A path to write an item to; when the block ends without an error, it replaces the item under its new key.

        A process that is killed leaves the earlier item, or none, but never half of one.
        """
        with write_aside(self.path(item)) as aside:
            yield aside
            self._forget(item)  # between here and `record` the item may be of either key: then it is made again
        self.record(item, key)

    def record(self, item: str, key: str) -> None:
        """Stores the key of an item that was written by other means, whole."""
        self._keys[item] = key
        self._save()

    def update(
        self,
        keys: Mapping[str, str],
        make: Callable[[str, Path], str],
        log: Callable[[str], None],
        is_whole: Callable[[Path], bool] = Path.exists,
    ) -> None:
        """Makes the items whose key changed, and deletes all others.

        Args:
            keys: Key of each item.
            make: Writes an item to a path and returns a summary of it.
            log: Takes one line per item.
            is_whole: Whether the file or folder of an item that was made is undamaged.
        """
        with locked(self.folder):
            for item in self.keep_only(keys):
                log(f"{item}: removed")
            for item, key in keys.items():
                if self.is_current(item, key) and is_whole(self.path(item)):
                    log(f"{item}: unchanged")
                    continue
                with self.make(item, key) as aside:
                    summary = make(item, aside)
                log(f"{item}: {summary}")

    def keep_only(self, items: Collection[str]) -> list[str]:
        """Deletes all items but these, and everything else in the folder that belongs to none of them.

        Returns:
            Names of the deleted items, sorted.
        """
        removed = sorted(set(self._keys) - set(items))
        wanted = {self.path(item) for item in items}
        above = {parent for path in wanted for parent in path.parents}
        for name in removed:
            del self._keys[name]
        if self.folder.exists():
            _delete_others(self.folder, wanted | {self.folder / KEYS}, above)
            self._save()
        return removed

    def _forget(self, item: str) -> None:
        if self._keys.pop(item, None) is not None:
            self._save()

    def _save(self) -> None:
        write_json(self.folder / KEYS, dict(sorted(self._keys.items())))


def _delete_others(folder: Path, wanted: set[Path], above: set[Path]) -> None:
    for entry in folder.iterdir():
        if entry in wanted:
            continue
        if entry.is_dir() and not entry.is_symlink():
            if entry in above:
                _delete_others(entry, wanted, above)
            else:
                shutil.rmtree(entry)
        else:
            entry.unlink()
