"""What a bundle is made of, and writing it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic_core import to_jsonable_python

from farther import __version__, detectors
from farther.detectors import Detector
from farther.detectors.known_classes import with_class_names
from farther.detectors.passes import Pass, read_passes
from farther.detectors.passes.crops import Crops
from farther.detectors.prompts import Prompts
from farther.detectors.proposal_sources import read_sources
from farther.errors import DataError, ParameterError
from farther.evaluation.files import RunFiles, RunSplit, aligned_scores
from farther.evaluation.stored_results import StoredResults
from farther.evaluation.threshold import read_threshold, stored_threshold
from farther.images.clip import LOCAL
from farther.images.plan import StreamParams
from farther.incremental.keyed import content_digest
from farther.methods import Method, load, not_applicable
from farther.metrics.self_awareness.detector import SelfAwareDetector
from farther.monitor.bundle import (
    CHECKPOINT,
    CLIP,
    FILE,
    METHOD,
    Bundle,
    code_digest,
    crops_digest,
    header_digest,
    opened_passes,
)
from farther.monitor.bundle_info import (
    BundledDetector,
    BundledGraph,
    BundledMethod,
    BundleInfo,
    Digests,
    Reading,
    Validation,
)
from farther.monitor.bundle_proposals import BundledProposals, ProposalChoice, bundled_proposals
from farther.monitor.drift import Rates
from farther.naming.extras import require
from farther.scoring.entries import MethodEntry
from farther.tables import Header, Regions, RegionsFolder
from farther.tables.documents import write_json
from farther.tables.files import inside
from farther.tables.folders import resolved
from farther.tables.writing import refuse_other_files, write_aside

#: Parameters that only say where a checkpoint is.
PLACES = ("config", "revision", "local_files_only")


@dataclass(frozen=True)
class Chosen:
    """Thresholds that were chosen for a budget, or set by hand.

    Args:
        operating, tau: t* and τ.
        budget: What was asked for, as JSON; None where they were set by hand.
        measured: What was measured, as JSON; None likewise.
        proposals: The proposals that are called unknown; None for none.
    """

    operating: float
    tau: float
    budget: dict[str, Any] | None = None
    measured: dict[str, Any] | None = None
    proposals: ProposalChoice | None = None


@dataclass(frozen=True)
class BundleSource:
    """A run and one of its methods.

    Args:
        files: Paths of the run's files.
        detector: The run's entry in the section `detectors` of params.yaml.
        method: The entry in the section `methods`.
        inference: The section `inference`: how the run read image files.
        chosen: Thresholds in place of those of the stages `fit` and `evaluate`.
        encoder: `embed.encoder` of params.yaml, the CLIP of crops that name no other.
    """

    files: RunFiles
    detector: Mapping[str, Any]
    method: MethodEntry
    inference: StreamParams = field(default_factory=StreamParams)
    chosen: Chosen | None = None
    encoder: Mapping[str, Any] | None = None

    @cached_property
    def adapter(self) -> Detector:
        """The run's detector.

        Raises:
            ParameterError: its detections are imported.
        """
        params = dict(self.detector.get("params") or {})
        if "weights" in self.detector:
            params["weights"] = self.detector["weights"]
        adapter = detectors.create(str(self.detector.get("adapter", "")), **params)
        if not isinstance(adapter, Detector):
            problem = "its detections are imported, so there is no network to run"
            raise ParameterError(f"{self.files.run}: {problem}. A bundle needs a detector")
        return adapter

    @cached_property
    def fitted(self) -> Method:
        """The fitted method.

        Raises:
            DataError: it was not fitted, with other parameters than the entry has now, or its state
                is damaged.
            ParameterError: it does not apply to the run.
        """
        folder = self.files.fitted(self.method.name)
        _check_there(self.files, folder / "method.json", "fit")
        reason = not_applicable(folder)
        if reason:
            raise ParameterError(f"{self.method.name} does not apply to {self.files.run}: {reason}")
        fitted = load(folder)
        if not fitted.computes:
            problem = "its scores were made elsewhere, for the images of the benchmark alone"
            raise ParameterError(f"{self.method.name}: {problem}: deploy another method")
        if not self._is_of_entry(fitted):
            problem = (
                f"methods.{self.method.name} of params.yaml has changed since: "
                "run `farther repro evaluate`"
            )
            raise DataError(problem, file=folder / "method.json", field="params")
        return fitted

    def _is_of_entry(self, fitted: Method) -> bool:
        """Whether a fitted method has the parameters of the entry, which may choose them."""
        if self.method.search or self.method.oracle:
            return fitted.name in self.method.methods
        made = self.method.create()
        if made.name != fitted.name:
            return False
        return bool(to_jsonable_python(asdict(made)) == to_jsonable_python(asdict(fitted)))

    @cached_property
    def header(self) -> Header:
        """Header of the run's regions."""
        return with_class_names(self.adapter.header(), self.detector.get("classes"))

    @cached_property
    def thresholds(self) -> tuple[float, float]:
        """t* and τ."""
        if self.chosen is not None:
            return self.chosen.operating, self.chosen.tau
        tau = self.files.tau(self.method.name)
        _check_there(self.files, self.files.threshold, "fit")
        _check_there(self.files, tau, "evaluate")
        return read_threshold(self.files.threshold), read_threshold(tau)

    @cached_property
    def self_aware(self) -> SelfAwareDetector:
        """What makes the run self-aware."""
        _check_there(self.files, self.files.description, "evaluate")
        description = StoredResults(self.files).description
        assert description is not None
        return description.self_awareness.detector

    def check_regions(self) -> None:
        """Refuses a detector that is not the one that the run's regions are of.

        Raises:
            DataError: checkpoint, parameters or classes have changed since.
        """
        folder = self.files.regions(self.calibration_split)
        _check_there(self.files, folder / "regions.json", "infer")
        if header_digest(RegionsFolder(folder).header) != header_digest(self.header):
            advice = "run `farther repro evaluate`"
            raise DataError(
                f"checkpoint, parameters or classes of the detector have changed since: {advice}",
                file=folder,
            )

    @cached_property
    def calibration_split(self) -> str:
        """Name of the ID validation split."""
        _check_there(self.files, self.files.threshold, "fit")
        settings = stored_threshold(self.files.threshold).settings
        if "split" not in settings:
            raise DataError(
                "the field is missing", file=self.files.threshold, field="settings.split"
            )
        return str(settings["split"])

    def passes(self) -> dict[str, dict[str, Any]]:
        """The entries of the passes that the method reads, with their `kind` and CLIP.

        Raises:
            DataError: the run's rows of a pass are of other parameters.
            ParameterError: a pass learns from the training regions, which a bundle does not hold.
        """
        names = list(self.method.passes_beside)
        if self.method.pass_name is not None:
            names.append(self.method.pass_name)
        return {name: self._pass_entry(name) for name in names}

    def _pass_entry(self, name: str) -> dict[str, Any]:
        entry = dict((self.detector.get("passes") or {}).get(name) or {})
        untrained = read_passes(self.files.run, {name: entry}, self.encoder)[name]
        self._refuse_learning(name, entry, untrained)
        self._check_rows(name, untrained)
        if isinstance(untrained, Crops):
            encoder = asdict(untrained.clip.params)
            if encoder["cache"] is not None:
                encoder["cache"] = str(resolved(encoder["cache"]))
            prompts = Prompts.of((), (), untrained.unknown)
            return {
                **entry,
                "kind": untrained.name,
                "encoder": {**encoder, "device": "auto"},
                "unknown": list(prompts.unknown),
            }
        return {"kind": untrained.name, **entry}

    def _refuse_learning(self, name: str, entry: Mapping[str, Any], untrained: Pass) -> None:
        """Refuses a pass that learns from the training regions."""
        if isinstance(untrained, Crops):
            return
        trained = read_passes(self.files.run, {name: dict(entry)}, self.encoder)[name]
        trained.learn(self.files.all_regions)
        if untrained.identity() != trained.identity():
            problem = (
                f"its pass {name!r} learns from the training regions, which a bundle does not hold"
            )
            raise ParameterError(f"{self.method.name} cannot be bundled: {problem}")

    def _check_rows(self, name: str, untrained: Pass) -> None:
        """Refuses a pass that is not the one that the run's rows are of."""
        folder = inside(self.files.all_passes, f"{name}/{self.calibration_split}")
        _check_there(self.files, folder / "regions.json", "infer")
        stored = RegionsFolder(folder).header.detector.get("pass")
        if stored != to_jsonable_python(untrained.identity()):
            advice = "run `farther repro evaluate`"
            raise DataError(f"parameters of the pass have changed since: {advice}", file=folder)

    @cached_property
    def proposals(self) -> BundledProposals | None:
        """The network's proposals that are called unknown; None for none.

        There are none without a limit that they share with the detections.
        """
        if self.chosen is None or self.chosen.proposals is None:
            return None
        sources = read_sources(self.files.run, self.detector.get("proposals"))
        return bundled_proposals(sources, self.chosen.proposals)

    def validation(self) -> Validation:
        """What the method did on the ID validation split."""
        split = RunSplit(self.files, self.calibration_split)
        operating, tau = self.thresholds
        regions = split.regions()
        names = sorted(split.images)
        scores = aligned_scores(
            regions, self.files.scores(self.method.name, split.name), len(split.folder)
        )
        is_detection = regions.score >= operating
        is_flagged = scores[is_detection] < tau
        proposals = self._unknown_proposals(regions[is_detection])
        rates = Rates.of(
            image_id=regions.image_id[is_detection],
            unknown=is_flagged,
            images=names,
            rejected=self.self_aware.rejected(regions, names),
            proposals=proposals,
        )
        alarmed = set(regions.image_id[is_detection][is_flagged])
        if proposals is not None:
            alarmed |= set(proposals[0])
        return Validation(**rates.to_json(), split=split.name, alarmed=len(alarmed))

    def _unknown_proposals(self, detections: Regions) -> tuple[np.ndarray, np.ndarray] | None:
        """Image and objectness of the validation split's proposals that are called unknown.

        None where the bundle has no proposals.
        """
        if self.proposals is None:
            return None
        folder = self.files.proposals(self.proposals.source, self.calibration_split)
        unknown = self.proposals.called(Regions.read(folder), detections)
        return unknown.image_id, unknown.score


