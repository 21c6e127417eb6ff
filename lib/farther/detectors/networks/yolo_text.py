"""YOLO-World and YOLOE with the text embeddings of set classes, as networks with an ordinary detection head."""

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
        self.conv, self.norm = conv, getattr(contrast, "norm", None)
        self.logit_scale, self.bias = contrast.logit_scale, contrast.bias

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, D + 1, h, w) of activations (B, C, h, w)."""
        found = self.conv(x)
        found = normalize(found, dim=1) if self.norm is None else self.norm(found)
        bias = self.bias.view(1, 1, 1, 1).expand(len(x), 1, *found.shape[2:])
        return torch.cat([found * self.logit_scale.exp(), bias], dim=1)


class Texts(nn.Module):
    """Text embeddings, shape (1, K, E), and those that attention to the image made of them in this pass."""

    text: Tensor

    def __init__(self, text: Tensor):
        super().__init__()
        self.register_buffer("text", text, persistent=False)
        self.attended: Tensor | None = None


class Guided(nn.Module):
    """A layer of the neck that reads the text embeddings; `pools` where it changes them instead of the maps."""

    def __init__(self, layer: Any, texts: Texts, *, pools: bool, after: bool):
        super().__init__()
        self.layer, self.texts, self._pools, self._after = layer, texts, pools, after
        self.i, self.f = layer.i, layer.f

    def forward(self, x: Any) -> Any:
        """Output of the layer."""
        maps = x[0] if isinstance(x, list) else x
        text = self.texts.attended if self._after else self.texts.text
        assert text is not None
        found = self.layer(x, text.expand(len(maps), -1, -1).type_as(maps))
        if not self._pools:
            return found
        self.texts.attended = found
        return x


def with_classes(network: DetectionModel, text: Tensor) -> DetectionModel:
    """The network, changed in place: its text embeddings, (1, K, E), are part of its layers and of its last layer."""
    texts, after = Texts(text), False
    for number, layer in enumerate(network.model):
        pools = isinstance(layer, modules.ImagePoolingAttn)
        if pools or isinstance(layer, modules.C2fAttn):
            network.model[number] = Guided(layer, texts, pools=pools, after=after)
            after = after or pools
    network.model[-1] = _plain_head(network.model[-1], text)
    return network


def last_layer(network: DetectionModel) -> Tensor | None:
    """The weight (K, D) that all pyramid levels share, so that features @ weight.T = logits; None without one."""
    branch = network.model[-1].cv3[0]
    return branch[-1].weight.flatten(1) if isinstance(branch[-2], AnchorEmbedding) else None


def _plain_head(head: Any, text: Tensor) -> nn.Module:
    """Ultralytics' ordinary head with the same boxes and logits; masks are left out."""
    rows = normalize(text[0], dim=-1)
    weight = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
    plain: Any = modules.Detect(
        len(rows), head.reg_max, ch=[branch[0].conv.in_channels for branch in head.cv2]
    )
    plain.cv2, plain.dfl, plain.stride, plain.inplace = (
        head.cv2,
        head.dfl,
        head.stride,
        head.inplace,
    )
    plain.i, plain.f, plain.type = head.i, head.f, head.type
    branches = []
    for branch, contrast in zip(head.cv3, head.cv4, strict=True):
        compare = nn.Conv2d(weight.shape[1], len(weight), 1, bias=False)
        compare.weight = nn.Parameter(weight[:, :, None, None].clone())
        branches.append(nn.Sequential(*branch[:-1], AnchorEmbedding(branch[-1], contrast), compare))
    plain.cv3 = nn.ModuleList(branches)
    return plain
