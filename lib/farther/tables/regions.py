"""The table `regions`: what a score is given to, and all that a score can be computed from.

A regions folder explains itself:

    regions.json            header: classes, background index, activation, detector, thresholds, shards, failed images
    last_layer.safetensors  weight (K×D) and bias (K) of the last linear layer, where the detector has one
    part-00000.parquet …    the rows
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file, save_file

from farther.errors import DataError
from farther.tables.columns import ROW_GROUP, Column, ColumnTable, arrow_columns, open_parquet
from farther.tables.files import digest, inside, read_json, write_aside, write_json

VERSION = 1
Activation = Literal["softmax", "sigmoid"]


@dataclass(frozen=True)
class Header:
    """What all rows of a regions table share.

    Args:
        classes: Name of each logits column, K of them; the background's, where there is one, included.
        background_index: Logits column of "no object", None where the head has none.
        activation: What turns logits into the detector's scores.
        score_threshold: Detections below this score were not stored.
        detector: Name, parameters, checkpoint digest: whatever says where the rows come from.
        weight: Last linear layer, ndarray of shape (K, D), so that features @ weight.T + bias = logits; or None.
        bias: ndarray of shape (K,), or None.

    Raises:
        DataError: the fields do not fit each other.
    """

    classes: tuple[str, ...]
    background_index: int | None = None
    activation: Activation = "softmax"
    score_threshold: float = 0.0
    detector: dict[str, Any] = field(default_factory=dict)
    weight: np.ndarray | None = None
    bias: np.ndarray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))
        count = len(self.classes)
        if len(set(self.classes)) != count:
            raise DataError(f"a class stands twice in {list(self.classes)}", field="classes")
        if self.activation not in ("softmax", "sigmoid"):
            raise DataError(f"expected 'softmax' or 'sigmoid', found {self.activation!r}", field="activation")
        if self.background_index is not None and not 0 <= self.background_index < count:
            raise DataError(f"expected 0 … {count - 1}, found {self.background_index}", field="background_index")
        if (self.weight is None) != (self.bias is None):
            raise DataError("weight and bias of the last layer come together", field="bias")
        if self.weight is not None and self.bias is not None:
            for name in ("weight", "bias"):
                object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float32))
            if self.weight.ndim != 2 or len(self.weight) != count:
                raise DataError(f"expected {count} rows, a class each, found shape {self.weight.shape}", field="weight")
            if self.bias.shape != (count,):
                raise DataError(f"expected {count} values, a class each, found shape {self.bias.shape}", field="bias")

    @property
    def known_classes(self) -> tuple[str, ...]:
        """The classes without the background."""
        return tuple(c for i, c in enumerate(self.classes) if i != self.background_index)

    def to_json(self) -> dict[str, Any]:
        """All but the last layer, as JSON can hold it."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("weight", "bias")}
        return {**values, "classes": list(self.classes)}


