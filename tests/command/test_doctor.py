"""`farther doctor`: findings about a project before it runs."""

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.command.parameters import change
from tests.support.dvc_commands import dvc

from farther.command import main
from farther.command.doctor import choose, ingest, report
from farther.command.doctor.inspection import Inspection
from farther.command.doctor.machine import dvc_locks
from farther.command.lists import registry_of
from farther.detectors import of_entry
from farther.detectors.check import check_passes
from farther.naming.extras import AbsentPackagesError, distribution, packages_of, requirements
from farther.params import parse, read_params
from farther.tables import Images


def by_topic(findings, topic):
    return {finding["name"]: finding for finding in findings if finding["topic"] == topic}


def doctor(capsys, *arguments):
    capsys.readouterr()
    status = main(["doctor", "--json", *arguments])
    return status, json.loads(capsys.readouterr().out)["findings"]


def test_each_absent_file_comes_with_its_place_its_source_and_its_size(here, capsys):
    status, findings = doctor(capsys, "--quick")
    assert status == 1
    missing = {}
    for finding in findings:
        if finding["topic"] == "datasets" and finding["state"] == "missing":
            missing[finding["belongs at"]] = finding
            assert finding["belongs at"].startswith(str(here / "none"))
            assert finding["comes from"]
    assert {finding["name"] for finding in missing.values()} == {"voc", "bdd", "fmiyc"}
    (images,) = (place for place in missing if place.endswith("VOC2012/JPEGImages"))
    assert 1e9 < missing[images]["bytes"] < 3e9
    assert sum(finding["bytes"] for finding in missing.values()) > 5e9
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
    places = [finding.more for finding in ingest.check(inspection) if finding.name == dataset]
    sources = [place["comes from"] for place in places if place["belongs at"].endswith(file)]
    assert source in sources[0]


def test_curated_images_that_are_too_few_for_the_limit_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    params = {"benchmarks": {"pets": {}}, "deploy": {"max_false_alarms": 0.05}}

    def found(images):
        names = [f"{number}" for number in range(images)]
        sides = [10] * images
        Images(
            image_id=names,
            dataset=["pets"] * images,
            file=names,
            width=sides,
            height=sides,
            digest=names,
        ).write(tmp_path / "artifacts/splits/pets/val/images.parquet")
        return [finding.text for finding in choose.check(Inspection(params))]

    (text,) = found(21)
    assert text.startswith("21 ID validation images cannot show a limit of 0.05: 59 are needed")
    assert found(59) == []
    params["deploy"]["guarantee"] = "none"
    assert found(21) == []


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
        params["methods"]["vos"] = {"runs": ["voc-voss"]}
        params["detectors"]["voc-vos"]["benchmark"] = "vok"
        params["evaluate"]["iou"] = 2
        params["scoring"]["device"] = "tpu"

    change(spoil)
    status, findings = doctor(capsys, "--quick")
    wrong = {
        finding["name"]: finding["text"] for finding in findings if finding["state"] == "wrong"
    }
    assert status == 1
    assert set(wrong) == {
        "methods.knnn",
        "methods.gen",
        "methods.react",
        "methods.vos",
        "detectors.voc-vos",
        "evaluate",
        "scoring",
    }
    assert "methods.react.fit_on is 'vall', which is not an ID split" in wrong["methods.react"]
    assert "Did you mean 'voc-vos'?" in wrong["methods.vos"]
    assert "Did you mean 'knn'?" in wrong["methods.knnn"]
    assert "unknown parameter 'gama'" in wrong["methods.gen"]
    assert "Did you mean 'voc'?" in wrong["detectors.voc-vos"]
    assert "less than or equal to 1" in wrong["evaluate"]
    assert "'device'" in wrong["scoring"]


def test_packages_are_those_that_the_code_imports():
    assert {"torch", "ultralytics"} <= packages_of("farther.detectors.yolo")
    assert "ultralytics" not in packages_of("farther.detectors.faster_rcnn")
    assert "transformers" in packages_of("farther.detectors.detr")
    assert not packages_of("farther.methods.msp") & {"torch", "faiss", "sklearn"}
    assert "faiss" in packages_of("farther.methods.knn")


def test_an_absent_package_comes_with_the_command_that_brings_it(here, capsys, monkeypatch):
    find_spec = importlib.util.find_spec
    absent = {"ultralytics", "faiss"}
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name in absent else find_spec(name, *more),
    )
    _, findings = doctor(capsys, "--quick")
    packages = by_topic(findings, "packages")
    assert packages["ultralytics"]["state"] == "missing"
    assert packages["ultralytics"]["comes from"] == "pip install 'farther[yolo]'"
    assert packages["faiss-cpu"]["state"] == "note"  # it only makes things faster


def test_detections_of_another_program_need_no_package():
    registry = registry_of("detectors")
    in_extras = set().union(*requirements().values()) - requirements()[""]
    for adapter in ("coco_results", "detections", "parquet"):
        needed = {distribution(module) for module in packages_of(registry.modules[adapter])}
        assert not needed & in_extras
    for adapter in ("yolo", "faster_rcnn", "detr", "open_clip_classifier", "onnx"):
        assert {"torch", "torchvision"} <= packages_of(registry.modules[adapter])


def test_all_packages_of_an_adapter_are_named_at_once(monkeypatch):
    module = registry_of("detectors").modules["ssd"]
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)  # its import fails
    monkeypatch.setattr("farther.naming.extras.is_installed", lambda name: name != "torch")
    with pytest.raises(AbsentPackagesError, match=r"detector 'ssd' needs the package 'torch'"):
        registry_of("detectors").get("ssd")


