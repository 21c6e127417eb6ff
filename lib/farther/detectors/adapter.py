"""Base class of the detectors of params.yaml, and their names.

It needs no package of a network: readers of another program's detections build on it alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.naming.registry import STRICT, Parameters, Registry
from farther.tables import Header

registry: Registry[Adapter] = Registry(
    "detector", "farther.detectors", listed_by="farther list detectors", key="adapter"
)
register = registry.register

Fraction = Annotated[float, Field(ge=0, le=1)]


@dataclass(config=STRICT, kw_only=True)
class Adapter(Parameters, ABC):
    """A detector of params.yaml: a `Detector`, or a reader of detections of another program.

    Args:
        weights: The file or folder that its numbers come from.
    """

    REGISTRY: ClassVar[Registry[Any]] = registry
    #: Whether `weights` may be the name of a model on the hub, `owner/name`.
    FROM_HUB: ClassVar[bool] = False
    #: Where a network has proposals from: "rpn", "anchors" or "queries"; None where it gives none.
    PROPOSALS: ClassVar[str | None] = None
    #: Whether a network also gives those of its finest feature map, of kind "feature_map".
    FEATURE_MAP: ClassVar[bool] = False
    name: ClassVar[str]

    weights: Path

    @abstractmethod
    def header(self) -> Header:
        """Header of all regions of this detector.

        Raises:
            DataError: the files of `weights` are absent or damaged, or do not fit.
        """

    @property
    def assumed(self) -> str:
        """Sentence on what was assumed because the files do not say it; empty where nothing was."""
        return ""