class Regions(ColumnTable):
    """Detections (or whole images, for a classifier) with all that a score may need.

    Args:
        image_id: N names of images.
        region_id: ndarray of shape (N,), int64.
        box: ndarray of shape (N, 4): xmin, ymin, xmax, ymax in pixels of the original image.
        score: ndarray of shape (N,): the detector's confidence, 0 to 1.
        label: ndarray of shape (N,), int16: the predicted class, an index into `classes`.
        logits: ndarray of shape (N, K), or None: detections made elsewhere may come without.
        features: ndarray of shape (N, D), input of the last linear layer, or None.
        latent: ndarray of shape (N, C), ROI-aligned and channel-averaged activations, or None.
        box_variance: ndarray of shape (N, 4), or None.
        uncertainty: ndarray of shape (N,), the detector's own, higher for less certain; or None.
        header: All that the rows share; or give its fields (`classes`, `weight`, `bias`, …) as keyword arguments.

    Without `classes`, the K classes are called "0", "1", … Where there are no logits, `classes` must be given.

    Raises:
        DataError: a column is missing or wrong; names row and field.
    """

    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("image_id", "string"),
        Column("region_id", "int64"),
        Column("box", "box"),
        Column("score", "float32"),
        Column("label", "int16"),
        Column("logits", "vector", optional=True),
        Column("features", "vector", optional=True),
        Column("latent", "vector", optional=True),
        Column("box_variance", "box", optional=True),
        Column("uncertainty", "float32", optional=True),
    )
    #: Columns that `RegionsFolder.batches` reads whatever it is asked for, where they are there.
    ALWAYS_READ: ClassVar[frozenset[str]] = frozenset({"logits"})

    if TYPE_CHECKING:
        image_id: np.ndarray
        region_id: np.ndarray
        box: np.ndarray
        score: np.ndarray
        label: np.ndarray
        logits: np.ndarray  # None without logits; whoever reads it asks `has("logits")` first
        features: np.ndarray | None
        latent: np.ndarray | None
        box_variance: np.ndarray | None
        uncertainty: np.ndarray | None

    def __init__(self, *, header: Header | None = None, **values: Any):
        shared = {f.name: values.pop(f.name) for f in fields(Header) if f.name in values}
        if header is None:
            if "classes" not in shared:
                shared["classes"] = _numbered_classes(values.get("logits"), source=None)
            header = Header(**shared)
        elif shared:
            raise DataError(f"given beside a header: {', '.join(shared)}", field="header")
        self.header = header
        self._fill(values, source=None)

    def _check(self, source: str | Path | None) -> None:
        super()._check(source)
        self._check_against_header(source)

    def _check_against_header(self, source: str | Path | None) -> None:
        count = len(self.header.classes)
        if self.has("logits") and self.logits.shape[1] != count:
            problem = f"{self.logits.shape[1]} logits, but {count} classes"
            raise DataError(problem, file=source, row=0 if len(self) else None, field="logits")
        wrong = np.flatnonzero((self.label < 0) | (self.label >= count) | (self.label == self._background()))
        if len(wrong):
            found = f"{self.label[wrong[0]]} is not the index of a known class"
            problem = f"{found} ({count} classes, background {self.background_index})"
            raise DataError(problem, file=source, row=int(wrong[0]), field="label")
        if self.weight is not None and self.features is not None and self.weight.shape[1] != self.features.shape[1]:
            problem = f"{self.features.shape[1]} values a row, but the last layer takes {self.weight.shape[1]}"
            raise DataError(problem, file=source, field="features")

    def _background(self) -> int:
        return -1 if self.background_index is None else self.background_index

    @property
    def classes(self) -> tuple[str, ...]:
        """Name of each logits column, the background included."""
        return self.header.classes

    @property
    def background_index(self) -> int | None:
        """Logits column of the background, None where there is none."""
        return self.header.background_index

    @property
    def activation(self) -> Activation:
        """What turns logits into the detector's scores."""
        return self.header.activation

    @property
    def weight(self) -> np.ndarray | None:
        """Last layer's weight, shape (K, D)."""
        return self.header.weight

    @property
    def bias(self) -> np.ndarray | None:
        """Last layer's bias, shape (K,)."""
        return self.header.bias

    def has(self, column: str) -> bool:
        """Whether the rows have this column (or, for `last_layer`, the header)."""
        return self.weight is not None if column == "last_layer" else getattr(self, column) is not None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        """The rows in batches: code that streams takes a table in memory as well as a `RegionsFolder`."""
        for start in range(0, len(self), ROW_GROUP):
            yield self[start : start + ROW_GROUP]

    def above(self, threshold: float) -> Regions:
        """The rows whose detector score is at least `threshold`."""
        return self[self.score >= threshold]

    @classmethod
    def empty(cls, header: Header | None = None) -> Self:
        """A table without rows."""
        header = header or Header(classes=())
        columns = {c.name: np.zeros((0, c.width) if c.width else 0) for c in cls.COLUMNS if not c.optional}
        return cls(header=header, **{**columns, "logits": np.zeros((0, len(header.classes)), np.float32)})

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
        parts = list(folder.batches())
        return cls.concatenate(parts) if parts else cls.empty(folder.header)  # type: ignore[arg-type]

    @classmethod
    def from_arrow(cls, table: pa.Table, source: str | Path | None = None, header: Header | None = None) -> Self:
        """Rows of an Arrow table under a header.

        Raises:
            DataError: see the class.
        """
        made = cls.__new__(cls)
        columns = arrow_columns(cls.COLUMNS, table, source)
        made.header = header or Header(classes=_numbered_classes(columns.get("logits"), source))
        made._fill(columns, source)
        return made


