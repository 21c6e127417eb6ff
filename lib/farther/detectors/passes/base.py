"""Base class of passes (extra inference), and the section `passes` of a run.

    detectors:
      voc-faster_rcnn:
        adapter: faster_rcnn
        passes:
          dropout: {passes: 10, rate: 0.5}
          perturbed: {kind: perturb, epsilon: 0.0014}

The name of an entry names its folder, and is the value of a method's `pass`. It is also the kind,
unless `kind` gives one.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from farther.detectors.base import Detector, ReplayDetector
from farther.errors import ParameterError
from farther.naming.registry import STRICT, Parameters, Registry, parameters
from farther.tables import Header, Regions

if TYPE_CHECKING:
    from torch import nn

    from farther.detectors.networks.replay import Replay

PASSES: Registry[Pass] = Registry("kind of pass", "farther.detectors.passes", "register_pass")
#: Class decorator; its name differs from that of adapters, so that the two can be distinguished
#: in source code.
register_pass = PASSES.register

#: Columns that identify a region.
KEYS = ("image_id", "region_id")
#: Columns that the rows of a pass share with the run's own regions.
SHARED = ("box", "score", "label")


@dataclass(config=STRICT, kw_only=True)
class Pass(Parameters, ABC):
    """Extra inference on the regions of a run: MC dropout, test-time augmentation, crops, ….

    It yields a regions folder aligned with the run's: rows have the run's `image_id`, `region_id`,
    `box`, `score` and `label`, in the same order; `logits` and the optional columns are those of
    the pass.

    Args:
        skip: Splits to leave out, such as the training split where all methods are fitted to the
            run's own regions (`fit_on: detections`).
    """

    #: The registered name.
    name: ClassVar[str]
    #: True if gradients are computed: the network then runs outside of PyTorch's inference mode.
    needs_gradients: ClassVar[bool] = False

    skip: tuple[str, ...] = ()

    @property
    def forward_passes(self) -> int:
        """Further forward passes of (a part of) the network per image."""
        return 1

    @property
    def backward_passes(self) -> int:
        """Backward passes per image."""
        return 0

    @property
    def shares_forward(self) -> bool:
        """Whether `after_detection` gives the rows of a batch that objects were detected in.

        Then the pass can share the forward pass that writes the run's own regions.
        """
        return False

    def after_detection(self, detector: Detector, replay: Replay, image_ids: list[str]) -> Regions:
        """The rows of `forward` for a batch that objects were detected in.

        Args:
            detector: The run's detector.
            replay: Its detections, outside of PyTorch's inference mode: `detector.replay`.
            image_ids: Names of the images.

        Raises:
            ParameterError, DataError: see `forward`.
        """
        raise NotImplementedError(f"the pass {self.name!r} detects objects itself")

    @abstractmethod
    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """Detects objects in a batch, as `detector.forward` does, and runs the extra inference.

        Args:
            detector: The run's detector.
            prepared: The output of `prepare` for each image.
            image_ids: Their names.

        Returns:
            The rows of `detector.forward` with the columns of the pass, under
            `self.header(detector)`.

        Raises:
            ParameterError: the detector's network does not support the pass.
            DataError: the network gives numbers that are not finite.
        """

    def prepare(self, detector: Detector, image: np.ndarray) -> Any:
        """Input of `forward` for one image, shape (H, W, 3), uint8; the detector's by default."""
        return detector.prepare(image)

    def check(self, detector: Detector) -> None:
        """Refuses a detector that does not support the pass, before any image is read.

        Raises:
            ParameterError: it does not; says why.
        """

    def learn(self, regions: Path) -> None:
        """Fits the pass to the run's own regions, before any image is read.

        The fitted values must be picklable, and `identity` must depend on them.

        Args:
            regions: Folder with one regions folder per split.

        Raises:
            DataError: a split that it needs is absent or damaged.
        """

    def identity(self) -> dict[str, Any]:
        """Everything that the rows depend on besides detector and images, as JSON."""
        params = dataclasses.asdict(self)
        del params["skip"]
        return {"kind": self.name, **params}

    def header(self, detector: Detector) -> Header:
        """Header of the rows: the detector's, with the pass beside its name."""
        header = detector.header()
        return dataclasses.replace(header, detector={**header.detector, "pass": self.identity()})


def check_replay(extra_pass: Pass, detector: Detector) -> None:
    """Refuses a detector whose rows cannot be recomputed (`ReplayDetector.replay`).

    Raises:
        ParameterError: they cannot.
    """
    if not isinstance(detector, ReplayDetector):
        problem = "its rows cannot be recomputed with other weights or of another image"
        raise ParameterError(
            f"pass {extra_pass.name!r} does not work with detector {detector.name!r}: {problem}"
        )


def network_of(detector: Detector) -> nn.Module:
    """The PyTorch module of a detector; that of a classifier is wrapped."""
    return getattr(detector.network, "network", detector.network)


def read_passes(
    run: str, entries: Mapping[str, Any] | None, encoder: Mapping[str, Any] | None = None
) -> dict[str, Pass]:
    """The passes of a run, by name.

    Args:
        run: Its name, for messages.
        entries: `passes` of its entry in the section `detectors`; None for none.
        encoder: `embed.encoder` of params.yaml, for kinds with a parameter `encoder` that an entry
            leaves out.

    Raises:
        ParameterError: a kind or a parameter is unknown, or a value does not fit.
    """
    passes = {}
    for name, values in (entries or {}).items():
        params = dict(values or {})
        kind = str(params.pop("kind", name))
        try:
            if encoder and "encoder" in parameters(PASSES.get(kind)):
                params.setdefault("encoder", dict(encoder))
            passes[name] = PASSES.create(kind, **params)
        except ParameterError as error:
            raise ParameterError(f"detectors.{run}.passes.{name}: {error}") from None
    return passes
