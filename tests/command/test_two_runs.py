"""`farther compare --runs`: two detectors on the same images of a benchmark."""

import json
import shutil

import polars as pl
import pytest
import yaml
from tests.evaluation.deployable import PARAMS, lay

import farther
from farther.command import main
from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import Roles, RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.long_table import read_long_table
from farther.evaluation.paired import StoredEvaluation
from farther.evaluation.settings import EvaluationSettings
from farther.metrics.catalogue import METRICS
from farther.metrics.statistics import bootstrap
from farther.naming.registry import build
from farther.scoring.inputs import FitSection
from farther.tables import Regions
from farther.tables.parquet import write_parquet

REPLICATES = 199

#: The ID test split: of twelve cats, nine are detected.
CATS = [
    ("cat", 0.9, 0.9, 0.9),
    *[("cat", 0.9, 0.5, 0.5)] * 8,
    *[("cat", None, 0, 0)] * 3,
]


def evaluate(root, run, **settings):
    """Evaluates a run of the project."""
    files = RunFiles(run, "b", root / "artifacts")
    read = EvaluationSettings(**{"replicates": REPLICATES, **settings})
    inputs = RunInputs(files, Roles(["far", "near"]), read)
    evaluate_run(inputs, build(FitSection, "fit", {}).tau_settings(), EvaluationCode(""))


def copy_run(root, run, new):
    """A run with the files of another one, not evaluated."""
    for kind in ("regions", "scores", "fitted"):
        shutil.copytree(root / "artifacts" / kind / run, root / "artifacts" / kind / new)
    shutil.copy(
        root / f"artifacts/thresholds/{run}.json", root / f"artifacts/thresholds/{new}.json"
    )


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """Runs `r`; `same`, with the same results; and `fewer`, which detects one known object."""
    root = tmp_path_factory.mktemp("two runs")
    lay(root, {"test": CATS}, test=("far", "near"))
    evaluate(root, "r")
    copy_run(root, "r", "same")
    evaluate(root, "same")

    copy_run(root, "r", "fewer")
    folder = root / "artifacts/regions/fewer/test"
    regions = Regions.read(folder)
    shutil.rmtree(folder)
    regions[:1].write(folder)
    for method in PARAMS["methods"]:
        file = root / f"artifacts/scores/fewer/{method}/test.parquet"
        pl.read_parquet(file)[:1].write_parquet(file)
    return root


