"""The table `regions`: what a score is given to, and all that a score can be computed from.

A regions folder explains itself:

    regions.json            header: classes, background index, activation, detector, thresholds, shards, failed images
    last_layer.safetensors  weight (K×D) and bias (K) of the last linear layer, where the detector has one
    part-00000.parquet …    the rows
"""

from __future__ import annotations

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
from farther.tables.files import digest, inside, read_json, write_aside
from farther.tables.shards import ShardWriter

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

    def layer_digest(self) -> str:
        """Digest of the last layer; "" without one."""
        if self.weight is None or self.bias is None:
            return ""
        return digest(str(self.weight.shape), self.weight.tobytes(), self.bias.tobytes())


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


class RegionsWriter(ShardWriter):
    """Writes a regions folder shard by shard; a killed run resumes.

    Args:
        path: The folder to be.
        header: What all rows share.
        work: See `ShardWriter`; a run with the same header and key keeps the finished shards.
        key: Digest of all that the rows are made from (images, parameters, code); stored as `RegionsFolder.key`.

    Raises:
        DataError: see `ShardWriter`; `close` also raises it for two shards with rows that differ in their columns.
    """

    DESCRIPTION = "regions.json"

    def __init__(self, path: str | Path, header: Header, work: str | Path | None = None, key: str = ""):
        self.header = header
        self.key = key
        super().__init__(path, {"header": header.to_json(), "last_layer": header.layer_digest(), "key": key}, work)
        if header.weight is not None and header.bias is not None:
            with write_aside(self.rows / "last_layer.safetensors") as aside:
                # safetensors writes the bytes as they lie, so a transposed view would come back as another matrix
                tensors = {"weight": np.ascontiguousarray(header.weight), "bias": np.ascontiguousarray(header.bias)}
                save_file(tensors, aside)

    def _describe(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        # A shard without rows may lack optional columns: there was no row to learn them from.
        with_rows = [part for part in parts if part["rows"]]
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
            "regions": sum(part["rows"] for part in parts),
            "failures": [failure for part in parts for failure in part["failures"]],
            "shards": [{"file": p["file"], "regions": p["rows"], "images": p["images"]} for p in parts],
        }


def _numbered_classes(logits: Any, source: str | Path | None) -> tuple[str, ...]:
    if logits is None:
        raise DataError("without logits, the names of the classes must be given", file=source, field="classes")
    return tuple(str(k) for k in range(np.shape(logits)[-1]))


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
