"""Base class of all methods: parameters, `fit`, `score`, and a folder with the fitted state."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    dataclass_transform,
)

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass
from safetensors.numpy import save_file

from farther.errors import DataError, FartherError, ParameterError
from farther.methods.arrays import Array
from farther.methods.linear_algebra import clipped
from farther.methods.rows import LABELLED_UNKNOWN, RegionRows, Rows
from farther.naming.registry import STRICT, Parameters, Registry
from farther.tables import Header, Regions
from farther.tables.documents import write_json
from farther.tables.files import digest
from farther.tables.regions import GRAM, LAYER, PASS, own_name
from farther.tables.writing import write_aside

if TYPE_CHECKING:
    from farther.methods.torch_form import ScoreModule

#: Optional columns of vectors, and all columns that a folder's batches hold only when they are
#: asked for.
VECTORS = frozenset({"features", "latent", "gram"})
PASSES = frozenset({"mean_probabilities", "predictive_entropy", "mutual_information"})
READ_WHEN_NEEDED = VECTORS | PASSES | {"uncertainty", "box_variance"}

#: See `Method.annotation`.
Annotation = Literal["unused", "class", "correct"]

#: A pass over rows, block by block: vectors of shape (n, D) and predicted classes of shape (n,).
Labelled = Iterator[tuple[np.ndarray, np.ndarray]]

#: Values per block: few enough that their float64 copy stays in the processor's cache.
BLOCK = 1 << 20

#: From so many classes on, blocks are bounded by the values of their logits, too.
MANY_CLASSES = 128
#: Arrays with a value per class that a score holds at once.
ARRAYS_OF_CLASSES = 4


class FitError(FartherError):
    """A method cannot be fitted to these regions; the message says why."""


class RegionsLike(Protocol):
    """Input of a method: `Regions` in memory, a `RegionsFolder`, or a sample of one."""

    @property
    def header(self) -> Header:
        """Values that all rows share."""

    def has(self, column: str) -> bool:
        """True if the rows have this column (or, for `last_layer`, the header)."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        """The rows in batches of some thousand; only these optional columns are needed."""


class Publication(NamedTuple):
    """The paper of a method.

    Args:
        title: Its title.
        year: Year of publication.
        link: Its address.
        code: Address of the authors' code; "" where there is none.
    """

    title: str
    year: int
    link: str
    code: str = ""


METHODS: Registry[Method] = Registry(
    "method", "farther.methods", spelling="any", listed_by="farther list methods"
)
C = TypeVar("C", bound=type)


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
def register(name: str) -> Callable[[C], C]:
    """Class decorator that makes a pydantic dataclass of a method, and registers it under a name.

    Args:
        name: The name that users write.
    """
    return lambda cls: METHODS.register(name)(parameters(cls))


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
def parameters(cls: C) -> C:
    """Makes a pydantic dataclass of a class: its fields are its parameters.

    Args:
        cls: A method, or a base of methods.
    """
    return dataclass(config=STRICT, kw_only=True)(cls)  # type: ignore[return-value]


@parameters
class Method(Parameters, ABC):
    """Base class of all OOD scores. Higher means more in-distribution.

    A subclass declares its parameters as fields and what it reads as `needs`, and implements
    `_score` and, if it learns anything, `_fit`. Fitted attributes end in `_`: arrays, numbers,
    text, lists and dicts of those. `save` and `farther.methods.load` find them by that name.
    """

    REGISTRY: ClassVar[Registry[Any]] = METHODS
    #: The registered name.
    name: ClassVar[str] = ""
    #: The name in papers; the registered name where a method has none.
    title: ClassVar[str] = ""
    #: Its names in papers and other libraries, besides title and name. Users may write them in its
    #: place, in any case, with hyphens, underscores and spaces alike.
    aliases: ClassVar[tuple[str, ...]] = ()
    #: Parameters that name other methods, of which this one is made: in params.yaml, their values
    #: may name entries of the section `methods`.
    names_methods: ClassVar[tuple[str, ...]] = ()
    #: The paper that proposed it; None where it is no paper's.
    publication: ClassVar[Publication | None] = None
    #: Published methods that are this one over a pass: {name: (entry of the section `methods`,
    #: entry of a detector's `passes`)}.
    published_entries: ClassVar[dict[str, tuple[str, str]]] = {}
    #: Inputs: any of "score", "logits", "features", "latent", "gram", "last_layer", "labels",
    #: "uncertainty", "box_variance", "mean_probabilities", "predictive_entropy" and
    #: "mutual_information".
    needs: ClassVar[frozenset[str]] = frozenset()
    #: What `fit` gets with `fit.labels: annotated`: the same ("unused"), regions with their
    #: annotated class as label ("class"), or those alone whose predicted class is the annotated one
    #: ("correct").
    annotation: ClassVar[Annotation] = "unused"
    #: Vector values of the rows that `_score` gets at once.
    values_at_once: ClassVar[int] = BLOCK
    #: Whether scores follow from regions. Those that were made elsewhere cost nothing that could be
    #: measured, and no deployed detector has them.
    computes: ClassVar[bool] = True
    #: Why the method has no form in PyTorch; empty where it has one. See `no_torch_form`.
    only_numpy: ClassVar[str] = ""
    #: Why the method's form in PyTorch computes in float64 only; empty where float32 does too.
    only_float64: ClassVar[str] = ""
    #: τ, where the method has a threshold of its own; None where it is taken from in-distribution
    #: scores.
    fixed_threshold: ClassVar[float | None] = None
    #: The file that the fitted state was read from; None where it was fitted in this process.
    loaded_from: ClassVar[Path | None] = None

    def fit(self, regions: RegionsLike) -> Self:
        """Fits to in-distribution regions, in passes over batches.

        Memory is bounded by a batch and the state.

        Raises:
            FitError: there are no rows, a column is missing, or the method cannot be fitted to
                them.
        """
        refuse_other_than_regions(regions)
        missing = self.missing(regions)
        if missing:
            raise FitError(
                f"{self.name} needs {', '.join(missing)}, which these regions do not have"
            )
        count = count_rows(regions)
        if count == 0:
            raise FitError(f"{self.name}: there are no regions to fit on")
        self._fit(regions)
        header = self._header = regions.header  # read by `to_torch`
        self.fitted_on_ = {
            "regions": count,
            **header.columns_of_classes(),
            "activation": header.activation,
            "detector": dict(header.detector),
            "widths": self._widths(next(self._batches(regions))),
        }
        for attribute, value in self._state().items():
            if isinstance(value, np.ndarray):
                # The layout that `load` gives, with which BLAS copies nothing.
                setattr(self, attribute, np.ascontiguousarray(value))
        return self

    @property
    def wants_truth(self) -> bool:
        """True if `learn_truth` must be called after `fit`."""
        return False

    def learn_truth(self, regions: RegionsLike, true_column: np.ndarray) -> None:
        """Fits to in-distribution validation detections whose true class is known.

        Called after `fit`.

        Args:
            regions: The detections.
            true_column: The logits column of the true class of each, shape (N,): the background's
                where it matches no object, or −1 where the detector has no such column.

        Raises:
            FitError: the detections do not suffice.
            DataError: `true_column` has another length, or a number that is no column.
        """

    @property
    def wants_validation(self) -> bool:
        """True if `learn_validation` must be called after `fit`."""
        return False

    def learn_validation(self, regions: RegionsLike) -> None:
        """Fits to in-distribution validation detections; called after `fit`.

        Raises:
            FitError: they lack a column, or do not suffice.
        """

    @property
    def parts(self) -> Mapping[str, str]:
        """Name of each method that this one is made of → its registered name; {} for none."""
        return {}

    @property
    def passes_beside(self) -> tuple[str, ...]:
        """Names of the passes whose columns it reads beside the detections' own; see
        `farther.tables.Regions.of_pass`.
        """
        return ()

    @property
    def wants_pass(self) -> str | None:
        """Name of the pass whose regions `learn_pass` must be called with after `fit`.

        None for none.
        """
        return None

    def learn_pass(self, regions: RegionsLike, others: RegionsLike) -> None:
        """Fits to the training regions of a pass too; called after `fit`.

        Args:
            regions: Those that the method was fitted to.
            others: The same regions of the pass, in the same order.

        Raises:
            FitError: the pass lacks a column, or does not suffice.
        """

    @property
    def wants_split(self) -> str | None:
        """Name of the OOD split whose regions `learn_split` must be called with after `fit`.

        None for none.
        """
        return None

    def learn_split(self, known: RegionsLike, unknown: RegionsLike) -> None:
        """Fits to validation regions, known and unknown, on which no result is reported.

        Called after `fit`.

        Args:
            known: Of the ID validation split.
            unknown: Of the OOD split.

        Raises:
            FitError: the regions lack a column, or do not suffice.
        """

    def score(self, regions: RegionsLike) -> np.ndarray:
        """One score per row, which depends on that row alone.

        It is the same in any table and batch, up to rounding.

        Other rows beside it, or another processor, change a score by at most 10⁻⁶ of the scores'
        spread.

        A detection that the detector itself labels as unknown is below all others: see
        `LABELLED_UNKNOWN`.

        Returns:
            ndarray of shape (N,), float64, finite; higher means more in-distribution.

        Raises:
            FitError: the method learns and was not fitted.
            DataError: a column is missing, the regions come from another kind of detector than it
                was fitted on, or a score is NaN.
        """
        self._check_fitted()
        refuse_other_than_regions(regions)
        if (
            count_rows(regions) == 0
        ):  # a split without images: its regions have none of a detector's columns
            return np.zeros(0)
        self._check(regions)
        scores = [np.zeros(0)]
        for block in self._blocks(regions, self.values_at_once):
            self._check_widths(block)
            of_block = self._score(RegionRows(block))
            if block.header.unknown_columns:
                below = scores_labelled_unknown(block)
                of_block = np.where(block.is_labelled_unknown, below, of_block)
            scores.append(of_block)
        return clipped(self._checked(np.concatenate(scores)))

    def no_torch_form(self) -> str:
        """Why the method has no form in PyTorch; empty where it has one."""
        return self.only_numpy

    def to_torch(
        self, device: Any = None, dtype: Any = None, *, header: Header | None = None
    ) -> ScoreModule:
        """The score as a `torch.nn.Module`: for tensors, on any device, in a loop of your own.

        Args:
            device: As PyTorch takes it; the CPU when None.
            dtype: `torch.float64` or `torch.float32`, in which scores are computed; None for the
                first, or the second where the device has no other.
            header: Of the detector's regions; None for that of the regions which the method was
                fitted to. A method that was loaded and reads the last layer needs it.

        Raises:
            ParameterError: the method has no form in PyTorch; says why.
            FitError: the method learns and was not fitted.
            DataError: the header is of another kind of detector, or lacks the last layer that the
                method reads.
        """
        # It imports PyTorch.
        from farther.methods.torch_form import ScoreModule, header_of

        reason = self.no_torch_form()
        if reason:
            raise ParameterError(f"method {self.name!r} has no form in PyTorch: {reason}")
        self._check_fitted()
        return ScoreModule(self, header_of(self, header), device, dtype)

    def torch_state(self) -> dict[str, Any]:
        """The fitted attributes that `_score` reads of tensors, as buffers: arrays and floats."""
        return self._state()

    def _checked(self, scores: np.ndarray) -> np.ndarray:
        if not np.isnan(scores).any():
            return scores
        row = int(np.isnan(scores).argmax())
        problem = f"{self.name} gives NaN for row {row} of the regions: these or the fitted"
        raise DataError(
            f"{problem} state are damaged; infer or fit again", file=self.loaded_from, field="score"
        )

    def for_split(self, split: str) -> Method:
        """The method as it scores regions of a split.

        Itself, where scores depend on the rows alone.

        Args:
            split: Name of the split.
        """
        return self

    def missing(self, regions: RegionsLike) -> list[str]:
        """The inputs that the method needs and these regions lack, sorted.

        Empty if it can be applied.
        """
        return sorted(n for n in self.inputs - {"labels"} if not regions.has(n))

    @property
    def layers(self) -> tuple[str, ...]:
        """The columns that the parameter `layer` names in place of the vectors in `needs`.

        None where it is None.
        """
        return columns_of_layers(getattr(self, "layer", None))

    @property
    def inputs(self) -> frozenset[str]:
        """The inputs with these parameters: `needs`, but with `layers` in place of vectors."""
        if not self.layers:
            return self.needs
        return (self.needs - VECTORS) | set(self.layers)

    @property
    def columns(self) -> list[str]:
        """The optional columns that it reads, sorted."""
        columns = []
        for name in sorted(self.inputs):
            is_further = name.startswith((LAYER, GRAM, PASS)) and own_name(name) != "last_layer"
            if name in READ_WHEN_NEEDED or is_further:
                columns.append(name)
        return columns

    @property
    def learns(self) -> bool:
        """True if the method must be fitted before it can score."""
        return type(self)._fit is not Method._fit

    def remarks(self) -> list[str]:
        """Remarks on the fitted method that matter when its values are compared with others.

        The report shows them.
        """
        return []

    def save(self, path: str | Path) -> None:
        """Writes a folder: `method.json` and `state.safetensors`.

        The first has name, parameters, needs and training data, the second the arrays.

        Args:
            path: The folder; one that exists is replaced when the new one is complete.

        Raises:
            FitError: the method learns and was not fitted.
        """
        self._check_fitted()
        with write_aside(path) as aside:
            self.write_into(aside)

    def write_into(self, folder: Path, more: Mapping[str, Any] | None = None) -> None:
        """Writes the files of `save` into a folder that the caller renames once it is complete.

        Args:
            folder: The folder; made where it is absent.
            more: Further fields of `method.json`.
        """
        state = self._state()
        arrays = {k: v for k, v in state.items() if isinstance(v, np.ndarray)}
        others = {k: v for k, v in state.items() if k not in arrays}
        folder.mkdir(parents=True, exist_ok=True)
        save_file(arrays, folder / "state.safetensors")
        info = json.loads(
            json.dumps({**describe(self), "remarks": self.remarks(), "state": others})
        )
        write_json(
            folder / "method.json", {**info, "digest": state_digest(folder, info), **(more or {})}
        )

    def _state(self) -> dict[str, Any]:
        return {
            k: v for k, v in sorted(vars(self).items()) if k.endswith("_") and not k.startswith("_")
        }

    def _batches(self, regions: RegionsLike) -> Iterator[Regions]:
        return (batch for batch in regions.batches(self.columns) if len(batch))

    def _blocks(self, regions: RegionsLike, values: int = BLOCK) -> Iterator[Regions]:
        """All rows in order, in blocks of at most this number of vector values.

        Where there are many classes, their logits count too.
        """
        for batch in self._batches(regions):
            width = max(self._widths(batch).values(), default=0)
            if len(batch.header.classes) > MANY_CLASSES:
                width = max(width, ARRAYS_OF_CLASSES * len(batch.header.classes))
            rows = len(batch)
            if width:
                rows = max(1, values // width)
            for first in range(0, len(batch), rows):
                yield batch[first : first + rows]

    def _vectors(self, rows: Rows | Regions) -> Array:
        """The features h, shape (n, D): a copy, float64.

        A subclass may use other vectors instead.
        """
        return self._column(rows, "features")

    def _column(self, rows: Rows | Regions, usual: str) -> Array:
        """The layer that the parameter `layer` names, or else the usual column: a copy, float64."""
        (name,) = self.layers or (usual,)
        return Rows.of(rows).vectors(name)

    def _drawn(self, regions: RegionsLike, size: int, seed: int) -> Iterator[Regions]:
        """At most `size` rows drawn at random, in stored order.

        Of aligned regions they are the same rows.
        """
        count = count_rows(regions)
        first = 0
        chosen = np.isin(np.arange(count), np.random.default_rng(seed).permutation(count)[:size])
        for batch in self._batches(regions):
            yield batch[chosen[first : first + len(batch)]]
            first += len(batch)

    def _features(self, regions: RegionsLike) -> Iterator[np.ndarray]:
        """The stored features, batch by batch."""
        return (batch.features for batch in self._batches(regions) if batch.features is not None)

    def _pass(self, regions: RegionsLike) -> Labelled:
        """One pass over all rows, block by block.

        Vectors (n, D), which may be overwritten, and predicted classes (n,).
        """
        return ((self._vectors(block), block.label) for block in self._blocks(regions))

    def _check_fitted(self) -> None:
        if self.learns and not hasattr(self, "fitted_on_"):
            raise FitError(
                f"{self.name} is not fitted: call fit(regions) first, or load a fitted state"
            )

    def _check(self, regions: RegionsLike) -> None:
        missing = self.missing(regions)
        if missing:
            problem = f"{self.name} needs it, and these regions do not have it"
            raise DataError(problem, file=getattr(regions, "path", None), field=missing[0])
        fitted_on = getattr(self, "fitted_on_", None)
        if fitted_on is None:
            return
        for field, value in regions.header.columns_of_classes().items():
            expected = fitted_on.get(field, [])
            if value != expected:
                problem = f"{self.name} was fitted on {expected}, these regions have {value}"
                raise DataError(problem, field=field)

    def _widths(self, batch: Regions) -> dict[str, int]:
        widths = {}
        for name in self.columns:
            own = own_name(name)
            if own in VECTORS or own.startswith((LAYER, GRAM)):
                widths[name] = batch.array(name).shape[1]  # type: ignore[union-attr]
        return widths

    def _check_widths(self, batch: Regions) -> None:
        widths = self._widths(batch)
        expected_widths = getattr(self, "fitted_on_", {}).get("widths") or {}
        for name, expected in expected_widths.items():
            if widths[name] != expected:
                problem = f"{widths[name]} values per row, but {self.name} was fitted on {expected}"
                raise DataError(problem, field=name)

    def _fit(self, regions: RegionsLike) -> None:
        """Does nothing: the default of methods without fitted state."""

    @abstractmethod
    def _score(self, rows: Any) -> Array:
        """The scores of rows, an instance of `Rows`, shape (n,).

        It is written in functions that NumPy and PyTorch share, those of `rows.xp` and of
        `farther.methods.arrays`, and reads its fitted attributes, which are arrays of the same
        library. Where its argument is called `regions`, it gets a block of `Regions`, and the
        method has no form in PyTorch.
        """


def scores_labelled_unknown(regions: Regions) -> np.ndarray:
    """The score of each row if the detector labels it as unknown, shape (N,).

    See `LABELLED_UNKNOWN`.
    """
    return -LABELLED_UNKNOWN * (1 + regions.score.astype(np.float64))


def columns_of_layers(layer: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns that a parameter `layer` names: one layer, several, or none."""
    if layer is None:
        return ()
    names = layer
    if isinstance(layer, str):
        names = (layer,)
    columns = []
    for name in names:
        if name in VECTORS:
            columns.append(name)
        else:
            columns.append(f"{LAYER}{name}")
    return tuple(columns)


