"""Scores of tensors: a fitted method as a PyTorch module. Imported by `Method.to_torch` only."""

from __future__ import annotations

import copy
import warnings
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from farther.errors import DataError, ParameterError
from farther.methods.arrays import namespace
from farther.methods.rows import LABELLED_UNKNOWN, Background, Rows, class_columns
from farther.tables import Header, Regions
from farther.tables.regions import GRAM, LAYER, PASS, own_name, pass_column

#: Products of rows and stored vectors that are held at once.
PRODUCTS = 1 << 26

#: Columns with one number per row; all others have a vector per row.
NUMBERS = frozenset({"score", "label", "uncertainty", "predictive_entropy", "mutual_information"})

#: Columns with a vector per row, but for those of layers.
VECTORS = frozenset({"logits", "features", "latent", "mean_probabilities", "box_variance"})

#: Names of the buffers with the logits columns that count as classes.
COLUMNS: dict[Background, str] = {"drop": "class_columns", "keep": "class_columns_with_background"}


class ScoredMethod(Protocol):
    """What is read of a fitted method; see `farther.methods.base.Method`."""

    name: ClassVar[str]
    only_float64: ClassVar[str]

    @property
    def inputs(self) -> frozenset[str]:
        """The inputs that the score needs."""

    @property
    def columns(self) -> list[str]:
        """The optional columns that the score reads."""

    @property
    def passes_beside(self) -> tuple[str, ...]:
        """Names of the passes whose columns the score reads beside the detections'."""

    def torch_state(self) -> dict[str, Any]:
        """Fitted attributes, as arrays and floats."""

    def _score(self, rows: Any) -> Any:
        """Scores of rows."""


class TensorRows(Rows):
    """Rows as tensors.

    Args:
        header: All that the rows share.
        columns: Tensors by the name of their column, all on one device.
        module: Its buffers are the last layer and the columns of classes.
        buffers: Prefix of the names of the buffers of these rows: that of a pass, or "".
    """

    def __init__(
        self, header: Header, columns: dict[str, Tensor], module: ScoreModule, buffers: str = ""
    ):
        self.header = header
        self._buffers = buffers
        self.dtype = module.dtype
        self.xp = namespace(module.unit)
        self._columns = columns
        self._module = module

    def array(self, name: str) -> Tensor:
        """See `Rows.array`."""
        column = self._columns.get(name)
        if column is None and name == "label" and "logits" in self._columns:
            known = self._counted_columns("drop")
            return known[self._columns["logits"][:, known].argmax(dim=1)]
        if column is None:
            raise _missing(self._module.method, name)
        return column

    def of_pass(self, name: str) -> TensorRows:
        """See `Rows.of_pass`."""
        header = self.header.passes[name]
        prefix = pass_column(name, "")
        columns = {}
        for column, values in self._columns.items():
            if column.startswith(prefix):
                columns[own_name(column)] = values
        if "score" in self._columns:
            columns["score"] = self._columns["score"]
        if "label" in self._columns or "logits" in self._columns:
            column_of_label = torch.from_numpy(header.column_of(self.header).astype(np.int64))
            label = self.array("label").long()
            columns["label"] = column_of_label.to(label.device)[label]
        return TensorRows(header, columns, self._module, pass_buffers(self.header, name))

    def _counted_columns(self, background: Background) -> Tensor:
        return self._module.counted_columns(self.header, background, self._buffers)

    def vectors(self, name: str) -> Tensor:
        """See `Rows.vectors`."""
        return self.array(name).to(self.dtype, copy=True)

    def number(self, value: Any) -> Any:
        """See `Rows.number`."""
        if isinstance(value, Tensor) or not torch.jit.is_tracing():
            return value
        # Of shape (1,): the exporter to ONNX rounds a number without a shape to float32.
        return torch.full((1,), value, dtype=self.dtype, device=self._module.unit.device)

    def counted(self, columns: Tensor, background: Background) -> Tensor:
        """See `Rows.counted`."""
        known = self._counted_columns(background)
        if len(known) == len(self.header.classes):
            return columns
        return columns[:, known]

    def classes(self, background: Background) -> int:
        """See `Rows.classes`."""
        return len(self._counted_columns(background))

    @property
    def weight(self) -> Tensor:
        """See `Rows.weight`."""
        weight: Tensor = getattr(self._module, f"{self._buffers}weight")
        return weight

    @property
    def bias(self) -> Tensor:
        """See `Rows.bias`."""
        bias: Tensor = getattr(self._module, f"{self._buffers}bias")
        return bias

    def last_layer(self, background: Background) -> tuple[Tensor, Tensor]:
        """See `Rows.last_layer`."""
        known = self._counted_columns(background)
        return self.weight[known], self.bias[known]

    @staticmethod
    def _before_sigmoid(z: Tensor) -> Tensor:
        z = z.clamp(max=-float(np.finfo(np.float32).tiny))
        # 1 − exp(z) without loss of digits near 0: ONNX has no expm1.
        return z - torch.log(-torch.tanh(z / 2) * (z.exp() + 1))


