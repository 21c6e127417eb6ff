import pytest
import torch
from torchvision.ops import roi_align

from farther.detectors.networks.pooling import box_means, latent_means, pixels_to_cells
from farther.detectors.settings import Pooling

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


@pytest.mark.parametrize("sampling", [1, 2, 0, -1])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_means_over_boxes_are_those_of_aligned_roi_align(height, width, sampling):
    level = torch.randn(5, height, width, generator=torch.Generator().manual_seed(1))
    boxes = boxes_around(height, width)
    pooled = roi_align(level[None], [boxes], 9, 1.0, sampling, aligned=True).mean((2, 3))
    torch.testing.assert_close(
        box_means(level, boxes, Pooling(9, sampling)), pooled, rtol=1e-5, atol=1e-5
    )


def test_each_box_is_pooled_from_the_level_that_fits_its_size():
    levels = [torch.full((1, 64 >> n, 64 >> n), float(n)) for n in range(3)]  # strides 8, 16 and 32
    boxes = torch.tensor(
        [[50.0, 50, 50 + side, 50 + side] for side in (20, 223, 224, 400, 447, 448)]
    )
    means = latent_means(levels, pixels_to_cells(boxes, levels, 8), 8, Pooling(9, 2))
    # Level 4 + log2(side / 224): of stride 8 (2³) below 224 pixels, 16 below 448, and 32 from there
    # on.
    assert means[:, 0].tolist() == pytest.approx([0, 0, 1, 1, 1, 2])


def test_an_image_without_boxes_has_no_means():
    assert box_means(torch.ones(3, 4, 4), torch.zeros(0, 4), Pooling()).shape == (0, 3)
