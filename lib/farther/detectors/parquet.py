"""Parquet files with the columns of the regions table, and regions folders that farther wrote elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from farther.detectors.base import register
from farther.detectors.imported.base import DetectionsSource, Imported, Place, Placed
from farther.errors import DataError, ParameterError, shorten
from farther.registry import STRICT
from farther.tables import Header, Regions, RegionsFolder
from farther.tables.documents import read_json
from farther.tables.files import is_file, is_folder
from farther.tables.folders import listed
from farther.tables.header import Activation
from farther.tables.parquet import read_batches


class RegionsFacts(TypedDict, total=False):
    """Fields of a `regions.json` beside the files, which are also parameters."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc]
    classes: list[str] | None
    background_index: int | None
    activation: str | None
    score_threshold: float | None
    whole_images: bool | None


FACTS = tuple(RegionsFacts.__annotations__)


@register("parquet")
@dataclass(config=STRICT, kw_only=True)
class ParquetRegions(Imported):
    """Detections from Parquet files with the columns `image_id`, `box`, `score` and `label`.

    They may also have `logits`, `features`, `latent`, `box_variance` and `uncertainty`. Regions are
    numbered anew; other columns are not read. What holds for all rows is said by the parameters, or
    by a `regions.json` beside the files.

    Args:
        weights: A file; a folder of files (`*.parquet`); or a folder of such folders, as farther's
            own `artifacts/regions/RUN` is.
        score_threshold, score_tolerance, last_layer: See `Imported`. A folder that farther wrote
            has its last layer.
        classes: Name of each value of `logits`, which `label` is an index into.
        background_index: Which of them is "no object".
        activation: Turns the logits into the scores; softmax by default.
        whole_images: True for the output of an image classifier: one row per image, whose box is
            the image.
        columns: Optional columns to read, all by default: for folders of which some have more
            columns than others.
    """

    classes: tuple[str, ...] | None = None
    background_index: int | None = None
    activation: Activation | None = None
    whole_images: bool | None = None
    columns: tuple[str, ...] | None = None

    def header(self) -> Header:
        """See `Adapter.header`."""
        sources = self.sources()
        found = [_described(source.path) for source in sources]
        (facts, made), layer = found[0], dict[str, Any](self.layer())
        for source, (others, other) in zip(sources, found, strict=True):
            if (others, _origin(other)) != (facts, _origin(made)):
                raise DataError(f"contradicts {sources[0].path / 'regions.json'}", file=source.path)
        if not layer and made is not None and made.weight is not None and made.bias is not None:
            layer = {"weight": made.weight, "bias": made.bias}
        identity = {
            **self.identity,
            **({"made_by": made.detector} if made is not None and made.detector else {}),
        }
        try:
            return Header(detector=identity, **layer, **self._facts(facts))
        except DataError as error:
            raise error.within(self.weights) from None

    def _facts(self, described: dict[str, Any]) -> dict[str, Any]:
        """Fields of the header: what the parameters say, or else the folder; both may say the same."""
        facts = {name: described.get(name) for name in FACTS}
        for name in ("classes", "background_index", "activation", "whole_images"):
            value, other = getattr(self, name), facts[name]
            if None not in (value, other) and value != other:
                problem = f"detector 'parquet': {name!r} is {value!r}, but regions.json says {other!r}; remove one"
                raise ParameterError(problem)
            facts[name] = other if value is None else value
        if not facts["classes"]:
            raise ParameterError(
                f"detector 'parquet': give the parameter 'classes' (or a regions.json beside {self.weights})"
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
            beside = [source.path / "regions.json", source.path / "last_layer.safetensors"]
            files += [*(file for file in beside if is_file(file)), *_parts(source.path)]
        return files + ([self.last_layer] if self.last_layer is not None else [])

    def batches(self, source: DetectionsSource) -> Iterator[Placed]:
        """See `Imported.batches`."""
        header = self.header()
        for part in _parts(source.path):
            first = 0
            for frame in read_batches(part):
                place = Place(part, first)
                yield Placed(self.checked(header, self._columns(frame, place), place), place)
                first += frame.height

    def _columns(self, frame: pl.DataFrame, place: Place) -> dict[str, Any]:
        """The columns of the regions table that the file has and that are read, but `region_id`."""
        if "image_id" not in frame.columns:
            raise DataError("the column is missing", file=place.file, field="image_id")
        read = [
            c.name
            for c in Regions.COLUMNS
            if not c.optional or self.columns is None or c.name in self.columns
        ]
        columns = {
            name: frame[name] for name in read if name in frame.columns and name != "region_id"
        }
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
        folders = [
            folder
            for folder in listed(self.weights, "*")
            if is_folder(folder) and _is_source(folder)
        ]
        if not folders:
            raise DataError(
                "no detections here: expected files *.parquet, or folders of them",
                file=self.weights,
            )
        return [
            DetectionsSource(folder.name if len(folders) > 1 else "", folder) for folder in folders
        ]


def _as_texts(image_id: pl.Series) -> pl.Series:
    """Ids of images as text; numbers, as pandas stores them, without a fraction of zero."""
    if image_id.dtype.is_float() and (image_id == image_id.round()).all():
        image_id = image_id.cast(pl.Int64)
    if image_id.dtype.is_integer():
        return image_id.cast(pl.String)
    return image_id


def _described(path: Path) -> tuple[dict[str, Any], Header | None]:
    """Facts in the `regions.json` in a folder, or beside a file, and the header if farther wrote it.

    Raises:
        DataError: it is damaged, or holds something else.
    """
    source = (path if path.is_dir() else path.parent) / "regions.json"
    if not is_file(source):
        return {}, None
    info = read_json(source)
    if isinstance(info, dict) and "format" in info:
        header = RegionsFolder(source.parent).header
        return {name: getattr(header, name) for name in FACTS}, header
    try:
        facts = dict[str, Any](TypeAdapter(RegionsFacts).validate_python(info))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = str(problem["loc"][0]) if problem["loc"] else None
        if problem["type"] == "extra_forbidden":
            raise DataError(
                f"unknown; known: {', '.join(FACTS)}", file=source, field=field
            ) from None
        found = info.get(field) if isinstance(info, dict) else info
        raise DataError(
            f"{problem['msg']}, found {shorten(found)}", file=source, field=field
        ) from None
    return {**facts, "classes": tuple(facts["classes"])} if facts.get("classes") else facts, None


def _origin(header: Header | None) -> tuple[dict[str, Any], str | None] | None:
    """Detector and last layer of a header that farther wrote."""
    return None if header is None else (header.detector, header.layer_digest())


def _is_source(folder: Path) -> bool:
    return is_file(folder / "regions.json") or bool(listed(folder, "*.parquet"))


def _parts(path: Path) -> list[Path]:
    """The files of a source: of a folder that farther wrote, those that its header lists."""
    if not path.is_dir():
        return [path]
    header = path / "regions.json"
    if is_file(header) and "format" in read_json(header):
        parts = RegionsFolder(path).shards
        for part in parts:
            if not part.is_file():
                raise DataError("the file does not exist, but regions.json lists it", file=part)
        return parts
    return listed(path, "*.parquet")
