"""Inference: runs a detector over the images of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from farther.detectors.base import Detector, recomputable
from farther.detectors.settings import ProposalSelection
from farther.detectors.splits import region_ids
from farther.errors import DataError
from farther.images.job import cache_key
from farther.images.model import Model
from farther.images.plan import StreamParams
from farther.images.stream import stream
from farther.incremental.code import modules_digest
from farther.incremental.keyed import key_of
from farther.tables import Header, Images, Regions, RegionsFolder, RegionsWriter, Table

if TYPE_CHECKING:
    from farther.detectors.passes.base import Pass


#: Parameters of inference: those of the engine.
InferenceParams = StreamParams


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
        detector = recomputable(self.detector)
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
