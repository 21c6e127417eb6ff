import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from farther.images.plan import Batch
from farther.images.prepare import Preparation, Unusable, map_batches


class Brightness:
    def prepare(self, image, image_id):
        return int(image.max())


@pytest.fixture
def batches(tmp_path):
    """Ten batches of one image each, as bright as the batch's number; `read` counts them."""

    class Batches:
        read = 0

        def __iter__(self):
            for n in range(10):
                Image.new("L", (2, 3), n).save(tmp_path / f"{n}.png")
                self.read += 1
                yield Batch(0, [str(n)], [tmp_path / f"{n}.png"], [(2, 3)])

    return Batches()


PREPARATION = Preparation(Brightness(), 1_000)


@pytest.mark.parametrize("processes", [0, 1, 3])
def test_batches_come_in_order_each_with_its_own_images(batches, processes):
    answers = list(map_batches(PREPARATION, batches, processes))
    assert [(batch.image_ids, items) for batch, items in answers] == [
        ([str(n)], [n]) for n in range(10)
    ]


@pytest.mark.parametrize(("processes", "at_most"), [(0, 3), (1, 4), (2, 6)])
def test_work_is_read_a_bounded_number_of_batches_ahead(batches, processes, at_most):
    stream = map_batches(PREPARATION, batches, processes)
    assert len(list(itertools.islice(stream, 3))) == 3
    assert batches.read <= at_most
    stream.close()


def test_a_stream_that_is_closed_early_reads_no_further(batches):
    stream = map_batches(PREPARATION, batches, 1)
    next(stream)
    stream.close()
    assert batches.read == 2


class Arrays:
    """Gives arrays and tensors, of 200 kB, of a few bytes, and empty."""

    def prepare(self, image, image_id):
        pixels = np.full((3, 200, 333), image.max(), np.uint8)
        tensors = [torch.from_numpy(pixels)[:, :, ::2].float(), torch.arange(int(image_id))]
        return pixels, pixels.astype(np.float64).T, tensors, np.zeros((0, 3)), image_id


@pytest.mark.parametrize("processes", [1, 3])
def test_arrays_and_tensors_come_as_they_are_made_and_can_be_written_to(batches, processes):
    for batch, [(pixels, floats, (half, small), empty, image_id)] in map_batches(
        Preparation(Arrays(), 1_000), batches, processes
    ):
        assert batch.image_ids == [image_id]
        expected = np.full((3, 200, 333), int(image_id))
        np.testing.assert_array_equal(pixels, expected)
        np.testing.assert_array_equal(floats, expected.T)
        np.testing.assert_array_equal(half, expected[:, :, ::2])
        np.testing.assert_array_equal(small, np.arange(int(image_id)))
        assert (pixels.dtype, floats.dtype, half.dtype, empty.shape) == (
            np.uint8,
            np.float64,
            torch.float32,
            (0, 3),
        )
        pixels += 1
        half += 1


class Starved:
    def prepare(self, image, image_id):
        raise MemoryError("no room")


def test_an_error_in_a_worker_that_no_image_caused_reaches_the_caller(batches):
    with pytest.raises(MemoryError, match="no room"):
        list(map_batches(Preparation(Starved(), 1_000), batches, 1))


def test_a_fitting_size_is_usable_and_a_wrong_one_is_named(tmp_path):
    Image.fromarray(np.zeros((3, 2, 3), np.uint8)).save(tmp_path / "a.png")
    fits, too_wide = (
        PREPARATION(Batch(0, ["a"], [tmp_path / "a.png"], [size])) for size in [(2, 3), (3, 3)]
    )
    assert fits == [0]
    assert too_wide == [Unusable("2×3 pixels, but 3×3 in the images table; ingest it again")]
