"""Open-vocabulary detectors of the `transformers` library, with the embeddings of their prompts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from farther.detectors.networks.taps import recorded_calls, replaced_outputs
from farther.detectors.prompts import Prompts
from farther.detectors.settings import BoxSelection, PerQuery, to_numpy
from farther.errors import DataError, ParameterError, shorten
from farther.images.device import inference_mode
from farther.tables import Header, Regions

#: Number of sentences that the text encoder reads at once.
BATCH_SIZE = 256

#: Temperature of OmDet-Turbo's cosines.
OMDET_TEMPERATURE = 0.07

#: Longest text of OmDet-Turbo in tokens, as in transformers.
OMDET_TOKENS = 77

#: Added to lengths that OWLv2 divides by, as in transformers.
SMALLEST_LENGTH = 1e-6


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
    """A network with the embeddings of its prompts, which are computed once per run.

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

    #: As in `BoxSelection`.
    per_query: ClassVar[PerQuery] = "one"

    #: Overlap of boxes of one class above which the better one stays, in transformers.
    nms_iou: ClassVar[float] = 1.0

    #: Modules that compute in float32 at any precision.
    exact: ClassVar[tuple[str, ...]] = ()

    weight: Tensor | None = None

    def __init__(
        self, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Prompts
    ):
        self.network = network
        self.tokenizer = tokenizer
        self.prompts = prompts
        self.device = next(network.parameters()).device
        compute_exactly((network.get_submodule(name) for name in self.exact), self.device.type)
        with inference_mode():
            self.read_prompts()

    @abstractmethod
    def read_prompts(self) -> None:
        """Embeds the prompts, and computes everything else that depends on them only."""

    @abstractmethod
    def run(self, pixels: Tensor, mask: Tensor) -> PromptedOutput:
        """Runs the network on images.

        Args:
            pixels: Shape (B, 3, H, W).
            mask: Shape (B, H, W): which pixels are image.
        """

    def placed(self, boxes: Tensor, size: tuple[int, int]) -> Tensor:
        """Converts corners from fractions to pixels of an image of this height and width."""
        height, width = size
        return boxes * boxes.new_tensor([width, height, width, height])

    def suppressed(
        self, pairs: QueryPairs, boxes: Tensor, size: tuple[int, int], iou: float
    ) -> tuple[QueryPairs, Tensor]:
        """Non-maximum suppression within classes.

        Args:
            pairs: Detections of one image.
            boxes: Of all queries, in pixels of the image, shape (Q, 4).
            size: Height and width of the image.
            iou: Of two boxes of one class that overlap more than this, the better one stays; 1
                keeps both.

        Returns:
            The remaining pairs, best first, and their boxes, shape (N, 4).
        """
        pair_boxes = boxes[pairs.queries]
        if iou < 1:
            order = batched_nms(pair_boxes, pairs.scores, pairs.labels, iou)
        else:
            order = pairs.scores.argsort(descending=True, stable=True)
        return pairs.at(order), pair_boxes[order]

    def tokens(self, sentences: Sequence[str], max_tokens: int) -> dict[str, Tensor]:
        """Tokens of sentences, padded to the longest text that the encoder reads.

        Raises:
            ParameterError: a sentence has more than `most` tokens.
        """
        token_ids = self.tokenizer(list(sentences))["input_ids"]
        for sentence, ids in zip(sentences, token_ids, strict=True):
            if len(ids) > max_tokens:
                problem = f"has {len(ids)} tokens; the text encoder reads at most {max_tokens}"
                raise ParameterError(f"the prompt {shorten(sentence)} {problem}")
        encoding = self.tokenizer(
            list(sentences), padding="max_length", max_length=max_tokens, return_tensors="pt"
        )
        return {
            "input_ids": encoding["input_ids"].to(self.device),
            "attention_mask": encoding["attention_mask"].to(self.device),
        }

    def embedded(self, max_tokens: int, encode: Callable[..., Tensor]) -> Tensor:
        """Embedding of each column, averaged over the templates, shape (K, E).

        Args:
            max_tokens: Largest number of tokens that the text encoder reads.
            encode: Embeddings of the tokens of sentences; see `tokens`.
        """
        embeddings_by_template = []
        for sentences in self.prompts.sentences():
            embeddings = []
            for start in range(0, len(sentences), BATCH_SIZE):
                batch = sentences[start : start + BATCH_SIZE]
                embeddings.append(encode(**self.tokens(batch, max_tokens)))
            embeddings_by_template.append(torch.cat(embeddings))
        return torch.stack(embeddings_by_template).mean(0)


