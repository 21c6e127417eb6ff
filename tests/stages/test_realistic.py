"""The profiles `realistic-*` on miniatures in the true layouts, with a WordNet of eight nouns."""

from pathlib import Path

import pytest
import yaml
from PIL import Image
from tests.similarity import tiny_wordnet
from tests.stages.in_process import run
from tests.stages.test_saod import svhn

from farther.command.profile import placed
from farther.curation import benchmark
from farther.datasets.wordnet import WordNet
from farther.errors import DataError
from farther.tables import ImageClasses, Images, Objects, SortedClasses

pytestmark = [pytest.mark.slow, pytest.mark.drawn(1, "profiles")]

ROOT = Path(__file__).parents[2]

#: Hypernym of each noun. The distances (1 - mean similarity) from house: mansion 0.31, barracks
#: 0.48, dog 0.80.
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


def read_profile(name):
    return yaml.safe_load((ROOT / f"profiles/{name}.yaml").read_text())


def test_facets_has_the_images_of_table_v():
    facets = benchmark("facets", read_profile("realistic-facets")["benchmarks"]["facets"])
    most = facets.most
    id_images = facets.shifted["sun397_id"].most
    assert id_images == 46851
    assert most["sun397_near"] + most["sun397_far"] == 7530  # T1
    assert id_images + most["sun397_near"] == 49827  # T2
    assert most["sun397_far"] == 4554
    assert facets.shifted["imagenet_id"].most == 8900
    assert (most["imagenet_far"], most["imagenet_train_far"]) == (16100, 50232)


@pytest.mark.parametrize(
    ("name", "id_images", "ood_images"),
    [
        ("baseline", 0, 18250),
        ("interdataset", 0, 18108),
        ("t40", 2800, 21332),
        ("t45", 4500, 22750),
        ("t50", 7000, 25560),
    ],
)
def test_other_benchmarks_have_the_images_of_tables_ii_to_iv(name, id_images, ood_images):
    made = benchmark(name, read_profile("realistic-wordnet")["benchmarks"][name])
    assert sum(made.most[split] for split in made.test_splits) == ood_images
    assert sum(split.most for split in made.shifted.values()) == id_images
    assert made.shares("test") == (0.5, 1.0)  # of 36,500 images 18,250


def curated(profile, folder, **changed):
    """The folder of splits of a profile; `changed` are parameters of its benchmarks."""
    text = placed((ROOT / f"profiles/{profile}.yaml").read_text(), str(folder))
    params = yaml.safe_load(text)
    params["benchmarks"].pop("baseline", None)
    for entry in params["benchmarks"].values():
        # Two images have no halves.
        entry["subsets"] |= {"val": "val", "test": "val"}
        entry |= changed
    datasets = [
        name for name in params["datasets"] if name != "svhn"
    ]  # its miniature is in test_saod.py
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
    wordnet = WordNet(tiny_wordnet.write(folder / "data/similarity/wordnet", NOUNS))
    (folder / "data/similarity/places365.yaml").write_text(
        "house: house.n.01\nmansion: mansion.n.01\n"
    )
    places(folder / "places365")
    for noun in ("house", "mansion", "barracks", "dog"):
        place = wordnet._reader.synset(f"{noun}.n.01").offset()
        for subset in ("train", "val"):
            picture(folder / f"imagenet/{subset}/n{place:08d}/{noun}.JPEG")
    for scene in ("h/house", "m/mansion", "b/barracks/outdoor", "p/pond"):
        picture(folder / f"SUN397/{scene}/sun_a.jpg")
    return folder


@pytest.fixture(scope="module")
def splits(data):
    return curated("realistic-wordnet", data)


def files(splits, benchmark, split):
    return [
        Path(file).stem for file in Images.read(splits / benchmark / split / "images.parquet").file
    ]


def test_the_id_splits_are_the_lists_of_places365(splits):
    assert Objects.read(splits / "t40/train/objects.parquet").category.tolist() == [
        "house",
        "mansion",
    ]
    assert (
        Images.read(splits / "t40/val/images.parquet").file[0]
        == "val_256/Places365_val_00000001.jpg"
    )


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
    assert dict(zip(images, labels, strict=True)) == {
        "house": "house",
        "mansion": "mansion",
        "barracks": "house",
    }


