"""A stage fails where what it reads changes while it runs, and where `code` saw something else."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from farther.incremental import code
from farther.incremental.stage_inputs import inputs_of
from farther.params import section, snapshot
from farther.pipeline import code_digests
from farther.stage import run_stage

LIB = Path(code.__file__).parents[2]
#: What a message says of a file or a parameter.
CHANGED = "changed while the stage ran"

PARAMS = {
    "detectors": {
        "a": {"adapter": "yolo", "benchmark": "b", "weights": "a.pt", "title": "A"},
        "c": {"adapter": "detr", "benchmark": "b", "weights": "c.pt", "params": {"w": "words.txt"}},
    },
    "methods": {"knn": {"k": 3}, "gen": {}},
    "evaluate": {"iou": 0.5},
    "derived": {"paste": {"p": {"cutouts": {"root": "cutouts", "source": "masks"}}}},
}
STAGES = {
    "infer": {
        "foreach": "${detectors}",
        "do": {
            "cmd": "python infer.py ${key}",
            "deps": ["${item.weights}", "tables"],
            "params": [{"artifacts/code.json": ["infer.${item.adapter}", "detectors.${key}"]}],
        },
    },
    "fit": {
        "cmd": "python fit.py",
        "deps": ["regions"],
        "params": ["methods", {"artifacts/code.json": ["fit", "files.methods", "detectors"]}],
    },
    "paste": {
        "foreach": "${derived.paste}",
        "do": {
            "cmd": "python derive.py paste ${key}",
            "deps": ["${item.cutouts.root}"],
            "params": ["derived.paste.${key}", {"artifacts/code.json": ["derive.paste"]}],
        },
    },
}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project whose stage `code` has run."""
    monkeypatch.chdir(tmp_path)
    files = {"a.pt": "1", "c.pt": "1", "words.txt": "1", "cutouts/x.png": "1"}
    files |= {"tables/voc/images.parquet": "1", "regions/a/1.parquet": "1", "regions/._junk": "1"}
    files |= {"regions/.work/part": "1", "extensions/notes.txt": "1"}
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
    code_digests.main()
    return tmp_path


def run(monkeypatch, command: str, main: Callable[..., None]) -> str:
    """Runs a stage in this process: "infer a"; returns its message, "" if it ends well."""
    name, *arguments = command.split()
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    try:
        run_stage(main, "artifacts/out")
    except SystemExit as stop:
        return str(stop.code)
    return ""


def edit_params(edit: Callable[[dict], None]) -> None:
    params = yaml.safe_load(Path("params.yaml").read_text())
    edit(params)
    Path("params.yaml").write_text(yaml.safe_dump(params))


@pytest.mark.parametrize("stage", ["infer a", "infer c", "fit", "derive paste p"])
def test_a_stage_ends_well_where_nothing_changes(project, monkeypatch, stage):
    def main(*arguments: str) -> None:
        Path("artifacts/regions").mkdir(exist_ok=True)
        Path("artifacts/regions/output").write_text("1")
        Path("regions/.work/part").write_text("22")

    assert run(monkeypatch, stage, main) == ""


def test_a_parameter_that_is_edited_during_a_stage_is_named(project, monkeypatch):
    seen = []

    def main() -> None:
        edit_params(lambda params: params["methods"]["knn"].update(k=5))
        seen.append(section("methods", "knn"))

    message = run(monkeypatch, "fit", main)
    assert message.startswith(f"fit: methods.knn.k {CHANGED}: ")
    assert "run `dvc repro` again (finished parts are kept)" in message
    assert seen == [{"k": 3}]
    assert section("methods", "knn") == {"k": 5}


def test_an_edit_of_a_parameter_that_is_taken_back_changes_nothing(project, monkeypatch):
    text = Path("params.yaml").read_text()

    def main() -> None:
        edit_params(lambda params: params["methods"]["knn"].update(k=5))
        assert section("methods", "knn") == {"k": 3}
        Path("params.yaml").write_text(text)

    assert run(monkeypatch, "fit", main) == ""


