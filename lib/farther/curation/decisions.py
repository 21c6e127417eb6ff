"""Reviewers' decisions about images, in an append-only file under version control.

One line per decision:

    time,reviewer,dataset,subset,image_id,decision,id_class,note
    2026-11-21T09:30:02.114Z,ann,coco,val2017,000000000004,remove,person,behind the bus
    2026-11-21T09:30:05.870Z,ann,coco,val2017,000000000009,near,,
    2026-11-21T09:30:07.002Z,ann,coco,val2017,000000000009,undo,,

A line is never changed or taken out: `undo` takes back the reviewer's last decision on that image.
So a line is one `write`, two writers cannot destroy each other's lines, and git joins two branches
by keeping the lines of both. A value that a spreadsheet would take for a formula begins with an
apostrophe.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from io import FileIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import polars as pl

from farther.errors import DataError, FartherError, known_names
from farther.tables.arguments import instance
from farther.tables.files import is_present, read_text, refuse_broken_link, separator_of
from farther.text.escaping import of_spreadsheet, spreadsheet

Choice = Literal["keep", "remove", "near", "far"]

#: Possible decisions about an image.
CHOICES: tuple[Choice, ...] = get_args(Choice)

#: Takes back the reviewer's last decision on the image.
UNDO = "undo"

COLUMNS = ("time", "reviewer", "dataset", "subset", "image_id", "decision", "id_class", "note")
HEADER = ",".join(COLUMNS) + "\n"

#: Columns that name an image.
IMAGE = ("dataset", "subset", "image_id")

#: Columns that name an image and its reviewer.
_IMAGE_AND_REVIEWER = (*IMAGE, "reviewer")

#: One row per line: its number in the file, then the file's columns.
LINES = pl.Schema(
    [
        ("row", pl.Int64),
        ("time", pl.Datetime("us", "UTC")),
        *((name, pl.String) for name in COLUMNS[1:]),
    ]
)


@dataclass(frozen=True)
class _FieldCheck:
    """A condition on one field of a line.

    Args:
        field: Name of the column.
        is_wrong: True for rows with a wrong value.
        problem: Text of the error, with names of columns in braces.
    """

    field: str
    is_wrong: pl.Expr
    problem: str


def _field_checks() -> list[_FieldCheck]:
    """The checks of all fields but the time."""
    reviewer = pl.col("reviewer")
    is_name = reviewer.str.contains(r"^[\w.@-](?:[\w .@-]{0,78}[\w.@-])?$")
    decision = pl.col("decision")
    has_class = pl.col("id_class") != ""
    known_decisions = (*CHOICES, UNDO)
    checks = [
        _FieldCheck(
            "reviewer",
            ~is_name,
            "expected letters, digits, spaces and '.@_-', at most 80 of them, "
            "found {reviewer!r:.200}",
        ),
        _FieldCheck(
            "decision",
            ~decision.is_in(known_decisions),
            f"expected one of {', '.join(known_decisions)}, found {{decision!r}}",
        ),
        _FieldCheck(
            "id_class",
            has_class & (decision != "remove"),
            "only 'remove' has an ID class, found {id_class!r:.200}",
        ),
        _FieldCheck(
            "note",
            (decision == "remove") & ~has_class & (pl.col("note") == ""),
            "'remove' needs the ID class that the image shows, or a note that says why",
        ),
    ]
    for name in (*IMAGE, "id_class", "note"):
        has_control_characters = pl.col(name).str.contains(r"[\p{C}\p{Zl}\p{Zp}]")
        problem = f"expected text in one line, found {{{name}!r}}"
        checks.append(_FieldCheck(name, has_control_characters, problem))
    return checks


_CHECKS = _field_checks()


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
        time: Time of the decision, with its zone; it orders a reviewer's decisions.
        reviewer: Name of the reviewer: letters, digits, spaces and `.@_-`, at most 80.
        dataset, subset, image_id: The image.
        decision: `keep`: the image stays, near or far as its labels say, whatever ID class or
            overlap is labelled; `remove`; `near`; `far`; or `undo`.
        id_class: For `remove`, the ID class that the image shows; "" for another reason, which
            `note` then gives.
        note: Free text in one line.

    Raises:
        DataError: a field has an invalid value; names it.
    """

    time: datetime
    reviewer: str
    dataset: str
    subset: str
    image_id: str
    decision: str
    id_class: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _refuse_other_than_time(self.time, "time")
        for name in COLUMNS[1:]:
            instance(getattr(self, name), str, name)
        _check(pl.DataFrame([{"row": None, **asdict(self)}], schema=LINES), None)

    def __str__(self) -> str:
        if self.id_class:
            return f"{self.decision} → {self.id_class}"
        return self.decision

    @property
    def image(self) -> ImageKey:
        """The image."""
        return ImageKey(self.dataset, self.subset, self.image_id)

    def to_line(self) -> str:
        """Its line of the file, with the line end."""
        time = self.time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {**asdict(self), "time": time}
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(map(spreadsheet, fields.values()))
        return line.getvalue()


