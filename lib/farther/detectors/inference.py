"""Inference: runs a detector over the images of a table, or of a benchmark's splits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from farther.detectors.known_classes import ClassNames, with_class_names
from farther.detectors.settings import ProposalSelection
from farther.detectors.splits import SplitFolders, read_splits, region_ids, rename_classes
from farther.errors import DataError
from farther.images.job import cache_key
from farther.images.model import Model
from farther.images.plan import StreamParams
from farther.images.stream import stream
from farther.incremental.code import modules_digest
from farther.incremental.keyed import Keyed, key_of, record_path
from farther.tables import Header, Images, Regions, RegionsFolder, RegionsWriter, Table
from farther.tables.writing import disk_errors
from farther.text.terminal import say

if TYPE_CHECKING:
    from farther.detectors.base import Detector, ReplayDetector
    from farther.detectors.passes.base import Pass
    from farther.detectors.passes.streaming import SharedPasses


#: Parameters of inference: those of the engine.
InferenceParams = StreamParams
#: The ID split that methods are fitted to.
TRAINING = "train"
#: Name of the record of the network's proposals; imported ones have records named by their source.
NETWORK_RECORD = ".network.json"


@dataclass(frozen=True)
class DetectorModel(Model):
    """A detector as a model of the engine that streams images.

    Args:
        detector: The detector.
        header: Header of its regions.
        selections: Selections of proposals, by name; each gives a further table.
        passes: Passes that share the forward pass (`Pass.shares_forward`); each gives a further
            table.
    """

    detector: Detector
    header: Header
    selections: Mapping[str, ProposalSelection] = field(default_factory=dict, kw_only=True)
    passes: Sequence[Pass] = field(default=(), kw_only=True)

    @property
    def device(self) -> str:  # type: ignore[override]
        """See `Model`."""
        return self.detector.device

    @property
    def modules(self) -> tuple[str, ...]:  # type: ignore[override]
        """The modules of the adapter."""
        return self.detector.code_modules

    @property
    def needs_gradients(self) -> bool:  # type: ignore[override]
        """See `Model`."""
        return any(shared_pass.needs_gradients for shared_pass in self.passes)

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
        """The regions, one table per selection of proposals, and one per pass that shares the
        forward pass; see `Model.forward_all`.
        """
        if self.passes:
            return self._forward_passes(prepared, image_ids)
        if not self.selections:
            return (self.forward(prepared, image_ids),)
        return self.detector.forward_proposals(prepared, image_ids, self.selections)

    def _forward_passes(self, prepared: list, image_ids: list[str]) -> tuple[Regions, ...]:
        """The tables of `forward_all`, of which the passes' come from the same detections.

        A pass without usable values has no rows for the batch, so that the regions do not depend on
        it.
        """
        detector = cast("ReplayDetector", self.detector)
        replay, tables = detector.detect_for_passes(prepared, image_ids, self.selections)
        pass_tables = []
        for shared_pass in self.passes:
            try:
                rows = shared_pass.after_detection(detector, replay, image_ids)
            except DataError:
                rows = Regions.empty(shared_pass.header(detector))
            pass_tables.append(rows)
        return (*tables, *pass_tables)

    def empty(self) -> Regions:
        """See `Model.empty`."""
        return Regions.empty(self.header)

    def empties(self) -> tuple[Regions, ...]:
        """See `Model.empties`."""
        headers = [self.header]
        for selection in self.selections.values():
            headers += [self.detector.proposals_header(selection)]
        for shared_pass in self.passes:
            headers += [shared_pass.header(self.detector)]
        return tuple(Regions.empty(header) for header in headers)

    def finish(self, table: Table, rows: np.ndarray) -> Table:
        """Numbers the regions by image and rank: they depend neither on batches nor on resuming."""
        return table.with_columns(region_id=region_ids(rows, table.frame["image_id"]))


@dataclass(frozen=True)
class ProposalOutput:
    """A regions folder of proposals that is written together with the regions.

    Args:
        name: Name of the kind of proposals.
        selection: Which candidates are proposals.
        folder: The folder that is written.
    """

    name: str
    selection: ProposalSelection
    folder: Path


@dataclass(frozen=True)
class PassOutput:
    """A regions folder of a pass that is written together with the regions.

    Args:
        name: Name of the pass.
        shared_pass: The pass, which shares the forward pass of the regions.
        folder: The folder that is written.
    """

    name: str
    shared_pass: Pass
    folder: Path


def infer(
    detector: Detector,
    images: Images,
    roots: Mapping[str, Path],
    out: str | Path,
    work: str | Path,
    params: InferenceParams | None = None,
    *,
    proposals: Sequence[ProposalOutput] = (),
    passes: Sequence[PassOutput] = (),
    progress: bool = True,
) -> RegionsFolder:
    """Runs a detector over images and writes its regions as a regions folder.

    See `farther.images.stream.stream` for the order of rows, unusable images, and resuming.
    `region_id` is the image's row × 65,536 + the region's rank within the image.

    Args:
        detector: Yields the regions.
        images: The images.
        roots: Folder of each dataset that the table names.
        out: The regions folder to write; it is replaced when all shards are written.
        work: Folder for unfinished work, on the same file system.
        params: How to stream the images.
        proposals: Proposals of the same forward pass that are written, too.
        passes: Passes that share the forward pass and are written, too.
        progress: Whether to show images per second and the time left, on stderr.

    Raises:
        ParameterError, DataError, FartherError: see `farther.images.stream.stream`.
    """
    params = params or InferenceParams()
    work = Path(work)
    selections = {output.name: output.selection for output in proposals}
    shared_passes = [output.shared_pass for output in passes]
    model = DetectorModel(detector, detector.header(), selections=selections, passes=shared_passes)
    key = cache_key(model, images, params)
    regions_work = work / "regions" if proposals or passes else work
    writer = RegionsWriter(out, model.header, regions_work, key)

    further_writers = []
    for output in proposals:
        header = detector.proposals_header(output.selection)
        output_key = proposals_key(key, output.selection)
        further_writers.append(
            RegionsWriter(output.folder, header, work / f"of {output.name}", output_key)
        )
    for pass_output in passes:
        header = pass_output.shared_pass.header(detector)
        pass_key = shared_pass_key(key, pass_output.shared_pass)
        further_writers.append(
            RegionsWriter(pass_output.folder, header, work / f"pass {pass_output.name}", pass_key)
        )

    stream(model, images, roots, writer, params, further_writers=further_writers, progress=progress)
    return RegionsFolder(out)


def shared_pass_key(key: str, shared_pass: Pass) -> str:
    """Cache key of the unfinished work of a pass, from that of the regions of its forward pass."""
    code = modules_digest(type(shared_pass).__module__)
    return key_of([], {"regions": key, "pass": shared_pass.identity(), "code": code})


def proposals_key(key: str, selection: ProposalSelection) -> str:
    """Cache key of a folder of proposals, from that of the regions of the same forward pass."""
    return key_of([], {"regions": key, "selection": asdict(selection)})


def network_record(folder: str | Path) -> Path:
    """Path of the record of the proposals that the network of a run yields.

    Args:
        folder: The folder of the run's proposals.
    """
    return record_path(folder).with_suffix("") / NETWORK_RECORD


@dataclass(frozen=True)
class _ProposalItem:
    """Proposals of one kind in one split, an item of `ProposalFolders`."""

    kind: str
    split: str
    selection: ProposalSelection
    key: str

    @property
    def name(self) -> str:
        """The item's name, which is its path in the folder."""
        return f"{self.kind}/{self.split}"


