"""A copy of the project's pipeline that DVC runs, on a demo world of a few scenes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


class Project:
    """A copy of the project's pipeline, under git and DVC.

    Args:
        folder: An empty one.
        commands: A folder of commands that come first.
        make_tiny: Changes the demo's parameters to those of a tiny world.
    """

    def __init__(
        self, folder: Path, commands: Path, make_tiny: Callable[[dict[str, Any]], None]
    ) -> None:
        self.folder, self.kept = folder, folder.with_name(f"{folder.name}-kept")
        self._path = os.pathsep.join(
            [str(commands), str(Path(sys.executable).parent), os.environ["PATH"]]
        )
        for name in ("stages", "lib", "data", "extensions"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.egg-info"))
        for name in ("dvc.yaml", ".dvcignore", ".gitignore", "params.yaml"):
            shutil.copy(ROOT / name, folder / name)
        self.change(make_tiny)
        self.run("git", "init", "--quiet")
        self.run("dvc", "init", "--quiet")
        self.run("dvc", "config", "core.analytics", "false")

    def change(self, edit: Callable[[dict[str, Any]], None]) -> None:
        file = self.folder / "params.yaml"
        params = yaml.safe_load(file.read_text())
        edit(params)
        file.write_text(yaml.safe_dump(params, sort_keys=False))

    def run(self, *command: str) -> str:
        environment = {
            **os.environ,
            **{"PATH": self._path, "PYTHONPATH": str(self.folder / "lib"), "DVC_NO_ANALYTICS": "1"},
        }
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (
            f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
        return done.stdout

    def repro(self) -> list[str]:
        """Runs what changed; returns the stages that ran, in order."""
        return stages_in(self.run("dvc", "repro"))

    def commit(self) -> None:
        self.run("git", "add", "--all")
        self.run(
            "git",
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "commit",
            "--quiet",
            "-m",
            "state",
        )

    def keep(self) -> None:
        """Copies everything, for `restore`."""
        shutil.copytree(self.folder, self.kept, symlinks=True)

    def restore(self) -> None:
        """Restores the kept state: `dvc repro` of the earlier parameters would compute it again."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.kept, self.folder, symlinks=True)

    def read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


def stages_in(printed: str) -> list[str]:
    return re.findall(r"^Running stage '(.+)':$", printed, flags=re.MULTILINE)


def scores_of_others(project: Project, *methods: str) -> dict[Path, int]:
    """When the scores of all other methods were written."""
    files = (project.folder / "artifacts/scores").glob("*/*/*.parquet")
    return {file: file.stat().st_mtime_ns for file in files if file.parent.name not in methods}


def families(stages: list[str]) -> set[str]:
    return {stage.split("@")[0] for stage in stages}
