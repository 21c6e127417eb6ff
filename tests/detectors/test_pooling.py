import pytest
import torch
from torchvision.ops import MultiScaleRoIAlign, roi_align

from farther.detectors.networks.pooling import box_means, channel_means

SIZES = [(7, 7), (1, 1), (2, 5), (12, 3), (80, 60)]


def boxes_around(height, width, count=200):
    """Corners in cells: most inside the map, some partly or wholly outside, some without extent."""
    generator = torch.Generator().manual_seed(height * 100 + width)
    first = torch.rand(count, 2, generator=generator) * 1.6 - 0.3
    extent = torch.rand(count, 2, generator=generator) ** 2
    extent[:5] = 0
    boxes = torch.cat([first, first + extent], dim=1) * torch.tensor([width, height, width, height])
    boxes[5] = torch.tensor([-9.0, -9, -5, -5])
    boxes[6] = torch.tensor([0.0, 0, width, height])
    return boxes


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("sampling", [1, 2, 0])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_means_over_boxes_are_those_of_roi_align(height, width, sampling, aligned):
    level = torch.randn(5, height, width, generator=torch.Generator().manual_seed(1))
    boxes = boxes_around(height, width)
    pooled = roi_align(level[None], [boxes], 9, 1.0, sampling, aligned=aligned).mean((2, 3))
    torch.testing.assert_close(box_means(level, boxes, 9, sampling, aligned=aligned), pooled, rtol=1e-5, atol=1e-5)


def test_one_level_is_pooled_as_torchvision_pools_a_pyramid_of_one():
    level = torch.randn(2, 5, 6, 8, generator=torch.Generator().manual_seed(2))
    boxes = [32 * boxes_around(6, 8, 20), 32 * boxes_around(6, 8, 7)]
    pool = MultiScaleRoIAlign(["0"], 9, 2)
    expected = pool({"0": level}, boxes, [(192, 256)] * 2).mean((2, 3))
    torch.testing.assert_close(channel_means([level], 32, boxes, 9, 2), expected, rtol=1e-5, atol=1e-5)


def test_an_image_without_boxes_has_no_means():
    assert box_means(torch.ones(3, 4, 4), torch.zeros(0, 4), 9, 2).shape == (0, 3)
