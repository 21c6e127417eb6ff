"""The adapter of image classifiers, beside torchvision's own models and transforms."""

import json
import pickle
import re

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from safetensors.torch import save_file
from tests.support.cases import slow_but
from tests.support.messages import ABSENT
from torch import nn
from torchvision import models
from torchvision.models import resnet18
from torchvision.transforms import InterpolationMode
from torchvision.transforms._presets import ImageClassification

from farther import detectors
from farther.detectors.classifier import (
    ClassifierBlueprint,
    OpenOODResNet,
    default_latent,
    save_checkpoint,
)
from farther.detectors.inference import InferenceParams, infer
from farther.errors import DataError, ParameterError
from farther.tables import Images, Regions

CLASSES = ("cat", "dog", "fox")
SMALL = {"architecture": "resnet18", "classes": CLASSES, "resize": 40, "crop": 32, "device": "cpu"}


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(3)
    return [
        rng.integers(0, 256, (50, 70, 3), np.uint8),
        rng.integers(0, 256, (90, 40, 3), np.uint8),
    ]


@pytest.fixture(scope="module")
def small():
    """torchvision's ResNet-18 whose logits differ between images."""
    torch.manual_seed(2)
    network = resnet18(num_classes=3).eval()
    nn.init.normal_(network.fc.weight, std=0.5)
    return network


@pytest.fixture(scope="module")
def path(small, tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "model.pth"
    torch.save(small.state_dict(), file)
    return file


def create(path, **params):
    return detectors.create("classifier", weights=path, **{**SMALL, **params})


def preset(images, **params):
    transform = ImageClassification(**params)
    return torch.stack([transform(Image.fromarray(image)) for image in images])


def test_one_region_per_image_has_what_torchvisions_model_gives(small, path, images):
    pixels, inner = preset(images, resize_size=40, crop_size=32), []
    hook = small.layer3.register_forward_hook(lambda module, given, out: inner.append(out))
    with torch.inference_mode():
        logits = small(pixels)
        features = small.avgpool(small.layer4(inner[0])).flatten(1)
    hook.remove()
    regions = create(path).detect(images, ["a", "b"])
    assert regions.image_id.tolist() == ["a", "b"]
    assert_array_equal(regions.box, [[0, 0, 70, 50], [0, 0, 40, 90]])
    assert_allclose(regions.logits, logits, rtol=1e-5)
    assert_allclose(regions.features, features, rtol=1e-4, atol=1e-5)
    assert_allclose(regions.latent, inner[0].mean((2, 3)), rtol=1e-4, atol=1e-5)
    assert_allclose(regions.score, logits.softmax(1).amax(1), rtol=1e-6)
    assert_array_equal(regions.label, logits.argmax(1))
    assert_allclose(regions.features @ regions.weight.T + regions.bias, regions.logits, atol=1e-4)
    assert regions.header.whole_images
    assert regions.classes == CLASSES


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("crop", slow_but((32,), [32, 120]))
def test_images_are_prepared_as_torchvisions_preset_does(path, images, interpolation, crop):
    detector = create(path, resize=45, crop=crop, interpolation=interpolation)
    expected = preset(
        images, resize_size=45, crop_size=crop, interpolation=InterpolationMode(interpolation)
    )
    assert_array_equal(
        detector.network.inputs([detector.prepare(image) for image in images]), expected
    )


def test_torchvisions_presets_are_the_default(tmp_path, images):
    network = models.efficientnet_b0()
    torch.save(network.state_dict(), tmp_path / "b0.pth")
    detector = detectors.create(
        "classifier", weights=tmp_path / "b0.pth", architecture="efficientnet_b0", device="cpu"
    )
    transform = models.EfficientNet_B0_Weights.DEFAULT.transforms()
    expected = torch.stack([transform(Image.fromarray(image)) for image in images])
    assert_array_equal(
        detector.network.inputs([detector.prepare(image) for image in images]), expected
    )
    assert detector.header().classes[:2] == ("tench", "goldfish")
    assert len(set(detector.header().classes)) == 1000


ENDS = {
    "vit_b_32": (768, 768),
    "convnext_tiny": (768, 384),
    "swin_t": (768, 384),
    "mobilenet_v3_small": (1024, 48),
    "regnet_y_400mf": (440, 208),
    "densenet121": (1024, 1024),
    "vgg11": (4096, 512),
    "squeezenet1_1": (None, 384),
}


# The largest networks are slow.
@pytest.mark.parametrize("architecture", slow_but(set(ENDS) - {"vgg11", "vit_b_32"}, sorted(ENDS)))
def test_the_last_linear_layer_of_each_family_is_found(architecture, tmp_path):
    from farther.detectors.whole_images import ClassifierNetwork

    features, latent = ENDS[architecture]
    torch.manual_seed(0)
    network = models.get_model(architecture, num_classes=5).eval()
    side = 224 if architecture.startswith("vit") else 64
    classifier = ClassifierNetwork(
        network, (side, side), default_latent(architecture), channels_last="swin" in architecture
    )
    pixels = torch.rand(2, 3, side, side)
    seen = classifier(pixels)
    with torch.inference_mode():
        assert_array_equal(seen.logits, network(pixels))
    assert seen.latents["latent"].shape == (2, latent)
    weight, bias = classifier.last_layer()
    if features is None:
        assert seen.features is None and weight is None
    else:
        assert seen.features.shape == (2, features)
        assert_allclose(seen.features.numpy() @ weight.T + bias, seen.logits, atol=1e-4)


def openood_state(widths=(4, 6, 8, 10), last="fc"):
    """A state dict with OpenOOD's names, of a network that is computed beside it."""
    torch.manual_seed(1)
    network = OpenOODResNet(widths, (2, 1, 1, 2), 3).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
    nn.init.normal_(network.fc.weight)
    state = {name.replace("downsample", "shortcut"): t for name, t in network.state_dict().items()}
    return network, {name.replace("fc.", f"{last}."): t for name, t in state.items()}


def openood_logits(state, pixels, last):
    """OpenOOD's forward pass, from the weights alone."""

    def norm(x, name):
        values = [
            state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        ]
        return nn.functional.batch_norm(x, *values)

    x = norm(nn.functional.conv2d(pixels, state["conv1.weight"], padding=1), "bn1").relu()
    for stage in range(1, 5):
        for block in range(2):
            name = f"layer{stage}.{block}"
            if f"{name}.conv1.weight" not in state:
                continue
            stride = 2 if stage > 1 and block == 0 else 1
            y = norm(
                nn.functional.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1),
                f"{name}.bn1",
            ).relu()
            y = norm(
                nn.functional.conv2d(y, state[f"{name}.conv2.weight"], padding=1), f"{name}.bn2"
            )
            if f"{name}.shortcut.0.weight" in state:
                x = norm(
                    nn.functional.conv2d(x, state[f"{name}.shortcut.0.weight"], stride=stride),
                    f"{name}.shortcut.1",
                )
            x = (x + y).relu()
    return x.mean((2, 3)) @ state[f"{last}.weight"].T + state[f"{last}.bias"]


