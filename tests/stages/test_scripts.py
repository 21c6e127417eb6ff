"""The scripts in stages/ as a whole."""

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
    done = subprocess.run([sys.executable, "-c", command], cwd=folder, capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).is_relative_to(ROOT / "stages")
