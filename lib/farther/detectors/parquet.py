"""Parquet files with the columns of the regions table, and regions folders of another farther."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from farther.detectors.adapter import register
from farther.detectors.imported.base import DetectionBatch, DetectionsSource, Imported, RowLocation
from farther.detectors.recognition import NUMBERED, IdClasses, RecognisedFile
from farther.errors import DataError, ParameterError, shorten
from farther.naming.registry import STRICT
from farther.tables import Header, Regions, RegionsFolder
from farther.tables.documents import read_json
from farther.tables.files import is_file, is_folder
from farther.tables.folders import listed
from farther.tables.header import Activation
from farther.tables.oriented import angle_unit
from farther.tables.parquet import read_batches


class RegionsFacts(TypedDict, total=False):
    """Fields of a `regions.json` that are also parameters of the adapter."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc]
    classes: list[str] | None
    background_index: int | None
    activation: str | None
    score_threshold: float | None
    whole_images: bool | None


FACTS = tuple(RegionsFacts.__annotations__)


@plain_dataclass(frozen=True)
class _Description:
    """Content of a `regions.json`.

    Args:
        facts: The fields of `RegionsFacts` that it has.
        header: Header of the regions, if farther wrote them.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    header: Header | None = None

    def agrees_with(self, description: _Description) -> bool:
        """True if facts, detector and last layer are the same."""
        if self.facts != description.facts:
            return False
        if self.header is None or description.header is None:
            return self.header is description.header
        if self.header.detector != description.header.detector:
            return False
        return self.header.layer_digest() == description.header.layer_digest()


@register("parquet")
@dataclass(config=STRICT, kw_only=True)
class ParquetRegions(Imported):
    """Detections from Parquet files with the columns `image_id`, `box`, `score` and `label`.

    They may also have `logits`, `features`, `latent`, `box_variance` and `uncertainty`. Regions are
    numbered anew; other columns are not read. What is the same for all rows is given by the
    parameters, or by a `regions.json` beside the files.

    Args:
        weights: A file; a folder of files (`*.parquet`); or a folder of such folders, such as
            farther's own `artifacts/regions/RUN`.
        score_threshold, score_tolerance, last_layer: See `Imported`. A folder that farther wrote
            has its last layer.
        classes: Name of each value of `logits`, which `label` is an index into.
        background_index: Number of the class "no object".
        activation: Converts the logits to the scores; softmax by default.
        whole_images: True for the output of an image classifier: one row per image, whose box is
            the image.
        columns: Optional columns to read, all by default: for folders of which some have more
            columns than others.
    """

    RECOGNISED_FILES: ClassVar[tuple[str, ...]] = ("*.parquet", "*regions.json")

    classes: tuple[str, ...] | None = None
    background_index: int | None = None
    activation: Activation | None = None
    whole_images: bool | None = None
    columns: tuple[str, ...] | None = None

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """Parquet files, with the ID dataset's classes where no file names them; see `Adapter`."""
        if path.is_dir():
            is_described = bool(listed(path, "**/regions.json"))
        elif path.suffix == ".parquet":
            is_described = is_file(path.parent / "regions.json")
        else:
            return None
        if is_described:
            return RecognisedFile()
        return RecognisedFile({"classes": id_classes.categories}, assumed=NUMBERED)

    def header(self) -> Header:
        """See `Adapter.header`."""
        sources = self.sources()
        layer: dict[str, Any] = dict(self.layer())
        descriptions = [_read_description(source.path) for source in sources]
        first = descriptions[0]
        for source, description in zip(sources, descriptions, strict=True):
            if not description.agrees_with(first):
                raise DataError(f"contradicts {sources[0].path / 'regions.json'}", file=source.path)

        written = first.header
        identity = dict(self.identity)
        if written is not None:
            if written.detector:
                identity["made_by"] = written.detector
            if not layer and written.weight is not None and written.bias is not None:
                layer = {"weight": written.weight, "bias": written.bias}
        try:
            return Header(detector=identity, **layer, **self._facts(first.facts))
        except DataError as error:
            raise error.within(self.weights) from None

    def _facts(self, described: dict[str, Any]) -> dict[str, Any]:
        """Fields of the header, from the parameters, or else from the `regions.json`.

        Raises:
            ParameterError: both give different values, or neither gives the classes.
        """
        facts = {name: described.get(name) for name in FACTS}
        for name in ("classes", "background_index", "activation", "whole_images"):
            value = getattr(self, name)
            if value is None:
                continue
            if facts[name] is not None and value != facts[name]:
                raise ParameterError(
                    f"detector 'parquet': {name!r} is {value!r}, but regions.json says "
                    f"{facts[name]!r}; remove one"
                )
            facts[name] = value
        if not facts["classes"]:
            raise ParameterError(
                "detector 'parquet': give the parameter 'classes' (or a regions.json beside "
                f"{self.weights})"
            )
        facts["activation"] = facts["activation"] or "softmax"
        facts["whole_images"] = facts["whole_images"] or False
        facts["score_threshold"] = max(self.score_threshold, facts["score_threshold"] or 0.0)
        return facts

    def sources(self) -> list[DetectionsSource]:
        """See `Imported.sources`."""
        return list(self._sources)

    def files(self) -> list[Path]:
        """See `Imported.files`."""
        files = []
        for source in self.sources():
            descriptions = (source.path / "regions.json", source.path / "last_layer.safetensors")
            files += [file for file in descriptions if is_file(file)]
            files += _parts(source.path)
        if self.last_layer is not None:
            files.append(self.last_layer)
        return files

    def batches(self, source: DetectionsSource) -> Iterator[DetectionBatch]:
        """See `Imported.batches`."""
        header = self.header()
        for part in _parts(source.path):
            first = 0
            for frame in read_batches(part):
                location = RowLocation(part, first)
                _refuse_angles(frame, location)
                regions = self.checked(header, self._columns(frame, location), location)
                unread = frozenset(frame.columns) - {column.name for column in Regions.COLUMNS}
                yield DetectionBatch(regions, location, unread=unread)
                first += frame.height

    def _columns(self, frame: pl.DataFrame, location: RowLocation) -> dict[str, Any]:
        """The columns of the regions table in a frame, except `region_id`."""
        if "image_id" not in frame.columns:
            raise DataError("the column is missing", file=location.file, field="image_id")
        columns: dict[str, Any] = {}
        for column in Regions.COLUMNS:
            name = column.name
            is_left_out = column.optional and self.columns is not None and name not in self.columns
            if name in frame.columns and name != "region_id" and not is_left_out:
                columns[name] = frame[name]
        columns["image_id"] = _as_texts(frame["image_id"])
        return columns

    @cached_property
    def _sources(self) -> list[DetectionsSource]:
        if not self.weights.is_dir():
            if not self.weights.is_file():
                raise DataError("the file does not exist", file=self.weights)
            return [DetectionsSource("", self.weights)]
        if _is_source(self.weights):
            return [DetectionsSource("", self.weights)]

        folders = [folder for folder in listed(self.weights, "*") if _is_source(folder)]
        if not folders:
            raise DataError(
                "no detections here: expected files *.parquet, or folders of them",
                file=self.weights,
            )
        if len(folders) == 1:
            return [DetectionsSource("", folders[0])]
        return [DetectionsSource(folder.name, folder) for folder in folders]


