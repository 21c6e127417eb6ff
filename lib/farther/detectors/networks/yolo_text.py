"""YOLO-World and YOLOE with fixed text embeddings, as networks with an ordinary detection head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from farther.detectors.networks.ultralytics_import import import_quietly

import_quietly()

from ultralytics.nn import modules  # noqa: E402
from ultralytics.nn.tasks import DetectionModel, WorldModel, YOLOEModel, YOLOESegModel  # noqa: E402

#: Networks by their head, which compares each anchor's embedding with those of the classes.
TEXT_MODELS: dict[str, type[DetectionModel]] = {
    "WorldDetect": WorldModel,
    "YOLOEDetect": YOLOEModel,
    "YOLOESegment": YOLOESegModel,
    "YOLOESegment26": YOLOESegModel,
}


class AnchorEmbedding(nn.Module):
    """Features of each anchor that the text embeddings t_k are multiplied with.

    z_k = s · t_k·e + b, with the anchor's embedding e at length 1 (YOLO-World) or batch-normalised
    (its second version, YOLOE), a scale s and a bias b of each pyramid level: h = (s · e, b), w_k =
    (t_k, 1).

    Args:
        conv: The convolution that makes e.
        contrast: Ultralytics' contrastive head.
    """

    def __init__(self, conv: nn.Module, contrast: Any):
        super().__init__()
        self.conv = conv
        self.norm = getattr(contrast, "norm", None)
        self.logit_scale = contrast.logit_scale
        self.bias = contrast.bias

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, D + 1, h, w) of activations (B, C, h, w)."""
        embedding = self.conv(x)
        if self.norm is None:
            embedding = normalize(embedding, dim=1)
        else:
            embedding = self.norm(embedding)
        bias = self.bias.view(1, 1, 1, 1).expand(len(x), 1, *embedding.shape[2:])
        return torch.cat([embedding * self.logit_scale.exp(), bias], dim=1)


class Texts(nn.Module):
    """Text embeddings, shape (1, K, E), before and after attention to the current images.

    Args:
        text: Before attention.

    Attributes:
        attended: After attention, shape (B, K, E); None before the first batch.
    """

    text: Tensor

    def __init__(self, text: Tensor):
        super().__init__()
        self.register_buffer("text", text, persistent=False)
        self.attended: Tensor | None = None


class TextGuidedLayer(nn.Module):
    """A layer of the neck that reads the text embeddings.

    Args:
        layer: Ultralytics' layer.
        texts: The embeddings, which all such layers share.
        attends: The layer computes new embeddings by attention to the maps, instead of new maps.
        reads_attended: The layer reads the embeddings after attention.
    """

    def __init__(self, layer: Any, texts: Texts, *, attends: bool, reads_attended: bool):
        super().__init__()
        self.layer = layer
        self.texts = texts
        self._attends = attends
        self._reads_attended = reads_attended
        # Ultralytics' number of the layer, and those of the layers that it reads.
        self.i = layer.i
        self.f = layer.f

    def forward(self, x: Any) -> Any:
        """Output of the layer; its input if the layer changes the embeddings."""
        maps = x[0] if isinstance(x, list) else x
        text = self.texts.attended if self._reads_attended else self.texts.text
        assert text is not None
        output = self.layer(x, text.expand(len(maps), -1, -1).type_as(maps))
        if self._attends:
            self.texts.attended = output
            return x
        return output


def with_classes(network: DetectionModel, text: Tensor) -> DetectionModel:
    """Makes text embeddings part of a network's layers, in place.

    Args:
        network: Its last layer is one of `TEXT_MODELS`.
        text: Embeddings of the classes, shape (1, K, E).

    Returns:
        The network, with an ordinary detection head.
    """
    texts = Texts(text)
    reads_attended = False
    for number, layer in enumerate(network.model):
        attends = isinstance(layer, modules.ImagePoolingAttn)
        if attends or isinstance(layer, modules.C2fAttn):
            network.model[number] = TextGuidedLayer(
                layer, texts, attends=attends, reads_attended=reads_attended
            )
            reads_attended = reads_attended or attends
    network.model[-1] = _plain_head(network.model[-1], text)
    return network


def last_layer(network: DetectionModel) -> Tensor | None:
    """The weight (K, D) of the last layer, so that logits = features @ weight.T.

    None in networks whose pyramid levels do not share one.
    """
    branch = network.model[-1].cv3[0]
    if not isinstance(branch[-2], AnchorEmbedding):
        return None
    return branch[-1].weight.flatten(1)


def _plain_head(head: Any, text: Tensor) -> nn.Module:
    """Ultralytics' ordinary head with the same boxes and logits; masks are left out."""
    rows = normalize(text[0], dim=-1)
    weight = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
    channels = [branch[0].conv.in_channels for branch in head.cv2]
    plain: Any = modules.Detect(len(rows), head.reg_max, ch=channels)
    for name in ("cv2", "dfl", "stride", "inplace", "i", "f", "type"):
        setattr(plain, name, getattr(head, name))

    branches = []
    for branch, contrast in zip(head.cv3, head.cv4, strict=True):
        compare = nn.Conv2d(weight.shape[1], len(weight), 1, bias=False)
        compare.weight = nn.Parameter(weight[:, :, None, None].clone())
        branches.append(nn.Sequential(*branch[:-1], AnchorEmbedding(branch[-1], contrast), compare))
    plain.cv3 = nn.ModuleList(branches)
    return plain