def test_parameters_and_titles_that_a_stage_does_not_read_may_change(project, monkeypatch):
    def main(run: str) -> None:
        def edit(params: dict) -> None:
            params["evaluate"]["iou"] = 0.6
            params["detectors"]["a"]["title"] = "B"
            params["detectors"]["c"]["title"] = "C"

        edit_params(edit)

    assert run(monkeypatch, "infer a", main) == ""


def test_an_entry_of_a_section_that_changes_is_named_by_its_key(project, monkeypatch):
    def main() -> None:
        edit_params(lambda params: params["detectors"]["c"].update(adapter="yolo"))

    assert run(monkeypatch, "fit", main).startswith(f"fit: detectors.c.adapter {CHANGED}")


def edit_of(file: str) -> Callable[..., None]:
    return lambda *arguments: Path(file).write_text("22")


def test_a_dependency_that_changes_appears_or_vanishes_is_named(project, monkeypatch):
    assert f"a.pt {CHANGED}" in run(monkeypatch, "infer a", edit_of("a.pt"))
    assert f"cutouts/x.png {CHANGED}" in run(
        monkeypatch, "derive paste p", edit_of("cutouts/x.png")
    )
    assert f"regions/a/2 {CHANGED}" in run(monkeypatch, "fit", edit_of("regions/a/2"))
    assert f"regions/a/2 {CHANGED}" in run(monkeypatch, "fit", lambda: Path("regions/a/2").unlink())
    assert run(monkeypatch, "infer a", edit_of("regions/a/1.parquet")) == ""


def test_many_changed_files_are_counted(project, monkeypatch):
    def main() -> None:
        for number in range(9):
            Path(f"regions/{number}").touch()

    assert "regions/0, regions/1, regions/2 and 6 more changed" in run(monkeypatch, "fit", main)


def test_a_file_that_is_replaced_by_one_of_equal_size_and_time_is_named(project, monkeypatch):
    def main(run: str) -> None:
        times = Path("a.pt").stat()
        Path("other").write_text("2")
        os.utime("other", ns=(times.st_atime_ns, times.st_mtime_ns))
        Path("other").rename("a.pt")

    assert f"a.pt {CHANGED}" in run(monkeypatch, "infer a", main)


def test_a_named_file_that_changes_is_named(project, monkeypatch):
    assert f"words.txt {CHANGED}" in run(monkeypatch, "infer c", edit_of("words.txt"))
    code_digests.main()
    assert run(monkeypatch, "infer a", edit_of("words.txt")) == ""


def test_code_that_changes_is_named(project, monkeypatch, tmp_path):
    copy = tmp_path / "lib/farther"
    for package in ("detectors", "datasets", "images", "tables", "pipeline"):
        (copy / package).mkdir(parents=True)
    (copy / "detectors/yolo.py").write_text('@register("yolo")\nclass YOLO: ...\n')
    (copy / "detectors/detr.py").write_text('@register("detr")\nclass DETR: ...\n')
    (copy / "images/read.py").write_text("1")
    monkeypatch.setattr(code, "__file__", str(copy / "incremental/code.py"))
    code_digests.main()
    assert f"yolo.py {CHANGED}" in run(monkeypatch, "infer a", edit_of(f"{copy}/detectors/yolo.py"))
    (copy / "detectors/yolo.py").write_text('@register("yolo")\nclass YOLO: ...\n')
    code_digests.main()
    other = copy / "detectors/detr.py"
    assert (
        run(monkeypatch, "infer a", lambda run: other.write_text(f"{other.read_text()}# 2\n")) == ""
    )
    code_digests.main()
    assert f"read.py {CHANGED}" in run(monkeypatch, "infer a", edit_of(f"{copy}/images/read.py"))


def test_an_edit_of_a_file_that_is_taken_back_is_named(project, monkeypatch):
    def main(run: str) -> None:
        Path("words.txt").write_text("2")
        Path("words.txt").write_text("1")
        os.utime("words.txt", ns=(1, 1))  # within one tick of the clock it could be equal

    assert f"words.txt {CHANGED}" in run(monkeypatch, "infer c", main)


