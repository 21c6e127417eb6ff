"""Detections that can be computed again, row by row: of other images, or with dropout."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from farther.detectors.networks.candidate_boxes import ImageProposals
from farther.detectors.networks.detection import ImageDetections
from farther.detectors.networks.taps import find_module, output_shape
from farther.detectors.settings import ProposalSelection
from farther.errors import ParameterError
from farther.tables import Header, Regions

T = TypeVar("T")


@dataclass
class RowOutputs:
    """Output of a network for the N rows of a batch's regions, in their order.

    Args:
        logits: Shape (N, K).
        boxes: Shape (N, 4), in pixels of the images as given.
        features: Shape (N, D), input of the last linear layer; None where there is none.
        latents: The columns `latent` and `latent.<layer>`, shape (N, C) each, pooled over the
            regions' boxes; empty where the layers that they are pooled from did not run again.
    """

    logits: Tensor
    boxes: Tensor
    features: Tensor | None = None
    latents: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Dropout:
    """Masks of one sample of Monte Carlo dropout.

    Each value of a module's output is 0 with probability `rate`; the others are divided by
    1 - `rate`. The masks of an image depend on the seed, its name, the number of the sample and the
    module's name: neither on the other images of the batch nor on the device.

    Args:
        rate: Probability, 0 to below 1.
        seed: Seed of all masks.
        number: Number of the sample.
        image_ids: Names of the batch's images.
        where: Names of the modules whose outputs are masked; none for the network's usual place.
    """

    rate: float
    seed: int
    number: int
    image_ids: Sequence[str]
    where: tuple[str, ...] = ()

    @contextmanager
    def on(self, network: nn.Module, usual: Iterable[str], counts: Sequence[int]) -> Iterator[None]:
        """Masks outputs of modules of a network while the block runs.

        Args:
            network: The network.
            usual: Names of the modules at the usual place.
            counts: Rows of each image in outputs that hold the rows of all images one after the
                other. Other outputs hold one item per image.

        Raises:
            ParameterError: the network has no such module, or its output is not a tensor of that
                shape.
        """
        hooks = []
        try:
            for name in self.where or usual:
                module = find_module(network, name, "where")
                hooks.append(module.register_forward_hook(self._hook(name, counts)))
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def is_within(self, parts: Sequence[str]) -> bool:
        """True if all modules are inside of these parts of the network, given by name."""
        prefixes = tuple(f"{part}." for part in parts)
        return all(f"{name}.".startswith(prefixes) for name in self.where)

    def check_within(self, parts: Sequence[str]) -> None:
        """Refuses modules outside of these parts of the network; see `is_within`.

        Raises:
            ParameterError: there is one.
        """
        if not self.is_within(parts):
            problem = (
                f"passes that detect again repeat only {', '.join(parts)}: name modules in there"
            )
            raise ParameterError(f"parameter 'where': {problem}, found {', '.join(self.where)}")

    def for_images(self, numbers: Sequence[int]) -> Dropout:
        """The masks of some of the images, by their numbers in the batch."""
        return replace(self, image_ids=[self.image_ids[number] for number in numbers])

    def masks(self, shapes: Sequence[tuple[int, ...]], place: str) -> list[Tensor]:
        """The factors, 0 or 1 / (1 - rate), for each image's values at a place."""
        masks = []
        for image_id, shape in zip(self.image_ids, shapes, strict=True):
            key = "\0".join([str(self.seed), str(self.number), place, image_id])
            seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
            uniform = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
            masks.append((uniform >= self.rate) / (1 - self.rate))
        return masks

    def _hook(self, name: str, counts: Sequence[int]) -> Callable[[nn.Module, Any, Any], Any]:
        """A forward hook that masks the output of the module of this name; see `on`."""

        def mask(_module: nn.Module, _args: Any, output: Any) -> Any:
            if isinstance(output, tuple):
                return (self._masked(output[0], name, counts), *output[1:])
            return self._masked(output, name, counts)

        return mask

    def _masked(self, output: Any, name: str, counts: Sequence[int]) -> Tensor:
        images = len(self.image_ids)
        if not isinstance(output, Tensor) or len(output) not in (images, sum(counts)):
            problem = (
                f"the output of {name!r} for {images} images is {output_shape(output)}, "
                "not one item per image or region"
            )
            raise ParameterError(f"parameter 'where': {problem}; name another module")

        rows_per_image = [1] * images if len(output) == images else counts
        shapes = [(rows, *output.shape[1:]) for rows in rows_per_image]
        masks = torch.cat(self.masks(shapes, name))
        return output * masks.to(output.device, output.dtype)


