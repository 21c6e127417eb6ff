"""The scripts in stages/ as a whole."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "stages", ROOT / "training" / "stages")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_no_script_hides_a_module_of_the_standard_library(folder):
    assert not {script.stem for script in folder.glob("*.py")} & sys.stdlib_module_names
    command = "import pdb, code; print(code.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=folder, capture_output=True, text=True, check=True
    )
    assert not Path(done.stdout.strip()).is_relative_to(ROOT / "stages")


@pytest.mark.parametrize(("variable", "lines"), [("0", 1), ("1", None)])
def test_an_expected_error_of_a_stage_is_one_line_and_a_variable_brings_the_traceback(
    tmp_path, variable, lines
):
    (tmp_path / "params.yaml").write_text("datasets: {mine: {format: yolo, root: photos}}\n")
    command = [sys.executable, ROOT / "stages/ingest.py", "mine"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib"), "FARTHER_TRACEBACK": variable}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert (
        "photos: the folder does not exist; parameter 'root' says where the dataset is"
        in done.stderr
    )
    assert done.stderr.startswith("ingest mine: " if lines else "Traceback")
    assert lines is None or len(done.stderr.splitlines()) == lines


def test_every_script_starts_its_stage_in_the_same_way():
    scripts = [script for folder in FOLDERS for script in folder.glob("*.py")]
    assert len(scripts) >= 11
    for script in scripts:
        start = re.compile(
            r'if __name__ == "__main__":\n'
            r'    run_stage\((main|partial\(main, SCRIPTS\)), (OUTPUT|"artifacts/.*")\)'
        )
        assert start.search(script.read_text()), script
