"""What the stages of dvc.yaml declare, compared with what their scripts read."""

import ast
import json
import re
import runpy
import shutil
import sys
from functools import reduce
from pathlib import Path

import pytest
import yaml

from farther.incremental.stage_digests import ENTRY_KEYS

ROOT = Path(__file__).parents[2]
PIPELINES = {"dvc.yaml": "params.yaml", "training/dvc.yaml": "training/params.yaml"}


def stages(pipeline: str) -> dict[str, dict]:
    found = yaml.safe_load((ROOT / pipeline).read_text())["stages"]
    return {name: stage.get("do", stage) for name, stage in found.items()}


def script(stage: dict) -> Path:
    """The module that does a stage's work, or its script where that does it itself."""
    script = ROOT / re.search(r"python (\S+\.py)", stage["cmd"])[1]
    module = ROOT / "lib/farther/pipeline" / script.name
    return module if module.exists() else script


#: Modules that do parts of a stage's work, by the name of the stage.
PARTS = {"choose": ("costs.py",)}


def sources(stage: dict) -> list[Path]:
    """The files that do a stage's work: its module, what it does for one run, and parts."""
    main = script(stage)
    candidates = [main.parent / "runs" / main.name]
    candidates += [main.with_name(name) for name in PARTS.get(main.stem, ())]
    return [main, *(file for file in candidates if file.exists())]


def constants(tree: ast.Module) -> dict[str, list[str]]:
    """Tuples of texts that the script assigns at its top level."""
    assigned = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
    ]
    return {
        node.targets[0].id: [
            part.value for part in node.value.elts if isinstance(part, ast.Constant)
        ]
        for node in assigned
    }


def is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def sections_read(file: Path) -> set[tuple[str, tuple[str, ...]]]:
    """(file of parameters, keys) of each `section(…)` of a script; "*" is an unknown key."""
    tree = ast.parse(file.read_text())
    tuples = constants(tree)
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.comprehension)]
    values = {
        loop.target.id: tuples.get(getattr(loop.iter, "id", ""), ["*"])
        for loop in loops
        if isinstance(loop.target, ast.Name)
    }
    # Where the images of a dataset are: what they are is in the tables that `ingest` made of them.
    places = [node.args[0] for node in ast.walk(tree) if is_call(node, "image_roots")]
    found = set()
    for node in ast.walk(tree):
        if is_call(node, "section") and node not in places:
            source = ast.unparse(node.keywords[0].value) if node.keywords else "params.yaml"
            name = "training/params.yaml" if "training" in source.lower() else "params.yaml"
            keys = [arg.value if isinstance(arg, ast.Constant) else "*" for arg in node.args]
            first = values.get(ast.unparse(node.args[0]), [keys[0]]) if keys else ["*"]
            found |= {(name, (key, *keys[1:])) for key in first}
    return found


def declared(stage: dict, default: str) -> set[tuple[str, tuple[str, ...]]]:
    """(file, keys) of each declared parameter; "*" for what dvc.yaml fills in."""
    found = {(file, ()) for file in stage.get("deps", []) if file == "params.yaml"}  # all of it
    for entry in stage.get("params", []):
        for file, keys in (entry if isinstance(entry, dict) else {default: [entry]}).items():
            name = file.removeprefix("../")
            paths = {tuple(re.sub(r"\$\{[^}]*\}", "*", key).split(".")) for key in keys}
            found |= {(name, path) for path in paths}
            if name == "artifacts/code.json":  # digests of entries of params.yaml
                found |= {(default, path) for path in paths if path[0] in ENTRY_KEYS}
    return found


def outputs(stage: dict) -> list[str]:
    entries = [entry for kind in ("outs", "metrics", "plots") for entry in stage.get(kind, [])]
    return [next(iter(entry)) if isinstance(entry, dict) else entry for entry in entries]


