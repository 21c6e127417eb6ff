"""Parquet files with the columns of the regions table, and regions folders that farther wrote elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass as plain_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic.dataclasses import dataclass

from farther.detectors.base import register
from farther.detectors.imported.base import Imported, Place, Placed, Source
from farther.errors import DataError, ParameterError, shorten
from farther.registry import STRICT
from farther.tables import Header, Regions, RegionsFolder
from farther.tables.documents import read_json
from farther.tables.folders import listed
from farther.tables.header import Activation
from farther.tables.parquet import read_batches

#: Fields of a `regions.json` beside the files, which are also parameters.
FACTS = ("classes", "background_index", "activation", "score_threshold", "whole_images")


@register("parquet")
@dataclass(config=STRICT, kw_only=True)
class ParquetRegions(Imported):
    """Detections from Parquet files with the columns `image_id`, `box`, `score` and `label`.

    They may also have `logits`, `features`, `latent`, `box_variance` and `uncertainty`. Regions are numbered anew;
    other columns are not read. What holds for all rows is said by the parameters, or by a `regions.json` beside the
    files.

    Args:
        weights: A file; a folder of files (`*.parquet`); or a folder of such folders, as farther's own
            `artifacts/regions/RUN` is.
        score_threshold, score_tolerance, last_layer: See `Imported`. A folder that farther wrote has its last layer.
        classes: Name of each value of `logits`, which `label` is an index into.
        background_index: Which of them is "no object".
        activation: Turns the logits into the scores; softmax by default.
        whole_images: True for the output of an image classifier: one row per image, whose box is the image.
        columns: Optional columns to read, all by default: for folders of which some have more columns than others.
    """

    classes: tuple[str, ...] | None = None
    background_index: int | None = None
    activation: Activation | None = None
    whole_images: bool | None = None
    columns: tuple[str, ...] | None = None

    def header(self) -> Header:
        """See `Adapter.header`."""
        layer = self.layer()
        found = [_described(source.path) for source in self.sources()]
        first = found[0]
        for source, described in zip(self.sources(), found, strict=True):
            if not described.equals(first):
                raise DataError(f"says other things than {self.sources()[0].path / 'regions.json'}", file=source.path)
        facts = self._facts(first)
        if not layer and first.weight is not None and first.bias is not None:
            layer = {"weight": first.weight, "bias": first.bias}
        identity = {**self.identity, **({"made_by": first.detector} if first.detector else {})}
        try:
            return Header(detector=identity, weight=layer.get("weight"), bias=layer.get("bias"), **facts)
        except DataError as error:
            raise error.within(self.weights) from None

    def _facts(self, described: _Described) -> dict[str, Any]:
        """Fields of the header: what the parameters say, or else the folder; both may say the same."""
        said = {name: getattr(self, name) for name in FACTS if name != "score_threshold"}
        facts: dict[str, Any] = {}
        for name, value in said.items():
            other = described.facts.get(name)
            if value is not None and other is not None and value != other:
                problem = f"detector 'parquet': {name!r} is {value!r}, but regions.json says {other!r}; remove one"
                raise ParameterError(problem)
            facts[name] = other if value is None else value
        if not facts["classes"]:
            raise ParameterError(
                f"detector 'parquet': give the parameter 'classes' (or a regions.json beside {self.weights})"
            )
        facts["activation"] = facts["activation"] or "softmax"
        facts["whole_images"] = facts["whole_images"] or False
        facts["score_threshold"] = max(self.score_threshold, described.facts.get("score_threshold") or 0.0)
        return facts

    def sources(self) -> list[Source]:
        """See `Imported.sources`."""
        return list(self._sources)

    def files(self) -> list[Path]:
        """See `Imported.files`."""
        files = []
        for source in self.sources():
            beside = [source.path / "regions.json", source.path / "last_layer.safetensors"]
            files += [*(file for file in beside if file.is_file()), *_parts(source.path)]
        return files + ([self.last_layer] if self.last_layer is not None else [])

    def batches(self, source: Source) -> Iterator[Placed]:
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
        read = [c.name for c in Regions.COLUMNS if not c.optional or self.columns is None or c.name in self.columns]
        return {name: frame[name] for name in read if name in frame.columns and name != "region_id"}

    @cached_property
    def _sources(self) -> list[Source]:
        if not self.weights.is_dir():
            if not self.weights.is_file():
                raise DataError("the file does not exist", file=self.weights)
            return [Source("", self.weights)]
        if _is_source(self.weights):
            return [Source("", self.weights)]
        folders = [folder for folder in listed(self.weights, "*") if folder.is_dir() and _is_source(folder)]
        if not folders:
            raise DataError("no detections here: expected files *.parquet, or folders of them", file=self.weights)
        return [Source(folder.name if len(folders) > 1 else "", folder) for folder in folders]


@plain_dataclass(frozen=True, eq=False)
class _Described:
    """Header fields, detector and last layer that a folder describes."""

    facts: dict[str, Any]
    detector: dict[str, Any]
    weight: np.ndarray | None = None
    bias: np.ndarray | None = None

    def equals(self, other: _Described) -> bool:
        """True if both describe the same."""
        layers = [(self.weight, other.weight), (self.bias, other.bias)]
        alike = all(a is b if a is None or b is None else np.array_equal(a, b) for a, b in layers)
        return alike and self.facts == other.facts and self.detector == other.detector


def _described(path: Path) -> _Described:
    """Content of `regions.json` in a folder, or beside a file.

    Raises:
        DataError: it is damaged, or holds something else.
    """
    source = (path if path.is_dir() else path.parent) / "regions.json"
    if not source.is_file():
        return _Described({}, {})
    info = read_json(source)
    if not isinstance(info, dict):
        raise DataError(f"expected an object, found {shorten(info)}", file=source)
    if "format" in info:
        header = RegionsFolder(source.parent).header
        facts = {name: getattr(header, name) for name in FACTS}
        return _Described(facts, header.detector, header.weight, header.bias)
    unknown = sorted(set(info) - set(FACTS))
    if unknown:
        raise DataError(f"unknown; known: {', '.join(FACTS)}", file=source, field=unknown[0])
    kinds: dict[str, Any] = {"classes": list, "background_index": int, "activation": str, "whole_images": bool}
    kinds["score_threshold"] = (int, float)
    for name, value in info.items():
        if value is not None and (
            isinstance(value, bool) != (kinds[name] is bool) or not isinstance(value, kinds[name])
        ):
            raise DataError(f"found {shorten(value)}", file=source, field=name)
    return _Described({**info, "classes": tuple(info["classes"])} if info.get("classes") else dict(info), {})


def _is_source(folder: Path) -> bool:
    return (folder / "regions.json").is_file() or bool(listed(folder, "*.parquet"))


def _parts(path: Path) -> list[Path]:
    """The files of a source: of a folder that farther wrote, those that its header lists."""
    if not path.is_dir():
        return [path]
    header = path / "regions.json"
    if header.is_file() and "format" in read_json(header):
        parts = RegionsFolder(path).shards
        for part in parts:
            if not part.is_file():
                raise DataError("the file does not exist, but regions.json lists it", file=part)
        return parts
    return listed(path, "*.parquet")
