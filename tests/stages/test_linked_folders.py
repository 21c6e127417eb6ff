"""Links to folders within a dataset, which DVC does not follow, are refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image

from farther.datasets.check import check_dataset
from farther.errors import DataError
from farther.pipeline import derive, ingest


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project with a dataset of one image, and a folder of images elsewhere."""
    monkeypatch.chdir(tmp_path)
    for folder in ("pets/all", "elsewhere"):
        Path(folder).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(f"{folder}/a.png")
    cutouts = {"cutouts": {"source": "folder", "root": "pets"}}
    params = {
        "datasets": {"pets": {"format": "images", "root": "pets"}},
        "derived": {"paste": {"p": cutouts}},
    }
    Path("params.yaml").write_text(yaml.safe_dump(params))
    return tmp_path


def test_a_linked_folder_in_a_dataset_is_refused_by_ingest_and_named_by_doctor(project):
    ingest.main("pets")
    Path("pets/more").symlink_to(project / "elsewhere")
    message = r"pets/more: a link to the folder .*elsewhere.*of its own.*or copy it"
    with pytest.raises(DataError, match=message):
        ingest.main("pets")
    with pytest.raises(DataError, match=message):
        derive.main("paste", "p")
    (finding,) = check_dataset("pets", {"format": "images", "root": "pets"}, ())
    assert finding.state == "wrong"
    assert "pets/more: a link to the folder" in finding.text


@pytest.mark.slow
def test_dvc_sees_changes_behind_a_root_that_is_a_link(project):
    Path("root").symlink_to(project / "elsewhere")
    stage = {"cmd": "echo", "deps": ["root"], "outs": []}
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": {"ingest": stage}}))
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}

    def dvc(*arguments: str) -> str:
        command = [sys.executable, "-m", "dvc", *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    subprocess.run(["git", "init", "--quiet"], check=True)
    dvc("init", "--quiet")
    dvc("repro")
    assert "up to date" in dvc("status")
    Path("elsewhere/b.png").write_text("1")
    assert "modified" in dvc("status")
