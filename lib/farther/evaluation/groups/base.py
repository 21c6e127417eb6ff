"""The base class of groups of metrics of a method on a split."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from farther.evaluation.files import Roles
from farther.evaluation.results import Number
from farther.evaluation.scored_split import ScoredSide, ScoredSplit
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
        table: The report's table of the group, which several groups may share; None for no table.
        columns: Keys of its metrics with columns in the table.
        unit: The unit that is counted: "detections", "images" or "objects".
        sizes: Keys of the number of units on each side.
        sizes_in: The section with these numbers; "" for the group's own.
        needs_id_images: Whether its metrics vary with the ID images, too.
        needs: A remark on what is needed, shown where the group was not evaluated.
    """

    name: ClassVar[str]
    table: ClassVar[GroupTable | None] = None
    columns: ClassVar[tuple[str, ...]] = ()
    unit: ClassVar[str] = "detections"
    sizes: ClassVar[tuple[str, ...]] = ()
    sizes_in: ClassVar[str] = ""
    needs_id_images: ClassVar[bool] = True
    needs: ClassVar[str] = "see section 'evaluate' of params.yaml"

    @property
    def prefix(self) -> str:
        """The prefix of its metrics' names."""
        return PREFIXES.get(self.name, "")

    @property
    def shown(self) -> list[Metric]:
        """The metrics with columns in the report's table."""
        return [METRICS[f"{self.prefix}{key}"] for key in self.columns]

    def applies(self, scored: ScoredSplit) -> bool:
        """Whether a scored split has these metrics; by default all have them."""
        return True

    def counts(self, scored: ScoredSplit) -> dict[str, Any]:
        """Numbers that are stored beside the metrics, such as those that formulas name."""
        return {}

    def images(self, scored: ScoredSplit) -> dict[str, int]:
        """Number of the images with the units that a metric is a share of, by its key."""
        return {}

    @abstractmethod
    def values(self, scored: ScoredSplit, weights: Weights) -> dict[str, Any]:
        """The metrics by their keys.

        Args:
            scored: A method's scores of a split.
            weights: The weight of each image.

        Returns:
            Where each image counts once, values as JSON holds them, maps of values
            (`GroupResults.parts`) and words (`GroupResults.labels`); else replicates, ndarrays of
            shape (B,), of the metrics that have intervals.
        """

    def details(self, scored: ScoredSplit) -> dict[str, Any]:
        """Further fields of `SplitResults`, with their own intervals."""
        return {}

    def read_splits(self, roles: Roles, split: str) -> Sequence[str]:
        """Splits whose scores are read beside those of the ID split and of the split itself."""
        return ()

    @property
    def counted_in(self) -> str:
        """The group with the numbers of units on each side."""
        return self.sizes_in or self.name

    def is_from_few(self, counts: Mapping[str, Number], few: int) -> bool:
        """Whether values come from fewer than `few` of `unit`, on any side.

        Args:
            counts: Values of `counted_in` of a method on a split.
            few: The smallest number that is enough.
        """
        for key in self.sizes:
            count = counts.get(key)
            if count is not None and count < few:
                return True
        return False


class Separation(MetricGroup):
    """A group of the metrics of `farther.metrics.ood`: how well scores separate two sides."""

    sizes = ("id_regions", "ood_regions")

    @abstractmethod
    def sides(self, scored: ScoredSplit) -> tuple[ScoredSide, ScoredSide]:
        """The ID side and the OOD side."""

    def id_rows(self, side: ScoredSide, weights: Weights) -> RowWeights | None:
        """Weights of the ID side."""
        return weights.id_rows(side.image_id)

    def counts(self, scored: ScoredSplit) -> dict[str, Any]:
        """The number of units on each side."""
        counts = {}
        for key, side in zip(self.sizes, self.sides(scored), strict=True):
            counts[key] = len(side)
        return counts

    def values(self, scored: ScoredSplit, weights: Weights) -> dict[str, Any]:
        """See `farther.metrics.ood.evaluate`."""
        id_side, ood_side = self.sides(scored)
        return ood.evaluate(
            id_side.scores,
            ood_side.scores,
            self.id_rows(id_side, weights),
            weights.rows(ood_side.image_id),
            aupr=scored.settings.aupr,
        )
