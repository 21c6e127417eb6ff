"""README and the tutorial, followed where only what they install can be imported."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.docs.pages import Page
from tests.support.only_extras import environment, installed_by
from tests.support.shared import once

from farther_demo import DemoWorld, Subsets, generate

ROOT = Path(__file__).parents[2]
PAGES = {"README": Page("../README.md"), "tutorial": Page("start.md")}

#: The demo's detector that stands for the reader's, by the extra that runs it.
DETECTORS = {"yolo": "yolov8", "torchvision": "faster_rcnn", "detr": "rtdetr"}

#: Words of warnings, of Python or of a library.
WARNING = re.compile(r"\w*Warning\b|Traceback|deprecated")

#: Commands in one process, with the exit status of each.
IN_ONE_PROCESS = """
import shlex, sys
from farther.command import main
for line in sys.stdin.read().splitlines():
    print("$", line, flush=True)
    status = main(shlex.split(line)[1:])
    if status:
        sys.exit(f"{line}: {status}")
"""


def commands(page: str) -> list[str]:
    """The commands of a page's first project, from `pip install` on, without comments."""
    lines = []
    for text in PAGES[page].blocks("bash"):
        for line in text.splitlines():
            lines.append(line.partition("  #")[0].strip())
    begin = next(number for number, line in enumerate(lines) if line.startswith("pip install"))
    return lines[begin:]


def extras_of(page: str) -> list[str]:
    """The extras that a page installs."""
    (extras,) = re.findall(r'pip install "\.\[(.*)\]"', "\n".join(commands(page)))
    return extras.split(",")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `photos/known`, `photos/unknown`, and detections of all, `pets.json`."""
    with once(tmp_path_factory, "docs-photos") as (folder, wanted):
        if wanted:
            sizes = DemoWorld(voc=Subsets(train=16, val=16, test=16), coco=20)
            for world, name in (("voc", "known"), ("coco", "unknown")):
                generate(world, folder / "photos" / name, sizes)
            (folder / "pets.json").write_text(json.dumps(list(detections(folder / "photos"))))
    return folder


def detections(photos: Path) -> Iterator[dict[str, Any]]:
    """The labelled boxes with scores, as a detector that takes all unknown things for dogs."""
    scores = random.Random(0)
    for file in sorted(photos.rglob("*.xml")):
        for labelled in ElementTree.parse(file).iter("object"):
            sides = ("xmin", "ymin", "xmax", "ymax")
            xmin, ymin, xmax, ymax = (float(labelled.findtext(f"bndbox/{side}")) for side in sides)
            yield {
                "image_id": file.stem,
                "category_id": labelled.findtext("name"),
                "bbox": [xmin, ymin, xmax - xmin, ymax - ymin],
                "score": scores.uniform(0.3, 1),
            }
    (file,) = photos.rglob("instances_*.json")
    labels = json.loads(file.read_text())
    names = {image["id"]: Path(image["file_name"]).stem for image in labels["images"]}
    for labelled in labels["annotations"]:
        yield {
            "image_id": names[labelled["image_id"]],
            "category_id": "dog",
            "bbox": labelled["bbox"],
            "score": scores.uniform(0.2, 0.9),
        }


def follow(lines: list[str], folder: Path, extras: list[str], detector: Path) -> str:
    """What the lines of a page print in a shell; each must end well.

    Args:
        lines: Commands of a page, about a detector `pets.pt`.
        folder: Has the photographs.
        extras: What can be imported is what these extras of farther install.
        detector: Stands for `pets.pt`.
    """
    shutil.copy(detector, folder / f"pets{detector.suffix}")
    script = []
    for line in lines:
        if not line.startswith(("pip install", "python3 -m venv")):
            script.append(line.replace("pets.pt", f"pets{detector.suffix}"))
    variables = environment(folder / "hook", *extras)
    variables |= {"OMP_NUM_THREADS": "1", "YOLO_CONFIG_DIR": str(folder / "settings")}
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        variables.pop(name, None)
    done = subprocess.run(
        ["bash", "-ex"],
        input="\n".join(script),
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert not WARNING.search(done.stdout), done.stdout
    return done.stdout


def test_what_an_extra_does_not_install_cannot_be_imported(tmp_path):
    code = """
from importlib import metadata, util
absent = [name for name in ("torch", "ultralytics", "cv2", "pytest") if not util.find_spec(name)]
print(absent, util.find_spec("polars") is not None, metadata.version("farther"))
try:
    metadata.version("torch")
except metadata.PackageNotFoundError:
    import supervision
"""
    for extras, absent in ((), "['torch', 'ultralytics', 'cv2', 'pytest']"), (
        ("torchvision",),
        "['ultralytics', 'cv2', 'pytest']",
    ):
        variables = environment(tmp_path / "-".join(("hook", *extras)), *extras)
        done = subprocess.run(
            [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False
        )
        assert done.stdout.startswith(f"{absent} True")
        assert ("No module named 'supervision'" in done.stderr) == (not extras)


def test_without_an_extra_detections_are_evaluated(photos, tmp_path):
    """All in one process, whose stages are called as `dvc repro` does."""
    shutil.copytree(photos, tmp_path, dirs_exist_ok=True)
    assert not installed_by() & {"torch", "ultralytics", "supervision"}


@pytest.mark.slow
@pytest.mark.parametrize("extra", DETECTORS)
def test_the_tutorial_ends_in_predictions_with_one_extra(extra, photos, tmp_path):
    shutil.copytree(photos, tmp_path, dirs_exist_ok=True)
    detector = ROOT / f"data/demo/voc-{DETECTORS[extra]}.safetensors"
    printed = follow(commands("tutorial"), tmp_path, [extra], detector)
    assert "Nothing is missing." in printed
    assert list((tmp_path / "predicted/pictures").rglob("*.jpg"))
