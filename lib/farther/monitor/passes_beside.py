"""Passes that a deployed method reads beside the detections, computed where they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from farther.detectors import Detector
from farther.detectors.known_classes import with_class_names
from farther.detectors.passes import Pass
from farther.detectors.passes.crops import Crops
from farther.images.device import float32_products, inference_mode
from farther.tables import Header, Regions


@dataclass(frozen=True)
class PreparedImage:
    """An image of a batch.

    Args:
        input: As the network takes it.
        pixels: ndarray of shape (H, W, 3), uint8.
    """

    input: Any
    pixels: np.ndarray


@dataclass(frozen=True)
class Batch:
    """Images that went through the network together.

    Args:
        images: The images.
        image_ids: Their names.
        operating: t*, the smallest confidence of a detection.
    """

    images: Sequence[PreparedImage]
    image_ids: list[str]
    operating: float


class PassBeside:
    """A pass whose rows are computed for some detections of a batch.

    Crops are computed for these detections alone. Other passes run the network on whole images:
    they are computed for the batch, so that they have the same detections, if it has one to ask
    about.

    Args:
        extra: The pass.
        detector: The detector.
        run: Header of the detections, with the names of the classes in the benchmark.
        classes: `classes` of the run.
    """

    def __init__(
        self, extra: Pass, detector: Detector, run: Header, classes: dict[str, str | None]
    ):
        self._pass = extra
        self._detector = detector
        if isinstance(extra, Crops):
            self.header = extra.header_of(run)
        else:
            self.header = with_class_names(extra.header(detector), classes)

    def rows(self, detections: Regions, is_asked: np.ndarray, batch: Batch) -> Regions:
        """The rows of the detections that are asked for.

        Args:
            detections: N detections of the batch, image by image.
            is_asked: Shape (N,), bool.
            batch: The images.
        """
        if isinstance(self._pass, Crops):
            return self._rows_of_crops(self._pass, detections[is_asked], batch)

        prepared = [self._pass.prepare(self._detector, image.pixels) for image in batch.images]
        with float32_products() if self._pass.needs_gradients else inference_mode():
            regions = self._pass.forward(self._detector, prepared, batch.image_ids)
        regions.header = self.header
        # Regions are numbered within a batch, detections within each image.
        rows = regions.above(batch.operating)[is_asked]
        return rows.with_columns(region_id=detections.region_id[is_asked])

    def _rows_of_crops(self, crops: Crops, asked: Regions, batch: Batch) -> Regions:
        cuts = []
        for image, image_id in zip(batch.images, batch.image_ids, strict=True):
            of_image = asked[asked.image_id == image_id]
            cuts.append(crops.cut(image.pixels, of_image.box, of_image.score))
        with inference_mode():
            return crops.regions(asked, cuts, self.header)
