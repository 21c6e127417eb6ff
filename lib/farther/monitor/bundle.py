"""A bundle: one folder with all that a method needs to score detections of a deployed detector.

    bundle.json             thresholds, detector, origin, digests; see `BundleInfo`
    last_layer.safetensors  weight and bias of the detector's last linear layer, where it has one
    method/                 the fitted method, as `Method.save` writes it
    checkpoint.*, checkpoint/  the checkpoint, unless it is only referred to
    clip/                   the CLIP of crops that the method reads, where that is a folder
    model.onnx              detector and score as one graph, where that was asked for

farther writes no pickle into it, and no path leads out of the folder but that of a checkpoint that
is referred to.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from farther import detectors
from farther.detectors import Detector
from farther.detectors.passes import Pass, read_passes
from farther.detectors.passes.crops import Crops
from farther.detectors.settings import ProposalSelection
from farther.errors import DataError
from farther.images.clip import LOCAL
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

FILE, METHOD, CHECKPOINT, CLIP = "bundle.json", "method", "checkpoint", "clip"


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

    def passes(self) -> BundledPasses:
        """The passes that the method reads.

        Raises:
            DataError: the CLIP of crops is not that which the method was fitted on.
        """
        info = self.info.method
        entries = dict(info.passes_beside)
        if info.pass_name is not None:
            entries[info.pass_name] = info.pass_params or {}
        passes = opened_passes(self.info.run, entries, self.folder)
        if crops_digest(passes) != self.info.digests.clip:
            raise DataError(
                "the CLIP of crops is not the one that the method was fitted on",
                file=self.folder / FILE,
                field="digests.clip",
            )
        scored = passes.get(info.pass_name or "")
        return BundledPasses(scored, {name: passes[name] for name in info.passes_beside})


class BundledPasses(NamedTuple):
    """The passes of a bundle's method.

    Attributes:
        scored: That whose rows the method scores; None where it scores the detections.
        beside: Those that it reads beside the detections, by name.
    """

    scored: Pass | None
    beside: dict[str, Pass]


def opened_passes(
    run: str, entries: Mapping[str, Mapping[str, Any]], folder: Path
) -> dict[str, Pass]:
    """The passes of a bundle, whose CLIPs may be in its folder."""
    opened = {}
    for name, entry in entries.items():
        opened[name] = dict(entry)
        encoder = entry.get("encoder") or {}
        if encoder.get("model") == f"{LOCAL}{CLIP}/{name}":
            opened[name]["encoder"] = {**encoder, "model": f"{LOCAL}{folder / CLIP / name}"}
    return read_passes(run, opened)


def header_digest(header: Header) -> str:
    """Digest of a header and its last layer."""
    return digest(json.dumps(header.to_json(), sort_keys=True), header.layer_digest())


def crops_digest(passes: Mapping[str, Pass]) -> str:
    """Digest of the CLIPs of passes and of what they do with them; "" without one."""
    identities = {}
    for name, extra in passes.items():
        if isinstance(extra, Crops):
            identities[name] = extra.identity()
    if not identities:
        return ""
    return digest(json.dumps(identities, sort_keys=True))


def code_digest(adapter: Detector, method: Method) -> str:
    """Digest of the code that detects and scores."""
    of_parts = [METHODS.get(name).__module__ for name in method.parts.values()]
    return modules_digest(*adapter.code_modules, type(method).__module__, *of_parts)
