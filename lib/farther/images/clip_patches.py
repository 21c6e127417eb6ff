"""Embeddings of the patches of an image in CLIP's space of texts.

They are computed from the values of the last attention. It mixes the values of all patches into the
image's embedding. A patch's own value, sent through the same projections, is its embedding (Zhou et
al. 2022, arXiv:2112.01071; Miyai et al. 2023, arXiv:2304.04521).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from farther.errors import ParameterError

if TYPE_CHECKING:
    from torch import Tensor

# Imported in functions: PyTorch and open_clip, which take seconds.


class Patches:
    """Embeds the patches of images while a CLIP embeds the images.

    Args:
        visual: The image tower of open_clip's model: a residual network with attention pooling, or
            a vision transformer whose embedding is that of its class token.

    Raises:
        ParameterError: it is another one.
    """

    def __init__(self, visual: Any):
        from open_clip.modified_resnet import ModifiedResNet

        self._visual = visual
        self._input: Tensor | None = None
        self._last: Any
        self._embed: Callable[[Tensor], Tensor]
        if isinstance(visual, ModifiedResNet):
            self._last = visual.attnpool
            self._embed = self._of_resnet
        elif _is_openai_transformer(visual):
            self._last = visual.transformer.resblocks[-1]
            self._embed = self._of_transformer
        else:
            problem = "patches: of residual networks and vision transformers of OpenAI's form only"
            raise ParameterError(f"{problem}, not of {type(visual).__name__}")

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Keeps the input of the last attention while images are embedded in the block."""
        hook = self._last.register_forward_pre_hook(self._keep)
        try:
            yield
        finally:
            hook.remove()
            self._input = None

    def embeddings(self) -> Tensor:
        """Embeddings of the patches of the last images in the block of `recording`.

        Returns:
            Shape (B, P, D), vectors of any length.
        """
        assert self._input is not None, "no images were embedded in the block of recording()"
        return self._embed(self._input)

    def _keep(self, _module: Any, args: tuple[Any, ...]) -> None:
        self._input = args[0]

    def _of_resnet(self, maps: Tensor) -> Tensor:
        """Embeddings of the H · W cells of maps, without positions, which belong to the mixing.

        Args:
            maps: Shape (B, C, H, W).

        Returns:
            Shape (B, H · W, D).
        """
        return self._last.c_proj(self._last.v_proj(maps.flatten(2).transpose(1, 2)))

    def _of_transformer(self, tokens: Tensor) -> Tensor:
        """Embeddings of the tokens of patches.

        Args:
            tokens: Shape (B, 1 + P, C), or (1 + P, B, C) where the batch is not first; the first
                token is the class token.

        Returns:
            Shape (B, P, D).
        """
        from torch.nn.functional import linear

        block = self._last
        if not block.attn.batch_first:
            tokens = tokens.transpose(0, 1)
        patches = tokens[:, 1:]
        # The projections of queries, keys and values are stored one below the other.
        _, _, weight = block.attn.in_proj_weight.chunk(3)
        _, _, bias = block.attn.in_proj_bias.chunk(3)
        values = block.attn.out_proj(linear(block.ln_1(patches), weight, bias))
        mixed = patches + block.ls_1(values)
        output = mixed + block.ls_2(block.mlp(block.ln_2(mixed)))
        return self._visual.ln_post(output) @ self._visual.proj


def _is_openai_transformer(visual: Any) -> bool:
    """True for a vision transformer whose embedding is that of its class token."""
    from open_clip.transformer import ResidualAttentionBlock, VisionTransformer

    return (
        isinstance(visual, VisionTransformer)
        and visual.attn_pool is None
        and visual.pool_type == "tok"
        and visual.proj is not None
        and type(visual.transformer.resblocks[-1]) is ResidualAttentionBlock
    )
