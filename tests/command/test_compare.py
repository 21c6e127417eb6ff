"""`farther compare`: two sets of metrics, and whether they differ by more than chance."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.support.dvc_commands import dvc

from farther.command import main
from farther.command.comparison import Change, changes
from farther.command.stored_metrics import Subject, open_metrics
from farther.errors import ParameterError
from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import Roles, RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.paired import StoredEvaluation, compare
from farther.evaluation.settings import EvaluationSettings
from farther.metrics.catalogue import METRICS
from farther.metrics.statistics import bootstrap
from farther.naming.registry import build
from farther.params import parse
from farther.scoring.inputs import FitSection
from farther.tables import Images, Scores

RUN, SPLIT = "voc-vos", "coco_far"


def write(folder, files):
    """Files of metrics by path."""
    for name, values in files.items():
        file = folder / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))


BEFORE = {
    "a-net/detector": {"map": 0.5},
    "a-net/far/msp": {"auroc": 0.70, "fpr95": 0.60, "nose": None},
    "a-net/far/knn": {"auroc": 0.80, "fpr95": 0.50},
    "b-net/detector": {"map": 0.4},
    "b-net/far/msp": {"auroc": 0.60},
    "curate/far/coco": {"images": 5},
}
AFTER = {
    **BEFORE,
    "a-net/far/msp": {"auroc": 0.75, "fpr95": 0.55, "nose": 0.1},
    "b-net/far/msp": {"auroc": 0.45},
}


@pytest.fixture
def folders(tmp_path):
    write(tmp_path / "before", BEFORE)
    write(tmp_path / "after", AFTER)
    return [str(tmp_path / name) for name in ("before", "after")]


def compared(capsys, *arguments, status=0):
    capsys.readouterr()
    assert main(["compare", *arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def rows(comparison):
    return {
        (row["run"], row["split"], row["method"], row["metric"]): row
        for row in comparison["metrics"]
    }


def test_only_what_changed_is_shown_and_only_results(folders, capsys):
    row_by_names = rows(compared(capsys, *folders))
    assert set(row_by_names) == {
        ("a-net", "far", "msp", "auroc"),
        ("a-net", "far", "msp", "fpr95"),
        ("a-net", "far", "msp", "nose"),
        ("b-net", "far", "msp", "auroc"),
    }
    assert row_by_names["b-net", "far", "msp", "auroc"]["change"] == pytest.approx(-0.15)
    assert row_by_names["a-net", "far", "msp", "nose"]["change"] is None  # there was none before
    assert len(rows(compared(capsys, *folders, "--all"))) == 8  # curate's counts are no results


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (("--run", "a-net"), 3),
        (("--metric", "auroc"), 2),
        (("--metric", "auroc", "--metric", "fpr95"), 3),
        (("--method", "knn", "--all"), 2),
        (("--split", "far", "--run", "b-net"), 1),
    ],
)
def test_rows_are_chosen_by_name(folders, capsys, arguments, count):
    assert len(compared(capsys, *folders, *arguments)["metrics"]) == count


def test_rounding_is_counted_in_a_note_and_shown_by_all(folders, capsys, tmp_path):
    write(tmp_path / "after", {"a-net/far/knn": {"auroc": 0.80003, "fpr95": 0.50004}})
    comparison = compared(capsys, *folders)
    assert not any(names[2] == "knn" for names in rows(comparison))
    assert any(
        note == "2 metrics differ by rounding only, at most by 4e-05; --all shows them."
        for note in comparison["notes"]
    )
    assert main(["compare", *folders]) == 0
    text = capsys.readouterr().out
    assert "+0.0000" not in text
    assert "-0.0000" not in text
    assert ("a-net", "far", "knn", "auroc") in rows(compared(capsys, *folders, "--all"))


def test_what_differs_by_rounding_only_is_no_difference(tmp_path, capsys):
    for side, auroc in (("before", 0.5), ("after", 0.49999)):
        write(tmp_path / side, {"a-net/detector": {"map": 0.5}, "a-net/far/msp": {"auroc": auroc}})
    sides = [str(tmp_path / side) for side in ("before", "after")]
    assert main(["compare", *sides, "--check"]) == 0
    text = capsys.readouterr().out
    assert "No metric differs by more than rounding." in text
    assert "1 metric differs by rounding only" in text


def test_a_name_that_nothing_has_brings_the_nearest(folders, capsys):
    assert main(["compare", *folders, "--run", "a-ne"]) == 2
    assert "Did you mean 'a-net'?" in capsys.readouterr().err
    assert main(["compare", *folders, "--run", "b-net", "--method", "knn"]) == 2
    assert "no metric matches all of these" in capsys.readouterr().err


def test_without_an_evaluation_nothing_is_tested_and_the_output_states_it(folders, capsys):
    assert main(["compare", *folders]) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())  # where a line breaks depends on the paths in it
    assert "none was tested" in words and "not beside the metrics" in words
    assert all(len(line) <= 80 for line in text.splitlines() if "/" not in line)


def test_two_files_alone_are_compared_too(folders, capsys):
    files = [f"{folder}/a-net/far/msp.json" for folder in folders]
    comparison = compared(capsys, *files)
    assert {row["metric"] for row in comparison["metrics"]} == {"auroc", "fpr95", "nose"}
    assert "are not tested" in comparison["notes"][0]


def test_markdown_is_a_table_that_can_be_pasted(folders, capsys):
    assert main(["compare", *folders, "--markdown"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 4
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize(
    ("change", "result"),
    [
        (Change(Subject("r", "s", "m"), "auroc", 0.5, 0.6, p=0.01), "better"),
        (Change(Subject("r", "s", "m"), "fpr95", 0.5, 0.6, p=0.01), "worse"),
        (Change(Subject("r", "s", "m"), "fpr95", 0.5, 0.6, p=0.2), ""),
        (Change(Subject("r", "s", "m"), "unknown_objects", 5, 6, p=0.01), "different"),
        (Change(Subject("r", "s", "m"), "auroc", 0.5, 0.6, apart=True), "apart"),
        (Change(Subject("r", "s", "m"), "auroc", 0.5, 0.6, apart=False), ""),
    ],
)
def test_better_and_worse_follow_the_direction_of_the_metric(change, result):
    assert change.result == result


def test_what_is_neither_path_nor_revision_is_an_error(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "nonsense"]) == 2
    assert "not a file, a folder, or a revision" in capsys.readouterr().err
    with pytest.raises(ParameterError):
        open_metrics("--output=x", tmp_path)


# ------------------------------------------------------------------- with evaluations


def with_shifted_scores(finished, folder, shift):
    """A copy of one run of the finished project, evaluated after one method's scores changed."""
    root = folder / "artifacts"
    for kind in ("regions", "fitted", "scores", "outcomes", "metrics", "evaluation"):
        shutil.copytree(finished / "artifacts" / kind / RUN, root / kind / RUN)
    for name in (f"results/{RUN}.json", f"thresholds/{RUN}.json"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(finished / "artifacts" / name, root / name)
    shutil.copytree(finished / "artifacts/splits/voc", root / "splits/voc")
    shutil.copy(finished / "params.yaml", folder)
    leave_two_methods(root / f"fitted/{RUN}/methods.json")
    file = root / f"scores/{RUN}/msp/{SPLIT}.parquet"
    scores = Scores.read(file)
    scores.with_columns(score=scores.score + shift).write(file)
    evaluate_again(folder)
    return folder


@pytest.fixture(scope="module")
def evaluated_copy(finished, tmp_path_factory):
    """OOD scores that are all below those of ID."""
    return with_shifted_scores(finished, tmp_path_factory.mktemp("copy"), -100.0)


@pytest.fixture(scope="module")
def worst(finished, tmp_path_factory):
    """OOD scores that are all above those of ID: any other ones are better in every replicate."""
    return with_shifted_scores(finished, tmp_path_factory.mktemp("worst"), 100.0)


def leave_two_methods(file):
    content = json.loads(file.read_text())
    content["entries"] = [
        entry for entry in content["entries"] if entry["name"] in ("msp", "energy")
    ]
    file.write_text(json.dumps(content))


def evaluate_again(folder, **changes):
    files = RunFiles(RUN, "voc", folder / "artifacts")
    description = json.loads(files.description.read_text())
    settings = build(EvaluationSettings, "settings", {**description["settings"], **changes})
    splits = [name for name in description["inputs"] if name != settings.id_split]
    inputs = RunInputs(files, Roles(splits), settings)
    fit = parse((folder / "params.yaml").read_text())["fit"]
    evaluate_run(inputs, build(FitSection, "fit", fit).tau_settings(), EvaluationCode(""))


@pytest.fixture
def copy(evaluated_copy, tmp_path):
    """A copy of `evaluated_copy` that a test may change."""
    return shutil.copytree(evaluated_copy, tmp_path, dirs_exist_ok=True)


def test_a_clear_change_on_the_same_images_is_found_and_its_direction(
    worst, evaluated_copy, capsys
):
    sides = [str(worst), str(evaluated_copy), "--run", RUN]
    row_by_names = rows(compared(capsys, *sides, "--metric", "auroc", "--metric", "fpr95"))
    assert set(row_by_names) == {(RUN, SPLIT, "msp", "auroc"), (RUN, SPLIT, "msp", "fpr95")}
    for row in row_by_names.values():
        assert row["result"] == "better"
        assert row["p"] < 0.05
        if row["interval"] is not None:  # there is none where all resamples change alike
            assert row["interval"][0] * row["change"] > 0, "all on the change's side"
    assert main(["compare", *sides, "--metric", "auroc", "--check"]) == 0
    # The other way it got worse.
    assert main(["compare", *sides[1::-1], "--run", RUN, "--check"]) == 1
    assert "tested (paired bootstrap" in capsys.readouterr().out


def test_other_images_are_not_paired(finished, copy, capsys):
    file = copy / f"artifacts/splits/voc/{SPLIT}/images.parquet"
    images = Images.read(file)
    one = images[:1].with_columns(image_id=["another"])
    Images.concatenate([images, one]).write(file)
    evaluate_again(copy)
    comparison = compared(capsys, str(finished), str(copy), "--run", RUN)
    assert all(row["p"] is None for row in comparison["metrics"])
    assert any(
        "differ in OOD images, so they are not paired" in note for note in comparison["notes"]
    )


def test_draws_of_another_seed_are_not_paired(finished, copy, capsys):
    evaluate_again(copy, seed=7)
    comparison = compared(capsys, str(finished), str(copy), "--run", RUN)
    assert all(row["p"] is None for row in comparison["metrics"])
    assert "differ in seed" in comparison["notes"][0]


def test_an_evaluation_without_replicates_is_compared_without_a_test(finished, copy, capsys):
    evaluate_again(copy, replicates=0)
    comparison = compared(capsys, str(finished), str(copy), "--run", RUN)
    assert all(row["p"] is None for row in comparison["metrics"])
    assert "evaluated without replicates" in comparison["notes"][0]


def test_regions_and_scores_are_not_read(copy, finished, capsys):
    for kind in ("regions", "scores", "fitted", "outcomes", "splits"):
        shutil.rmtree(copy / "artifacts" / kind)
    comparison = compared(capsys, str(finished), str(copy), "--run", RUN)
    tested = [row["p"] for row in comparison["metrics"] if row["method"] == "msp"]
    assert comparison["notes"] == [] and tested and None not in tested


def test_replicates_are_those_of_the_evaluation(finished):
    evaluation = StoredEvaluation(finished / "artifacts", RUN)
    values = evaluation.replicates("energy", SPLIT).metrics
    for name in ("auroc", "fpr95", "nose", "r_u"):
        stored = evaluation.result(SPLIT, "energy", METRICS[name])
        images = stored.images if name in ("nose", "r_u") else None
        interval = bootstrap.interval(values[name], value=stored.value, images=images)
        expected = None if interval is None else pytest.approx(interval)
        assert stored.interval == expected, name


def test_a_method_does_not_differ_from_itself(finished):
    same = StoredEvaluation(finished / "artifacts", RUN).replicates("msp", SPLIT)
    for result in compare(same, same).values():
        assert result["interval"] in (None, (0.0, 0.0))
        assert result["p"] in (None, 1.0)


def test_two_methods_are_compared_on_the_same_draws(finished, capsys, monkeypatch):
    monkeypatch.chdir(finished)
    comparison = compared(
        capsys, "--methods", "msp", "knn", "--run", RUN, "--split", SPLIT, "--all"
    )
    assert [row["metric"] for row in comparison["metrics"]] == [
        "auroc",
        "fpr95",
        "nose",
        "ap_u",
        "p_u",
        "r_u",
    ]
    stored = json.loads(Path(f"artifacts/metrics/{RUN}/{SPLIT}/knn.json").read_text())
    assert {row["metric"]: row["b"] for row in comparison["metrics"]} == stored
    assert main(["compare", "--methods", "msp", "kn", "--run", RUN]) == 2
    assert "Did you mean 'knn'?" in capsys.readouterr().err
    assert main(["compare", "--methods", "msp", "knn"]) == 2


# ------------------------------------------------------------------- revisions


def git(folder, *arguments):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def history(copy, worst):
    """A project with a commit, its outputs in DVC's cache, and another evaluation in its files."""
    names = [
        f"artifacts/evaluation/{RUN}",
        f"artifacts/results/{RUN}.json",
        f"artifacts/results/{RUN}.parquet",
        f"artifacts/metrics/{RUN}",
    ]
    shutil.copytree(copy / "artifacts", copy / "changed")
    for name in names:
        put(worst / name, copy / name)
    git(copy, "init", "--quiet")
    stage = {"cmd": "true", "outs": names[:3]}
    (copy / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"all": stage}}))
    dvc("init", "-q", folder=copy)
    dvc("commit", "-q", "--force", folder=copy)
    (copy / ".gitignore").write_text("/artifacts/*\n!/artifacts/metrics\n/changed\n")
    git(copy, "add", "--all")
    git(copy, "commit", "--quiet", "-m", "before")
    for name in names:
        put(copy / name.replace("artifacts", "changed"), copy / name)
    return copy