@pytest.fixture
def project(evaluated, tmp_path, monkeypatch):
    """A copy of the runs, as the current folder."""
    shutil.copytree(evaluated, tmp_path, dirs_exist_ok=True)
    entry = PARAMS["detectors"]["r"]
    detectors = dict.fromkeys(("r", "same", "fewer"), entry)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({**PARAMS, "detectors": detectors}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compared(capsys, *arguments, status=0):
    capsys.readouterr()
    assert main(["compare", "--runs", *arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments):
    capsys.readouterr()
    assert main(["compare", "--runs", *arguments]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error and error.count("\n") == 1
    return error


def test_a_run_does_not_differ_from_one_with_the_same_results(project, capsys):
    comparison = compared(capsys, "r", "same", "--all")
    assert (comparison["a"], comparison["b"]) == ("r", "same")
    for row in comparison["metrics"]:
        assert row["change"] in (0, None)
        assert row["interval"] in ([0.0, 0.0], None)
        assert row["p"] in (1.0, None) and row["result"] == ""
    assert compared(capsys, "r", "same")["metrics"] == []


def test_known_metrics_come_first_then_the_splits_with_the_baseline(project, capsys):
    comparison = compared(capsys, "r", "same", "--all")
    subjects = [(row["split"], row["method"]) for row in comparison["metrics"]]
    assert list(dict.fromkeys(subjects)) == [("test", ""), ("far", "one"), ("near", "one")]
    assert [row["metric"] for row in comparison["metrics"][:2]] == ["map", "map50"]
    assert any("--method adds others that both have: two." in note for note in comparison["notes"])


def test_map_and_its_difference_are_those_of_the_two_detectors(project, capsys):
    evaluate(project, "fewer")
    rows = compared(capsys, "r", "fewer", "--metric", "mAP", "--metric", "ap50")["metrics"]
    # Of twelve cats r detects nine and the other one: precision is 1 at 76 and at 9 of the 101
    # recalls.
    assert [row["metric"] for row in rows] == ["map", "map50"]
    for row in rows:
        assert row["a"] == pytest.approx(76 / 101)
        assert row["b"] == pytest.approx(9 / 101)
        assert row["change"] == pytest.approx(-67 / 101)
        low, high = row["interval"]
        assert low < -67 / 101 < high < 0  # eight of twelve images: each replicate draws some
        assert row["p"] == pytest.approx(2 / (REPLICATES + 1)) and row["result"] == "worse"


def test_differences_are_of_the_same_draws_of_images(project, capsys):
    evaluate(project, "fewer")
    (row,) = compared(capsys, "r", "fewer", "--metric", "AUROC", "--split", "far")["metrics"]
    root = project / "artifacts"
    first = StoredEvaluation(root, "r").replicates("one", "far").metrics["auroc"]
    second = StoredEvaluation(root, "fewer").replicates("one", "far").metrics["auroc"]
    expected = bootstrap.compare(second, first)
    assert row["p"] == expected["p"]
    assert row["interval"] == pytest.approx(expected["interval"])


def test_replicates_of_the_detector_have_the_interval_of_the_evaluation(project):
    evaluation = StoredEvaluation(project / "artifacts", "r")
    replicates = evaluation.detector_replicates().metrics
    for name in ("map", "map50"):
        stored = evaluation.result(evaluation.id_split, "", METRICS[name])
        assert bootstrap.interval(replicates[name]) == pytest.approx(stored.interval)
    assert "accuracy" not in replicates


def test_methods_and_metrics_are_chosen_by_any_of_their_names(project, capsys):
    asked = ["--method", "TWO", "--metric", "r-u", "--split", "far", "--all"]
    (row,) = compared(capsys, "r", "same", *asked)["metrics"]
    assert (row["split"], row["method"], row["metric"]) == ("far", "two", "r_u")
    stored = StoredEvaluation(project / "artifacts", "r").result("far", "two", METRICS["r_u"])
    assert row["a"] == row["b"] == stored.value


def test_the_table_and_markdown_name_both_runs_and_t_star(project, capsys):
    evaluate(project, "fewer")
    assert main(["compare", "--runs", "r", "fewer"]) == 0
    printed = capsys.readouterr()
    assert "metric" in printed.out and "Each detector has its own t*" in printed.out
    assert all(len(line) <= 80 for line in printed.out.splitlines())
    assert "farther explain number fewer " in printed.err
    assert printed.out.startswith("fewer is worse than r in ")
    assert "A: r; B: fewer." in " ".join(printed.out.split())
    assert main(["compare", "--runs", "r", "fewer", "--markdown"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert lines[0].split("|")[2:4] == [" A ", " B "]
    assert len({line.count("|") for line in lines}) == 1


def test_latex_has_the_verdict_as_caption_and_a_row_per_metric(project, capsys):
    evaluate(project, "fewer")
    assert main(["compare", "--runs", "r", "fewer", "--metric", "map", "--latex"]) == 0
    printed = capsys.readouterr().out
    assert r"\caption{fewer is worse than r in 1 of 1 metrics, better in none." in printed
    assert printed.count(r"\\") == 2  # the heading and one metric


def test_python_gets_the_same_as_a_frame(project):
    evaluate(project, "fewer")
    frame = farther.compare("r", "fewer", project, metrics=["mAP", "R_U"])
    assert frame["metric"].to_list()[0] == "map"
    row = frame.row(0, named=True)
    assert row["difference"] == row["second"] - row["first"] < 0
    assert row["low"] <= row["difference"] <= row["high"] < 0
    assert (row["method"], row["result"]) == ("", "worse")
    assert set(frame["split"]) == {"test", "far", "near"}


def test_a_worse_detector_fails_the_check(project, capsys):
    evaluate(project, "fewer")
    assert main(["compare", "--runs", "r", "fewer", "--metric", "map", "--check"]) == 1
    assert main(["compare", "--runs", "fewer", "r", "--metric", "map", "--check"]) == 0


def test_without_regions_the_methods_are_tested_and_a_note_says_why_map_is_not(project, capsys):
    shutil.rmtree(project / "artifacts/regions/same")
    comparison = compared(capsys, "r", "same", "--all")
    by_metric = {row["metric"]: row for row in comparison["metrics"]}
    assert by_metric["map"]["p"] is None and by_metric["map"]["a"] is not None
    assert by_metric["nose"]["p"] == 1.0
    assert "Metrics of the detectors alone are not tested" in comparison["notes"][0]


def test_regions_that_changed_since_the_evaluation_are_not_taken(project, capsys):
    evaluate(project, "fewer")
    for file in (project / "artifacts/regions/r/test").iterdir():
        shutil.copy(file, project / "artifacts/regions/fewer/test" / file.name)
    comparison = compared(capsys, "r", "fewer", "--metric", "mAP")
    assert comparison["metrics"][0]["p"] is None
    assert "changed since the evaluation: run `farther repro" in comparison["notes"][0]


def test_an_evaluation_without_replicates_gives_values_without_a_test(project, capsys):
    evaluate(project, "r", replicates=0)
    evaluate(project, "same", replicates=0)
    comparison = compared(capsys, "r", "same", "--all")
    assert all(row["p"] is None for row in comparison["metrics"])
    assert "evaluated without replicates" in comparison["notes"][0]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["r", "r"], "--runs compares two runs; r was named twice"),
        (["r", "sam"], "Did you mean 'same'?"),
        (["r", "fewer"], "fewer"),  # not evaluated
        (["r", "same", "--method", "three"], "unknown method of this run 'three'"),
        (["r", "same", "--split", "fra"], "Did you mean 'far'?"),
        (["r", "same", "--metric", "noze"], "Did you mean 'nose'?"),
        (["r", "same", "--metric", "AUPR"], "'aupr_in' or 'aupr_out'"),
        (["r", "same", "--run", "r"], "omit A, B, --methods and --run"),
        (["r", "same", "--methods", "one", "two"], "omit A, B, --methods and --run"),
        (["r", "same", "HEAD"], "omit A, B, --methods and --run"),
        (["r", "same", "--json", "--markdown"], "give one of them"),
    ],
)
def test_wrong_names_and_options_are_refused_in_one_line(project, capsys, arguments, problem):
    assert problem in refused(capsys, *arguments)


def test_one_run_is_not_enough(project, capsys):
    assert main(["compare", "--runs", "r"]) == 2
    assert "--runs" in capsys.readouterr().err


def test_runs_of_two_benchmarks_are_refused(project, capsys):
    file = project / "artifacts/results/same.json"
    rewrite(file, benchmark="other")
    error = refused(capsys, "r", "same")
    assert "r is a run on benchmark 'b', same on 'other'" in error


def test_other_settings_are_refused_and_named(project, capsys):
    evaluate(project, "same", iou=0.6, seed=3)
    error = refused(capsys, "r", "same")
    assert "different settings (iou, seed): run `farther repro`" in error


@pytest.mark.parametrize("split", ["test", "far"])
def test_other_images_are_refused_and_the_split_is_named(project, capsys, split):
    artifacts = project / "artifacts"
    images = artifacts / f"splits/b/{split}/images.parquet"
    table = pl.read_parquet(images)
    count = len(table)
    more = table[:1].with_columns(pl.lit("another").alias("image_id"))
    pl.concat([table, more]).cast(table.schema).write_parquet(images)
    evaluate(project, "same")
    error = refused(capsys, "r", "same")
    counts = f"({count} images and {count + 1} images)"
    assert f"different images of split '{split}' {counts}" in error
    if split == "far":  # the others can still be compared
        assert compared(capsys, "r", "same", "--split", "near", "--all")["metrics"]


def rewrite(file, **changes):
    """Changes fields of sealed content."""
    from farther.tables.documents import write_sealed

    content = json.loads(file.read_text())
    content.pop("digest")
    write_sealed(file, {**content, **changes})


def test_names_that_come_to_one_thing_give_one_row(project, capsys):
    asked = ["--method", "TWO", "--method", "two", "--metric", "r-u", "--metric", "R_U"]
    rows = compared(capsys, "r", "same", *asked, "--split", "far", "--split", "far", "--all")
    (row,) = rows["metrics"]
    assert (row["split"], row["method"], row["metric"]) == ("far", "two", "r_u")


@pytest.mark.parametrize("metric", ["no_detection", "t*", "accuracy"])
def test_a_metric_that_is_not_compared_is_not_called_unknown(metric, project, capsys):
    error = refused(capsys, "r", "same", "--metric", metric)
    assert "is not one of the metrics that are compared here: " in error and "map50" in error


def test_an_unknown_metric_brings_the_nearest_one_that_is_compared(project, capsys):
    assert "Did you mean 'map50'?" in refused(capsys, "r", "same", "--metric", "map5")


def test_a_run_that_is_not_evaluated_brings_the_command_that_does_it(project, capsys):
    (project / "artifacts/results/same.json").unlink()
    error = refused(capsys, "r", "same")
    assert "same was not evaluated yet: run `farther repro evaluate`" in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "--runs", "r", "fewer", "--metric", "r_u", "--split", "far", "--all"],
        ["compare", "--methods", "one", "two", "--run", "r", "--metric", "r_u", "--all"],
        ["explain", "number", "r", "one", "far", "r_u"],
    ],
)
def test_a_value_of_the_long_table_is_the_one_that_is_printed(project, capsys, arguments):
    evaluate(project, "fewer")
    assert main(arguments) == 0
    assert "0.4321" not in capsys.readouterr().out

    file = project / "artifacts/results/r.parquet"
    table = read_long_table(file)
    is_changed = (pl.col("metric") == "r_u") & (pl.col("method") == "one")
    value = pl.when(is_changed).then(0.4321).otherwise("value")
    write_parquet(table.with_columns(value=value), file)
    assert main(arguments) == 0
    assert "0.4321" in capsys.readouterr().out
