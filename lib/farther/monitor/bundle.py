"""A bundle: one folder with all that a method needs to score detections of a deployed detector.

    bundle.json             thresholds, detector, origin, digests; see `BundleInfo`
    last_layer.safetensors  weight and bias of the detector's last linear layer, where it has one
    method/                 the fitted method, as `Method.save` writes it
    checkpoint.*, checkpoint/  the checkpoint, unless it is only referred to
    model.onnx              detector and score as one graph, where that was asked for

farther writes no pickle into it, and no path leads out of the folder but that of a checkpoint that
is referred to.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from farther import detectors
from farther.detectors import Detector
from farther.detectors.passes import Pass, read_passes
from farther.detectors.settings import ProposalSelection
from farther.errors import DataError
from farther.incremental.code import modules_digest
from farther.incremental.keyed import content_digest
from farther.methods import Method, load
from farther.methods.base import METHODS
from farther.monitor.bundle_info import BundleInfo
from farther.naming.registry import build
from farther.tables import Header
from farther.tables.documents import parse_json
from farther.tables.files import digest, inside, read_text
from farther.tables.schema import check

FILE, METHOD, CHECKPOINT = "bundle.json", "method", "checkpoint"


class Bundle:
    """A bundle that was read and checked.

    Attributes:
        folder: The folder.
        info: Its `bundle.json`.
        header: Header of the detector's regions.
        method: The fitted method.
        self_aware: Thresholds, calibrators and image threshold; None where the run was not made
            self-aware.
        validation: Results of the method on the ID validation split, which drift is compared with.
    """

    def __init__(self, folder: Path, info: BundleInfo, header: Header, method: Method):
        self.folder, self.info, self.header, self.method = folder, info, header, method
        self.self_aware, self.validation = info.self_aware, info.validation

    @classmethod
    def load(cls, folder: str | Path) -> Bundle:
        """Reads a bundle; the checkpoint is looked at by `detector`.

        Raises:
            DataError: the folder is not a bundle, is one of another version, or a file is damaged
                or was changed.
            ParameterError: the method or a parameter of it is not known here.
        """
        folder = Path(folder)
        file = folder / FILE
        absent = "the file does not exist: not a bundle. `farther bundle RUN METHOD OUT` writes one"
        info = check(BundleInfo, parse_json(read_text(file, absent), file), file)
        header = Header.from_json(info.header, folder, file)
        if header_digest(header) != info.digests.header:
            raise DataError(
                "header or last layer are not those that were written",
                file=file,
                field="digests.header",
            )
        method = load(folder / METHOD)
        if content_digest(folder / METHOD) != info.digests.method:
            raise DataError(
                "the fitted method is not the one that was written",
                file=file,
                field="digests.method",
            )
        if info.onnx is not None and digest(inside(folder, info.onnx.file)) != info.onnx.digest:
            raise DataError(
                "the graph is not the one that was written", file=file, field="onnx.digest"
            )
        return cls(folder, info, header, method)

    def detector(self, device: str = "auto") -> Detector:
        """The detector, for the columns that the method reads.

        Its checkpoint is compared with the digest.

        Args:
            device: See `farther.detectors.base.Detector`.

        Raises:
            DataError: the checkpoint is absent, or not the one that the method was fitted on.
            ParameterError: a parameter of the adapter is not known here.
        """
        entry = self.info.detector
        weights = Path(entry.weights)
        if entry.copied:
            weights = inside(self.folder, entry.weights)
        cls = detectors.get(entry.adapter)
        if not issubclass(cls, Detector):
            raise DataError(
                f"{entry.adapter!r} runs no network",
                file=self.folder / FILE,
                field="detector.adapter",
            )
        params = {**entry.params, "weights": weights, "device": device}
        adapter: Detector = build(cls, f"detector {entry.adapter!r}", params)
        weights_digest = adapter.identity["weights_digest"]
        if weights_digest != entry.weights_digest:
            digests = f"(digest {weights_digest}, expected {entry.weights_digest})"
            problem = "the checkpoint is not the one that the method was fitted on"
            raise DataError(f"{problem} {digests}", file=weights)
        if code_digest(adapter, self.method) != self.info.digests.code:
            warnings.warn(
                f"{self.folder} was written by farther {self.info.farther} with other code of the "
                "detector or the method: scores may differ from those that were measured. Write "
                "the bundle again to be sure",
                stacklevel=2,
            )
        return adapter.only(self.method.columns)

    def selection(self) -> ProposalSelection | None:
        """Which proposals the network gives; None for none.

        Raises:
            ParameterError: a parameter of their source is not known here.
        """
        return None if self.info.proposals is None else self.info.proposals.selection()

    def scored_pass(self) -> Pass | None:
        """The pass whose regions the method scores; None where it scores the detections."""
        name = self.info.method.pass_name
        if name is None:
            return None
        return read_passes(self.info.run, {name: self.info.method.pass_params})[name]


def header_digest(header: Header) -> str:
    """Digest of a header and its last layer."""
    return digest(json.dumps(header.to_json(), sort_keys=True), header.layer_digest())


def code_digest(adapter: Detector, method: Method) -> str:
    """Digest of the code that detects and scores."""
    of_parts = [METHODS.get(name).__module__ for name in method.parts.values()]
    return modules_digest(*adapter.code_modules, type(method).__module__, *of_parts)
