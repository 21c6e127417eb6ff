"""The demo's pipeline with a few images and one run, its stages, and stages under DVC."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import sys
from collections.abc import Collection
from importlib import import_module
from pathlib import Path

import yaml
from tests.disturbed.valid import projects
from tests.stages import in_process
from tests.support.dvc_commands import dvc

from farther.pipeline.stages import STAGES as TABLE
from farther.pipeline.stages import Stage

ROOT = Path(__file__).parents[3]

#: Folder beside the artifacts that the stage `enrich` writes to.
CANDIDATES = "data/candidates"
#: Arguments of the commands of repeated stages, by the section that they are repeated over.
ARGUMENTS = {
    "datasets": ("voc", "coco", "openimages"),
    "enrich": ("voc",),
    "derived": ("blank voc_blank", "paste voc_pasted", "corrupt voc_shifted"),
    "detectors": ("voc-faster_rcnn",),
}


def commands(stage: Stage) -> list[str]:
    """Names of a stage with the arguments that its script is run with."""
    if stage.section is None:
        return [stage.name]
    return [f"{stage.name} {arguments}" for arguments in ARGUMENTS[stage.section]]


#: All stages but `code`, which runs first.
STAGES = tuple(command for stage in TABLE[1:] for command in commands(stage))


def params() -> dict:
    """The demo's parameters with one small benchmark."""
    settings = yaml.safe_load((ROOT / "params.yaml").read_text())
    settings["demo"].update(
        {
            "voc": {"train": 8, "val": 6, "test": 6},
            "coco": 16,
            "bdd": {"train": 2, "val": 2, "test": 2},
            "drawings": {"train": 2, "val": 2, "test": 2},
            "openimages": 8,
            "drawings_unknown": 2,
        }
    )
    settings["datasets"] = _selected(settings["datasets"], ("voc", "coco", "openimages"))
    settings["enrich"] = {"voc": {"pools": [{"dataset": "openimages", "subset": "validation"}]}}
    settings["derived"] = _derived_params(settings["derived"])
    settings["benchmarks"] = {"voc": _benchmark_params(settings["benchmarks"]["voc"])}

    detector = settings["detectors"]["voc-faster_rcnn"]
    detector.pop("passes", None)
    detector["proposals"] = {"rpn": {}}
    settings["detectors"] = {"voc-faster_rcnn": detector}

    settings["methods"] = _selected(settings["methods"], ("msp", "knn"))
    settings["inference"].update(workers=1, shard_images=4)
    settings["embed"]["images"].update(workers=0, shard_images=8)
    settings["evaluate"]["replicates"] = 100
    settings["cost"] = {"images": 2}
    settings["report"] = {}
    return settings


def _selected(section: dict, names: Collection[str]) -> dict:
    return {name: section[name] for name in names}


def _derived_params(derived: dict) -> dict:
    """One derived dataset of each kind, of at most six images."""
    small = {}
    for kind, dataset in (
        ("paste", "voc_pasted"),
        ("corrupt", "voc_shifted"),
        ("blank", "voc_blank"),
    ):
        settings = derived[kind][dataset]
        settings["images"]["most"] = 6
        small[kind] = {dataset: settings}

    small["corrupt"]["voc_shifted"].update(
        severities=[1], corruptions=["gaussian_noise", "contrast"]
    )
    return small


def _benchmark_params(benchmark: dict) -> dict:
    """A benchmark with its OOD splits from COCO only."""
    del benchmark["shifted"]
    splits = benchmark["splits"]
    benchmark["splits"] = {}
    for name, split in splits.items():
        if split["dataset"] == "coco":
            benchmark["splits"][name] = split
    return benchmark


def small_demo(folder: Path) -> Path:
    """Creates a project with the stages and no artifacts."""
    (folder / "data").mkdir(parents=True)
    for name in ("stages", "extensions"):
        (folder / name).symlink_to(ROOT / name)
    for source in (ROOT / "data").iterdir():
        if source.name == "candidates":  # stage `enrich` writes there
            shutil.copytree(source, folder / CANDIDATES)
        else:
            (folder / "data" / source.name).symlink_to(source)
    (folder / "params.yaml").write_text(yaml.safe_dump(params(), sort_keys=False))
    return folder


def prepare() -> None:
    """The same in the current folder, with the digests of code."""
    small_demo(Path())
    in_process.run(Path(), "code_digests")


def nothing() -> None:
    """For a stage that starts from what the one before wrote."""


def run_stage(stage: str) -> None:
    """Runs a stage's script in the current folder, as DVC does."""
    name, *arguments = stage.split()
    script = str(ROOT / "stages" / f"{name}.py")
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def output_of(stage: str) -> str:
    """The file or folder that no other process may write while a stage runs."""
    name, *arguments = stage.split()
    if name == "demo":
        return "artifacts/demo"
    return import_module(f"farther.pipeline.{name}").OUTPUT.format(*arguments)


def ingest_under_dvc() -> None:
    """Puts two stages `ingest` of the demo's datasets under DVC."""
    under_dvc(Path(), {"ingest": _selected(params()["datasets"], ("voc", "coco"))})


def dvc_repro() -> None:
    """Runs `dvc repro`."""
    sys.argv = ["dvc", "repro"]
    runpy.run_module("dvc", run_name="__main__")


#: Stages that `repro --jobs` runs of each of two runs: some that follow each other, or all.
STAGES_OF_RUNS = ("infer", *in_process.OF_RUN)
if not os.environ.get("FARTHER_TEST_ALL"):
    STAGES_OF_RUNS = ("infer", "fit", "score")


def two_runs_under_dvc() -> None:
    """Two runs of imported detections, whose stages from `infer` on are under DVC."""
    projects.project("infer")
    Path("clip").mkdir()
    Path("data/decisions").mkdir(parents=True)
    Path("data/decisions/.gitkeep").touch()
    settings = {**projects.PARAMS, "embed": {"weights": "clip", "encoder": {}}}
    Path("params.yaml").write_text(json.dumps(settings))
    Path("stages").symlink_to(ROOT / "stages")
    Path("artifacts/code.json").unlink()
    projects.stage("code_digests")
    under_dvc(Path(), dict.fromkeys(STAGES_OF_RUNS, "${detectors}"))


def under_dvc(folder: Path, stages: dict[str, object]) -> Path:
    """Puts stages of the pipeline under DVC.

    Args:
        folder: The project.
        stages: The names or the entries that each stage is repeated over, if it is.
    """
    pipeline = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    selected = {}
    for name, entries in stages.items():
        selected[name] = pipeline["stages"][name]
        if "foreach" in selected[name]:
            selected[name]["foreach"] = entries
    pipeline["stages"] = selected
    (folder / "dvc.yaml").unlink(missing_ok=True)
    (folder / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    dvc("init", "--quiet", "--no-scm", folder=folder)
    dvc("config", "core.analytics", "false", folder=folder)
    return folder