class RegionsFolder:
    """A regions folder on disk, read in batches: memory is bounded by a row group, not by the number of regions.

    Args:
        path: The folder.
        min_score: Rows with a lower detector score are left out.

    Has the same shared fields as `Regions` (`classes`, `weight`, `background_index`, …) and `batches`, so that code
    that streams takes either.

    Raises:
        DataError: the folder is absent, or its `regions.json` or last layer is damaged.
    """

    def __init__(self, path: str | Path, min_score: float = 0.0):
        self.path = Path(path)
        self.min_score = min_score
        self.info: dict[str, Any] = read_json(self.path / "regions.json")
        self.header = _read_header(self.path, self.info)
        self.shards = [inside(self.path, shard["file"]) for shard in self.info["shards"]]
        self.failures: list[dict[str, str]] = self.info["failures"]

    @property
    def key(self) -> str:
        """Names all that the rows were made from; empty where the writer gave no key."""
        return self.info.get("key", "")

    @property
    def classes(self) -> tuple[str, ...]:
        """Name of each logits column, the background included."""
        return self.header.classes

    @property
    def background_index(self) -> int | None:
        """Logits column of the background, None where there is none."""
        return self.header.background_index

    @property
    def activation(self) -> Activation:
        """What turns logits into the detector's scores."""
        return self.header.activation

    @property
    def weight(self) -> np.ndarray | None:
        """Last layer's weight, shape (K, D)."""
        return self.header.weight

    @property
    def bias(self) -> np.ndarray | None:
        """Last layer's bias, shape (K,)."""
        return self.header.bias

    def __len__(self) -> int:
        """Stored rows, whatever `min_score` is."""
        return sum(shard["regions"] for shard in self.info["shards"])

    def has(self, column: str) -> bool:
        """Whether the rows have this column (or, for `last_layer`, the header)."""
        return self.weight is not None if column == "last_layer" else column in self.info["columns"]

    def above(self, threshold: float) -> RegionsFolder:
        """The same folder, without the rows whose detector score is below `threshold`."""
        return RegionsFolder(self.path, max(threshold, self.min_score))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        """The rows, a row group at a time, in stored order; empty row groups are left out unless there is nothing else.

        Args:
            columns: Optional columns to read (`features`, `latent`, `box_variance`, `uncertainty`); all when None. The
                others always come.

        Raises:
            DataError: a shard is absent or damaged, or a row is wrong; names shard, row and field.
        """
        required = [c.name for c in Regions.COLUMNS if not c.optional or c.name in Regions.ALWAYS_READ]
        wanted = None if columns is None else [*required, *(c for c in columns if c not in required)]
        for shard in self.shards:
            with open_parquet(shard) as file:
                self._refuse_missing(shard, file)
                names = None if wanted is None else [n for n in wanted if n in file.schema_arrow.names]
                first = 0
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group, columns=names)
                    if not table.num_rows and len(self):
                        continue
                    try:
                        batch = Regions.from_arrow(table, shard, self.header)
                    except DataError as error:
                        row = None if error.row is None else first + int(error.row)
                        raise DataError(error.problem, file=shard, row=row, field=error.field) from None
                    first += len(batch)
                    yield batch.above(self.min_score) if self.min_score > 0 else batch

    def _refuse_missing(self, shard: Path, file: pq.ParquetFile) -> None:
        """Refuses a shard without a column that the header names; one without rows may lack columns."""
        missing = [name for name in self.info["columns"] if name not in file.schema_arrow.names]
        if missing and file.metadata.num_rows:
            raise DataError("the column is missing, but regions.json names it", file=shard, field=missing[0])


