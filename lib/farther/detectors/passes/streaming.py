"""Runs passes over the images of a run's splits, into regions folders aligned with the run's."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from farther.detectors.base import Detector, ReplayDetector
from farther.detectors.imported import Imported
from farther.detectors.inference import DetectorModel, InferenceParams, PassOutput
from farther.detectors.known_classes import ClassNames, with_class_names
from farther.detectors.passes.base import KEYS, SHARED, Pass
from farther.detectors.passes.crops import CropModel, Crops
from farther.detectors.splits import read_splits, rename_classes
from farther.errors import DataError, ParameterError
from farther.images.job import cache_key
from farther.images.stream import stream
from farther.incremental.keyed import Keyed
from farther.tables import Images, Regions, RegionsFolder, RegionsWriter, Table
from farther.tables.parquet import read_parquet
from farther.tables.writing import disk_errors
from farther.text.terminal import say

#: Largest difference from the stored regions, in pixels and in score: other machines round
#: differently.
TOLERANCE = {"box": 0.5, "score": 1e-3}


@dataclass(frozen=True)
class PassModel(DetectorModel):
    """A pass as a model of the engine that streams images.

    Args:
        extra_pass: The pass.
        regions: The run's own regions in the split.
        shard_images: Images per shard of both.
    """

    extra_pass: Pass
    regions: RegionsFolder
    shard_images: int

    @property
    def needs_gradients(self) -> bool:  # type: ignore[override]
        """See `Model`."""
        return self.extra_pass.needs_gradients

    @property
    def modules(self) -> tuple[str, ...]:  # type: ignore[override]
        """The modules of the adapter and of the pass."""
        return (*super().modules, type(self.extra_pass).__module__)

    def identity(self) -> dict[str, Any]:
        """See `Model.identity`."""
        return {
            **super().identity(),
            "pass": self.extra_pass.identity(),
            "regions": self.regions.rows_digest(),
        }

    def prepare(self, image: np.ndarray, image_id: str) -> Any:
        """See `Model.prepare`."""
        return self.extra_pass.prepare(self.detector, image)

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Model.forward`."""
        return self.extra_pass.forward(self.detector, prepared, image_ids)

    def finish(self, table: Table, rows: np.ndarray) -> Table:
        """The rows of a shard with the shared columns of the run's own regions.

        Raises:
            DataError: other objects were detected this time.
        """
        numbered = super().finish(table, rows)
        shard = self.regions.shards[int(rows[0]) // self.shard_images]
        stored = read_parquet(shard, columns=[*KEYS, *SHARED])
        if not _are_same_objects(stored, numbered.frame):
            raise DataError(
                "the detector finds other objects than are stored: was the folder made on another "
                "machine? Delete it and rerun `infer`",
                file=self.regions.path,
            )
        return numbered.with_columns(**{name: stored[name] for name in SHARED})


def _are_same_objects(stored: pl.DataFrame, detected: pl.DataFrame) -> bool:
    """True if two frames have the same keys, and boxes and scores that agree to `TOLERANCE`."""
    if not stored.select(KEYS).equals(detected.select(KEYS)):
        return False
    for name, tolerance in TOLERANCE.items():
        stored_values = stored[name].to_numpy()
        detected_values = detected[name].to_numpy()
        if not np.allclose(stored_values, detected_values, rtol=0, atol=tolerance):
            return False
    return True


class SharedPasses:
    """Passes of a run that share the forward pass that writes the regions.

    The network sees an image once, for the regions, the proposals and these passes. That is done
    for splits without earlier output of the pass: regions that are made again often come to the
    same rows, and then the earlier output of the pass is still current.

    Args:
        detector: The run's detector.
        passes: The passes, by name.
        regions: The run's own regions, one folder per split.
        out: Folder of the results: `<name>/<split>` is a regions folder.
        params: How the images are streamed.
    """

    def __init__(
        self,
        detector: Detector,
        passes: Mapping[str, Pass],
        regions: str | Path,
        out: str | Path,
        params: InferenceParams,
    ):
        self._detector = detector
        self._regions = Path(regions)
        self._params = params
        self._keyed = Keyed(out)
        self._passes: dict[str, Pass] = {}
        for name, extra_pass in passes.items():
            if extra_pass.shares_forward and isinstance(detector, ReplayDetector):
                extra_pass.check(detector)
                self._passes[name] = extra_pass

    def outputs(self, split: str) -> list[PassOutput]:
        """What inference writes beside the regions of a split."""
        outputs = []
        for name, extra_pass in self._passes.items():
            folder = self._keyed.path(f"{name}/{split}")
            if split not in extra_pass.skip and not folder.exists():
                outputs.append(PassOutput(name, extra_pass, folder))
        return outputs

    def record(self, split: str, images: Images, outputs: Sequence[PassOutput]) -> None:
        """Records folders that were written beside the regions of a split.

        A folder whose rows are not those of the regions, as the pass had no usable values for an
        image, is deleted: `infer_passes` runs that pass again by itself, and says what is wrong.
        """
        for output in outputs:
            regions = RegionsFolder(self._regions / split)
            header = output.shared_pass.header(self._detector)
            model = PassModel(
                self._detector, header, output.shared_pass, regions, self._params.shard_images
            )
            if _have_same_objects(regions, RegionsFolder(output.folder)):
                key = cache_key(model, images, self._params)
                self._keyed.record(f"{output.name}/{split}", key)
            else:
                shutil.rmtree(output.folder)


def _have_same_objects(regions: RegionsFolder, rows: RegionsFolder) -> bool:
    """True if the columns that a pass shares with the run's own regions are the same bits."""
    if len(regions.shards) != len(rows.shards):
        return False
    for stored_shard, shard in zip(regions.shards, rows.shards, strict=True):
        stored = read_parquet(stored_shard, columns=[*KEYS, *SHARED])
        if not stored.equals(read_parquet(shard, columns=[*KEYS, *SHARED])):
            return False
    return True


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
    classes: ClassNames | None = None,
    progress: bool = True,
    log: Callable[[str], None] = say,
) -> None:
    """Runs the passes of a run over those splits whose cache key changed.

    Folders of other passes are deleted.

    Args:
        detector: The run's detector, or reader of imported detections.
        passes: The passes, by name.
        splits: Folder whose sub-folders are the splits; each holds `images.parquet`.
        roots: Folder of each dataset that the tables name.
        regions: The run's own regions, written by `farther.detectors.split_inference.infer_splits`.
        out: Folder of the results: `<name>/<split>` is a regions folder.
        work: Folder for unfinished work.
        params: How to stream the images: the parameters that the run's own regions were written
            with.
        classes: See `farther.detectors.known_classes.with_class_names`.
        progress: Whether to show images per second and the time left, on stderr.
        log: Takes one line per pass and split.

    Raises:
        ParameterError: the detector cannot do a pass; a reader of imported detections can do crops
            only.
        DataError: see `farther.images.stream.stream`; or other objects are detected than are
            stored.
    """
    params = params or InferenceParams()
    regions = Path(regions)
    images_by_split = read_splits(splits) if passes else {}

    models: dict[str, PassModel | CropModel] = {}
    images_by_item: dict[str, Images] = {}
    for name, extra_pass in passes.items():
        items = {}
        for split, images in images_by_split.items():
            if split not in extra_pass.skip:
                items[f"{name}/{split}"] = RegionsFolder(regions / split)
                images_by_item[f"{name}/{split}"] = images
        if isinstance(extra_pass, Crops):
            header = extra_pass.header_of(with_class_names(detector.header(), classes))
            for item, folder in items.items():
                images = images_by_item[item]
                models[item] = CropModel(extra_pass, header, folder, images, params.shard_images)
        else:
            network = check_detector(name, extra_pass, detector)
            extra_pass.learn(regions)
            header = extra_pass.header(network)
            for item, folder in items.items():
                models[item] = PassModel(network, header, extra_pass, folder, params.shard_images)

    keys = {}
    for item, model in models.items():
        keys[item] = cache_key(model, images_by_item[item], params)

    def write(item: str, folder: Path) -> str:
        model = models[item]
        model.load()
        writer = RegionsWriter(folder, model.header, Path(work) / item, keys[item])
        stream(model, images_by_item[item], roots, writer, params, progress=progress)
        return f"{RegionsFolder(folder).info['regions']} regions"

    with disk_errors(out):
        Path(out).mkdir(parents=True, exist_ok=True)
    keyed = Keyed(out)
    keyed.update(keys, write, log)
    for item, model in models.items():
        # The classes of crops have the benchmark's names already.
        if isinstance(model, PassModel):
            rename_classes(keyed, [item], with_class_names(model.header, classes))


def check_detector(name: str, extra_pass: Pass, detector: Detector | Imported) -> Detector:
    """The detector, if its network supports a pass.

    Args:
        name: Name of the pass, for messages.
        extra_pass: The pass.
        detector: The run's detector, or reader of imported detections.

    Raises:
        ParameterError: the network does not support the pass, or there is none; says why.
    """
    if isinstance(detector, Imported):
        raise ParameterError(
            f"passes: {name!r} needs a network, but {detector.name} imports detections"
        )
    extra_pass.check(detector)
    return detector
