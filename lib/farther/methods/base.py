"""What every score is: parameters in, `fit`, `score`, and a folder that holds what was learned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from pydantic.dataclasses import dataclass
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from farther.errors import DataError, FartherError
from farther.registry import STRICT, Registry
from farther.tables import Header, Regions
from farther.tables.files import read_json, write_aside, write_json

VERSION = 1

#: Optional columns of vectors, and all columns that a folder's batches hold only when they are asked for.
VECTORS = frozenset({"features", "latent"})
READ_WHEN_NEEDED = VECTORS | {"uncertainty"}

#: What a method may need that every table of regions has, or none.
NO_COLUMNS = frozenset({"labels", "model"})


class FitError(FartherError):
    """A method cannot be fitted to these regions; the message says why. Other methods may still be."""


class RegionsLike(Protocol):
    """What a method reads: `Regions` in memory, a `RegionsFolder`, or a sample of one."""

    @property
    def header(self) -> Header:
        """What all rows share."""

    def has(self, column: str) -> bool:
        """Whether the rows have this column (or, for `last_layer`, the header)."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        """The rows, some thousand at a time; only these optional columns are needed."""


@dataclass(config=STRICT, kw_only=True)
class Method:
    """Base of all scores. Higher means more in-distribution.

    A subclass declares its parameters as fields, says what it reads (`needs`), and writes `_score` and, if it learns
    anything, `_fit`. What `_fit` learns it stores in attributes whose names end in `_`: arrays, numbers, text, lists
    and dicts of those. `save` and `load` find them by that name.
    """

    name: ClassVar[str] = ""
    #: The name that papers print; "" where there is none.
    title: ClassVar[str] = ""
    #: What it reads: any of "logits", "features", "latent", "last_layer", "labels", "uncertainty"; and "model" where it
    #: runs the detector itself, see `farther.methods.parts.network`.
    needs: ClassVar[frozenset[str]] = frozenset()

    def fit(self, regions: RegionsLike) -> Self:
        """Learns from in-distribution regions, in passes over batches: memory is bounded by a batch and the state.

        Raises:
            FitError: there are no rows, a column is missing, or the method cannot be fitted to them.
        """
        if absent := self.missing(regions):
            raise FitError(f"{self.name} needs {', '.join(absent)}, which these regions do not have")
        count = count_rows(regions)
        if count == 0:
            raise FitError(f"{self.name}: there are no regions to fit on")
        self._fit(regions)
        header = regions.header
        self.fitted_on_ = {
            "regions": count,
            "classes": list(header.classes),
            "background_index": header.background_index,
            "activation": header.activation,
            "detector": dict(header.detector),
            "widths": self._widths(next(self._batches(regions))),
        }
        for attribute, value in self._state().items():
            if isinstance(value, np.ndarray):  # the layout that `load` gives, so that both score bit for bit alike
                setattr(self, attribute, np.ascontiguousarray(value))
        return self

    @property
    def wants_truth(self) -> bool:
        """Whether `learn_truth` must be called after `fit`."""
        return False

    def learn_truth(self, regions: RegionsLike, true_column: np.ndarray) -> None:
        """Learns from in-distribution validation detections whose true class is known, after `fit`.

        Args:
            regions: Those detections; what the detector made of them.
            true_column: The logits column of each one's true class, shape (N,): the background's where it shows no
                object, or −1 where the detector has no such column.

        Raises:
            FitError: they do not suffice.
        """

    def score(self, regions: RegionsLike) -> np.ndarray:
        """One score a row.

        Returns:
            ndarray of shape (N,), float64, finite; higher means more in-distribution.

        Raises:
            FitError: the method learns and was not fitted.
            DataError: a column is missing, or the regions come from another kind of detector than it was fitted on.
        """
        return self._scored(regions, self._score)

    def _scored(self, regions: RegionsLike, score: Callable[[Regions], np.ndarray]) -> np.ndarray:
        self._check(regions)
        parts = [np.zeros(0)]
        for block in self._blocks(regions):
            self._check_widths(block)
            parts.append(finite(score(block)))
        return np.concatenate(parts)

    def missing(self, regions: RegionsLike) -> list[str]:
        """What the method needs and these regions do not have, sorted; an empty list when it can be applied."""
        return sorted(n for n in self.needs - NO_COLUMNS if not regions.has(n))

    @property
    def learns(self) -> bool:
        """Whether it must be fitted before it can score."""
        return type(self)._fit is not Method._fit

    def save(self, path: str | Path) -> None:
        """Writes a folder: `method.json` (name, parameters, needs, fitted on what) and `state.safetensors` (arrays).

        Raises:
            FitError: the method learns and was not fitted.
        """
        self._check_fitted()
        with write_aside(path) as aside:
            self.write_into(aside)

    def write_into(self, folder: Path) -> None:
        """Writes the files of `save` into a folder that the caller renames when all is there."""
        state = self._state()
        arrays = {k: v for k, v in state.items() if isinstance(v, np.ndarray)}
        others = {k: v for k, v in state.items() if k not in arrays}
        folder.mkdir(parents=True, exist_ok=True)
        save_file(arrays, folder / "state.safetensors")
        write_json(folder / "method.json", {**describe(self), "state": others})

    def _state(self) -> dict[str, Any]:
        return {k: v for k, v in sorted(vars(self).items()) if k.endswith("_") and not k.startswith("_")}

    def _columns(self) -> list[str]:
        return sorted(self.needs & READ_WHEN_NEEDED)

    def _batches(self, regions: RegionsLike) -> Iterator[Regions]:
        return (batch for batch in regions.batches(self._columns()) if len(batch))

    def _blocks(self, regions: RegionsLike) -> Iterator[Regions]:
        """The rows that are scored at once; a subclass may want fewer than a batch has."""
        return self._batches(regions)

    def _check_fitted(self) -> None:
        if self.learns and not hasattr(self, "fitted_on_"):
            raise FitError(f"{self.name} is not fitted: call fit(regions) first, or load a fitted state")

    def _check(self, regions: RegionsLike) -> None:
        self._check_fitted()
        if absent := self.missing(regions):
            raise DataError(f"{self.name} needs it, and these regions do not have it", field=absent[0])
        fitted_on = getattr(self, "fitted_on_", None)
        if fitted_on is None:
            return
        for field in ("classes", "background_index"):
            found = getattr(regions.header, field)
            found = list(found) if field == "classes" else found
            if found != fitted_on[field]:
                problem = f"{self.name} was fitted on {fitted_on[field]}, these regions have {found}"
                raise DataError(problem, field=field)

    def _widths(self, batch: Regions) -> dict[str, int]:
        return {column: getattr(batch, column).shape[1] for column in self._columns() if column in VECTORS}

    def _check_widths(self, batch: Regions) -> None:
        widths = self._widths(batch)
        for column, expected in getattr(self, "fitted_on_", {}).get("widths", {}).items():
            if widths[column] != expected:
                problem = f"{widths[column]} values a row, but {self.name} was fitted on {expected}"
                raise DataError(problem, field=column)

    def _fit(self, regions: RegionsLike) -> None:
        """Learns nothing, unless a subclass says otherwise."""

    def _score(self, regions: Regions) -> np.ndarray:
        raise NotImplementedError(type(self).__name__)


METHODS: Registry[Method] = Registry("method", "farther.methods")
register = METHODS.register


def describe(method: Method) -> dict[str, Any]:
    """Name, parameters and needs of a method, as JSON can hold them."""
    return {
        "format": "farther.method",
        "version": VERSION,
        "name": method.name,
        "params": asdict(method),
        "needs": sorted(method.needs),
    }


def load(path: str | Path) -> Method:
    """A fitted method from the folder that `save` wrote.

    Raises:
        FitError: the folder says that the method does not apply, and why.
        DataError: a file is absent or damaged.
        ParameterError: the name or a parameter is not known here.
    """
    folder = Path(path)
    info = read_method(folder)
    if info.get("not_applicable"):
        raise FitError(f"{info['name']} does not apply: {info['not_applicable']}")
    method = METHODS.create(info["name"], **info["params"])
    for attribute, value in info["state"].items():
        setattr(method, attribute, value)
    for attribute, value in _arrays(folder / "state.safetensors").items():
        setattr(method, attribute, value.copy())
    return method


def not_applicable(path: str | Path) -> str | None:
    """Why the method of a fitted folder does not apply, or None when it does.

    Raises:
        DataError: the folder is absent or damaged.
    """
    return read_method(Path(path)).get("not_applicable")


def read_method(folder: Path) -> dict[str, Any]:
    """`method.json` of a fitted folder, its shape checked.

    Raises:
        DataError: it is absent, or not what `save` writes.
    """
    source = folder / "method.json"
    info = read_json(source)
    if not isinstance(info, dict) or info.get("format") != "farther.method":
        raise DataError("not the state of a method", file=source, field="format")
    if info.get("version") != VERSION:
        raise DataError(f"version {info.get('version')!r}, this farther reads {VERSION}", file=source, field="version")
    for field, kind in (("name", str), ("params", dict), ("state", dict)):
        if not isinstance(info.get(field), kind):
            raise DataError(f"expected a {kind.__name__}, found {info.get(field)!r}", file=source, field=field)
    for field in info["state"]:
        if not field.endswith("_") or field.startswith("_"):
            raise DataError(f"{field!r} is no name of fitted state", file=source, field="state")
    return info


def _arrays(file: Path) -> dict[str, np.ndarray]:
    try:
        arrays = load_file(file)
    except (OSError, SafetensorError) as error:
        raise DataError(f"not a readable safetensors file: {error}", file=file) from None
    for name in arrays:
        if not name.endswith("_") or name.startswith("_"):
            raise DataError(f"{name!r} is no name of fitted state", file=file, field=name)
    return arrays


def count_rows(regions: RegionsLike) -> int:
    """Number of rows, after any threshold on the detector's score."""
    if isinstance(regions, Regions):
        return len(regions)
    return sum(len(batch) for batch in regions.batches([]))


def finite(scores: np.ndarray) -> np.ndarray:
    """Scores as float64, with infinities at the largest finite number, which tables can hold and which sorts the same.

    Raises:
        ArithmeticError: a score is NaN: a method's fault, not its user's.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if np.isnan(scores).any():
        raise ArithmeticError(f"row {int(np.flatnonzero(np.isnan(scores))[0])} has no score (NaN)")
    limit = math.nextafter(math.inf, 0)
    return np.clip(scores, -limit, limit)
