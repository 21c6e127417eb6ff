"""The class mapping that docs/datasets.md shows, on generated photographs and detections."""

from __future__ import annotations

import json
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from tests.docs.pages import Page
from tests.stages.in_process import OF_RUN
from tests.support.dvc_commands import dvc

from farther.command import main
from farther.projects import Lookup, init

ROOT = Path(__file__).parents[2]
PAGE = Page("datasets.md")
BOX = (8, 6, 24, 18)  # x, y, width, height
SIZE = (40, 30)


def photo(file: Path, number: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZE, (number % 256, 80, 40)).save(file)


def pets(root: Path) -> list[str]:
    """A dataset as Roboflow exports it; returns the names of its images."""
    names = []
    x, y, width, height = BOX
    center = f"{(x + width / 2) / SIZE[0]} {(y + height / 2) / SIZE[1]}"
    row = f"{center} {width / SIZE[0]} {height / SIZE[1]}\n"
    for subset in ("train", "valid", "test"):
        for n in range(8):
            names.append(f"{subset}-{n}.jpg")
            photo(root / subset / "images" / names[-1], len(names))
            label = root / subset / "labels" / f"{subset}-{n}.txt"
            label.parent.mkdir(exist_ok=True)
            label.write_text(f"{n % 2} {row}")
    folders = "train: ../train/images\nval: ../valid/images\ntest: ../test/images\n"
    (root / "data.yaml").write_text(f"{folders}nc: 2\nnames: ['rabbit', 'dog']\n")
    return names


def wild(root: Path) -> list[str]:
    """XML files of LabelImg beside the photographs."""
    names = []
    x, y, width, height = BOX
    for n, category in enumerate(("lynx", "kite", "lynx", "rabit", "kite", "dogs", "lynx", "kite")):
        names.append(f"IMG {n:04}.jpg")
        photo(root / names[-1], 100 + n)
        box = (
            f"<xmin>{x + 1}</xmin><ymin>{y + 1}</ymin>"
            f"<xmax>{x + width}</xmax><ymax>{y + height}</ymax>"
        )
        found = (
            f"<object><name>{category}</name><difficult>Unspecified</difficult>"
            f"<bndbox>{box}</bndbox></object>"
        )
        path = rf"C:\Users\ann\{names[-1]}"
        size = f"<size><width>{SIZE[0]}</width><height>{SIZE[1]}</height></size>"
        xml = f"<annotation><filename>{path}</filename>{size}{found}</annotation>"
        (root / f"IMG {n:04}.xml").write_text(xml)
    return names


def detections(known: list[str], unknown: list[str]) -> list[dict[str, Any]]:
    """Boxes and scores, as Ultralytics writes `predictions.json` for user-defined classes."""
    found = []
    for n, name in enumerate(known):
        label = 1 + int(name.partition("-")[2][0]) % 2
        found.append(
            {
                "image_id": n,
                "file_name": name,
                "category_id": label,
                "bbox": BOX,
                "score": 0.7 + n % 8 / 40,
            }
        )
        found.append(
            {"image_id": n, "file_name": name, "category_id": 3 - label, "bbox": BOX, "score": 0.1}
        )
    for n, name in enumerate(unknown):
        found.append(
            {
                "image_id": n,
                "file_name": name,
                "category_id": 1 + n % 2,
                "bbox": BOX,
                "score": 0.6 + n / 40,
            }
        )
    return found


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    found = detections(pets(folder / "photos/pets"), wild(folder / "photos/wild"))
    (folder / "detections.json").write_text(json.dumps(found))
    return folder


def stages(params: dict[str, Any]) -> list[tuple[str, ...]]:
    """What `dvc repro` runs."""
    (run,) = params["detectors"]
    ingested = [("ingest", name) for name in params["datasets"]]
    evaluated = [(stage, run) for stage in OF_RUN]
    return [
        ("code_digests",),
        *ingested,
        ("curate",),
        ("infer", run),
        *evaluated,
        ("choose",),
        ("report",),
    ]


@pytest.mark.slow
def test_the_mapping_of_the_page_is_written_and_leads_to_the_report(photos, monkeypatch, capsys):
    monkeypatch.chdir(photos)
    make = PAGE.block("bash", "farther init")
    assert main(shlex.split(make)[1:]) == 0
    rules = Path("project/data/benchmarks/pets.yaml").read_text()
    assert PAGE.block("yaml", "# Each class of the detector") in rules
    monkeypatch.chdir(photos / "project")
    capsys.readouterr()
    assert main(["doctor", "--quick"]) == 0, capsys.readouterr().out

    misspelt = rules.replace("rabbit: {pets: [rabbit]}", "rabbit: {pets: [rabbit], wild: [rabit]}")
    assert misspelt != rules
    Path("data/benchmarks/pets.yaml").write_text(misspelt)
    params = yaml.safe_load(Path("params.yaml").read_text())
    for stage, *arguments in stages(params):
        import_module(f"farther.pipeline.{stage}").main(*arguments)
    found = json.loads(Path("artifacts/metrics/detections/wild/confidence.json").read_text())
    assert found["auroc"] > 0.5  # known objects have the higher scores
    assert len(json.loads(Path("artifacts/counts/curate/pets.json").read_text())) > 0
    assert "Confidence" in Path("artifacts/report/index.html").read_text()
    capsys.readouterr()
    assert main(["summary"]) == 0
    assert "Confidence" in capsys.readouterr().out


def test_the_warning_about_a_misspelt_class_is_that_of_the_page(photos, monkeypatch, capsys):
    monkeypatch.chdir(photos)
    init("again", "photos/pets", ["photos/wild"], ["detections.json"], Lookup()).write()
    monkeypatch.chdir(photos / "again")
    for stage, *arguments in (("ingest", "pets"), ("ingest", "wild"), ("curate",)):
        import_module(f"farther.pipeline.{stage}").main(*arguments)
    assert (
        "'rabit' has no rule and counts as unknown, but resembles the ID class 'rabbit'"
        in capsys.readouterr().out
    )


def test_the_pipeline_of_a_new_project_has_no_stage_of_the_demo_and_parses(photos, monkeypatch):
    monkeypatch.chdir(photos)
    assert (
        main(
            [
                "init",
                "third",
                "--id",
                "photos/pets",
                "--ood",
                "photos/wild",
                "--detector",
                "detections.json",
            ]
        )
        == 0
    )
    monkeypatch.chdir(photos / "third")
    names = set(dvc("stage", "list", "--all", "--name-only").split())
    assert {"ingest@pets", "ingest@wild", "curate", "infer@detections", "report"} <= names
    assert not any(name.startswith(("demo", "embed", "stratify")) for name in names)
