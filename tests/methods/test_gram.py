"""Gram matrices: the stored rows against matrices written out, the scores against pytorch-ood's."""

import numpy as np
import pytest
import torch
from pytorch_ood.detector import Gram as Peer
from torch import nn
from torchvision.ops import roi_align

from farther import methods
from farther.detectors.networks.grams import gram_rows
from farther.detectors.networks.taps import Taps
from farther.detectors.settings import Layers, Pooling
from farther.detectors.whole_images import ClassifierNetwork
from farther.errors import ParameterError
from farther.methods import FitError
from farther.tables import Regions


def written_out(activations: np.ndarray, powers: int) -> np.ndarray:
    """Means of the rows of all C × C matrices of a map (C, n)."""
    rows = []
    for p in range(1, powers + 1):
        matrix = activations.astype(np.float64) ** p @ (activations.astype(np.float64) ** p).T
        mean = matrix.mean(axis=1) / activations.shape[1]
        rows.append(np.sign(mean) * np.abs(mean) ** (1 / p))
    return np.concatenate(rows)


def test_rows_are_those_of_the_matrices_whatever_the_scale():
    maps = np.random.default_rng(0).normal(size=(3, 6, 20)).astype(np.float32)
    maps[1] *= 1e12  # whose tenth powers overflow
    maps[2] = 0
    found = gram_rows(torch.from_numpy(maps), 10).numpy()
    for rows, activations in zip(found, maps, strict=True):
        np.testing.assert_allclose(rows, written_out(activations, 10), rtol=1e-5)


def test_rows_of_boxes_are_those_of_their_aligned_cells():
    network = nn.Sequential(nn.Conv2d(3, 5, 3, stride=4))
    boxes = [torch.tensor([[3.0, 5.0, 30.0, 28.0], [0.0, 0.0, 64.0, 48.0]]), torch.zeros(0, 4)]
    images = torch.rand(2, 3, 48, 64)
    with torch.inference_mode(), Taps(network, Layers(("0",), ("0",), 3)) as taps:
        maps = network(images)
    found = taps.over_boxes(boxes, (48, 64), Pooling(4, 2))
    scale = torch.tensor([maps.shape[3] / 64, maps.shape[2] / 48] * 2)
    cells = roi_align(maps[:1], [boxes[0] * scale], 4, 1.0, 2, aligned=True).flatten(2).numpy()
    np.testing.assert_allclose(
        found["gram.0"], [written_out(of_box, 3) for of_box in cells], rtol=1e-4
    )
    np.testing.assert_allclose(found["latent.0"], cells.mean(axis=2), rtol=1e-4)


@pytest.fixture(scope="module")
def run():
    """Training and test images, the network's regions of them, and the network."""
    torch.manual_seed(1)
    first, second = nn.Sequential(nn.Conv2d(3, 6, 3), nn.Softplus()), nn.Conv2d(6, 8, 3, stride=2)
    network = nn.Sequential(
        first, second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    ).eval()
    with torch.no_grad():
        nn.init.normal_(network[4].weight, std=20)
        images = torch.rand(160, 3, 12, 12) * torch.rand(160, 3, 1, 1)
        network[4].bias -= network(images).mean(0)
    classifier = ClassifierNetwork(network, (12, 12), layers=Layers((), ("0", "1"), 4))
    images = {"train": images, "test": torch.rand(30, 3, 12, 12) * 2 - 0.5}
    return (
        network,
        images,
        {split: classified(classifier, split, pixels) for split, pixels in images.items()},
    )


def classified(classifier: ClassifierNetwork, split: str, pixels: torch.Tensor) -> Regions:
    seen = classifier(pixels)
    count = len(pixels)
    return Regions(
        image_id=[f"{split}{number}" for number in range(count)],
        region_id=np.arange(count),
        box=np.tile([0.0, 0.0, 12.0, 12.0], (count, 1)),
        score=seen.logits.softmax(1).amax(1),
        label=seen.logits.argmax(1).numpy(),
        logits=seen.logits.numpy(),
        **{name: values.numpy() for name, values in seen.latents.items()},
    )


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
def test_scores_are_those_of_pytorch_ood_given_the_same_images_held_out(run, protocol):
    network, images, regions = run
    method = methods.create("gram", layer=["0", "1"], held_out=0.4, protocol=protocol).fit(
        regions["train"]
    )
    held_out = np.concatenate(
        [part.region_id for part in method._part(regions["train"], held_out=True)]
    )
    assert 45 < len(held_out) < 85
    peer = Peer(network[2:], [network[0], network[1]], 3, num_poles_list=[1, 2, 3, 4]).to("cpu")
    peer.validation_fraction = 0.0
    labels = torch.from_numpy(regions["train"].label.astype(np.int64))
    kept = np.setdiff1d(np.arange(160), held_out)
    peer.fit([(images["train"][kept], labels[kept])])
    only = []
    for layer in range(
        2
    ):  # the deviations of one layer at a time: the norms of the others are infinite
        peer.layer_norm = torch.tensor([1.0 if layer == number else np.inf for number in range(2)])
        only.append(float(peer.predict(images["train"][held_out]).mean()))
    assert min(only) > 0
    peer.layer_norm = torch.tensor(only)
    expected = -peer.predict(images["test"]).numpy()
    if protocol == "published-code":
        expected /= regions["test"].score
    module = method.to_torch()
    for scores in (method.score(regions["test"]), module.score_regions(regions["test"])):
        np.testing.assert_allclose(scores, expected, rtol=1e-3)
    assert set(regions["train"].label) == {0, 1, 2}


def test_too_few_images_to_hold_some_out_are_refused(run):
    _, _, regions = run
    with pytest.raises(FitError, match="gram: no training image is held out"):
        methods.create("gram", layer=["0"], held_out=1e-9).fit(regions["train"])
    with pytest.raises(ParameterError, match="layer"):
        methods.create("gram", layer=[])
