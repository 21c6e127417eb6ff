"""Passes streamed over the images of a run's splits, into folders of regions aligned with the run's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from farther.detectors.base import Detector
from farther.detectors.imported import Imported
from farther.detectors.inference import Detection, InferenceParams
from farther.detectors.known_classes import Names, renamed
from farther.detectors.passes.base import SHARED, Pass
from farther.detectors.passes.crops import CropModel, Crops
from farther.detectors.splits import read_splits, rename_classes
from farther.errors import DataError, ParameterError
from farther.images.stream import cache_key, stream
from farther.keyed import Keyed
from farther.tables import Regions, RegionsFolder, RegionsWriter, Table
from farther.tables.parquet import read_parquet
from farther.tables.writing import disk_errors
from farther.terminal import say

#: Largest difference, in pixels and in score, of what is detected again: other machines round in
#: another way.
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
        return {
            **super().identity(),
            "pass": self.again.identity(),
            "regions": self.regions.rows_digest(),
        }

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
            np.allclose(
                found[name].to_numpy(), numbered.frame[name].to_numpy(), rtol=0, atol=tolerance
            )
            for name, tolerance in TOLERANCE.items()
        )
        if not same:
            problem = "the detector finds other objects than are stored: was the folder made on another machine?"
            raise DataError(f"{problem} Delete it and rerun `infer`", file=self.regions.path)
        return numbered.with_columns(**{name: found[name] for name in SHARED})


def infer_passes(
    detector: Detector | Imported,
    passes: Mapping[str, Pass],
    splits: str | Path,
    roots: Mapping[str, Path],
    regions: str | Path,
    out: str | Path,
    work: str | Path,
    params: InferenceParams | None = None,
    *,
    classes: Names | None = None,
    progress: bool = True,
    log: Callable[[str], None] = say,
) -> None:
    """Runs the passes of a run over those splits whose cache key changed; folders of other passes are deleted.

    Args:
        detector: The run's detector, or reader of detections.
        passes: {name: pass}.
        splits: Folder whose sub-folders are the splits; each holds `images.parquet`.
        roots: Folder of each dataset that the tables name.
        regions: The run's own regions, as `farther.detectors.inference.infer_splits` makes them.
        out: Folder of the results: `<name>/<split>` is a regions folder.
        work: Folder for unfinished work.
        params: How to stream the images: the parameters that the run's own regions were made with.
        classes: See `farther.detectors.known_classes.renamed`.
        progress: Whether to show images per second and the time left, on stderr.
        log: Takes one line per pass and split.

    Raises:
        ParameterError: the detector cannot do a pass; a reader of imported detections can do crops
            only.
        DataError: see `farther.images.stream.stream`; or other objects are detected than are
            stored.
    """
    params, regions = params or InferenceParams(), Path(regions)
    tables = read_splits(splits) if passes else {}
    models: dict[str, PassModel | CropModel] = {}
    for name, again in passes.items():
        folders = {
            split: RegionsFolder(regions / split) for split in tables if split not in again.skip
        }
        if isinstance(again, Crops):
            named = again.header_of(renamed(detector.header(), classes))
            for split, folder in folders.items():
                models[f"{name}/{split}"] = CropModel(
                    again, named, folder, tables[split], params.shard_images
                )
        else:
            network = able(name, again, detector)
            again.learn(regions)
            header = again.header(network)
            for split, folder in folders.items():
                models[f"{name}/{split}"] = PassModel(
                    network, header, again, folder, params.shard_images
                )
    keys = {
        item: cache_key(model, tables[item.partition("/")[2]], params)
        for item, model in models.items()
    }

    def make(item: str, to: Path) -> str:
        models[item].load()
        writer = RegionsWriter(to, models[item].header, Path(work) / item, keys[item])
        stream(
            models[item], tables[item.partition("/")[2]], roots, writer, params, progress=progress
        )
        return f"{RegionsFolder(to).info['regions']} regions"

    with disk_errors(out):
        Path(out).mkdir(parents=True, exist_ok=True)
    kept = Keyed(out)
    kept.update(keys, make, log)
    for item, model in models.items():
        if isinstance(model, PassModel):  # crops are named by the classes as they are called here
            rename_classes(kept, [item], renamed(model.header, classes))


def able(name: str, again: Pass, detector: Detector | Imported) -> Detector:
    """The detector of a pass that runs its network, if it can do the pass.

    Args:
        name: Of the pass, for messages.
        again: The pass.
        detector: The run's detector, or reader of detections.

    Raises:
        ParameterError: it cannot; says why.
    """
    if isinstance(detector, Imported):
        raise ParameterError(
            f"passes: {name!r} needs a network, but {detector.name} imports detections"
        )
    again.check(detector)
    return detector
