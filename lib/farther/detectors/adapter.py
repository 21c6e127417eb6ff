"""Base class of the detectors of params.yaml, and their names.

It needs no package of a network: readers of another program's detections build on it alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.recognition import IdClasses, RecognisedFile
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
    #: Names of files, with `*`, for which `recognises` is asked: that of the file, or of a file in
    #: the folder. Literals, since the module is imported only where one fits. "*" are all files;
    #: an adapter that names a file without `*` is asked first.
    RECOGNISED_FILES: ClassVar[tuple[str, ...]] = ("*",)
    name: ClassVar[str]

    weights: Path

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """How to read a file or folder; None for those of other adapters.

        `farther init` asks each class that has this method in its own body.

        Args:
            path: A file or folder that exists.
            id_classes: The classes of the ID dataset, for files that do not name theirs.

        Raises:
            DataError: it is of this adapter, and damaged, or its classes cannot be those of the ID
                dataset.
        """
        return None

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
