"""RT-DETR (Zhao et al. 2024), DETR (Carion et al. 2020) and their relatives in the `transformers` library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic.dataclasses import dataclass

from farther.detectors.base import Fraction, LatentDetector, register
from farther.detectors.settings import Selection
from farther.images.bounds import network_errors
from farther.images.device import inference_mode, ordinary_tensors
from farther.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import digest

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.image_processing_utils import BaseImageProcessor

    from farther.detectors.networks.detr_checkpoint import DetrCheckpoint
    from farther.detectors.networks.detr_inference import Prepared
    from farther.detectors.networks.replay import GroupedReplay


@register("detr")
@dataclass(config=STRICT, kw_only=True)
class Detr(LatentDetector):
    """A detection transformer; which one, the checkpoint's configuration says (`model_type`).

    Tried: RT-DETR and RT-DETRv2, DETR and Table Transformer, Conditional, DAB and Deformable DETR, and D-FINE; others
    are refused by name. Boxes, scores and labels are those of the checkpoint's own image processor in transformers
    (`post_process_object_detection`). With a sigmoid (all but DETR and Table Transformer) a query is a detection for
    each class that it scores high enough: such rows differ in `score` and `label` and share `box`, `logits`, `features`
    and `latent`. `per_query: one` keeps the best class only.

    Logits are the query's own, from the last decoder layer; with a softmax the last column is "no object". `features`
    is the decoder's last hidden state of that query, the input of the linear class head that is the header's last
    layer. D-FINE adds to a query's logits one number for the quality of its box: it has `features`, but no last layer.
    `latent` pools the output of the first encoder module (RT-DETR's AIFI, at stride 32) over each detection's box and
    averages it per channel (FMIYC, Appendix F.2.4).

    Args:
        weights: A folder as transformers saves it, or the file of weights in it; farther's own safetensors file; a
            PyTorch file (such as PyTorch Lightning's `.ckpt`), with `config`; or the name of a model on the hub
            (`owner/name`).
        nms_iou: Of two detections of one class that overlap more than this, the better one stays. Detection
            transformers need no suppression: the default, 1, keeps all.
        per_query: "several" or "one", see above. None takes the protocol's: as transformers does, or "one" in the
            published code.
        config: Folder of `config.json` and `preprocessor_config.json`, for a PyTorch file in another folder.
        classes: Names for the classes, in the order of the logits, instead of the checkpoint's.
        revision: Branch, tag or commit of a model on the hub.
        local_files_only: Use a model on the hub only if it was fetched before.
    """

    FROM_HUB: ClassVar[bool] = True

    nms_iou: Fraction = 1.0
    per_query: Literal["several", "one"] | None = None
    config: Path | None = None
    classes: tuple[str, ...] | None = None
    revision: str | None = None
    local_files_only: bool = False

    @cached_property
    def checkpoint(self) -> DetrCheckpoint:
        """Blueprint and files of the checkpoint; errors as in `find_checkpoint`."""
        from farther.detectors.networks.detr_checkpoint import find_checkpoint

        return find_checkpoint(
            self.weights,
            self.config,
            self.classes,
            revision=self.revision,
            local_files_only=self.local_files_only,
        )

    def files(self) -> tuple[Path, ...]:
        """See `Detector.files`."""
        from farther.detectors.networks.transformers_files import with_index

        return with_index(self.checkpoint.files)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """See `Detector.identity`; the content of the description counts, its folder does not."""
        places = ("weights", "device", "config", "revision", "local_files_only")
        params = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in places}
        return {"name": self.name, "weights_digest": digest(*self.checkpoint.files), "params": params}

    @cached_property
    def network(self) -> PreTrainedModel:
        """See `Detector.network`."""
        from farther.detectors.networks.detr import keep_exact
        from farther.detectors.networks.detr_checkpoint import load_network

        network = load_network(self.checkpoint).to(self.torch_device())
        keep_exact(network)
        return network

    @cached_property
    def processor(self) -> BaseImageProcessor:
        """The checkpoint's image processor."""
        from farther.detectors.networks.detr_inference import make_processor

        return make_processor(self.checkpoint.blueprint.processor)

    @cached_property
    def _header(self) -> Header:
        from farther.detectors.networks.detr import class_head

        blueprint = self.checkpoint.blueprint
        columns, background = blueprint.columns()
        last = class_head(self.network) if blueprint.family.last_layer == "linear" else None
        return Header(
            classes=columns,
            background_index=background,
            activation=blueprint.family.activation,
            score_threshold=self.score_threshold,
            detector=self.identity,
            weight=None if last is None else last.weight.detach().cpu().numpy(),
            bias=None if last is None else last.bias.detach().cpu().numpy(),
        )

    def header(self) -> Header:
        """See `Detector.header`."""
        return self._header

    def prepare(self, image: np.ndarray) -> Prepared:
        """The image, resized, rescaled, normalised and padded by the checkpoint's image processor."""
        from farther.detectors.networks.detr_inference import prepare

        with network_errors(self.weights):
            return prepare(self.processor, image)

    def forward(self, prepared: list, image_ids: list[str]) -> Regions:
        """See `Detector.forward`."""
        detect = self._detection(prepared)  # loads the network, whose weights must be ordinary tensors
        with network_errors(self.weights), inference_mode():
            return detect().regions(image_ids)

    def replay(self, prepared: list) -> GroupedReplay:
        """See `Detector.replay`: the rows are queries; those of RT-DETR and its like stay the same proposals."""
        from farther.detectors.networks.detr_inference import unit

        with ordinary_tensors():
            found = self._detection(prepared)()
            found.unit = unit(self.processor).to(self.torch_device())
        return found

    def _detection(self, prepared: list) -> Callable[[], GroupedReplay]:
        from farther.detectors.networks.detr_inference import replay

        settings = self.selection(), self.precision, self.stored_columns()
        return partial(replay, self.network, self._header, prepared, *settings)

    def selection(self) -> Selection:
        """Which boxes are detections."""

        usual = self.checkpoint.blueprint.family.per_query if self.protocol == "paper" else "one"
        return Selection(self.score_threshold, self.nms_iou, self.max_detections, self.per_query or usual)
