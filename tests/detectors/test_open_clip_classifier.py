"""The adapter of CLIP as a zero-shot classifier, beside open_clip's own computation."""

import json
import pickle

import numpy as np
import open_clip
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from safetensors.torch import save_file

from farther import detectors
from farther.errors import ParameterError

CLASSES = ("cat", "dog", "fire_truck")
TEMPLATES = ("a photo of a {}", "a drawing of the {}.")
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1}
VISIONS = {
    "resnet": {"image_size": 32, "layers": [1, 1, 1, 1], "width": 4, "head_width": 64},
    "transformer": {"image_size": 32, "layers": 4, "width": 16, "head_width": 8, "patch_size": 8},
}


@pytest.fixture(scope="module", params=sorted(VISIONS))
def folder(request, tmp_path_factory):
    """A folder that open_clip loads, untrained."""
    made = tmp_path_factory.mktemp(request.param)
    model = {"embed_dim": 8, "vision_cfg": VISIONS[request.param], "text_cfg": TEXT}
    config = {"model_cfg": model, "preprocess_cfg": {"interpolation": "bicubic"}}
    (made / "open_clip_config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    save_file(open_clip.CLIP(**model).state_dict(), made / "open_clip_model.safetensors")
    return made


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(3)
    return [
        rng.integers(0, 256, (50, 70, 3), np.uint8),
        rng.integers(0, 256, (90, 40, 3), np.uint8),
    ]


def create(folder, **params):
    given = {
        "classes": CLASSES,
        "templates": TEMPLATES,
        "words": {"fire_truck": "fire truck"},
        "device": "cpu",
    }
    return detectors.create("open_clip_classifier", weights=folder, **{**given, **params})


def test_logits_are_those_of_open_clips_zero_shot_classifier(folder, images):
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    model = model.eval()
    names = ["cat", "dog", "fire truck"]
    columns = open_clip.build_zero_shot_classifier(
        model, open_clip.get_tokenizer(f"local-dir:{folder}"), names, TEMPLATES
    )
    with torch.inference_mode():
        embedding = model.encode_image(
            torch.stack([transform(Image.fromarray(i)) for i in images]), normalize=True
        )
        logits = model.logit_scale.exp() * embedding @ columns
    regions = create(folder).detect(images)
    assert_allclose(regions.logits, logits, atol=1e-4)
    assert_allclose(regions.features, embedding, atol=1e-5)
    assert_allclose(
        regions.weight, model.logit_scale.exp().detach() * columns.T, rtol=1e-4, atol=1e-5
    )
    assert_array_equal(regions.bias, np.zeros(3))
    assert_allclose(regions.score, logits.softmax(1).amax(1), rtol=1e-4)
    assert regions.latent.shape == (2, 64 if hasattr(model.visual, "layer3") else 16)
    assert regions.classes == CLASSES
    assert regions.header.whole_images


def test_the_identity_is_that_of_the_weights_wherever_they_are(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert create(folder).identity == create(tmp_path).identity
    assert create(folder).identity != create(folder, templates=TEMPLATES[:1]).identity


def test_a_pickled_adapter_prepares_images_without_its_network(folder, images, tmp_path):
    detector = create(folder)
    detector.header()
    stored = pickle.dumps(detector)
    assert len(stored) < 4000
    again = pickle.loads(stored)
    assert_array_equal(again.prepare(images[0]).pixels, detector.prepare(images[0]).pixels)
    assert "encoder" not in vars(again)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"words": {"cow": "bovine"}}, "'cow' is not one of the classes"),
        ({"templates": ("a photo",)}, "templates"),
        ({"architecture": "ViT-B-32"}, "ViT-B-32"),
        ({"latent": "clip.transformer"}, "no image passes through that module"),
        ({"latent": "clip.visual.layer9"}, r"no module 'clip\.visual\.layer9'"),
    ],
)
def test_a_wrong_parameter_is_named(folder, params, message):
    with pytest.raises(ParameterError, match=message):
        create(folder, **params).header()


def test_one_grey_level_changes_the_input_by_a_255th_of_its_unit(folder):
    detector = create(folder)
    dark, light = (
        detector.prepare(np.full((40, 40, 3), grey, np.uint8)).pixels for grey in (100, 101)
    )
    assert_allclose(
        255 * (light - dark), np.broadcast_to(detector.network.unit(), dark.shape), rtol=1e-3
    )
