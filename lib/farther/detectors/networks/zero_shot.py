"""CLIP with the embeddings of class names as its last layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from farther.detectors.networks.classification import Classifier, three_quarters_through
from farther.detectors.scaling import Scaled
from farther.detectors.settings import NO_LAYERS, Layers
from farther.images.clip import Encoder


class ZeroShot(nn.Module):
    """Logits of images: their embeddings, times those of the class names.

    Args:
        clip: open_clip's model.
        text: Embeddings of the classes, rows of length 1, shape (K, D).
    """

    def __init__(self, clip: Any, text: Tensor):
        super().__init__()
        self.clip = clip
        self.classes = nn.Linear(text.shape[1], text.shape[0], device=text.device)
        bias = getattr(clip, "logit_bias", None)
        with torch.no_grad():
            self.classes.weight.copy_(clip.logit_scale.exp() * text)
            self.classes.bias.fill_(0.0 if bias is None else float(bias))

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K) of images (B, 3, H, W)."""
        return self.classes(self.clip.encode_image(images, normalize=True))


def zero_shot(
    encoder: Encoder, text: np.ndarray, sample: Scaled, latent: str | None, layers: Layers = NO_LAYERS
) -> Classifier:
    """A loaded CLIP as a classifier.

    Args:
        text: Embeddings of the classes, rows of length 1, shape (K, D).
        sample: A prepared image.
        latent, layers: See `Classifier`; without a `latent`, block 9 of 12 of a transformer, or the third stage of a
            ResNet.
    """
    network = ZeroShot(encoder.network, torch.from_numpy(text).to(encoder.device)).eval()
    visual = network.clip.visual
    if latent is None:
        inner = "layer3" if hasattr(visual, "layer3") else three_quarters_through(visual)
        latent = None if inner is None else f"clip.visual.{inner}"
    config = encoder.preprocessing.config
    size = sample.pixels.shape[1], sample.pixels.shape[2]
    return Classifier(network, size, latent, (tuple(config["mean"]), tuple(config["std"])), layers=layers)