@dataclass
class Candidates:
    """All A proposals, anchors or queries of one image, of which a few become detections.

    Args:
        logits: Shape (A, K), as they are stored.
        boxes: Shape (A, 4), or (A, K, 4) for one box per class, in pixels of the network's input.
    """

    logits: Tensor
    boxes: Tensor


class Replay(Protocol):
    """Detections of one batch whose rows can be computed again."""

    @property
    def images(self) -> Sequence[Tensor]:
        """Input of the network for each image, shape (3, H, W).

        It precedes the normalisation that is part of the network; not all networks have one.
        """

    @property
    def unit(self) -> Tensor | float:
        """Change of `images` for a change of 1 in pixels from 0 to 1.

        It is 1, or of shape (3, 1, 1) where each channel was divided by its standard deviation.
        """

    def regions(self, image_ids: Sequence[str]) -> Regions:
        """The detections, as `Detector.forward` returns them."""

    def recompute(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """Runs the network again for the same rows: the proposals, anchors or queries stay.

        Where an image requires gradients, those of all outputs can be computed. With neither images
        nor dropout, the output equals the columns of `regions` bit for bit.

        Args:
            images: Other images of the same shapes as `images`; None for the same.
            dropout: Masks; layers before the first masked module do not run again.

        Raises:
            ParameterError: see `Dropout.on`.
        """


class ProposalSource(Protocol):
    """Detections of one batch with the proposals of the same run of the network."""

    def proposals(self, selection: ProposalSelection) -> list[ImageProposals]:
        """The proposals of each image; see `farther.detectors.networks.candidate_boxes`."""


class CandidateSource(Protocol):
    """Detections of one batch that can be selected anew under dropout; the proposals stay."""

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """All candidates of each image under dropout.

        Raises:
            ParameterError: a module in `dropout.where` is before the part of the network that runs
                again.
        """

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> ImageDetections:
        """The detections of one image, best first; boxes in pixels of the image as given.

        Args:
            number: The image's number in the batch.
            probabilities: Shape (A, K).
            boxes: See `Candidates`.
        """

    def placed(self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """Boxes of N candidates of one image in pixels of the image as given, shape (N, 4).

        Args:
            number: The image's number in the batch.
            boxes: See `Candidates`.
            rows: Of the N candidates.
            labels: Logits columns of the N candidates.
        """


class CandidateReplay(Replay, CandidateSource, Protocol):
    """A replay whose detections can be selected anew under dropout."""


class ReplayGroup(CandidateSource, ProposalSource, Protocol):
    """Detections of images of one shape, which go through the network together.

    Attributes:
        images: See `Replay`.
        columns: The columns of the detections, image by image.
        counts: Number of detections of each image.
    """

    images: list[Tensor]
    columns: dict[str, np.ndarray]
    counts: list[int]

    def recompute(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.recompute`."""


@dataclass(frozen=True)
class BatchPart:
    """The images of a batch that have one shape.

    Args:
        numbers: Numbers of the images in the batch.
        group: Their detections.
    """

    numbers: list[int]
    group: ReplayGroup


class GroupedReplay:
    """Detections of one batch whose images go through the network in groups of one shape.

    No image is padded for another. See `detect` for running a network.

    Args:
        header: Header of the regions.
        parts: The groups, which hold each image of the batch once.
    """

    unit: Tensor | float = 1.0

    def __init__(self, header: Header, parts: Sequence[BatchPart]):
        self._header = header
        self._parts = parts
        # The image of each row in the order of the groups, and the rows in the order of the images.
        self._image_of_row = np.concatenate(
            [np.repeat(part.numbers, part.group.counts) for part in parts]
        )
        self._order = self._image_of_row.argsort(kind="stable")

    @classmethod
    def detect(
        cls,
        header: Header,
        images: Sequence[T],
        shape: Callable[[T], tuple],
        detect: Callable[[list[T]], ReplayGroup],
    ) -> Self:
        """Runs a network on the images of each shape.

        Args:
            header: Header of the regions.
            images: The prepared images.
            shape: Shape of a prepared image.
            detect: Images of one shape → their detections.
        """
        numbers_by_shape: dict[tuple, list[int]] = {}
        for number, image in enumerate(images):
            numbers_by_shape.setdefault(shape(image), []).append(number)

        parts = []
        for numbers in numbers_by_shape.values():
            group = detect([images[number] for number in numbers])
            parts.append(BatchPart(numbers, group))
        return cls(header, parts)

    @property
    def images(self) -> list[Tensor]:
        """See `Replay.images`."""
        return self._in_order([part.group.images for part in self._parts])

    def regions(self, image_ids: Sequence[str]) -> Regions:
        """See `Replay.regions`."""
        columns = self._parts[0].group.columns
        if len(self._parts) > 1:
            columns = {name: self._joined_column(name) for name in columns}
        image_id = np.array(image_ids, dtype=object)[self._image_of_row[self._order]]
        return Regions(
            header=self._header, image_id=image_id, region_id=np.arange(len(image_id)), **columns
        )

    def recompute(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.recompute`."""
        outputs = []
        for part in self._parts:
            part_images = None
            if images is not None:
                part_images = [images[number] for number in part.numbers]
            part_dropout = None
            if dropout is not None:
                part_dropout = dropout.for_images(part.numbers)
            outputs.append(part.group.recompute(part_images, part_dropout))

        order = torch.from_numpy(self._order).to(outputs[0].logits.device)
        features = [output.features for output in outputs if output.features is not None]
        latents = {}
        for name in outputs[0].latents:
            latents[name] = torch.cat([output.latents[name] for output in outputs])[order]
        return RowOutputs(
            logits=torch.cat([output.logits for output in outputs])[order],
            boxes=torch.cat([output.boxes for output in outputs])[order],
            features=torch.cat(features)[order] if features else None,
            latents=latents,
        )

    def proposals(self, selection: ProposalSelection) -> list[ImageProposals]:
        """See `ProposalSource.proposals`."""
        return self._in_order([part.group.proposals(selection) for part in self._parts])

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """See `CandidateSource.candidates`."""
        candidates_by_part = []
        for part in self._parts:
            masks = dropout.for_images(part.numbers)
            candidates_by_part.append(part.group.candidates(masks))
        return self._in_order(candidates_by_part)

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> ImageDetections:
        """See `CandidateSource.select`."""
        part = self._part_of(number)
        return part.group.select(part.numbers.index(number), probabilities, boxes)

    def placed(self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """See `CandidateSource.placed`."""
        part = self._part_of(number)
        return part.group.placed(part.numbers.index(number), boxes, rows, labels)

    def _part_of(self, number: int) -> BatchPart:
        """The part that holds an image."""
        for part in self._parts:
            if number in part.numbers:
                return part
        raise IndexError(f"the batch has no image {number}")

    def _in_order(self, values_by_part: Sequence[Sequence[T]]) -> list[T]:
        """One value per image in the order of the batch, from those of each part's images."""
        value_by_number: dict[int, T] = {}
        for part, values in zip(self._parts, values_by_part, strict=True):
            value_by_number.update(zip(part.numbers, values, strict=True))
        return [value_by_number[number] for number in range(len(value_by_number))]

    def _joined_column(self, name: str) -> np.ndarray:
        """A column of all parts, its rows in the order of the batch's images."""
        return np.concatenate([part.group.columns[name] for part in self._parts])[self._order]
