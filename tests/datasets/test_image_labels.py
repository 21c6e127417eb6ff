"""Datasets that label whole images, in miniature, compared with torchvision's readers."""

import gzip
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from torchvision import datasets as torchvision

from farther import datasets
from farther.datasets.ingest import ingest
from farther.datasets.presence import EXTRACTED, missing
from farther.errors import DataError
from farther.tables import Images, Objects

# ---------------------------------------------------------------------------------------------------
# image folders


def test_class_folders_are_read_as_torchvision_reads_them(lay, tmp_path):
    root = lay({
        "train/dog/b.png": (8, 6), "train/dog/deeper/a.JPG": (9, 5), "train/cat/1.webp": (7, 7),
        "train/cat/notes.txt": "no image", "test/cat/1.png": (5, 4),
    })  # fmt: skip
    reader = datasets.create("image_folder", root=root)
    assert reader.subsets() == ["test", "train"]
    found = reader.read("train")
    theirs = torchvision.ImageFolder(root / "train")
    assert found.categories == theirs.classes
    paths = [str(root / file) for file in found.images.file]
    assert list(zip(paths, found.objects.category.tolist(), strict=True)) == theirs.samples
    counts = {"images": 3, "objects": 3, "categories": 2, "warnings": 0}
    assert ingest(reader, "pets", tmp_path / "out")["train"] == counts


def test_a_label_is_one_object_as_large_as_its_image(lay, tmp_path):
    root = lay({"val/cat/1.png": (70, 50), "val/cat/2.png": (33, 21)})
    ingest(datasets.create("image_folder", root=root), "pets", tmp_path)
    images, objects = (
        Images.read(tmp_path / "val/images.parquet"),
        Objects.read(tmp_path / "val/objects.parquet"),
    )
    assert images.image_id.tolist() == objects.image_id.tolist() == ["cat/1.png", "cat/2.png"]
    assert objects.box.tolist() == [[0, 0, 70, 50], [0, 0, 33, 21]]


def test_a_set_of_images_without_classes_has_one_category(lay):
    root = lay({"images/banded/1.jpg": (8, 8), "images/2.jpg": (8, 8)})
    reader = datasets.create(
        "image_folder", root=root, folders={"all": "images"}, category="texture"
    )
    found = reader.read("all")
    assert reader.subsets() == ["all"]
    assert found.categories == ["texture"]
    assert sorted(found.images.file) == ["images/2.jpg", "images/banded/1.jpg"]
    flat = datasets.create(
        "image_folder", root=root / "images/banded", folders={"test": "."}, category="texture"
    )
    assert flat.read("test").images.file.tolist() == ["1.jpg"]


def test_class_folders_may_be_renamed_and_merged(lay):
    root = lay(
        {
            "val/n02123045/1.png": (4, 4),
            "val/n02123159/2.png": (4, 4),
            "val/n02084071/3.png": (4, 4),
        }
    )
    names = {"n02123045": "cat", "n02123159": "cat"}
    found = datasets.create("image_folder", root=root, renamed=names).read("val")
    assert found.categories == ["n02084071", "cat"]
    assert found.objects.category.tolist() == [0, 1, 1]


def test_images_beside_class_folders_are_listed(lay):
    found = datasets.create(
        "image_folder", root=lay({"val/cat/1.png": (4, 4), "val/2.png": (4, 4)})
    ).read("val")
    assert [(w.kind, w.file, w.found) for w in found.warnings] == [
        ("images without a class", "val", "1 images")
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"val/1.png": (4, 4)},
            "root/val: no folder of a class; for images of one class write: category: <its name>",
        ),
        ({"val/cat/1.txt": "x"}, "root/val/cat: no images here; known extensions: .jpg"),
        ({"other/cat/1.png": (4, 4)}, "root/val: the folder does not exist; parameter 'folders'"),
    ],
)
def test_a_folder_without_images_of_classes_is_named(lay, files, message):
    with pytest.raises(DataError, match=message):
        datasets.create("image_folder", root=lay(files)).read("val")


# ------------------------------------------------------------------------------------- pixels in
# arrays: CIFAR and SVHN


def random_images(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, shape, dtype=np.uint8)


def written(reader, subset, tmp_path) -> tuple[list[np.ndarray], list[str]]:
    """Pixels of the files that ingest writes, and their classes."""
    ingest(reader, "digits", tmp_path / "tables")
    images = Images.read(tmp_path / "tables" / subset / "images.parquet")
    objects = Objects.read(tmp_path / "tables" / subset / "objects.parquet")
    assert images.image_id.tolist() == objects.image_id.tolist()
    assert (
        objects.box == [[0, 0, w, h] for w, h in zip(images.width, images.height, strict=True)]
    ).all()
    folder = tmp_path / "tables" / EXTRACTED
    return [np.array(Image.open(folder / file)) for file in images.file], objects.category.tolist()


