"""Scores of whole images from the network's output, beside the papers' formulas per image."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.linalg import null_space
from scipy.special import logsumexp
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from torchvision.transforms._presets import ImageClassification

from farther import detectors, methods
from farther.detectors.classifier import ClassifierBlueprint, OpenOODResNet, save_checkpoint
from farther.detectors.inference import InferenceParams, infer
from farther.tables import Images, RegionsFolder

CLASSES = ("red", "green", "blue", "grey")
COLOURS = np.array([(210, 60, 60), (60, 200, 80), (60, 70, 210), (130, 130, 130)])
NORM = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}
TRANSFORM = ImageClassification(resize_size=24, crop_size=24, **NORM)


class Output:
    """Output of a network for a split's images: h of shape (N, D), z of shape (N, K), float64."""

    def __init__(self, network, images):
        kept = []
        hook = network.fc.register_forward_pre_hook(lambda layer, given: kept.append(given[0]))
        with torch.inference_mode():
            logits = network(torch.stack([TRANSFORM(Image.fromarray(image)) for image in images]))
        hook.remove()
        self.h, self.z = kept[0].double().numpy(), logits.double().numpy()
        self.y = self.z.argmax(axis=1)
        self.weight, self.bias = (
            p.detach().double().numpy() for p in (network.fc.weight, network.fc.bias)
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run over image files with a classifier, and what its network computes."""
    folder = tmp_path_factory.mktemp("whole")
    rng = np.random.default_rng(5)
    torch.manual_seed(3)
    network = OpenOODResNet((6, 8, 10, 12), (1, 1, 1, 1), len(CLASSES))
    pixels = {"train": [], "test": []}
    for split, count, noise in (("train", 120, 40), ("test", 30, 110)):
        for number in range(count):
            drawn = COLOURS[number % 4] + rng.normal(scale=noise, size=(28, 26 + number % 3, 3))
            pixels[split].append(np.clip(drawn, 0, 255).astype(np.uint8))
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        network.train()(
            torch.stack([TRANSFORM(Image.fromarray(image)) for image in pixels["train"]])
        )
        features = Output(network.eval(), pixels["train"]).h
        means = np.stack([features[c::4].mean(axis=0) for c in range(4)])
        network.fc.weight.copy_(torch.from_numpy(means - means.mean(axis=0)) * 6)
        network.fc.bias.copy_(-network.fc.weight @ torch.from_numpy(means.mean(axis=0)).float())
    network.load_state_dict(
        {n: t.half().float() for n, t in network.state_dict().items()}
    )  # as the file stores it
    preprocessing = {"resize": 24, "crop": 24, "interpolation": "bilinear", **NORM}
    path = folder / "network.safetensors"
    save_checkpoint(
        path, network.state_dict(), ClassifierBlueprint("openood_resnet", CLASSES, preprocessing)
    )
    detector = detectors.create("classifier", weights=path, device="cpu")
    regions, outputs = {}, {}
    for split, images in pixels.items():
        for number, image in enumerate(images):
            Image.fromarray(image).save(folder / f"{split}{number}.png")
        table = Images(
            image_id=[f"{split}{number}" for number in range(len(images))],
            dataset=["drawn"] * len(images),
            file=[f"{split}{number}.png" for number in range(len(images))],
            width=[image.shape[1] for image in images],
            height=[image.shape[0] for image in images],
            digest=[""] * len(images),
        )
        params = InferenceParams(batch_size=16, shard_images=50, workers=0)
        infer(
            detector,
            table,
            {"drawn": folder},
            folder / split,
            folder / "work",
            params,
            progress=False,
        )
        regions[split] = RegionsFolder(folder / split)
        outputs[split] = Output(network.eval(), images)
    return regions, outputs


def _knn(train, h, z, y):
    found = NearestNeighbors(n_neighbors=5).fit(normalize(train.h))
    return -found.kneighbors(normalize(h[None]))[0][0, 4]


def _mahalanobis(train, h, z, y):
    means = {c: train.h[train.y == c].mean(axis=0) for c in set(train.y)}
    around = np.stack([h - means[c] for h, c in zip(train.h, train.y, strict=True)])
    shared = EmpiricalCovariance(assume_centered=True).fit(around)
    return -min(shared.mahalanobis((h - mean)[None])[0] for mean in means.values())


def _residuals(train, h):
    origin = -np.linalg.pinv(train.weight) @ train.bias
    principal = np.linalg.eigh((train.h - origin).T @ (train.h - origin))[1][:, -5:]
    return np.linalg.norm((h - origin) @ null_space(principal.T), axis=-1)


def _vim(train, h, z, y):
    alpha = train.z.max(axis=1).sum() / _residuals(train, train.h).sum()
    return logsumexp(z) - alpha * _residuals(train, h)


#: Method → its parameters, and its score of an image: from the output for the training images, and
#: the image's h, z, y. One method each that reads logits, features, features with labels, and the
#: last layer; the rest is in test_formulas.
FORMULAS = {
    "energy": ({"temperature": 2.0}, lambda train, h, z, y: 2 * logsumexp(z / 2)),
    "knn": ({"k": 5}, _knn),
    "mahalanobis": ({}, _mahalanobis),
    "vim": ({"dim": 5}, _vim),
}


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_the_score_of_a_whole_image_is_that_of_the_papers_formula(run, name):
    regions, outputs = run
    params, formula = FORMULAS[name]
    test = outputs["test"]
    expected = [
        float(formula(outputs["train"], h, z, y))
        for h, z, y in zip(test.h, test.z, test.y, strict=True)
    ]
    found = methods.create(name, **params).fit(regions["train"]).score(regions["test"])
    assert len(set(outputs["train"].y)) >= 3
    assert np.ptp(expected) > 1e-3
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5 * np.abs(expected).max())