class Owlv2(OpenVocabularyNetwork):
    """OWLv2 (Minderer et al. 2023, arXiv:2306.09683): queries are the image's patches.

    z_k = s · (cos(e, t_k) + b), with a scale s and a shift b of each query: h = (s · e / ‖e‖, s ·
    b), w_k = (t_k, 1).
    """

    template = "a photo of a {}"
    exact = ("layer_norm", "class_head", "box_head")

    def read_prompts(self) -> None:
        """See `OpenVocabularyNetwork.read_prompts`."""
        max_tokens = self.network.config.text_config.max_position_embeddings
        self._text = self.embedded(max_tokens, self._encode)
        rows = self._text / (self._text.norm(dim=-1, keepdim=True) + SMALLEST_LENGTH)
        self.weight = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)

    def run(self, pixels: Tensor, mask: Tensor) -> PromptedOutput:
        """See `OpenVocabularyNetwork.run`."""
        head = self.network.class_head
        maps, _ = self.network.image_embedder(pixels)
        patches = maps.flatten(1, 2)
        text = self._text.expand(len(pixels), -1, -1)
        with recorded_calls([head.dense0, head.logit_shift, head.logit_scale]) as calls:
            logits, _ = self.network.class_predictor(patches, text)
        _, embeddings = calls[head.dense0]
        _, shift = calls[head.logit_shift]
        _, raw_scale = calls[head.logit_scale]

        scale = head.elu(raw_scale) + 1
        unit = embeddings / (embeddings.norm(dim=-1, keepdim=True) + SMALLEST_LENGTH)
        features = torch.cat([unit * scale, shift * scale], dim=-1)
        boxes = self.network.box_predictor(patches, maps)
        return PromptedOutput(logits, boxes, features)

    def _encode(self, **tokens: Tensor) -> Tensor:
        """Embeddings of the tokens of sentences at length 1."""
        output = self.network.owlv2.get_text_features(**tokens)
        return nn.functional.normalize(output.pooler_output, dim=-1)

    def placed(self, boxes: Tensor, size: tuple[int, int]) -> Tensor:
        """See `OpenVocabularyNetwork.placed`: fractions of the padded square."""
        return boxes * max(size)


