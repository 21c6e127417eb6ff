"""The pipeline of a project, which the package writes."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from farther.command import main
from farther.errors import ParameterError
from farther.pipeline import CLIP, DEMO, dvc_yaml, write_pipeline

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("without", [DEMO, (*DEMO, *CLIP)])
def test_a_project_has_all_stages_but_those_left_out_and_each_starts_the_package(without):
    text = dvc_yaml(without)
    stages = yaml.safe_load(text)["stages"]
    assert set(stages) == set(yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]) - set(without)
    for name, stage in stages.items():
        module = re.match(r"python -m (farther\.pipeline\.\w+)", stage.get("do", stage)["cmd"])[1]
        assert importlib.util.find_spec(module), name
    assert stages["code"]["always_changed"]
    assert "stages/" not in text and "lib" not in stages["code"]["deps"]
    assert ("${embed.weights}" in text) is ("embed" in stages)


def test_an_edited_pipeline_is_kept_once_and_never_lost(tmp_path):
    write_pipeline(tmp_path, clip=False)
    written = (tmp_path / "dvc.yaml").read_text()
    write_pipeline(tmp_path, clip=False)
    assert not (tmp_path / "dvc.yaml.earlier").exists()
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    write_pipeline(tmp_path, clip=False)
    assert (tmp_path / "dvc.yaml").read_text() == written
    assert (tmp_path / "dvc.yaml.earlier").read_text() == "stages: {}\n"
    (tmp_path / "dvc.yaml").write_text("stages: {one: {cmd: ls}}\n")
    with pytest.raises(ParameterError, match="move it away"):
        write_pipeline(tmp_path, clip=False)
    assert (tmp_path / "dvc.yaml").read_text() == "stages: {one: {cmd: ls}}\n"


def test_ignored_paths_are_added_to_those_that_are_there(tmp_path):
    (tmp_path / ".dvcignore").write_text("*.tmp\n__pycache__\n")
    write_pipeline(tmp_path, clip=False)
    lines = (tmp_path / ".dvcignore").read_text().splitlines()
    assert lines[:2] == ["*.tmp", "__pycache__"] and lines.count("__pycache__") == 1
    assert "/artifacts/report/times.js" in lines


def test_the_command_writes_the_pipeline_only(tmp_path, capsys):
    (tmp_path / "params.yaml").write_text("embed: {weights: x}\n")
    assert main(["init", str(tmp_path), "--pipeline"]) == 0
    assert "wrote" in capsys.readouterr().out
    assert (tmp_path / "dvc.yaml").read_text() == dvc_yaml(DEMO)
    assert (tmp_path / "params.yaml").read_text() == "embed: {weights: x}\n"
