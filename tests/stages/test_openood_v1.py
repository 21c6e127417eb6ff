"""Profiles of OpenOOD version 1 on miniatures in its layout, from `ingest` to `report`.

Each fixture runs all stages of a profile once, which takes several seconds.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from scipy.special import softmax
from sklearn.metrics import roc_auc_score
from tests.stages.in_process import OF_RUN, run
from tests.stages.test_openood import digests as digests  # a fixture
from tests.stages.test_openood import write_data
from torchvision.transforms._presets import ImageClassification

from farther import methods
from farther.command.doctor import examine
from farther.command.profile import placed
from farther.command.project import Project
from farther.curation import benchmark, read_rules
from farther.detectors.classifier import (
    ClassifierBlueprint,
    OpenOODLeNet,
    describe,
    save_checkpoint,
)
from farther.errors import ParameterError
from farther.params import parse
from farther.tables import Header, Images, Objects, Regions
from farther.tables.documents import read_json

ROOT = Path(__file__).parents[2]

#: Methods of Table 1 that farther has, by their names in the profiles.
POST_HOC = {
    "openmax",
    "msp",
    "odin",
    "mahalanobis",
    "gram",
    "energy",
    "gradnorm",
    "react",
    "mls",
    "kl_matching",
    "vim",
    "knn",
    "dice",
    "temperature_searched",
    "temperature_fitted",
}
FAR_OF_CIFAR = {"mnist": "far", "fashionmnist": "far", "textures": "far", "places365": "far"}
DISTANCES = {
    "openood-v1-mnist": {
        "notmnist": "near",
        "fashionmnist": "near",
        "textures": "far",
        "cifar10": "far",
        "tin": "far",
        "places365": "far",
    },
    "openood-v1-cifar10": {"cifar100": "near", "tin": "near", **FAR_OF_CIFAR},
    "openood-v1-cifar100": {"cifar10": "near", "tin": "near", **FAR_OF_CIFAR},
    "openood-v1-imagenet1k": {
        "species": "near",
        "inaturalist": "near",
        "imagenet_o": "near",
        "openimage_o": "near",
        "textures": "far",
        "mnist": "far",
        "svhn": "far",
    },
}


def read(name: str, root: str = "/data") -> dict:
    return parse(placed((ROOT / f"profiles/{name}.yaml").read_text(), root))


@pytest.mark.parametrize("name", sorted(DISTANCES))
def test_the_splits_are_those_of_section_2_3_and_the_methods_those_of_table_1(name):
    params = read(name)
    (entry,) = params["benchmarks"].values()
    made = benchmark("b", entry)
    assert made.task == "ood"
    assert {split: made.splits[split].distance for split in made.test_splits} == DISTANCES[name]
    more = set() if "imagenet" in name else {"mc_dropout", "deep_ensemble"}
    assert set(params["methods"]) == POST_HOC | more
    grid = params["methods"]["temperature_searched"]["search"]["grids"]["temperature_scaling"]
    assert grid == {"temperature": [0.1, 1, 10, 100, 1000]}


def test_open_set_recognition_has_four_datasets_and_five_divisions_of_each():
    params = read("openood-v1-osr")
    sizes = {"mnist6": (6, 4), "cifar6": (6, 4), "cifar50": (50, 50), "tin20": (20, 180)}
    assert params["report"]["seeds"] == {
        name: [f"{name}-{seed}" for seed in range(1, 6)] for name in sizes
    }
    for name, (known, unknown) in sizes.items():
        divisions = set()
        for run_name in params["report"]["seeds"][name]:
            made = benchmark(
                run_name, params["benchmarks"][params["detectors"][run_name]["benchmark"]]
            )
            rules = read_rules(made, ROOT)
            assert (len(rules.id_classes), len(rules.unknown_classes)) == (known, unknown)
            assert made.task == "osr"
            divisions.add(rules.id_classes)
        assert len(divisions) == 5


#: Parameters that Section 4.1 has tuned, by entry.
TUNED = {
    "energy": "temperature",
    "react": "percentile",
    "vim": "dim",
    "knn": "k",
    "dice": "percentile",
    "temperature_searched": "temperature",
}


@pytest.mark.parametrize("name", [*sorted(DISTANCES), "openood-v1-osr"])
def test_parameters_are_the_best_of_up_to_five_values_on_the_validation_split(name):
    params = read(name)
    for entry, parameter in TUNED.items():
        search = params["methods"][entry]["search"]
        assert search["ood_split"] == "validation"
        (grid,) = search["grids"].values()
        assert list(grid) == [parameter]
        assert 4 <= len(set(grid[parameter])) <= 5
    for entry in params["benchmarks"].values():
        made = benchmark("b", entry)
        assert made.splits["validation"].use == "validation"
        assert "validation" not in made.test_splits


@pytest.mark.parametrize(("features", "dimension"), [(84, 42), (512, 128)])
def test_vim_of_open_set_recognition_may_have_the_128_dimensions_of_openood(features, dimension):
    # OpenOOD's scripts pass 128 for all networks; LeNet has 84 features, ResNet-18 512.
    grid = read("openood-v1-osr")["methods"]["vim"]["search"]["grids"]["vim"]["dim"]
    assert 128 in grid
    rng = np.random.default_rng(0)
    values = rng.normal(size=(600, features))
    weight = np.eye(2, features)
    table = Regions(
        image_id=[str(number) for number in range(600)],
        region_id=np.zeros(600, int),
        box=np.tile([0, 0, 1, 1], (600, 1)),
        score=np.full(600, 0.5),
        label=np.zeros(600, int),
        logits=values @ weight.T,
        features=values,
        header=Header(classes=("a", "b"), weight=weight, bias=np.zeros(2)),
    )
    vim = methods.create("vim", dim=128).fit(table)
    assert vim.residual_.shape == (features, features - dimension)


def test_anomaly_detection_has_the_fifteen_categories():
    params = read("openood-v1-mvtec")
    assert len(params["benchmarks"]) == 15
    for name, entry in params["benchmarks"].items():
        assert benchmark(name, entry).task == "ad"
        assert params["datasets"][name]["category"] == name


def stages_of(root: Path, digests: Path, params: dict, *last: str) -> None:
    """Writes the parameters, and runs the stages of their runs, then others."""
    params["evaluate"] |= {"replicates": 0, "kept": [0.95], "confidences": [0.5]}
    params["report"] |= {"examples": 0}
    (root / "data").symlink_to(ROOT / "data")
    (root / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    (root / "artifacts").mkdir()
    shutil.copy(digests, root / "artifacts")
    ingested = [f"ingest {name}" for name in params["datasets"]]
    evaluated = [f"{stage} {name}" for name in params["detectors"] for stage in ("infer", *OF_RUN)]
    run(root, "code_digests", *ingested, "curate", *evaluated, *last)


def lenet(seed: int, classes: int) -> OpenOODLeNet:
    """A LeNet with random weights, whose logits differ between images."""
    torch.manual_seed(seed)
    network = OpenOODLeNet(classes).eval()
    torch.nn.init.normal_(network.fc.weight, std=2.0)
    return network


def write_lenet(path: Path, network: OpenOODLeNet, classes: tuple[str, ...]) -> None:
    blueprint = ClassifierBlueprint("LeNet", classes, describe("LeNet")["preprocessing"])
    save_checkpoint(path, network.state_dict(), blueprint)


# --------------------------------------------------------------------------------------------------
# MNIST


@pytest.fixture(scope="module")
def mnist(tmp_path_factory, digests):
    """A folder in which the stages of the profile of MNIST ran."""
    root = tmp_path_factory.mktemp("mnist")
    params = read("openood-v1-mnist", str(root))
    write_data(params, 10)
    entry = params["detectors"]["mnist-lenet"]
    Path(entry["weights"]).parent.mkdir()
    torch.save(lenet(0, 10).state_dict(), entry["weights"])
    for number, member in enumerate(entry["passes"]["ensemble"]["members"], start=1):
        write_lenet(Path(member), lenet(number, 10), tuple("0123456789"))
    stages_of(root, digests, params)
    return root


@pytest.mark.slow
def test_every_method_of_the_profile_is_measured_on_each_test_split(mnist):
    description = read_json(mnist / "artifacts/results/mnist-lenet.json")
    assert description["not_applicable"] == {}
    for split in DISTANCES["openood-v1-mnist"]:
        for method in POST_HOC | {"mc_dropout", "deep_ensemble"}:
            value = read_json(mnist / "artifacts/metrics/mnist-lenet" / split / f"{method}.json")[
                "auroc"
            ]
            assert 0 <= value <= 1


@pytest.mark.slow
def test_a_deep_ensemble_is_the_largest_probability_of_the_mean_logits(mnist):
    networks = [lenet(number, 10) for number in range(5)]
    transform = ImageClassification(resize_size=28, crop_size=28, mean=(0.5,) * 3, std=(0.5,) * 3)

    def scores(split):
        images = Regions.read(mnist / "artifacts/regions/mnist-lenet" / split).image_id
        pixels = []
        for name in images:
            image = Image.open(mnist / "openood/images_classic" / name).convert("RGB")
            pixels.append(transform(image))
        with torch.inference_mode():
            logits = [network(torch.stack(pixels)).numpy() for network in networks]
        return softmax(np.mean(logits, axis=0), axis=1).max(axis=1)

    known, unknown = scores("test"), scores("notmnist")
    expected = roc_auc_score(
        np.repeat([1, 0], [len(known), len(unknown)]), np.append(known, unknown)
    )
    found = read_json(mnist / "artifacts/metrics/mnist-lenet/notmnist/deep_ensemble.json")["auroc"]
    # Half precision of the stored members may change the order of one pair.
    assert found == pytest.approx(expected, abs=1.5 / (len(known) * len(unknown)))


@pytest.mark.slow
def test_the_searched_temperature_is_the_best_of_the_papers_grid_by_auroc(mnist):
    def auroc(temperature):
        values = []
        for split in ("val", "validation"):
            logits = Regions.read(mnist / "artifacts/regions/mnist-lenet" / split).logits.astype(
                np.float64
            )
            values.append(softmax(logits / temperature, axis=1).max(axis=1))
        known, unknown = values
        return roc_auc_score(
            np.repeat([1, 0], [len(known), len(unknown)]), np.append(known, unknown)
        )

    best = max(auroc(temperature) for temperature in (0.1, 1, 10, 100, 1000))
    chosen = read_json(mnist / "artifacts/fitted/mnist-lenet/temperature_searched/method.json")
    assert auroc(chosen["params"]["temperature"]) == pytest.approx(best)


# --------------------------------------------------------------------------------------------------
# open-set recognition


@pytest.fixture(scope="module")
def divisions(tmp_path_factory, digests):
    """A folder in which the stages ran for the first two divisions of MNIST-6/4."""
    root = tmp_path_factory.mktemp("osr")
    params = read("openood-v1-osr", str(root))
    names = params["report"]["seeds"]["mnist6"][:2]
    params["datasets"] = {"mnist": params["datasets"]["mnist"]}
    params["report"]["seeds"] = {"mnist6": names}
    params["report"]["published"] = {"mnist6": params["report"]["published"]["mnist6"]}
    for section in ("benchmarks", "detectors"):
        params[section] = {name: params[section][name] for name in names}
    write_data({**params, "benchmarks": {"mnist": {}}}, 8)
    for number, name in enumerate(names):
        path = Path(params["detectors"][name]["weights"])
        path.parent.mkdir(parents=True, exist_ok=True)
        classes = read_rules(benchmark(name, params["benchmarks"][name]), ROOT).id_classes
        write_lenet(path, lenet(number, len(classes)), classes)
    stages_of(root, digests, params, "report")
    return root


@pytest.mark.slow
def test_images_of_unknown_classes_are_tested_and_not_trained_on(divisions):
    folder = divisions / "artifacts/splits/mnist6-1"
    known = set(read_json(folder / "id_classes.json"))
    unknown = set(read_json(folder / "unknown_classes.json"))
    assert (known, unknown) == (set("136789"), set("0245"))
    for split in ("train", "val", "test"):
        assert set(Objects.read(folder / split / "objects.parquet").category) <= known
    assert set(Objects.read(folder / "unknown/objects.parquet").category) <= unknown
    # Parameters are chosen on training images of unknown classes, which no network has seen.
    chosen_on = Images.read(folder / "validation/images.parquet").image_id.tolist()
    assert set(Objects.read(folder / "validation/objects.parquet").category) <= unknown
    for split in ("train", "val", "test", "unknown"):
        images = Images.read(folder / split / "images.parquet").image_id.tolist()
        assert not set(chosen_on) & set(images)
    tested = [
        len(Objects.read(folder / split / "objects.parquet")) for split in ("test", "unknown")
    ]
    assert sum(tested) == 8  # all test images


@pytest.mark.slow
def test_each_division_has_the_paper_s_searched_temperature(divisions):
    for name in ("mnist6-1", "mnist6-2"):
        folder = divisions / f"artifacts/fitted/{name}"
        chosen = read_json(folder / "temperature_searched/method.json")
        assert chosen["params"]["temperature"] in (0.1, 1, 10, 100, 1000)
        assert chosen["choice"]["ood_split"] == "validation"
        assert read_json(divisions / f"artifacts/metrics/{name}/unknown/vim.json")["auroc"] >= 0


@pytest.mark.slow
def test_the_mean_of_the_divisions_is_in_the_file_of_seeds(divisions):
    means = read_json(divisions / "artifacts/seeds.json")["mnist6"]
    values = [
        read_json(divisions / f"artifacts/metrics/{name}/unknown/msp.json")["auroc"]
        for name in ("mnist6-1", "mnist6-2")
    ]
    assert means["seeds"] == 2
    assert means["unknown"]["msp"]["auroc"]["mean"] == pytest.approx(np.mean(values))
    assert means["unknown"]["msp"]["auroc"]["sd"] == pytest.approx(np.std(values, ddof=1))


@pytest.mark.slow
def test_doctor_opens_the_checkpoints_of_the_divisions_and_finds_nothing_wrong(
    divisions, monkeypatch
):
    monkeypatch.chdir(divisions)
    found = examine(Project(divisions / "params.yaml"))
    assert not [
        finding.text
        for finding in found
        if finding.state == "wrong" and finding.topic != "pipeline"
    ]
    (checkpoint,) = [
        finding
        for finding in found
        if finding.name == "mnist6-2" and finding.topic == "checkpoints"
    ]
    assert "6 classes" in checkpoint.text


@pytest.mark.slow
def test_a_classifier_of_all_classes_is_refused(divisions, tmp_path):
    shutil.copytree(divisions / "artifacts/splits", tmp_path / "artifacts/splits")
    shutil.copy(divisions / "artifacts/code.json", tmp_path / "artifacts")
    params = parse((divisions / "params.yaml").read_text())
    write_lenet(tmp_path / "all.safetensors", lenet(0, 10), tuple("0123456789"))
    params["detectors"]["mnist6-1"]["weights"] = str(tmp_path / "all.safetensors")
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    with pytest.raises(
        ParameterError,
        match="4 of the detector's 10 classes are unknown by the benchmark's `division`",
    ):
        run(tmp_path, "infer mnist6-1")


# --------------------------------------------------------------------------------------------------
# anomaly detection


def test_scores_made_elsewhere_are_measured_on_a_category(tmp_path, digests, monkeypatch):
    params = read("openood-v1-mvtec", str(tmp_path))
    for section in ("datasets", "benchmarks", "detectors"):
        params[section] = {"bottle": params[section]["bottle"]}
    names = [f"train/good/{number:03}" for number in range(60)]
    names += [
        "test/good/000",
        "test/good/001",
        "test/crack/000",
        "test/crack/001",
        "test/crack/002",
    ]
    rng = np.random.default_rng(0)
    for name in names:
        path = tmp_path / "mvtec_anomaly_detection/bottle" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(path)
    anomaly = dict.fromkeys(names, 0.1) | {"test/good/001": 0.6}
    anomaly |= {"test/crack/000": 0.9, "test/crack/001": 0.7, "test/crack/002": 0.5}
    lines = [f"bottle/{name}.png,{score}" for name, score in anomaly.items()]
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores/patchcore.csv").write_text("image,score\n" + "\n".join(lines) + "\n")
    stages_of(tmp_path, digests, params)
    found = read_json(tmp_path / "artifacts/metrics/bottle/defect/patchcore.json")
    monkeypatch.chdir(tmp_path)
    doctor = examine(Project(tmp_path / "params.yaml"))
    assert not [
        finding.text
        for finding in doctor
        if finding.state == "wrong" and finding.topic != "pipeline"
    ]
    # Of 2 · 3 pairs of an image without and one with a defect, (0.6, 0.5) is in the wrong order.
    assert found["auroc"] == pytest.approx(5 / 6)