class GroundingDino(OpenVocabularyNetwork):
    """Grounding DINO and MM Grounding DINO.

    All prompts are one text, separated by dots. A query's logit of a class is its largest over the
    tokens of the class's prompt, hence there is no last layer; h is the decoder's last hidden
    state.

    References:
        Liu et al., "Grounding DINO", 2023, arXiv:2303.05499.

        Zhao et al., "An Open and Comprehensive Pipeline for Unified Object Grounding and
        Detection", 2024, arXiv:2401.02361.
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
        ids = self._text_ids(sentences)
        label_maps = self._label_maps(sentences, ids)
        self._tokens = [label_map.nonzero()[:, 0] for label_map in label_maps]
        self._ids = ids
        masks, positions = (
            modeling_grounding_dino.generate_masks_with_special_tokens_and_transfer_map(
                ids, special_tokens=self.network.model.special_tokens
            )
        )
        output = self.network.model.text_backbone(
            ids, masks[:, None], torch.zeros_like(ids), positions
        )
        self._text = output.last_hidden_state

    def run(self, pixels: Tensor, mask: Tensor) -> PromptedOutput:
        """See `OpenVocabularyNetwork.run`."""
        count = len(pixels)
        head = self.network.class_embed[-1]
        ids = self._ids.expand(count, -1)
        text = BaseModelOutput(last_hidden_state=self._text.expand(count, -1, -1))
        with (
            replaced_outputs({self.network.model.text_backbone: text}),
            recorded_calls([head]) as calls,
        ):
            output = self.network(pixel_values=pixels, input_ids=ids, pixel_mask=mask)
        logits = [output.logits[..., tokens].amax(-1) for tokens in self._tokens]
        features, _ = calls[head]
        return PromptedOutput(torch.stack(logits, dim=-1), output.pred_boxes, features)

    def _text_ids(self, sentences: Sequence[str]) -> Tensor:
        """Tokens of the text of all prompts, shape (1, T)."""
        config = self.network.config
        max_tokens = min(config.max_text_len, config.text_config.max_position_embeddings)
        text = ". ".join(sentence.strip().lower() for sentence in sentences) + "."
        ids = self.tokenizer(text, return_tensors="pt")["input_ids"].to(self.device)
        if ids.shape[1] > max_tokens:
            raise ParameterError(
                f"{len(sentences)} prompts are a text of {ids.shape[1]} tokens; "
                f"the text encoder reads at most {max_tokens}: use fewer or shorter ones"
            )
        return ids

    def _label_maps(self, sentences: Sequence[str], ids: Tensor) -> Tensor:
        """Which tokens of a text belong to each prompt, shape (K, T)."""
        logits = torch.zeros(1, 1, ids.shape[1], device=self.device)
        (label_maps,) = modeling_grounding_dino.build_label_maps(logits, ids)
        if len(label_maps) != len(sentences):
            raise DataError(
                f"its tokenizer separates {len(sentences)} prompts into {len(label_maps)}: "
                "not the vocabulary of this network, or a prompt of special tokens"
            )
        return label_maps


class OmDetTurbo(OpenVocabularyNetwork):
    """OmDet-Turbo (Zhao et al. 2024, arXiv:2403.06892).

    z_k = cos(h, W t_k) / 0.07, or their product if `class_distance_type` is "dot". The task's
    text, which the decoder also reads, is "Detect a, b." of all names, cut to the length that the
    text encoder reads, as in transformers.
    """

    per_query = "several"
    nms_iou = 0.5
    exact = ("decoder",)

    def read_prompts(self) -> None:
        """See `OpenVocabularyNetwork.read_prompts`."""
        network = self.network
        max_tokens = min(OMDET_TOKENS, network.config.text_config.max_position_embeddings)
        self._classes = self.embedded(max_tokens, self._encode)
        rows = network.decoder.decoder_class_head[-1](self._classes)
        self._is_cosine = network.config.class_distance_type == "cosine"
        self.weight = nn.functional.normalize(rows, dim=-1) if self._is_cosine else rows

        task = f"Detect {', '.join(self.prompts.columns)}."
        encoding = self.tokenizer(
            [task],
            padding="max_length",
            truncation=True,
            max_length=max_tokens,
            return_tensors="pt",
        ).to(self.device)
        self._task = network.language_backbone(
            encoding["input_ids"], mask=encoding["attention_mask"], encode_type="task"
        )

    def run(self, pixels: Tensor, mask: Tensor) -> PromptedOutput:
        """See `OpenVocabularyNetwork.run`."""
        network = self.network
        count = len(pixels)
        maps = network.encoder(network.vision_backbone(pixels)).extracted_states
        text, padding = self._task
        classes = self._classes[:, None].expand(-1, count, -1)
        output = network.decoder(
            maps, classes, text.expand(-1, count, -1), padding.expand(count, -1)
        )
        features = output.last_hidden_state
        if self._is_cosine:
            features = nn.functional.normalize(features, dim=-1) / OMDET_TEMPERATURE
        return PromptedOutput(output.decoder_classes[-1], output.decoder_coords[-1], features)

    def suppressed(
        self, pairs: QueryPairs, boxes: Tensor, size: tuple[int, int], iou: float
    ) -> tuple[QueryPairs, Tensor]:
        """See `OpenVocabularyNetwork.suppressed`; the best pairs take part, as many as queries."""
        if len(pairs.scores) > len(boxes):
            pairs = pairs.at(pairs.scores.topk(len(boxes)).indices)
        remaining, remaining_boxes = super().suppressed(pairs, boxes, size, iou)
        return remaining, clip_boxes_to_image(remaining_boxes, size)

    def _encode(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Embeddings of the tokens of class names."""
        return self.network.language_backbone(input_ids, encode_type="class")


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
        network: The network.
        header: Header of the regions.
        images: The prepared images.
        image_ids: Names of the images.
        selection: Limits of scores and overlaps.
        precision: Type of the network's activations.
        features_dtype: Type of the column `features`; None leaves it out.

    Returns:
        The rows image by image, best score first; `region_id` counts from 0. Boxes in pixels of the
        images as given.

    Raises:
        DataError: the network gives numbers that are not finite.
    """
    detect = partial(_detect, network, selection, precision, features_dtype)
    return GroupedReplay.detect(header, images, _shape, detect).regions(image_ids)


@dataclass(frozen=True)
class _Detections:
    """Detections of images of one shape; see `ReplayGroup`."""

    columns: dict[str, np.ndarray]
    counts: list[int]


def _shape(image: Prepared) -> tuple:
    """Images of one shape go through the network together."""
    return tuple(image.pixels.shape)


def _detect(
    network: OpenVocabularyNetwork,
    selection: BoxSelection,
    precision: str,
    features_dtype: str | None,
    images: list[Prepared],
) -> Any:
    """Detections of images of one shape."""
    pixels = torch.stack([image.pixels for image in images]).to(network.device)
    with autocast(network.device, precision):
        output = network.run(pixels, masks(images, network.device))
    logits = output.logits.float()
    boxes = output.boxes.float()
    features = output.features.float()
    if not all(torch.isfinite(values).all() for values in (logits, boxes, features)):
        raise DataError(
            "the network gives numbers that are not finite: the checkpoint's weights are damaged"
        )

    rows_by_image = []
    for number, image in enumerate(images):
        image_output = PromptedOutput(logits[number], boxes[number], features[number])
        rows_by_image.append(
            _rows(network, image_output, image.original, selection, features_dtype)
        )
    columns = {}
    for name in rows_by_image[0]:
        columns[name] = np.concatenate([rows[name] for rows in rows_by_image])
    return _Detections(columns, [len(rows["score"]) for rows in rows_by_image])


def _rows(
    network: OpenVocabularyNetwork,
    output: PromptedOutput,
    size: tuple[int, int],
    selection: BoxSelection,
    features_dtype: str | None,
) -> dict[str, np.ndarray]:
    """The columns of the detections of one image, best first."""
    boxes = network.placed(corners(output.boxes), size)
    pairs = candidates(output.logits.sigmoid(), selection)
    pairs, pair_boxes = network.suppressed(pairs, boxes, size, selection.iou)
    best = slice(selection.max_detections)
    queries = pairs.queries[best]
    columns = {
        "box": to_numpy(pair_boxes[best]),
        "score": to_numpy(pairs.scores[best]),
        "label": pairs.labels[best].cpu().numpy().astype(np.int16),
        "logits": to_numpy(output.logits[queries]),
    }
    if features_dtype is not None:
        columns["features"] = to_numpy(output.features[queries], features_dtype)
    return columns
