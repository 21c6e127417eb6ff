"""SVHN in miniature: full numbers, and cropped digits compared with torchvision's reader."""

import h5py
import numpy as np
import pytest
from scipy.io import savemat
from torchvision import datasets as torchvision

from farther import datasets
from farther.datasets.ingest import ingest
from farther.errors import DataError
from farther.tables import Objects


def digit_struct(path, numbers: dict[str, list[tuple]]) -> None:
    """Writes a file as MATLAB does.

    It has a reference to the name of each image, and one to the boxes of its digits.

    Args:
        path: The file.
        numbers: Left, top, width, height and label of each digit, by the image's name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (len(numbers), 1)
    with h5py.File(path, "w") as file:
        structure = file.create_group("digitStruct")
        name_references = structure.create_dataset("name", shape, dtype=h5py.ref_dtype)
        box_references = structure.create_dataset("bbox", shape, dtype=h5py.ref_dtype)
        contents = file.create_group("#refs#")
        for row, (name, digits) in enumerate(numbers.items()):
            letters = np.array([[ord(letter)] for letter in name], np.uint16)
            name_references[row, 0] = contents.create_dataset(f"n{row}", data=letters).ref
            box = contents.create_group(f"b{row}")
            box_references[row, 0] = box.ref
            for index, field in enumerate(("left", "top", "width", "height", "label")):
                values = [float(digit[index]) for digit in digits]
                write_field(contents, box, f"{field}{row}", field, values)


def write_field(contents, box, name: str, field: str, values: list[float]) -> None:
    """Writes a field of an image's digits: a value, or one reference per digit."""
    if len(values) == 1:
        box.create_dataset(field, data=np.array([values]))
        return
    references = box.create_dataset(field, (len(values), 1), dtype=h5py.ref_dtype)
    for digit, value in enumerate(values):
        content = contents.create_dataset(f"{name}_{digit}", data=np.array([[value]]))
        references[digit, 0] = content.ref


def test_digits_of_svhn_are_read_from_matlab_s_file(lay, tmp_path):
    root = lay({"train/1.png": (60, 40), "train/2.png": (50, 30)})
    digit_struct(
        root / "train/digitStruct.mat",
        {"1.png": [(3, 4, 10, 20, 1), (15, 4, 9, 20, 10)], "2.png": [(5, 6, 7, 8, 9)]},
    )
    reader = datasets.create("svhn", root=root)
    assert reader.subsets() == ["train"]
    annotations = reader.read("train")
    assert annotations.images.file.tolist() == ["train/1.png", "train/2.png"]
    assert [annotations.categories[c] for c in annotations.objects.category] == ["1", "0", "9"]
    assert annotations.objects.box.tolist() == [[3, 4, 13, 24], [15, 4, 24, 24], [5, 6, 12, 14]]
    ingest(reader, "svhn", tmp_path / "out")
    assert Objects.read(tmp_path / "out/train/objects.parquet").category.tolist() == ["1", "0", "9"]


def test_a_wrong_label_of_svhn_is_named(lay):
    root = lay({"test/1.png": (60, 40)})
    digit_struct(root / "test/digitStruct.mat", {"1.png": [(3, 4, 10, 20, 11)]})
    with pytest.raises(
        DataError,
        match=r"digitStruct.mat: row digitStruct\(1\): field 'label': expected 1 to 10, found 11",
    ):
        datasets.create("svhn", root=root).read("test")


@pytest.mark.parametrize("damage", ["not HDF5", "another structure", "link"])
def test_a_damaged_file_of_svhn_is_named(lay, damage):
    root = lay({"test/1.png": (60, 40), "test/digitStruct.mat": b"nothing"})
    if damage != "not HDF5":
        with h5py.File(root / "test/digitStruct.mat", "w") as file:
            if damage == "link":
                digit_struct(root / "other.mat", {"1.png": [(3, 4, 10, 20, 1)]})
                file["digitStruct"] = h5py.ExternalLink(str(root / "other.mat"), "/digitStruct")
            else:
                file["digitStruct/name"] = np.zeros((2, 1))
    with pytest.raises(
        DataError, match=r"digitStruct.mat: row digitStruct\(1\): not SVHN's digitStruct.mat"
    ):
        datasets.create("svhn", root=root).read("test")


@pytest.mark.parametrize("compressed", [True, False])
def test_cropped_digits_of_svhn_are_read_as_torchvision_reads_them(
    random_images, extracted, tmp_path, monkeypatch, compressed
):
    content = {"X": random_images(32, 32, 3, 3), "y": np.array([[1], [10], [5]], np.uint8)}
    savemat(tmp_path / "test_32x32.mat", content, do_compression=compressed)
    monkeypatch.setattr(torchvision.SVHN, "_check_integrity", lambda self: True)
    expected = torchvision.SVHN(tmp_path, split="test")
    reader = datasets.create("svhn_cropped", root=tmp_path)
    assert reader.subsets() == ["test"]
    images, classes = extracted(reader, "test")
    assert (np.array(images) == expected.data.transpose(0, 2, 3, 1)).all()
    assert classes == [str(label) for label in expected.labels] == ["1", "0", "5"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[1], [11]])},
            r"row \[1\]: field 'y': .* found 11",
        ),
        (
            {"X": np.zeros((32, 32, 2), np.uint8), "y": np.array([[1]])},
            r"expected X: uint8 \(32, 32, 3, N\)",
        ),
        ({"Z": np.zeros(2)}, r"expected X: uint8 \(32, 32, 3, N\)"),
        (b"MATLAB 5.0 nothing", "not a MATLAB file of version 5"),
    ],
)
def test_a_damaged_file_of_cropped_digits_is_named(tmp_path, content, message):
    file = tmp_path / "train_32x32.mat"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        savemat(file, content)
    with pytest.raises(
        DataError, match=rf"train_32x32.mat: .*{message}|train_32x32.mat: {message}"
    ):
        datasets.create("svhn_cropped", root=tmp_path).read("train")


@pytest.mark.parametrize("at", [145, 184, 185], ids=["class of an array", "type", "type"])
def test_a_flipped_bit_of_cropped_digits_never_ends_the_process(random_images, tmp_path, at):
    file = tmp_path / "train_32x32.mat"
    savemat(file, {"X": random_images(32, 32, 3, 4), "y": np.array([[1], [2], [3], [4]])})
    intact = file.read_bytes()
    for bit in range(8):
        damaged = bytearray(intact)
        damaged[at] ^= 1 << bit
        file.write_bytes(damaged)
        try:
            annotations = datasets.create("svhn_cropped", root=tmp_path).read("train")
        except DataError as error:
            assert "train_32x32.mat" in str(error)
        else:
            assert len(annotations.images) == 4


@pytest.mark.parametrize("length", [0, 100, 128, 140, 200, -1])
def test_a_truncated_file_of_cropped_digits_is_named(random_images, tmp_path, length):
    file = tmp_path / "train_32x32.mat"
    savemat(file, {"X": random_images(32, 32, 3, 1), "y": np.array([[1]])})
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(DataError, match=r"train_32x32\.mat: "):
        datasets.create("svhn_cropped", root=tmp_path).read("train")
