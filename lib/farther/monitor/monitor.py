"""The monitor: a deployed detector whose detections have an OOD score, and are known or unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from farther.detectors.base import ImageInput
from farther.detectors.known_classes import with_class_names
from farther.detectors.passes.crops import Crops
from farther.errors import DataError, ParameterError
from farther.images.device import float32_products, inference_mode
from farther.images.inputs import as_pixels, images_of, is_one, name_of
from farther.images.read import load
from farther.methods.cascade import Cascade
from farther.metrics.self_awareness import calibration
from farther.monitor.bundle import Bundle, header_digest
from farther.monitor.monitored import Monitored
from farther.monitor.passes_beside import Batch, PassBeside, PreparedImage
from farther.tables import Header, Regions
from farther.tables.arguments import instance, texts, whole_number

if TYPE_CHECKING:
    import torch

    from farther.methods.base import Method
    from farther.methods.torch_form import ScoreModule


class Monitor:
    """Runs the detector and the method of a bundle, with the code that the pipeline runs.

    On one machine, with the pipeline's batches and on the CPU one thread of PyTorch, the network's
    values are the pipeline's, and scores are within 10⁻⁶ of their spread; in other batches the
    network rounds differently. On a GPU, scores are computed there, in float64, but for methods
    of crops and those that read passes beside the detections (`cascade`, `fused`). A cascade has
    its second method's pass for the detections in its band alone, or for batches with one where the
    pass runs the network on whole images.

    Args:
        bundle: What to run.
        device: Where the network runs; "auto" is the first GPU, or else the CPU.
        max_pixels: Image files with more pixels are refused; by default those that the run refused.

    Raises:
        DataError, ParameterError: see `Bundle.detector`; or the checkpoint is not that of the
            header.

    Example:
        monitor = farther.Monitor.load("deployed")
        found = monitor("street.jpg")
        print(found.box[found.unknown])
    """

    def __init__(self, bundle: Bundle, device: str = "auto", max_pixels: int | None = None):
        self.bundle = instance(bundle, Bundle, "bundle")
        self._max_pixels = bundle.info.reading.max_pixels
        if max_pixels is not None:
            self._max_pixels = whole_number(max_pixels, "max_pixels", at_least=1)
        self._detector = bundle.detector(device)
        passes = bundle.passes()
        # Crops are cut from the detections; the rows of other passes take their place.
        crops = passes.scored if isinstance(passes.scored, Crops) else None
        self._pass = None if crops is not None else passes.scored
        self._selection = bundle.selection()
        # Loaded outside of inference mode: a pass may compute gradients.
        self._detector.load_network()
        header = self._detector.header()
        classes = bundle.info.detector.classes
        named_header = with_class_names(header, classes)
        if header_digest(named_header) != bundle.info.digests.header:
            problem = (
                "the checkpoint's classes or last layer are not those that the method was fitted on"
            )
            raise DataError(problem, file=self._detector.weights)
        if self._pass is not None:
            header = self._pass.header(self._detector)
        self._header: Header | None = with_class_names(header, classes) if classes else None
        self._crops = None
        if crops is not None:
            self._crops = PassBeside(crops, self._detector, named_header, classes)
        self._beside = {}
        for name, extra in passes.beside.items():
            self._beside[name] = PassBeside(extra, self._detector, named_header, classes)
        self._score_module = None
        if self._crops is None and not self._beside:
            self._score_module = score_module(
                bundle.method, self._header or header, self._detector.torch_device()
            )

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto", max_pixels: int | None = None) -> Self:
        """The monitor of a bundle's folder; see the class, and `Bundle.load` for errors."""
        return cls(Bundle.load(folder), device, max_pixels)

    def __call__(
        self,
        images: ImageInput | Iterable[ImageInput],
        image_ids: Iterable[str] | None = None,
        batch_size: int = 8,
    ) -> Monitored | list[Monitored]:
        """Detects and scores objects in images.

        Args:
            images: One image, or several: arrays of shape (H, W, 3), uint8, red green blue, or
                grey of shape (H, W); image files; PIL images; or an array of shape (B, H, W, 3).
            image_ids: Their names; left out, a file is called by its path and any other image by
                its number.
            batch_size: Images that go through the network together.

        Returns:
            One `Monitored` for one image, a list for several.

        Raises:
            DataError: an image cannot be read or has another shape or type, or see
                `Detector.forward`.
            ParameterError: there are not as many names as images, or `batch_size` is not a whole
                number from 1 on.
        """
        batch_size = whole_number(batch_size, "batch_size", at_least=1)
        if is_one(images):
            names = [image_ids] if isinstance(image_ids, str) else image_ids
            return next(self.stream(_paired(images_of(images), names)))
        return list(self.stream(_paired(images_of(images), image_ids), batch_size))

    def stream(
        self,
        images: Iterable[ImageInput | tuple[str, ImageInput]],
        batch_size: int = 8,
        failed: Callable[[str, DataError], None] | None = None,
    ) -> Iterator[Monitored]:
        """Detects and scores objects in images, as they are taken from the result.

        Nothing is kept of the images before.

        Args:
            images: See `__call__`; or pairs of a name and an image. They are read `batch_size`
                ahead, and need not end.
            batch_size: See `__call__`.
            failed: Called with the name of an image that cannot be used, and why; the image is then
                left out. None raises the error.

        Yields:
            One `Monitored` for each image, in order.

        Raises:
            DataError, ParameterError: see `__call__`.
        """
        return self._stream(images, whole_number(batch_size, "batch_size", at_least=1), failed)

    def _stream(
        self,
        images: Iterable[ImageInput | tuple[str, ImageInput]],
        batch_size: int,
        failed: Callable[[str, DataError], None] | None,
    ) -> Iterator[Monitored]:
        """See `stream`, which checks the arguments when it is called."""
        named = _named(images)
        while batch := list(islice(named, batch_size)):
            ids: list[str] = []
            prepared = []
            for name, image in batch:
                if name in ids:
                    raise ParameterError(
                        f"two images of a batch are called {name!r}: give other image_ids"
                    )
                try:
                    prepared.append(self._prepare(image, name))
                    ids.append(name)
                except DataError as error:
                    if failed is None:
                        raise
                    failed(name, error)
            yield from self._detect(prepared, ids, failed)

    def _prepare(self, image: ImageInput, name: str) -> PreparedImage:
        """The image as the network takes it."""
        pixels = self._pixels(image, name)
        if self._pass is None:
            return PreparedImage(self._detector.prepare(pixels), pixels)
        return PreparedImage(self._pass.prepare(self._detector, pixels), pixels)

    def _pixels(self, image: ImageInput, name: str) -> np.ndarray:
        """The image as an array of shape (H, W, 3), uint8."""
        if isinstance(image, (str, Path)):
            return load(image, self._max_pixels, "raise max_pixels of the Monitor")
        return as_pixels(image, name)

    def _detect(
        self,
        prepared: list[PreparedImage],
        ids: list[str],
        failed: Callable[[str, DataError], None] | None,
    ) -> Iterator[Monitored]:
        """The result for each image of a batch.

        If the network's output cannot be used, images are tried one by one.
        """
        if not ids:
            return
        try:
            results = self._monitored(prepared, ids)
        except DataError as error:
            if failed is None:
                raise
            if len(ids) == 1:
                failed(ids[0], error)
                return
            for image, name in zip(prepared, ids, strict=True):
                yield from self._detect([image], [name], failed)
            return
        yield from results

    def _monitored(self, prepared: list[PreparedImage], ids: list[str]) -> list[Monitored]:
        """The result for each image of a batch."""
        info, self_aware = self.bundle.info, self.bundle.self_aware
        regions, proposals = self._regions([image.input for image in prepared], ids)
        detections = regions.above(info.operating)
        score = self._scores(detections, Batch(prepared, ids, info.operating))
        unknown = score < info.tau

        confidence = detections.score
        uncertainties = None
        if self_aware is not None:
            confidence = calibration.confidences(self_aware.calibrators, detections)
            uncertainties = self_aware.uncertainty(regions, ids).tolist()
        unknown_proposals = None
        if proposals is not None:
            unknown_proposals = self._unknown_proposals(proposals, detections, ids)

        starts = _starts(detections, ids)
        results = []
        for number, name in enumerate(ids):
            rows = slice(starts[number], starts[number + 1])
            uncertainty, accepted = None, True
            if self_aware is not None and uncertainties is not None:
                uncertainty = uncertainties[number]
                accepted = uncertainty <= self_aware.image_threshold
            proposals_of_image = None
            if unknown_proposals is not None:
                proposals_of_image = unknown_proposals[number]
            monitored = Monitored(
                image_id=name,
                regions=detections[rows],
                score=score[rows],
                unknown=unknown[rows],
                confidence=confidence[rows],
                uncertainty=uncertainty,
                accepted=accepted,
                proposals=proposals_of_image,
            )
            results.append(monitored)
        return results

    def _scores(self, detections: Regions, batch: Batch) -> np.ndarray:
        """The method's scores, shape (N,): on the network's device where that is possible.

        Not where it reads passes beside the detections: those of a cascade are computed for the
        detections about which its first method is undecided.
        """
        method = self.bundle.method
        if self._crops is not None:
            is_asked = np.ones(len(detections), dtype=bool)
            return method.score(self._crops.rows(detections, is_asked, batch))
        if not self._beside:
            if self._score_module is None:
                return method.score(detections)
            return self._score_module.score_regions(detections)

        if isinstance(method, Cascade):
            score, is_asked = method.first_opinion(detections)
        else:
            score = np.zeros(len(detections))
            is_asked = np.ones(len(detections), dtype=bool)
        if is_asked.any():
            rows_by_pass = {}
            for name, beside in self._beside.items():
                rows_by_pass[name] = beside.rows(detections, is_asked, batch)
            score[is_asked] = method.score(detections[is_asked].beside(rows_by_pass))
        return score

    def _unknown_proposals(
        self, proposals: Regions, detections: Regions, ids: list[str]
    ) -> list[Regions]:
        """The proposals of each image that are called unknown, the highest objectness first."""
        bundled = self.bundle.info.proposals
        assert bundled is not None
        unknown = bundled.called(proposals, detections)
        unknown_by_image = []
        for first, end in pairwise(_starts(unknown, ids)):
            of_image = unknown[first:end]
            order = np.argsort(-of_image.score, kind="stable")
            unknown_by_image.append(of_image[order])
        return unknown_by_image

    def _regions(self, prepared: list, ids: list[str]) -> tuple[Regions, Regions | None]:
        """All regions of the detector, or of the pass, and the network's proposals.

        Regions are numbered within each image.
        """
        proposals: Regions | None = None
        if self._pass is None:
            with inference_mode():
                if self._selection is None:
                    regions = self._detector.forward(prepared, ids)
                else:
                    regions, proposals = self._detector.forward_proposals(
                        prepared, ids, {"": self._selection}
                    )
                    proposals.header = with_class_names(
                        proposals.header, self.bundle.info.detector.classes
                    )
        else:
            with float32_products() if self._pass.needs_gradients else inference_mode():
                regions = self._pass.forward(self._detector, prepared, ids)
        numbered = regions[:]
        if len(ids) > 1:
            starts = _starts(regions, ids)
            rank = np.arange(len(regions)) - np.repeat(starts[:-1], np.diff(starts))
            numbered = regions.with_columns(region_id=rank)
        numbered.header = self._header or regions.header
        return numbered, proposals


