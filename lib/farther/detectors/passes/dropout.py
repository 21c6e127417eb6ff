"""MC dropout: several passes, each with other units of the network left out."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.base import Detector, recomputable
from farther.detectors.networks.replay import Dropout, Replay
from farther.detectors.networks.taps import find_module
from farther.detectors.passes.base import Pass, check_replay, network_of, register_pass
from farther.detectors.passes.moments import Moments
from farther.detectors.settings import to_numpy
from farther.naming.registry import STRICT
from farther.tables import Regions


@register_pass("dropout")
@dataclass(config=STRICT, kw_only=True)
class DropoutPass(Pass):
    """Moments of several passes with dropout over the run's own detections (MC dropout).

    The rows of each pass are the proposals, anchors or queries of these detections. Each pass
    multiplies the outputs of some modules by masks: a value is 0 with probability `rate`, else
    divided by 1 − `rate` (Gal and Ghahramani 2016, arXiv:1506.02142; put into a network that
    was trained without dropout: Ledda et al. 2023, arXiv:2302.02924). Layers before the first of
    these modules run once. The masks of an image depend on seed, image_id, number of the pass and
    module only. Columns: see `farther.detectors.passes.moments.Moments`.

    Args:
        passes: Number of passes.
        rate: Probability that a value is dropped. Networks differ in what they tolerate: 0.5 is
            usual behind the linear layers of Faster R-CNN, 0.1 in the decoder of a detection
            transformer.
        seed: Seed of the masks.
        where: Names of the modules whose outputs are masked, as PyTorch's `named_modules` gives
            them. None: behind each ReLU of Faster R-CNN's box head; where the decoder of a
            detection transformer has its dropout layers; before the last convolution of YOLO's
            class branch, where boxes do not vary.
    """

    passes: Annotated[int, Field(ge=1)] = 10
    rate: Annotated[float, Field(ge=0, lt=1)] = 0.5
    seed: int = 0
    where: tuple[str, ...] = ()

    @property
    def forward_passes(self) -> int:
        """See `Pass.forward_passes`."""
        return self.passes

    def check(self, detector: Detector) -> None:
        """See `Pass.check`."""
        check_replay(self, detector)
        for name in self.where:
            find_module(network_of(detector), name, "where")

    @property
    def shares_forward(self) -> bool:
        """See `Pass.shares_forward`."""
        return True

    def forward(self, detector: Detector, prepared: list, image_ids: list[str]) -> Regions:
        """See `Pass.forward`."""
        return self.after_detection(detector, recomputable(detector).replay(prepared), image_ids)

    def after_detection(self, detector: Detector, replay: Replay, image_ids: list[str]) -> Regions:
        """See `Pass.after_detection`."""
        regions = replay.regions(image_ids)
        moments = Moments(self.header(detector))
        for number in range(self.passes):
            dropout = Dropout(self.rate, self.seed, number, image_ids, self.where)
            outputs = replay.recompute(dropout=dropout)
            moments.add(to_numpy(outputs.logits), to_numpy(outputs.boxes))
        return moments.regions(regions)
