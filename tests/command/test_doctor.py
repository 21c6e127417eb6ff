"""`farther doctor`: what is missing, and the estimate of time and disk."""

import importlib.util
import itertools
import json
import re
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from dvc.repo import Repo
from dvc.rwlock import rwlock
from tests.support.clock import calls_take

from farther.code import packages_of
from farther.command import main
from farther.command.doctor import ingest
from farther.command.doctor.estimate import estimate
from farther.command.doctor.images import made_with, split_images, subset_images
from farther.command.doctor.inspection import Inspection
from farther.command.doctor.machine import dvc_locks
from farther.command.doctor.sampling import REGIONS, repeat_regions, sample_images
from farther.command.project import Project
from farther.detectors import of_entry
from farther.detectors.check import check_passes
from farther.errors import DataError, ParameterError
from farther.params import parse, read_params
from farther.tables import Header, Regions


@pytest.fixture
def here(project, tmp_path, monkeypatch):
    """A folder with the profile `fmiyc` as its parameters, and no data."""
    (tmp_path / "data").symlink_to(project / "data")
    shutil.copytree(Path(__file__).parents[2] / "profiles", tmp_path / "profiles")
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", "profile", "fmiyc", "--data", str(tmp_path / "none"), "--force"]) == 0
    return tmp_path


def change(edit):
    params = parse(Path("params.yaml").read_text())
    edit(params)
    Path("params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def by_topic(findings, topic):
    return {finding["name"]: finding for finding in findings if finding["topic"] == topic}


def doctor(capsys, *arguments):
    capsys.readouterr()
    status = main(["doctor", "--json", *arguments])
    return status, json.loads(capsys.readouterr().out)["findings"]


def test_each_absent_file_comes_with_its_place_its_source_and_its_size(here, capsys):
    status, findings = doctor(capsys, "--quick")
    assert status == 1
    lacking = [
        finding
        for finding in findings
        if finding["topic"] == "datasets" and finding["state"] == "missing"
    ]
    assert {finding["name"] for finding in lacking} == {"voc", "bdd", "fmiyc"}
    assert all(
        finding["belongs at"].startswith(str(here / "none")) and finding["comes from"]
        for finding in lacking
    )
    images = next(
        finding for finding in lacking if finding["belongs at"].endswith("VOC2012/JPEGImages")
    )
    assert 1e9 < images["bytes"] < 3e9
    assert sum(finding["bytes"] for finding in lacking) > 5e9
    networks = by_topic(findings, "checkpoints")
    assert set(networks) == {*parse(Path("params.yaml").read_text())["detectors"], "embed"}
    assert "vos" in networks["voc-vos"]["comes from"]
    assert str(here / "none/checkpoints/voc-rtdetr") in networks["voc-rtdetr"]["belongs at"]


@pytest.mark.parametrize(
    ("profile", "dataset", "file", "source"),
    [
        (
            "unsniffer",
            "unsniffer",
            "instances_val2017_mixed_OOD.json",
            "github.com/Went-Liang/UnSniffer (Apache-2.0)",
        ),
        ("owod", "owod_m", "ImageSets/TOWOD/owod_all_task_test.txt", "github.com/orrzohar/PROB"),
        ("owod", "owod_s", "ImageSets/OWDETR/owdetr_test.txt", "github.com/orrzohar/PROB"),
        (
            "vos",
            "vos_coco",
            "instances_val2017_ood_wrt_bdd_rm_overlap.json",
            "github.com/deeplearning-wisc/vos",
        ),
        (
            "drive-synood",
            "drive_synood",
            "annotations/ood_positive_hiconf.json",
            "CEAai/Drive-SynOOD-OD (BSD 3-Clause",
        ),
        ("oodis", "oodis", "labels/fishyscapes_label.json", "kumuji/anomaly-benchmark-suite"),
    ],
)
def test_the_files_of_a_profile_come_with_their_place_and_source(
    here, profile, dataset, file, source
):
    inspection = Inspection(read_params(here / "profiles" / f"{profile}.yaml"), quick=True)
    lacking = [found.more for found in ingest.check(inspection) if found.name == dataset]
    assert source in next(one["comes from"] for one in lacking if one["belongs at"].endswith(file))


def test_its_text_fits_80_columns_where_paths_do(here, capsys, monkeypatch):
    change(lambda params: params["datasets"]["voc"].update(root="/d"))
    assert main(["doctor", "--quick"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines if str(here) not in line)
    assert lines[-1].endswith("to fetch.")


def test_wrong_parameters_are_found_before_anything_runs(here, capsys):
    def spoil(params):
        params["methods"]["knnn"] = {}
        params["methods"]["gen"] = {"gama": 0.5}
        params["methods"]["react"] = {"fit_on": "vall"}
        params["detectors"]["voc-vos"]["benchmark"] = "vok"
        params["evaluate"]["iou"] = 2

    change(spoil)
    status, findings = doctor(capsys, "--quick")
    wrong = {
        finding["name"]: finding["text"] for finding in findings if finding["state"] == "wrong"
    }
    assert status == 1 and set(wrong) == {
        *("methods.knnn", "methods.gen", "methods.react", "detectors.voc-vos", "evaluate")
    }
    assert "methods.react.fit_on is 'vall', which is not an ID split" in wrong["methods.react"]
    assert "Did you mean 'knn'?" in wrong["methods.knnn"]
    assert "unknown parameter 'gama'" in wrong["methods.gen"]
    assert "Did you mean 'voc'?" in wrong["detectors.voc-vos"]
    assert "less than or equal to 1" in wrong["evaluate"]


def test_packages_are_those_that_the_code_imports():
    assert {"torch", "ultralytics"} <= packages_of("farther.detectors.yolo")
    assert "ultralytics" not in packages_of("farther.detectors.faster_rcnn")
    assert "transformers" in packages_of("farther.detectors.detr")
    assert not packages_of("farther.methods.msp") & {"torch", "faiss", "sklearn"}
    assert "faiss" in packages_of("farther.methods.knn")


def test_an_absent_package_comes_with_the_command_that_brings_it(here, capsys, monkeypatch):
    found = importlib.util.find_spec
    absent = {"ultralytics", "faiss"}
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name in absent else found(name, *more),
    )
    _, findings = doctor(capsys, "--quick")
    packages = by_topic(findings, "packages")
    assert packages["ultralytics"]["state"] == "missing"
    assert packages["ultralytics"]["comes from"] == "pip install 'farther[yolo]'"
    assert packages["faiss-cpu"]["state"] == "note"  # it only makes things faster


def test_a_file_that_is_no_checkpoint_is_named_with_what_is_wrong(here, capsys):
    bad = here / "bad.pt"
    bad.write_bytes(b"not a network")
    run = {"adapter": "yolo", "benchmark": "voc", "weights": str(bad)}
    change(lambda params: params.update(detectors={"x": run}, sources={"x": "our cluster"}))
    found = by_topic(doctor(capsys)[1], "checkpoints")["x"]
    assert (found["state"], found["comes from"]) == ("wrong", "our cluster")
    assert "bad.pt" in found["text"]


def test_a_model_of_the_hub_is_not_looked_for_on_disk(here, capsys):
    line = {"adapter": "detr", "benchmark": "voc", "weights": "PekingU/rtdetr_r50vd"}
    change(lambda params: params.update(detectors={"x": line}))
    assert by_topic(doctor(capsys)[1], "checkpoints")["x"]["state"] == "note"


def test_too_small_a_disk_for_the_missing_datasets_is_found(here, monkeypatch, capsys):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 90, 10))
    states = [
        (one["state"], one["text"][:9])
        for one in doctor(capsys, "--quick")[1]
        if one["topic"] == "disk"
    ]
    assert states == [("missing", "10 B free"), ("ok", "10 B free")]


