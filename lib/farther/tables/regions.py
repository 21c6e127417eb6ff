"""The table `regions`, the interface between detectors and scores.

A regions folder is self-contained:

    regions.json            header: classes, background index, activation, detector, thresholds;
                            shards and failed images
    last_layer.safetensors  weight (K×D) and bias (K) of the last linear layer, if there is one
    part-00000.parquet …    the rows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import polars as pl
from pydantic import NonNegativeInt

from farther.errors import DataError
from farther.tables.columns import BOX, VARIANCES, VECTOR, Column, first_repeated
from farther.tables.conversions import Conversions
from farther.tables.documents import read_json, write_json
from farther.tables.files import digest, inside
from farther.tables.header import Header, WithHeader
from farther.tables.parquet import ROW_GROUP, read_batches, scan_parquet
from farther.tables.schema import Schema, check
from farther.tables.shards import ShardWriter
from farther.tables.table import Table

#: Prefix of the names of columns with averages of activations of further layers.
LAYER = "latent."

#: Prefix of the names of columns with means of the rows of layers' Gram matrices.
GRAM = "gram."

#: Prefix of the names of columns of passes: `pass.<pass>/<column>`.
PASS = "pass."

#: Columns that the rows of a pass share with the run's own.
_SHARED = ("image_id", "region_id", "box", "score", "label")

#: Output of the confidence branch of a classifier before its sigmoid, shape (N, 1).
CONFIDENCE = f"{LAYER}confidence"

#: Numerator of the logits of G-ODIN, shape (N, K).
NUMERATOR = f"{LAYER}numerator"

#: Denominator of the logits of G-ODIN, shape (N, 1).
DENOMINATOR = f"{LAYER}denominator"

#: Features before the step of a pass of kind `perturb`, shape (N, D).
BEFORE = f"{LAYER}before"

#: Columns that are no inner layer's activations, although their names have the prefix of layers.
OUTPUTS = frozenset({BEFORE, CONFIDENCE, NUMERATOR, DENOMINATOR})


def pass_column(pass_name: str, column: str) -> str:
    """Name of the column of a pass in rows that have it beside their own columns.

    >>> pass_column("crop", "features")
    'pass.crop/features'
    """
    return f"{PASS}{pass_name}/{column}"


def own_name(column: str) -> str:
    """Name that a column has in its pass; that of a column of no pass as it is.

    >>> own_name("pass.crop/features"), own_name("features")
    ('features', 'features')
    """
    if column.startswith(PASS):
        return column.partition("/")[2]
    return column


class Regions(Table, WithHeader, Conversions):
    """Detections (or whole images, for a classifier) with all columns that a score may need.

    Args:
        image_id: N names of images.
        region_id: ndarray of shape (N,), int64.
        box: ndarray of shape (N, 4): xmin, ymin, xmax, ymax in pixels of the original image.
        score: ndarray of shape (N,): the detector's confidence, 0 to 1.
        label: ndarray of shape (N,), int16: the predicted class, an index into `classes`.
        logits: ndarray of shape (N, K), or None: imported detections may come without; ask
            `has("logits")` first.
        features: ndarray of shape (N, D), input of the last linear layer, or None.
        latent: ndarray of shape (N, C), ROI-aligned and channel-averaged activations, or None.
        latent.<layer>: The same of further layers: any number of columns; `array("latent.layer2")`
            returns one.
        pass.<pass>/<column>: Columns of passes, beside the rows' own: see `beside`.
        gram.<layer>: Means of the rows of the Gram matrices of a layer's activations, for several
            powers.
        box_variance: Variances of the box's coordinates in pixels², ndarray of shape (N, 4), or
            None.
        uncertainty: ndarray of shape (N,), the detector's own, higher for less certain; or None.
        mean_probabilities: Mean over several inferences, ndarray of shape (N, K), or None.
        predictive_entropy: Entropy of `mean_probabilities` in nats, ndarray of shape (N,), or None.
        mutual_information: Of class and inference, in nats, ndarray of shape (N,), or None.
        detections: Number of detections that the region was merged from, ndarray of shape (N,), or
            None.
        header: Everything that the rows share; or its fields (`classes`, `weight`, `bias`, …) as
            keyword arguments.

    Without `classes`, the K classes are called "0", "1", … Where there are no logits, `classes`
    must be given.

    Raises:
        DataError: a column is missing or wrong; names row and field.
    """

    image_id = Column(pl.String)
    region_id = Column(pl.Int64)
    box = Column(BOX)
    score = Column(pl.Float32)
    label = Column(pl.Int16)
    #: Code that uses logits asks `has` first, or needs them by its inputs.
    logits: Column[np.ndarray] = Column(VECTOR, optional=True)  # type: ignore[assignment]
    features = Column(VECTOR, optional=True)
    latent = Column(VECTOR, optional=True)
    box_variance = Column(VARIANCES, optional=True)
    uncertainty = Column(pl.Float32, optional=True)
    mean_probabilities = Column(VECTOR, optional=True)
    predictive_entropy = Column(pl.Float32, optional=True)
    mutual_information = Column(pl.Float32, optional=True)
    detections = Column(pl.Int32, optional=True)

    #: Columns that `RegionsFolder.batches` always reads, where they exist.
    ALWAYS_READ: ClassVar[tuple[str, ...]] = (
        "image_id",
        "region_id",
        "box",
        "score",
        "label",
        "logits",
    )

    def __init__(self, *, header: Header | None = None, **values: Any):
        header_names = [field.name for field in fields(Header) if field.name in values]
        header_values = {name: values.pop(name) for name in header_names}
        if header is not None and header_values:
            raise DataError(f"given beside a header: {', '.join(header_values)}", field="header")
        if header is None:
            if "classes" not in header_values:
                header_values["classes"] = _numbered_classes(values.get("logits"))
            header = Header(**header_values)
        self.header = header
        self._fill(values, source=None)

    @classmethod
    def declared(cls, names: Iterable[str]) -> tuple[Column, ...]:
        """The declared columns, and those of layers and of passes.

        These are called `latent.<layer>`, `gram.<layer>` and `pass.<pass>/<column>`.
        """
        further = sorted({name for name in names if name.startswith((LAYER, GRAM, PASS))})
        dtype_by_name = {column.name: column.dtype for column in cls.COLUMNS}
        further_columns = []
        for name in further:
            dtype = dtype_by_name.get(own_name(name), VECTOR)
            further_columns.append(Column(dtype, name, optional=True))
        return (*cls.COLUMNS, *further_columns)

    def _check(self, source: str | Path | None) -> None:
        self._check_logits(source)
        self._check_labels(source)
        if self.header.whole_images:
            self._check_one_region_per_image(source)
        if self.weight is not None and self.features is not None:
            self._check_features(self.features, self.weight, source)

    def _check_logits(self, source: str | Path | None) -> None:
        count = len(self.header.classes)
        if self.has("logits") and self.logits.shape[1] != count:
            problem = f"{self.logits.shape[1]} logits, but {count} classes"
            row = 0 if len(self) else None
            raise DataError(problem, file=source, row=row, field="logits")

    def _check_labels(self, source: str | Path | None) -> None:
        count = len(self.header.classes)
        is_wrong = (self.label < 0) | (self.label >= count)
        if self.background_index is not None:
            is_wrong |= self.label == self.background_index
        wrong_rows = np.flatnonzero(is_wrong)
        if len(wrong_rows):
            row = int(wrong_rows[0])
            problem = (
                f"{self.label[row]} is not the index of a known class "
                f"({count} classes, background {self.background_index})"
            )
            raise DataError(problem, file=source, row=row, field="label")

    def _check_one_region_per_image(self, source: str | Path | None) -> None:
        row = first_repeated(self.image_id)
        if row is not None:
            problem = (
                f"a second region of image {self.image_id[row]!r}, "
                "but the detector classifies whole images"
            )
            raise DataError(problem, file=source, row=row, field="image_id")

    def _check_features(
        self, features: np.ndarray, weight: np.ndarray, source: str | Path | None
    ) -> None:
        if weight.shape[1] != features.shape[1]:
            problem = (
                f"{features.shape[1]} values per row, but the last layer takes {weight.shape[1]}"
            )
            raise DataError(problem, file=source, field="features")

    def has(self, column: str) -> bool:
        """True if the rows have this column (or, for `last_layer`, the header)."""
        if column == "last_layer":
            return self.weight is not None
        if own_name(column) == "last_layer":
            return any(
                column == pass_column(name, "last_layer") and header.weight is not None
                for name, header in self.header.passes.items()
            )
        return column in self.names

    def beside(self, passes: Mapping[str, Regions]) -> Regions:
        """These rows with the columns of passes beside their own.

        Args:
            passes: The same rows in each pass, by its name.

        Raises:
            DataError: a pass has other rows; names the first.
        """
        columns = dict(self._columns)
        headers = dict(self.header.passes)
        for name, rows in passes.items():
            self._check_same_rows(name, rows)
            headers[name] = rows.header
            for column, values in rows._columns.items():
                if column not in _SHARED:
                    columns[pass_column(name, column)] = values
        joined = self._with(columns)
        joined.header = replace(self.header, passes=headers)
        return joined

    def _check_same_rows(self, pass_name: str, rows: Regions) -> None:
        problem = f"the rows of the pass {pass_name!r} are not those of the run: run the pass again"
        if len(rows) != len(self):
            raise DataError(f"{problem} ({len(rows)} rows, expected {len(self)})")
        is_other = (rows.image_id != self.image_id) | (rows.region_id != self.region_id)
        if is_other.any():
            raise DataError(problem, row=int(is_other.argmax()), field="region_id")

    def of_pass(self, pass_name: str) -> Regions:
        """The rows of a pass whose columns these rows have beside their own; see `beside`.

        Image, number, box and confidence are these rows'; the label is the same class.
        """
        header = self.header.passes[pass_name]
        columns: dict[str, Any] = {}
        for name in ("image_id", "region_id", "box", "score"):
            columns[name] = self._columns[name]
        columns["label"] = header.column_of(self.header)[self.label]
        prefix = pass_column(pass_name, "")
        for name, values in self._columns.items():
            if name.startswith(prefix):
                columns[own_name(name)] = values
        regions = self._with(columns)
        regions.header = header
        return regions

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        """The rows in batches, as those of a `RegionsFolder`: code that streams takes either.

        Args:
            columns: Not used: the batches have all columns, which are in memory.
        """
        for start in range(0, len(self), ROW_GROUP):
            yield self[start : start + ROW_GROUP]

    @property
    def is_labelled_unknown(self) -> np.ndarray:
        """Rows whose label is a class of unknown objects, ndarray of shape (N,), bool."""
        return np.isin(self.label, self.header.unknown_columns)

    def above(self, threshold: float) -> Regions:
        """The rows whose detector score is at least `threshold`."""
        return self[self.score >= threshold]

    @classmethod
    def empty(cls, header: Header | None = None) -> Self:
        """A table without rows."""
        header = header or Header(classes=())
        logits = np.zeros((0, len(header.classes)), np.float32)
        return cls(header=header, logits=logits, **cls._required_columns())

    def write(self, path: str | Path) -> None:
        """Writes a regions folder, aside first, then renamed."""
        writer = RegionsWriter(path, self.header)
        writer.write_shard(0, self)
        writer.close(shards=1)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads a whole regions folder.

        Raises:
            DataError: a file is absent or damaged, or a row is wrong; names file, row and field.
        """
        folder = RegionsFolder(path)
        batches = list(folder.batches())
        if not batches:
            return cls.empty(folder.header)
        return cls.concatenate(batches)  # type: ignore[arg-type]

    @classmethod
    def from_frame(
        cls, frame: pl.DataFrame, source: str | Path | None = None, header: Header | None = None
    ) -> Self:
        """Rows of a frame under a header."""
        regions = cls.__new__(cls)
        columns = cls._declared_columns(frame)
        if header is None:
            header = Header(classes=_numbered_classes(columns.get("logits")))
        regions.header = header
        regions._fill(columns, source)
        return regions


