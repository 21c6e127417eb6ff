"""A pass over the rows of a run as a model of the engine that streams images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from farther.detectors.inference import Detection
from farther.detectors.passes.base import SHARED, Pass
from farther.errors import DataError
from farther.tables import Regions, RegionsFolder, Table
from farther.tables.parquet import read_parquet

#: Largest difference, in pixels and in score, of what is detected again: other machines round in another way.
TOLERANCE = {"box": 0.5, "score": 1e-3}


@dataclass(frozen=True)
class PassModel(Detection):
    """A pass as a model of the engine.

    Args:
        again: The pass.
        regions: The run's own regions in the split.
        shard_images: Images per shard of both.
    """

    again: Pass
    regions: RegionsFolder
    shard_images: int

    @property
    def needs_gradients(self) -> bool:  # type: ignore[override]
        """See `Model`."""
        return self.again.needs_gradients

    @property
    def modules(self) -> tuple[str, ...]:  # type: ignore[override]
        """The modules of the adapter and of the pass."""
        return (*super().modules, type(self.again).__module__)

    def identity(self) -> dict[str, Any]:
        """See `Model.identity`."""
        return {**super().identity(), "pass": self.again.identity(), "regions": self.regions.key}

    def prepare(self, image: np.ndarray, image_id: str) -> Any:
        """See `Model.prepare`."""
        return self.again.prepare(self.detector, image)

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Model.forward`."""
        return self.again.forward(self.detector, prepared, image_ids)

    def finish(self, table: Table, rows: np.ndarray) -> Table:
        """The rows of a shard with the shared columns of the run's own regions.

        Raises:
            DataError: other objects were detected this time.
        """
        numbered = super().finish(table, rows)
        shard = self.regions.shards[int(rows[0]) // self.shard_images]
        found = read_parquet(shard, columns=["image_id", "region_id", *SHARED])
        keys = ["image_id", "region_id"]
        same = found.select(keys).equals(numbered.frame.select(keys)) and all(
            np.allclose(found[name].to_numpy(), numbered.frame[name].to_numpy(), rtol=0, atol=tolerance)
            for name, tolerance in TOLERANCE.items()
        )
        if not same:
            problem = "the detector finds other objects than are stored: was the folder made on another machine?"
            raise DataError(f"{problem} Delete it and rerun `infer`", file=self.regions.path)
        return numbered.with_columns(**{name: found[name] for name in SHARED})