def test_images_are_those_of_the_published_subsets_until_curate_counted_them(here):
    counts = split_images(Project(), "voc")
    assert counts["train"] == 5011 + 11540 and counts["test"] == 4952
    assert counts["val"] == 2000  # `most` says so
    assert counts["coco_near"] == 1174  # FMIYC, Table 2
    table = here / "artifacts/splits/voc/coco_near/images.parquet"
    table.parent.mkdir(parents=True)
    pq.write_table(pa.table({"image_id": ["a", "b", "c"]}), table)
    assert split_images(Project(), "voc")["coco_near"] == 3


def test_a_demo_dataset_has_the_size_that_the_parameters_give(here):
    root = {"format": "coco", "root": "artifacts/demo/coco"}
    change(lambda params: params.update(demo={"coco": 7, "voc": {"train": 3}}))
    change(
        lambda params: params["datasets"].update(
            coco=root, voc={"format": "voc", "root": "artifacts/demo/voc"}
        )
    )
    assert subset_images(Project(), "coco", "val2017") == 7
    assert subset_images(Project(), "voc", "train") == 3


def test_artifacts_of_other_parameters_are_not_counted(here):
    params = Project().params
    lock = {
        "stages": {
            "curate": {
                "params": {"params.yaml": {"benchmarks": {"voc": params["benchmarks"]["voc"]}}}
            }
        }
    }
    Path("dvc.lock").write_text(yaml.safe_dump(lock))
    assert made_with(Project(), "curate", "benchmarks.voc")
    assert not made_with(Project(), "curate", "benchmarks.bdd")
    change(lambda params: params["benchmarks"]["voc"]["most"].update(val=1000))
    assert not made_with(Project(), "curate", "benchmarks.voc")


