"""Inference: a detector over all images of a table or of a benchmark's splits, into regions folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from farther.detectors.known_classes import Names, renamed
from farther.detectors.settings import ProposalSelection
from farther.detectors.splits import read_splits, region_ids, rename_classes, update_splits
from farther.images.plan import StreamParams
from farther.images.stream import Model, cache_key, stream
from farther.keyed import Keyed, key_of, record_path
from farther.tables import Header, Images, Regions, RegionsFolder, RegionsWriter, Table
from farther.tables.writing import disk_errors
from farther.terminal import say

if TYPE_CHECKING:
    from farther.detectors.base import Detector


#: Parameters of inference: those of the engine.
InferenceParams = StreamParams
#: The ID split that methods learn from.
TRAINING = "train"
#: The record of the proposals that the network gives; that of imported ones has the name of their
#: source.
NETWORK_RECORD = ".network.json"


@dataclass(frozen=True)
class Detection(Model):
    """A detector as a model of the engine.

    Args:
        detector: The detector.
        header: Of its regions.
        wanted: Selections of proposals, by name, each of which gives a further table.
    """

    detector: Detector
    header: Header
    wanted: Mapping[str, ProposalSelection] = field(default_factory=dict, kw_only=True)

    @classmethod
    def of(
        cls, detector: Detector, wanted: Mapping[str, ProposalSelection] | None = None
    ) -> Detection:
        """The model of a detector, whose checkpoint is read for its header."""
        return cls(detector, detector.header(), wanted=wanted or {})

    @property
    def device(self) -> str:  # type: ignore[override]
        """See `Model`."""
        return self.detector.device

    @property
    def modules(self) -> tuple[str, ...]:  # type: ignore[override]
        """The modules of the adapter."""
        return self.detector.code_modules

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

    def forward_all(self, prepared: list, image_ids: list[str]) -> tuple[Regions, ...]:
        """See `Model.forward_all`: the regions, and a table for each selection of proposals."""
        if not self.wanted:
            return (self.forward(prepared, image_ids),)
        return self.detector.forward_proposals(prepared, image_ids, self.wanted)

    def empties(self) -> tuple[Regions, ...]:
        """See `Model.empties`."""
        return (
            self.empty(),
            *(Regions.empty(self.detector.proposals_header(of)) for of in self.wanted.values()),
        )

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
    proposals: Mapping[str, tuple[ProposalSelection, Path]] | None = None,
    progress: bool = True,
) -> RegionsFolder:
    """Runs a detector over images and writes its regions as a regions folder.

    See `farther.images.stream.stream` for the order of rows, images that cannot be used, and
    resuming. `region_id` is the image's row × 65,536 + the region's rank within the image.

    Args:
        detector: Yields the regions.
        images: The images.
        roots: Folder of each dataset that the table names.
        out: The regions folder to be; it is replaced when all is done.
        work: Folder for unfinished work, on the same file system.
        params: How to stream the images.
        proposals: Selections of proposals that are written in the same pass, by name, and the
            folder of each.
        progress: Whether to show images per second and the time left, on stderr.

    Raises:
        ParameterError, DataError, FartherError: see `farther.images.stream.stream`.
    """
    params, proposals, work = params or InferenceParams(), proposals or {}, Path(work)
    model = Detection.of(detector, {name: selection for name, (selection, _) in proposals.items()})
    key = cache_key(model, images, params)
    writer = RegionsWriter(out, model.header, work / "regions" if proposals else work, key)
    beside = [
        RegionsWriter(
            to,
            detector.proposals_header(selection),
            work / f"of {name}",
            proposals_key(key, selection),
        )
        for name, (selection, to) in proposals.items()
    ]
    stream(model, images, roots, writer, params, beside=beside, progress=progress)
    return RegionsFolder(out)


def proposals_key(key: str, selection: ProposalSelection) -> str:
    """Cache key of a folder of proposals, from that of the regions of the same pass."""
    return key_of([], {"regions": key, "selection": asdict(selection)})


def network_record(folder: str | Path) -> Path:
    """The record of the proposals that the network of a run gives.

    Args:
        folder: The folder of the run's proposals. Imported ones have records of their own, by the
            names of their sources.
    """
    return record_path(folder).with_suffix("") / NETWORK_RECORD


class ProposalFolders:
    """The proposals of a run: `<name>/<split>` is a regions folder, written in the pass that writes the regions.

    Args:
        out: The folder.
        wanted: Selections of proposals, by name; None for those that are imported into the folder.
        keys: Cache key of the regions of each split. Methods learn from the detections in training
            images, but nothing does from their proposals: that split has none.
    """

    def __init__(
        self,
        out: str | Path,
        wanted: Mapping[str, ProposalSelection | None],
        keys: Mapping[str, str],
    ):
        record = network_record(out)
        self._kept = Keyed(out, record)
        self._wanted = {
            name: selection for name, selection in wanted.items() if selection is not None
        }
        self._keys = {
            f"{name}/{split}": proposals_key(key, selection)
            for split, key in keys.items()
            if split != TRAINING
            for name, selection in self._wanted.items()
        }
        with disk_errors(out):
            Path(out).mkdir(parents=True, exist_ok=True)
        imported = wanted.keys() - self._wanted.keys()
        self._kept.keep_only([*self._keys, *imported])
        for file in record.parent.glob("*.json"):
            if file != record and file.stem not in imported:
                file.unlink()

    def of(self, split: str) -> dict[str, tuple[ProposalSelection, Path]]:
        """Selection and folder of each kind of proposals in a split, by name."""
        named = ((name, f"{name}/{split}", selection) for name, selection in self._wanted.items())
        return {
            name: (selection, self._kept.path(item))
            for name, item, selection in named
            if item in self._keys
        }

    def record(self, split: str) -> None:
        """The folders of a split were written."""
        for name in self.of(split):
            self._kept.record(f"{name}/{split}", self._keys[f"{name}/{split}"])

    def are_current(self, split: str) -> bool:
        """True if no folder of a split has to be made again."""
        items = [f"{name}/{split}" for name in self.of(split)]
        return all(self._kept.is_current(item, self._keys[item]) for item in items)

    def copy(self) -> None:
        """Copies those of splits with the same images as another, whose pass they share."""
        for item, key in self._keys.items():
            if not self._kept.is_current(item, key):
                same = next(
                    o for o, k in self._keys.items() if k == key and self._kept.is_current(o, k)
                )
                with self._kept.make(item, key) as to:
                    shutil.copytree(self._kept.path(same), to)

    def rename(self, detector: Detector, classes: Names | None) -> None:
        """Stores them with other names of classes, as `RegionsFolder.renamed` does."""
        for item in self._keys:
            selection = self._wanted[item.partition("/")[0]]
            rename_classes(
                self._kept, [item], renamed(detector.proposals_header(selection), classes)
            )


def infer_splits(
    detector: Detector,
    splits: str | Path,
    roots: Mapping[str, Path],
    out: str | Path,
    work: str | Path,
    params: InferenceParams | None = None,
    *,
    classes: Names | None = None,
    proposals: tuple[str | Path, Mapping[str, ProposalSelection | None]] | None = None,
    progress: bool = True,
    log: Callable[[str], None] = say,
) -> dict[str, RegionsFolder]:
    """Runs a detector over those splits of a benchmark whose cache key changed.

    Regions folders of splits that no longer exist are deleted.

    Args:
        detector: Yields the regions.
        splits: Folder whose sub-folders are the splits; each holds `images.parquet`.
        roots: Folder of each dataset that the tables name.
        out, work: Folders of the results and of unfinished work; each split has a sub-folder of its
            name.
        params: How to stream the images.
        classes: Other names of the detector's classes, see
            `farther.detectors.known_classes.renamed`.
        proposals: Folder of the proposals, and their selections, by name; see `ProposalFolders`.
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
    keys = {split: cache_key(model, images, params) for split, images in tables.items()}
    beside = None if proposals is None else ProposalFolders(*proposals, keys)

    def make(split: str, to: Path, unfinished: Path) -> str:
        into = {} if beside is None else beside.of(split)
        made = infer(
            detector,
            tables[split],
            roots,
            to,
            unfinished,
            params,
            proposals=into,
            progress=progress,
        )
        if beside is not None:
            beside.record(split)
        info = made.info
        return (
            f"{info['images']} images, {info['regions']} regions, {len(info['failures'])} failures"
        )

    is_current = None if beside is None else beside.are_current
    folders = update_splits(keys, out, work, make, log, is_current)
    if beside is not None:
        beside.copy()
        beside.rename(detector, classes)
    # Names are no part of the keys: a changed mapping does not run the detector again.
    return rename_classes(folders, list(keys), header)
