"""The shipped files of parameters, read as by stages, and rewritten as by DVC's `--set-param`."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ruamel.yaml import YAML
from tests.support.cases import slow_but
from tests.support.dvc_commands import dvc

from farther.errors import DataError, ParameterError
from farther.incremental.code import code_digest
from farther.params import parse, section

ROOT = Path(__file__).parents[2]
SHIPPED = (
    "params.yaml",
    "training/params.yaml",
    *sorted(f"profiles/{f.name}" for f in (ROOT / "profiles").iterdir()),
)
QUICK = ("params.yaml", "training/params.yaml", "profiles/fmiyc.yaml", "profiles/saod.yaml")


@pytest.mark.parametrize("name", slow_but(QUICK, SHIPPED))
def test_a_file_of_parameters_means_the_same_after_dvc_has_rewritten_it(name):
    text = (ROOT / name).read_text()
    rewritten = io.StringIO()
    rewriting = YAML()
    rewriting.dump(rewriting.load(text), rewritten)
    assert YAML(typ="safe").load(rewritten.getvalue()) == yaml.safe_load(text)
    assert parse(rewritten.getvalue()) == parse(text)


def test_a_section_that_is_absent_is_named_with_those_that_are_there(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("fit:\nmethods: {msp: {}, knn: {k: 3}}\n")
    assert section("methods", "knn", "k", file=file) == 3
    assert section("fit", file=file) == {}
    with pytest.raises(ParameterError, match=r"no 'methods\.vim'\. Known here: msp, knn"):
        section("methods", "vim", file=file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "datasets: {'x; touch PWNED': {}}",
            "section 'datasets': the name 'x; touch PWNED' is not allowed: write",
        ),
        ("methods: {methods.json: {}}", ".*the name 'methods.json' ends like a file"),
        ("benchmarks: {b: {splits: {far.objects: {}}}}", ".*ends like a file that farther writes"),
        ("detectors: {net.JS: {}}", "section 'detectors': the name 'net.JS' ends like a file"),
        ("detectors: {embed: {}}", ".*the name 'embed' is not free, as section 'sources' has it"),
        ("detectors: {Similarity: {}}", ".*the name 'Similarity' is not free"),
        ("datasets: {../x: {}}", "section 'datasets': the name '../x' is not allowed"),
        ("datasets: {2017: {}}", "section 'datasets': expected a name, found 2017.*in quotes"),
        ("derived: {paste: {-x: {}}}", r"section 'derived\.paste': the name '-x'"),
        (
            "benchmarks: {voc: {splits: {$(x): {}}}}",
            r"section 'benchmarks\.voc\.splits': the name '\$\(x\)'",
        ),
        (
            "benchmarks: {voc: {shifted: {a b: {}}}}",
            r"section 'benchmarks\.voc\.shifted': the name 'a b'",
        ),
        (
            "detectors: {yolo: {passes: {.x: {}}}}",
            r"section 'detectors\.yolo\.passes': the name '\.x'",
        ),
        ("methods: {é: {}}", "section 'methods': the name 'é'"),
        ("methods: {knn: [1]}", r"section 'methods\.knn': expected names with values, found \[1\]"),
        (
            "datasets: {pets: photos}",
            r"section 'datasets\.pets': expected names with values, found 'photos'",
        ),
        (
            "methods: {near: {method: knn}, Near: {method: vim}}",
            "section 'methods': the names 'near' and 'Near' differ in case alone",
        ),
        (
            "datasets: {VOC: {}}\nderived: {paste: {voc: {}}}",
            "section 'datasets': the names 'VOC' and 'voc' differ in case alone",
        ),
        (
            "benchmarks: {a: {}, b: {splits: {near: {}, NEAR: {}}}}",
            r"section 'benchmarks\.b\.splits': the names 'near' and 'NEAR' differ in case alone",
        ),
        (
            "detectors: {a: {}, A: {}}",
            "section 'detectors': the names 'a' and 'A' differ in case alone",
        ),
        ("evaluate: 1.5", "section 'evaluate': expected names with values, found 1.5"),
        ("[1, 2]", "expected sections, found"),
        (
            "fit: {a: 2020-13-45}",
            r"not YAML: not a value of the type 'timestamp'.*\(line 1, column 10\)",
        ),
    ],
)
def test_names_and_sections_of_other_kinds_are_refused_with_their_place(tmp_path, text, message):
    file = tmp_path / "params.yaml"
    file.write_text(text)
    with pytest.raises(ParameterError, match=rf"params\.yaml: {message}"):
        section("fit", file=file)


def test_a_name_with_shell_syntax_stops_a_repro_before_any_command(tmp_path, monkeypatch):
    project = tmp_path / "project"
    for name in ("stages", "data", "extensions"):
        shutil.copytree(
            ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__", "demo")
        )
    (project / "lib").mkdir()
    (project / "lib" / "farther").symlink_to(ROOT / "lib" / "farther")
    shutil.copy(ROOT / "dvc.yaml", project)
    params = parse((ROOT / "params.yaml").read_text())
    evil = {
        name: {"format": "coco", "root": "data"}
        for name in ("x; touch PWNED", "x'; touch PWNED; '")
    }
    (project / "params.yaml").write_text(yaml.safe_dump({**params, "datasets": evil}))
    monkeypatch.chdir(project)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "lib"))
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    dvc("init", "-q", "--no-scm")
    repro = subprocess.run([sys.executable, "-m", "dvc", "repro"], capture_output=True, text=True)
    assert repro.returncode != 0
    assert "failed to reproduce 'code'" in repro.stderr
    assert not list(project.rglob("PWNED*"))
    assert not (project / "artifacts" / "tables").exists()


def test_the_code_of_a_name_that_the_stage_code_has_not_seen_is_an_error_that_says_what_to_run(
    tmp_path,
):
    file = tmp_path / "code.json"
    file.write_text('{"infer": {"yolo": "12ab"}, "curate": "34cd"}')
    assert code_digest("infer", "yolo", file=file) == "12ab"
    assert code_digest("curate", file=file) == "34cd"
    for keys in (("infer", "detr"), ("infer",), ("curate", "voc")):
        with pytest.raises(DataError, match="run `farther repro code`"):
            code_digest(*keys, file=file)
