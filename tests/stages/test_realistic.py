"""The profiles `realistic-*` on miniatures in the true layouts, with a WordNet of eight nouns."""

import importlib.util
from pathlib import Path

import pytest
import yaml
from PIL import Image
from tests.stages.in_process import run

from farther.command.profile import placed
from farther.datasets.wordnet import WordNet
from farther.tables import Images, Objects, SortedClasses

ROOT = Path(__file__).parents[2]

_SPEC = importlib.util.spec_from_file_location("wordnet_files", ROOT / "tests/similarity/tiny_wordnet.py")
_wordnet_files = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_wordnet_files)

#: Hypernym of each noun. The distances (1 - mean similarity) from house: mansion 0.31, barracks 0.48, dog 0.80.
NOUNS = [
    (["entity"], None),
    (["structure"], "entity"),
    (["edifice"], "structure"),
    (["house"], "edifice"),
    (["mansion"], "house"),
    (["barracks"], "edifice"),
    (["animal"], "entity"),
    (["dog"], "animal"),
]
SCENES = {"house": 183, "mansion": 220}


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (24, 16), (200, 30, 60)).save(path)


def places(root):
    """The lists of Places365: names of files without folders, and paths that begin with a slash."""
    lists = {"val": [], "train_standard": []}
    for number, (scene, label) in enumerate(SCENES.items(), 1):
        picture(root / f"val_256/Places365_val_{number:08d}.jpg")
        lists["val"].append(f"Places365_val_{number:08d}.jpg {label}")
        picture(root / f"data_256/{scene[0]}/{scene}/{number:08d}.jpg")
        lists["train_standard"].append(f"/{scene[0]}/{scene}/{number:08d}.jpg {label}")
    for subset, lines in lists.items():
        (root / f"places365_{subset}.txt").write_text("\n".join(lines) + "\n")


def curated(profile, folder):
    """The folder of splits that the stages write for a profile."""
    text = placed((ROOT / f"profiles/{profile}.yaml").read_text(), str(folder))
    params = yaml.safe_load(text)
    params["benchmarks"].pop("baseline", None)
    datasets = [name for name in params["datasets"] if name != "svhn"]  # its miniature is in test_saod.py
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    run(folder, *(f"ingest {name}" for name in datasets), "curate")
    return folder / "artifacts/splits"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with the datasets, the rules and a WordNet."""
    folder = tmp_path_factory.mktemp("realistic")
    for name in ("benchmarks", "names", "decisions"):
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / name).symlink_to(ROOT / "data" / name)
    wordnet = WordNet(_wordnet_files.write(folder / "data/similarity/wordnet", NOUNS))
    places(folder / "places365")
    for noun in ("house", "mansion", "barracks", "dog"):
        place = wordnet._reader.synset(f"{noun}.n.01").offset()
        picture(folder / f"imagenet/val/n{place:08d}/{noun}.JPEG")
    for scene in ("h/house", "m/mansion", "b/barracks/outdoor", "p/pond"):
        picture(folder / f"SUN397/{scene}/sun_a.jpg")
    return folder


@pytest.fixture(scope="module")
def splits(data):
    return curated("realistic-wordnet", data)


def files(splits, benchmark, split):
    return [Path(file).stem for file in Images.read(splits / benchmark / split / "images.parquet").file]


def test_the_id_splits_are_the_lists_of_places365(splits):
    assert Objects.read(splits / "t40/train/objects.parquet").category.tolist() == ["house", "mansion"]
    assert Images.read(splits / "t40/val/images.parquet").file[0] == "val_256/Places365_val_00000001.jpg"


@pytest.mark.parametrize(
    ("benchmark", "near", "counted"),
    [("t40", ["barracks"], ["house", "mansion"]), ("t45", ["barracks"], ["house", "mansion"]),
     ("t50", [], ["barracks", "house", "mansion"])],
)  # fmt: skip
def test_a_larger_threshold_counts_more_classes_of_imagenet_as_id(splits, benchmark, near, counted):
    assert files(splits, benchmark, "imagenet_near") == near
    assert files(splits, benchmark, "imagenet_far") == ["dog"]
    assert sorted(files(splits, benchmark, "imagenet_id")) == counted


def test_images_that_count_as_id_are_labelled_by_the_scene_they_are_like(splits):
    images = files(splits, "t50", "imagenet_id")
    labels = Objects.read(splits / "t50/imagenet_id/objects.parquet").category.tolist()
    assert dict(zip(images, labels, strict=True)) == {"house": "house", "mansion": "mansion", "barracks": "house"}


def test_the_interdataset_benchmark_leaves_out_shared_classes_only(splits):
    assert files(splits, "interdataset", "imagenet_near") == []
    assert sorted(files(splits, "interdataset", "imagenet_far")) == ["barracks", "dog"]


def test_classes_of_sun397_that_places365_has_too_have_oodness_0(data, splits):
    frame = SortedClasses.read(curated("realistic-facets", data) / "facets/classes.parquet").frame
    found = dict(frame.filter(dataset="sun397").select("category", "oodness").iter_rows())
    assert found == {"house": 0, "mansion": 0, "barracks/outdoor": 1, "pond": 0}