def score_module(method: Method, header: Header, device: torch.device) -> ScoreModule | None:
    """The form in PyTorch of a method on the network's device.

    None, for NumPy's scores, where that is the CPU, where the method has no such form, and where
    the device has no float64: in float32, scores near the threshold τ could change sides.
    """
    if not has_float64(device) or method.no_torch_form():
        return None
    return method.to_torch(device, header=header)


def has_float64(device: torch.device) -> bool:
    """Whether a device is a GPU that computes in float64."""
    return device.type == "cuda"


def _paired(
    images: Iterable[ImageInput], image_ids: Iterable[str] | None
) -> Iterable[ImageInput] | Iterator[tuple[str, ImageInput]]:
    """Images with the names that are given."""
    if image_ids is None:
        return images
    pictures = list(images)
    names = texts(image_ids, "image_ids").tolist()
    if len(pictures) != len(names):
        raise ParameterError(f"{len(pictures)} images, but {len(names)} image_ids")
    return zip(names, pictures, strict=True)


def _named(
    images: Iterable[ImageInput | tuple[str, ImageInput]],
) -> Iterator[tuple[str, ImageInput]]:
    """Each image with its name: the one that it is given with, its path, or its number."""
    for number, image in enumerate(images_of(images)):
        if isinstance(image, tuple) and len(image) == 2 and isinstance(image[0], str):
            yield image
        else:
            yield name_of(image, number), image


def _starts(regions: Regions, ids: Sequence[str]) -> np.ndarray:
    """First row of each image, and the number of rows.

    The rows of an image follow each other, in the order of `ids`.
    """
    counts = Counter(regions.image_id.tolist())
    return np.cumsum([0, *(counts[name] for name in ids)])
