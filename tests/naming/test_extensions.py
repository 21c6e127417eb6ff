"""Extensions: what users add in the folder `extensions/`, or by a package's entry point."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support.extensions import forget_extensions
from tests.support.fitting import fit_and_score

import farther
from farther import datasets, detectors
from farther.errors import ParameterError
from farther.incremental.stage_digests import StageDigests
from farther.metrics.user_defined import METRICS
from farther.naming import extensions
from farther.scoring.entries import read_entry
from farther.scoring.fit import fit_run
from farther.scoring.inputs import RunRegions

SHARPNESS = '''
from farther import Method, register
from .amounts import doubled

@register("{name}")
class Sharpness(Method):
    """Largest logit, scaled."""

    scale: float = 1.0

    def _score(self, rows):
        return doubled(self.scale * rows.xp.max(rows.vectors("logits"), axis=1))
'''
OTHERS = """
from farther import Detector, Metric, Reader, register

@register("mine_format")
class MyReader(Reader):
    root: str
    def _subsets(self): ...

@register("mine_network")
class MyDetector(Detector):
    stride: int = 32

@register("mine_metric")
class MyMetric(Metric):
    power: float = 1.0
    def compute(self, case): return self.power
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory's folder of extensions; their registrations are undone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "extensions").mkdir()
    (tmp_path / "extensions/amounts.py").write_text("def doubled(value):\n    return 2 * value\n")
    yield tmp_path / "extensions"
    forget_extensions()


def test_a_method_in_a_file_of_any_name_is_found_by_its_registered_name(folder, make):
    (folder / "anything.py").write_text(SHARPNESS.format(name="sharpness"))
    method = farther.methods.create("sharpness", scale=3.0)
    regions = make(10)
    np.testing.assert_allclose(method.score(regions), 6 * regions.logits.max(axis=1))
    with pytest.raises(ParameterError, match=r"unknown parameter 'scal'. Known: scale"):
        farther.methods.create("sharpness", scal=1)


def test_all_four_kinds_are_registered_by_one_decorator(folder):
    (folder / "several.py").write_text(OTHERS)
    assert "mine_format" in datasets.names()
    assert "mine_network" in detectors.names()
    assert METRICS.create("mine_metric", power=2.0).compute(None) == 2.0


def test_a_file_is_imported_only_when_one_of_its_names_is_used(folder):
    (folder / "broken.py").write_text(SHARPNESS.format(name="broken") + "\n1 / 0\n")
    assert farther.methods.create("msp").name == "msp"
    with pytest.raises(
        ParameterError, match=r"extensions/broken\.py, line 14: ZeroDivisionError: division by zero"
    ):
        farther.methods.create("broken")


def test_a_file_that_is_not_python_is_named_with_its_line(folder):
    (folder / "typo.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(ParameterError, match=r"extensions/typo\.py, line 2: "):
        farther.methods.create("msp")


@pytest.mark.parametrize("name", ["knn", "sharpness"])
def test_two_methods_of_one_name_are_refused(folder, name):
    for file in ("one.py", "two.py") if name == "sharpness" else ("one.py",):
        (folder / file).write_text(SHARPNESS.format(name=name))
    with pytest.raises(
        ParameterError, match=f"two methods are called '{name}'.*give yours another name"
    ):
        farther.methods.create(name)


def test_what_is_none_of_the_four_kinds_is_refused():
    with pytest.raises(ParameterError, match="derive it from Method, Detector, Reader or Metric"):
        extensions.register("x")(int)


def test_a_method_that_fails_while_it_scores_is_named_and_has_no_scores_while_others_are_scored(
    folder, make
):
    of_far = "        if len(rows) == 20: self.none\n        return"
    (folder / "fails.py").write_text(
        SHARPNESS.format(name="sharpness").replace("        return", of_far)
    )
    for split, count in {"train": 30, "val": 30, "far": 20}.items():
        make(count).write(folder.parent / "regions" / split)
    done = fit_and_score({"sharpness": {}, "msp": {}}, RunRegions(Path("regions")), Path()).score
    assert done.failed.keys() == {"sharpness"}
    assert done.failed["sharpness"].startswith("extensions/fails.py, line 12: AttributeError: ")
    assert done.scored == ["msp/far", "msp/val"]
    assert sorted(path.parent.name for path in Path("scores").rglob("*.parquet")) == ["msp", "msp"]


def test_a_method_that_fails_while_it_is_fitted_is_named_and_others_are_fitted(folder, make):
    fails = "    def _fit(self, regions):\n        self.none\n\n    def _score"
    (folder / "fails.py").write_text(
        SHARPNESS.format(name="sharpness").replace("    def _score", fails)
    )
    for split in ("train", "val"):
        make(30).write(folder.parent / "regions" / split)
    entries = [read_entry(name, {}) for name in ("sharpness", "msp")]
    done = fit_run(
        entries, RunRegions(Path("regions")), Path("fitted"), {"sharpness": "1", "msp": "1"}
    )
    assert done.fitted == ["msp"]
    assert done.failed.keys() == {"sharpness"}
    assert done.failed["sharpness"].startswith("extensions/fails.py, line 12: AttributeError: ")
    assert not Path("fitted/sharpness").exists()


def test_a_helper_counts_with_the_code_of_what_is_registered_and_with_nothing_else(folder):
    (folder / "anything.py").write_text(SHARPNESS.format(name="sharpness"))
    before = StageDigests({}).all()
    (folder / "amounts.py").write_text("def doubled(value):\n    return value + value\n")
    after = StageDigests({}).all()
    for stage in ("fit", "score"):
        was = before["kept"][stage]
        now = after["kept"][stage]
        assert {name for name in was if now[name] != was[name]} == {"sharpness"}
    assert after["kept"]["evaluate"] == before["kept"]["evaluate"]
    assert after["curate"] == before["curate"]
    assert after["evaluate"] != before["evaluate"]


def test_a_package_names_its_module_under_the_entry_point_group(tmp_path):
    """In a process of its own, as entry points are read once."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/__init__.py").write_text("")
    (tmp_path / "theirs/scores.py").write_text(
        SHARPNESS.format(name="theirs").replace(".amounts", "theirs.amounts")
    )
    (tmp_path / "theirs/amounts.py").write_text("doubled = abs\n")
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[farther.extensions]\nscores = theirs\n")
    lib = Path(farther.__file__).parents[1]
    command = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(lib)!r}]; import farther; "
    command += "print(farther.methods.create('theirs', scale=2.0))"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "Sharpness(scale=2.0)\n", done.stderr
