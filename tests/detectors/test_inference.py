"""Inference of one images table: the rows and numbers of a detector's regions."""

from dataclasses import replace

import numpy as np
import pytest
from tests.images.speckles import SMALL, Speckles, World

from farther.errors import DataError
from farther.tables import Regions


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_region_ids_are_the_row_of_the_image_times_65536_plus_the_rank(world):
    regions = Regions.read(world.run("a").path)
    assert regions.region_id[regions.image_id == "image 6"].tolist() == [6 * 65_536, 6 * 65_536 + 1]
    assert regions.region_id[regions.image_id == "image 7"].tolist() == [458_752, 458_753, 458_754]


def test_every_row_holds_what_the_detector_said_of_its_image(world):
    regions = Regions.read(world.run("a").path)
    rows = np.array([int(name.split()[1]) for name in regions.image_id])
    rank = regions.region_id & 0xFFFF
    np.testing.assert_array_equal(
        regions.features, np.stack([rows, 0 * rows + 100, 0 * rows + 50], 1) + rank[:, None]
    )
    assert regions.features.dtype == np.float16
    np.testing.assert_allclose(regions.score, 0.9 - 0.1 * rank, rtol=1e-6)
    np.testing.assert_allclose(regions.features @ regions.weight.T, regions.logits)


def test_more_regions_than_can_be_numbered_are_refused(world):
    class ManyRegions(Speckles):
        def forward(self, prepared, image_ids):
            regions = super().forward(prepared, image_ids)
            if not len(regions):
                return regions
            return regions[np.zeros(65_537, int)]

    with pytest.raises(DataError, match="65537 regions in image 'image 1'"):
        world.run(
            "a",
            ManyRegions(),
            replace(SMALL, batches="table", batch_size=1, shard_images=1, max_failures=1),
        )
