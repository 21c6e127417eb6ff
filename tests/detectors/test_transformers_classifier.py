"""The adapter of transformers' image classifiers, beside their own models and processors."""

import json

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForImageClassification,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
)

from farther import detectors
from farther.errors import DataError, ParameterError

CLASSES = {0: "cat", 1: "dog", 2: "fox"}
SMALL = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_attention_heads": 2,
}
STAGES = {"embedding_size": 4, "hidden_sizes": [4, 8, 12, 16], "depths": [1, 1, 1, 1]}
#: Networks by model type: configuration, number of features, number of channels of the default
#: latent.
KINDS = {
    "vit": ({**SMALL, "num_hidden_layers": 4}, 16, 16),
    "deit": ({**SMALL, "num_hidden_layers": 4}, 16, 16),
    "dinov2": ({**SMALL, "num_hidden_layers": 4}, 32, 16),
    "swin": (
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [1, 1, 1],
            "num_heads": [1, 2, 2],
            "window_size": 4,
        },
        32,
        32,
    ),
    "resnet": ({**STAGES, "layer_type": "basic"}, 16, 12),
    "convnext": ({"hidden_sizes": [4, 8, 12, 16], "depths": [1, 1, 1, 1]}, 16, 12),
}
PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": 32, "width": 32},
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4],
}


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(3)
    return [
        rng.integers(0, 256, (50, 70, 3), np.uint8),
        rng.integers(0, 256, (90, 40, 3), np.uint8),
    ]


def save(folder, kind, architecture=None):
    """A folder as transformers saves it, of a network whose logits differ between images."""
    torch.manual_seed(4)
    config = AutoConfig.for_model(
        kind, id2label=CLASSES, label2id={n: k for k, n in CLASSES.items()}, **KINDS[kind][0]
    )
    builder = (
        DeiTForImageClassification
        if kind == "deit"
        else AutoModelForImageClassification.from_config
    )
    network = (architecture or builder)(config).eval()
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.normal_(module.weight, std=0.4)
    network.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return network


def create(folder, **params):
    return detectors.create("transformers_classifier", weights=folder, device="cpu", **params)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_logits_and_features_are_those_of_transformers(kind, tmp_path, images):
    save(tmp_path, kind)
    network = AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    inputs = AutoImageProcessor.from_pretrained(tmp_path)(images=images, return_tensors="pt")
    with torch.inference_mode():
        logits = network(**inputs).logits
    regions = create(tmp_path).detect(images)
    _, features, latent = KINDS[kind]
    assert_allclose(regions.logits, logits, rtol=1e-5, atol=1e-5)
    assert regions.logits.std() > 0.01
    assert_array_equal(regions.box, [[0, 0, 70, 50], [0, 0, 40, 90]])
    assert regions.classes == ("cat", "dog", "fox")
    assert regions.header.whole_images
    assert regions.features.shape == (2, features)
    assert_allclose(
        regions.features @ regions.weight.T + regions.bias, regions.logits, rtol=1e-3, atol=1e-3
    )
    assert regions.latent.shape == (2, latent)


def test_latent_is_the_mean_over_the_tokens_of_the_named_layer(tmp_path, images):
    save(tmp_path, "vit")
    network = AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    inputs = AutoImageProcessor.from_pretrained(tmp_path)(images=images, return_tensors="pt")
    with torch.inference_mode():
        states = network(**inputs, output_hidden_states=True).hidden_states
    name = next(n for n, m in network.named_modules() if isinstance(m, nn.ModuleList))
    assert_allclose(create(tmp_path).detect(images).latent, states[3].mean(1), rtol=1e-4, atol=1e-5)
    assert_allclose(
        create(tmp_path, latent=f"{name}.0").detect(images).latent,
        states[1].mean(1),
        rtol=1e-4,
        atol=1e-5,
    )
    with pytest.raises(ParameterError, match=r"no module 'encoder\.stages'"):
        create(tmp_path, latent="encoder.stages").header()


def test_a_network_that_averages_two_heads_has_no_last_layer(tmp_path, images):
    save(tmp_path, "deit", DeiTForImageClassificationWithTeacher)
    network = DeiTForImageClassificationWithTeacher.from_pretrained(tmp_path).eval()
    inputs = AutoImageProcessor.from_pretrained(tmp_path)(images=images, return_tensors="pt")
    with torch.inference_mode():
        logits = network(**inputs).logits
    regions = create(tmp_path, classes=("x", "y", "z")).detect(images)
    assert_allclose(regions.logits, logits, rtol=1e-5, atol=1e-5)
    assert regions.features is None
    assert not regions.has("last_layer")
    assert regions.classes == ("x", "y", "z")


def test_code_in_a_folder_is_not_run(tmp_path):
    save(tmp_path, "resnet")
    config = json.loads((tmp_path / "config.json").read_text())
    mapped = {"AutoConfig": "code.C", "AutoModelForImageClassification": "code.M"}
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "model_type": "new_type", "auto_map": mapped})
    )
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(DataError, match="contains custom code which must be executed"):
        create(tmp_path).header()
    assert not (tmp_path / "ran").exists()


def test_weights_that_do_not_fit_are_refused(tmp_path):
    save(tmp_path, "resnet")
    state = load_file(tmp_path / "model.safetensors")
    save_file(
        {n: t for n, t in state.items() if n != "classifier.1.bias"},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(
        DataError, match=r"do not fit ResNetForImageClassification. missing: classifier\.1\.bias"
    ):
        create(tmp_path).header()
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(DataError, match=r"preprocessor_config\.json.* does not exist"):
        create(tmp_path).header()
    with pytest.raises(DataError, match="expected a folder as transformers saves it"):
        create(tmp_path / "absent.safetensors").header()


@pytest.mark.parametrize(
    "changes", [{}, {"do_normalize": False}, {"do_rescale": False}, {"rescale_factor": 0.5 / 255}]
)
def test_one_grey_level_changes_the_input_by_a_255th_of_its_unit(changes, tmp_path):
    save(tmp_path, "resnet")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, **changes}))
    detector = create(tmp_path)
    dark, light = (
        detector.prepare(np.full((40, 40, 3), grey, np.uint8)).pixels for grey in (100, 101)
    )
    assert_allclose(
        255 * (light - dark), np.broadcast_to(detector.network.unit(), dark.shape), rtol=1e-3
    )
