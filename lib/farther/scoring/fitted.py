"""The fitted methods of a run: the folder that the stage `fit` writes.

The stage `score` and later stages read it.

fitted/<run>/methods.json          the entries, in the order of params.yaml
fitted/<run>/<entry>/method.json, state.safetensors    see `farther.methods.base.Method.save`
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from farther.errors import DataError
from farther.methods.loading import not_applicable
from farther.tables.documents import read_json
from farther.tables.files import inside
from farther.tables.schema import Schema, check

#: The file of the entries.
ENTRIES = "methods.json"


class FittedEntry(Schema):
    """An entry of the section `methods`, as far as later stages need it.

    Args:
        name: Its name.
        pass_name: The pass whose regions are scored; None for the run's own.
        passes_beside: Passes whose columns it reads beside those of the run's own regions.
    """

    name: str
    pass_name: str | None = None
    passes_beside: list[str] = Field(default_factory=list)


class FittedEntries(Schema):
    """The content of `methods.json`.

    Args:
        entries: In the order of params.yaml.
        not_scored: Splits that methods only learn from.
    """

    entries: list[FittedEntry] = Field(default_factory=list)
    not_scored: list[str] = Field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The entries' names, in the order of params.yaml."""
        return [entry.name for entry in self.entries]


def read_entries(folder: Path) -> FittedEntries:
    """The entries of a run.

    Args:
        folder: `artifacts/fitted/<run>`.

    Raises:
        DataError: the stage `fit` did not write it, or it is damaged.
    """
    file = folder / ENTRIES
    if not file.is_file():
        problem = "the file does not exist: run `farther repro fit`, or `dvc pull`"
        raise DataError(problem, file=file)
    try:
        return check(FittedEntries, read_json(file), file)
    except DataError as error:
        advice = "delete the file and run `farther repro fit`, or `dvc pull`"
        raise DataError(
            f"{error.problem} ({advice})", file=file, row=error.row, field=error.field
        ) from None


def applicable(folder: Path, entries: FittedEntries) -> list[FittedEntry]:
    """The entries that were fitted, without those that do not apply to the run.

    Raises:
        DataError: the folder of an entry is absent or damaged.
    """
    return [
        entry for entry in entries.entries if not_applicable(inside(folder, entry.name)) is None
    ]
