"""JSON files that a stage writes and several others read, checked by type.

Warnings of `ingest` and `curate`, similarity of a benchmark's splits, and costs per image. Each function raises
DataError with file and field where a file is damaged.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from typing_extensions import TypedDict

from farther.tables.schema import Schema, read_typed

WARNINGS = "warnings.json"


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
    """What a pass costs: forward and backward passes, milliseconds per image."""

    forward: int
    backward: int
    ms: float | None


#: What a method costs per image: the pass that it reads, milliseconds, bytes on disk.
MethodCost = TypedDict("MethodCost", {"pass": str | None, "ms": float, "bytes": float})


class RunCost(TypedDict):
    """What a run costs per image; `key` is of what was measured."""

    key: str
    detector_ms: float | None
    passes: dict[str, PassCost]
    methods: dict[str, MethodCost]


class Cost(TypedDict):
    """The content of `artifacts/cost.json`."""

    machine: dict[str, str | None]
    images: int
    runs: dict[str, RunCost]


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
    """What the stage `cost` measured; nothing where it has not run."""
    return read_typed(Cost, file) if file.exists() else {"machine": {}, "images": 0, "runs": {}}
