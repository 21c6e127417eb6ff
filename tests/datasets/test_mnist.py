"""MNIST in miniature, compared with torchvision's reader."""

import gzip
import shutil

import numpy as np
import pytest
from torchvision import datasets as torchvision

from farther import datasets
from farther.errors import DataError


def idx(values: np.ndarray) -> bytes:
    """An idx file of bytes."""
    magic = bytes((0, 0, 8, values.ndim))
    shape = np.array(values.shape, ">u4")
    return magic + shape.tobytes() + values.tobytes()


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_are_read_as_torchvision_reads_them(lay, random_images, extracted, zipped):
    pixels = idx(random_images(5, 28, 28))
    labels = idx(np.array([7, 2, 1, 0, 4], np.uint8))
    files = {
        "MNIST/raw/train-images-idx3-ubyte": pixels,
        "MNIST/raw/train-labels-idx1-ubyte": labels,
        "MNIST/raw/t10k-images-idx3-ubyte": pixels,
        "MNIST/raw/t10k-labels-idx1-ubyte": labels,
    }
    root = lay(files)
    expected = torchvision.MNIST(root, train=False)
    if zipped:
        shutil.rmtree(root / "MNIST")
        lay({f"{name}.gz": gzip.compress(content) for name, content in files.items()})
    images, classes = extracted(datasets.create("mnist", root=root), "test")
    assert (np.array(images) == expected.data.numpy()).all()
    assert classes == [str(label) for label in expected.targets.tolist()]


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (
            gzip.compress(idx(np.arange(256, dtype=np.uint8).reshape(4, 8, 8)))[:-20],
            b"",
            r"gz: not readable gzip: .*is the file complete\?",
        ),
        (
            b"\0\0\x0d\x03",
            idx(np.zeros(1, np.uint8)),
            "idx3-ubyte: expected an idx file of bytes with 3 dimensions",
        ),
        (
            idx(np.zeros((2, 4, 4), np.uint8))[:-1],
            b"",
            "idx3-ubyte: expected 2 × 4 × 4 bytes of values, found 31",
        ),
        (
            idx(np.zeros((2, 4, 4), np.uint8)),
            idx(np.zeros(3, np.uint8)),
            "idx1-ubyte: 3 labels of 2 images",
        ),
        (
            idx(np.zeros((1, 4, 4), np.uint8)),
            idx(np.full(1, 10, np.uint8)),
            r"row \[0\]: .*expected 0 to 9, found 10",
        ),
    ],
)
def test_a_damaged_idx_file_is_named(lay, images, labels, message):
    zipped = ".gz" if images[:2] == b"\x1f\x8b" else ""
    root = lay({f"t10k-images-idx3-ubyte{zipped}": images, "t10k-labels-idx1-ubyte": labels})
    with pytest.raises(DataError, match=message):
        datasets.create("mnist", root=root).read("test")
