"""JSON files that a stage writes and several others read, checked by type.

Warnings of `ingest` and `curate`, categories of a dataset, similarity of a benchmark's splits,
costs and times per image. Each function raises DataError with file and field where a file is
damaged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from farther.tables.schema import Schema, read_typed

WARNINGS = "warnings.json"
#: The file of attributes of images in a folder of tables; see `farther.tables.ImageAttributes`.
ATTRIBUTES = "attributes.parquet"


class Warned(TypedDict):
    """A warning of `ingest`: subset, file, kind of the warning, and its text."""

    subset: str
    file: str
    kind: str
    found: str


class IngestWarnings(TypedDict):
    """All warnings about a dataset, and their number by kind."""

    counts: dict[str, int]
    warnings: list[Warned]


def _different(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise PydanticCustomError("repeated", "expected names that differ from each other")
    return names


class DatasetCategories(Schema):
    """The categories of an ingested dataset, in its order, and their ancestors, if any."""

    categories: Annotated[list[str], AfterValidator(_different)]
    parents: dict[str, list[str]] = Field(default_factory=dict)


class _CurateWarnings(TypedDict):
    warnings: list[str]


class SplitSimilarity(TypedDict):
    """Similarity of a split's images to ID images.

    `similarity` is the mean, `low` and `high` are the 5% and 95% quantiles. `elsewhere` is the
    number of images whose similarity suggests another distance than that of their split.
    """

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
    """The content of `artifacts/counts/similarity/<benchmark>.json`: a summary, and each split."""

    __pydantic_extra__: dict[str, SplitSimilarity] = Field(init=False)
    similarity: SimilaritySummary = Field(default_factory=SimilaritySummary)

    @property
    def splits(self) -> dict[str, SplitSimilarity]:
        """Similarity by split."""
        return self.__pydantic_extra__


class PassCost(TypedDict):
    """Cost of an inference: forward and backward passes per image."""

    forward: int
    backward: int


class MethodCost(TypedDict):
    """Cost of a method: the inferences whose outputs it reads, and bytes on disk per image.

    `passes` has, by the name of an inference, the share of the images for which it is computed, or
    of the detections where it is computed for each of them alone.
    """

    passes: dict[str, float]
    bytes: float


class RunCost(TypedDict):
    """Costs of a run per image on any machine."""

    passes: dict[str, PassCost]
    methods: dict[str, MethodCost]


class Cost(TypedDict):
    """The content of `artifacts/cost.json`: the number of timed images, and the costs by run."""

    images: int
    runs: dict[str, RunCost]


class NetworkTimes(TypedDict):
    """Milliseconds per image of a run's detector, and of each further inference and proposals."""

    detector: float | None
    passes: dict[str, float | None]
    proposals: dict[str, float | None]


class RunTimes(NetworkTimes):
    """Milliseconds per image of a run's networks, and of scoring by each method.

    `keys` are the cache keys of the network ("") and of each method.
    """

    keys: dict[str, str]
    methods: dict[str, float]


class Machine(TypedDict):
    """Names of the processor and of the GPU; None where there is none, or it is not known."""

    processor: str | None
    gpu: str | None


class Times(TypedDict):
    """The content of `artifacts/times.json`: times of this machine, which are not tracked."""

    machine: Machine | None
    runs: dict[str, RunTimes]


#: The times on machines where the stage `choose` has not run.
NO_TIMES: Times = {"machine": None, "runs": {}}


def ingest_warnings(folder: Path) -> IngestWarnings:
    """The warnings of `ingest`; none where it has not run."""
    file = folder / WARNINGS
    if not file.is_file():
        return {"counts": {}, "warnings": []}
    return read_typed(IngestWarnings, file)


def curate_warnings(folder: Path) -> list[str]:
    """The warnings of `curate`; none where it has not run."""
    file = folder / WARNINGS
    if not file.is_file():
        return []
    return read_typed(_CurateWarnings, file)["warnings"]


def similarities(file: Path) -> Similarities:
    """The similarities that `stratify` counted of a benchmark; none where it has not run."""
    if not file.exists():
        return Similarities()
    return read_typed(Similarities, file)


def read_cost(file: Path) -> Cost:
    """The costs that the stage `choose` counted; none where it has not run."""
    if not file.exists():
        return {"images": 0, "runs": {}}
    return read_typed(Cost, file)


def read_times(file: Path) -> Times:
    """The times that the stage `choose` measured; none where it has not run on this machine."""
    if not file.exists():
        return NO_TIMES
    return read_typed(Times, file)