def _refuse_angles(frame: pl.DataFrame, location: RowLocation) -> None:
    """Refuses oriented boxes: `box` has four edges, which no angle turns."""
    for name in frame.columns:
        if angle_unit(name) is None or not frame[name].dtype.is_numeric():
            continue
        rows = np.flatnonzero((frame[name].fill_null(0) != 0).to_numpy())
        if len(rows):
            problem = (
                f"{frame[name][int(rows[0])]:g}, an oriented box: write the edges of the upright "
                "box around it into 'box', and leave the column out"
            )
            raise location.error(DataError(problem, row=int(rows[0]), field=name))


def _as_texts(image_id: pl.Series) -> pl.Series:
    """Ids of images as text; numbers that pandas stores as 7.0 become "7"."""
    if image_id.dtype.is_float() and (image_id == image_id.round()).all():
        image_id = image_id.cast(pl.Int64)
    if image_id.dtype.is_integer():
        return image_id.cast(pl.String)
    return image_id


def _read_description(path: Path) -> _Description:
    """Content of the `regions.json` in a folder, or beside a file; empty without one.

    Raises:
        DataError: it is damaged, or holds something else.
    """
    folder = path if path.is_dir() else path.parent
    file = folder / "regions.json"
    if not is_file(file):
        return _Description()
    info = read_json(file)
    if isinstance(info, dict) and "format" in info:
        header = RegionsFolder(folder).header
        return _Description({name: getattr(header, name) for name in FACTS}, header)

    try:
        facts = dict[str, Any](TypeAdapter(RegionsFacts).validate_python(info))
    except ValidationError as error:
        raise _description_error(error, info, file) from None
    if facts.get("classes"):
        facts["classes"] = tuple(facts["classes"])
    return _Description(facts)


def _description_error(error: ValidationError, info: Any, file: Path) -> DataError:
    """The first problem of a `regions.json`."""
    problem = error.errors(include_url=False)[0]
    location = str(problem["loc"][0]) if problem["loc"] else None
    if problem["type"] == "extra_forbidden":
        return DataError(f"unknown; known: {', '.join(FACTS)}", file=file, field=location)
    value = info.get(location) if isinstance(info, dict) else info
    return DataError(f"{problem['msg']}, found {shorten(value)}", file=file, field=location)


def _is_source(folder: Path) -> bool:
    """True if a path is a folder with files of detections."""
    if not is_folder(folder):
        return False
    return is_file(folder / "regions.json") or bool(listed(folder, "*.parquet"))


def _parts(path: Path) -> list[Path]:
    """The files of a source; of a folder that farther wrote, those that its header lists."""
    if not path.is_dir():
        return [path]
    description = path / "regions.json"
    if is_file(description) and "format" in read_json(description):
        parts = RegionsFolder(path).shards
        for part in parts:
            if not part.is_file():
                raise DataError("the file does not exist, but regions.json lists it", file=part)
        return parts
    return listed(path, "*.parquet")
