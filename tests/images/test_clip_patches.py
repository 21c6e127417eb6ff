"""Embeddings of patches: those of an image in which each patch attends to itself alone."""

import numpy as np
import open_clip
import pytest
import torch
from numpy.testing import assert_allclose
from open_clip.modified_resnet import AttentionPool2d
from tests.detectors.test_open_clip_classifier import TEXT, VISIONS

from farther.errors import ParameterError
from farther.images.clip_patches import Patches

IMAGES = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 3, 64, 64)).astype(np.float32))


def tower(**vision):
    torch.manual_seed(0)
    return open_clip.CLIP(
        embed_dim=8, vision_cfg={**vision, "image_size": 64}, text_cfg=TEXT
    ).visual.eval()


def input_of(module, visual):
    """The input of a module when the images are embedded."""
    inputs = []
    with module.register_forward_pre_hook(lambda _, args: inputs.append(args[0])):
        visual(IMAGES)
    return inputs[0]


def patches_of(visual):
    patches = Patches(visual)
    with patches.recording():
        visual(IMAGES)
        return patches.embeddings()


@torch.inference_mode()
def test_a_transformers_patches_are_those_of_a_last_block_without_mixing():
    visual = tower(**VISIONS["transformer"])
    block = visual.transformer.resblocks[-1]
    tokens = input_of(block, visual)
    mask = torch.full((tokens.shape[1],) * 2, -torch.inf).fill_diagonal_(0)
    expected = visual.ln_post(block(tokens, attn_mask=mask))[:, 1:] @ visual.proj
    assert expected.shape == (3, 64, 8)
    assert_allclose(patches_of(visual), expected, atol=1e-5)


@torch.inference_mode()
def test_a_residual_networks_patches_are_those_of_maps_with_one_cell():
    visual = tower(**VISIONS["resnet"])
    pool = visual.attnpool
    maps = input_of(pool, visual)
    one_cell = AttentionPool2d(1, maps.shape[1], pool.num_heads, 8).eval()
    one_cell.load_state_dict(
        {**pool.state_dict(), "positional_embedding": torch.zeros(2, maps.shape[1])}
    )
    cells = maps.flatten(2).transpose(1, 2).reshape(-1, maps.shape[1], 1, 1)
    expected = one_cell(cells).reshape(3, 4, 8)
    assert_allclose(patches_of(visual), expected, atol=1e-5)


def test_another_pooling_is_refused():
    with pytest.raises(
        ParameterError, match="patches: of residual networks and vision transformers"
    ):
        Patches(tower(**VISIONS["transformer"], pool_type="avg"))
