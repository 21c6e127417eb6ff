"""A batch of images whose detections are computed again: of other images, or with dropout, row by row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from farther.detectors.networks.detection import ImageDetections
from farther.detectors.networks.proposals import ImageProposals
from farther.detectors.networks.taps import find_module
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
    """Masks of one pass of dropout sampling: each value of a module's output is 0 with probability `rate`.

    The others are divided by 1 - `rate`. The masks of an image depend on the seed, its name, the
    number of the pass and the module's name: neither on the other images of the batch nor on the
    device.

    Args:
        rate: Probability, 0 to below 1.
        seed: Seed of all masks.
        number: Number of the pass.
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
                mask = lambda _module, _given, output, name=name: self._masked(output, name, counts)  # noqa: E731
                hooks.append(module.register_forward_hook(mask))
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def is_within(self, parts: Sequence[str]) -> bool:
        """True if all modules are inside of these parts of the network, given by name."""
        return all(any(f"{name}.".startswith(f"{part}.") for part in parts) for name in self.where)

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

    def masks(self, shapes: Sequence[tuple[int, ...]], place: str) -> list[Tensor]:
        """The factors, 0 or 1 / (1 - rate), for each image's values at a place."""
        found = []
        for image_id, shape in zip(self.image_ids, shapes, strict=True):
            key = "\0".join([str(self.seed), str(self.number), place, image_id])
            seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
            uniform = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
            found.append((uniform >= self.rate) / (1 - self.rate))
        return found

    def _masked(self, output: Any, name: str, counts: Sequence[int]) -> Any:
        first = output[0] if isinstance(output, tuple) else output
        images = len(self.image_ids)
        if not isinstance(first, Tensor) or len(first) not in (images, sum(counts)):
            found = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
            problem = f"the output of {name!r} for {images} images is {found}, not one item per image or region"
            raise ParameterError(f"parameter 'where': {problem}; name another module")
        rows = [1] * images if len(first) == images else counts
        masks = torch.cat(self.masks([(n, *first.shape[1:]) for n in rows], name))
        masked = first * masks.to(first.device, first.dtype)
        return (masked, *output[1:]) if isinstance(output, tuple) else masked


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
        """Input of the network for each image, shape (3, H, W), before the normalisation that is part of the network.

        Not all networks have one.
        """

    @property
    def unit(self) -> Tensor | float:
        """Change of `images` for a change of 1 in pixels from 0 to 1.

        It is 1, or of shape (3, 1, 1) where each channel was divided by its standard deviation.
        """

    def regions(self, image_ids: Sequence[str]) -> Regions:
        """The detections, as `Detector.forward` returns them."""

    def again(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """The network's output for the same rows: proposals, anchors or queries are those of the detections.

        Where an image requires gradients, those of all outputs can be computed. With neither images
        nor dropout, the answer equals the columns of `regions` bit for bit.

        Args:
            images: Other images of the same shapes as `images`; None for the same.
            dropout: Masks; layers before the first masked module do not run again.

        Raises:
            ParameterError: see `Dropout.on`.
        """


class Proposing(Protocol):
    """What also gives the proposals of the same pass."""

    def proposals(self, selection: ProposalSelection) -> list[ImageProposals]:
        """The proposals of each image; see `farther.detectors.networks.proposals`."""


class Free(Protocol):
    """What detects anew in passes with dropout; proposals stay those of the first pass."""

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """The candidates of each image with dropout, of which none has been left out yet.

        Raises:
            ParameterError: a module in `dropout.where` is before the part of the network that runs
                again.
        """

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> ImageDetections:
        """The detections of the image of this number, best first; their boxes in pixels of the image as given.

        Args:
            probabilities: Shape (A, K).
            boxes: See `Candidates`.
        """

    def placed(self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """Boxes of some candidates of an image, (N, 4), in pixels of the image as given; `rows` says which ones."""


class FreeReplay(Replay, Free, Protocol):
    """A replay whose passes with dropout can detect anew."""


class ReplayGroup(Free, Proposing, Protocol):
    """Detections of images of one shape, which go through the network together.

    Attributes:
        images: See `Replay`.
        columns: The columns of the detections, image by image.
        counts: Number of detections of each image.
    """

    images: list[Tensor]
    columns: dict[str, np.ndarray]
    counts: list[int]

    def again(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.again`."""


class GroupedReplay:
    """Detections of one batch whose images go through the network by shape, so that none is padded for another.

    Args:
        header: Header of the regions.
        images: The prepared images.
        shape: Shape of a prepared image.
        detect: Images of one shape → their detections.
    """

    unit: Tensor | float = 1.0

    def __init__(
        self,
        header: Header,
        images: Sequence[T],
        shape: Callable[[T], tuple],
        detect: Callable[[list[T]], ReplayGroup],
    ):
        self._header = header
        numbers: dict[tuple, list[int]] = {}
        for number, image in enumerate(images):
            numbers.setdefault(shape(image), []).append(number)
        self._groups = [
            (members, detect([images[n] for n in members])) for members in numbers.values()
        ]
        #: The image of each row, in the order of the groups, and the rows in the order of the
        #: images.
        self._numbers = np.concatenate(
            [np.repeat(members, group.counts) for members, group in self._groups]
        )
        self._order = self._numbers.argsort(kind="stable")

    @property
    def images(self) -> list[Tensor]:
        """See `Replay.images`."""
        inputs = {
            n: image
            for members, group in self._groups
            for n, image in zip(members, group.images, strict=True)
        }
        return [inputs[number] for number in range(len(inputs))]

    def regions(self, image_ids: Sequence[str]) -> Regions:
        """See `Replay.regions`."""
        parts = [group.columns for _, group in self._groups]
        columns = parts[0]
        if len(parts) > 1:
            columns = {
                name: np.concatenate([part[name] for part in parts])[self._order]
                for name in columns
            }
        image_id = np.array(image_ids, dtype=object)[self._numbers[self._order]]
        return Regions(
            header=self._header, image_id=image_id, region_id=np.arange(len(image_id)), **columns
        )

    def again(
        self, images: Sequence[Tensor] | None = None, dropout: Dropout | None = None
    ) -> RowOutputs:
        """See `Replay.again`."""
        answers = []
        for members, group in self._groups:
            part = None if images is None else [images[n] for n in members]
            masks = dropout and replace(dropout, image_ids=[dropout.image_ids[n] for n in members])
            answers.append(group.again(part, masks))
        order = torch.from_numpy(self._order).to(answers[0].logits.device)
        features = [one.features for one in answers if one.features is not None]
        return RowOutputs(
            torch.cat([one.logits for one in answers])[order],
            torch.cat([one.boxes for one in answers])[order],
            torch.cat(features)[order] if features else None,
            {
                name: torch.cat([one.latents[name] for one in answers])[order]
                for name in answers[0].latents
            },
        )

    def proposals(self, selection: ProposalSelection) -> list[ImageProposals]:
        """See `Proposing.proposals`."""
        found: dict[int, ImageProposals] = {}
        for members, group in self._groups:
            found.update(zip(members, group.proposals(selection), strict=True))
        return [found[number] for number in range(len(found))]

    def candidates(self, dropout: Dropout) -> list[Candidates]:
        """See `Free.candidates`."""
        found: dict[int, Candidates] = {}
        for members, group in self._groups:
            masks = replace(dropout, image_ids=[dropout.image_ids[n] for n in members])
            found.update(zip(members, group.candidates(masks), strict=True))
        return [found[number] for number in range(len(found))]

    def select(self, number: int, probabilities: Tensor, boxes: Tensor) -> ImageDetections:
        """See `Free.select`."""
        group, place = self._place(number)
        return group.select(place, probabilities, boxes)

    def placed(self, number: int, boxes: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """See `Free.placed`."""
        group, place = self._place(number)
        return group.placed(place, boxes, rows, labels)

    def _place(self, number: int) -> tuple[ReplayGroup, int]:
        """The group of an image, and its number in there."""
        return next((group, of.index(number)) for of, group in self._groups if number in of)
