"""Each program in benchmarks/ runs at its smallest size.

Those that need a finished demo, or machines of their own, are started with `--help`: their imports
are tried, and mypy checks what they call.
"""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"

SMALL_REGIONS = ["--train", "300", "--test", "60", "--dimensions", "64", "--classes", "3"]
SMALL_NETWORK = [
    *("--count", "2", "--rounds", "1", "--score-threshold", "0", "--max-detections", "5"),
    *("--width", "64", "--height", "48", "--workers", "0"),
]
#: Arguments, and a word of what is printed. FOLDER is an empty folder, IMAGES one with two images.
CASES = {
    "methods time": (["time", *SMALL_REGIONS, "--repeat", "1"], "| knn | "),
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
}
#: Started with `--help` only: they need a finished demo, root and a machine of their own, or some
#: gigabytes.
ONLY_HELP = (
    *("cluster", "full_size", "full_size_peer", "gallery", "monitor", "protocols", "resilience"),
    "review_queue",
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


@pytest.mark.parametrize("case", CASES)
def test_each_benchmark_runs_at_its_smallest_size(case, images, tmp_path, monkeypatch, capfd):
    arguments, printed = CASES[case]
    places = {"FOLDER": str(tmp_path / "folder"), "IMAGES": str(images)}
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(ROOT)
    run(case.split()[0], [places.get(argument, argument) for argument in arguments], monkeypatch)
    assert printed in capfd.readouterr().out


def test_the_steps_of_growth_run_one_after_the_other(tmp_path, monkeypatch, capfd):
    for step in ("write", "fit", "score", "evaluate", "gallery"):
        arguments = [str(tmp_path), "--rows", "400", "--replicates", "5", "--step", step]
        run("growth", arguments, monkeypatch)
    assert "evaluated the detector, msp" in capfd.readouterr().out
    assert (tmp_path / "400/report/gallery.html").exists()


@pytest.mark.parametrize("name", ONLY_HELP)
def test_benchmarks_that_need_more_than_a_test_has_start(name, monkeypatch, capsys):
    with pytest.raises(SystemExit) as end:
        run(name, ["--help"], monkeypatch)
    assert end.value.code == 0
    assert "usage" in capsys.readouterr().out


def test_no_benchmark_is_left_out():
    tried = {"growth", *ONLY_HELP} | {case.split()[0] for case in CASES}
    assert tried == {file.stem for file in BENCHMARKS.glob("*.py")}
