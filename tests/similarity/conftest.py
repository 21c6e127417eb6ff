"""A CLIP of a few thousand numbers, a dataset of coloured squares for it, and a tiny WordNet."""

import json

import numpy as np
import pytest
from PIL import Image
from tests.similarity.tiny_wordnet import write

from farther.images.clip import Encoder, EncoderParams
from farther.tables import Images
from farther.tables.files import digest

COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 200, 60),
    "blue": (40, 60, 220),
    "grey": (128, 128, 128),
}


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory):
    """See `write_clip`."""
    return write_clip(tmp_path_factory.mktemp("clip"))


def write_clip(folder):
    """Writes a folder that open_clip loads: configuration and weights, untrained."""
    import torch
    from open_clip import CLIP
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    vision = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 4, "head_width": 64}
    text = {"context_length": 16, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1}
    model = {"embed_dim": 8, "vision_cfg": vision, "text_cfg": text}
    config = {"model_cfg": model, "preprocess_cfg": {"resize_mode": "squash"}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    save_file(CLIP(**model).state_dict(), folder / "open_clip_model.safetensors")
    return folder


@pytest.fixture(scope="session")
def encoder(clip_folder):
    import torch

    torch.set_num_threads(1)
    return Encoder(EncoderParams(model=f"local-dir:{clip_folder}", device="cpu"))


@pytest.fixture(scope="session")
def paint():
    """Writes images of noisy coloured squares and returns their table."""
    return _paint


@pytest.fixture(scope="session")
def write_wordnet():
    """Writes the `dict` folder of a tiny WordNet in the true file format; see `tiny_wordnet`."""
    return write


def _paint(folder, count, dataset="squares", first=0):
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for n in range(first, first + count):
        rng = np.random.default_rng(n)
        pixels = rng.integers(90, 150, (24 + n % 3, 32, 3), np.uint8)
        pixels[4:20, 6:22] = list(COLOURS.values())[n % len(COLOURS)]
        path = folder / f"{n}.png"
        Image.fromarray(pixels).save(path)
        rows.append((f"image {n}", dataset, path.name, 32, 24 + n % 3, digest(path)))
    names = ("image_id", "dataset", "file", "width", "height", "digest")
    return Images(**dict(zip(names, zip(*rows, strict=True), strict=True)))