def describe(method: Method) -> dict[str, Any]:
    """Name, parameters, needs and own threshold of a method, as JSON can hold them."""
    description = {
        "format": "farther.method",
        "version": 1,
        "name": method.name,
        "params": asdict(method),
        "needs": sorted(method.inputs),
    }
    if not method.computes:
        description["computes"] = False
    if method.fixed_threshold is not None:
        description["fixed_threshold"] = method.fixed_threshold
    return description


def describe_refused(name: str, reason: str) -> dict[str, Any]:
    """The content of `method.json` of a method that does not apply.

    Its parameters change nothing, and are left out.
    """
    return {
        "format": "farther.method",
        "version": 1,
        "name": name,
        "state": {},
        "not_applicable": reason,
    }


def state_digest(folder: Path, info: dict[str, Any]) -> str:
    """Digest of name, parameters and fitted state.

    A changed shape or value must not be taken for what was fitted.
    """
    facts = [info["name"], info["params"], info["state"]]
    return digest(json.dumps(facts, sort_keys=True), folder / "state.safetensors")


def refuse_other_than_regions(regions: Any) -> None:
    """Refuses arrays and whatever else is no table of regions."""
    if hasattr(regions, "batches") and hasattr(regions, "header"):
        return
    raise DataError(
        f"expected Regions or a RegionsFolder, found {type(regions).__name__}; "
        "write Regions.from_arrays(logits, features) for arrays",
        field="regions",
    )


def count_rows(regions: RegionsLike) -> int:
    """Number of rows, after any threshold on the detector's confidence."""
    if isinstance(regions, Regions):
        return len(regions)
    return sum(len(batch) for batch in regions.batches([]))
