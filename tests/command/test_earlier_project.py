"""`farther init --pipeline` in a project with one stage `evaluate`: nothing is inferred again."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from farther.command import main
from farther.command.doctor.pipeline import pipeline
from farther.command.project import Project
from farther.keyed import Keyed
from farther.pipeline import adoption
from farther.tables import Images
from farther.tables.files import digest

#: As the earlier version wrote it, shortened; `touch.py` takes the place of the stages' code.
EARLIER = """
stages:
  embed:
    cmd: python touch.py artifacts/embeddings/d
    deps: ["${embed.weights}", artifacts/tables]
    params: [embed, artifacts/code.json: [embed]]
    outs:
      - artifacts/embeddings: {persist: true}
  infer:
    foreach: ${detectors}
    do:
      cmd: >-
        python touch.py
        artifacts/regions/${key} artifacts/passes/${key} artifacts/proposals/${key}/sam
      deps: ["${item.weights}", "artifacts/splits/${item.benchmark}"]
      params:
        - detectors.${key}
        - inference
        - artifacts/code.json: ["infer.${item.adapter}", "rules.detectors.${key}"]
      outs:
        - artifacts/regions/${key}: {persist: true}
        - artifacts/passes/${key}: {persist: true}
        - artifacts/proposals/${key}: {persist: true}
  evaluate:
    foreach: ${detectors}
    do:
      cmd: python touch.py artifacts/evaluation/${key}
      deps: ["artifacts/regions/${key}"]
      outs: ["artifacts/evaluation/${key}"]
"""

TOUCH = """
import pathlib, sys
for name in sys.argv[1:]:
    folder = pathlib.Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test").write_text("regions")
    (folder / "keys.json").write_text('{"test": "1"}')
"""

PARAMS = {
    "datasets": {},
    "benchmarks": {},
    "embed": {"weights": "clip.bin", "encoder": {"model": "small"}},
    "inference": {"batch_size": 4},
    "detectors": {
        "a": {"adapter": "yolo", "benchmark": "pets", "weights": "a.pt"},
        "b": {
            "adapter": "yolo",
            "benchmark": "wild",
            "weights": "b.pt",
            "proposals": {"sam": {"file": "boxes.json"}},
        },
    },
}


#: The records of what each stage made, by the name that DVC has for it.
RECORDS = {
    "embed": {"embeddings/d.json"},
    "infer@a": {
        "regions/a.json",
        "passes/a.json",
        "proposals/a/.network.json",
        "proposals/a/sam.json",
    },
    "infer@b": {
        "regions/b.json",
        "passes/b.json",
        "proposals/b/.network.json",
        "proposals/b/sam.json",
    },
}


def write_images(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    count = len(names)
    columns = {"dataset": ["d"] * count, "file": names, "width": [4] * count, "height": [3] * count}
    Images(image_id=names, digest=["0" * 32] * count, **columns).write(folder / "images.parquet")


def write_code(version: str) -> None:
    boxes = digest(Path("boxes.json"))
    rules = {"detectors": {"a": digest(), "b": boxes}}
    code = {"infer": {"yolo": version}, "embed": version, "rules": rules}
    Path("artifacts/code.json").write_text(json.dumps(code))


def change_params(edit) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    edit(params)
    Path("params.yaml").write_text(yaml.safe_dump(params))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A project that the earlier version ran."""
    folder = tmp_path_factory.mktemp("earlier")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
        subprocess.run(["git", "init", "-q"], check=True)
        Path("dvc.yaml").write_text(EARLIER)
        Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
        Path("touch.py").write_text(TOUCH)
        for name in ("a.pt", "b.pt", "clip.bin", "boxes.json"):
            Path(name).write_text(name)
        for folder_of_images in ("splits/pets/test", "splits/wild/test", "tables/d/all"):
            write_images(Path("artifacts", folder_of_images), ["one", "two"])
        write_code("1")
        with Repo.init(".") as repo:
            with repo.config.edit() as config:
                config["core"]["analytics"] = False
            repo.reproduce()
    return folder


@pytest.fixture
def project(made, tmp_path, monkeypatch) -> Path:
    """A copy of that project, whose code is of another version."""
    folder = tmp_path / "project"
    shutil.copytree(made, folder, symlinks=True)
    monkeypatch.chdir(folder)
    write_code("2")
    return folder


def records() -> dict[str, dict]:
    folder = Path("artifacts/records")
    return {
        str(file.relative_to(folder)): json.loads(file.read_text())
        for file in folder.rglob("*.json")
    }


def records_of(*stages: str) -> set[str]:
    return set().union(*(RECORDS[stage] for stage in stages))


def rewritten(capsys) -> str:
    """What `farther init --pipeline` prints."""
    assert main(["init", "--pipeline"]) == 0
    return capsys.readouterr().out


def test_what_only_code_changed_for_is_kept(project, capsys):
    printed = rewritten(capsys)
    assert set(records()) == records_of("infer@a", "infer@b", "embed")
    assert all(record["adopt"] is True for record in records().values())
    for stage in ("infer@a", "infer@b", "embed"):
        assert f"{stage}: unchanged, its results are kept" in printed