def test_a_sample_of_the_images_gives_time_and_disk_for_each_stage(data, here, switch, monkeypatch):
    calls_take(monkeypatch, itertools.repeat(1.0))
    switch("fmiyc-rebuilt", data)
    costs = {cost.stage: cost for cost in estimate(Project(), 4, ["voc-yolov8"])}
    infer = costs["infer@voc-yolov8"]
    # Nothing was ingested: as many images as the published subsets have, those of COCO and
    # OpenImages counted twice. Of the training sets, at most 500 candidates for each of the four
    # splits.
    images = 16551 + 2000 + 4952 + 2 * (5000 + 41620) + 4 * 500
    assert f"× {images:,} images" in infer.how and "5 measured" in infer.how  # one of each dataset
    assert infer.seconds == pytest.approx(images / 5)  # the five took 1 s
    assert infer.bytes > images * 10
    scored = costs["fit, score@voc-yolov8: msp"]
    assert "fitted in 1.000 s and scored in 1.000 s" in scored.how
    assert scored.seconds is not None
    assert "needs features" in costs["fit, score@voc-yolov8: knn"].how
    assert costs["ingest@coco"].seconds is not None
    metrics = costs["evaluate@voc-yolov8: metrics"]
    assert "times in 1.00 s" in metrics.how
    assert "8 splits and 16 methods" in metrics.how
    assert metrics.seconds > 0


def test_an_estimate_says_what_layers_and_passes_take(data, here, switch, monkeypatch):
    calls_take(monkeypatch, itertools.repeat(1.0))

    def ask(params):
        stored = {"latents": ["backbone.steps.1"], "grams": ["backbone.steps.1"], "gram_powers": 2}
        passes = {
            "rankfeat": {},
            "dropout": {"passes": 4},
            "stepped": {"kind": "perturb", "loss": "mahalanobis"},
        }
        weights = str(Path(__file__).parents[2] / "data/demo/voc-faster_rcnn.safetensors")
        run = {"adapter": "faster_rcnn", "benchmark": "voc", "weights": weights}
        params["detectors"] = {"mine": {**run, "params": stored, "passes": passes}}
        knn = {"method": "knn", "layer": "backbone.steps.1"}
        energy = {"method": "energy", "pass": "rankfeat"}
        params["methods"] = {
            "per_layer": knn,
            "rank": energy,
            "odin": {"method": "mls", "pass": "stepped"},
        }

    switch("fmiyc-rebuilt", data)
    change(ask)
    costs = {cost.stage: cost for cost in estimate(Project(), 4, ["mine"])}
    infer, again = costs["infer@mine"], costs["infer@mine: pass rankfeat"]
    channels = int(re.search(r"latent\.backbone\.steps\.1 (\d+) B", infer.how)[1]) // 4
    assert (
        f"gram.backbone.steps.1 {2 * 4 * channels} B" in infer.how and "GiB of memory" in infer.how
    )
    assert 0 < again.bytes < infer.bytes and again.seconds > 0 and "latent" not in again.how
    assert "mean_probabilities" in costs["infer@mine: pass dropout"].how
    assert (
        "not measured" in costs["infer@mine: pass stepped"].how
    )  # by the distances of regions that are not there
    assert costs["fit, score@mine: odin"].how == "not measured: the pass 'stepped' was not"
    assert costs["fit, score@mine: rank"].seconds > 0
    fitted = float(
        re.search(r"there will be about ([\d,]+)", costs["fit, score@mine: per_layer"].how)[
            1
        ].replace(",", "")
    )
    assert costs["fit, score@mine: per_layer"].bytes > 4 * channels * fitted  # each training vector


def test_a_method_whose_pass_no_run_has_is_noted(data, here, switch, capsys):
    switch("fmiyc-rebuilt", data)
    change(lambda params: params["methods"].update(odin={"method": "mls", "pass": "stepped"}))
    main(["doctor", "--quick"])
    assert "methods.odin: no run has a pass 'stepped'" in " ".join(capsys.readouterr().out.split())


