"""Zero-shot classification with CLIP, loaded by open_clip."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import open_clip  # noqa: F401 (`Encoder` loads the network by it)
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from farther.detectors.base import register
from farther.detectors.prompts import Template
from farther.detectors.recognition import IdClasses, RecognisedFile
from farther.detectors.scaling import Scaled
from farther.detectors.whole_images import (
    ClassifierNetwork,
    ImageClassifier,
    three_quarters_through,
)
from farther.errors import ParameterError
from farther.images.bounds import network_errors
from farther.images.clip import HUB, LOCAL, ClipPreprocessing, Encoder, EncoderParams
from farther.naming.registry import STRICT
from farther.tables.files import is_file, is_folder
from farther.tables.folders import listed


@register("open_clip_classifier")
@dataclass(config=STRICT, kw_only=True)
class OpenClipClassifier(ImageClassifier):
    """CLIP as a zero-shot classifier (Radford et al. 2021, arXiv:2103.00020, Section 3.1).

    The logit of a class is logit_scale · cos(image, text), where text is the mean of the embeddings
    of its prompts, at length 1. `features` is the image's embedding at length 1. The header's last
    layer is the classes' text embeddings times logit_scale, with bias 0 (SigLIP's logit_bias), so
    that methods on features and last layer apply.

    Args:
        weights: A folder with `open_clip_config.json` and weights; the name of a model on the hub
            (`owner/name`); or, with `architecture`, a file of weights or a tag of open_clip
            ("openai").
        latent: See `ImageClassifier`. Names begin with `clip.visual.`.
        classes: The classes.
        architecture: Name of an architecture of open_clip ("ViT-B-32").
        templates: Prompts for a class, in which `{}` is replaced by its name.
        words: Words for a class in the prompts, where they are not its name.
    """

    RECOGNISED_FILES: ClassVar[tuple[str, ...]] = ("open_clip_config.json",)
    FROM_HUB = True

    classes: Annotated[tuple[str, ...], Field(min_length=1)]
    architecture: str | None = None
    templates: Annotated[tuple[Template, ...], Field(min_length=1)] = ("a photo of a {}",)
    words: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def recognises(cls, path: Path, id_classes: IdClasses) -> RecognisedFile | None:
        """A CLIP as a zero-shot classifier of the ID classes; see `Adapter`."""
        return RecognisedFile({"classes": id_classes.categories})

    @cached_property
    def encoder(self) -> Encoder:
        """The loaded CLIP; errors as in `Encoder`."""
        pretrained = None
        if self.architecture is not None:
            name = self.architecture
            pretrained = str(self.weights)
        elif is_folder(self.weights):
            name = f"{LOCAL}{self.weights}"
        else:
            name = f"{HUB}{self.weights.as_posix()}"
        return Encoder(EncoderParams(model=name, pretrained=pretrained, device=self.device))

    def files(self) -> tuple[Path, ...]:
        """See `Detector.files`."""
        if is_folder(self.weights):
            return tuple(file for file in listed(self.weights, "*") if is_file(file))
        if is_file(self.weights):
            return (self.weights,)
        return ()

    @cached_property
    def identity(self) -> dict[str, Any]:
        """See `Detector.identity`; the content of the weights counts, not their place."""
        encoder_identity = self.encoder.identity
        return {
            "name": self.name,
            "weights_digest": encoder_identity["weights_digest"],
            "preprocessing": encoder_identity["preprocessing"],
            "params": self.parameters(),
        }

    @cached_property
    def network(self) -> ClassifierNetwork:
        """See `Detector.network`.

        The default `latent` is block 9 of 12 of a transformer, or the third stage of a ResNet.

        Raises:
            ParameterError: see `Encoder`; or `words` names a class that is not among the classes.
        """
        unknown = sorted(set(self.words) - set(self.classes))
        if unknown:
            raise ParameterError(f"parameter 'words': {unknown[0]!r} is not one of the classes")
        encoder = self.encoder
        words = [self.words.get(name, name) for name in self.classes]
        with network_errors(self.weights):
            text = encoder.names(words, self.templates)
            network = ZeroShot(encoder, torch.from_numpy(text).to(encoder.device)).eval()
            black_image = np.zeros((64, 64, 3), np.uint8)
            height, width = self.prepare(black_image).pixels.shape[1:]
            config = self.preprocessing.config
            return ClassifierNetwork(
                network,
                sample=(height, width),
                latent=_default_latent(network) if self.latent is None else self.latent,
                normalisation=(tuple(config["mean"]), tuple(config["std"])),
                layers=self.layers(),
            )

    @cached_property
    def preprocessing(self) -> ClipPreprocessing:
        """Preprocessing of images, which is pickled with the adapter."""
        return self.encoder.preprocessing

    def class_names(self) -> tuple[str, ...]:
        """See `ImageClassifier.class_names`."""
        return self.classes

    def prepare(self, image: np.ndarray) -> Scaled:
        """The image, prepared according to the model's configuration."""
        with network_errors(self.weights):
            pixels = self.preprocessing.prepare(image).numpy()
        return Scaled(pixels, (image.shape[0], image.shape[1]))

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "preprocessing" in vars(self):
            state["preprocessing"] = self.preprocessing
        return state


class ZeroShot(nn.Module):
    """Classifier of images by their embeddings and those of the class names.

    Args:
        encoder: A loaded CLIP.
        text: Embeddings of the classes, rows of length 1, shape (K, D).
    """

    def __init__(self, encoder: Encoder, text: Tensor):
        super().__init__()
        self.clip = encoder.network
        self.classes = nn.Linear(text.shape[1], text.shape[0], device=text.device)
        scale, bias = encoder.scale_and_bias()
        with torch.no_grad():
            self.classes.weight.copy_(scale * text)
            self.classes.bias.fill_(bias)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W)."""
        return self.classes(self.clip.encode_image(images, normalize=True))


def _default_latent(network: ZeroShot) -> str | None:
    """Name of the module three quarters through the image encoder; None if it is not known."""
    image_encoder = network.clip.visual
    if hasattr(image_encoder, "layer3"):
        return "clip.visual.layer3"
    module = three_quarters_through(image_encoder)
    if module is None:
        return None
    return f"clip.visual.{module}"
