"""Embeddings of the patches of an image in CLIP's space of texts, by the values of its last attention.

The last attention mixes the values of all patches into the image's embedding. A patch's own value,
sent through the same projections, is its embedding (Zhou et al. 2022, arXiv:2112.01071; Miyai et
al. 2023, arXiv:2304.04521).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from farther.errors import ParameterError

if TYPE_CHECKING:
    from torch import Tensor


class Patches:
    """Takes the patches' embeddings while a CLIP embeds images.

    Args:
        visual: The image tower of open_clip's model: a residual network with attention pooling, or
            a vision transformer whose embedding is that of its class token.

    Raises:
        ParameterError: it is another one.
    """

    def __init__(self, visual: Any):
        from open_clip.modified_resnet import ModifiedResNet
        from open_clip.transformer import ResidualAttentionBlock, VisionTransformer

        self._visual = visual
        self._seen: list[Tensor] = []
        self._embed: Callable[[Tensor], Tensor]
        if isinstance(visual, ModifiedResNet):
            self._last, self._embed = visual.attnpool, self._of_resnet
            return
        usual = (
            isinstance(visual, VisionTransformer)
            and visual.attn_pool is None
            and visual.pool_type == "tok"
            and visual.proj is not None
            and type(visual.transformer.resblocks[-1]) is ResidualAttentionBlock
        )
        if not usual:
            problem = "patches: of residual networks and vision transformers of OpenAI's form only"
            raise ParameterError(f"{problem}, not of {type(visual).__name__}")
        self._last, self._embed = visual.transformer.resblocks[-1], self._of_transformer

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Keeps the input of the last attention of what is embedded in the block."""
        hook = self._last.register_forward_pre_hook(lambda _, given: self._seen.append(given[0]))
        try:
            yield
        finally:
            hook.remove()
            self._seen.clear()

    def embeddings(self) -> Tensor:
        """Embeddings of the patches of the images embedded last, shape (B, P, D), of any length."""
        return self._embed(self._seen.pop())

    def _of_resnet(self, maps: Tensor) -> Tensor:
        """Of maps (B, C, H, W): without positions, which belong to the mixing."""
        return self._last.c_proj(self._last.v_proj(maps.flatten(2).transpose(1, 2)))

    def _of_transformer(self, tokens: Tensor) -> Tensor:
        """Of tokens, the class token first."""
        from torch.nn.functional import linear

        block, visual = self._last, self._visual
        if not block.attn.batch_first:
            tokens = tokens.transpose(0, 1)
        patches = tokens[:, 1:]
        weight, bias = (
            part.chunk(3)[2] for part in (block.attn.in_proj_weight, block.attn.in_proj_bias)
        )
        values = block.attn.out_proj(linear(block.ln_1(patches), weight, bias))
        mixed = patches + block.ls_1(values)
        return visual.ln_post(mixed + block.ls_2(block.mlp(block.ln_2(mixed)))) @ visual.proj
