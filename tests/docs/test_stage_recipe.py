"""The recipe for a stage in the docs is what each stage of farther follows."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from tests.docs.pages import Page

from farther.pipeline.stages import STAGES

ROOT = Path(__file__).parents[2]
DVC_STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
WITH_MODULE = [stage for stage in STAGES if stage.module is not None]


def test_the_recipe_names_every_place():
    recipe = Page("extending.md").text.partition("## A stage\n")[2].partition("\n## ")[0]
    for place in (
        "lib/farther/pipeline/<name>.py",
        "stages/<name>.py",
        "lib/farther/pipeline/stages.py",
        "dvc.yaml",
        "lib/farther/command/doctor/<name>.py",
    ):
        assert f"`{place}`" in recipe


@pytest.mark.parametrize("stage", WITH_MODULE, ids=lambda stage: stage.name)
def test_a_stage_has_a_module_a_script_an_entry_and_its_checks(stage):
    module = import_module(stage.module)
    assert callable(module.main)
    assert module.OUTPUT
    assert f"from {stage.module} import" in (ROOT / "stages" / stage.script).read_text()
    for name in stage.section_by_dvc_name:
        entry = DVC_STAGES[name]
        entry = entry.get("do", entry)
        assert f"stages/{stage.script}" in str(entry["cmd"])
    for name in stage.checks:
        assert find_spec(f"farther.command.doctor.{name}") is not None
