"""The wheel is complete: a project from `init` to `predict` in an environment without the clone."""

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import farther
from farther.curation import Rules
from farther_demo import DemoWorld, Subsets, generate

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


class Installed:
    """A new environment with the wheel, and with the packages of this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            "wheel",
            "--directory",
            str(folder),
        ]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        venv.create(folder / "venv", symlinks=True)
        (packages,) = (folder / "venv/lib").glob("python*/site-packages")
        (self.wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(self.wheel) as wheel:
            wheel.extractall(packages)
        (packages / "others.pth").write_text(
            "\n".join(path for path in sys.path if path.endswith("-packages"))
        )

    def run(self, *arguments: str, within: Path) -> str:
        """What `farther …` prints in a folder."""
        path = os.pathsep.join([str(self.folder / "venv/bin"), os.environ["PATH"]])
        environment = {
            k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")
        } | {"PATH": path}
        command = ["python", "-m", "farther", *arguments]
        done = subprocess.run(
            command, cwd=within, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (
            f"{' '.join(arguments)}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenes of the demo as two datasets, and a detector's checkpoint: what a user has."""
    folder = tmp_path_factory.mktemp("photos")
    sizes = DemoWorld(voc=Subsets(train=12, val=12, test=12), coco=15)
    for name in ("voc", "coco"):
        generate(name, folder / name, sizes)
    shutil.copy(ROOT / "data/demo/voc-yolov8.safetensors", folder)
    return folder


def test_a_project_goes_from_init_to_a_verdict_where_there_is_no_clone(installed, world, tmp_path):
    said = installed.run(
        *("init", "project", "--id", str(world / "voc"), "--ood", str(world / "coco")),
        *("--detector", str(world / "voc-yolov8.safetensors")),
        within=tmp_path,
    )
    assert "adapter yolo" in said
    project = tmp_path / "project"
    assert not (project / "stages").exists() and not (project / "lib").exists()
    texts = "".join(file.read_text() for file in (project / "dvc.yaml", project / "params.yaml"))
    assert str(ROOT) not in texts
    assert "Nothing is missing." in installed.run("doctor", within=project)
    assert "report" in installed.run("repro", within=project)
    assert "unknown objects" in installed.run("summary", "--short", within=project)
    (run,) = yaml.safe_load((project / "params.yaml").read_text())["detectors"]
    assert run in installed.run("choose", run, within=project)
    assert "Written: bundle" in installed.run("bundle", run, "msp", "bundle", within=project)
    picture = next((world / "coco").rglob("*.jpg"))
    assert "1 image in" in installed.run(
        "predict", "bundle", str(picture), "--out", "predicted", within=project
    )
    code = json.loads((project / "artifacts/code.json").read_text())
    assert code["checked"]
    assert "0 were up to date" not in installed.run("repro", within=project)


def test_a_profile_brings_the_rules_and_the_published_tables_that_it_names(installed, tmp_path):
    installed.run("benchmark", "profile", "fmiyc", within=tmp_path)
    benchmarks = yaml.safe_load((tmp_path / "params.yaml").read_text())["benchmarks"]
    for benchmark in benchmarks.values():
        assert Rules(tmp_path / benchmark["rules"]).id_classes
        assert (tmp_path / benchmark["decisions"]).is_file()
    assert (tmp_path / "data/published/fmiyc_ood.csv").read_text().startswith("table,detector,")
    assert {"embed", "stratify"} <= set(
        yaml.safe_load((tmp_path / "dvc.yaml").read_text())["stages"]
    )


def test_the_wheel_has_what_it_needs_and_nothing_of_the_demo(installed):
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = wheel.namelist()
    assert {Path(name).parts[0] for name in names} == {
        "farther",
        f"farther-{farther.__version__}.dist-info",
    }
    assert not [name for name in names if name.endswith(".safetensors")]
    assert installed.wheel.stat().st_size < 2 * 2**20
