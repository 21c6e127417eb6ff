"""Each program in benchmarks/ runs at its smallest size."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from tests.disturbed.valid import pipeline
from tests.stages import in_process
from tests.support.cases import drawn_cases

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"

SMALL_REGIONS = ["--train", "300", "--test", "60", "--dimensions", "64", "--classes", "3"]
SMALL_NETWORK = [
    *("--count", "2", "--rounds", "1", "--score-threshold", "0", "--max-detections", "5"),
    *("--width", "64", "--height", "48", "--workers", "0"),
]
#: The run of the small demo, and one that `cluster` infers itself.
RUN, ON_CLUSTER = "voc-faster_rcnn", "voc-yolov8"
#: Arguments, and a word of what is printed. FOLDER is an empty folder, IMAGES one with two images,
#: DEMO a small finished demo.
CASES = {
    "methods time": (["time", *SMALL_REGIONS, "--repeat", "1"], "| knn | "),
    "methods few": (
        ["few", *SMALL_REGIONS, "--repeat", "1", "--seconds", "0"],
        "| lard_gmm | scikit-learn | ",
    ),
    "methods torch": (["torch", *SMALL_REGIONS, "--repeat", "1"], "| openmax | "),
    "methods memory": (["memory", "--large", "300", "--test", "60", "--names", "msp"], "GiB"),
    "metrics tables": (
        [
            "--only",
            "tables",
            "--images",
            "20",
            "--regions",
            "5",
            "--objects",
            "2",
            "--classes",
            "3",
        ],
        "pycocotools",
    ),
    "metrics unknowns": (["--only", "unknowns", "--scale", "0.01"], "faster-coco-eval"),
    "metrics one-scale": (["--only", "one-scale", "--regions", "700"], "detections"),
    "reading": (["FOLDER", "--detections", "500", "--images", "100"], "| `init` | "),
    "knn": (
        ["FOLDER", "--stored", "500", "--width", "8", "--rounds", "1", "--indexes", "exact"],
        "| exact | ratio | ",
    ),
    "ingest": (["--boxes", "200"], "tables"),
    "infer faster_rcnn": (["faster_rcnn", *SMALL_NETWORK], "| torch.save | "),
    "infer yolo": (["yolo", *SMALL_NETWORK], "| torch.save | "),
    "infer detr": (["detr", *SMALL_NETWORK], "| torch.save | "),
    "infer classifier": (["classifier", *SMALL_NETWORK], "| torch.save | "),
    "parts": (
        ["faster_rcnn", *SMALL_NETWORK, "--batch-size", "1", "--precision", "float32"],
        "channels_last",
    ),
    "passes": (["--images", "IMAGES", "--batches", "1", "--batch-size", "1"], "augment"),
    "proposals": (["IMAGES", "--images", "2", "--batch", "2", "--rounds", "1"], "queries"),
    "gallery": (["--detections", "100", "--methods", "1", "--repeat", "1"], "opened in"),
    "monitor": (
        [
            *("--project", "DEMO", "--runs", RUN, "--images", "2", "--batch-sizes", "1"),
            *("--rounds", "1", "--seconds", "0"),
        ],
        f"| {RUN} | 1 | knn_100k | ",
    ),
    "protocols": (
        ["--project", "DEMO", "--work", "FOLDER", "--runs", RUN],
        "| lard_gmm | paper | ",
    ),
    "promises made": (["--draws", "3", "--methods", "2", "--images", "50"], "| 2 | 0.2 | "),
    "promises of_run": (
        [
            *("--project", "DEMO", "--run", RUN, "--draws", "2", "--methods", "2"),
            *("--images", "20", "--limits", "0.2"),
        ],
        "| 2 | 0.2 | ",
    ),
    "intervals made": (["--draws", "3", "--images", "50"], "| 50 | "),
    "intervals of_run": (
        ["--project", "DEMO", "--run", RUN, "--draws", "1", "--images", "10"],
        "| 10 | found | ",
    ),
    "many": (
        ["DEMO", "FOLDER", "--runs", "2", "--of", RUN, "--commands", "summary"],
        "| `summary` | ",
    ),
    "together": (["DEMO", "knn", "mahalanobis"], f"| {RUN} | "),
    "wide": (
        ["FOLDER", "--classes", "5", "--splits", "2", "--methods", "3", "--images", "40"],
        "| `farther summary` | ",
    ),
    "review_queue": (["--project", "DEMO"], f"| voc | {RUN} | 1 of 10 | "),
}
#: Methods that the smallest size of `full_size` leaves out.
LEFT_OUT = (
    *("vim", "dice", "react", "dice_react", "ash", "gen", "vos", "lard_knn", "lard_gmm"),
    "mahalanobis",
)
#: Stages that make the small demo, those of its run left out.
BEFORE_RUNS = (
    *("code_digests", "demo", "ingest voc", "ingest coco", "ingest openimages"),
    *("derive blank voc_blank", "curate"),
)


def run(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a benchmark in this process, as `python benchmarks/NAME.py ARGUMENTS` does."""
    file = BENCHMARKS / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(file), *arguments])
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    runpy.run_path(str(file), run_name="__main__")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(2):
        pixels = rng.integers(0, 256, (96, 128, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg")
    return folder


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The demo with a few images and one run."""
    folder = pipeline.small_demo(tmp_path_factory.mktemp("small") / "demo")
    whole = yaml.safe_load((ROOT / "params.yaml").read_text())
    params = pipeline.params()
    for name in ("energy", "mahalanobis"):
        params["methods"][name] = whole["methods"][name]
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))

    stages = [*BEFORE_RUNS, f"infer {RUN}"]
    stages += [f"{name} {RUN}" for name in in_process.OF_RUN]
    # Without the name of a run, it also measures what methods cost.
    stages.append("choose")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        for stage in stages:
            if stage == "demo":
                patch.chdir(folder)
                patch.setattr(sys, "argv", ["demo.py"])
                runpy.run_path(str(ROOT / "stages/demo.py"), run_name="__main__")
            else:
                in_process.run(folder, stage)

    params["detectors"][ON_CLUSTER] = whole["detectors"][ON_CLUSTER]
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    in_process.run(folder, "code_digests")
    yield folder
    torch.set_num_threads(threads)


@pytest.mark.parametrize("case", CASES)
def test_each_benchmark_runs_at_its_smallest_size(
    case, images, tmp_path, monkeypatch, capfd, request
):
    arguments, printed = CASES[case]
    places = {"FOLDER": str(tmp_path / "folder"), "IMAGES": str(images)}
    if "DEMO" in arguments:
        places["DEMO"] = str(request.getfixturevalue("demo"))
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(ROOT)
    run(case.split()[0], [places.get(argument, argument) for argument in arguments], monkeypatch)
    output = capfd.readouterr()
    assert printed in output.out
    assert "not measured" not in output.err


def test_the_steps_of_growth_run_one_after_the_other(tmp_path, monkeypatch, capfd):
    for step in ("write", "fit", "score", "evaluate", "gallery"):
        arguments = [str(tmp_path), "--rows", "400", "--replicates", "100", "--step", step]
        run("growth", arguments, monkeypatch)
    assert "evaluated the detector, msp" in capfd.readouterr().out
    assert (tmp_path / "400/report/gallery.html").exists()


def run_full_size(tmp_path, capfd, monkeypatch):
    """The published size and its peer, at a fiftieth."""
    arguments = [str(tmp_path / "project"), "--scale", "0.02", "--runs", "voc-rtdetr", "--peer"]
    arguments += ["--last", "energy", "--jobs", "2", "--without", *LEFT_OUT]
    run("full_size", arguments, monkeypatch)
    output = capfd.readouterr().out
    for title in ("Ingest and curate", "Import of the detections", "One more method"):
        assert title in output
    assert "voc-rtdetr, the peer" in output
    (found,) = re.findall(r"^largest difference in AUROC: (.*)$", output, re.MULTILINE)
    differences = dict(pair.split() for pair in found.split(", "))
    # The peer's search of neighbours is approximate.
    for method in differences.keys() - {"knn"}:
        assert float(differences[method]) < 1e-6, found
    assert {"msp", "lard_mahalanobis"} <= differences.keys()


def may_make_machines() -> bool:
    """True if this process may give a process a network and disks of its own."""
    if os.getuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    apart = ["unshare", "--net", "--mount", "sh", "-c"]
    command = "mount -t tmpfs run /run && ip link add name switch type bridge"
    return subprocess.run([*apart, command], capture_output=True).returncode == 0


def as_root(name: str, *arguments: str) -> str:
    """Runs a benchmark that needs root in a process of its own; returns what it prints."""
    if not may_make_machines():
        pytest.skip("needs root, and Linux namespaces")
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_cluster(tmp_path, demo):
    """A stage on a cluster of three machines writes the same bytes."""
    sizes = ["--stages", "infer", "--events", "nothing", "--images", "6", "--cost", "0"]
    printed = as_root("cluster", str(tmp_path / "cluster"), "--demo", str(demo), *sizes)
    assert re.search(r"\| infer \| nothing \| [\d.]+ \| 0 of [1-9]\d* \| 0 \|", printed), printed


def run_resilience():
    """A full disk, a read-only one and a kill leave nothing half-written."""
    printed = as_root("resilience", "--times", "1", "--until", "ingest voc", "--images", "20")
    outcomes = re.findall(r"^\| ([^|]+) \|.* \| (\d+) \| (\d+) \|$", printed, re.MULTILINE)
    assert outcomes == [
        ("ingest", "0", "0"),
        ("dvc repro", "0", "0"),
        ("import of 2,000 detections", "0", "0"),
    ]


def run_gpu(demo, capfd, monkeypatch):
    """What is measured on a GPU, on the CPU."""
    run("gpu", ["--device", "cpu", "--smallest", "--project", str(demo)], monkeypatch)
    output = capfd.readouterr()
    assert "Largest difference of a" in output.out
    assert "not measured" not in output.err


@pytest.mark.parametrize("name", drawn_cases(["full_size", "cluster", "resilience", "gpu"], 1))
def test_a_benchmark_of_the_whole_pipeline_runs(name, tmp_path, monkeypatch, capfd, request):
    if name == "full_size":
        run_full_size(tmp_path, capfd, monkeypatch)
    elif name == "cluster":
        run_cluster(tmp_path, request.getfixturevalue("demo"))
    elif name == "gpu":
        monkeypatch.chdir(ROOT)
        run_gpu(request.getfixturevalue("demo"), capfd, monkeypatch)
    else:
        run_resilience()


def test_no_benchmark_is_left_out():
    tried = {"growth", "full_size", "full_size_peer", "cluster", "resilience", "gpu"}
    tried |= {case.split()[0] for case in CASES}
    assert tried == {file.stem for file in BENCHMARKS.glob("*.py")}
