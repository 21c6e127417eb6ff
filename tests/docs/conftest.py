"""A project with a tiny world, as far as the pages need it: one detector, three methods, no DVC."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.stages.in_process import OF_RUN
from tests.support.shared import once

from farther.naming.registry import build
from farther.params import parse
from farther_demo import DemoWorld, generate

ROOT = Path(__file__).parents[2]
RUN = "voc-faster_rcnn"
METHODS = ("msp", "energy", "knn")


class Project:
    """The project's folder.

    Args:
        folder: Where it is, and the current one.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.params: dict[str, Any] = {}

    def lay(self) -> None:
        """Writes parameters and tables of a tiny dataset; the detector has not run yet."""
        folder = self.folder
        for name in ("data/benchmarks", "data/decisions", "data/names"):
            shutil.copytree(ROOT / name, folder / name)
        (folder / "data/demo").symlink_to(ROOT / "data/demo")
        params = parse((ROOT / "params.yaml").read_text())
        params["demo"] |= {"voc": {"train": 16, "val": 8, "test": 8}, "coco": 20}
        params["datasets"] = {name: params["datasets"][name] for name in ("voc", "coco")}
        params["benchmarks"] = {"voc": params["benchmarks"]["voc"]}
        splits = params["benchmarks"]["voc"]["splits"]
        params["benchmarks"]["voc"]["splits"] = {
            name: splits[name] for name in ("coco_near", "coco_far")
        }
        del params["benchmarks"]["voc"]["shifted"], params["benchmarks"]["voc"]["pseudo_ood"]
        params["detectors"] = {RUN: params["detectors"][RUN]}
        params["detectors"][RUN].pop("proposals", None)  # of a run that is not here
        params["review"] = {"voc": RUN}
        params["inference"]["workers"] = 0
        params["methods"] = {name: params["methods"][name] for name in METHODS}
        params["evaluate"] |= {"replicates": 100, "kept": [0.9, 0.95], "confidences": [0.5]}
        self.params = params
        self.write_params()
        world = build(DemoWorld, "demo", params["demo"])
        for name in params["datasets"]:
            generate(name, Path("artifacts/demo") / name, world)
            self.stage("ingest", name)

    def write_params(self) -> None:
        """Writes params.yaml."""
        (self.folder / "params.yaml").write_text(yaml.safe_dump(self.params, sort_keys=False))

    def change(self, values: dict[str, Any]) -> None:
        """Puts entries into params.yaml, beside those that are there."""
        merge(self.params, values)
        self.write_params()

    def stage(self, name: str, *arguments: str) -> None:
        """Runs a stage as the pipeline does, in this process."""
        import_module(f"farther.pipeline.{name}").main(*arguments)

    def evaluate(self, run: str) -> None:
        """What `dvc repro evaluate` runs after `ingest`, whether it changed or not."""
        self.stage("curate")
        self.stage("infer", run)
        self.stage("code_digests")
        for stage in OF_RUN:
            self.stage(stage, run)


def merge(into: dict[str, Any], values: dict[str, Any]) -> None:
    """Puts values into nested sections."""
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            merge(into[name], value)
        else:
            into[name] = value


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The project in the state after section 1 of the tutorial: its detector was evaluated.

    It is the current folder.
    """
    with once(tmp_path_factory, "docs-evaluated") as (folder, wanted):
        if wanted:
            folder.mkdir()
            with contextlib.chdir(folder):
                made = Project(folder)
                made.lay()
                made.evaluate(RUN)
    project = Project(tmp_path_factory.mktemp("docs") / "project")
    shutil.copytree(folder, project.folder, symlinks=True)
    project.params = yaml.safe_load((project.folder / "params.yaml").read_text())
    with contextlib.chdir(project.folder):
        yield project