@pytest.mark.parametrize(("last", "wrapped"), [("fc", False), ("linear", True)])
def test_openoods_resnet_for_small_images_is_read_by_its_names(tmp_path, images, last, wrapped):
    _, state = openood_state(last=last)
    stored = (
        {"net": {f"module.{name}": t for name, t in state.items()}, "epoch": 3}
        if wrapped
        else state
    )
    torch.save(stored, tmp_path / "best.ckpt")
    norm = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)}
    detector = detectors.create(
        "classifier",
        weights=tmp_path / "best.ckpt",
        architecture="ResNet18_32x32",
        classes=CLASSES,
        device="cpu",
        **norm,
    )
    regions = detector.detect(images)
    expected = openood_logits(state, preset(images, resize_size=32, crop_size=32, **norm), last)
    assert_allclose(regions.logits, expected, rtol=1e-4, atol=1e-4)
    assert regions.features.shape == (2, 10)
    assert regions.latent.shape == (2, 8)


def lenet_state():
    """Weights by the names and in the shapes of OpenOOD's checkpoint of LeNet on MNIST."""
    shapes = {
        "block1.0.weight": (6, 3, 5, 5), "block1.0.bias": (6,),
        "block2.0.weight": (16, 6, 5, 5), "block2.0.bias": (16,),
        "block3.0.weight": (120, 16, 5, 5), "block3.0.bias": (120,),
        "classifier1.weight": (84, 120), "classifier1.bias": (84,),
        "fc.weight": (3, 84), "fc.bias": (3,),
    }  # fmt: skip
    generator = torch.Generator().manual_seed(5)
    return {name: 0.1 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def lenet_features(state, pixels):
    """OpenOOD's forward pass to the input of the last layer, from the weights alone."""
    x = nn.functional.conv2d(
        pixels, state["block1.0.weight"], state["block1.0.bias"], padding=2
    ).relu()
    x = nn.functional.conv2d(
        nn.functional.max_pool2d(x, 2), state["block2.0.weight"], state["block2.0.bias"]
    ).relu()
    x = nn.functional.conv2d(
        nn.functional.max_pool2d(x, 2), state["block3.0.weight"], state["block3.0.bias"]
    ).relu()
    return (x.flatten(1) @ state["classifier1.weight"].T + state["classifier1.bias"]).relu()


@pytest.mark.parametrize("version", ["later", "first"])
def test_openoods_lenet_is_read_by_its_names_and_prepares_images_as_openood_does(
    tmp_path, images, version
):
    state = lenet_state()
    first = {
        name.replace("classifier1.", "classifier.0.").replace("fc.", "classifier.2."): t
        for name, t in state.items()
    }
    torch.save(first if version == "first" else state, tmp_path / "mnist_lenet.ckpt")
    detector = detectors.create(
        "classifier",
        weights=tmp_path / "mnist_lenet.ckpt",
        architecture="LeNet",
        classes=CLASSES,
        device="cpu",
    )
    regions = detector.detect(images)
    pixels = preset(images, resize_size=28, crop_size=28, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    features = lenet_features(state, pixels)
    assert_allclose(regions.features, features, rtol=1e-4, atol=1e-5)
    assert_allclose(
        regions.logits, features @ state["fc.weight"].T + state["fc.bias"], rtol=1e-4, atol=1e-4
    )
    assert regions.latent.shape == (2, 120)


@pytest.mark.parametrize(
    ("params", "change", "message"),
    [
        ({"crop": 32}, {}, "LeNet takes images of 28 pixels, found crop: 32"),
        ({}, {"block1.0.weight": torch.zeros(6, 1, 5, 5)}, r"another shape: block1\.0\.weight"),
        ({"classes": ("cat", "dog")}, {}, r"another shape: fc\."),
    ],
    ids=["size of images", "grey images", "classes"],
)
def test_a_lenet_that_does_not_fit_is_refused(tmp_path, params, change, message):
    torch.save(lenet_state() | change, tmp_path / "lenet.ckpt")
    with pytest.raises(DataError, match=message):
        settings = {"architecture": "LeNet", "classes": CLASSES, "device": "cpu", **params}
        detectors.create("classifier", weights=tmp_path / "lenet.ckpt", **settings).header()


def test_a_file_of_farther_needs_no_parameters(tmp_path, images):
    network, _ = openood_state()
    preprocessing = {
        "resize": 32,
        "crop": 32,
        "mean": [0.5] * 3,
        "std": [0.25] * 3,
        "interpolation": "bicubic",
    }
    blueprint = ClassifierBlueprint("openood_resnet", CLASSES, preprocessing)
    save_checkpoint(
        tmp_path / "small.safetensors", network.state_dict(), blueprint, {"recipe": "{}"}
    )
    detector = detectors.create("classifier", weights=tmp_path / "small.safetensors", device="cpu")
    regions = detector.detect(images)
    assert regions.classes == CLASSES
    other = detectors.create(
        "classifier", weights=tmp_path / "small.safetensors", device="cpu", interpolation="nearest"
    )
    assert not np.array_equal(other.detect(images).logits, regions.logits)


def test_a_run_over_files_gives_the_same_whatever_the_batches_and_workers(path, tmp_path, images):
    for number in range(7):
        Image.fromarray(np.roll(images[number % 2], number, 1)).save(tmp_path / f"{number}.png")
    table = Images(
        image_id=[str(n) for n in range(7)],
        dataset=["files"] * 7,
        file=[f"{n}.png" for n in range(7)],
        width=[(70, 40)[n % 2] for n in range(7)],
        height=[(50, 90)[n % 2] for n in range(7)],
        digest=[""] * 7,
    )
    found = []
    for params in (
        InferenceParams(batch_size=3, shard_images=4, workers=0),
        InferenceParams(batch_size=3, workers=2),
    ):
        out = tmp_path / f"regions{len(found)}"
        infer(
            create(path), table, {"files": tmp_path}, out, tmp_path / "work", params, progress=False
        )
        found.append(Regions.read(out))
    first, second = found
    assert json.loads((tmp_path / "regions0/regions.json").read_text())["whole_images"] is True
    assert first.image_id.tolist() == [str(n) for n in range(7)]
    assert first.header.whole_images
    assert_allclose(first.logits, second.logits, atol=1e-5)


def test_lower_precision_keeps_the_last_layer_exact(path, images):
    regions = create(path, precision="bfloat16", features_dtype="float16").detect(images)
    exact = create(path).detect(images)
    assert regions.features.dtype == np.float16
    assert_allclose(
        regions.features.astype(np.float32) @ regions.weight.T + regions.bias,
        regions.logits,
        atol=0.02,
    )
    assert_allclose(regions.logits, exact.logits, atol=0.3)
    assert not np.array_equal(regions.logits, exact.logits)


def test_latent_is_the_named_modules_output_even_if_a_later_layer_overwrites_it(
    small, path, images
):
    kept = []
    hook = small.bn1.register_forward_hook(lambda module, given, out: kept.append(out.clone()))
    with torch.inference_mode():
        small(preset(images, resize_size=40, crop_size=32))
    hook.remove()
    found = (
        create(path, latent="bn1").detect(images).latent
    )  # torchvision's next layer is a ReLU in place
    assert_allclose(found, kept[0].mean((2, 3)), rtol=1e-4, atol=1e-6)
    assert found.min() < 0


def test_a_pickled_adapter_leaves_its_network_behind(path, images):
    detector = create(path)
    detector.header()
    small = pickle.dumps(detector)
    assert len(small) < 4000
    assert_array_equal(
        pickle.loads(small).prepare(images[0]).pixels, detector.prepare(images[0]).pixels
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"architecture": None}, "give the parameter 'architecture'"),
        ({"architecture": "resnet19"}, "unknown architecture 'resnet19'"),
        ({"architecture": "inception_v3"}, "unknown architecture"),
        ({"preset": "V7"}, "unknown preset of resnet18 'V7'"),
        ({"architecture": "ResNet18_32x32"}, "also needs mean, std"),
        ({"latent": "layer9"}, "no module 'layer9'. Some are conv1"),
        ({"latent": "maxpool.1"}, "no module"),
    ],
)
def test_a_wrong_parameter_is_named(path, params, message):
    with pytest.raises(ParameterError, match=message):
        create(path, **params).header()


