"""Scores that run the detector while they score: several times with dropout, on changed pictures, …

The pipeline scores what was stored, so it does not run these; it says so where one is named in params.yaml. From Python
they are scored with the network at hand: `method.score(regions, network=network)`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from pydantic.dataclasses import dataclass

from farther.errors import DataError
from farther.methods.base import FitError, Method, RegionsLike
from farther.registry import STRICT
from farther.tables import Regions


class Network(Protocol):
    """A detector that can be run again on the images of given regions."""

    def __call__(self, regions: Regions, **how: Any) -> Regions:
        """The same rows in the same order, with what the detector makes of them in one more run.

        Args:
            regions: Rows that the detector has made before.
            how: What is different about this run: the seed of its dropout, a step of the pictures along a gradient. The
                method names what it asks for.
        """


@dataclass(config=STRICT, kw_only=True)
class NetworkMethod(Method):
    """Base of the scores that run the detector. A subclass writes `_score_with` in the place of `_score`."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})

    def score(self, regions: RegionsLike, network: Network | None = None) -> np.ndarray:
        """One score a row; see `Method.score`.

        Args:
            network: The detector that made the regions.

        Raises:
            FitError: there is no network, as in the pipeline; or the method learns and was not fitted.
            DataError: see `Method.score`, or the network gives other rows than it was asked for.
        """
        if network is None:
            raise FitError(
                f"{self.name} needs the network at score time, which the pipeline does not run; "
                "in Python: score(regions, network=…)"
            )
        runs = _SameRows(network)
        return self._scored(regions, lambda block: self._score_with(block, runs))

    def _score_with(self, regions: Regions, network: Network) -> np.ndarray:
        """One score a row, ndarray of shape (n,), of regions that the network can be run on again."""
        raise NotImplementedError(type(self).__name__)


class _SameRows:
    """A network whose answers are checked."""

    def __init__(self, network: Network):
        self._network = network

    def __call__(self, regions: Regions, **how: Any) -> Regions:
        again = self._network(regions, **how)
        for field in ("image_id", "region_id"):
            if not np.array_equal(getattr(again, field), getattr(regions, field)):
                problem = f"the network was asked for {len(regions)} rows and gave other ones ({len(again)})"
                raise DataError(problem, field=field)
        return again