class ProposalFolders:
    """The proposals of a run's network; `<name>/<split>` is a regions folder.

    They are written by the forward pass that writes the regions.

    Args:
        out: The folder.
        selections: Selections of proposals, by name; None for those that are imported into the
            folder.
        keys: Cache key of the regions of each split. The training split has no proposals: methods
            are fitted to the detections in its images, but nothing is fitted to proposals.
    """

    def __init__(
        self,
        out: str | Path,
        selections: Mapping[str, ProposalSelection | None],
        keys: Mapping[str, str],
    ):
        self._folder = Path(out)
        self._record = network_record(out)
        self._keyed = Keyed(out, self._record)
        self._imported = set[str]()
        self._items: list[_ProposalItem] = []
        for kind, selection in selections.items():
            if selection is None:
                self._imported.add(kind)
                continue
            for split, key in keys.items():
                if split != TRAINING:
                    item_key = proposals_key(key, selection)
                    self._items.append(_ProposalItem(kind, split, selection, item_key))

    def delete_removed(self) -> None:
        """Deletes proposals that are no longer selected, and the records of those once imported."""
        with disk_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        names = [item.name for item in self._items]
        self._keyed.keep_only([*names, *self._imported])
        for file in self._record.parent.glob("*.json"):
            if file != self._record and file.stem not in self._imported:
                file.unlink()

    def outputs(self, split: str) -> list[ProposalOutput]:
        """What inference must write beside the regions of a split."""
        outputs = []
        for item in self._in_split(split):
            folder = self._keyed.path(item.name)
            outputs.append(ProposalOutput(item.kind, item.selection, folder))
        return outputs

    def record(self, split: str) -> None:
        """Records that the folders of a split were written."""
        for item in self._in_split(split):
            self._keyed.record(item.name, item.key)

    def are_current(self, split: str) -> bool:
        """True if no folder of a split must be computed."""
        return all(self._is_current(item) for item in self._in_split(split))

    def copy_shared(self) -> None:
        """Copies the folders of splits that have the same images as another split."""
        for item in self._items:
            if self._is_current(item):
                continue
            source = self._current_with_key(item.key)
            with self._keyed.make(item.name, item.key) as folder:
                shutil.copytree(self._keyed.path(source.name), folder)

    def rename_classes(self, detector: Detector, classes: ClassNames | None) -> None:
        """Stores them with other names of classes; see `RegionsFolder.renamed`."""
        for item in self._items:
            header = with_class_names(detector.proposals_header(item.selection), classes)
            rename_classes(self._keyed, [item.name], header)

    def _in_split(self, split: str) -> list[_ProposalItem]:
        """The items of a split."""
        return [item for item in self._items if item.split == split]

    def _is_current(self, item: _ProposalItem) -> bool:
        """True if an item was written under its key."""
        return self._keyed.is_current(item.name, item.key)

    def _current_with_key(self, key: str) -> _ProposalItem:
        """The first current item with a key."""
        for item in self._items:
            if item.key == key and self._is_current(item):
                return item
        raise KeyError(key)


