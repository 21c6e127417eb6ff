"""The plugin that collects a file when it is about to run runs what pytest runs without it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {
    "pytest.ini": """
[pytest]
addopts = --doctest-modules --import-mode=importlib
markers =
    slow: left out
""",
    "conftest.py": """
import pytest

def note(line):
    with open("log", "a") as file:
        file.write(line)

@pytest.fixture(scope="session")
def whole():
    note("session begins\\n")
    yield
    note("session ends\\n")

@pytest.fixture(scope="module")
def module(whole):
    note("module begins\\n")
    yield
    note("module ends\\n")
""",
    "test_a.py": """
import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_one(number, module):
    assert number == 1

@pytest.mark.slow
def test_slow():
    raise AssertionError
""",
    "test_broken.py": "import no_such_module\n",
    "test_c.py": "def test_other(module): pass\n",
    "examples.py": '''
def three():
    """
    >>> three()
    3
    """
    return 3
''',
    "without_examples.py": "raise AssertionError('nobody imports it')\n",
}
RESULT = re.compile(r"^(PASSED|FAILED|ERROR) ([^\s]+)", re.MULTILINE)


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, *options: str) -> subprocess.CompletedProcess:
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    environment["PYTHONPATH"] = str(ROOT)
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


PLUGIN = ("-p", "tests.support.by_file")
TWO_WORKERS = ("-p", "xdist.plugin", "-n", "2", "--dist", "load", "--maxschedchunk", "1")


def test_all_files_run_and_each_failure_counts(folder):
    done = run(folder, *PLUGIN, *TWO_WORKERS, "-m", "not slow")
    assert done.returncode == 1, done.stdout + done.stderr
    assert set(RESULT.findall(done.stdout)) == {
        ("PASSED", "test_a.py::test_one[1]"),
        ("FAILED", "test_a.py::test_one[2]"),
        ("ERROR", "test_broken.py"),
        ("PASSED", "test_c.py::test_other"),
        ("PASSED", "examples.py::examples.three"),
    }
    assert "No module named 'no_such_module'" in done.stdout


def test_fixtures_of_a_session_are_made_once_and_those_of_a_module_once_per_file(folder):
    run(folder, *PLUGIN)
    module = ["module begins", "module ends"]
    assert (folder / "log").read_text().splitlines() == [
        "session begins",
        *module,
        *module,
        "session ends",
    ]


def test_a_mark_selects_the_tests_of_files_that_are_collected_later(folder):
    done = run(folder, *PLUGIN, "-m", "slow")
    assert ("FAILED", "test_a.py::test_slow") in RESULT.findall(done.stdout)
    assert "test_one" not in done.stdout


def test_a_file_of_which_no_test_is_selected_may_lie_between_those_of_two_folders(folder):
    for name, mark in (("a/test_it", ""), ("a/test_slow", "@pytest.mark.slow"), ("b/test_it", "")):
        file = folder / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"import pytest\n{mark}\ndef test_it(module): pass\n")
    done = run(folder, *PLUGIN, "-m", "not slow", "a", "b")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_a_worker_that_dies_is_named_with_its_file_and_the_rest_runs(folder):
    (folder / "test_a.py").write_text("import os\ndef test_one():\n    os._exit(3)\n")
    done = run(folder, *PLUGIN, *TWO_WORKERS)
    assert done.returncode == 1
    assert "crashed while running 'test_a.py::tests'" in done.stdout
    assert ("PASSED", "test_c.py::test_other") in RESULT.findall(done.stdout)


ARRAY = '''
def halves():
    """
    >>> import numpy
    >>> numpy.array([0.5, 1.0])
    array([0.5, 1. ])
    """
'''
PRINTS_OTHERWISE = """
import numpy
numpy.set_printoptions(formatter={"float_kind": "{:11.5g}".format})
def test_it(): pass
"""


@pytest.mark.parametrize("plugin", [PLUGIN, ()])
def test_examples_print_arrays_as_ever_after_a_test_that_changes_how(tmp_path, plugin):
    """As the import of Ultralytics does."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/conftest.py").write_text((ROOT / "lib/conftest.py").read_text())
    (tmp_path / "lib/examples.py").write_text(ARRAY)
    (tmp_path / "test_it.py").write_text(PRINTS_OTHERWISE)
    (tmp_path / "pytest.ini").write_text(FILES["pytest.ini"])
    done = run(tmp_path, *plugin, "test_it.py", "lib")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