def test_the_interdataset_benchmark_leaves_out_shared_classes_only(splits):
    assert files(splits, "interdataset", "imagenet_near") == []
    assert sorted(files(splits, "interdataset", "imagenet_far")) == ["barracks", "dog"]


def test_parameters_are_chosen_on_images_that_no_result_is_reported_on(splits):
    assert sorted(files(splits, "t40", "validation")) == ["barracks", "dog"]
    validation = Images.read(splits / "t40/validation/images.parquet").file.tolist()
    tested = Images.read(splits / "t40/imagenet_far/images.parquet").file.tolist()
    assert {Path(file).parts[0] for file in validation} == {"val"}
    assert {Path(file).parts[0] for file in tested} == {"train"}


@pytest.mark.parametrize("profile", ["realistic-wordnet", "realistic-facets"])
def test_the_layers_that_oodl_chooses_from_are_stored(profile):
    params = read_profile(profile)
    choice = params["methods"]["oodl"]["search"]
    layers = choice["grids"]["oodl"]["layer"]
    for name, detector in params["detectors"].items():
        stored = [
            *detector["params"]["latents"],
            "latent",
            None,
        ]  # the default latent, and the features
        assert layers == stored, name
        split = params["benchmarks"][detector["benchmark"]]["splits"][choice["ood_split"]]
        assert split["use"] == "validation"


def test_without_labels_of_people_there_is_no_t1(data):
    with pytest.raises(DataError) as error:
        curated("realistic-facets", data)
    message = str(error.value)
    assert "data/benchmarks/places365.yaml" in message
    assert "protocols.people" in message
    assert "4 of the 4 classes of 'imagenet' are in no list, such as n0" in message
    assert "write each below `overlap` (OODness 1), `near` (2) or `far` (3)" in message


def test_classes_have_the_oodness_that_people_gave_them(data):
    folder_of = {
        next(folder.iterdir()).stem: folder.name for folder in (data / "imagenet/val").iterdir()
    }
    rules = yaml.safe_load((ROOT / "data/benchmarks/places365.yaml").read_text())
    similarity = {
        "hierarchy": "similarity/wordnet",
        "synsets": "similarity/places365.yaml",
        "near_above": 0.45,
    }
    rules["protocols"]["people"] = {
        "every_class_listed": True,
        "classes_by": similarity,
        "overlap": {
            "sun397": {"house": ["barracks/outdoor"]},
            "imagenet": {"house": [folder_of["house"]]},
        },
        "near": {"imagenet": {"house": [folder_of["barracks"], folder_of["mansion"]]}},
        "far": {"imagenet": [folder_of["dog"]]},
    }
    (data / "data/people.yaml").write_text(yaml.safe_dump(rules))
    splits = curated("realistic-facets", data, rules="data/people.yaml")
    frame = SortedClasses.read(splits / "facets/classes.parquet").frame
    of_sun = dict(frame.filter(dataset="sun397").select("category", "oodness").iter_rows())
    assert of_sun == {"house": 0, "mansion": 0, "barracks/outdoor": 1, "pond": 0}
    of_imagenet = dict(frame.filter(dataset="imagenet").select("category", "oodness").iter_rows())
    expected = {"house": 1, "barracks": 2, "mansion": 2, "dog": 3}
    assert of_imagenet == {folder_of[noun]: oodness for noun, oodness in expected.items()}


def test_both_splits_of_svhn_are_one_row_of_the_baseline(tmp_path, data):
    for name in ("data", "places365"):
        (tmp_path / name).symlink_to(data / name)
    svhn(tmp_path / "svhn")
    params = yaml.safe_load(
        placed((ROOT / "profiles/realistic-wordnet.yaml").read_text(), str(tmp_path))
    )
    params["benchmarks"] = {"baseline": params["benchmarks"]["baseline"]}
    params["benchmarks"]["baseline"]["subsets"] |= {"val": "val", "test": "val"}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    datasets = [name for name in params["datasets"] if name != "imagenet"]
    run(tmp_path, *(f"ingest {name}" for name in datasets), "curate")
    for split in ("svhn_train", "svhn_test"):
        # Splits with classes are those that the row of all images counts.
        classes = ImageClasses.read(tmp_path / f"artifacts/splits/baseline/{split}/classes.parquet")
        assert classes.frame["category"].to_list() == ["7"]
        assert classes.frame["oodness"].to_list() == [3]
