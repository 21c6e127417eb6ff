"""A detector that detects in several passes with dropout, or with several networks, and merges what it finds."""

from __future__ import annotations

from dataclasses import field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.base import Count, Detector, Fraction, register, registry
from farther.errors import DataError, ParameterError
from farther.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import digest
from farther.tables.folders import listed


@register("repeated")
@dataclass(config=STRICT, kw_only=True)
class Repeated(Detector):
    """Another adapter's detector, run several times on each image; the detections of all passes are merged.

    Dropout sampling as Miller et al. 2018 (arXiv:1710.06677) have it: each pass with dropout detects, and detections
    that overlap and have the same label become one. As Dhamija et al. 2020 (the elephant in the room of open-set
    detection) have it, with `merge: candidates`: the outputs of each proposal are averaged over 30 passes at rate 0.5,
    and then detections are selected. Proposals, anchors or queries are those of a pass without dropout.

    An ensemble: `weights` is a folder of checkpoints of one kind, each of which detects once.

    Rows have the mean box, the mean probabilities p̄ as `logits` (log p̄, or for sigmoids log p̄ / (1 − p̄)), the score
    p̄ of the label, `predictive_entropy`, `mutual_information` and `box_variance` over the merged detections (see
    `farther.detectors.passes.moments.Moments`), and their number in `detections`. There are neither features nor a last
    layer.

    Args:
        of: The adapter.
        params: Its parameters besides `weights`, `device`, `precision` and `features_dtype`.
        kind: "dropout", or "ensemble".
        passes: Number of passes with dropout.
        rate: Probability that a value is dropped; see the pass `dropout`.
        seed: Seed of the masks.
        where: Names of the modules whose outputs are masked; none for the usual place, see the pass `dropout`.
        merge: "clusters" of detections, or "candidates": averages of all proposals, anchors or queries before
            detections are selected.
        iou: Any two detections of a cluster overlap by this IoU. Miller et al. 2018 found 0.95 to be best; members of
            an ensemble agree less, 0.5 is usual.
        min_detections: Clusters of fewer detections are left out.

    Raises:
        ParameterError: the adapter is unknown, its parameters do not fit, or it cannot detect with dropout.
    """

    of: str
    params: dict[str, Any] = field(default_factory=dict)
    kind: Literal["dropout", "ensemble"] = "dropout"
    passes: Count = 30
    rate: Annotated[float, Field(ge=0, lt=1)] = 0.5
    seed: int = 0
    where: tuple[str, ...] = ()
    merge: Literal["clusters", "candidates"] = "clusters"
    iou: Fraction = 0.95
    min_detections: Count = 1

    def __post_init__(self) -> None:
        kind = registry.get(self.of)
        if not issubclass(kind, Detector) or (self.kind == "dropout" and kind.replay is Detector.replay):
            raise ParameterError(f"detector 'repeated': parameter 'of': {self.of!r} cannot detect in several passes")
        if self.kind == "ensemble" and self.merge != "clusters":
            raise ParameterError("detector 'repeated': parameter 'merge': an ensemble has only clusters")

    @cached_property
    def members(self) -> list[Detector]:
        """The detectors: one, or those of an ensemble in the order of their file names.

        Raises:
            DataError: the folder has no checkpoint.
            ParameterError: see `Registry.create`.
        """
        files = self._files()
        names = [f.name for f in fields(Detector) if f.name != "weights"]
        shared = {name: getattr(self, name) for name in names}
        return [registry.create(self.of, weights=file, **shared, **self.params) for file in files]  # type: ignore[misc]

    def _files(self) -> list[Path]:
        if self.kind == "dropout":
            return [self.weights]
        files = [file for file in listed(self.weights, "*") if file.is_file()]
        if not files:
            raise DataError("an ensemble needs a folder with its members' checkpoints", file=self.weights)
        return files

    @property
    def network(self) -> Any:
        """See `Detector.network`: those of all members."""
        return [member.network for member in self.members]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """See `Detector.identity`."""
        places = ("weights", "device")
        params = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in places}
        return {"name": self.name, "weights_digest": digest(*self._files()), "params": params}

    @cached_property
    def _header(self) -> Header:
        first, *others = [member.header() for member in self.members]
        for other in others:
            if (other.classes, other.activation) != (first.classes, first.activation):
                raise DataError("members differ in their classes or in the activation of the logits", file=self.weights)
        if first.whole_images:
            raise ParameterError(f"detector 'repeated': parameter 'of': {self.of!r} classifies whole images")
        return replace(first, detector=self.identity, weight=None, bias=None)

    def header(self) -> Header:
        """See `Adapter.header`."""
        return self._header

    def prepare(self, image: np.ndarray) -> Any:
        """See `Detector.prepare`."""
        return self.members[0].prepare(image)

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Detector.forward`."""
        from farther.detectors.networks import merging
        from farther.detectors.networks.replay import Dropout

        passes = [Dropout(self.rate, self.seed, number, image_ids, self.where) for number in range(self.passes)]
        if self.kind == "ensemble":
            found = merging.of_members([member.forward(prepared, image_ids) for member in self.members], image_ids)
        else:
            replay: Any = self.members[0].replay(prepared)
            if self.merge == "candidates":
                merged = merging.merge_candidates(self._header, replay, passes)
                return merging.regions(self._header, merged, image_ids)
            found = merging.detections(self._header, replay, passes)
        merged = [merging.merge_clusters(self._header, one, self.iou, self.min_detections) for one in found]
        return merging.regions(self._header, merged, image_ids)