class RegionsWriter:
    """Writes a regions folder shard by shard, and can go on where a killed run stopped.

    All is first written to a work folder: `rows/` there is the folder to be, and beside it stand `started.json` (what
    the rows are made from) and `part-00000.json` … (one for each finished shard). Every file is written aside and then
    renamed, so that one which is found there is whole. `close` renames `rows/` to `path`.

    Args:
        path: The folder to be.
        header: What all rows share.
        work: Where unfinished work lives, on the file system of `path`; `.<name>.unfinished` beside it unless said
            otherwise. A run with the same header and key finds its finished shards there; other work is thrown away.
        key: Names all that the rows are made from (images, parameters, code); kept as `RegionsFolder.key`.

    Raises:
        DataError: `work` and `path` are on different file systems, so that no rename could connect them.
    """

    def __init__(self, path: str | Path, header: Header, work: str | Path | None = None, key: str = ""):
        self.path = Path(path)
        self.header = header
        self.key = key
        self.work = Path(work) if work is not None else self.path.with_name(f".{self.path.name}.unfinished")
        self._rows = self.work / "rows"
        started = {"header": header.to_json(), "last_layer": _last_layer_digest(header), "key": key}
        if not self._continues(started):
            shutil.rmtree(self.work, ignore_errors=True)
        self._rows.mkdir(parents=True, exist_ok=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._rows.stat().st_dev != self.path.parent.stat().st_dev:
            raise DataError(f"not on the file system of {self.path}; choose a work folder that is", file=self.work)
        self._clear_half_written()
        _write_last_layer(self._rows, header)
        write_json(self.work / "started.json", started)

    def _clear_half_written(self) -> None:
        for half_written in [*self.work.glob(".*"), *self._rows.glob(".*")]:
            half_written.unlink(missing_ok=True)

    def _continues(self, started: dict[str, Any]) -> bool:
        earlier = self.work / "started.json"
        return earlier.exists() and read_json(earlier) == json.loads(json.dumps(started))

    def _part(self, shard: int) -> Path:
        return self.work / f"part-{shard:05d}.json"

    def finished(self, shard: int) -> bool:
        """Whether a shard was written whole, by this run or an earlier one."""
        return self._part(shard).exists() and (self._rows / f"part-{shard:05d}.parquet").exists()

    def failures(self, shard: int) -> list[dict[str, str]]:
        """The failures that a finished shard was written with.

        Raises:
            DataError: the shard is not finished.
        """
        return read_json(self._part(shard))["failures"]

    def write_shard(
        self, shard: int, regions: Regions, images: int = 0, failures: Sequence[dict[str, str]] = ()
    ) -> None:
        """Writes one shard.

        Args:
            shard: Its number, from 0.
            regions: Its rows.
            images: Images that were looked at for it.
            failures: `{"image_id": …, "reason": …}` of those that could not be.
        """
        name = f"part-{shard:05d}"
        with write_aside(self._rows / f"{name}.parquet") as aside:
            pq.write_table(regions.to_arrow(), aside, compression="zstd", row_group_size=ROW_GROUP)
        entry = {"file": f"{name}.parquet", "regions": len(regions), "images": images}
        columns = [c.name for c in regions.COLUMNS if regions.has(c.name)]
        write_json(self._part(shard), {**entry, "columns": columns, "failures": list(failures)})

    def close(self, shards: int) -> None:
        """Makes the folder: all shards, `regions.json`, and nothing else. The work folder is gone then.

        Raises:
            DataError: a shard from 0 to `shards` - 1 was not written, or two with rows differ in their columns.
        """
        parts = []
        for shard in range(shards):
            if not self.finished(shard):
                raise DataError(f"shard {shard} of {shards} was never written", file=self.work)
            parts.append(read_json(self._part(shard)))
        self._clear_half_written()  # another process that wrote shards may have been killed
        write_json(self._rows / "regions.json", self._info(parts))
        if self.path.exists():
            # Renamed away before it is deleted: a half-deleted folder must not bear the name of a whole one.
            replaced = self.path.with_name(f".{os.getpid()}.{self.path.name}")
            self.path.replace(replaced)
            shutil.rmtree(replaced)
        self._rows.replace(self.path)
        shutil.rmtree(self.work)

    def _info(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        # A shard without rows may lack columns: whoever wrote it had no row to learn them from.
        with_rows = [part for part in parts if part["regions"]]
        known = [part["columns"] for part in with_rows or parts]
        columns = max(known, key=len, default=[c.name for c in Regions.COLUMNS if not c.optional])
        for part in with_rows:
            if part["columns"] != columns:
                raise DataError(f"has columns {part['columns']}, another shard {columns}", file=part["file"])
        return {
            "format": "farther.regions",
            "version": VERSION,
            "key": self.key,
            **self.header.to_json(),
            "columns": columns,
            "images": sum(part["images"] for part in parts),
            "regions": sum(part["regions"] for part in parts),
            "failures": [failure for part in parts for failure in part["failures"]],
            "shards": [{key: part[key] for key in ("file", "regions", "images")} for part in parts],
        }


def _numbered_classes(logits: Any, source: str | Path | None) -> tuple[str, ...]:
    if logits is None:
        raise DataError("without logits, the names of the classes must be given", file=source, field="classes")
    return tuple(str(k) for k in range(np.shape(logits)[-1]))


def _write_last_layer(folder: Path, header: Header) -> None:
    if header.weight is not None and header.bias is not None:
        with write_aside(folder / "last_layer.safetensors") as aside:
            # safetensors writes the bytes as they lie, so a transposed view would come back as another matrix
            save_file({"weight": np.ascontiguousarray(header.weight), "bias": np.ascontiguousarray(header.bias)}, aside)


def _last_layer_digest(header: Header) -> str:
    if header.weight is None or header.bias is None:
        return ""
    return digest(str(header.weight.shape), header.weight.tobytes(), header.bias.tobytes())


def _read_header(folder: Path, info: Any) -> Header:
    source = folder / "regions.json"
    if not isinstance(info, dict) or info.get("format") != "farther.regions":
        raise DataError("not the header of a regions folder", file=source, field="format")
    if info.get("version") != VERSION:
        raise DataError(f"version {info.get('version')!r}, this farther reads {VERSION}", file=source, field="version")
    names = [f.name for f in fields(Header) if f.name not in ("weight", "bias")]
    for name in [*names, "columns", "shards", "failures"]:
        if name not in info:
            raise DataError("the field is missing", file=source, field=name)
    layer: dict[str, np.ndarray] = {}
    if (folder / "last_layer.safetensors").exists():
        layer = load_file(folder / "last_layer.safetensors")
    try:
        return Header(**{name: info[name] for name in names}, weight=layer.get("weight"), bias=layer.get("bias"))
    except DataError as error:
        raise DataError(error.problem, file=source, field=error.field) from None
