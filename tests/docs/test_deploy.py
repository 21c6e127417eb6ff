"""What docs/deploy.md does with a bundle is done here, on a world of a few scenes."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import supervision as sv
from tests.docs.pages import EXAMPLES, Page

import farther
from farther.command import main
from farther.params import parse
from farther.tables import Images, Regions, Scores

pytestmark = pytest.mark.slow  # a reader's way to the end of a page; others show each step

ROOT = Path(__file__).parents[2]
PAGE = Page("deploy.md")


def run(script: str) -> str:
    """What a script of the page, or one that it links, prints."""
    linked = EXAMPLES / script
    if linked.exists():
        assert f"](examples/{script})" in PAGE.text
        source = linked.read_text(encoding="utf-8")
    else:
        source = PAGE.block("python", f"# {script}")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, script, "exec"), {})
    return printed.getvalue()


@pytest.fixture(scope="module")
def predicted(evaluated) -> Path:
    """The folder that `farther predict` writes of the video of demo scenes."""
    run("scenes.py")
    lines = PAGE.block("bash", "farther predict deployed scenes.mp4").splitlines()
    for line in lines:
        words = line.split("  #")[0].split()
        assert words[0] == "farther"
        assert main(words[1:]) == 0
    return Path("predicted")


def test_the_video_of_scenes_becomes_an_annotated_one(predicted):
    frames = sv.VideoInfo.from_video_path("scenes.mp4").total_frames
    assert sv.VideoInfo.from_video_path(str(predicted / "annotated.mp4")).total_frames == frames
    images = pl.read_parquet(predicted / "images.parquet")
    assert images["image_id"].to_list() == [
        f"scenes_{number:08d}.jpg" for number in range(1, frames + 1)
    ]
    assert (
        images["detections"].sum()
        == len(json.loads((predicted / "detections.json").read_text()))
        > 0
    )


def test_a_loop_over_frames_gives_the_same(predicted):
    lines = run("loop.py").splitlines()
    unknown = [json.loads(line[line.index("[") :]) for line in lines]
    assert [len(boxes) for boxes in unknown] == pl.read_parquet(predicted / "images.parquet")[
        "unknown"
    ].to_list()


def test_drift_is_usable_from_python(predicted):
    shutil.copytree("artifacts/demo/coco/val2017", "photos")
    assert all("consistent with it" in line for line in run("drift.py").splitlines())


def test_what_was_deployed_is_measured_when_labels_arrive(evaluated, predicted):
    """The scenes are the labelled images: the OOD split `coco_far` has their labels."""
    assert (
        main(
            [
                "predict",
                "deployed",
                "artifacts/demo/coco/val2017",
                "--out",
                "found",
                "--no-pictures",
            ]
        )
        == 0
    )
    for line in PAGE.block("bash", "cp -r artifacts/regions").splitlines():
        _, _, source, to = (
            line.replace("predicted/", "found/").replace("labelled_far", "coco_far").split()
        )
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(source, to)
    entry = parse(PAGE.block("yaml", "voc-deployed:"))["detectors"]
    evaluated.change({"detectors": entry})
    evaluated.evaluate("voc-deployed")
    regions = Regions.read("artifacts/regions/voc-deployed/coco_far")
    scores = Scores.read("artifacts/scores/voc-deployed/knn/coco_far.parquet")
    images = Images.read("artifacts/splits/voc/coco_far/images.parquet")
    names = {
        image_id: Path(file).name
        for image_id, file in zip(images.image_id, images.file, strict=True)
    }
    deployed = pl.read_parquet("found/scores.parquet").filter(
        pl.col("image_id").is_in(list(names.values()))
    )
    deployed = deployed.sort("image_id", "region_id")
    assert len(regions) == deployed.height > 0
    order = np.lexsort((regions.region_id, [names[image_id] for image_id in regions.image_id]))
    assert scores.score[order].tolist() == deployed["score"].to_list()
    runs = ("voc-deployed", "voc-faster_rcnn")
    measured, original = (
        json.loads(Path(f"artifacts/metrics/{run}/coco_far/knn.json").read_text()) for run in runs
    )
    assert measured["auroc"] == pytest.approx(
        original["auroc"], abs=0.01
    )  # other batches: rounding


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["absent", "scenes.mp4", "--out", "new"],
            "absent/bundle.json: the file does not exist: not a bundle",
        ),
        (["deployed", "absent.mp4", "--out", "new"], "no such file or folder: 'absent.mp4'"),
        (
            ["deployed", "scenes.mp4", "--out", "predicted"],
            "predicted already exists: replace it with --overwrite",
        ),
        (["deployed", "scenes.mp4", "--out", "new", "--every", "0"], "every is at least 1"),
    ],
)
def test_what_cannot_be_run_is_one_message(predicted, arguments, problem, capsys):
    assert main(["predict", *arguments]) == 2
    assert problem in capsys.readouterr().err
    assert not Path("new").exists()


def test_the_exported_graph_runs_without_farther_and_gives_the_monitors_scores(evaluated):
    words = (
        PAGE.block("bash", "farther bundle voc-faster_rcnn knn deployed --onnx")
        .splitlines()[-1]
        .split()
    )
    assert main(words[1:]) == 0
    monitor = farther.Monitor.load("deployed", device="cpu")
    files = sorted(Path("artifacts/demo/coco/val2017").glob("*.jpg"))
    file, found = next((file, found) for file in files if len(found := monitor(file)) > 1)
    shutil.copyfile(file, "photo.jpg")
    lines = [
        line.rpartition("] ")[2].rsplit(" ", 1) for line in run("onnx_example.py").splitlines()
    ]
    names = [
        "unknown" if unknown else name
        for name, unknown in zip(found.classes, found.unknown, strict=True)
    ]
    assert [name for name, _ in lines] == names
    assert [float(score) for _, score in lines] == pytest.approx(found.score, abs=1e-4)