def test_nothing_is_deleted_and_the_earlier_pipeline_has_another_name(project, capsys):
    before = {
        file: file.read_bytes()
        for file in project.rglob("*")
        if file.is_file() and ".dvc" not in file.parts
    }
    rewritten(capsys)
    before[project / "dvc.yaml.earlier"] = before.pop(project / "dvc.yaml")
    changed = {file.name for file, content in before.items() if file.read_bytes() != content}
    assert changed <= {".gitignore", ".dvcignore"}  # lines are added
    assert Path("dvc.yaml").exists()


def other_boxes():
    Path("boxes.json").write_text("others")


def other_images():
    write_images(Path("artifacts/splits/wild/test"), ["one", "three"])


def other_run():
    change_params(lambda params: params["detectors"]["b"].update(params={"score_threshold": 0.2}))


def other_weights():
    Path("b.pt").write_text("another network")


def deleted_regions():
    shutil.rmtree("artifacts/regions/b")


def damaged_regions():
    Path("artifacts/regions/b/test").write_text("others")


def other_rules():
    code = json.loads(Path("artifacts/code.json").read_text())
    code["rules"]["detectors"]["b"] = "another"
    Path("artifacts/code.json").write_text(json.dumps(code))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_run, "params.yaml: detectors.b"),
        (other_weights, "b.pt"),
        (other_images, "artifacts/splits/wild"),
        (other_boxes, "detectors.b.proposals"),
        (other_rules, "rules.detectors.b"),
        (deleted_regions, "artifacts/regions/b"),
        (damaged_regions, "artifacts/regions/b"),
    ],
)
def test_a_run_of_which_anything_else_changed_is_inferred_again_and_the_others_are_not(
    project, capsys, change, reason
):
    change()
    printed = rewritten(capsys)
    assert set(records()) == records_of("infer@a", "embed")
    (line,) = [line for line in printed.splitlines() if line.startswith("infer@b: runs again")]
    assert reason in line


def test_images_are_embedded_again_with_another_clip_and_runs_are_not_inferred_again(
    project, capsys
):
    Path("clip.bin").write_text("another")
    assert "embed: runs again (changed deps: clip.bin)" in rewritten(capsys)
    assert set(records()) == records_of("infer@a", "infer@b")


def test_a_project_that_dvc_cannot_read_is_made_anew(project, capsys):
    Path("dvc.lock").write_text("schema: '2.0'\nstages:\n  infer@a:\n    cmd")
    printed = rewritten(capsys)
    assert records() == {}
    assert printed.count("DVC cannot say what changed") == 3
    assert Path("dvc.yaml.earlier").read_text() == EARLIER


def test_a_pipeline_that_cannot_be_kept_is_left_as_it_is_and_nothing_is_written(project, capsys):
    Path("dvc.yaml.earlier").write_text("mine")
    assert main(["init", "--pipeline"]) == 2
    assert "move it away" in capsys.readouterr().err
    assert records() == {}
    assert Path("dvc.yaml").read_text() == EARLIER


def test_a_project_of_this_version_gets_no_records(project, capsys):
    stages = yaml.safe_load(EARLIER)["stages"]
    stages["fit"] = stages["evaluate"]
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    assert "kept" not in rewritten(capsys)
    assert records() == {}


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        (lambda: None, True),
        (lambda: write_code("3"), True),
        (
            lambda: change_params(lambda params: params["detectors"]["a"].update(weights="b.pt")),
            True,
        ),
        (other_run, False),
        (other_weights, False),
        (other_images, False),
        (other_boxes, False),
        (lambda: change_params(lambda params: params["inference"].update(batch_size=8)), False),
        (
            lambda: change_params(lambda params: params["embed"]["encoder"].update(model="large")),
            False,
        ),
    ],
)
def test_what_changes_before_the_first_run_withdraws_the_record_of_its_run(
    project, capsys, change, stays
):
    rewritten(capsys)
    change()
    adoption.withdraw_if_changed("infer", "b")
    expected = (
        records_of("infer@a", "infer@b", "embed") if stays else records_of("infer@a", "embed")
    )
    assert set(records()) == expected


def test_images_that_change_before_the_first_run_are_embedded_again(project, capsys):
    rewritten(capsys)
    adoption.withdraw_if_changed("embed")
    assert records_of("embed") <= set(records())
    write_images(Path("artifacts/tables/d/more"), ["three"])
    adoption.withdraw_if_changed("embed")
    assert not records_of("embed") & set(records())


def test_the_record_of_a_stage_that_ran_is_left_alone(project):
    files = adoption.record_files(project, "infer", "a")
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"items": {}}')
    adoption.withdraw_if_changed("infer", "a")
    adoption.withdraw_if_changed("infer", "b")
    assert [file.read_text() for file in files] == ['{"items": {}}'] * len(files)


def test_items_are_current_under_the_adopted_record_until_they_are_damaged(project, capsys):
    rewritten(capsys)
    assert Keyed("artifacts/regions/a").is_current("test", "of this version")
    assert not Keyed("artifacts/regions/a").is_current("test", "of later code")
    assert Keyed("artifacts/passes/a").outdated({"test": "2", "val": "2"}) == ["val"]


def test_doctor_says_in_one_line_what_to_do(project, capsys):
    (finding,) = pipeline(Project())
    assert finding.state == "wrong"
    assert "`farther init --pipeline`" in finding.text
    rewritten(capsys)
    assert all("earlier version" not in finding.text for finding in pipeline(Project()))