def infer_splits(
    detector: Detector,
    splits: str | Path,
    roots: Mapping[str, Path],
    out: str | Path,
    work: str | Path,
    params: InferenceParams | None = None,
    *,
    classes: ClassNames | None = None,
    proposals: tuple[str | Path, Mapping[str, ProposalSelection | None]] | None = None,
    passes: SharedPasses | None = None,
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
            `farther.detectors.known_classes.with_class_names`.
        proposals: Folder of the proposals, and their selections by name; see `ProposalFolders`.
        passes: Passes that may share the forward pass of the regions.
        progress: Whether to show images per second and the time left, on stderr.
        log: Takes one line per split.

    Returns:
        The regions folder of each split.

    Raises:
        DataError: the folder has no splits; see also `infer`.
    """
    params = params or InferenceParams()
    images_by_split = read_splits(splits)
    model = DetectorModel(detector, detector.header())
    header = with_class_names(model.header, classes)
    keys = {}
    for split, images in images_by_split.items():
        keys[split] = cache_key(model, images, params)

    proposal_folders = None
    if proposals is not None:
        proposal_folders = ProposalFolders(*proposals, keys)
        proposal_folders.delete_removed()

    folders = SplitFolders(out, work, keys, log)
    is_current = None if proposal_folders is None else proposal_folders.are_current
    for split in folders.outdated(is_current):
        pass_outputs = [] if passes is None else passes.outputs(split)
        with folders.make(split) as folder:
            regions = infer(
                detector,
                images_by_split[split],
                roots,
                folder,
                Path(work) / split,
                params,
                proposals=() if proposal_folders is None else proposal_folders.outputs(split),
                passes=pass_outputs,
                progress=progress,
            )
            if proposal_folders is not None:
                proposal_folders.record(split)
            summary = _summary(regions)
        if passes is not None:
            passes.record(split, images_by_split[split], pass_outputs)
        log(f"{split}: {summary}")

    if proposal_folders is not None:
        proposal_folders.copy_shared()
        proposal_folders.rename_classes(detector, classes)
    # Names are not part of the keys: a changed mapping does not run the detector again.
    return folders.rename_classes(header)


def _summary(regions: RegionsFolder) -> str:
    """Numbers of images, regions and failures of a regions folder."""
    info = regions.info
    failures = len(info["failures"])
    return f"{info['images']} images, {info['regions']} regions, {failures} failures"
