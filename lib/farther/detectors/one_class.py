"""A detector without a network: each image is one region, for image scores of other programs."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from pydantic.dataclasses import dataclass

from farther.detectors.base import Detector, register
from farther.naming.registry import STRICT
from farther.tables import Header, Regions


@register("one_class")
@dataclass(config=STRICT, kw_only=True)
class OneClass(Detector):
    """Each image is one region of the image's size, of the only class, with score 1.

    No network runs. For benchmarks whose images have no classes, such as those of anomaly detection
    (`farther.datasets.mvtec`): methods of another program yield one score per image, which the
    method `imported` reads. The only logit is 0; there are no features.

    Args:
        weights: A file that stage `infer` depends on, such as that of the scores; it is not read.
        class_name: The class.
    """

    class_name: str = "good"

    @property
    def network(self) -> None:
        """See `Detector.network`: there is none."""
        return

    @cached_property
    def _header(self) -> Header:
        return Header(classes=(self.class_name,), whole_images=True, detector=self.identity)

    def header(self) -> Header:
        """See `Adapter.header`."""
        return self._header

    def prepare(self, image: np.ndarray) -> tuple[int, int]:
        """Width and height of an image (H, W, 3)."""
        return image.shape[1], image.shape[0]

    def forward(self, prepared: list[Any], image_ids: list[str]) -> Regions:
        """One row per image."""
        count = len(image_ids)
        sizes = np.array(prepared, np.float32).reshape(count, 2)
        box = np.hstack([np.zeros((count, 2), np.float32), sizes])
        return Regions(
            header=self._header,
            image_id=list(image_ids),
            region_id=np.arange(count),
            box=box,
            score=np.ones(count, np.float32),
            label=np.zeros(count, np.int16),
            logits=np.zeros((count, 1), np.float32),
        )