class ReviewDecisions:
    """Decisions of several reviewers.

    Args:
        lines: Frame of `LINES`, in any order; a line that occurs twice (after a merge in git)
            counts once.
        file: Name in messages.

    Attributes:
        frame: The lines by time, with the column `is_active`: a decision that was not taken back.
        current: Of each reviewer and image, the last active line.

    Raises:
        DataError: a value is invalid, two decisions of a reviewer on an image have the same time,
            or a decision to take back is absent; names row and field.
    """

    def __init__(self, lines: pl.DataFrame | None = None, file: str | Path | None = None):
        self.file = file
        if lines is None:
            lines = pl.DataFrame(schema=LINES)
        instance(lines, pl.DataFrame, "lines")
        if lines.schema != LINES:
            problem = f"expected columns {LINES}, found {lines.schema}"
            raise DataError(problem, file=file, field="lines")
        _check(lines, file)
        unique = lines.unique(COLUMNS, keep="first", maintain_order=True)
        by_time = unique.sort("time", maintain_order=True)

        # The number of active decisions after each line: a decision adds one, `undo` takes one.
        is_undo = pl.col("decision") == UNDO
        depth = pl.when(is_undo).then(-1).otherwise(1).cum_sum().over(_IMAGE_AND_REVIEWER)
        line_before = (
            pl.col("time", "row", "decision")
            .shift()
            .over(_IMAGE_AND_REVIEWER)
            .name.suffix("_before")
        )
        checked = by_time.with_columns(line_before, depth=depth)
        self._refuse_equal_times(checked)
        self._refuse_undo_of_nothing(checked)

        # A decision is active if no later line takes the number below its own.
        is_kept = pl.col("depth") <= pl.col("depth").cum_min(reverse=True).over(_IMAGE_AND_REVIEWER)
        self.frame = checked.select(*LINES, is_active=~is_undo & is_kept)
        self.current = self.frame.filter("is_active").unique(
            _IMAGE_AND_REVIEWER, keep="last", maintain_order=True
        )

    def __len__(self) -> int:
        return self.frame.height

    def _refuse_equal_times(self, lines: pl.DataFrame) -> None:
        problem = (
            "{reviewer} says '{decision}' about {dataset} {subset} {image_id}, and "
            "'{decision_before}' in row {row_before}, both at {time}: delete one of the two"
        )
        has_equal_time = pl.col("time") == pl.col("time_before")
        _refuse(lines.filter(has_equal_time), "decision", problem, self.file)

    def _refuse_undo_of_nothing(self, lines: pl.DataFrame) -> None:
        problem = "{reviewer} has no decision on {dataset} {subset} {image_id} to undo"
        _refuse(lines.filter(pl.col("depth") < 0), "decision", problem, self.file)

    def latest(self, reviewer: str) -> Decision | None:
        """The reviewer's last decision that was not taken back."""
        active = self.frame.filter("is_active", reviewer=reviewer)
        if not active.height:
            return None
        return Decision(**active.select(COLUMNS).row(-1, named=True))

    def last_time(self, reviewer: str) -> datetime | None:
        """Time of the reviewer's last line, None without lines."""
        return self.frame.filter(reviewer=reviewer)["time"].max()  # type: ignore[return-value]

    def images(self) -> pl.DataFrame:
        """Images of all lines, those that were taken back included, each once."""
        return self.frame.select(IMAGE).unique(maintain_order=True)

    def check(self, known: pl.DataFrame, id_classes: Collection[str]) -> None:
        """Raises an error for a decision, taken back or not, on an unknown image or ID class.

        Args:
            known: The images of the benchmark's OOD sources; has the columns of `IMAGE`.
            id_classes: Names of the ID classes.

        Raises:
            DataError: names file, row and field.
        """
        sources = known.select("dataset", "subset").unique().sort("dataset", "subset")
        names = known_names(" ".join(source) for source in sources.iter_rows())
        problem = f"the benchmark draws no OOD images from {{dataset}} {{subset}}. {names}"
        of_other_sources = self.frame.join(sources, on=["dataset", "subset"], how="anti")
        is_known_dataset = pl.col("dataset").is_in(sources["dataset"].to_list())
        _refuse(of_other_sources.filter(~is_known_dataset), "dataset", problem, self.file)
        _refuse(of_other_sources, "subset", problem, self.file)

        of_unknown_images = self.frame.join(known, on=IMAGE, how="anti")
        problem = "{dataset} {subset} has no image {image_id!r}"
        _refuse(of_unknown_images, "image_id", problem, self.file)

        is_class_or_none = pl.col("id_class").is_in(["", *id_classes])
        problem = f"{{id_class!r}} is not an ID class. {known_names(id_classes)}"
        _refuse(self.frame.filter(~is_class_or_none), "id_class", problem, self.file)


