"""What a group of metrics of a method on a split is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from farther.evaluation.case import ScoredSide, SplitCase
from farther.evaluation.files import Roles
from farther.evaluation.results import SplitResults
from farther.evaluation.weights import Weights
from farther.metrics import ood
from farther.metrics.catalogue import METRICS, PREFIXES, Metric
from farther.metrics.weighting import RowWeights


@dataclass(frozen=True)
class GroupTable:
    """A table of the report on a detector: its file name, and its caption."""

    name: str
    caption: str


class MetricGroup(ABC):
    """A group of metrics of a method on an OOD split.

    Attributes:
        name: Its section in a method's results; `metrics.yaml` describes its metrics in a section
            of this name.
        table: The report's table of it, which groups may share; None for none.
        columns: Keys of its metrics with columns in the table.
        unit: What its values come from: "detections", "images" or "objects".
        sizes: Keys of the numbers of these, of each side.
        sizes_in: The section with these numbers; "" for its own.
        needs: What is needed where it was not evaluated.
    """

    name: ClassVar[str]
    table: ClassVar[GroupTable | None] = None
    columns: ClassVar[tuple[str, ...]] = ()
    unit: ClassVar[str] = "detections"
    sizes: ClassVar[tuple[str, ...]] = ()
    sizes_in: ClassVar[str] = ""
    needs: ClassVar[str] = "see section 'evaluate' of params.yaml"

    @property
    def prefix(self) -> str:
        """What the names of its metrics begin with."""
        return PREFIXES.get(self.name, "")

    @property
    def shown(self) -> list[Metric]:
        """The metrics with columns in the report's table."""
        return [METRICS[f"{self.prefix}{key}"] for key in self.columns]

    def applies(self, case: SplitCase) -> bool:
        """Whether a case has these metrics; all have them by default."""
        return True

    def counts(self, case: SplitCase) -> dict[str, Any]:
        """What is stored beside the metrics, such as the numbers that formulas name."""
        return {}

    @abstractmethod
    def values(self, case: SplitCase, weights: Weights) -> dict[str, Any]:
        """The metrics by their keys.

        Args:
            case: A method on a split.
            weights: How often each image counts.

        Returns:
            Where each image counts once, values as JSON holds them, maps of values
            (`GroupResults.parts`) and words (`GroupResults.labels`); else replicates, ndarrays of
            shape (B,), of those that have intervals.
        """

    def details(self, case: SplitCase) -> dict[str, Any]:
        """Further fields of `SplitResults`, with their own intervals."""
        return {}

    def read_splits(self, roles: Roles, split: str) -> Sequence[str]:
        """Splits whose scores are read beside those of the ID split and of the case's."""
        return ()

    def is_from_few(self, results: SplitResults, few: int) -> bool:
        """Whether values come from fewer than `few` of `unit`, on any side.

        Args:
            results: A method on a split.
            few: The number.
        """
        counts = results.of_group(self.sizes_in or self.name)
        return any(count < few for key in self.sizes if (count := counts.get(key)) is not None)


class Separation(MetricGroup):
    """A group of the metrics of `farther.metrics.ood`: how well scores separate two sides."""

    sizes = ("id_regions", "ood_regions")

    @abstractmethod
    def sides(self, case: SplitCase) -> tuple[ScoredSide, ScoredSide]:
        """The ID side and the OOD side."""

    def id_rows(self, side: ScoredSide, weights: Weights) -> RowWeights | None:
        """Weights of the ID side."""
        return weights.id_rows(side.image_id)

    def counts(self, case: SplitCase) -> dict[str, Any]:
        """The sizes of both sides."""
        return dict(zip(self.sizes, map(len, self.sides(case)), strict=True))

    def values(self, case: SplitCase, weights: Weights) -> dict[str, Any]:
        """See `farther.metrics.ood.evaluate`."""
        of_id, of_ood = self.sides(case)
        rows = self.id_rows(of_id, weights), weights.rows(of_ood.image_id)
        return ood.evaluate(of_id.scores, of_ood.scores, *rows, aupr=case.settings.aupr)
