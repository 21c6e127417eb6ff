"""OpenOOD's complete profiles, from `ingest` to `report`, on miniatures in its layout."""

import csv
import json
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from scipy.special import softmax
from sklearn.metrics import roc_auc_score
from tests.stages.in_process import OF_RUN, run
from tests.support.cases import drawn_cases

from farther import detectors
from farther.command import main
from farther.command.profile import placed
from farther.curation import Fates
from farther.detectors.classifier import OpenOODResNet
from farther.params import parse
from farther.tables import Images, Objects, Regions
from farther.tables.documents import read_json

pytestmark = [pytest.mark.slow, pytest.mark.drawn(1, "profiles")]

ROOT = Path(__file__).parents[2]
#: Images of each ID subset and of each other list.
COUNTS = {"train": 52, "val": 8, "test": 8}
OTHERS = 3
CIFAR = {"tin": "near", "mnist": "far", "svhn": "far", "textures": "far", "places365": "far"}
IMAGENET = {
    "ssb_hard": "near",
    "ninco": "near",
    "inaturalist": "far",
    "textures": "far",
    "openimage_o": "far",
}
#: Per profile: name of its ID dataset, number of classes, distance of each OOD test split.
BENCHMARKS = {
    "openood-cifar10": ("cifar10", 10, {"cifar100": "near", **CIFAR}),
    "openood-cifar100": ("cifar100", 100, {"cifar10": "near", **CIFAR}),
    "openood-imagenet200": ("imagenet200", 200, IMAGENET),
    "openood-imagenet1k": ("imagenet", 1000, IMAGENET),
}


def source(list_name: str) -> str:
    """Folder of a list's images, as OpenOOD names it."""
    name = list_name.partition("_")[2]
    if name.startswith("imagenet"):
        return (
            f"imagenet_{name.rpartition('_')[2]}"
            if name[-2:] in ("v2", "_c", "_r")
            else "imagenet_1k"
        )
    return {"textures": "texture"}.get(name, name)