def write_bundle(
    source: BundleSource, out: str | Path, *, copy: bool = True, onnx: bool = False
) -> Path:
    """Writes a bundle, aside first, then renamed.

    Args:
        source: What it is made of.
        out: The folder to be; an earlier bundle there is replaced.
        copy: Copy the checkpoint; else only refer to it.
        onnx: Also write detector and method as an ONNX graph.

    Returns:
        The folder.

    Raises:
        DataError: a file of the run is absent; says what to run.
        ParameterError: the method does not apply, or cannot be bundled, or not as a graph; or `out`
            holds something else than a bundle.
        AbsentPackagesError: the packages that write the graph are not installed.
    """
    out = Path(out)
    refuse_other_files(out, FILE, "farther bundle")
    if onnx:
        require("an ONNX graph", "onnx", "onnxruntime", "onnxslim")
    source.check_regions()
    with write_aside(out) as aside:
        aside.mkdir(parents=True)
        source.fitted.write_into(aside / METHOD)
        source.header.write_last_layer(aside)
        write_json(aside / FILE, _bundle_info(source, aside, copy=copy, onnx=onnx).model_dump())
        Bundle.load(aside)
    return out


def _bundle_info(source: BundleSource, folder: Path, *, copy: bool, onnx: bool) -> BundleInfo:
    """The content of `bundle.json`.

    Args:
        source: What the bundle is made of.
        folder: Has the method; gets the checkpoint and the graph.
        copy, onnx: See `write_bundle`.
    """
    adapter, fitted, chosen = source.adapter, source.fitted, source.chosen
    operating, tau = source.thresholds
    passes = {}
    for name, entry in source.passes().items():
        passes[name] = _with_clip(name, entry, folder, copy=copy)
    clip_digest = crops_digest(opened_passes(source.files.run, passes, folder))
    pass_params = None
    if source.method.pass_name is not None:
        pass_params = passes[source.method.pass_name]
    return BundleInfo(
        run=source.files.run,
        benchmark=source.files.benchmark,
        method=BundledMethod(
            entry=source.method.name,
            name=fitted.name,
            title=fitted.title,
            pass_name=source.method.pass_name,
            pass_params=pass_params,
            passes_beside={name: passes[name] for name in source.method.passes_beside},
        ),
        operating=operating,
        tau=tau,
        budget=None if chosen is None else chosen.budget,
        measured=None if chosen is None else chosen.measured,
        self_aware=source.self_aware,
        validation=source.validation(),
        proposals=source.proposals,
        reading=Reading(max_pixels=source.inference.max_pixels),
        header=source.header.to_json(),
        detector=_bundled_detector(source, folder, copy=copy),
        digests=Digests(
            header=header_digest(source.header),
            method=content_digest(folder / METHOD),
            code=code_digest(adapter, fitted),
            clip=clip_digest,
        ),
        onnx=_graph(source, folder) if onnx else None,
        farther=__version__,
    )