class DecisionsFile:
    """A decisions file that several programs may append to at the same time.

    Args:
        path: The file; it need not exist before the first decision.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def read(self) -> ReviewDecisions:
        """All decisions; none when the file does not exist.

        Raises:
            DataError: the file is a broken link, or a line is not one of this form; names file, row
                and field. Or see `ReviewDecisions`.
        """
        if not is_present(self.path):
            return ReviewDecisions(file=self.path)
        return ReviewDecisions(_lines(self.path), self.path)

    def state(self) -> tuple[int, ...]:
        """Inode, size and time of the file, () if absent; differs after a change.

        Raises:
            DataError: the file is a broken link.
        """
        if not is_present(self.path):
            return ()
        try:
            status = self.path.stat()
        except FileNotFoundError:  # deleted since
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns

    @contextmanager
    def locked(self) -> Iterator[FileIO]:
        """Locks the file, creating it with its header where absent; yields it, opened for `append`.

        Raises:
            DataError: the file, or its folder, is a broken link.
            FartherError: the file cannot be opened or created.
        """
        refuse_broken_link(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            opened = self.path.open("ab+", buffering=0)
        except OSError as error:
            raise FartherError(f"{self.path}: no decision can be saved: {error.strerror}") from None
        with opened as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_size:
                self._write(file, HEADER)
            yield file

    def append(self, file: FileIO, decision: Decision) -> None:
        """Appends a line to the locked file and waits until it is on disk.

        Raises:
            FartherError: the line cannot be written; the file is unchanged.
        """
        file.seek(-1, os.SEEK_END)
        line = decision.to_line()
        if file.read(1) != b"\n":
            line = f"\n{line}"
        self._write(file, line)

    def _write(self, file: FileIO, text: str) -> None:
        size_before = os.fstat(file.fileno()).st_size
        content = text.encode()
        try:
            count = file.write(content)
            if count == len(content):
                os.fsync(file)
                return
            problem = f"only {count} of {len(content)} bytes were written"
        except OSError as error:
            problem = str(error)
        file.truncate(size_before)
        raise FartherError(f"{self.path}: the decision was not saved: {problem}")


def time_after(before: datetime | None) -> datetime:
    """Now in whole milliseconds, but later than `before`.

    So decisions keep their order when a clock is set back.

    Raises:
        DataError: `before` is no time with a zone.
    """
    if before is not None:
        _refuse_other_than_time(before, "before")
    now = datetime.now(UTC)
    now = now.replace(microsecond=now.microsecond // 1000 * 1000)
    if before is None:
        return now
    return max(now, before + timedelta(milliseconds=1))


def _refuse_other_than_time(time: Any, name: str) -> None:
    """Refuses what is no time with its zone."""
    instance(time, datetime, name)
    if time.utcoffset() is None:
        raise DataError(
            f"{time} has no zone: write it as datetime(…, tzinfo=UTC)",
            field=name,
        )


def _lines(path: Path) -> pl.DataFrame:
    """The lines of a file as a frame of `LINES`."""
    as_text = pl.DataFrame(_rows(path), schema={**LINES, "time": pl.String})
    parsed_time = pl.col("time").str.to_datetime("%+", time_unit="us", strict=False)
    lines = as_text.with_columns(time=parsed_time, time_text="time")

    # Python has no other years, and later decisions must fit, too.
    is_time = pl.col("time").dt.year().is_between(1, 9998).fill_null(value=False)
    problem = (
        "expected a time with its zone, like 2026-11-21T09:30:02.114Z, found {time_text!r:.200}"
    )
    _refuse(lines.filter(~is_time).drop("time"), "time", problem, path)
    return lines.select(pl.col(name).cast(dtype) for name, dtype in LINES.items())


def _rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a file: number of the line (`row`), and text by column."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    rows: list[dict[str, Any]] = []
    try:
        header = next(reader, [])
        if tuple(header) != COLUMNS:
            columns = ",".join(header) or "nothing"
            problem = f"expected the columns {','.join(COLUMNS)}, found {columns}"
            if separator_of(columns) != ",":
                problem += ". Save the file with commas between the columns"
            raise DataError(problem, file=path, row=1)
        for values in reader:
            if not values:
                continue
            if len(values) != len(COLUMNS):
                problem = f"expected {len(COLUMNS)} values, found {len(values)}"
                advice = "complete the line, or delete it if it was cut off"
                raise DataError(f"{problem}: {advice}", file=path, row=reader.line_num)
            row: dict[str, Any] = {"row": reader.line_num}
            for column, value in zip(COLUMNS, values, strict=True):
                row[column] = of_spreadsheet(value)
            rows.append(row)
    except csv.Error as error:
        raise DataError(f"not CSV: {error}", file=path, row=reader.line_num) from None
    return rows


def _check(lines: pl.DataFrame, file: str | Path | None) -> None:
    for check in _CHECKS:
        _refuse(lines.filter(check.is_wrong), check.field, check.problem, file)


def _refuse(wrong: pl.DataFrame, field: str, problem: str, file: str | Path | None) -> None:
    """Raises an error about the first of wrong lines, if there are any.

    Args:
        wrong: Lines with a wrong value.
        field: Name of the column with the wrong value.
        problem: Text of the error, with names of columns in braces.
        file: Name in messages.
    """
    if not wrong.height:
        return
    first = wrong.sort("row", maintain_order=True).row(0, named=True)
    raise DataError(problem.format_map(first), file=file, row=first["row"], field=field)
