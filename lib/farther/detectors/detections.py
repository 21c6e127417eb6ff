"""Detections in the files that other programs leave: CSV, text, and JSON of several libraries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from pydantic.dataclasses import dataclass

from farther.detectors.base import register
from farther.detectors.imported.base import DetectionsSource, Place, Placed
from farther.detectors.imported.classes import ImportedClasses
from farther.detectors.imported.formats import Results, files_of, open_results
from farther.detectors.imported.records import (
    DETECTIONS,
    OPTIONAL_FIELDS,
    check_fields,
    checked_records,
    columns_of,
)
from farther.errors import DataError
from farther.registry import STRICT
from farther.tables.files import is_folder, regular_file

#: Fields of records that make columns of the regions table of other names.
FIELDS = {"box": "bbox", "label": "category_id"}


@register("detections")
@dataclass(config=STRICT, kw_only=True)
class Detections(ImportedClasses):
    """Detections in any format of `farther.detectors.imported.formats`, which is recognised from the file.

    Args:
        weights: A file; a folder of files; or a folder of such folders.
        score_threshold, score_tolerance, last_layer, categories, classes, background_index,
        activation: See
            `ImportedClasses`.
        fractions: True where boxes are fractions of the image's width and height.
        columns: Names of the columns of text files, by default those of Ultralytics (`class cx cy
            width height score`), or of CSV files without a line of names.
    """

    fractions: bool = False
    columns: tuple[str, ...] | None = None

    @property
    def in_fractions(self) -> bool:
        """See `Imported.in_fractions`."""
        return self.fractions

    def sources(self) -> list[DetectionsSource]:
        """See `Imported.sources`."""
        return list(self._sources)

    def files(self) -> list[Path]:
        """See `Imported.files`."""
        described = [one for one in (self.categories, self.last_layer) if isinstance(one, Path)]
        files = [
            *(file for source in self.sources() for file in self._files(source.path)),
            *described,
        ]
        return [regular_file(file) for file in files]

    def batches(self, source: DetectionsSource) -> Iterator[Placed]:
        """See `Imported.batches`."""
        header, optional = self.header(), None
        labels = self._labels(header)
        for file in self._files(source.path):
            for batch in open_results(file, self.columns).batches():
                place = Place(file, batch.first)
                try:
                    rows = checked_records(DETECTIONS, batch.records, batch.first, file)
                    optional = OPTIONAL_FIELDS & rows[0].keys() if optional is None else optional
                    check_fields(rows, "image_id", optional, place)
                    regions = self.checked(
                        header, columns_of(rows, "image_id", None, labels, place), place
                    )
                except DataError as error:
                    field = FIELDS.get(error.field or "", error.field)
                    own = batch.fields.get(field or "", field)
                    raise DataError(error.problem, file=file, row=error.row, field=own) from None
                yield Placed(regions, place)

    @cached_property
    def _sources(self) -> list[DetectionsSource]:
        places = [self.weights]
        if self.weights.is_dir() and not files_of(self.weights):
            folders = [folder for folder in sorted(self.weights.iterdir()) if is_folder(folder)]
            places = [folder for folder in folders if files_of(folder)]
        found: list[tuple[Path, Results]] = []
        for place in places:
            opened = [(file, open_results(file, self.columns)) for file in self._files(place)]
            images = next((results for _, results in opened if results.per_image), None)
            found += opened if images is None else [(place, images)]
        if not found:
            raise DataError(
                "no detections here: expected files .csv, .json or .txt", file=self.weights
            )
        return [
            DetectionsSource(path.stem if len(found) > 1 else "", path, named=results.named)
            for path, results in found
        ]

    def _files(self, path: Path) -> list[Path]:
        return files_of(path) if path.is_dir() else [regular_file(path)]