def test_a_file_that_does_not_fit_is_refused(path, small, tmp_path):
    with pytest.raises(DataError, match=r"of another shape: fc\.weight"):
        create(path, classes=("cat", "dog")).header()
    with pytest.raises(DataError, match="not a ResNet in OpenOOD's layout"):
        torch.save({"fc.weight": torch.zeros(3, 4)}, tmp_path / "other.pth")
        create(
            tmp_path / "other.pth", architecture="openood_resnet", mean=(0, 0, 0), std=(1, 1, 1)
        ).header()
    save_file(
        {f"model.module.{n}": t for n, t in small.state_dict().items()},
        tmp_path / "wrapped.safetensors",
    )
    assert create(tmp_path / "wrapped.safetensors").header().classes == CLASSES
    with pytest.raises(DataError, match=ABSENT):
        create(tmp_path / "absent.pth").header()


def test_the_older_names_of_densenets_weights_are_read(tmp_path):
    state = models.densenet121(num_classes=3).state_dict()
    older = {
        re.sub(r"(denselayer\d+\.(norm|conv))([12])\.", r"\1.\3.", name): t
        for name, t in state.items()
    }
    assert "features.denseblock1.denselayer1.norm.1.weight" in older
    torch.save(older, tmp_path / "older.pth")
    regions = create(tmp_path / "older.pth", architecture="densenet121").header()
    assert_array_equal(regions.weight, state["classifier.weight"])
