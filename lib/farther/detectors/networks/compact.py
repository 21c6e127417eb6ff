"""A small residual network with a feature pyramid, for small scenes and machines without a GPU."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn
from torchvision.ops import Conv2dNormActivation, FeaturePyramidNetwork


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut (He et al. 2016, the basic block).

    Args:
        channels_in, channels_out: Widths.
        stride: Of the first convolution.
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int):
        super().__init__()
        self.first = Conv2dNormActivation(channels_in, channels_out, 3, stride)
        self.second = Conv2dNormActivation(channels_out, channels_out, 3, activation_layer=None)
        same = channels_in == channels_out and stride == 1
        self.shortcut: nn.Module = (
            nn.Identity() if same else Conv2dNormActivation(channels_in, channels_out, 1, stride, activation_layer=None)
        )
        self.activation = nn.ReLU(inplace=True)
        # The block starts as its shortcut, which lets a deep network learn from the first step (Goyal et al. 2017).
        nn.init.zeros_(self.second[1].weight)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (B, channels_in, H, W) → (B, channels_out, H / stride, W / stride)."""
        return self.activation(self.second(self.first(x)) + self.shortcut(x))


class CompactPyramid(nn.Module):
    """Levels "0", "1", … at strides 8, 16, …, all of the same width.

    Args:
        widths: Channels at strides 2, 4, 8, …
        blocks: Residual blocks at strides 4, 8, …: one number fewer than `widths`.
        out_channels: Width of every pyramid level.
    """

    def __init__(self, widths: tuple[int, ...], blocks: tuple[int, ...], out_channels: int):
        super().__init__()
        self.out_channels = out_channels
        self.stem = Conv2dNormActivation(3, widths[0], 3, 2)
        self.steps = nn.ModuleList(
            nn.Sequential(ResidualBlock(before, after, 2), *(ResidualBlock(after, after, 1) for _ in range(count - 1)))
            for before, after, count in zip(widths[:-1], widths[1:], blocks, strict=True)
        )
        self.pyramid = FeaturePyramidNetwork(list(widths[2:]), out_channels, norm_layer=nn.BatchNorm2d)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Shape (B, 3, H, W) → {"0": (B, out_channels, H / 8, W / 8), "1": …}."""
        x = self.steps[0](self.stem(x))
        levels: OrderedDict[str, Tensor] = OrderedDict()
        for number, step in enumerate(self.steps[1:]):
            x = step(x)
            levels[str(number)] = x
        return self.pyramid(levels)


class NormalizedHead(nn.Sequential):
    """Box head of two linear layers, each normalised over the proposals, so that it learns from the first step.

    Args:
        channels_in: Values of one pooled proposal.
        width: Features of the box head.
    """

    def __init__(self, channels_in: int, width: int):
        layers: list[nn.Module] = [nn.Flatten()]
        for before in (channels_in, width):
            layers += [nn.Linear(before, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
        super().__init__(*layers)
