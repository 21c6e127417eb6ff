"""Open-vocabulary detectors of the `transformers` library with the embeddings of their prompts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.ops import batched_nms, clip_boxes_to_image
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.grounding_dino import modeling_grounding_dino

from farther.detectors.hub import Prepared, masks
from farther.detectors.networks.detection import autocast
from farther.detectors.networks.detr import compute_exactly
from farther.detectors.networks.detr_inference import QueryPairs, candidates, corners
from farther.detectors.networks.replay import GroupedReplay
from farther.detectors.networks.taps import answering, kept_calls
from farther.detectors.prompts import Prompts
from farther.detectors.settings import BoxSelection, PerQuery, to_numpy
from farther.errors import DataError, ParameterError, shorten
from farther.images.device import inference_mode
from farther.tables import Header, Regions

#: Sentences that the text encoder reads at once.
SENTENCES = 256


@dataclass(frozen=True)
class PromptedOutput:
    """Output of a network for B images, with Q queries each.

    Args:
        logits: Shape (B, Q, K).
        boxes: Shape (B, Q, 4): centre and size, as fractions of the image, or of the square that
            OWLv2 pads it to.
        features: Shape (B, Q, D).
    """

    logits: Tensor
    boxes: Tensor
    features: Tensor


class OpenVocabularyNetwork(ABC):
    """A network, and what is computed once per run: the embeddings of its prompts.

    Args:
        network: In evaluation mode, on its device.
        tokenizer: Of the text encoder.
        prompts: The prompts.

    Attributes:
        weight: Rows of the last layer, shape (K, D), so that logits = features @ weight.T; None
            where there is none.

    Raises:
        ParameterError: a prompt is too long, or several templates are given to a network that
            cannot average them.
    """

    #: The template that the network's authors use.
    template: ClassVar[str] = "{}"
    #: As in `BoxSelection`; overlap of boxes of one class above which the better one stays, in
    #: transformers.
    per_query: ClassVar[PerQuery] = "one"
    nms_iou: ClassVar[float] = 1.0
    #: Modules that compute in float32 whatever the precision.
    exact: ClassVar[tuple[str, ...]] = ()

    weight: Tensor | None = None

    def __init__(
        self, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Prompts
    ):
        self.network, self.tokenizer, self.prompts = network, tokenizer, prompts
        self.device = next(network.parameters()).device
        compute_exactly((network.get_submodule(name) for name in self.exact), self.device.type)
        with inference_mode():
            self.read_prompts()

    @abstractmethod
    def read_prompts(self) -> None:
        """Computes what depends on the prompts only."""

    @abstractmethod
    def run(self, pixels: Tensor, mask: Tensor) -> PromptedOutput:
        """One pass over pixels (B, 3, H, W) under a mask (B, H, W)."""

    def placed(self, boxes: Tensor, size: tuple[int, int]) -> Tensor:
        """Corners, as fractions, in pixels of an image of this height and width."""
        height, width = size
        return boxes * boxes.new_tensor([width, height, width, height])

    def suppressed(
        self, found: QueryPairs, boxes: Tensor, size: tuple[int, int], iou: float
    ) -> tuple[QueryPairs, Tensor]:
        """The pairs that remain, best first, and their boxes; `boxes` are those of all queries, in the image."""
        kept = boxes[found.queries]
        if iou < 1:
            order = batched_nms(kept, found.scores, found.labels, iou)
        else:
            order = found.scores.argsort(descending=True, stable=True)
        return found.at(order), kept[order]

    def tokens(self, sentences: Sequence[str], most: int) -> dict[str, Tensor]:
        """Tokens of sentences, padded to the longest text that the encoder reads.

        Raises:
            ParameterError: a sentence has more than `most` tokens.
        """
        for sentence, tokens in zip(
            sentences, self.tokenizer(list(sentences))["input_ids"], strict=True
        ):
            if len(tokens) > most:
                problem = f"has {len(tokens)} tokens; the text encoder reads at most {most}"
                raise ParameterError(f"the prompt {shorten(sentence)} {problem}")
        found = self.tokenizer(
            list(sentences), padding="max_length", max_length=most, return_tensors="pt"
        )
        return {name: found[name].to(self.device) for name in ("input_ids", "attention_mask")}

    def embedded(self, most: int, encode: Any) -> Tensor:
        """Embedding of each column, (K, E): the mean over the templates of what `encode` makes of the tokens."""
        means = []
        for sentences in self.prompts.sentences():
            parts = [
                sentences[start : start + SENTENCES]
                for start in range(0, len(sentences), SENTENCES)
            ]
            means.append(torch.cat([encode(**self.tokens(part, most)) for part in parts]))
        return torch.stack(means).mean(0)


class Owlv2(OpenVocabularyNetwork):
    """OWLv2 (Minderer et al. 2023, arXiv:2306.09683): queries are the image's patches.

    z_k = s · (cos(e, t_k) + b), with a scale s and a shift b of each query: h = (s · e / ‖e‖, s ·
    b), w_k = (t_k, 1).
    """

    template = "a photo of a {}"
    exact = ("layer_norm", "class_head", "box_head")

    def read_prompts(self) -> None:
        """See `OpenVocabularyNetwork.read_prompts`."""

        def encode(**tokens: Tensor) -> Tensor:
            return nn.functional.normalize(
                self.network.owlv2.get_text_features(**tokens).pooler_output, dim=-1
            )

        self._text = self.embedded(self.network.config.text_config.max_position_embeddings, encode)
        rows = self._text / (self._text.norm(dim=-1, keepdim=True) + 1e-6)
        self.weight = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)

    def run(self, pixels: Tensor, mask: Tensor) -> PromptedOutput:
        """See `OpenVocabularyNetwork.run`."""
        head = self.network.class_head
        maps, _ = self.network.image_embedder(pixels)
        patches = maps.flatten(1, 2)
        with kept_calls([head.dense0, head.logit_shift, head.logit_scale]) as kept:
            logits, _ = self.network.class_predictor(
                patches, self._text.expand(len(pixels), -1, -1)
            )
        embeddings, shift, scale = (
            kept[module][1] for module in (head.dense0, head.logit_shift, head.logit_scale)
        )
        scale = head.elu(scale) + 1
        unit = embeddings / (embeddings.norm(dim=-1, keepdim=True) + 1e-6)
        boxes = self.network.box_predictor(patches, maps)
        return PromptedOutput(logits, boxes, torch.cat([unit * scale, shift * scale], dim=-1))

    def placed(self, boxes: Tensor, size: tuple[int, int]) -> Tensor:
        """See `OpenVocabularyNetwork.placed`: fractions of the padded square."""
        return boxes * max(size)


class GroundingDino(OpenVocabularyNetwork):
    """Grounding DINO (Liu et al. 2023, arXiv:2303.05499) and MM Grounding DINO (Zhao et al. 2024, arXiv:2401.02361).

    All prompts are one text, separated by dots. A query's logit of a class is its largest over the
    tokens of the class's prompt, hence there is no last layer; h is the decoder's last hidden
    state.
    """

    exact = ("model.decoder", "class_embed", "bbox_embed")

    def read_prompts(self) -> None:
        """See `OpenVocabularyNetwork.read_prompts`."""
        if len(self.prompts.templates) > 1:
            problem = "several templates cannot be averaged, as all prompts are one text: give one"
            raise ParameterError(f"parameter 'template': {problem}")
        (sentences,) = self.prompts.sentences()
        for sentence in sentences:
            if "." in sentence or "?" in sentence:
                problem = "has a dot or a question mark, which separate prompts: leave it out"
                raise ParameterError(f"the prompt {shorten(sentence)} {problem}")
        most = min(
            self.network.config.max_text_len,
            self.network.config.text_config.max_position_embeddings,
        )
        found = self.tokenizer(
            ". ".join(one.strip().lower() for one in sentences) + ".", return_tensors="pt"
        )
        ids = found["input_ids"].to(self.device)
        if ids.shape[1] > most:
            problem = f"{len(sentences)} prompts are a text of {ids.shape[1]} tokens; the text encoder reads at most"
            raise ParameterError(f"{problem} {most}: use fewer or shorter ones")
        library = modeling_grounding_dino
        (maps,) = library.build_label_maps(torch.zeros(1, 1, ids.shape[1], device=self.device), ids)
        if len(maps) != len(sentences):
            problem = f"its tokenizer separates {len(sentences)} prompts into {len(maps)}"
            raise DataError(
                f"{problem}: not the vocabulary of this network, or a prompt of special tokens"
            )
        self._tokens = [one.nonzero()[:, 0] for one in maps]
        self._ids, types = ids, torch.zeros_like(ids)
        masks, places = library.generate_masks_with_special_tokens_and_transfer_map(
            ids, special_tokens=self.network.model.special_tokens
        )
        self._text = self.network.model.text_backbone(
            ids, masks[:, None], types, places
        ).last_hidden_state

    def run(self, pixels: Tensor, mask: Tensor) -> PromptedOutput:
        """See `OpenVocabularyNetwork.run`."""
        count, head = len(pixels), self.network.class_embed[-1]
        ids, text = (
            self._ids.expand(count, -1),
            BaseModelOutput(last_hidden_state=self._text.expand(count, -1, -1)),
        )
        with answering({self.network.model.text_backbone: text}), kept_calls([head]) as kept:
            output = self.network(pixel_values=pixels, input_ids=ids, pixel_mask=mask)
        logits = torch.stack(
            [output.logits[..., tokens].amax(-1) for tokens in self._tokens], dim=-1
        )
        return PromptedOutput(logits, output.pred_boxes, kept[head][0])


class OmDetTurbo(OpenVocabularyNetwork):
    """OmDet-Turbo (Zhao et al. 2024, arXiv:2403.06892).

    z_k = cos(h, W t_k) / 0.07, or their product where the configuration says "dot". The task's
    text, which the decoder also reads, is "Detect a, b." of all names, cut to the length that the
    text encoder reads, as in transformers.
    """

    per_query = "several"
    nms_iou = 0.5
    exact = ("decoder",)

    def read_prompts(self) -> None:
        """See `OpenVocabularyNetwork.read_prompts`."""
        network = self.network
        most = min(77, network.config.text_config.max_position_embeddings)
        backbone = network.language_backbone
        self._classes = self.embedded(
            most, lambda input_ids, **_: backbone(input_ids, encode_type="class")
        )
        rows = network.decoder.decoder_class_head[-1](self._classes)
        self._is_cosine = network.config.class_distance_type == "cosine"
        self.weight = nn.functional.normalize(rows, dim=-1) if self._is_cosine else rows
        task = f"Detect {', '.join(self.prompts.columns)}."
        cut = {
            "padding": "max_length",
            "truncation": True,
            "max_length": most,
            "return_tensors": "pt",
        }
        found = self.tokenizer([task], **cut).to(self.device)
        self._task = backbone(found["input_ids"], mask=found["attention_mask"], encode_type="task")

    def run(self, pixels: Tensor, mask: Tensor) -> PromptedOutput:
        """See `OpenVocabularyNetwork.run`."""
        network, count = self.network, len(pixels)
        maps = network.encoder(network.vision_backbone(pixels)).extracted_states
        text, padding = self._task
        classes = self._classes[:, None].expand(-1, count, -1)
        output = network.decoder(
            maps, classes, text.expand(-1, count, -1), padding.expand(count, -1)
        )
        features = output.last_hidden_state
        if self._is_cosine:
            features = nn.functional.normalize(features, dim=-1) / 0.07
        return PromptedOutput(output.decoder_classes[-1], output.decoder_coords[-1], features)

    def suppressed(
        self, found: QueryPairs, boxes: Tensor, size: tuple[int, int], iou: float
    ) -> tuple[QueryPairs, Tensor]:
        """See `OpenVocabularyNetwork.suppressed`; of the pairs, the best take part, as many as there are queries."""
        if len(found.scores) > len(boxes):
            found = found.at(found.scores.topk(len(boxes)).indices)
        pairs, kept = super().suppressed(found, boxes, size, iou)
        return pairs, clip_boxes_to_image(kept, size)


NETWORKS: dict[str, type[OpenVocabularyNetwork]] = {
    "owlv2": Owlv2,
    "grounding-dino": GroundingDino,
    "mm-grounding-dino": GroundingDino,
    "omdet-turbo": OmDetTurbo,
}


def detect_regions(
    network: OpenVocabularyNetwork,
    header: Header,
    images: Sequence[Prepared],
    image_ids: Sequence[str],
    selection: BoxSelection,
    precision: str = "float32",
    features_dtype: str | None = "float32",
) -> Regions:
    """Detections of one batch; images of one shape go through the network together.

    Args:
        features_dtype: Type of the column `features`; None leaves it out.

    Returns:
        The rows image by image, best score first; `region_id` counts from 0. Boxes in pixels of the
        images as given.

    Raises:
        DataError: the network gives numbers that are not finite.
    """

    def detect(alike: list[Prepared]) -> Any:
        pixels = torch.stack([image.pixels for image in alike]).to(network.device)
        with autocast(network.device, precision):
            output = network.run(pixels, masks(alike, network.device))
        seen = [values.float() for values in (output.logits, output.boxes, output.features)]
        if not all(torch.isfinite(values).all() for values in seen):
            raise DataError(
                "the network gives numbers that are not finite: the checkpoint's weights are damaged"
            )
        per_image = zip(alike, *seen, strict=True)
        settings = selection, features_dtype
        found = [
            _rows(network, PromptedOutput(*of), image.original, *settings)
            for image, *of in per_image
        ]
        columns = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
        return SimpleNamespace(columns=columns, counts=[len(one["score"]) for one in found])

    return GroupedReplay(header, images, lambda image: tuple(image.pixels.shape), detect).regions(
        image_ids
    )


def _rows(
    network: OpenVocabularyNetwork,
    output: PromptedOutput,
    size: tuple[int, int],
    selection: BoxSelection,
    features_dtype: str | None,
) -> dict[str, np.ndarray]:
    """The columns of the detections of one image, best first."""
    boxes = network.placed(corners(output.boxes), size)
    found = candidates(output.logits.sigmoid(), selection)
    found, kept = network.suppressed(found, boxes, size, selection.iou)
    rows = slice(selection.max_detections)
    columns = {
        "box": to_numpy(kept[rows]),
        "score": to_numpy(found.scores[rows]),
        "label": found.labels[rows].cpu().numpy().astype(np.int16),
        "logits": to_numpy(output.logits[found.queries[rows]]),
    }
    if features_dtype is not None:
        columns["features"] = to_numpy(output.features[found.queries[rows]], features_dtype)
    return columns
