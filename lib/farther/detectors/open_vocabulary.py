"""Open-vocabulary detectors of the `transformers` library: OWLv2, Grounding DINO, MM Grounding DINO, OmDet-Turbo."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from farther.detectors.base import Count, Detector, Fraction, register
from farther.detectors.prompts import Prompts, Templates, Unknown
from farther.detectors.settings import Selection
from farther.images.bounds import network_errors
from farther.images.device import inference_mode
from farther.registry import STRICT
from farther.tables import Header, Regions
from farther.tables.files import digest

if TYPE_CHECKING:
    from transformers.image_processing_utils import BaseImageProcessor

    from farther.detectors.networks.detr_inference import Prepared
    from farther.detectors.networks.open_vocabulary import OpenVocabularyNetwork
    from farther.detectors.networks.open_vocabulary_checkpoint import Folder

#: Parameters that say where the files are, and those of the prompts, whose content counts.
PLACES = ("weights", "device", "revision", "local_files_only")
WORDS = ("classes", "template", "unknown")


@register("open_vocabulary")
@dataclass(config=STRICT, kw_only=True)
class OpenVocabulary(Detector):
    """A detector whose classes are prompts; which network, the configuration says (`model_type`).

    OWLv2 (`owlv2`), Grounding DINO (`grounding-dino`), MM Grounding DINO (`mm-grounding-dino`) and OmDet-Turbo
    (`omdet-turbo`). Boxes, scores and labels are those of transformers' `post_process_grounded_object_detection`, but
    that a Grounding DINO's score is the largest over the tokens of prompts, without the separators. Code on the hub is
    never run. The prompts are embedded once per run.

    Logits are before the sigmoid, one column per prompt. In OWLv2 and OmDet-Turbo, `features` and the text embeddings,
    which are the header's last layer, give them as features @ weight.T. OWLv2's scale and shift per query are part of
    `features`. In Grounding DINO there is no last layer; `features` is the decoder's last hidden state.

    Args:
        weights: A folder as transformers saves it (`config.json`, `preprocessor_config.json` or
            `processor_config.json`, `model.safetensors` or its shards, and the tokenizer's files), or the name of a
            model on the hub (`owner/name`).
        classes: The ID classes.
        template: A sentence in which `{}` is the place of a class, or several, whose embeddings are averaged (not in
            Grounding DINO). None is "a photo of a {}" for OWLv2 and "{}" for the others.
        unknown: Negative prompts, which mean an unknown object ("object"), or a text file of them, one per line.
        score_threshold: Detections below this score are not given out. Keep it low: the operating threshold is applied
            later.
        max_detections: Largest number of detections per image; the best are kept.
        nms_iou: Of two detections of one class that overlap more than this, the better one stays. None is as in
            transformers: 0.5 in OmDet-Turbo, and 1, which keeps all, in the others.
        revision: Branch, tag or commit of a model on the hub.
        local_files_only: Use a model on the hub only if it was fetched before.
    """

    FROM_HUB: ClassVar[bool] = True

    classes: Annotated[tuple[str, ...], Field(min_length=1)]
    template: Templates | None = None
    unknown: Unknown = ()
    score_threshold: Fraction = 0.05
    max_detections: Count = 100
    nms_iou: Fraction | None = None
    revision: str | None = None
    local_files_only: bool = False

    @cached_property
    def folder(self) -> Folder:
        """The folder of the network's files; errors as in `find_folder`."""
        from farther.detectors.networks.open_vocabulary_checkpoint import find_folder

        return find_folder(self.weights, self.revision, local_files_only=self.local_files_only)

    @cached_property
    def prompts(self) -> Prompts:
        """The prompts; errors as in `Prompts.of`."""
        return Prompts.of(self.classes, self.template or self._kind.template, self.unknown)

    @cached_property
    def _kind(self) -> type[OpenVocabularyNetwork]:
        from farther.detectors.networks.open_vocabulary import NETWORKS

        return NETWORKS[self.folder.model_type]

    def files(self) -> tuple[Path, ...]:
        """See `Detector.files`."""
        from farther.detectors.networks.transformers_files import with_index

        return with_index(self.folder.files)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """See `Detector.identity`; the content of the folder and of a file of prompts counts, their places do not."""
        params = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in (*PLACES, *WORDS)}
        content = {"weights_digest": digest(*self.folder.files), "prompts": self.prompts.identity()}
        return {"name": self.name, **content, "params": params}

    @cached_property
    def network(self) -> OpenVocabularyNetwork:
        """See `Detector.network`.

        Raises:
            ParameterError: a prompt is too long for the text encoder, or the network cannot average templates.
        """
        from farther.detectors.networks.open_vocabulary_checkpoint import load_network, load_tokenizer

        prompts = self.prompts  # a wrong prompt is refused before the weights are read
        network, tokenizer = load_network(self.folder).to(self.torch_device()), load_tokenizer(self.folder)
        with network_errors(self.weights):
            return self._kind(network, tokenizer, prompts)

    @cached_property
    def processor(self) -> BaseImageProcessor:
        """The checkpoint's image processor; errors as in `load_processor`."""
        from farther.detectors.networks.open_vocabulary_checkpoint import load_processor

        return load_processor(self.folder)

    @cached_property
    def _header(self) -> Header:
        weight = None if self.network.weight is None else self.network.weight.cpu().numpy()
        return Header(
            classes=self.prompts.columns,
            unknown_columns=self.prompts.unknown_columns,
            activation="sigmoid",
            score_threshold=self.score_threshold,
            detector=self.identity,
            weight=weight,
            bias=None if weight is None else np.zeros(len(weight), np.float32),
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
        from farther.detectors.networks.open_vocabulary import detect_regions

        wanted = self.computed is None or "features" in self.computed
        settings = self.selection(), self.precision, self.features_dtype if wanted else None
        with network_errors(self.weights), inference_mode():
            return detect_regions(self.network, self._header, prepared, image_ids, *settings)

    def selection(self) -> Selection:
        """Which boxes are detections."""

        iou = self._kind.nms_iou if self.nms_iou is None else self.nms_iou
        return Selection(self.score_threshold, iou, self.max_detections, self._kind.per_query)
