"""The pipeline of a project, which the package writes."""

import importlib.util
from pathlib import Path

import pytest
import yaml

from farther.command import main
from farther.errors import ParameterError
from farther.pipeline import CLIP, DEMO, dvc_yaml, write_pipeline

ROOT = Path(__file__).parents[2]


def own() -> dict[str, dict]:
    """The stages of this repository's dvc.yaml."""
    return yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def body(stage: dict) -> dict:
    return stage.get("do", stage)


@pytest.mark.parametrize("without", [DEMO, (*DEMO, *CLIP)], ids=["with CLIP", "without CLIP"])
def test_a_project_has_all_stages_but_those_left_out_in_the_same_order(without):
    stages = yaml.safe_load(dvc_yaml(without))["stages"]
    assert list(stages) == [name for name in own() if name not in without]


@pytest.mark.parametrize("name", [name for name in own() if name not in DEMO])
def test_a_stage_of_a_project_with_clip_is_that_of_this_repository_but_for_its_command(name):
    stage = yaml.safe_load(dvc_yaml(DEMO))["stages"][name]
    command = body(stage).pop("cmd")
    expected = own()[name]
    own_command = body(expected).pop("cmd")
    assert stage == expected
    script, *arguments = own_command.removeprefix("python stages/").split()
    assert command.split() == [
        "python",
        "-m",
        f"farther.pipeline.{script.removesuffix('.py')}",
        *arguments,
    ]
    assert importlib.util.find_spec(command.split()[2])


def test_a_project_without_clip_lacks_what_the_stages_of_clip_make_and_read_and_nothing_else():
    with_clip = yaml.safe_load(dvc_yaml(DEMO))["stages"]
    without_clip = yaml.safe_load(dvc_yaml((*DEMO, *CLIP)))["stages"]
    differences = {}
    for name, stage in without_clip.items():
        for key, values in body(with_clip[name]).items():
            remaining = body(stage)[key]
            if remaining != values:
                differences[name, key] = [value for value in values if value not in remaining]
                assert [value for value in values if value in remaining] == remaining
    assert differences == {
        ("enrich", "deps"): ["artifacts/embeddings"],
        ("infer", "deps"): ["${embed.weights}"],
        ("infer", "params"): ["embed.encoder"],
        ("choose", "params"): ["embed.encoder"],
        ("report", "deps"): ["artifacts/similarity"],
    }


@pytest.mark.parametrize("text", [dvc_yaml(), (ROOT / "dvc.yaml").read_text()])
def test_the_stage_code_always_runs(text):
    code = yaml.safe_load(text)["stages"]["code"]
    assert code["always_changed"]
    assert "deps" not in code


def test_comments_are_kept_above_their_stages_and_those_of_stages_that_are_left_out_are_not():
    own_lines = (ROOT / "dvc.yaml").read_text().splitlines()
    lines = dvc_yaml((*DEMO, *CLIP)).splitlines()
    head = own_lines[: own_lines.index("stages:")]
    assert lines[: len(head)] == head
    for number, line in enumerate(own_lines):
        name = line.strip().rstrip(":")
        if not line.startswith("  ") or line.startswith("   ") or name not in own():
            continue
        above = own_lines[number - 1]
        if not above.startswith("  #"):
            continue
        if name in (*DEMO, *CLIP):
            assert above not in lines
        else:
            assert lines[lines.index(line) - 1] == above


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
