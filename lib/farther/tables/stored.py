"""JSON files that a stage writes and several others read, checked by type.

Warnings of `ingest` and `curate`, categories of a dataset, similarity of a benchmark's splits,
costs and times per image. Each function raises DataError with file and field where a file is
damaged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NotRequired

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from farther.tables.schema import Schema, read_typed

WARNINGS = "warnings.json"
#: The file of attributes of images in a folder of tables; see `farther.tables.ImageAttributes`.
ATTRIBUTES = "attributes.parquet"


class Warned(TypedDict):
    """A warning of `ingest`: subset, file, kind of the warning, and what was found."""

    subset: str
    file: str
    kind: str
    found: str


class IngestWarnings(TypedDict):
    """All of a dataset: their number by kind, and each."""

    counts: dict[str, int]
    warnings: list[Warned]


def _different(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise PydanticCustomError("repeated", "expected names that differ from each other")
    return names


class DatasetCategories(Schema):
    """The categories of an ingested dataset, in its order, and the ancestors of those that have some."""

    categories: Annotated[list[str], AfterValidator(_different)]
    parents: dict[str, list[str]] = Field(default_factory=dict)


class _CurateWarnings(TypedDict):
    warnings: list[str]


class SplitSimilarity(TypedDict):
    """Similarity of a split's images to ID: mean, median, 5% and 95% quantiles, and images that resemble another."""

    images: int
    similarity: float | None
    median: float | None
    low: float | None
    high: float | None
    elsewhere: int


class SimilaritySummary(Schema):
    """AUROC of CLIP alone: ID images against those of each split, and near against far images."""

    auroc_from_id: dict[str, float] = Field(default_factory=dict)
    auroc_of_near: float | None = None


class Similarities(Schema):
    """The content of `artifacts/counts/similarity/<benchmark>.json`: the summary, and each split's row."""

    __pydantic_extra__: dict[str, SplitSimilarity] = Field(init=False)
    similarity: SimilaritySummary = Field(default_factory=SimilaritySummary)

    @property
    def splits(self) -> dict[str, SplitSimilarity]:
        """Similarity by split."""
        return self.__pydantic_extra__


class PassCost(TypedDict):
    """A pass: forward and backward passes per image."""

    forward: int
    backward: int


#: A method: the pass that it reads, and bytes on disk per image.
MethodCost = TypedDict("MethodCost", {"pass": str | None, "bytes": float})


class RunCost(TypedDict):
    """What a run costs per image on any machine."""

    passes: dict[str, PassCost]
    methods: dict[str, MethodCost]


class Cost(TypedDict):
    """The content of `artifacts/cost.json`: the number of images that are timed, and what was counted of each run."""

    images: int
    runs: dict[str, RunCost]


class NetworkTimes(TypedDict):
    """Milliseconds per image of a run's detector, and of each pass and its proposals beyond it."""

    detector: float | None
    passes: dict[str, float | None]
    proposals: NotRequired[dict[str, float | None]]


class RunTimes(NetworkTimes):
    """The same, and milliseconds per image of scoring by each method.

    `keys` are of what was timed: of the network (""), and of each method. Times that an earlier
    version measured have neither keys nor proposals.
    """

    keys: NotRequired[dict[str, str]]
    methods: dict[str, float]


class Machine(TypedDict):
    """Names of the processor and of the GPU; None where there is none, or it is not known."""

    processor: str | None
    gpu: str | None


class Times(TypedDict):
    """The content of `artifacts/times.json`, which neither git nor DVC tracks: times of this machine only."""

    machine: Machine | None
    runs: dict[str, RunTimes]


#: What another machine than that of the stage `cost` knows.
NO_TIMES: Times = {"machine": None, "runs": {}}


def ingest_warnings(folder: Path) -> IngestWarnings:
    """What `ingest` warned about; nothing where it has not run."""
    file = folder / WARNINGS
    return read_typed(IngestWarnings, file) if file.is_file() else {"counts": {}, "warnings": []}


def curate_warnings(folder: Path) -> list[str]:
    """What `curate` warned about; nothing where it has not run."""
    file = folder / WARNINGS
    return read_typed(_CurateWarnings, file)["warnings"] if file.is_file() else []


def similarities(file: Path) -> Similarities:
    """What `stratify` counted of a benchmark; nothing where it has not run."""
    return read_typed(Similarities, file) if file.exists() else Similarities()


def read_cost(file: Path) -> Cost:
    """What the stage `cost` counted; nothing where it has not run."""
    return read_typed(Cost, file) if file.exists() else {"images": 0, "runs": {}}


def read_times(file: Path) -> Times:
    """What the stage `cost` timed; nothing where it has not run on this machine."""
    return read_typed(Times, file) if file.exists() else NO_TIMES
