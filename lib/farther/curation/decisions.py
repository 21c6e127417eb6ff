"""Reviewers' decisions about images: one line per decision, append-only, in a file under version control.

    time,reviewer,dataset,subset,image_id,decision,id_class,note
    2026-11-21T09:30:02.114Z,ann,coco,val2017,000000000004,remove,person,behind the bus
    2026-11-21T09:30:05.870Z,ann,coco,val2017,000000000009,near,,
    2026-11-21T09:30:07.002Z,ann,coco,val2017,000000000009,undo,,

A line is never changed or taken out: `undo` takes back the reviewer's last decision on that image. So a line is one
`write`, two writers cannot destroy each other's lines, and git joins two branches by keeping the lines of both.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from farther.datasets.records import read_text
from farther.errors import DataError, FartherError

Choice = Literal["keep", "remove", "near", "far"]

#: Possible decisions about an image.
CHOICES: tuple[Choice, ...] = get_args(Choice)

#: Takes back the reviewer's last decision on the image.
UNDO = "undo"

COLUMNS = ("time", "reviewer", "dataset", "subset", "image_id", "decision", "id_class", "note")
HEADER = ",".join(COLUMNS) + "\n"

_TICK = timedelta(milliseconds=1)


class ImageKey(NamedTuple):
    """Names an image of a benchmark's OOD sources."""

    dataset: str
    subset: str
    image_id: str

    def __str__(self) -> str:
        return " ".join(self)


@dataclass(frozen=True)
class Decision:
    """One line of a decisions file.

    Args:
        time: Time of the decision; it orders a reviewer's decisions.
        reviewer: Name of the reviewer: letters, digits, spaces and `.@_-`, at most 80.
        image: The image.
        decision: `keep`: the image stays, near or far as its labels say, whatever ID class or overlap is labelled;
            `remove`; `near`; `far`; or `undo`.
        id_class: For `remove`, the ID class that the image shows; "" for another reason, which `note` then gives.
        note: Free text in one line.

    Raises:
        DataError: a field has an invalid value; names it.
    """

    time: datetime
    reviewer: str
    image: ImageKey
    decision: str
    id_class: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.time.tzinfo is None:
            raise DataError(f"expected a time with its zone, found {self.time.isoformat()}", field="time")
        if not re.fullmatch(r"[\w.@-](?:[\w .@-]{0,78}[\w.@-])?", self.reviewer):
            problem = f"expected letters, digits, spaces and '.@_-', at most 80 of them, found {self.reviewer!r}"
            raise DataError(problem, field="reviewer")
        if self.decision not in (*CHOICES, UNDO):
            known = ", ".join((*CHOICES, UNDO))
            raise DataError(f"expected one of {known}, found {self.decision!r}", field="decision")
        if self.id_class and self.decision != "remove":
            raise DataError(f"only 'remove' has an ID class, found {self.id_class!r}", field="id_class")
        if self.decision == "remove" and not (self.id_class or self.note):
            raise DataError("'remove' needs the ID class that the image shows, or a note that says why", field="note")
        for name in (*ImageKey._fields, "id_class", "note"):
            value = getattr(self.image, name) if name in ImageKey._fields else getattr(self, name)
            if not value.isprintable():
                raise DataError(f"expected text in one line, found {value!r}", field=name)

    def __str__(self) -> str:
        return " → ".join(filter(None, (self.decision, self.id_class)))

    def to_line(self) -> str:
        """Its line of the file, with the line end."""
        written = io.StringIO()
        time = self.time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        row = (time, self.reviewer, *self.image, self.decision, self.id_class, self.note)
        csv.writer(written, lineterminator="\n").writerow(row)
        return written.getvalue()


