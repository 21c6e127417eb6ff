"""`farther init` where farther is installed without an extra: what a detector needs is named."""

import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import polars as pl
import pytest
import yaml
from tests.projects.files import coco, picture
from tests.support.only_extras import environment

from farther import methods

#: Prints how each of the arguments is recognised as a detector, or refused.
RECOGNISE = """
import json, sys
from pathlib import Path
from farther.naming.extras import missing
from farther.errors import FartherError
from farther.projects.recognise import recognise
from farther.projects.recognise_detector import recognise_detector

dataset = recognise(Path(sys.argv[1]))
said = {}
for path in sys.argv[2:]:
    try:
        said[path] = recognise_detector(Path(path), dataset).entry
    except FartherError as error:
        said[path] = str(error)
    except ModuleNotFoundError as error:
        said[path] = missing(error)
print(json.dumps(said, default=str))
"""

#: A file of `torch.save`, by what its pickle names, and the extra with the package that reads it.
CHECKPOINTS = {
    "ultralytics.nn.tasks DetectionModel": "yolo",
    "refpoint_embed.weight": "detr",
    "backbone.body.conv1.weight": "torchvision",
}


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> dict[str, dict | str]:
    """What is said of detectors of all kinds, by their names."""
    folder = tmp_path_factory.mktemp("core")
    picture(folder / "pets/train/a.jpg")
    coco(folder / "pets/train/_annotations.coco.json", "a.jpg")
    files = _write_detectors(folder / "detectors")
    done = subprocess.run(
        [sys.executable, "-c", RECOGNISE, folder / "pets", *files],
        env=environment(folder / "hook"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {Path(name).name: answer for name, answer in json.loads(done.stdout).items()}


def _write_detectors(folder: Path) -> list[Path]:
    folder.mkdir()
    for content, extra in CHECKPOINTS.items():
        with zipfile.ZipFile(folder / f"{extra}.pt", "w") as archive:
            archive.writestr("best/data.pkl", pickle.dumps(content))
    (folder / "old-yolo.pt").write_bytes(pickle.dumps("ultralytics.nn.tasks"))
    for kind in ("yolo", "retinanet"):
        header = json.dumps({"__metadata__": {"format": f"farther.{kind}"}}).encode()
        file = folder / f"{kind}.safetensors"
        file.write_bytes(len(header).to_bytes(8, "little") + header)
    (folder / "detr").mkdir()
    (folder / "detr/config.json").write_text('{"architectures": ["DetrForObjectDetection"]}')
    (folder / "clip").mkdir()
    (folder / "clip/open_clip_config.json").write_text("{}")
    (folder / "graph.onnx").write_bytes(b"\x08")
    (folder / "notes.md").write_text("The detector is elsewhere.")

    box = {"image_id": "a", "category_id": "cat", "bbox": [1, 1, 5, 5], "score": 0.5}
    (folder / "r.json").write_text(json.dumps([box]))
    (folder / "r.csv").write_text("file,class,score,xmin,ymin,xmax,ymax\na.jpg,cat,0.5,1,1,6,6\n")
    (folder / "labels").mkdir()
    (folder / "labels/a.txt").write_text("0 0.5 0.5 0.2 0.2 0.9\n")
    columns = {"image_id": ["a"], "box": [[1.0, 1.0, 6.0, 6.0]], "score": [0.5], "label": [0]}
    pl.DataFrame(columns).write_parquet(folder / "r.parquet")
    return sorted(folder.iterdir())


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("yolo.pt", "yolo"),
        ("old-yolo.pt", "yolo"),
        ("yolo.safetensors", "yolo"),
        ("torchvision.pt", "torchvision"),
        ("retinanet.safetensors", "torchvision"),
        ("detr.pt", "detr"),
        ("detr", "detr"),
        ("clip", "clip"),
        ("graph.onnx", "onnx"),
    ],
)
def test_the_extra_that_runs_a_checkpoint_is_named(said, name, extra):
    assert f"pip install 'farther[{extra}]'" in said[name]


def test_a_file_that_is_not_a_checkpoint_needs_no_package(said):
    assert "it seems to be text" in said["notes.md"]
    assert "pip install" not in said["notes.md"]


@pytest.mark.parametrize(
    ("name", "adapter"),
    [
        ("r.json", "coco_results"),
        ("r.csv", "detections"),
        ("labels", "detections"),
        ("r.parquet", "parquet"),
    ],
)
def test_detections_are_read_without_a_package(said, name, adapter):
    assert said[name]["adapter"] == adapter


def test_the_list_of_detectors_needs_none_of_their_packages(tmp_path):
    command = [sys.executable, "-m", "farther", "list", "detectors"]
    hidden = environment(tmp_path / "hook")
    options = {"env": hidden, "capture_output": True, "text": True, "check": False}
    described = subprocess.run([*command, "yolo"], **options)
    assert described.returncode == 2
    assert "'yolo' needs the packages 'torch', 'torchvision', 'ultralytics'" in described.stderr
    assert "pip install 'farther[yolo]'" in described.stderr
    listed = subprocess.run([*command, "--json"], **options)
    row_by_name = {row["name"]: row for row in json.loads(listed.stdout)}
    assert "pip install 'farther[yolo]'" in row_by_name["yolo"]["absent"]
    assert row_by_name["coco_results"]["parameters"]


def test_doctor_checks_imported_detections_with_every_method_without_pytorch(tmp_path):
    for subset in ("train", "val", "test"):
        picture(tmp_path / f"pets/{subset}/{subset}.jpg")
        coco(tmp_path / f"pets/{subset}/_annotations.coco.json", f"{subset}.jpg")
    picture(tmp_path / "wild/w.jpg")
    box = {"category_id": "cat", "bbox": [1, 2, 8, 6], "score": 0.3, "image_id": 1}
    detections = [{**box, "file_name": f"{name}.jpg"} for name in ("train", "val", "test", "w")]
    (tmp_path / "r.json").write_text(json.dumps(detections))
    command = [sys.executable, "-m", "farther"]
    hidden = environment(tmp_path / "hook")
    options = {"env": hidden, "capture_output": True, "text": True, "check": False}
    arguments = ["--id", "pets", "--ood", "wild", "--detector", "r.json"]
    made = subprocess.run([*command, "init", "p", *arguments], cwd=tmp_path, **options)
    assert made.returncode == 0, made.stderr

    params = yaml.safe_load((tmp_path / "p/params.yaml").read_text())
    params["methods"] = {name: {} for name in methods.names() if name != "imported"}
    params["methods"]["fused"] = {"of": ["energy", "knn"]}
    params["methods"]["cascade"] = {"first": "energy", "then": "knn"}
    params["methods"]["gram"] = {"layer": ["stem"]}
    (tmp_path / "p/params.yaml").write_text(yaml.safe_dump(params))
    checked = subprocess.run([*command, "doctor"], cwd=tmp_path / "p", **options)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "2 classes, 4 detections" in checked.stdout
