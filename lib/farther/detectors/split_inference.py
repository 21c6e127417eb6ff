"""Inference over the splits of a benchmark: those whose images, detector or parameters changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from farther.detectors.base import Detector
from farther.detectors.inference import (
    DetectorModel,
    InferenceParams,
    ProposalOutput,
    infer,
    proposals_key,
)
from farther.detectors.known_classes import ClassNames, with_class_names
from farther.detectors.passes.streaming import SharedPasses
from farther.detectors.settings import ProposalSelection
from farther.detectors.splits import SplitFolders, read_splits, rename_classes
from farther.images.job import cache_key
from farther.incremental.keyed import Keyed, record_path
from farther.tables import RegionsFolder
from farther.tables.writing import disk_errors
from farther.text.terminal import say

#: The ID split that methods are fitted to.
TRAINING = "train"
#: Name of the record of the network's proposals; imported ones have records named by their source.
NETWORK_RECORD = ".network.json"


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
