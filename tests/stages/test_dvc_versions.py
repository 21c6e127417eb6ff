"""The oldest DVC that the package allows does what the pipeline needs; others use the newest."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PIPELINE = """\
stages:
  code:
    cmd: echo code >> log; cp params.yaml code.yaml
    always_changed: true
    outs:
      - code.yaml: {persist: true}
  infer:
    foreach: ${detectors}
    do:
      cmd: echo ${key} >> log; echo ${item.k} > '${key}.txt'
      params:
        - detectors.${key}
        - code.yaml: ["detectors.${key}"]
      outs: ["${key}.txt"]
  fit:
    cmd: echo fit >> log; cat *.txt > fit; echo '{}' > fit.json
    deps: [a.txt, b.txt]
    outs: [fit]
    metrics:
      - fit.json: {cache: false}
"""


@pytest.fixture(scope="module")
def oldest(tmp_path_factory) -> Path:
    """A folder with the oldest DVC that pyproject.toml allows, and what it needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (version,) = (
        re.fullmatch(r"dvc>=([\d.]+).*", line)
        for line in project["dependencies"]
        if line.startswith("dvc")
    )
    folder = tmp_path_factory.mktemp("oldest")
    command = [sys.executable, "-m", "pip", "install"]
    if importlib.util.find_spec("uv"):  # takes a tenth of the time
        command = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    command += ["-q", "--target", str(folder), f"dvc=={version[1]}.0"]
    installed = subprocess.run(command, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"no package index: {installed.stderr.splitlines()[-1:]}")
    return folder


class Dvc:
    """DVC of a folder, in a project."""

    def __init__(self, packages: Path, project: Path):
        self.project = project
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(packages),
            "PYTHONNOUSERSITE": "1",
            "DVC_NO_ANALYTICS": "1",
        }

    def start(self, *arguments: str) -> subprocess.Popen:
        """Starts a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "dvc", *arguments],
            cwd=self.project,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        """What a command prints, which must succeed."""
        process = self.start(*arguments)
        printed, _ = process.communicate()
        assert process.returncode == 0, printed
        return printed

    def log(self) -> list[str]:
        """The stages that ran since the last call, sorted."""
        file = self.project / "log"
        if not file.exists():
            return []
        lines = sorted(file.read_text().split())
        file.unlink()
        return lines


@pytest.fixture
def dvc(oldest, tmp_path) -> Dvc:
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    (tmp_path / "params.yaml").write_text("detectors: {a: {k: 1}, b: {k: 2}}\n")
    dvc = Dvc(oldest, tmp_path)
    dvc.run("init", "-q", "--no-scm")
    return dvc


def test_the_oldest_dvc_runs_what_changed_and_two_runs_side_by_side(dvc):
    dvc.run("repro", "--single-item", "code")
    processes = []
    for name in ("a", "b"):
        processes.append(dvc.start("--wait-for-lock", "repro", "--single-item", f"infer@{name}"))
    for process in processes:
        printed, _ = process.communicate()
        assert process.returncode == 0, printed
    assert dvc.log() == ["a", "b", "code"]

    dvc.run("repro")
    assert dvc.log() == ["code", "fit"]
    dvc.run("repro")
    assert dvc.log() == ["code"]
    (dvc.project / "params.yaml").write_text("detectors: {a: {k: 1}, b: {k: 3}}\n")
    dvc.run("repro")
    assert dvc.log() == ["b", "code", "fit"]
    assert (dvc.project / "fit").read_text() == "1\n3\n"


def test_the_oldest_dvc_has_the_commands_that_are_used(dvc):
    dvc.run("repro")
    addresses = dvc.run("stage", "list", "--all", "--name-only").split()
    assert addresses == ["code", "infer@a", "infer@b", "fit"]
    (dvc.project / "a.txt").unlink()
    status = json.loads(dvc.run("data", "status", "--json"))
    assert status["uncommitted"]["deleted"] == ["a.txt"]
    dvc.run("remote", "add", "--default", "store", "../store")
    settings = dvc.run("config", "--list").splitlines()
    assert f"remote.store.url={dvc.project.parent / 'store'}" in settings
    assert dvc.run("cache", "dir").strip() == str(dvc.project / ".dvc/cache")
