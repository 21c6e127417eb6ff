"""The table of stages agrees with dvc.yaml, the modules, scripts, checks and .gitignore."""

import importlib.util
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.disturbed.valid.pipeline import STAGES as INTERRUPTED

from farther import pipeline
from farther.command import doctor
from farther.pipeline.stages import STAGES, ignored_by_git, stage_of

ROOT = Path(__file__).parents[2]
#: Ends a module that is run as a stage.
START = 'if __name__ == "__main__":\n    run_stage('


def dvc_stages() -> dict[str, dict]:
    return yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def outputs(body: dict) -> dict[str, bool]:
    """{path of an output, with X for what DVC fills in: whether DVC's cache has it}."""
    cached = {}
    for kind in ("outs", "metrics", "plots"):
        for output in body.get(kind, []):
            path, options = (output, {}) if isinstance(output, str) else next(iter(output.items()))
            cached[path.replace("${key}", "X")] = options.get("cache", True)
    return cached


def test_dvc_yaml_has_the_stages_of_the_table_repeated_over_the_same_sections():
    in_dvc = {}
    for name, stage in dvc_stages().items():
        in_dvc[name] = stage["foreach"].strip("${}") if "foreach" in stage else None
    in_table = {}
    for stage in STAGES:
        in_table.update(stage.section_by_dvc_name)
    assert in_table == in_dvc


def test_no_name_is_in_the_table_twice():
    names = [name for stage in STAGES for name in stage.section_by_dvc_name]
    assert len(names) == len(set(names))


def test_each_stage_comes_after_those_whose_outputs_it_depends_on():
    position = {name: k for k, stage in enumerate(STAGES) for name in stage.section_by_dvc_name}
    maker = {}
    for name, stage in dvc_stages().items():
        for path in outputs(stage.get("do", stage)):
            maker.setdefault(path, name)
    for name, stage in dvc_stages().items():
        for dependency in stage.get("do", stage).get("deps", []):
            path = dependency.replace("${key}", "X")
            for output, before in maker.items():
                if f"{output}/".startswith(f"{path}/"):
                    assert position[before] < position[name], (before, name)


@pytest.mark.parametrize(
    "module", sorted(Path(pipeline.__file__).parent.glob("*.py")), ids=lambda file: file.stem
)
def test_a_module_that_starts_a_stage_has_a_row(module):
    known = {stage.module for stage in STAGES} | {"farther.pipeline.first"}
    assert (START in module.read_text()) is (f"farther.pipeline.{module.stem}" in known)


@pytest.mark.parametrize(
    "stage", [stage for stage in STAGES if stage.module], ids=lambda stage: stage.name
)
def test_a_row_names_a_module_that_there_is(stage):
    assert importlib.util.find_spec(stage.module)


def test_each_script_has_a_row_and_each_row_a_script():
    assert {stage.script for stage in STAGES} == {
        script.name for script in (ROOT / "stages").glob("*.py")
    }


def test_each_command_in_dvc_yaml_is_the_script_of_its_row():
    for name, stage in dvc_stages().items():
        command = stage.get("do", stage)["cmd"]
        assert command.split()[:2] == ["python", f"stages/{stage_of(name).script}"]


def test_a_stage_has_a_check_where_the_table_says_so():
    with_check = set()
    for file in Path(doctor.__file__).parent.glob("*.py"):
        if "\ndef check(project: Inspection)" in file.read_text():
            with_check.add(file.stem)
    assert with_check == {name for stage in STAGES for name in stage.checks}


def test_dvc_repeats_no_stage_but_those_for_which_users_bring_files():
    repeated = {name for name, stage in dvc_stages().items() if "foreach" in stage}
    assert repeated == {"ingest", "paste", "corrupt", "blank", "enrich", "infer"}


def test_the_tests_of_kills_run_each_stage_but_the_one_that_runs_first():
    killed = {command.split()[0] for command in INTERRUPTED}
    assert killed == {stage.name for stage in STAGES} - {"code"}


def test_git_keeps_what_dvc_does_not_and_nothing_else(tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("\n".join(ignored_by_git()))
    cached = {}
    for stage in dvc_stages().values():
        cached |= outputs(stage.get("do", stage))
    for path, is_cached in cached.items():
        file = path if Path(path).suffix else f"{path}/file.csv"  # a folder holds files
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        command = ["git", "check-ignore", "-q", file]
        is_ignored = subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
        assert is_ignored is is_cached, path


def test_this_repository_ignores_what_a_project_does():
    assert set(ignored_by_git()) <= set((ROOT / ".gitignore").read_text().splitlines())


def test_an_address_of_dvc_leads_to_its_stage_and_a_stage_of_the_user_to_none():
    assert stage_of("paste@objects").name == "derive"
    assert stage_of("infer@voc-vos").section == "detectors"
    assert stage_of("curate").name == "curate"
    assert stage_of("mine@objects") is None
