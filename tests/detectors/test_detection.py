"""Steps of inference that all detection networks share."""

import numpy as np
import pytest
import torch
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from farther.detectors.networks.detection import (
    ImageDetections,
    as_floats,
    detection_columns,
    network_input,
    pyramid_latent,
)
from farther.detectors.networks.msra import PIXEL_MEAN, BlueGreenRed
from farther.detectors.settings import Pooling

CPU = torch.device("cpu")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture
def images():
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (height, 64, 3), np.uint8) for height in (48, 80, 40)]


@pytest.mark.parametrize(
    "transform",
    [
        GeneralizedRCNNTransform(96, 128, MEAN, STD),
        BlueGreenRed(96, 128, PIXEL_MEAN, (1.0, 1.0, 1.0)),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_the_networks_input_is_torchvisions_bit_for_bit(transform, images):
    transform = transform.eval()
    floats = [torch.from_numpy(image).permute(2, 0, 1).float() / 255 for image in images]
    before = [image.clone() for image in floats]
    expected, _ = transform(floats)
    for batch_images in (images, floats):
        batch = network_input(transform, batch_images, CPU)
        assert torch.equal(batch.tensors, expected.tensors)
        assert batch.image_sizes == [tuple(size) for size in expected.image_sizes]
    assert all(map(torch.equal, floats, before))  # tensors that were given stay as they are


def test_bytes_become_floats_between_0_and_1():
    image = np.array([[[0, 51, 255]]], np.uint8)
    assert as_floats(image, CPU).flatten().tolist() == pytest.approx([0, 0.2, 1])


def test_rows_of_all_images_are_numbered_through_and_have_their_images_name():
    detections = []
    for count in (2, 0, 1):
        rows = torch.arange(count)
        detections.append(ImageDetections(torch.zeros(count, 4), rows / 10, rows + 1, rows))
    boxes = [torch.full((len(image.rows), 4), 5.0) for image in detections]
    columns = detection_columns(detections, boxes, ["a", "b", "c"])
    assert columns["image_id"].tolist() == ["a", "a", "c"]
    assert columns["region_id"].tolist() == [0, 1, 2]
    assert columns["label"].tolist() == [1, 2, 1]
    assert columns["label"].dtype == np.int16
    assert (columns["box"] == 5).all()


def test_published_boxes_are_scaled_by_the_width_of_the_image_as_given():
    # Columns 0 and 1 of the map are 0, columns 2 and 3 are 1.
    level = torch.tensor([0.0, 0, 1, 1]).expand(1, 1, 4, 4)
    input_boxes = [torch.tensor([[16.0, 0, 32, 32]])]  # the right half of an input of 32 pixels
    image_boxes = [torch.tensor([[0.0, 0, 32, 64]])]  # the left half of an image of 64 pixels
    for published, expected in ((False, 1.0), (True, 0.0)):
        pooling = Pooling(size=2, sampling=1, published_rois=published)
        latent = pyramid_latent([level], 8, input_boxes, image_boxes, [64], pooling)
        assert latent.item() == pytest.approx(expected, abs=0.26)
