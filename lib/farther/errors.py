"""Errors that a user can mend. Each says what was found, where, and what to do."""

from __future__ import annotations

from pathlib import Path


class FartherError(Exception):
    """Base of every error that farther raises on purpose."""


class ParameterError(FartherError):
    """A name or a parameter that a user wrote is unknown or has a wrong value."""


class DataError(FartherError):
    """A file holds something that cannot be used.

    The message starts with the place, as precisely as it is known: `file: row 3: field 'box': …`.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | str | None = None,
        field: str | None = None,
    ):
        self.problem = problem
        self.file = None if file is None else str(file)
        self.row = row
        self.field = field
        place = [
            part
            for part in (
                self.file,
                None if row is None else f"row {row}",
                None if field is None else f"field '{field}'",
            )
            if part is not None
        ]
        super().__init__(": ".join([*place, problem]))
