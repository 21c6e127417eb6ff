"""Detections in the files of other programs: CSV, text, and JSON of several libraries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass as plain_dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from pydantic.dataclasses import dataclass

from farther.detectors.adapter import register
from farther.detectors.imported.base import DetectionBatch, DetectionsSource
from farther.detectors.imported.classes import ImportedClasses
from farther.detectors.imported.formats import Batch, Results, files_of, open_results
from farther.detectors.imported.recognition import recognise_results
from farther.detectors.imported.record_files import detection_batches
from farther.detectors.recognition import IdClasses, RecognisedFile
from farther.errors import DataError
from farther.naming.registry import STRICT
from farther.tables.files import is_folder, regular_file
from farther.tables.folders import entries


@plain_dataclass(frozen=True)
class _OpenedFile:
    """A file of detections, or a folder with one file per image, and its first file opened."""

    path: Path
    results: Results


@register("detections")
@dataclass(config=STRICT, kw_only=True)
class Detections(ImportedClasses):
    """Detections in any format of `farther.detectors.imported.formats`, recognised from the file.

    Args:
        weights: A file; a folder of files; or a folder of such folders.
        score_threshold, score_tolerance, last_layer, categories, classes, background_index,
        activation: See
            `ImportedClasses`.
        fractions: True if boxes are fractions of the image's width and height.
        columns: Names of the columns of text files, by default those of Ultralytics (`class cx cy
            width height score`), or of CSV files without a line of names.
    """

    RECOGNISED_FILES: ClassVar[tuple[str, ...]] = ("*.csv", "*.tsv", "*.txt", "*.json")

    fractions: bool = False
    columns: tuple[str, ...] | None = None

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """Detections in another format than COCO results; see `Adapter`."""
        return recognise_results(path, id_classes, are_coco_results=False)

    @property
    def in_fractions(self) -> bool:
        """See `Imported.in_fractions`."""
        return self.fractions

    def sources(self) -> list[DetectionsSource]:
        """See `Imported.sources`."""
        return list(self._sources)

    def files(self) -> list[Path]:
        """See `Imported.files`."""
        files = []
        for source in self.sources():
            files += self._files(source.path)
        optional_files = (self.categories, self.last_layer)
        files += [file for file in optional_files if isinstance(file, Path)]
        return [regular_file(file) for file in files]

    def batches(self, source: DetectionsSource) -> Iterator[DetectionBatch]:
        """See `Imported.batches`."""
        yield from detection_batches(self, self._record_batches(source.path))

    def _record_batches(self, path: Path) -> Iterator[Batch]:
        """Yields the records of a file, or of the files of a folder."""
        for file in self._files(path):
            yield from open_results(file, self.columns).batches()

    @cached_property
    def _sources(self) -> list[DetectionsSource]:
        opened_files: list[_OpenedFile] = []
        for path in self._paths():
            opened_files += self._open(path)
        if not opened_files:
            raise DataError(
                "no detections here: expected files .csv, .json or .txt", file=self.weights
            )
        sources = []
        for opened in opened_files:
            name = opened.path.stem if len(opened_files) > 1 else ""
            sources.append(DetectionsSource(name, opened.path, named=opened.results.named))
        return sources

    def _paths(self) -> list[Path]:
        """The file, the folder of files, or the folders of such folders."""
        if not self.weights.is_dir() or files_of(self.weights):
            return [self.weights]
        folders = [Path(entry.path) for entry in entries(self.weights)]
        return [folder for folder in folders if is_folder(folder) and files_of(folder)]

    def _open(self, path: Path) -> list[_OpenedFile]:
        """A file, or the files of a folder; the folder itself if it has one file per image."""
        opened_files = [
            _OpenedFile(file, open_results(file, self.columns)) for file in self._files(path)
        ]
        for opened in opened_files:
            if opened.results.per_image:
                return [_OpenedFile(path, opened.results)]
        return opened_files

    def _files(self, path: Path) -> list[Path]:
        """The file, or the files of a folder."""
        if path.is_dir():
            return files_of(path)
        return [regular_file(path)]