class RegionsShard(Schema):
    """A shard in `regions.json`."""

    file: str
    regions: NonNegativeInt
    images: NonNegativeInt = 0


class RegionsInfo(Schema):
    """Fields and types of `regions.json`, beside those of the header."""

    format: Literal["farther.regions"]
    version: Literal[1]
    columns: list[str]
    shards: list[RegionsShard]
    failures: list[dict[str, str]]


class RegionsFolder(WithHeader):
    """A regions folder on disk, read in batches, so that memory is bounded by a batch.

    Args:
        path: The folder.
        min_score: Rows with a lower detector score are left out.

    Has the header's fields and `batches` as `Regions` has, so that code that streams takes either.

    Raises:
        DataError: the folder is absent, or its `regions.json` or last layer is damaged.
    """

    def __init__(self, path: str | Path, min_score: float = 0.0):
        self.path = Path(path)
        self.min_score = min_score
        self.info: dict[str, Any] = read_json(self.path / "regions.json")
        check(RegionsInfo, self.info, self.path / "regions.json")
        self.header = Header.from_json(self.info, self.path, self.path / "regions.json")
        self.shards = [inside(self.path, shard["file"]) for shard in self.info["shards"]]
        self.failures: list[dict[str, str]] = self.info["failures"]

    def rows_digest(self) -> str:
        """Digest of all rows, taken from the shards; names of classes do not count.

        Raises:
            DataError: a shard is absent.
        """
        return digest(*self.shards)

    def __len__(self) -> int:
        """Number of stored rows, whatever `min_score` is."""
        return sum(shard["regions"] for shard in self.info["shards"])

    def has(self, column: str) -> bool:
        """True if the rows have this column (or, for `last_layer`, the header)."""
        if column == "last_layer":
            return self.weight is not None
        return column in self.info["columns"]

    def above(self, threshold: float) -> RegionsFolder:
        """The same folder, without the rows whose detector score is below `threshold`."""
        return RegionsFolder(self.path, max(threshold, self.min_score))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        """The rows in batches, in stored order.

        Shards without rows are left out unless there is nothing else.

        Args:
            columns: Optional columns to read (`features`, `latent.<layer>`, `gram.<layer>`, …); all
                when None. The others are always read.

        Raises:
            DataError: a shard is absent or damaged, or a row is wrong; names shard, row and field.
        """
        names = [column.name for column in Regions.declared(self.info["columns"])]
        if columns is not None:
            names_to_read = {*Regions.ALWAYS_READ, *columns}
            names = [name for name in names if name in names_to_read]
        for shard in self.shards:
            first_row = 0
            for frame in read_batches(shard, names, ROW_GROUP):
                if not frame.height and len(self):
                    continue
                batch = self._checked_batch(frame, names, shard, first_row)
                first_row += len(batch)
                if self.min_score > 0:
                    batch = batch.above(self.min_score)
                yield batch

    def _checked_batch(
        self, frame: pl.DataFrame, names: Sequence[str], shard: Path, first_row: int
    ) -> Regions:
        """Rows of a shard, checked.

        Args:
            frame: The rows.
            names: The columns that were read.
            shard: The file.
            first_row: Number of the first of the rows in the file.
        """
        if frame.height:  # a shard without rows may lack columns
            for name in self.info["columns"]:
                if name in names and name not in frame.columns:
                    problem = "the column is missing, but regions.json names it"
                    raise DataError(problem, file=shard, field=name)
        try:
            return Regions.from_frame(frame, shard, self.header)
        except DataError as error:
            row = None
            if error.row is not None:
                row = first_row + int(error.row)
            raise DataError(error.problem, file=shard, row=row, field=error.field) from None

    def renamed(self, header: Header) -> RegionsFolder:
        """Rewrites `regions.json` with the names of classes of another header.

        The rows have indices of classes and stay as they are.

        Returns:
            The folder, opened again.
        """
        if self.header.columns_of_classes() != header.columns_of_classes():
            write_json(self.path / "regions.json", {**self.info, **header.columns_of_classes()})
        return RegionsFolder(self.path, self.min_score)

    def scan(self) -> pl.LazyFrame:
        """The rows at or above `min_score` as a lazy frame, which reads only what is used.

        Values are not checked. Shards without rows, which may lack columns, are left out.
        """
        shards = []
        for path, shard in zip(self.shards, self.info["shards"], strict=True):
            if shard["regions"]:
                shards.append(path)
        if not shards:
            return Regions.empty(self.header).frame.lazy()
        lazy = scan_parquet(shards)
        schema = lazy.collect_schema()
        for column in Regions.declared(schema.names()):
            if column.name not in schema:
                if not column.optional:
                    raise DataError("the column is missing", file=shards[0], field=column.name)
            elif not column.accepts(schema[column.name]):
                problem = f"expected {column.dtype}, found {schema[column.name]}"
                raise DataError(problem, file=shards[0], field=column.name)
        if self.min_score > 0:
            lazy = lazy.filter(pl.col("score") >= pl.lit(self.min_score, pl.Float32))
        return lazy


