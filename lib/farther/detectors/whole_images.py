"""Base of the adapters of image classifiers: the only region of an image is the whole image."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic.dataclasses import dataclass

from farther.detectors.base import LayeredDetector
from farther.errors import DataError
from farther.images.bounds import network_errors
from farther.images.device import inference_mode, ordinary_tensors
from farther.registry import STRICT
from farther.tables import Header, Regions

if TYPE_CHECKING:
    from farther.detectors.networks.classification import Classifier, ClassifierReplay
    from farther.detectors.networks.replay import Replay


@dataclass(config=STRICT, kw_only=True)
class ImageClassifier(LayeredDetector):
    """An image classifier. The region of an image is its frame, the score the largest probability, t* is 0.

    Args:
        latent: Name of the module whose activations, averaged per channel, are the column `latent`. None takes a module
            three quarters through the network where the adapter knows one; without a name there is no such column.
    """

    latent: str | None = None

    @property
    @abstractmethod
    def network(self) -> Classifier:
        """See `Detector.network`."""

    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the logits."""

    @cached_property
    def _header(self) -> Header:
        names, columns = self.class_names(), self.network.columns
        if len(names) != columns:
            problem = f"{len(names)} classes are named, but the logits have {columns} columns"
            raise DataError(problem, file=self.weights, field="classes")
        weight, bias = self.network.last_layer()
        return Header(classes=names, whole_images=True, detector=self.identity, weight=weight, bias=bias)

    def header(self) -> Header:
        """See `Adapter.header`."""
        return self._header

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Detector.forward`."""
        network = self.network  # whose weights must be ordinary tensors
        with network_errors(self.weights), inference_mode():
            return self._classified(network, prepared).regions(image_ids)

    def replay(self, prepared: list) -> Replay:
        """See `Detector.replay`."""
        with ordinary_tensors():
            return self._classified(self.network, prepared)

    def _classified(self, network: Classifier, prepared: list) -> ClassifierReplay:
        from farther.detectors.networks.classification import ClassifierReplay

        return ClassifierReplay(network, self._header, prepared, self.precision, self.features_dtype, self.computed)
