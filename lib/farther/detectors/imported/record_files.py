"""Base class of readers of files with one detection per row, which convert one row at a time."""

from __future__ import annotations

import csv
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Set
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic.dataclasses import dataclass

from farther.detectors.imported.base import DetectionBatch, DetectionsSource, RowLocation
from farther.detectors.imported.classes import ImportedClasses
from farther.detectors.imported.formats import BATCH, Batch, Results
from farther.detectors.imported.recognition import recognise_opened
from farther.detectors.imported.records import (
    DETECTIONS,
    OPTIONAL_FIELDS,
    check_fields,
    checked_records,
    columns_of,
)
from farther.detectors.recognition import IdClasses, RecognisedFile
from farther.errors import DataError, first_line
from farther.naming.registry import STRICT
from farther.tables.endings import TABLES, has_ending
from farther.tables.files import read_text, regular_file, separator_of
from farther.tables.folders import files_below
from farther.tables.json_stream import list_elements

#: Field of COCO results of each column of the regions table with another name.
FIELDS = {"box": "bbox", "label": "category_id"}


@dataclass(config=STRICT, kw_only=True)
class RecordFiles(ImportedClasses):
    """Base of the readers of files with one detection per row: a reader has `record`.

    Args:
        weights: A file, or a folder of files.
        score_threshold, score_tolerance, last_layer, categories, classes, background_index,
        activation: See `ImportedClasses`.
    """

    #: Endings of the files, in lower case; without ".csv" and ".tsv", they are lists in JSON.
    ENDINGS: ClassVar[tuple[str, ...]] = (".csv",)
    #: "file" if the records name images by their files, with or without ending.
    NAMED: ClassVar[Literal["id", "file"]] = "file"
    #: Names of columns in the files, by the fields of records, for messages.
    COLUMNS: ClassVar[dict[str, str]] = {}

    @abstractmethod
    def record(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row as a record of COCO results.

        Args:
            row: The row: texts by the names of CSV's columns, or an object of JSON.

        Returns:
            `image_id` (the image's id or file), `category_id` (its number or name), `bbox` (x, y,
            width and height), `score`; and `logits`, `features`, `latent`, `box_variance` or
            `uncertainty`, in all rows or in none.

        Raises:
            KeyError: a column is absent.
            ValueError, TypeError: a value is none that can be read.
            DataError: the same with the name of the field.
        """

    def rows(self, file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the rows of a file with their numbers: lines of CSV, or places in a JSON list.

        Raises:
            DataError: the file cannot be read.
        """
        if not has_ending(file, TABLES):
            yield from enumerate(list_elements(file))
            return
        lines = read_text(file).splitlines()
        reader = csv.DictReader(lines, delimiter=separator_of(next(iter(lines), "")))
        try:
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            problem = f"not readable CSV: {error}"
            raise DataError(problem, file=file, row=reader.line_num) from None

    def sources(self) -> list[DetectionsSource]:
        """See `Imported.sources`."""
        paths = self._paths()
        sources = []
        for path in paths:
            name = path.stem if len(paths) > 1 else ""
            sources.append(DetectionsSource(name, path, named=self.NAMED))
        return sources

    def files(self) -> list[Path]:
        """See `Imported.files`."""
        files = self._paths()
        optional_files = (self.categories, self.last_layer)
        files += [file for file in optional_files if isinstance(file, Path)]
        return [regular_file(file) for file in files]

    def batches(self, source: DetectionsSource) -> Iterator[DetectionBatch]:
        """See `Imported.batches`."""
        yield from detection_batches(self, self._record_batches(source.path))

    @classmethod
    def has_columns(cls, path: Path, names: Set[str]) -> bool:
        """Whether the first row of a file, or of the first file of a folder, has some columns."""
        reader = cls(weights=path)
        try:
            first_file = reader._paths()[0]
            _, row = next(reader.rows(first_file), (0, {}))
        except DataError:
            return False
        return isinstance(row, dict) and names <= row.keys()

    @classmethod
    def recognised(cls, path: Path, id_classes: IdClasses) -> RecognisedFile:
        """Parameters and content of files that are in this format, for `recognises`.

        Raises:
            DataError: a row cannot be read, or a class is not known.
        """
        reader = cls(weights=path)
        results_by_file = {}
        for file in reader._paths():
            batches = partial(reader._record_batches, file)
            results_by_file[file] = Results(cls.name, batches, cls.NAMED)
        return recognise_opened(path, results_by_file, id_classes)

    def _paths(self) -> list[Path]:
        """The file, or the files of a folder, sorted."""
        if not self.weights.is_dir():
            return [regular_file(self.weights)]
        files = [file for file in files_below(self.weights) if has_ending(file, self.ENDINGS)]
        if not files:
            problem = f"no detections here: expected files {' or '.join(self.ENDINGS)}"
            raise DataError(problem, file=self.weights)
        return sorted(files)

    def _record_batches(self, file: Path) -> Iterator[Batch]:
        """Yields the records of a file, a few thousand with consecutive numbers together."""
        first = 0
        records: list[dict[str, Any]] = []
        for number, row in self.rows(file):
            if records and (len(records) == BATCH or number != first + len(records)):
                yield Batch(file, first, records, self.COLUMNS)
                records = []
            if not records:
                first = number
            records.append(self._checked_record(file, number, row))
        if records:
            yield Batch(file, first, records, self.COLUMNS)

    def _checked_record(self, file: Path, number: int, row: dict[str, Any]) -> dict[str, Any]:
        """The record of a row; an error names file, row and field."""
        try:
            return self.record(row)
        except KeyError as error:
            field = str(error.args[0])
            raise DataError("the column is absent", file=file, row=number, field=field) from None
        except DataError as error:
            raise DataError(error.problem, file=file, row=number, field=error.field) from None
        except (ValueError, TypeError) as error:
            raise DataError(first_line(error), file=file, row=number) from None


def detection_batches(
    reader: ImportedClasses, batches: Iterable[Batch]
) -> Iterator[DetectionBatch]:
    """Yields records of COCO results as checked regions.

    Args:
        reader: Has the classes.
        batches: The records.

    Raises:
        DataError: a record is wrong; names file, row and the file's own field.
    """
    header = reader.header()
    labels = reader.labels(header)
    optional: frozenset[str] | None = None
    for batch in batches:
        location = RowLocation(batch.file, batch.first)
        try:
            records = checked_records(DETECTIONS, batch.records, batch.first, batch.file)
            if optional is None:
                optional = OPTIONAL_FIELDS & records[0].keys()
            check_fields(records, "image_id", optional, location)
            columns = columns_of(records, "image_id", None, labels, location)
            regions = reader.checked(header, columns, location)
        except DataError as error:
            raise _with_own_field(error, batch) from None
        yield DetectionBatch(regions, location, batch.oriented, batch.unread)


def _with_own_field(error: DataError, batch: Batch) -> DataError:
    """An error with the file's own name of the field.

    Args:
        error: Names a column of the regions table, or a field of COCO results.
        batch: Has the file's own name of each field of COCO results.
    """
    field = FIELDS.get(error.field or "", error.field)
    own_field = batch.fields.get(field or "", field)
    return DataError(error.problem, file=batch.file, row=error.row, field=own_field)