def test_a_file_that_is_no_checkpoint_is_named_with_what_is_wrong(here, capsys):
    bad = here / "bad.pt"
    bad.write_bytes(b"not a network")
    run = {"adapter": "yolo", "benchmark": "voc", "weights": str(bad)}
    change(lambda params: params.update(detectors={"x": run}, sources={"x": "our cluster"}))
    finding = by_topic(doctor(capsys)[1], "checkpoints")["x"]
    assert (finding["state"], finding["comes from"]) == ("wrong", "our cluster")
    assert "bad.pt" in finding["text"]


def test_a_model_of_the_hub_is_not_looked_for_on_disk(here, capsys):
    line = {"adapter": "detr", "benchmark": "voc", "weights": "PekingU/rtdetr_r50vd"}
    change(lambda params: params.update(detectors={"x": line}))
    assert by_topic(doctor(capsys)[1], "checkpoints")["x"]["state"] == "note"


def test_too_small_a_disk_for_the_missing_datasets_is_found(here, monkeypatch, capsys):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 90, 10))
    states = [
        (finding["state"], finding["text"][:9])
        for finding in doctor(capsys, "--quick")[1]
        if finding["topic"] == "disk"
    ]
    assert states == [("missing", "10 B free"), ("ok", "10 B free")]


def test_a_method_whose_pass_no_run_has_is_noted(data, here, switch, capsys):
    switch("fmiyc-rebuilt", data)
    change(lambda params: params["methods"].update(odin={"method": "mls", "pass": "stepped"}))
    main(["doctor", "--quick"])
    assert "methods.odin: no run has a pass 'stepped'" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("name", "text"),
    [(".dvc/tmp/rwlock", text) for text in ("", "{", "[]")]
    + [(".dvc/tmp/lock", text) for text in ("", "?")]
    + [
        ("dvc.lock", text)
        for text in (
            "",
            "schema: '2.0'\nstages: {x: cmd}",
            "schema: '2.0'\nstages: {x: {outs: []}}",
            "schema: '2.0'\nstages: {x: {cmd: run, outs: [{md5: 12ab}]}}",
            "schema: '2.0'\nstages: {x: {cmd: run, params: {params.yaml: 1}}}",
            "stages: {x: {cmd: run}}",
            "stages:\n  x: {cmd",
        )
    ],
)
def test_a_lock_file_that_a_killed_dvc_left_damaged_comes_with_the_remedy(tmp_path, name, text):
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    (finding,) = dvc_locks(tmp_path)
    assert (finding.state, finding.more["remedy"]) == ("wrong", f"rm {file}")


def test_the_lock_files_of_dvc_itself_are_not_damaged(tmp_path):
    dvc("init", "-q", "--no-scm", folder=tmp_path)
    os.mkfifo(tmp_path / "told")
    (tmp_path / "dvc.yaml").write_text("stages: {wait: {cmd: cat told > out, outs: [out]}}")
    repro = subprocess.Popen([sys.executable, "-m", "dvc", "repro", "-q"], cwd=tmp_path)
    with (tmp_path / "told").open("w"):  # opens when the stage does
        assert "out" in (tmp_path / ".dvc/tmp/rwlock").read_text()
        assert [finding for finding in dvc_locks(tmp_path) if finding.state == "wrong"] == []
    assert repro.wait() == 0
    assert (tmp_path / "dvc.lock").is_file()
    assert dvc_locks(tmp_path) == []
    with (tmp_path / ".dvc/tmp/lock").open("r") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert [finding.state for finding in dvc_locks(tmp_path)] == ["note"]


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

    def finding_about(**crops):
        detector = of_entry(entry)
        entry["passes"] = {"crop": crops}
        (finding,) = check_passes(
            "ours", entry, detector, detector.header(), {"model": "local-dir:data/clip"}
        )
        return finding

    absent = finding_about(kind="crops", words={"7": "person"})
    assert absent.state == "wrong"
    assert "holds no open_clip_config.json" in absent.text
    without_words = finding_about(kind="crops", encoder=clip)
    assert "the class '7' is not a word that CLIP knows" in without_words.text
    named = finding_about(kind="crops", encoder=clip, words={"7": "person"}, unknown=["cloud"])
    assert (named.state, named.text) == ("ok", "1 prompts of classes, 1 negative ones")
    dropout = finding_about(kind="dropout")
    assert "needs a network, but coco_results imports detections" in dropout.text


def test_a_section_that_nothing_reads_is_noted_where_it_may_be_misspelt(here, capsys):
    def misspell(params):
        params["reports"] = params.pop("report")
        params["mine"] = {"key": 1}

    change(misspell)
    _, findings = doctor(capsys, "--quick")
    noted = by_topic(findings, "pipeline")
    assert "did you mean 'report'?" in noted["reports"]["text"]
    assert "mine" not in noted


def test_a_method_of_the_report_that_may_be_several_is_named_with_all():
    sections = {
        "report": {"method": "kNN"},
        "methods": {"knn_a": {"method": "knn"}, "knn_b": {"method": "knn"}},
    }
    project = SimpleNamespace(section=lambda name: sections.get(name, {}))
    (finding,) = report.check(project)
    assert finding.state == "wrong"
    assert "'kNN' may mean 'knn_a' or 'knn_b'" in finding.text
    sections["report"]["method"] = "knn_b"
    assert list(report.check(project)) == []