def write_list(file: Path, images: Path, count: int, classes: int) -> None:
    """A list and its images: ID labels in turn; OOD labels are -1 or, as in OpenOOD, any."""
    rng = np.random.default_rng(zlib.crc32(file.name.encode()))
    folder = source(file.stem)
    lines = []
    for number in range(count):
        name = f"{folder}/{file.stem}/{number:04d}.png"
        path = images / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (28, 28) if folder == "mnist" else (32, 36, 3)
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(path)
        is_id = folder.startswith(("imagenet", file.parent.name))
        lines.append(f"{name} {number % min(classes, 8) if is_id else (-1, 7)[number % 2]}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def write_data(params: dict, classes: int) -> None:
    """All lists that a profile reads, with their images."""
    for name, values in params["datasets"].items():
        root = Path(values["root"])
        counts = COUNTS if name in params["benchmarks"] else {}
        for subset in values["subset_names"]:
            file = root / values["lists"].replace("{subset}", subset)
            write_list(file, root / values["images"], counts.get(subset, OTHERS), classes)


def write_checkpoint(entry: dict, path: Path, names: list[str], *, seed: int) -> None:
    """Random weights of a narrow network in OpenOOD's layout, always one for small images."""
    torch.manual_seed(seed)
    network = OpenOODResNet((8, 8, 8, 32), (2, 2, 2, 2), len(names))
    network.fc.bias.data[:8] += 1  # the classes of the images: some are classified correctly
    params = entry["params"]
    if params["architecture"] != "ResNet18_32x32":
        params |= {"architecture": "openood_resnet", "classes": names, "resize": 32, "crop": 32}
        params |= {"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}
        params.pop("preset", None)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(
        {
            key.replace("downsample", "shortcut"): value
            for key, value in network.state_dict().items()
        },
        path,
    )


@pytest.fixture(scope="module")
def digests(tmp_path_factory):
    """The file of digests of the code, which is the same for all profiles."""
    root = tmp_path_factory.mktemp("code")
    (root / "data").symlink_to(ROOT / "data")
    (root / "params.yaml").symlink_to(ROOT / "params.yaml")
    run(root, "code_digests")
    return root / "artifacts/code.json"


#: Profiles whose stages run: one of small images, one of ImageNet.
DRAWN = (*drawn_cases([*BENCHMARKS][:2], 1), *drawn_cases([*BENCHMARKS][2:], 1))


@pytest.fixture(scope="module", params=DRAWN)
def project(request, tmp_path_factory, digests):
    """A folder in which the stages of a profile ran for its first detector."""
    root = tmp_path_factory.mktemp("openood")
    params = parse(placed((ROOT / f"profiles/{request.param}.yaml").read_text(), str(root)))
    id_name, classes, _ = BENCHMARKS[request.param]
    detector = next(iter(params["detectors"]))
    params["detectors"] = {detector: params["detectors"][detector]}
    seeds = {
        title: [detector]
        for title, of in params["report"].get("seeds", {}).items()
        if detector in of
    }
    compared = next(iter(seeds), detector)
    params["report"] |= {
        "seeds": seeds,
        "published": {compared: params["report"]["published"][compared]},
    }
    params["inference"]["workers"] = 0
    params["evaluate"] |= {"replicates": 0, "kept": [0.95], "confidences": [0.5]}
    params["report"] |= {"examples": 0}
    write_data(params, classes)
    names = params["datasets"][id_name]["categories"]
    entry = params["detectors"][detector]
    ensemble = entry["passes"].get("ensemble", {"members": []})
    for number, weights in enumerate((entry["weights"], *ensemble["members"])):
        write_checkpoint(entry, Path(weights), names, seed=number)
    (root / "data").symlink_to(ROOT / "data")
    (root / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    (root / "artifacts").mkdir()
    shutil.copy(digests, root / "artifacts")
    ingested = [f"ingest {name}" for name in params["datasets"]]
    evaluated = [f"{stage} {detector}" for stage in OF_RUN]
    run(root, "code_digests", *ingested, "curate", f"infer {detector}", *evaluated, "report")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.chdir(root)
    yield root, request.param, detector
    monkeypatch.undo()


def test_no_image_of_an_ood_list_is_left_out_whatever_its_label(project):
    root, name, _ = project
    folder = root / "artifacts/splits" / BENCHMARKS[name][0]
    fates = Fates.read(folder / "fates.parquet").frame
    assert set(fates["rule"]) == {"as published"}
    assert not json.loads((folder / "warnings.json").read_text())["count"]
    for split in (*BENCHMARKS[name][2], "validation"):
        assert len(Images.read(folder / split / "images.parquet")) == OTHERS
        objects = Objects.read(folder / split / "objects.parquet")
        assert set(objects.category) == {"outlier"}
        assert (objects.box[:, :2] == 0).all()


def test_each_image_has_one_region_of_its_size(project):
    root, name, run = project
    for split in (*COUNTS, *BENCHMARKS[name][2], "validation"):
        images = Images.read(
            root / "artifacts/splits" / BENCHMARKS[name][0] / split / "images.parquet"
        )
        regions = Regions.read(root / "artifacts/regions" / run / split)
        assert sorted(regions.image_id) == sorted(images.image_id)
        assert regions.logits.shape == (len(images), BENCHMARKS[name][1])


def test_parameters_are_chosen_on_the_validation_split_from_openood_s_grids(project):
    root, _, run = project
    chosen = read_json(root / "artifacts/fitted" / run / "ash/method.json")
    text = json.dumps(chosen)
    assert '"ood_split": "validation"' in text
    assert text.count('"percentile"') >= 7


def test_temperature_scaling_is_fitted_and_searched_by_name(project):
    root, _, run = project
    fitted = root / "artifacts/fitted" / run
    assert "choice" not in read_json(fitted / "temperature_scaling/method.json")
    search = read_json(fitted / "temperature_searched/method.json")["choice"]
    assert [trial["params"]["temperature"] for trial in search["trials"]] == [
        0.1,
        1.0,
        10.0,
        100.0,
        1000.0,
    ]
    assert search["ood_split"] == "validation"


def test_the_deep_ensemble_scores_by_the_mean_logits_of_the_three_seeds(project):
    root, name, run = project
    if name == "openood-imagenet1k":
        return  # one checkpoint
    params = parse((root / "params.yaml").read_text())
    id_name = BENCHMARKS[name][0]
    images = Images.read(root / "artifacts/splits" / id_name / "test/images.parquet")
    folder = Path(params["datasets"][id_name]["root"])
    pixels = [np.asarray(Image.open(folder / file).convert("RGB")) for file in images.file]
    entry = params["detectors"][run]
    logits = []
    for weights in (entry["weights"], *entry["passes"]["ensemble"]["members"]):
        detector = detectors.create(entry["adapter"], weights=Path(weights), **entry["params"])
        logits.append(detector.detect(pixels).logits)
    regions = Regions.read(root / "artifacts/passes" / run / "ensemble/test")
    assert regions.image_id.tolist() == images.image_id.tolist()
    np.testing.assert_allclose(regions.logits, np.mean(logits, axis=0), atol=1e-4)


def test_every_method_that_openood_publishes_is_measured_on_each_test_split(project):
    root, name, run = project
    params = parse((root / "params.yaml").read_text())
    description = read_json(root / "artifacts/results" / f"{run}.json")
    assert description["not_applicable"] == {}
    for split in BENCHMARKS[name][2]:
        for method in params["methods"]:
            value = read_json(root / "artifacts/metrics" / run / split / f"{method}.json")["auroc"]
            assert 0 <= value <= 1
    assert not (root / "artifacts/metrics" / run / "validation").exists()


def test_near_and_far_means_are_those_of_an_independent_computation(project):
    root, name, run = project
    regions = root / "artifacts/regions" / run
    known = Regions.read(regions / "test")
    found = read_json(root / "artifacts/metrics" / run / "methods.json")
    scores = {
        "msp": lambda r: softmax(r.logits.astype(np.float64), axis=1).max(axis=1),
        "mls": lambda r: r.logits.max(axis=1),
    }
    for method, score in scores.items():
        by_distance = {"near": [], "far": []}
        for split, distance in BENCHMARKS[name][2].items():
            unknown = Regions.read(regions / split)
            positive = np.repeat([1, 0], [len(known), len(unknown)])
            by_distance[distance].append(
                roc_auc_score(positive, np.append(score(known), score(unknown)))
            )
        for distance, values in by_distance.items():
            np.testing.assert_allclose(
                found[method][f"{distance}_auroc"], np.mean(values), rtol=1e-9
            )


def test_the_report_shows_the_published_means(project):
    folder = project[0] / "artifacts/report/papers/openood"
    (file,) = folder.glob("table-1-beside-3-*.csv")
    rows = list(csv.DictReader(file.open(encoding="utf-8")))
    assert {row["Distance"] for row in rows} == {"near", "far"}
    assert all(row["AUROC\N{NO-BREAK SPACE}↑ published (%)"] for row in rows)


def test_doctor_names_a_missing_list_and_its_archive(project, capsys):
    root, _, _ = project
    ood = parse((root / "params.yaml").read_text())["datasets"]["ood"]
    file = Path(ood["root"]) / ood["lists"].replace("{subset}", ood["subset_names"][0])
    moved = file.rename(file.with_suffix(".moved"))
    main(["doctor", "--quick", "--json"])
    moved.rename(file)
    (missing,) = [
        one
        for one in json.loads(capsys.readouterr().out)["findings"]
        if "list of images" in one["text"]
    ]
    assert missing["belongs at"] == str(file)
    assert missing["comes from"].endswith("benchmark_imglist.zip")


def test_shifted_images_are_labelled_with_the_id_classes(project):
    root, name, _ = project
    folder = root / "artifacts/splits" / BENCHMARKS[name][0]
    classes = set(Objects.read(folder / "test/objects.parquet").category)
    shifted = sorted(path.name for path in folder.glob("imagenet_*"))
    assert shifted == (["imagenet_c", "imagenet_r", "imagenet_v2"] if "imagenet" in name else [])
    assert all(
        set(Objects.read(folder / split / "objects.parquet").category) <= classes
        for split in shifted
    )