class ScoreModule(nn.Module):
    """The score of a fitted method: one number per row, higher means more in-distribution.

    Its buffers are the method's fitted state under the names of its attributes, and the last layer
    where the method reads it. `method.to_torch()` makes it.

    Args:
        method: Fitted.
        header: Of the regions that it was fitted to; None where all columns of logits are known
            classes.
        device: As PyTorch takes it.
        dtype: In which scores are computed; None for float64, or float32 where the device has none.
    """

    class_columns: Tensor
    class_columns_with_background: Tensor
    weight: Tensor
    bias: Tensor
    unit: Tensor

    def __init__(
        self,
        method: ScoredMethod,
        header: Header | None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        dtype = _dtype(method, dtype, torch.device(device or "cpu"))
        self.method = copy.copy(method)
        self.header = header
        self.widths: dict[str, int] = dict(getattr(method, "fitted_on_", {}).get("widths") or {})
        self.register_buffer("unit", torch.ones((), dtype=dtype), persistent=False)
        self._bound: list[str] = []
        for name, value in method.torch_state().items():
            if isinstance(value, np.ndarray):
                tensor = torch.from_numpy(np.array(value))
                self._bind(name, tensor.to(dtype) if tensor.dtype == torch.float64 else tensor)
            elif isinstance(value, float):
                self._bind(name, torch.tensor(value, dtype=dtype))
        if header is not None:
            self._bind_header(header, "", with_last_layer="last_layer" in method.inputs)
            for name in method.passes_beside:
                last_layer = pass_column(name, "last_layer")
                self._bind_header(
                    header.passes[name],
                    pass_buffers(header, name),
                    with_last_layer=last_layer in method.inputs,
                )
        lengths = [len(buffer) for buffer in self.buffers() if buffer.ndim > 1]
        self._rows_at_once = max(1, PRODUCTS // max(lengths, default=1))
        self.to(device)

    def _bind(self, name: str, tensor: Tensor) -> None:
        self.register_buffer(name, tensor)
        self._bound.append(name)

    def _bind_header(self, header: Header, prefix: str, *, with_last_layer: bool) -> None:
        """Makes buffers of the columns of classes, and of the last layer where it is read."""
        for background, name in COLUMNS.items():
            columns = torch.from_numpy(class_columns(header, background))
            self.register_buffer(f"{prefix}{name}", columns, persistent=False)
        if with_last_layer:
            for name in ("weight", "bias"):
                values = torch.from_numpy(np.array(getattr(header, name)))
                self.register_buffer(f"{prefix}{name}", values.to(self.unit.dtype))

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers in which scores are computed."""
        return self.unit.dtype

    def forward(
        self,
        logits: Tensor | None = None,
        features: Tensor | None = None,
        latent: Tensor | None = None,
        label: Tensor | None = None,
        score: Tensor | None = None,
        **columns: Tensor,
    ) -> Tensor:
        """Scores of N rows.

        Args:
            logits: Shape (N, K), with the background's column where the detector has one.
            features: Input of the last linear layer, shape (N, D).
            latent: Activations of an inner layer, shape (N, C).
            label: Predicted class, an index of a logits column, shape (N,). Where it is left out,
                that of the largest logit of a known class.
            score: The detector's confidence, shape (N,). Where classes mean unknown objects,
                `label` and it are needed: a row that the detector labels as unknown is below all
                others.
            **columns: Further columns by their names, such as `**{"latent.layer2": x}`.

        Returns:
            Shape (N,), in `dtype`; finite. Where a graph is traced or compiled, which cannot raise
            an error, a row with a value that is not finite, or with a label that is no class, has
            the lowest score.

        Raises:
            DataError: a column that the method needs is missing; a tensor has another width, type
                or device than the method was fitted on; a value that the method reads is not
                finite, or a label no class; names column and row.
        """
        named = {
            "logits": logits,
            "features": features,
            "latent": latent,
            "label": label,
            "score": score,
        }
        given = {
            name: column for name, column in {**named, **columns}.items() if column is not None
        }
        header = self._header(given)
        is_traced = torch.jit.is_tracing()
        if not is_traced:
            self._check(given, header)
        for name in self._bound:
            setattr(self.method, name, getattr(self, name))
        is_usable = self._are_usable(given, header)
        if is_traced or torch.compiler.is_compiling():
            scores = self._of_part(self._with_known_labels(given, header), header)
            lowest = -torch.finfo(self.dtype).max
            return torch.where(is_usable & ~scores.isnan(), scores, lowest)
        count = len(next(iter(given.values())))
        if count == 0:
            return self.unit.new_zeros(0)
        if not bool(is_usable.all()):
            raise self._unusable(int(is_usable.int().argmin()), given, header)
        parts = []
        for first in range(0, count, self._rows_at_once):
            part = {
                name: column[first : first + self._rows_at_once] for name, column in given.items()
            }
            parts.append(self._of_part(part, header))
        scores = torch.cat(parts)
        if bool(scores.isnan().any()):
            row = int(scores.isnan().int().argmax())
            problem = f"{self.method.name} gives NaN for row {row}; its fitted state is damaged"
            raise DataError(problem, field="score")
        return scores

    def score_regions(self, regions: Regions) -> np.ndarray:
        """Scores of the rows of a table, computed where the module is.

        Args:
            regions: N rows; their columns that the method reads go to the module's device.

        Returns:
            Shape (N,), float64: those of `Method.score` up to rounding.

        Raises:
            DataError: see `forward`.
        """
        names = {"score", *self.method.columns}
        if regions.has("logits"):
            names.add("logits")
        columns = {}
        for name in sorted(names):
            if regions.has(name):
                columns[name] = torch.from_numpy(np.array(regions.array(name)))
        columns["label"] = torch.from_numpy(regions.label.astype(np.int64))
        device = self.unit.device
        with torch.inference_mode():
            on_device = {name: column.to(device) for name, column in columns.items()}
            scores = self(**on_device)
        return scores.to("cpu", torch.float64).numpy()

    def counted_columns(self, header: Header, background: Background, buffers: str = "") -> Tensor:
        """Indices of the logits columns that count as classes, shape (C,).

        Args:
            header: Of the rows.
            background: Whether the background's column counts.
            buffers: Prefix of the names of their buffers.
        """
        if self.header is None:
            return torch.arange(len(header.classes), device=self.unit.device)
        columns: Tensor = getattr(self, f"{buffers}{COLUMNS[background]}")
        return columns

    def _header(self, given: dict[str, Tensor]) -> Header:
        if self.header is not None:
            return self.header
        count = int(given["logits"].shape[-1]) if "logits" in given else 0
        return Header(classes=tuple(str(number) for number in range(count)))

    def _of_part(self, columns: dict[str, Tensor], header: Header) -> Tensor:
        rows = TensorRows(header, columns, self)
        scores = self.method._score(rows).to(self.dtype)
        if header.unknown_columns:
            unknown = torch.tensor(header.unknown_columns, device=scores.device)
            is_unknown = (rows.label[:, None] == unknown).any(dim=1)
            scores = torch.where(
                is_unknown, -rows.number(LABELLED_UNKNOWN) * (1 + rows.vectors("score")), scores
            )
        largest = torch.full(
            (1,), torch.finfo(self.dtype).max, dtype=self.dtype, device=scores.device
        )
        return scores.minimum(largest).maximum(-largest)

    def _check(self, given: dict[str, Tensor], header: Header) -> None:
        method = self.method
        device = self.unit.device
        needed = []
        for name in sorted(method.inputs):
            if own_name(name) not in ("labels", "last_layer"):
                needed.append(name)
        if header.unknown_columns:
            needed += ["label", "score"]
        for name in needed:
            if name not in given:
                raise _missing(method, name)
        if not given:
            raise _missing(method, "logits")
        count = None
        for name, column in given.items():
            own = own_name(name)
            if not own.startswith((LAYER, GRAM)) and own not in VECTORS | NUMBERS:
                known = ", ".join(sorted(VECTORS | NUMBERS))
                raise DataError(
                    f"no such column; known: {known}, {LAYER}<layer>, {GRAM}<layer>, "
                    f"{PASS}<pass>/<column>",
                    field=name,
                )
            _check_tensor(name, column, device)
            count = len(column) if count is None else count
            if len(column) != count:
                problem = f"{len(column)} rows, but another column has {count}"
                raise DataError(problem, field=name)
        if "logits" in given and given["logits"].shape[1] != len(header.classes):
            raise DataError(
                f"{given['logits'].shape[1]} logits, but {len(header.classes)} classes",
                field="logits",
            )
        if "features" in given and header.weight is not None:
            width = given["features"].shape[1]
            taken = header.weight.shape[1]
            if width != taken:
                raise DataError(
                    f"{width} values per row, but the last layer takes {taken}", field="features"
                )
        for name, expected in self.widths.items():
            width = given[name].shape[1]
            if width != expected:
                problem = f"{width} values per row, but {method.name} was fitted on {expected}"
                raise DataError(problem, field=name)

    def _read(self, given: dict[str, Tensor], header: Header) -> dict[str, Tensor]:
        """The columns that scores depend on."""
        names = {*self.method.inputs}
        if header.unknown_columns:
            names |= {"label", "score"}
        if "labels" in names:
            names.add("label" if "label" in given else "logits")
        return {name: column for name, column in given.items() if name in names}

    def _are_usable(self, given: dict[str, Tensor], header: Header) -> Tensor:
        """Rows whose values are finite, and whose label is a class, shape (N,), bool."""
        first = next(iter(given.values()))
        is_usable = torch.ones(first.shape[:1], dtype=torch.bool, device=first.device)
        for name, column in self._read(given, header).items():
            if name == "label":
                is_usable = is_usable & (column >= 0) & (column < len(header.classes))
                if header.background_index is not None:
                    is_usable = is_usable & (column != header.background_index)
            elif own_name(name) in NUMBERS:
                is_usable = is_usable & column.isfinite()
            else:
                is_usable = is_usable & column.isfinite().all(dim=1)
        return is_usable

    def _with_known_labels(self, given: dict[str, Tensor], header: Header) -> dict[str, Tensor]:
        """The columns with labels that index the classes, whatever they were."""
        if "label" not in given:
            return given
        label = given["label"].clamp(0, max(len(header.classes) - 1, 0))
        return {**given, "label": label}

    def _unusable(self, row: int, given: dict[str, Tensor], header: Header) -> DataError:
        """The error about the first row that cannot be scored."""
        for name, column in self._read(given, header).items():
            value = column[row].detach()
            if name != "label" and not bool(value.isfinite().all()):
                found = value.reshape(-1)[~value.reshape(-1).isfinite()][0].item()
                return DataError(f"not a finite number: {found}", row=row, field=name)
        problem = (
            f"{int(given['label'][row])} is not the index of a known class "
            f"({len(header.classes)} classes, background {header.background_index})"
        )
        return DataError(problem, row=row, field="label")

    def extra_repr(self) -> str:
        """Name of the method, and how scores are computed."""
        return f"{self.method.name}, dtype={self.dtype}"


def _dtype(method: ScoredMethod, dtype: torch.dtype | None, device: torch.device) -> torch.dtype:
    has_float64 = device.type != "mps"
    if dtype is None:
        dtype = torch.float64
        if not has_float64 and not method.only_float64:
            warnings.warn(
                f"{device.type} has no float64: scores are computed in float32", stacklevel=4
            )
            dtype = torch.float32
    if dtype not in (torch.float32, torch.float64):
        raise ParameterError(f"dtype: expected torch.float32 or torch.float64, found {dtype}")
    if dtype == torch.float64 and not has_float64:
        reason = (
            f": {method.only_float64}" if method.only_float64 else "; write dtype=torch.float32"
        )
        raise ParameterError(f"dtype: {device.type} has no float64{reason}")
    if dtype == torch.float32 and method.only_float64:
        raise ParameterError(
            f"dtype: method {method.name!r} needs torch.float64: {method.only_float64}"
        )
    return dtype


def _check_tensor(name: str, column: Any, device: torch.device) -> None:
    """Raises DataError where a column is no tensor of numbers on the device."""
    if not isinstance(column, Tensor):
        raise DataError(f"expected a tensor, found {type(column).__name__}", field=name)
    dimensions = 1 if own_name(name) in NUMBERS else 2
    if column.ndim != dimensions:
        shape = "(N,)" if dimensions == 1 else "(N, D)"
        raise DataError(f"expected shape {shape}, found {tuple(column.shape)}", field=name)
    if column.layout != torch.strided:
        raise DataError("a sparse tensor: write .to_dense()", field=name)
    if column.device != device:
        raise DataError(
            f"is on {column.device}, but the method on {device}: move one of them", field=name
        )
    is_floating = column.dtype.is_floating_point
    if name == "label" and (is_floating or column.dtype == torch.bool):
        raise DataError(f"expected integers, found {column.dtype}", field=name)
    if name != "label" and not is_floating:
        raise DataError(f"expected floating-point numbers, found {column.dtype}", field=name)


def _missing(method: ScoredMethod, name: str) -> DataError:
    return DataError(f"{method.name} needs it, and it was not given", field=name)


def header_of(method: ScoredMethod, given: Header | None) -> Header | None:
    """The header of the rows that a method scores, with the last layer where the method reads it.

    Args:
        method: Fitted, if it learns.
        given: By the caller; None for that of the regions that the method was fitted to.

    Raises:
        DataError: it is of another kind of detector than that which the method was fitted on, or
            lacks the last layer.
    """
    header = given
    fitted_on = getattr(method, "fitted_on_", None)
    if header is None:
        header = vars(method).get("_header")
    if header is None and fitted_on is not None:
        of_classes = {
            name: fitted_on[name] for name in ("classes", "background_index", "unknown_columns")
        }
        header = Header(**of_classes, activation=fitted_on["activation"])
    if given is not None and fitted_on is not None:
        described = {**given.columns_of_classes(), "activation": given.activation}
        for field, value in described.items():
            if value != fitted_on.get(field, value):
                problem = f"{method.name} was fitted on {fitted_on[field]}, this header has {value}"
                raise DataError(problem, field=field)
    if "last_layer" in method.inputs and (header is None or header.weight is None):
        problem = f"{method.name} needs the last layer: write to_torch(header=regions.header)"
        raise DataError(problem, field="header")
    for name in method.passes_beside:
        if header is None or name not in header.passes:
            problem = (
                f"{method.name} reads the pass {name!r}: write to_torch(header=regions.header), of "
                "regions with its columns"
            )
            raise DataError(problem, field="header")
    return header


def pass_buffers(header: Header, name: str) -> str:
    """Prefix of the names of the buffers of a pass: names of passes may have dots."""
    return f"pass{list(header.passes).index(name)}_"
