"""What methods are fitted on: settings, and the regions of a run at or above its operating threshold t*."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from farther.methods.base import RegionsLike, count_rows
from farther.methods.tau import Rule
from farther.registry import STRICT
from farther.tables import Header, Regions, RegionsFolder
from farther.tables.files import digest


@dataclass(config=STRICT, kw_only=True)
class FitSettings:
    """What methods are fitted on, and how τ is taken: section `fit` of params.yaml.

    Args:
        split: Name of the in-distribution split that methods learn from.
        calibration_split: Name of the in-distribution split that τ is taken from.
        keep: Fraction of its scores that τ keeps.
        threshold_rule: See `farther.methods.threshold`.
        max_regions: Largest number of regions to learn from, drawn at random; None takes all.
        seed: Of that draw.
    """

    split: str = "train"
    calibration_split: str = "val"
    keep: Annotated[float, Field(gt=0, le=1)] = 0.95
    threshold_rule: Rule = "percentile"
    max_regions: PositiveInt | None = None
    seed: NonNegativeInt = 0


@dataclasses.dataclass(frozen=True)
class RunRegions:
    """The regions of a run, as methods are fitted on them.

    Args:
        folder: Folder that holds one regions folder per split.
        operating: t*; rows with a lower detector score are left out.
        settings: Splits, fraction, rule, size of the sample.
        truth: Table of the calibration split's detections with their true classes, for methods that learn from it.
        test_splits: Splits that results are reported on: parameters must not be searched on them.
    """

    folder: Path
    operating: float = 0.0
    settings: FitSettings = dataclasses.field(default_factory=FitSettings)
    truth: Path | None = None
    test_splits: tuple[str, ...] = ()

    @property
    def training(self) -> RegionsLike:
        """Those that methods learn from: of the training split, or a sample of them."""
        regions, settings = self.above(self.settings.split), self.settings
        return regions if settings.max_regions is None else RegionsSample(regions, settings.max_regions, settings.seed)

    @property
    def calibration(self) -> RegionsLike:
        """Those that τ is taken from."""
        return self.above(self.settings.calibration_split)

    def above(self, split: str) -> RegionsLike:
        """The regions of a split at or above t*.

        Raises:
            DataError: the split is absent or damaged.
        """
        return RegionsFolder(self.folder / split).above(self.operating)

    @cached_property
    def digests(self) -> dict[str, str]:
        """A digest of the stored regions of each split, sorted by name; hidden folders hold unfinished work."""
        folders = sorted(file.parent for file in self.folder.glob("*/regions.json"))
        return {folder.name: folder_digest(folder) for folder in folders if not folder.name.startswith(".")}


class RegionsSample:
    """Rows of a regions table drawn at random without replacement, in stored order; see `RegionsLike`.

    Args:
        regions: The rows to draw from.
        size: How many to draw; all rows when there are no more.
        seed: Of the draw.
    """

    def __init__(self, regions: RegionsLike, size: int, seed: int):
        self._regions = regions
        self._count = count_rows(regions)
        drawn = np.random.default_rng(seed).choice(self._count, min(size, self._count), replace=False)
        self._drawn = np.sort(drawn)

    @property
    def header(self) -> Header:
        """What all rows share."""
        return self._regions.header

    def __len__(self) -> int:
        return len(self._drawn)

    def has(self, column: str) -> bool:
        """Whether the rows have this column (or, for `last_layer`, the header)."""
        return self._regions.has(column)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Regions]:
        """The drawn rows of each batch."""
        first = 0
        for batch in self._regions.batches(columns):
            low, high = np.searchsorted(self._drawn, [first, first + len(batch)])
            if high > low:
                yield batch[self._drawn[low:high] - first]
            first += len(batch)


def folder_digest(folder: str | Path) -> str:
    """Digest of the names and the content of the files of a folder."""
    files = sorted(file for file in Path(folder).iterdir() if file.is_file())
    return digest(*(part for file in files for part in (file.name, file)))