def test_an_estimate_without_images_is_empty_and_wrong_arguments_are_refused(here):
    costs = {cost.stage: cost for cost in estimate(Project(), 4, ["voc-yolov8"])}
    assert costs["infer@voc-yolov8"].seconds is None
    with pytest.raises(ParameterError, match="Did you mean 'voc-yolov8'"):
        estimate(Project(), 4, ["voc-yolov"])
    with pytest.raises(ParameterError, match="at least 2"):
        estimate(Project(), 1)


def test_a_sample_of_whole_images_is_repeated_as_other_images():
    logits = np.array([[1.0, 2.0], [3.0, 0.0]], np.float32)
    header = Header(classes=("cat", "dog"), activation="softmax", whole_images=True)
    regions = Regions(
        image_id=["a", "b"],
        region_id=[0, 0],
        box=np.tile((0.0, 0.0, 9.0, 9.0), (2, 1)),
        score=np.array([0.7, 0.9]),
        label=logits.argmax(axis=1),
        logits=logits,
        header=header,
    )
    assert len(set(repeat_regions(regions).image_id)) == REGIONS


def test_an_estimate_follows_links_to_folders_and_leaves_out_imported_runs(here, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.png").touch()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/images").symlink_to(tmp_path / "elsewhere")
    assert sample_images(tmp_path / "root", 1) == [tmp_path / "root/images/a.png"]
    line = {"adapter": "coco_results", "benchmark": "voc", "weights": "r.json"}
    change(lambda params: params.update(detectors={"theirs": line}))
    costs = {cost.stage: cost for cost in estimate(Project(), 4)}
    assert costs["infer@theirs"].how == "imports detections: nothing to measure"


def test_extracted_images_are_sampled_where_they_are_the_root_only(tmp_path):
    extracted = tmp_path / "extracted-images"
    extracted.mkdir()
    (extracted / "000000.png").touch()
    assert sample_images(extracted, 1) == [extracted / "000000.png"]
    assert sample_images(tmp_path, 1) == []


def test_an_estimate_of_an_absent_checkpoint_names_it(data, here):
    change(lambda params: params["datasets"]["voc"].update(root=str(data / "VOCdevkit")))
    with pytest.raises(DataError, match=r"voc-yolov8n\.pt: the checkpoint does not exist"):
        estimate(Project(), 4, ["voc-yolov8"])


@pytest.mark.parametrize(
    ("name", "text"),
    [(".dvc/tmp/rwlock", text) for text in ("", "{", "[]")]
    + [(".dvc/tmp/lock", text) for text in ("", "?")]
    + [
        ("dvc.lock", text) for text in ("", "schema: '2.0'\nstages: {x: cmd}", "stages:\n  x: {cmd")
    ],
)
def test_a_lock_file_that_a_killed_dvc_left_damaged_comes_with_the_remedy(tmp_path, name, text):
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    (finding,) = dvc_locks(tmp_path)
    assert (finding.state, finding.more["remedy"]) == ("wrong", f"rm {file}")


def test_the_lock_files_of_dvc_itself_are_not_damaged(tmp_path):
    with Repo.init(tmp_path, no_scm=True) as repo:
        with repo.lock, rwlock(repo.tmp_dir, repo.fs, "test", ["a"], ["b"], hardlink=False):
            assert [finding.state for finding in dvc_locks(tmp_path)] == ["note"]
        assert (tmp_path / ".dvc/tmp/rwlock").is_file()
        (tmp_path / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
        assert dvc_locks(tmp_path) == []


def test_a_pass_whose_clip_is_absent_or_whose_class_is_a_number_is_wrong(here):
    Path("found.json").write_text(
        '[{"image_id": 1, "category_id": "7", "bbox": [0, 0, 1, 1], "score": 0.5}]'
    )
    entry = {
        "adapter": "coco_results",
        "benchmark": "voc",
        "weights": "found.json",
        "params": {"classes": ["7"]},
    }
    clip = {"model": f"local-dir:{Path(__file__).parents[2]}/data/demo/clip"}

    def found(**crops):
        detector = of_entry(entry)
        entry["passes"] = {"crop": crops}
        (finding,) = check_passes(
            "ours", entry, detector, detector.header(), {"model": "local-dir:data/clip"}
        )
        return finding

    absent = found(kind="crops", words={"7": "person"})
    assert absent.state == "wrong"
    assert "holds no open_clip_config.json" in absent.text
    assert "the class '7' is not a word that CLIP knows" in found(kind="crops", encoder=clip).text
    named = found(kind="crops", encoder=clip, words={"7": "person"}, unknown=["cloud"])
    assert (named.state, named.text) == ("ok", "1 prompts of classes, 1 negative ones")
    assert "needs a network, but coco_results imports detections" in found(kind="dropout").text