def put(source, target):
    """Replaces a file or folder; DVC may have linked the old one to its cache."""
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)


def test_a_commit_is_tested_from_what_dvc_keeps_of_it(history, capsys, monkeypatch):
    monkeypatch.chdir(history)
    # The last commit, and now.
    comparison = compared(capsys, "--metric", "auroc", "--metric", "fpr95")
    assert (comparison["a"], comparison["b"], comparison["notes"]) == ("HEAD", "workspace", [])
    assert {row["result"] for row in comparison["metrics"]} == {"better"}
    assert all(row["p"] < 0.5 for row in comparison["metrics"])


def test_a_commit_whose_outputs_are_gone_is_compared_without_a_test(history, capsys, monkeypatch):
    monkeypatch.chdir(history)
    shutil.rmtree(history / ".dvc/cache")  # and there is no remote
    comparison = compared(capsys, "HEAD", "--metric", "auroc", "--metric", "fpr95")
    assert [row["p"] for row in comparison["metrics"]] == [None, None]
    assert "not in DVC's cache" in comparison["notes"][0]


def test_a_commit_with_itself_differs_in_nothing(history, capsys, monkeypatch):
    monkeypatch.chdir(history)
    git(history, "commit", "--quiet", "--allow-empty", "-m", "again")
    assert compared(capsys, "HEAD~1", "HEAD")["metrics"] == []


def test_changes_are_of_both_sides_names():
    subject = Subject("r", "s", "m")
    sides = {
        row.metric: (row.before, row.after)
        for row in changes({subject: {"a": 1.0}}, {subject: {"b": 2.0}})
    }
    assert sides == {"a": (1.0, None), "b": (None, 2.0)}