def filled_in_stages() -> list[dict]:
    """The stages of dvc.yaml, one per entry of `foreach`, with the values of params.yaml."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    filled_in = []
    for stage in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].values():
        if "foreach" not in stage:
            filled_in.append(fill_in(stage, params))
            continue
        section = reduce(dict.__getitem__, stage["foreach"].strip("${}").split("."), params)
        for key, item in section.items():
            filled_in.append(fill_in(stage["do"], {**params, "key": key, "item": item}))
    return filled_in


def fill_in(stage: dict, values: dict) -> dict:
    """A stage with a value in the place of each `${…}`."""

    def value_of(name: re.Match) -> str:
        return str(reduce(dict.__getitem__, name[1].split("."), values))

    return yaml.safe_load(re.sub(r"\$\{([^}]+)\}", value_of, yaml.safe_dump(stage)))


def covers(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    """True if a declared key is the key that is read, or one above it."""
    return len(wide) <= len(narrow) and all(
        "*" in (a, b) or a == b for a, b in zip(wide, narrow, strict=False)
    )


ALL = [(pipeline, name) for pipeline in PIPELINES for name in stages(pipeline)]


@pytest.mark.parametrize(("pipeline", "name"), ALL)
def test_a_stage_declares_every_section_that_its_script_reads(pipeline, name):
    stage = stages(pipeline)[name]
    known = declared(stage, PIPELINES[pipeline])
    read = set().union(*(sections_read(file) for file in sources(stage)))
    missing = {
        key
        for key in read
        if not any(key[0] == file and covers(keys, key[1]) for file, keys in known)
    }
    assert not missing


@pytest.mark.parametrize(("pipeline", "name"), ALL)
def test_a_stage_depends_on_the_digest_of_its_own_code_and_lists_no_file_of_the_library(
    pipeline, name
):
    stage = stages(pipeline)[name]
    if name == "code":
        assert stage["always_changed"]
        return
    own = {keys[0] for file, keys in declared(stage, "") if file == "artifacts/code.json"}
    assert own - {"files", *ENTRY_KEYS} == {script(stage).stem}
    assert not [dep for dep in stage.get("deps", []) if dep.startswith("lib")]


#: A folder of artifacts in a script.
FOLDER = re.compile(r"""["']?(?:ARTIFACTS|artifacts|root)["']? / ["']([a-z]+)["']""")


@pytest.mark.parametrize("name", [name for name in stages("dvc.yaml") if name != "code"])
def test_a_stage_declares_every_folder_of_artifacts_that_its_script_names(name):
    stage = stages("dvc.yaml")[name]
    outs = [
        next(iter(out)) if isinstance(out, dict) else out
        for kind in ("outs", "metrics", "plots")
        for out in stage.get(kind, [])
    ]
    known = {
        path.split("/")[1]
        for path in (*stage.get("deps", []), *outs)
        if path.startswith("artifacts/")
    }
    text = "".join(file.read_text() for file in sources(stage))
    named = set(FOLDER.findall(text)) | set(re.findall(r"f?\"artifacts/([a-z]+)/", text))
    images = (
        {"tables"} if "image_roots" in text else set()
    )  # the folder is looked at for where images are, not read
    assert named - images <= known


def test_the_report_declares_every_folder_of_artifacts_that_its_package_names():
    report = stages("dvc.yaml")["report"]
    declared_paths = [*report["deps"], *outputs(report)]
    undeclared = {}
    for file in sorted((ROOT / "lib/farther/report").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for name in re.findall(r"""\bartifacts\)? / ["'](\w+)["'/]""", text):
            if f"artifacts/{name}" not in declared_paths:
                undeclared[f"artifacts/{name}"] = f"dvc.yaml: in deps of report, for {file.name}"
    assert undeclared == {}


def test_every_digest_that_a_stage_names_is_one_that_the_stage_code_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["code_digests.py"])
    shutil.copy(ROOT / "params.yaml", tmp_path)
    runpy.run_path(str(ROOT / "stages/code_digests.py"), run_name="__main__")
    named = set()
    for stage in filled_in_stages():
        for entry in stage.get("params", []):
            if isinstance(entry, dict):
                named |= set(entry.get("artifacts/code.json", []))
    assert len(named) > 10
    written = json.loads(Path("artifacts/code.json").read_text())
    for key in named:
        assert reduce(dict.__getitem__, key.split("."), written)


def test_no_two_stages_write_one_path():
    paths = []
    for stage in filled_in_stages():
        paths += outputs(stage)
    assert len(paths) > 30
    assert len(paths) == len(set(paths))


def test_no_stage_depends_on_a_record_of_kept_outputs():
    for stage in filled_in_stages():
        for path in stage.get("deps", []):
            assert not path.startswith("artifacts/records")