class Decisions:
    """Decisions of several reviewers, without those that were taken back.

    Args:
        lines: Row in the file and decision, in any order; a line that occurs twice (after a merge in git) counts once.
        file: Name in messages.

    Attributes:
        standing: Image → reviewer → the reviewer's last decision on it that was not taken back.

    Raises:
        DataError: two decisions of a reviewer on an image have the same time, or a decision to take back is absent.
    """

    def __init__(self, lines: Iterable[tuple[int, Decision]] = (), file: str | Path | None = None):
        self.file = file
        self.current: dict[ImageKey, dict[str, Decision]] = {}
        self._active: dict[str, list[Decision]] = {}
        self._rows: dict[Decision, int] = {}
        self._last: dict[tuple[str, ImageKey], Decision] = {}
        self._times: dict[str, datetime] = {}
        for row, decision in sorted(lines, key=lambda line: line[1].time):
            self.add(decision, row)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, decision: Decision, row: int) -> None:
        """Adds a decision that is not older than the reviewer's others on the image; for errors see the class."""
        if decision in self._rows:
            return
        active = self._active.setdefault(decision.reviewer, [])
        before = self._last.get((decision.reviewer, decision.image))
        if before is not None and before.time == decision.time:
            problem = (
                f"{decision.reviewer} says '{decision}' about {decision.image}, and '{before}' in row "
                f"{self._rows[before]}, both at {decision.time.isoformat()}: delete one of the two"
            )
            raise DataError(problem, file=self.file, row=row, field="decision")
        if decision.decision == UNDO:
            self._take_back(decision, active, row)
        else:
            active.append(decision)
            self.current.setdefault(decision.image, {})[decision.reviewer] = decision
        self._last[decision.reviewer, decision.image] = decision
        self._times[decision.reviewer] = max(decision.time, self._times.get(decision.reviewer, decision.time))
        self._rows[decision] = row

    def latest(self, reviewer: str) -> Decision | None:
        """The reviewer's last decision that was not taken back."""
        active = self._active.get(reviewer)
        return active[-1] if active else None

    def last_time(self, reviewer: str) -> datetime | None:
        """Time of the reviewer's last line, None without lines."""
        return self._times.get(reviewer)

    def reviewers(self) -> list[str]:
        """Reviewers with a decision that was not taken back, sorted."""
        return sorted(name for name, active in self._active.items() if active)

    def images(self) -> set[ImageKey]:
        """Images of all lines, those that were taken back included."""
        return {decision.image for decision in self._rows}

    def row(self, decision: Decision) -> int:
        """Row of the file with a decision."""
        return self._rows[decision]

    def check(self, known: Mapping[tuple[str, str], Collection[str]], id_classes: Collection[str]) -> None:
        """Raises an error for a decision, taken back or not, on an unknown image or ID class.

        Args:
            known: Dataset and subset of each OOD source → its images.
            id_classes: The ID classes.

        Raises:
            DataError: names file, row and field.
        """
        for decision, row in self._rows.items():
            dataset, subset, image_id = decision.image
            if (dataset, subset) not in known:
                field = "subset" if any(dataset == other for other, _ in known) else "dataset"
                sources = ", ".join(" ".join(source) for source in sorted(known))
                problem = f"the benchmark draws no OOD images from {dataset} {subset}. Known: {sources}"
                raise DataError(problem, file=self.file, row=row, field=field)
            if image_id not in known[dataset, subset]:
                problem = f"{dataset} {subset} has no image {image_id!r}"
                raise DataError(problem, file=self.file, row=row, field="image_id")
            if decision.id_class and decision.id_class not in id_classes:
                problem = f"{decision.id_class!r} is not an ID class. Known: {', '.join(id_classes)}"
                raise DataError(problem, file=self.file, row=row, field="id_class")

    def _take_back(self, decision: Decision, active: list[Decision], row: int) -> None:
        mine = [index for index, other in enumerate(active) if other.image == decision.image]
        if not mine:
            problem = f"{decision.reviewer} has no decision on {decision.image} to take back"
            raise DataError(problem, file=self.file, row=row, field="decision")
        del active[mine[-1]]
        if len(mine) > 1:
            self.current[decision.image][decision.reviewer] = active[mine[-2]]
            return
        del self.current[decision.image][decision.reviewer]
        if not self.current[decision.image]:
            del self.current[decision.image]


class DecisionsFile:
    """A decisions file that several programs may append to at the same time.

    Args:
        path: The file; it need not exist before the first decision.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def read(self) -> Decisions:
        """All decisions; none when the file does not exist.

        Raises:
            DataError: a line is not one of this form; names file, row and field. Or see `Decisions`.
        """
        return Decisions(_parsed(self.path), self.path)

    def state(self) -> tuple[int, ...]:
        """Inode, size and time of the file, () if absent; differs after a change."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Locks the file, creating it with its header where absent; yields its descriptor."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not os.fstat(descriptor).st_size:
                self._write(descriptor, HEADER)
                _sync_folder(self.path.parent)
            yield descriptor
        finally:
            os.close(descriptor)

    def append(self, descriptor: int, decision: Decision) -> None:
        """Appends a line and waits until it is on disk.

        Args:
            descriptor: Of the locked file.
            decision: The decision.

        Raises:
            FartherError: the line cannot be written; the file is unchanged.
        """
        size = os.fstat(descriptor).st_size
        unfinished = size and os.pread(descriptor, 1, size - 1) != b"\n"
        self._write(descriptor, ("\n" if unfinished else "") + decision.to_line())

    def _write(self, descriptor: int, text: str) -> None:
        size, line = os.fstat(descriptor).st_size, text.encode()
        try:
            written = os.write(descriptor, line)
            if written == len(line):
                os.fsync(descriptor)
                return
            problem = f"the disk took {written} of {len(line)} bytes"
        except OSError as error:
            problem = str(error)
        os.ftruncate(descriptor, size)
        raise FartherError(f"{self.path}: the decision was not saved: {problem}")


def time_after(before: datetime | None) -> datetime:
    """Now in whole milliseconds, but later than `before`: decisions keep their order when a clock is set back."""
    now = datetime.now(UTC)
    now = now.replace(microsecond=now.microsecond // 1000 * 1000)
    return now if before is None else max(now, before + _TICK)


def _parsed(path: Path) -> Iterator[tuple[int, Decision]]:
    if not path.exists():
        return
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        header = next(reader, [])
        if tuple(header) != COLUMNS:
            problem = f"expected the columns {','.join(COLUMNS)}, found {','.join(header) or 'nothing'}"
            raise DataError(problem, file=path, row=1)
        for values in reader:
            if values:
                yield reader.line_num, _decision(values, path, reader.line_num)
    except csv.Error as error:
        raise DataError(f"not CSV: {error}", file=path, row=reader.line_num) from None


def _decision(values: list[str], path: Path, row: int) -> Decision:
    if len(values) != len(COLUMNS):
        problem = (
            f"expected {len(COLUMNS)} values, found {len(values)}: complete the line, or delete it if it was cut off"
        )
        raise DataError(problem, file=path, row=row)
    time, reviewer, dataset, subset, image_id, decision, id_class, note = values
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        problem = f"expected a time like 2026-11-21T09:30:02.114Z, found {time!r}"
        raise DataError(problem, file=path, row=row, field="time") from None
    try:
        return Decision(moment, reviewer, ImageKey(dataset, subset, image_id), decision, id_class, note)
    except DataError as error:
        raise DataError(error.problem, file=path, row=row, field=error.field) from None


def _sync_folder(folder: Path) -> None:
    """Writes a new file's folder entry to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