def test_extensions_that_change_are_named_where_a_stage_may_run_them(project, monkeypatch):
    assert "extensions/notes.txt changed" in run(
        monkeypatch, "fit", edit_of("extensions/notes.txt")
    )
    code_digests.main()
    assert run(monkeypatch, "infer a", edit_of("extensions/new.txt")) == ""


def git(*arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def test_git_switch_and_stash_during_a_stage_are_named(project, monkeypatch):
    git("init", "--quiet", "--initial-branch=main")
    git("add", "words.txt", "params.yaml")
    git("commit", "--message=1")
    git("switch", "--create=other")
    Path("words.txt").write_text("other")
    git("commit", "--all", "--message=2")
    git("switch", "main")
    code_digests.main()

    message = run(monkeypatch, "infer c", lambda run: git("switch", "other"))
    assert f"words.txt {CHANGED}" in message
    git("switch", "main")

    def switch_and_return(run: str) -> None:
        git("switch", "other")
        git("switch", "main")

    assert f"words.txt {CHANGED}" in run(monkeypatch, "infer c", switch_and_return)

    def stash_and_pop(run: str) -> None:
        git("stash")
        git("stash", "pop")

    Path("words.txt").write_text("mine")
    code_digests.main()
    assert f"words.txt {CHANGED}" in run(monkeypatch, "infer c", stash_and_pop)


def test_what_changed_since_the_stage_code_ran_is_refused_before_the_stage_works(
    project, monkeypatch
):
    def main(*arguments: str) -> None:
        raise AssertionError("the stage began")

    Path("words.txt").write_text("2")
    message = run(monkeypatch, "infer c", main)
    assert message == (
        "infer c: changed since the stage `code` ran: detectors.c of params.yaml, or a file that "
        "it names; run `dvc repro` again"
    )
    Path("extensions/new.py").touch()
    assert "the code of fit" in run(monkeypatch, "fit", main)
    code_digests.main()
    assert run(monkeypatch, "infer c", lambda run: None) == ""


def test_nothing_is_compared_outside_a_pipeline(project, monkeypatch):
    assert run(monkeypatch, "unknown", edit_of("words.txt")) == ""
    assert inputs_of("code_digests", []) is None
    Path("artifacts/code.json").unlink()
    assert inputs_of("fit", []) is None
    code_digests.main()
    assert inputs_of("fit", []) is not None
    Path("dvc.yaml").unlink()
    assert inputs_of("fit", []) is None


def test_worker_processes_get_the_text_of_the_stage(project, monkeypatch):
    texts = []

    def main() -> None:
        before = snapshot()
        edit_params(lambda params: params["methods"]["knn"].update(k=5))
        texts.extend([before, snapshot()])

    run(monkeypatch, "fit", main)
    assert texts[0] == texts[1]
    assert snapshot() != texts[0]


STAGE = """
import sys
sys.path.insert(0, {lib!r})
from pathlib import Path
from farther.params import section
from farther.stage import run_stage

def main():
    Path("out.txt").write_text(str(section("methods", "knn")["k"]))
    if Path("edit").exists():
        text = Path("params.yaml").read_text()
        Path("params.yaml").write_text(text.replace("k: 3", "k: 5"))
        Path("edit").unlink()

run_stage(main, "out.txt")
"""


@pytest.mark.slow
def test_dvc_runs_a_stage_again_during_which_a_parameter_was_edited(project, monkeypatch):
    Path("fit.py").write_text(STAGE.format(lib=str(LIB)))
    fit = {**STAGES["fit"], "cmd": f"{sys.executable} fit.py", "outs": ["out.txt"]}
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": {"fit": fit}}))
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}

    def dvc(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "dvc", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    git("init", "--quiet")
    assert dvc("init", "--quiet").returncode == 0
    Path("edit").touch()
    done = dvc("repro")
    assert done.returncode != 0
    assert f"methods.knn.k {CHANGED}" in done.stderr
    done = dvc("repro")
    assert done.returncode == 0, done.stderr
    assert Path("out.txt").read_text() == "5"
    assert "up to date" in dvc("status").stdout
