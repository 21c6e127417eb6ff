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
from tests.support.cases import drawn_cases
from tests.support.only_extras import environment, installed_by
from tests.support.shared import once

from farther_demo import DemoWorld, Subsets, generate

ROOT = Path(__file__).parents[2]
PAGES = {"README": Page("../README.md"), "tutorial": Page("start.md")}

#: The demo's detector that stands for the reader's, by the extra that runs it.
DETECTORS = {"yolo": "yolov8", "torchvision": "faster_rcnn", "detr": "rtdetr"}

#: Subcommands that run a network, or show the report.
NEED_A_NETWORK = ("open", "bundle", "predict")

#: Words of warnings, of Python or of a library.
WARNING = re.compile(r"\w*Warning\b|Traceback|deprecated")

#: Runs the tutorial's commands in one process, the stages as `dvc repro` calls them.
IN_ONE_PROCESS = """
import os, shlex, sys
from importlib import import_module
from farther.command import main

STAGES = (
    "code_digests", "ingest known", "ingest unknown", "curate", "infer pets", "fit pets",
    "score pets", "evaluate pets", "choose pets",
)
for line in sys.stdin.read().splitlines():
    program, *words = shlex.split(line)
    if program == "cd":
        os.chdir(*words)
    elif words == ["repro"]:
        for stage in STAGES:
            name, *arguments = stage.split()
            import_module(f"farther.pipeline.{name}").main(*arguments)
    elif main(words):
        sys.exit(f"failed: {line}")
"""


def commands(page: str) -> list[str]:
    """The commands of a page after its `pip install`, without comments."""
    lines = []
    for text in PAGES[page].blocks("bash"):
        for line in text.splitlines():
            lines.append(line.partition("  #")[0].strip())
    begin = next(number for number, line in enumerate(lines) if line.startswith("pip install"))
    return lines[begin + 1 :]


def extras_of(page: str) -> list[str]:
    """The extras that a page installs."""
    extras = re.search(r'pip install "\.\[(.*)\]"', PAGES[page].text)
    return extras[1].split(",")  # type: ignore[index]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `photos/known`, `photos/unknown`, and detections of all, `pets.json`."""
    with once(tmp_path_factory, "docs-photos") as (folder, wanted):
        if wanted:
            sizes = DemoWorld(voc=Subsets(train=12, val=12, test=12), coco=15)
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


def follow(
    lines: list[str], folder: Path, extras: list[str], detector: Path, program: list[str]
) -> str:
    """What commands print that are about a detector `pets.pt`; they must end well.

    Args:
        lines: The commands.
        folder: Has the photographs.
        extras: What can be imported is what these extras of farther install.
        detector: Stands for `pets.pt`.
        program: Runs the commands, which it reads.
    """
    file = folder / f"pets{detector.suffix}"
    if detector != file:
        shutil.copy(detector, file)
    variables = environment(folder / "hook", *extras)
    variables |= {"OMP_NUM_THREADS": "1", "YOLO_CONFIG_DIR": str(folder / "settings")}
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        variables.pop(name, None)
    done = subprocess.run(
        program,
        input="\n".join(lines).replace("pets.pt", file.name),
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
print([name for name in ("torch", "cv2", "pytest", "polars") if util.find_spec(name)])
print(metadata.version("farther"))
metadata.version("torch")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path / "hook"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("['polars']\n1.")
    assert "PackageNotFoundError: No package metadata was found for torch" in done.stderr
    assert {"torch", "supervision"} <= installed_by("yolo") - installed_by()
    assert "transformers" not in installed_by("yolo")


def test_without_an_extra_detections_are_evaluated(photos, tmp_path):
    shutil.copytree(photos, tmp_path, dirs_exist_ok=True)
    assert not installed_by() & {"torch", "ultralytics", "supervision"}
    lines = [
        line
        for line in commands("tutorial")
        if line.startswith(("cd", "farther")) and line.split()[1] not in NEED_A_NETWORK
    ]
    program = [sys.executable, "-c", IN_ONE_PROCESS]
    printed = follow(lines, tmp_path, [], tmp_path / "pets.json", program)
    assert "Nothing is missing." in printed
    assert re.search(r"Deploy\s+confidence", printed)


@pytest.mark.slow
def test_without_an_extra_detections_have_a_report(photos, tmp_path):
    shutil.copytree(photos, tmp_path, dirs_exist_ok=True)
    # Detections need no trial.
    lines = [line for line in commands("README") if not line.startswith("farther try")]
    follow(lines, tmp_path, [], tmp_path / "pets.json", ["bash", "-e"])
    assert (tmp_path / "project/artifacts/report/index.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("extra", drawn_cases(DETECTORS, 1))
def test_the_tutorial_ends_in_predictions_with_one_extra(extra, photos, tmp_path):
    shutil.copytree(photos, tmp_path, dirs_exist_ok=True)
    detector = ROOT / f"data/demo/voc-{DETECTORS[extra]}.safetensors"
    printed = follow(commands("tutorial"), tmp_path, [extra], detector, ["bash", "-e"])
    assert "Nothing is missing." in printed
    assert list((tmp_path / "predicted/pictures").rglob("*.jpg"))


def test_the_pages_install_an_extra_that_runs_the_tutorials_detector():
    for page in PAGES:
        assert set(extras_of(page)) == {"yolo"}
