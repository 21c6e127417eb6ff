"""CIFAR-10 and CIFAR-100 in miniature, compared with torchvision's reader."""

import pickle

import numpy as np
import pytest
from torchvision import datasets as torchvision

from farther import datasets
from farther.errors import DataError


def binary(labels: np.ndarray, pixels: np.ndarray) -> bytes:
    """CIFAR's binary records: labels of an image, then its planes; pixels are (N, 32, 32, 3)."""
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    return np.hstack([labels.astype(np.uint8), planes]).tobytes()


NAMES = [
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
]
STEMS = [
    "data_batch_1",
    "data_batch_2",
    "data_batch_3",
    "data_batch_4",
    "data_batch_5",
    "test_batch",
]


def test_the_binary_cifar_10_holds_what_torchvision_reads_in_the_python_version(
    lay, random_images, extracted, tmp_path, monkeypatch
):
    labels_of_files = np.array([[3, 8], [0, 6], [1, 9], [2, 5], [4, 7], [3, 3]])
    pixels_of_files = random_images(6, 2, 32, 32, 3)
    python = tmp_path / "cifar-10-batches-py"
    python.mkdir()
    (python / "batches.meta").write_bytes(pickle.dumps({"label_names": NAMES}))
    files = {"cifar-10-batches-bin/batches.meta.txt": "\n".join(NAMES) + "\n\n"}
    for stem, labels, pixels in zip(STEMS, labels_of_files, pixels_of_files, strict=True):
        files[f"cifar-10-batches-bin/{stem}.bin"] = binary(labels[:, None], pixels)
        planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
        content = {"data": planes, "labels": labels.tolist()}
        (python / stem).write_bytes(pickle.dumps(content))

    monkeypatch.setattr(torchvision.cifar, "check_integrity", lambda *_: True)
    expected = torchvision.CIFAR10(tmp_path, train=True)
    images, classes = extracted(datasets.create("cifar", root=lay(files)), "train")
    assert len(expected) == 10
    assert (np.array(images) == expected.data).all()
    assert classes == [expected.classes[target] for target in expected.targets]


def test_cifar_100_has_fine_and_coarse_classes(lay, random_images):
    names = {
        "fine_label_names.txt": "apple\nbaby\nbear\n",
        "coarse_label_names.txt": "fruit\npeople\n",
    }
    train = binary(np.array([[1, 1], [0, 0]]), random_images(2, 32, 32, 3))
    test = binary(np.array([[0, 2]]), random_images(1, 32, 32, 3))
    root = lay({**names, "train.bin": train, "test.bin": test})
    fine = datasets.create("cifar", root=root, classes=100).read("train")
    coarse = datasets.create("cifar", root=root, classes="100 coarse").read("train")
    assert [fine.categories[c] for c in fine.objects.category] == ["baby", "apple"]
    assert [coarse.categories[c] for c in coarse.objects.category] == ["people", "fruit"]


CIFAR10 = {"batches.meta.txt": "airplane\nautomobile\n"}


@pytest.mark.parametrize(
    ("files", "subset", "message"),
    [
        (
            {"cifar-10-batches-py/data_batch_1": b"\x80\x04."},
            None,
            r"cifar-10-batches-py: these are pickles.*unpack cifar-10-binary.tar.gz",
        ),
        (
            {"test_batch.bin": b"\x01" * 3000},
            "test",
            r"test_batch.bin: expected images of 3073 bytes each, found 3000",
        ),
        (
            {"test_batch.bin": b"\x01" * 3073 + b"\x02" * 3073},
            "test",
            r"row \[1\]: field 'label': expected 0 to 1, found 2",
        ),
        ({}, "train", r"data_batch_1.bin: the file does not exist; unpack cifar-10-binary.tar.gz"),
    ],
    ids=["pickles", "cut short", "unknown label", "absent"],
)
def test_what_is_wrong_with_cifar_is_named(lay, files, subset, message):
    reader = datasets.create("cifar", root=lay({**CIFAR10, **files}))
    with pytest.raises(DataError, match=message):
        if subset is None:
            reader.subsets()
        else:
            reader.read(subset)