def binary(labels: np.ndarray, pixels: np.ndarray) -> bytes:
    """CIFAR's binary records: the labels of an image, then its planes; pixels are (N, 32, 32, 3)."""
    return np.hstack(
        [labels.astype(np.uint8), pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)]
    ).tobytes()


def cifar10(lay, pixels: np.ndarray, labels: list[int]):
    names = [
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
    files = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    content = {
        f"cifar-10-batches-bin/{file}.bin": binary(np.array(part)[:, None], images)
        for file, part, images in zip(
            files, np.array_split(labels, 6), np.array_split(pixels, 6), strict=True
        )
    }
    return lay(
        {**content, "cifar-10-batches-bin/batches.meta.txt": "\n".join(names) + "\n\n"}
    ), names


def test_the_binary_cifar_10_holds_what_torchvision_reads_in_the_python_version(
    lay, tmp_path, monkeypatch
):
    pixels, labels = random_images(12, 32, 32, 3), [3, 8, 0, 6, 1, 9, 2, 5, 4, 7, 3, 3]
    root, names = cifar10(lay, pixels, labels)
    monkeypatch.setattr(torchvision.cifar, "check_integrity", lambda *_: True)
    python = tmp_path / "cifar-10-batches-py"
    python.mkdir()
    stems = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    for stem, part, images in zip(
        stems, np.array_split(labels, 6), np.array_split(pixels, 6), strict=True
    ):
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        (python / stem).write_bytes(pickle.dumps({"data": planes, "labels": part.tolist()}))
    (python / "batches.meta").write_bytes(pickle.dumps({"label_names": names}))
    theirs = torchvision.CIFAR10(tmp_path, train=True)
    images, classes = written(datasets.create("cifar", root=root), "train", tmp_path)
    assert len(theirs) == 10
    assert (np.array(images) == theirs.data).all()
    assert classes == [theirs.classes[target] for target in theirs.targets]


def test_cifar_100_has_fine_and_coarse_classes(lay):
    names = {
        "fine_label_names.txt": "apple\nbaby\nbear\n",
        "coarse_label_names.txt": "fruit\npeople\n",
    }
    root = lay({**names, "train.bin": binary(np.array([[1, 1], [0, 0]]), random_images(2, 32, 32, 3)),
                "test.bin": binary(np.array([[0, 2]]), random_images(1, 32, 32, 3))})  # fmt: skip
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
        reader.read(subset) if subset else reader.subsets()


def idx(values: np.ndarray) -> bytes:
    """An idx file of bytes."""
    return (
        bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()
    )


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_are_read_as_torchvision_reads_them(lay, tmp_path, zipped):
    pixels, labels = random_images(5, 28, 28), np.array([7, 2, 1, 0, 4], np.uint8)
    files = {f"MNIST/raw/{name}-{kind}-ubyte": idx(values) for name in ("train", "t10k")
             for kind, values in (("images-idx3", pixels), ("labels-idx1", labels))}  # fmt: skip
    theirs = torchvision.MNIST(lay(files), train=False)
    zips = {f"{name}.gz": gzip.compress(content) for name, content in files.items()}
    root = theirs.root
    if zipped:
        shutil.rmtree(Path(root) / "MNIST")
        lay(zips)
    images, classes = written(datasets.create("mnist", root=root), "test", tmp_path)
    assert (np.array(images) == theirs.data.numpy()).all()
    assert classes == [str(label) for label in theirs.targets.tolist()]


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (
            gzip.compress(idx(random_images(3, 28, 28)))[:-20],
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


def test_cropped_digits_of_svhn_are_read_as_torchvision_reads_them(tmp_path, monkeypatch):
    labels = np.array([[1], [10], [5]], np.uint8)
    savemat(
        tmp_path / "test_32x32.mat",
        {"X": random_images(32, 32, 3, 3), "y": labels},
        do_compression=True,
    )
    monkeypatch.setattr(torchvision.SVHN, "_check_integrity", lambda self: True)
    theirs = torchvision.SVHN(tmp_path, split="test")
    reader = datasets.create("svhn_cropped", root=tmp_path)
    assert reader.subsets() == ["test"]
    images, classes = written(reader, "test", tmp_path)
    assert (np.array(images) == theirs.data.transpose(0, 2, 3, 1)).all()
    assert classes == [str(label) for label in theirs.labels] == ["1", "0", "5"]


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
    file.write_bytes(content) if isinstance(content, bytes) else savemat(file, content)
    with pytest.raises(
        DataError, match=rf"train_32x32.mat: .*{message}|train_32x32.mat: {message}"
    ):
        datasets.create("svhn_cropped", root=tmp_path).read("train")


# --------------------------------------------------------------------------------------- lists of
# images of OpenOOD

OPENOOD = {
    "benchmark_imglist/cifar10/test_cifar10.txt": "cifar10/test/airplane/0298.png 0\ncifar10/test/cat/1.png 2\n",
    "benchmark_imglist/cifar10/test_texture.txt": "texture/banded/a b.jpg -1\n\n",
    "benchmark_imglist/cifar10/test_tin.txt": "tin/val/n1.jpg 17\ntin/val/n2.jpg 3\n",
    "images_classic/cifar10/test/airplane/0298.png": (32, 32),
    "images_classic/cifar10/test/cat/1.png": (32, 32),
    "images_classic/texture/banded/a b.jpg": (70, 50),
    "images_classic/tin/val/n1.jpg": (64, 64),
    "images_classic/tin/val/n2.jpg": (64, 64),
}


def imglist(root, **params):
    lists = "benchmark_imglist/cifar10/{subset}.txt"
    return datasets.create("imglist", root=root, lists=lists, images="images_classic", **params)


def test_lists_of_openood_are_read_from_its_folders(lay, tmp_path):
    reader = imglist(lay(OPENOOD), categories=["airplane", "automobile", "cat"])
    assert reader.subsets() == ["test_cifar10", "test_texture", "test_tin"]
    found = reader.read("test_cifar10")
    assert found.images.image_id.tolist() == [
        "cifar10/test/airplane/0298.png",
        "cifar10/test/cat/1.png",
    ]
    assert found.images.file[0] == "images_classic/cifar10/test/airplane/0298.png"
    assert [found.categories[c] for c in found.objects.category] == ["airplane", "cat"]
    only = imglist(reader.root, subset_names=["test_texture"])
    assert ingest(only, "ood", tmp_path)["test_texture"] == {
        "images": 1,
        "objects": 1,
        "categories": 1,
        "warnings": 0,
    }
    assert Objects.read(tmp_path / "test_texture/objects.parquet").box.tolist() == [[0, 0, 70, 50]]


@pytest.mark.parametrize(
    ("params", "subset", "classes"),
    [
        ({"categories": ["airplane", "automobile", "cat"]}, "test_texture", ["unknown"]),
        ({"category": "outlier"}, "test_tin", ["outlier", "outlier"]),
        ({}, "test_tin", ["17", "3"]),
    ],
    ids=["-1 is unknown", "labels are ignored", "labels are names"],
)
def test_labels_are_classes_unless_a_category_is_given(lay, params, subset, classes):
    found = imglist(lay(OPENOOD), **params).read(subset)
    assert [found.categories[c] for c in found.objects.category] == classes


def test_the_folders_of_a_list_are_expected(lay):
    files = {name: content for name, content in OPENOOD.items() if "tin/" not in name}
    root = lay(files)
    lacking = missing({"ood": {"format": "imglist", "root": root, "images": "images_classic",
                               "lists": "benchmark_imglist/cifar10/{subset}.txt"}},
                      {"ood": ["test_tin", "test_texture", "val_tin"]})  # fmt: skip
    assert [
        (one.what, one.paths[0].relative_to(root).as_posix(), one.subsets) for one in lacking
    ] == [
        ("images", "images_classic/tin", ("test_tin",)),
        ("list of images", "benchmark_imglist/cifar10/val_tin.txt", ("val_tin",)),
    ]
    assert lacking[0].source.endswith("the archive tin.zip")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "a.png 0\nb.png\n",
            r"test.txt: row 2: field 'label': expected a path, a space and an integer, .*'b.png'",
        ),
        ("a.png 1.5\n", r"test.txt: row 1: field 'label': expected a path, a space and an integer"),
        (
            "a.png 2\n",
            r"test.txt: row 1: field 'label': expected -1 to 1, the labels of 'categories', found 2",
        ),
        ("a.png 0\na.png 1\n", r"test.txt: row 2: field 'path': image 'a.png' occurs twice"),
        ("../a.png 0\n", r"test.txt: row 1: field 'path': file name '../a.png' leaves its folder"),
        ("\n", r"test.txt: the list is empty; expected lines: path label"),
    ],
)
def test_a_damaged_line_of_a_list_is_named(lay, content, message):
    with pytest.raises(DataError, match=message):
        datasets.create("imglist", root=lay({"test.txt": content}), categories=["cat", "dog"]).read(
            "test"
        )
