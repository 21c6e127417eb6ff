"""Reviewers' decisions about images: one line per decision, append-only, in a file under version control.

    time,reviewer,dataset,subset,image_id,decision,id_class,note
    2026-11-21T09:30:02.114Z,ann,coco,val2017,000000000004,remove,person,behind the bus
    2026-11-21T09:30:05.870Z,ann,coco,val2017,000000000009,near,,
    2026-11-21T09:30:07.002Z,ann,coco,val2017,000000000009,undo,,

A line is never changed or taken out: `undo` takes back the reviewer's last decision on that image.
So a line is one `write`, two writers cannot destroy each other's lines, and git joins two branches
by keeping the lines of both. An apostrophe stands before a value that a spreadsheet would take for
a formula.
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

from farther.errors import DataError, FartherError
from farther.escaping import of_spreadsheet, spreadsheet
from farther.tables.files import is_present, read_text, refuse_broken_link

Choice = Literal["keep", "remove", "near", "far"]

#: Possible decisions about an image.
CHOICES: tuple[Choice, ...] = get_args(Choice)

#: Takes back the reviewer's last decision on the image.
UNDO = "undo"

COLUMNS = ("time", "reviewer", "dataset", "subset", "image_id", "decision", "id_class", "note")
HEADER = ",".join(COLUMNS) + "\n"

#: Columns that name an image, and a reviewer's view of one.
IMAGE = ("dataset", "subset", "image_id")
VIEW = (*IMAGE, "reviewer")

#: One row per line: its number in the file, then the file's columns.
LINES = pl.Schema(
    [
        ("row", pl.Int64),
        ("time", pl.Datetime("us", "UTC")),
        *((name, pl.String) for name in COLUMNS[1:]),
    ]
)

_REMOVES = pl.col("decision") == "remove"

#: Field, rows with a wrong value, and the problem, with names of columns in braces.
_CHECKS: tuple[tuple[str, pl.Expr, str], ...] = (
    (
        "reviewer",
        ~pl.col("reviewer").str.contains(r"^[\w.@-](?:[\w .@-]{0,78}[\w.@-])?$"),
        "expected letters, digits, spaces and '.@_-', at most 80 of them, found {reviewer!r:.200}",
    ),
    (
        "decision",
        ~pl.col("decision").is_in([*CHOICES, UNDO]),
        f"expected one of {', '.join((*CHOICES, UNDO))}, found {{decision!r}}",
    ),
    (
        "id_class",
        (pl.col("id_class") != "") & ~_REMOVES,
        "only 'remove' has an ID class, found {id_class!r:.200}",
    ),
    (
        "note",
        _REMOVES & (pl.col("id_class") == "") & (pl.col("note") == ""),
        "'remove' needs the ID class that the image shows, or a note that says why",
    ),
    *(
        (
            name,
            pl.col(name).str.contains(r"[\p{C}\p{Zl}\p{Zp}]"),
            f"expected text in one line, found {{{name}!r}}",
        )
        for name in (*IMAGE, "id_class", "note")
    ),
)


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
        _check(pl.DataFrame([{"row": None, **asdict(self)}], schema=LINES), None)

    def __str__(self) -> str:
        return " → ".join(filter(None, (self.decision, self.id_class)))

    @property
    def image(self) -> ImageKey:
        """The image."""
        return ImageKey(self.dataset, self.subset, self.image_id)

    def to_line(self) -> str:
        """Its line of the file, with the line end."""
        written = io.StringIO()
        time = self.time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = {**asdict(self), "time": time}.values()
        csv.writer(written, lineterminator="\n").writerow(map(spreadsheet, values))
        return written.getvalue()


class Decisions:
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
        lines = pl.DataFrame(schema=LINES) if lines is None else lines
        _check(lines, file)
        frame = lines.unique(COLUMNS, keep="first", maintain_order=True).sort(
            "time", maintain_order=True
        )
        before = [
            pl.col(name).shift().over(VIEW).alias(f"{name}_before")
            for name in ("time", "row", "decision")
        ]
        steps = pl.when(pl.col("decision") == UNDO).then(-1).otherwise(1)
        frame = frame.with_columns(*before, depth=steps.cum_sum().over(VIEW))
        about = "{dataset} {subset} {image_id}"
        problem = (
            f"{{reviewer}} says '{{decision}}' about {about}, and '{{decision_before}}' in row {{row_before}}, "
            "both at {time}: delete one of the two"
        )
        _refuse(frame, pl.col("time") == pl.col("time_before"), "decision", problem, file)
        _refuse(
            frame,
            pl.col("depth") < 0,
            "decision",
            f"{{reviewer}} has no decision on {about} to undo",
            file,
        )
        kept = pl.col("depth") <= pl.col("depth").cum_min(reverse=True).over(VIEW)
        self.frame = frame.select(*LINES, is_active=(pl.col("decision") != UNDO) & kept)
        self.current = self.frame.filter("is_active").unique(VIEW, keep="last", maintain_order=True)

    def __len__(self) -> int:
        return self.frame.height

    def latest(self, reviewer: str) -> Decision | None:
        """The reviewer's last decision that was not taken back."""
        rows = self.frame.filter("is_active", reviewer=reviewer).select(COLUMNS).tail(1).to_dicts()
        return Decision(**rows[0]) if rows else None

    def last_time(self, reviewer: str) -> datetime | None:
        """Time of the reviewer's last line, None without lines."""
        return self.frame.filter(reviewer=reviewer)["time"].max()  # type: ignore[return-value]

    def images(self) -> pl.DataFrame:
        """Images of all lines, those that were taken back included, each once."""
        return self.frame.select(IMAGE).unique(maintain_order=True)

    def check(self, known: pl.DataFrame, id_classes: Collection[str]) -> None:
        """Raises an error for a decision, taken back or not, on an unknown image or ID class.

        Raises:
            DataError: names file, row and field.
        """
        sources = known.select("dataset", "subset").unique().sort("dataset", "subset")
        names = ", ".join(" ".join(source) for source in sources.iter_rows())
        problem = f"the benchmark draws no OOD images from {{dataset}} {{subset}}. Known: {names}"
        elsewhere = self.frame.join(sources, on=["dataset", "subset"], how="anti")
        _refuse(
            elsewhere,
            ~pl.col("dataset").is_in(sources["dataset"].to_list()),
            "dataset",
            problem,
            self.file,
        )
        _refuse(elsewhere, pl.lit(True), "subset", problem, self.file)
        unknown = self.frame.join(known, on=IMAGE, how="anti")
        _refuse(
            unknown,
            pl.lit(True),
            "image_id",
            "{dataset} {subset} has no image {image_id!r}",
            self.file,
        )
        problem = f"{{id_class!r}} is not an ID class. Known: {', '.join(id_classes)}"
        _refuse(
            self.frame, ~pl.col("id_class").is_in(["", *id_classes]), "id_class", problem, self.file
        )


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
            DataError: the file is a broken link, or a line is not one of this form; names file, row
                and field. Or see `Decisions`.
        """
        if not is_present(self.path):
            return Decisions(file=self.path)
        return Decisions(_lines(self.path), self.path)

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
        self._write(file, ("" if file.read(1) == b"\n" else "\n") + decision.to_line())

    def _write(self, file: FileIO, text: str) -> None:
        size, line = os.fstat(file.fileno()).st_size, text.encode()
        try:
            written = file.write(line)
            if written == len(line):
                os.fsync(file)
                return
            problem = f"only {written} of {len(line)} bytes were written"
        except OSError as error:
            problem = str(error)
        file.truncate(size)
        raise FartherError(f"{self.path}: the decision was not saved: {problem}")


def time_after(before: datetime | None) -> datetime:
    """Now in whole milliseconds, but later than `before`: decisions keep their order when a clock is set back."""
    now = datetime.now(UTC)
    now = now.replace(microsecond=now.microsecond // 1000 * 1000)
    return now if before is None else max(now, before + timedelta(milliseconds=1))


def _lines(path: Path) -> pl.DataFrame:
    """The lines of a file as a frame of `LINES`."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    rows: list[dict[str, Any]] = []
    try:
        header = next(reader, [])
        if tuple(header) != COLUMNS:
            problem = (
                f"expected the columns {','.join(COLUMNS)}, found {','.join(header) or 'nothing'}"
            )
            raise DataError(problem, file=path, row=1)
        for values in filter(None, reader):
            if len(values) != len(COLUMNS):
                problem = f"expected {len(COLUMNS)} values, found {len(values)}"
                advice = "complete the line, or delete it if it was cut off"
                raise DataError(f"{problem}: {advice}", file=path, row=reader.line_num)
            rows.append(
                {
                    "row": reader.line_num,
                    **dict(zip(COLUMNS, map(of_spreadsheet, values), strict=True)),
                }
            )
    except csv.Error as error:
        raise DataError(f"not CSV: {error}", file=path, row=reader.line_num) from None
    written = pl.DataFrame(rows, schema={**LINES, "time": pl.String})
    lines = written.with_columns(
        time=pl.col("time").str.to_datetime("%+", time_unit="us", strict=False), given="time"
    )
    problem = "expected a time with its zone, like 2026-11-21T09:30:02.114Z, found {given!r:.200}"
    # Python has no other years, and later decisions must fit, too.
    is_time = lines.select(
        pl.col("time").dt.year().is_between(1, 9998).fill_null(value=False)
    ).to_series()
    _refuse(lines.drop("time"), pl.lit(~is_time), "time", problem, path)
    return lines.select(pl.col(name).cast(dtype) for name, dtype in LINES.items())


def _check(lines: pl.DataFrame, file: str | Path | None) -> None:
    for field, wrong, problem in _CHECKS:
        _refuse(lines, wrong, field, problem, file)


def _refuse(
    lines: pl.DataFrame, wrong: pl.Expr, field: str, problem: str, file: str | Path | None
) -> None:
    """Raises an error about the first of the wrong rows; names of columns in `problem` are in braces."""
    found = lines.filter(wrong).sort("row", maintain_order=True).head(1)
    for row in found.iter_rows(named=True):
        raise DataError(problem.format_map(row), file=file, row=row["row"], field=field)