def _with_clip(name: str, entry: dict[str, Any], folder: Path, *, copy: bool) -> dict[str, Any]:
    """The entry of a pass whose CLIP, where it is a folder, is copied into the bundle.

    Args:
        name: The pass.
        entry: Its entry, with the parameters of the CLIP.
        folder: The bundle.
        copy: Whether to copy; else the entry names the folder by its full path.
    """
    encoder = entry.get("encoder") or {}
    if entry["kind"] != Crops.name or not encoder["model"].startswith(LOCAL):
        return entry
    model_folder = Path(encoder["model"].removeprefix(LOCAL))
    model = f"{LOCAL}{resolved(model_folder)}"
    if copy:
        shutil.copytree(model_folder, folder / CLIP / name)
        model = f"{LOCAL}{CLIP}/{name}"
    return {**entry, "encoder": {**encoder, "model": model}}


def _bundled_detector(source: BundleSource, folder: Path, *, copy: bool) -> BundledDetector:
    """The entry `detector` of `bundle.json`; the checkpoint is copied where `copy` says so."""
    adapter = source.adapter
    params = dict(source.detector.get("params") or {})
    if isinstance(params.get("unknown"), str):
        # A file of prompts, which a bundle holds as a list.
        header = adapter.header()
        params["unknown"] = [header.classes[column] for column in header.unknown_columns]
    if copy:
        checkpoint = _copied(adapter, folder)
        weights = checkpoint.name
        if checkpoint.has_several_files:
            params = {name: value for name, value in params.items() if name not in PLACES}
    else:
        weights = str(resolved(adapter.weights) if adapter.weights.exists() else adapter.weights)
        if "config" in params:
            params["config"] = str(resolved(params["config"]))
    return BundledDetector(
        adapter=adapter.name,
        params=params,
        classes=dict(source.detector.get("classes") or {}),
        weights=weights,
        copied=copy,
        weights_digest=adapter.identity["weights_digest"],
    )


