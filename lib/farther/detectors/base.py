"""Base classes of networks that detect: images in, the regions table out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar, cast

import numpy as np
from PIL.Image import Image
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.adapter import Adapter as Adapter
from farther.detectors.adapter import Fraction as Fraction
from farther.detectors.adapter import register as register
from farther.detectors.adapter import registry as registry
from farther.detectors.recognition import RecognisedFile
from farther.detectors.settings import Layers, Pooling, ProposalSelection, StoredColumns
from farther.errors import FartherError, ParameterError
from farther.images.bounds import network_errors
from farther.images.device import inference_mode, ordinary_tensors, torch_device
from farther.images.inputs import as_pixels, images_of, name_of
from farther.naming.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import digest, regular_file
from farther.terms import Protocol

if TYPE_CHECKING:
    import torch

    from farther.detectors.networks.replay import ProposalSource, Replay

    Network = TypeVar("Network", bound=torch.nn.Module)

# Imported in functions: PyTorch, which takes seconds, and the command does not need.

Count = Annotated[int, Field(ge=1)]
Precision = Literal["float32", "tf32", "bfloat16", "float16"]
#: An image: pixels, a file, or a PIL image.
ImageInput = np.ndarray | str | Path | Image
StoredType = Literal["float32", "float16"]


@dataclass(config=STRICT, kw_only=True)
class Detector(Adapter):
    """A network: the only code that knows its framework.

    The checkpoint is read at first use, so that a detector is cheap to create. An instance can be
    pickled for worker processes; the network stays behind, and `prepare` does not need it.

    Args:
        weights: The checkpoint's file.
        device: "cpu", "cuda", "cuda:1", "mps", …; "auto" is the first GPU, or else the CPU.
        precision: Type of the network's activations; boxes, scores and logits are always computed
            in float32. "tf32" is PyTorch's default for the convolutions of a GPU: float32
            with 10 bits of mantissa.
        features_dtype: Type of the columns `features` and `latent`.
    """

    device: str = "auto"
    precision: Precision = "float32"
    features_dtype: StoredType = "float32"

    #: Parameters that are places of files or devices: they are not part of `identity`.
    PLACES: ClassVar[tuple[str, ...]] = ("weights", "device")
    #: Names of the optional columns that are computed, None for all; see `only`.
    computed: ClassVar[frozenset[str] | None] = None

    @property
    @abstractmethod
    def network(self) -> Any:
        """The network on its device, in evaluation mode; loaded at first use, then kept.

        Raises:
            DataError: the checkpoint is absent or damaged, or does not fit.
        """

    @abstractmethod
    def prepare(self, image: np.ndarray) -> Any:
        """Prepares one image for `forward`; cheap, and does not need the network.

        Args:
            image: ndarray of shape (H, W, 3), uint8, red green blue.
        """

    @abstractmethod
    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """Detects objects in one batch of prepared images.

        Returns:
            The rows image by image, in the order of `image_ids`, best score first; `region_id`
            counts them from 0.

        Raises:
            DataError: the checkpoint is absent or damaged, does not fit, or gives numbers that are
                not finite.
        """

    def forward_proposals(
        self, prepared: list, image_ids: list[str], selections: Mapping[str, ProposalSelection]
    ) -> tuple[Regions, ...]:
        """Detections of `forward`, and class-agnostic proposals of the same forward pass.

        Args:
            prepared: Images that `prepare` made.
            image_ids: Their names.
            selections: Selections of proposals, by name.

        Returns:
            The regions of `forward`, and for each selection a table of the same form under
            `proposals_header`: `score` is the objectness, `label` the class of the highest logit.

        Raises:
            ParameterError: this kind of detector gives none; `PROPOSALS` is None.
            DataError: see `forward`.
        """
        raise ParameterError(f"detector {self.name!r} gives no proposals")

    def proposals_header(self, selection: ProposalSelection) -> Header:
        """Header of the proposals: the detector's, with the selection beside its name."""
        header = self.header()
        return replace(
            header,
            score_threshold=0.0,
            detector={**header.detector, "proposals": asdict(selection)},
        )

    def scaled(self, factor: float) -> Self:
        """This detector with another size of the network's input; the network is shared.

        Raises:
            ParameterError: this kind of detector has no such parameter.
        """
        raise ParameterError(
            f"detector {self.name!r}: the size of its input cannot be scaled by {factor:g}"
        )

    def only(self, columns: Collection[str]) -> Self:
        """This detector with only these of the optional columns (`features`, `latent`, …).

        The cost of the others is saved; all other values stay the same, bit for bit. The network is
        shared.
        """
        detector = object.__new__(type(self))
        vars(detector).update(vars(self), computed=frozenset(columns))
        return detector

    @classmethod
    def opened(cls, path: Path) -> RecognisedFile | None:
        """A checkpoint that names its classes, opened; None for another adapter's."""
        try:
            detector = cls(weights=path)
            detector.load_network()
            detector.header()
        except FartherError:
            return None
        return RecognisedFile(detector=detector)

    def load_network(self) -> Any:
        """Loads the network, unless it is loaded, and returns it.

        Called before inference mode begins: the weights must be ordinary tensors, with which
        gradients can be computed later.
        """
        return self.network

    def detect(
        self,
        images: ImageInput | Sequence[ImageInput],
        image_ids: Sequence[str] | None = None,
        batch_size: int = 8,
    ) -> Regions:
        """Detects objects in images.

        Args:
            images: Arrays of shape (H, W, 3), uint8, red green blue; image files; or PIL images.
                One, or several.
            image_ids: Their names; left out, a file is called by its path and an array by its
                number.
            batch_size: Images that go through the network together.

        Returns:
            One row per detection; `region_id` counts from 0.

        Raises:
            DataError: an image cannot be read or has another shape or type; or see `forward`.
            ParameterError: there are not as many names as images.
        """
        pictures = list(images_of(images))
        if image_ids is None:
            image_ids = [name_of(picture, row) for row, picture in enumerate(pictures)]
        elif isinstance(image_ids, str):
            image_ids = [image_ids]
        if len(image_ids) != len(pictures):
            raise ParameterError(f"{len(pictures)} images, but {len(image_ids)} image_ids")
        if len(pictures) == 0:
            return Regions.empty(self.header())

        regions_by_batch = []
        for start in range(0, len(pictures), batch_size):
            batch = slice(start, start + batch_size)
            names = list(image_ids[batch])
            prepared = []
            for picture, name in zip(pictures[batch], names, strict=True):
                prepared.append(self.prepare(as_pixels(picture, name)))
            regions_by_batch.append(self.forward(prepared, names))

        regions = Regions.concatenate(regions_by_batch)
        return regions.with_columns(region_id=np.arange(len(regions)))

    def content(self) -> tuple[Path, ...]:
        """The files whose content the detections depend on.

        Raises:
            DataError: one is absent.
        """
        return (regular_file(self.weights, "the checkpoint does not exist"),)

    @property
    def code_modules(self) -> tuple[str, ...]:
        """Dotted names of the modules for `farther.incremental.code.modules_digest`."""
        return (type(self).__module__,)

    def files(self) -> tuple[Path, ...]:
        """The files that the network is read from; empty where they are not on this machine."""
        return (self.weights,)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Identity of the detector, as JSON: adapter, digest of its files, and `parameters`.

        Raises:
            DataError: a file is absent.
        """
        return {
            "name": self.name,
            "weights_digest": digest(*self.content()),
            "params": self.parameters(),
        }

    def parameters(self) -> dict[str, Any]:
        """Every parameter, by name, that is not one of `PLACES`."""
        values = {}
        for parameter in fields(self):
            if parameter.name not in self.PLACES:
                values[parameter.name] = getattr(self, parameter.name)
        return values

    def torch_device(self) -> torch.device:
        """The device that `device` names.

        Raises:
            ParameterError: PyTorch does not know it, or this machine has none.
        """
        return torch_device(self.device)

    def to_device(self, network: Network) -> Network:
        """The network on its device, with channels last.

        Convolutions in this layout take up to a sixth less time on a CPU.
        """
        import torch

        return network.to(self.torch_device()).to(memory_format=torch.channels_last)

    def runs_on_cpu(self) -> bool:
        """True if the network runs on the CPU; errors as in `torch_device`."""
        return self.torch_device().type == "cpu"

    def __getstate__(self) -> dict[str, Any]:
        names = {"computed"}
        names.update(parameter.name for parameter in fields(self))
        return {name: value for name, value in vars(self).items() if name in names}


@dataclass(config=STRICT, kw_only=True)
class ReplayDetector(Detector):
    """Base of the networks whose rows can be recomputed."""

    @abstractmethod
    def detection(self, prepared: list) -> Replay:
        """The network's output for a batch of prepared images; see `replay`."""

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Detector.forward`."""
        return self.forward_proposals(prepared, image_ids, {})[0]

    def forward_proposals(
        self, prepared: list, image_ids: list[str], selections: Mapping[str, ProposalSelection]
    ) -> tuple[Regions, ...]:
        """See `Detector.forward_proposals`."""
        self.load_network()
        with network_errors(self.weights), inference_mode():
            replay = self.detection(prepared)
            return (replay.regions(image_ids), *self.proposals_of(replay, image_ids, selections))

    def detect_for_passes(
        self, prepared: list, image_ids: list[str], selections: Mapping[str, ProposalSelection]
    ) -> tuple[Replay, tuple[Regions, ...]]:
        """The tables of `forward_proposals`, and the network's output that they come from.

        Passes go on with that output, see `replay`: the images do not go through the
        network again.
        """
        with network_errors(self.weights), ordinary_tensors():
            replay = self.detection(prepared)
            proposals = self.proposals_of(replay, image_ids, selections)
            return replay, (replay.regions(image_ids), *proposals)

    def proposals_of(
        self, replay: Replay, image_ids: list[str], selections: Mapping[str, ProposalSelection]
    ) -> list[Regions]:
        """The proposals of a batch that `replay` detected in, one table per selection.

        Args:
            replay: The network's output for the batch.
            image_ids: Names of the images.
            selections: Which candidates are proposals, by name.
        """
        from farther.detectors.networks.candidate_boxes import as_regions

        tables = []
        for selection in selections.values():
            candidates = cast("ProposalSource", replay).proposals(selection)
            header = self.proposals_header(selection)
            tables.append(as_regions(header, candidates, image_ids, self.features_dtype))
        return tables

    def replay(self, prepared: list) -> Replay:
        """Detects objects in one batch of prepared images, so that its rows can be recomputed.

        The network's output for the same rows can then be computed for other images, with gradients
        or with dropout.

        Raises:
            DataError: see `Detector.forward`.
        """
        with ordinary_tensors():
            return self.detection(prepared)


def recomputable(detector: Detector) -> ReplayDetector:
    """The detector, if its rows can be recomputed.

    Raises:
        ParameterError: they cannot.
    """
    if not isinstance(detector, ReplayDetector):
        raise ParameterError(f"detector {detector.name!r}: its rows cannot be recomputed")
    return detector


@dataclass(config=STRICT, kw_only=True)
class LayeredDetector(Detector):
    """Base of the networks whose inner modules can be stored.

    Modules have the names of PyTorch's `named_modules`.

    Args:
        latents: Modules, such as the stages of a ResNet, whose activations are averaged per channel
            over each box (a classifier's over the image): each is a column `latent.<name>`, which
            the parameter `layer` of a method selects. For boxes, their outputs are maps, as of the
            stages of a backbone.
        grams: Modules whose activations give the Gram matrices that the method `gram` reads: a
            column `gram.<name>` of `gram_powers` values per channel.
        gram_powers: Number of powers, from 1.
    """

    latents: tuple[str, ...] = ()
    grams: tuple[str, ...] = ()
    gram_powers: Count = 5

    def layers(self) -> Layers:
        """The modules that are stored."""
        return Layers(self.latents, self.grams, self.gram_powers).only(self.computed)


@dataclass(config=STRICT, kw_only=True)
class LatentDetector(LayeredDetector):
    """Base of the networks that detect boxes, and whose column `latent` is pooled from a layer.

    See FMIYC, Appendix F.2.4, for `latent`.

    Args:
        score_threshold: Detections below this score are discarded. Keep it low: the operating
            threshold is applied later.
        max_detections: Largest number of detections per image; the best are kept.
        nms_iou: Of two detections of one class that overlap by more than this IoU, the better one
            is kept.
        protocol: "paper", or "published-code" for the columns of the code published with FMIYC. It
            gives the default of parameters that refer to it.
        latent_size: Cells along one side of the grid that `latent` is pooled from; None takes the
            protocol's: 9 in the paper, 16 in the published code.
        latent_sampling: Samples along one side of a cell; below 1 as many as fit; None takes the
            protocol's: 2, or -1.
        published_rois: Place boxes as the published code does: those of the image as given, scaled
            in both directions by width of the map / width of the image. That misplaces them where
            the network's input has another shape than the image or is padded, so no protocol
            implies it.
    """

    score_threshold: Fraction = 0.05
    max_detections: Count = 100
    nms_iou: Fraction = 0.5
    protocol: Protocol = "paper"
    latent_size: Count | None = None
    latent_sampling: int | None = None
    published_rois: bool = False

    def stored_columns(
        self, *, all_levels: bool = False, log_scores: bool = False
    ) -> StoredColumns:
        """Settings of the columns that inference stores; see `StoredColumns`."""
        if self.protocol == "paper":
            size = 9
            sampling = 2
        else:
            size = 16
            sampling = -1
        if self.latent_size is not None:
            size = self.latent_size
        if self.latent_sampling is not None:
            sampling = self.latent_sampling

        pooling = Pooling(size, sampling, all_levels, self.published_rois)
        return StoredColumns(pooling, self.features_dtype, log_scores, self.layers(), self.computed)