class RegionsWriter(ShardWriter):
    """Writes a regions folder shard by shard; a killed run resumes. See `ShardWriter`.

    Rows of all shards must have the same columns.

    Args:
        path: The folder.
        header: The header of all rows.
        work: Folder for unfinished work; see `ShardWriter`.
        key: Digest of all that the rows are made from (images, parameters, code). A run with the
            same header and key keeps the finished shards.
    """

    DESCRIPTION = "regions.json"

    def __init__(
        self, path: str | Path, header: Header, work: str | Path | None = None, key: str = ""
    ):
        if header.passes:
            raise DataError("rows with columns of passes are not stored", file=path)
        self.header = header
        facts = {"header": header.to_json(), "last_layer": header.layer_digest()}
        super().__init__(path, key, work, facts)
        header.write_last_layer(self.rows)

    def _describe(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        shards = []
        failures = []
        for part in parts:
            shards.append({"file": part["file"], "regions": part["rows"], "images": part["images"]})
            failures += part["failures"]
        return {
            "format": "farther.regions",
            "version": 1,
            **self.header.to_json(),
            "columns": _common_columns(parts),
            "images": sum(part["images"] for part in parts),
            "regions": sum(part["rows"] for part in parts),
            "failures": failures,
            "shards": shards,
        }


def _common_columns(parts: Sequence[dict[str, Any]]) -> list[str]:
    """The columns of shards with rows.

    A shard without rows may lack optional columns: there was no row to learn them from. They are
    the columns if no shard has rows.
    """
    with_rows = [part for part in parts if part["rows"]]
    columns_by_part = [part["columns"] for part in with_rows or parts]
    required = [column.name for column in Regions.COLUMNS if not column.optional]
    columns: list[str] = max(columns_by_part, key=len, default=required)
    for part in with_rows:
        if part["columns"] != columns:
            problem = f"has columns {part['columns']}, another shard {columns}"
            raise DataError(problem, file=part["file"])
    return columns


def scan_regions(
    path: str | Path, min_score: float = 0.0, columns: Sequence[str] | None = None
) -> pl.LazyFrame:
    """The rows of a regions folder as a lazy frame, which reads only what is used.

    Args:
        path: The folder.
        min_score: Rows with a lower detector score are left out.
        columns: Columns to read, all when None.

    Raises:
        DataError: the folder is absent, its header is damaged, or a shard is absent, damaged or
            lacks a column.

    Example:
        >>> from tempfile import mkdtemp
        >>> folder = f"{mkdtemp()}/near"
        >>> regions = Regions(
        ...     image_id=["a", "a"],
        ...     region_id=[0, 1],
        ...     box=[[0, 0, 2, 2], [1, 1, 3, 3]],
        ...     score=[0.2, 0.9],
        ...     label=[0, 1],
        ...     logits=[[2.0, 0.0], [0.0, 2.0]],
        ... )
        >>> regions.write(folder)
        >>> scan_regions(folder, min_score=0.3).select("image_id", "label").collect().rows()
        [('a', 1)]
    """
    folder = RegionsFolder(path, min_score)
    lazy = folder.scan()
    if columns is None:
        return lazy
    known = lazy.collect_schema().names()
    for name in columns:
        if name not in known:
            problem = f"the column is missing; the table has {', '.join(known)}"
            raise DataError(problem, file=folder.path, field=name)
    return lazy.select(columns)


def _numbered_classes(logits: Any) -> tuple[str, ...]:
    """Classes called "0", "1", …, one per logits column."""
    if logits is None:
        raise DataError("without logits, the names of the classes must be given", field="classes")
    if isinstance(logits, pl.Series):
        logits = logits.to_numpy()
    count = np.shape(logits)[-1]
    return tuple(str(column) for column in range(count))