def _graph(source: BundleSource, folder: Path) -> BundledGraph:
    """Writes the ONNX graph, and returns its entry."""
    passes = source.passes()
    if passes:
        names = " and ".join(repr(name) for name in passes)
        problem = f"it scores the pass {names}, which is more than one run of the network"
        raise ParameterError(f"method {source.method.name!r} cannot be exported: {problem}")
    # It imports PyTorch and its exporter, which takes seconds.
    from farther.monitor.onnx import GraphThresholds, write_graph

    proposals = source.proposals
    if proposals is not None and proposals.not_in_graphs is not None:
        proposals = None
    decisions = GraphThresholds(*source.thresholds, proposals)
    return write_graph(source.adapter, source.fitted, source.header, decisions, folder)


class _Checkpoint(NamedTuple):
    """A checkpoint in a bundle.

    Attributes:
        name: Its name in the bundle's folder.
        has_several_files: Whether it is several files.
    """

    name: str
    has_several_files: bool


def _copied(adapter: Detector, folder: Path) -> _Checkpoint:
    """Copies a detector's checkpoint into a folder."""
    files = adapter.files()
    if not files:
        problem = (
            "is not a file or folder that can be copied: refer to it with --reference-checkpoint"
        )
        raise ParameterError(f"the checkpoint {adapter.weights} {problem}")
    if files == (adapter.weights,):
        name = f"{CHECKPOINT}{adapter.weights.suffix}"
        shutil.copyfile(adapter.weights, folder / name)
        return _Checkpoint(name, has_several_files=False)

    (folder / CHECKPOINT).mkdir(parents=True)
    for file in files:
        place = Path(file.name)
        if file.is_relative_to(adapter.weights.parent) and adapter.weights.is_file():
            # An ONNX graph names the files of its weights by their place beside it.
            place = file.relative_to(adapter.weights.parent)
        copy = folder / CHECKPOINT / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    if adapter.weights.is_file():
        return _Checkpoint(f"{CHECKPOINT}/{adapter.weights.name}", has_several_files=True)
    return _Checkpoint(CHECKPOINT, has_several_files=True)


def _check_there(files: RunFiles, path: Path, stage: str) -> None:
    """Refuses a run without a file that a stage writes."""
    if not path.is_file():
        advice = (
            f"the run has no such artifact yet: run `farther repro {stage}@{files.run}`, or "
            "`dvc pull`"
        )
        raise DataError(f"the file does not exist: {advice}", file=path)
