"""Inference: a detector over all images of a table or of a benchmark's splits, into regions folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from farther.detectors.known_classes import Names, renamed
from farther.detectors.splits import read_splits, region_ids, update_splits
from farther.images.plan import StreamParams
from farther.images.stream import Model, cache_key, stream
from farther.tables import Header, Images, Regions, RegionsFolder, RegionsWriter, Table

if TYPE_CHECKING:
    from farther.detectors.base import Detector


#: Parameters of inference: those of the engine.
InferenceParams = StreamParams


@dataclass(frozen=True)
class Detection(Model):
    """A detector as a model of the engine."""

    detector: Detector
    header: Header

    @classmethod
    def of(cls, detector: Detector) -> Detection:
        """The model of a detector, whose checkpoint is read for its header."""
        return cls(detector, detector.header())

    @property
    def device(self) -> str:  # type: ignore[override]
        """See `Model`."""
        return self.detector.device

    @property
    def modules(self) -> tuple[str, ...]:  # type: ignore[override]
        """The adapter's module."""
        return (type(self.detector).__module__,)

    def identity(self) -> dict[str, Any]:
        """See `Model.identity`."""
        return {"header": self.header.to_json(), "last_layer": self.header.layer_digest()}

    def load(self) -> Any:
        """See `Model.load`."""
        return self.detector.network

    def runs_on_cpu(self) -> bool:
        """See `Model.runs_on_cpu`."""
        return self.detector.runs_on_cpu()

    def prepare(self, image: np.ndarray, image_id: str) -> Any:
        """See `Model.prepare`."""
        return self.detector.prepare(image)

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Model.forward`."""
        return self.detector.forward(prepared, image_ids)

    def empty(self) -> Regions:
        """See `Model.empty`."""
        return Regions.empty(self.header)

    def finish(self, table: Table, rows: np.ndarray) -> Table:
        """Numbers the regions by image and rank, so that numbers depend neither on batches nor on resuming."""
        return table.with_columns(region_id=region_ids(rows, table.frame["image_id"]))


def infer(
    detector: Detector,
    images: Images,
    roots: Mapping[str, Path],
    out: str | Path,
    work: str | Path,
    params: InferenceParams | None = None,
    *,
    progress: bool = True,
) -> RegionsFolder:
    """Runs a detector over images and writes its regions as a regions folder.

    See `farther.images.stream.stream` for the order of rows, images that cannot be used, and resuming. `region_id` is
    the image's row × 65,536 + the region's rank within the image.

    Args:
        detector: Yields the regions.
        images: The images.
        roots: Folder of each dataset that the table names.
        out: The regions folder to be; it is replaced when all is done.
        work: Folder for unfinished work, on the same file system.
        params: How to stream the images.
        progress: Whether to show images per second and the time left, on stderr.

    Raises:
        ParameterError, DataError, FartherError: see `farther.images.stream.stream`.
    """
    params = params or InferenceParams()
    model = Detection.of(detector)
    writer = RegionsWriter(out, model.header, work, cache_key(model, images, params))
    stream(model, images, roots, writer, params, progress=progress)
    return RegionsFolder(out)


def infer_splits(
    detector: Detector,
    splits: str | Path,
    roots: Mapping[str, Path],
    out: str | Path,
    work: str | Path,
    params: InferenceParams | None = None,
    *,
    classes: Names | None = None,
    progress: bool = True,
    log: Callable[[str], None] = print,
) -> dict[str, RegionsFolder]:
    """Runs a detector over those splits of a benchmark whose cache key changed.

    Regions folders of splits that no longer exist are deleted.

    Args:
        detector: Yields the regions.
        splits: Folder whose sub-folders are the splits; each holds `images.parquet`.
        roots: Folder of each dataset that the tables name.
        out, work: Folders of the results and of unfinished work; each split has a sub-folder of its name.
        params: How to stream the images.
        classes: Other names of the detector's classes, see `farther.detectors.known_classes.renamed`.
        progress: Whether to show images per second and the time left, on stderr.
        log: Takes one line per split.

    Returns:
        The regions folder of each split.

    Raises:
        DataError: the folder has no splits; see also `infer`.
    """
    params = params or InferenceParams()
    tables, model = read_splits(splits), Detection.of(detector)
    header = renamed(model.header, classes)

    def make(split: str, to: Path, unfinished: Path) -> str:
        made = infer(detector, tables[split], roots, to, unfinished, params, progress=progress)
        info = made.info
        return f"{info['images']} images, {info['regions']} regions, {len(info['failures'])} failures"

    keys = {split: cache_key(model, images, params) for split, images in tables.items()}
    # Names are no part of the keys: a changed mapping does not run the detector again.
    return {split: folder.renamed(header) for split, folder in update_splits(keys, out, work, make, log).items()}
