"""Stored results: only what changed is computed again, and the rest equals a new evaluation."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.support.cases import slow_but
from tests.support.fitting import list_methods, write_fitted

from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import Roles, RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.kept_with_proposals import update_with_proposals
from farther.evaluation.long_table import LongTable, read_long_table
from farther.evaluation.results import read_description
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.threshold import stored_tau
from farther.incremental.keyed import EMPTY
from farther.metrics.user_defined import METRICS, UserDefinedMetric
from farther.scoring.inputs import TauSettings
from farther.tables import (
    ImageClasses,
    Images,
    Objects,
    RegionOutcomes,
    Regions,
    Scores,
    SortedClasses,
)
from farther.tables.documents import read_json
from farther.tables.unknown_proposals import UnknownProposalTable

#: `msp` has a threshold of its own here; that of `knn` is taken from its scores.
METHODS = {"msp": {"fixed_threshold": 0.5}, "knn": {}}

EVERYTHING = ["the detector", "msp", "knn"]

#: Settings of a short evaluation.
FEW = {"replicates": 0, "confidences": (), "kept": ()}


@pytest.fixture
def files(unevaluated, tmp_path):
    """A run with two methods on one OOD split."""
    return copied(unevaluated, tmp_path)


@pytest.fixture
def kept(evaluated_once, tmp_path):
    """The same run, evaluated with `FEW`."""
    return copied(evaluated_once, tmp_path)


@pytest.fixture(scope="module")
def evaluated_once(unevaluated, tmp_path_factory):
    """The run whose copies are `kept`."""
    files = copied(unevaluated, tmp_path_factory.mktemp("evaluated"))
    assert evaluated(files, **FEW) == EVERYTHING
    return files


def copied(files, folder):
    """A copy of a run in another folder."""
    root = shutil.copytree(files.root, folder / "artifacts")
    return RunFiles("r", "voc", root)


@pytest.fixture(scope="module")
def unevaluated(tmp_path_factory, world):
    """The run whose copies are `files`."""
    files = RunFiles("r", "voc", tmp_path_factory.mktemp("run") / "artifacts")
    for seed, split in enumerate(("val", "test", "far")):
        objects, regions = world(seed, images=6)
        if split == "far":
            objects = objects.with_columns(category=["fox"] * len(objects))
        names = sorted({*objects.image_id, *regions.image_id})
        size = [900] * len(names)
        images = Images(
            image_id=names,
            dataset=["d"] * len(names),
            file=names,
            width=size,
            height=size,
            digest=names,
        )
        images.write(files.images(split))
        objects.write(files.objects(split))
        regions.write(files.regions(split))
        for number, method in enumerate(METHODS):
            scores = np.random.default_rng(number).random(len(regions))
            table = Scores(image_id=regions.image_id, region_id=regions.region_id, score=scores)
            table.write(files.scores(method, split))
    write_fitted(files.all_fitted, METHODS)
    write(files.threshold, {"threshold": 0.4, "rule": 0.4})
    write(files.splits / "roles.json", {"test": ["far"]})
    return files


@pytest.fixture(autouse=True)
def user_defined(registries):
    """The metrics `mean_logit` and `count`, by name."""

    class MeanLogit(UserDefinedMetric):
        """Mean of all logits of the OOD regions."""

        def compute(self, case):
            return float(case.regions.logits.mean())

    class Count(UserDefinedMetric):
        """Number of OOD regions."""

        def compute(self, case):
            return len(case.regions)

    kinds = {"mean_logit": MeanLogit, "count": Count}
    for name, kind in kinds.items():
        METRICS._classes.pop(name, None)
        METRICS.register(name)(kind)
    return kinds


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def evaluated(files, code="", tau=None, metrics_code=None, **settings):
    """Names of what was computed."""
    inputs = RunInputs(files, files.roles, EvaluationSettings(**{"replicates": 100, **settings}))
    digests = EvaluationCode(code, metrics_code or {})
    _, computed = evaluate_run(inputs, tau or TauSettings(), digests)
    return computed


def content(folder: Path):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def results(files):
    """Contents of all files that an evaluation writes, by path, without the records of keys."""
    by_path = {}
    for folder in (files.results, files.outcomes, files.metrics, files.root / "plots"):
        for path, data in content(folder).items():
            by_path[folder.parent.name, path] = data
    for file in (files.long_table, files.description):
        by_path["results", file.name] = file.read_bytes()
    return by_path


def refresh(files, **settings):
    """Evaluates again without any kept result; returns all results."""
    for folder in (files.results, files.outcomes, files.metrics, files.root / "plots"):
        shutil.rmtree(folder)
    evaluated(files, **settings)
    return results(files)


# ----------------------------------------------------------------------
# what is computed


def test_a_second_evaluation_computes_nothing_and_writes_the_same_bytes(files):
    assert evaluated(files) == EVERYTHING
    before = content(files.root)
    assert evaluated(files) == []
    assert content(files.root) == before


def test_only_the_method_that_was_fitted_or_scored_again_is_evaluated(files):
    evaluated(files)
    write(files.fitted("knn") / "method.json", {"name": "knn", "params": {"k": 7}})
    assert evaluated(files) == ["knn"]
    scores = Scores.read(files.scores("msp", "far"))
    scores.with_columns(score=scores.score / 2).write(files.scores("msp", "far"))
    assert evaluated(files) == ["msp"]
    # Comparisons with kept replicates equal those of a whole evaluation.
    assert results(files) == refresh(files)


def test_new_scores_of_the_images_that_tau_is_taken_from_concern_their_method(kept):
    scores = Scores.read(kept.scores("knn", "val"))
    scores.with_columns(score=scores.score / 2).write(kept.scores("knn", "val"))
    assert evaluated(kept, **FEW) == ["knn"]


@pytest.mark.parametrize(
    "change",
    slow_but(
        ("iou", "objects"),
        ["code", "iou", "t*", "objects", "another split", "roles", "image table"],
    ),
)
def test_code_settings_t_and_every_file_of_the_splits_concern_all_results(kept, objects, change):
    settings = dict(FEW)
    if change == "code":
        settings["code"] = "changed"
    elif change == "iou":
        settings["iou"] = 0.6
    elif change == "t*":
        write(kept.threshold, {"threshold": 0.3, "rule": 0.3})
    elif change == "objects":
        objects(("000", [0, 0, 50, 50], "fox")).write(kept.objects("far"))
    elif change == "another split":
        shutil.copytree(kept.splits / "val", kept.splits / "train")
    elif change == "roles":
        write(kept.splits / "roles.json", {"test": ["far"], "distance": {"far": "near"}})
    else:
        images = Images.read(kept.images("test"))
        images.with_columns(width=images.width + 1).write(kept.images("test"))
    assert evaluated(kept, **settings) == EVERYTHING
    assert results(kept) == refresh(kept, **settings)


def test_the_order_of_settings_is_no_change(files):
    assert evaluated(files, **FEW, supercategories={"fox": "animal", "elk": "animal"}) == EVERYTHING
    assert evaluated(files, **FEW, supercategories={"elk": "animal", "fox": "animal"}) == []


def test_a_method_that_is_no_longer_listed_leaves_nothing(files):
    evaluated(files)
    list_methods(files.all_fitted, ["msp"])
    assert evaluated(files) == []
    for folder in (files.results, files.outcomes, files.metrics):
        assert not [path for path in folder.rglob("*") if "knn" in path.name]
    assert set(read_description(files.description).fitted) == {"msp"}
    assert LongTable(read_long_table(files.long_table)).methods == ["msp"]


def test_a_method_that_no_longer_applies_leaves_its_reason_and_no_results(kept):
    write_fitted(kept.all_fitted, {**METHODS, "knn": {"not_applicable": "no features"}})
    assert evaluated(kept, **FEW) == []
    assert not (kept.results / "methods/knn").exists()
    assert not (kept.outcomes / "knn").exists()
    description = read_description(kept.description)
    assert description.not_applicable == {"knn": "no features"}
    assert set(description.fitted) == {"msp"}


# ----------------------------------------------------------------------
# classes


@pytest.fixture
def chosen_by_rules(files):
    """The run of `files`, whose far images were chosen by the OODness of their classes."""
    images = Images.read(files.images("far")).image_id
    oodness = [2, 3] * (len(images) // 2)
    table = ImageClasses(image_id=images, category=["fox"] * len(images), oodness=oodness)
    table.write(files.images("far").parent / "classes.parquet")
    classes = SortedClasses(
        dataset=["d"],
        category=["fox"],
        oodness=[2],
        rule=[""],
        id_class=["dog"],
        similarity=[0.5],
        nearest=["dog"],
    )
    classes.write(files.splits / "classes.parquet")
    return files


def test_results_by_class_of_kept_methods_are_those_of_a_whole_evaluation(chosen_by_rules):
    evaluated(chosen_by_rules, **FEW)
    table = LongTable(read_long_table(chosen_by_rules.long_table))
    assert all(table.by_part("classes", "oodness", method=method) for method in METHODS)
    assert table.by_part("classes", "oodness", method="knn")["2"]["objects"].value > 0
    assert read_description(chosen_by_rules.description).class_graph.edges
    before = content(chosen_by_rules.root)
    assert evaluated(chosen_by_rules, **FEW) == []
    assert content(chosen_by_rules.root) == before

    for method in ("knn", "msp"):  # the graph is that of the outcomes of the first, msp
        scores = Scores.read(chosen_by_rules.scores(method, "far"))
        halved = scores.with_columns(score=scores.score / 2)
        halved.write(chosen_by_rules.scores(method, "far"))
        assert evaluated(chosen_by_rules, **FEW) == [method]
        assert results(chosen_by_rules) == refresh(chosen_by_rules, **FEW)


@pytest.mark.parametrize(
    "change", slow_but(("image classes",), ["image classes", "sorted classes", "no classes"])
)
def test_other_classes_of_images_concern_all_results(chosen_by_rules, change):
    files = chosen_by_rules
    evaluated(files, **FEW)
    image_classes = files.images("far").parent / "classes.parquet"
    if change == "image classes":
        table = ImageClasses.read(image_classes)
        table.with_columns(oodness=table.oodness - 1).write(image_classes)
    elif change == "sorted classes":
        table = SortedClasses.read(files.splits / "classes.parquet")
        table.with_columns(oodness=[1]).write(files.splits / "classes.parquet")
    else:
        image_classes.unlink()
    assert evaluated(files, **FEW) == EVERYTHING
    class_graph = read_description(files.description).class_graph
    assert (class_graph is None) == (change == "no classes")
    assert results(files) == refresh(files, **FEW)


@pytest.mark.parametrize("edit", slow_but(("deleted",), ["deleted", "edited"]))
def test_a_graph_of_classes_that_was_lost_is_made_again(chosen_by_rules, edit):
    evaluated(chosen_by_rules, **FEW)
    before = content(chosen_by_rules.root)
    file = chosen_by_rules.results / "class_graph.json"
    if edit == "deleted":
        file.unlink()
    else:
        write(file, {"edges": [], "similarity": {}})
    assert evaluated(chosen_by_rules, **FEW) == []
    assert content(chosen_by_rules.root) == before


# ----------------------------------------------------------------------
# names and logits


def test_other_names_of_classes_in_the_header_change_every_result(kept):
    """With the same numbers in all columns: `cat` and `dog` change places."""
    before = read_json(kept.metrics / "detector.json")["map50"]
    for split in ("val", "test", "far"):
        file = kept.regions(split) / "regions.json"
        header = json.loads(file.read_text())
        write(file, {**header, "classes": header["classes"][::-1]})
    assert evaluated(kept, **FEW) == EVERYTHING
    assert read_json(kept.metrics / "detector.json")["map50"] < before
    assert results(kept) == refresh(kept, **FEW)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"protocol": "published-code"}, marks=pytest.mark.slow),
        {"user_defined": {"mean_logit": {}}},
        {},
    ],
    ids=["code", "metric", "-"],
)
def test_other_logits_evaluate_all_again_where_metrics_read_them_or_not(files, settings):
    evaluated(files, **FEW, **settings)
    for split in ("test", "far"):
        regions = Regions.read(files.regions(split))
        moved = regions.logits[:, ::-1] + 0.25
        shutil.rmtree(files.regions(split))
        regions.with_columns(logits=moved).write(files.regions(split))
    assert evaluated(files, **FEW, **settings) == EVERYTHING
    assert results(files) == refresh(files, **FEW, **settings)


def test_a_user_defined_metric_reads_the_logits_that_are_stored(files):
    wanted = {"user_defined": {"mean_logit": {}}}
    evaluated(files, **FEW, **wanted)
    before = read_json(files.metrics / "far/knn.json")["mean_logit"]
    regions = Regions.read(files.regions("far"))
    shutil.rmtree(files.regions("far"))
    regions.with_columns(logits=regions.logits + 1).write(files.regions("far"))
    evaluated(files, **FEW, **wanted)
    assert read_json(files.metrics / "far/knn.json")["mean_logit"] == pytest.approx(before + 1)


# ------------------------------------------------------------------------------------- what was
# deleted or replaced


@pytest.mark.parametrize(
    "part", ["evaluation/r/methods/knn", "outcomes/r/knn", "outcomes/r/knn/far.parquet"]
)
def test_results_that_were_deleted_are_made_again(kept, part):
    before = content(kept.root)
    path = kept.root / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert evaluated(kept, **FEW) == ["knn"]
    assert content(kept.root) == before


@pytest.mark.parametrize(
    ("file", "other", "computed"),
    [
        ("outcomes/r/knn/far.parquet", "outcomes/r/msp/far.parquet", "knn"),
        ("outcomes/r/knn/far.objects.parquet", "outcomes/r/msp/far.objects.parquet", "knn"),
        ("evaluation/r/methods/knn/roc.parquet", "evaluation/r/methods/msp/roc.parquet", "knn"),
        ("evaluation/r/methods/knn/results.json", "evaluation/r/methods/msp/results.json", "knn"),
        ("evaluation/r/detector.json", "results/r.json", "the detector"),
    ],
)
def test_a_result_in_the_place_of_another_valid_one_is_made_again(kept, file, other, computed):
    before = content(kept.root)
    assert before[Path(file)] != before[Path(other)]
    shutil.copy(kept.root / other, kept.root / file)
    assert evaluated(kept, **FEW) == [computed]
    assert content(kept.root) == before


def test_outcomes_that_were_edited_and_are_still_valid_are_made_again(kept):
    file = kept.region_outcomes("knn", "far")
    before = file.read_bytes()
    outcomes = RegionOutcomes.read(file)
    outcomes[::-1].write(file)
    assert evaluated(kept, **FEW) == ["knn"]
    assert file.read_bytes() == before


# ----------------------------------------------------------------------
# τ


def test_the_fraction_to_keep_changes_tau_and_evaluates_methods_but_not_the_detector(kept):
    before = stored_tau(kept.tau("knn"))
    tau = TauSettings(keep=0.5)
    assert evaluated(kept, tau=tau, **FEW) == ["msp", "knn"]
    after = stored_tau(kept.tau("knn"))
    assert after.threshold > before.threshold
    assert (before.keep, after.keep) == (0.95, 0.5)
    assert results(kept) == refresh(kept, tau=tau, **FEW)


def test_tau_keeps_its_fraction_of_the_validation_scores_at_or_above_t(files):
    evaluated(files, tau=TauSettings(keep=0.8), **FEW)
    regions = Regions.read(files.regions("val"))
    scores = np.sort(Scores.read(files.scores("knn", "val")).score[regions.score >= 0.4])
    tau = stored_tau(files.tau("knn"))
    assert (tau.rule, tau.keep, tau.regions) == ("percentile", 0.8, len(scores))
    assert 0 < len(scores) < len(regions)
    assert np.mean(scores >= tau.threshold) == pytest.approx(0.8, abs=1 / len(scores))
    table = LongTable(read_long_table(files.long_table))
    assert table.values("threshold", method="knn")["tau"].value == tau.threshold


def test_a_method_with_a_threshold_of_its_own_keeps_it_whatever_the_fraction(files):
    evaluated(files, tau=TauSettings(keep=0.5), **FEW)
    tau = stored_tau(files.tau("msp"))
    assert tau.model_dump() == {
        "threshold": 0.5,
        "rule": "fixed",
        "keep": None,
        "regions": 0,
        "replicates": [],
    }


def test_tau_is_of_the_detections_of_known_classes(files):
    """Detections that the detector itself labels as unknown have scores that no method gave."""
    regions = Regions.read(files.regions("val"))
    for split in ("val", "test", "far"):
        file = files.regions(split) / "regions.json"
        header = json.loads(file.read_text())
        write(file, {**header, "unknown_columns": [1]})
    evaluated(files, **FEW)
    tau = stored_tau(files.tau("knn"))
    assert tau.regions == int(((regions.score >= 0.4) & (regions.label == 0)).sum())


# ----------------------------------------------------------------------
# user-defined metrics


def test_changed_code_of_a_user_defined_metric_computes_that_metric_alone(files, user_defined):
    calls = []

    def noted(name):
        def compute(metric, case):
            calls.append(name)
            return 0.5

        return compute

    for name, kind in user_defined.items():
        kind.compute = noted(name)
    wanted = {"user_defined": {"mean_logit": {}, "count": {}}}
    evaluated(files, **FEW, **wanted, metrics_code={"mean_logit": "1", "count": "1"})
    assert sorted(calls) == ["count", "count", "mean_logit", "mean_logit"]  # of two methods
    calls.clear()
    before = results(files)
    assert evaluated(files, **FEW, **wanted, metrics_code={"mean_logit": "1", "count": "2"}) == [
        "msp",
        "knn",
    ]
    assert calls == ["count", "count"]
    assert results(files) == before


# ----------------------------------------------------------------------
# with proposals


@pytest.fixture
def with_proposals(kept):
    """The same run, evaluated, with a source `rpn`, of whose proposals one finds a missed fox."""
    write(kept.recovered, {})
    for split in ("test", "far"):
        objects = Objects.read(kept.objects(split))
        table = UnknownProposalTable(
            image_id=objects.image_id[:1],
            box=objects.box[:1],
            objectness=[0.9],
            object_id=objects.object_id[:1],
        )
        table.write(kept.called("rpn", split))
    return kept


def measured(files, code="1", **changes):
    """Names of the methods that were measured with proposals."""
    settings = EvaluationSettings(**{**FEW, **changes})
    return update_with_proposals(RunInputs(files, Roles(["far"]), settings), code)


def test_methods_are_measured_with_proposals_once(with_proposals):
    assert measured(with_proposals) == ["msp", "knn"]
    assert sorted(content(with_proposals.all_with_proposals)) == [
        Path("knn.json"),
        Path("msp.json"),
    ]
    assert measured(with_proposals) == []
    assert measured(with_proposals, iou=0.6) == ["msp", "knn"]
    assert measured(with_proposals, code="2", iou=0.6) == ["msp", "knn"]


def test_other_proposals_change_only_what_methods_and_proposals_give_together(with_proposals):
    measured(with_proposals)
    before = content(with_proposals.results)
    table = UnknownProposalTable.read(with_proposals.called("rpn", "far"))
    table[:0].write(with_proposals.called("rpn", "far"))
    assert evaluated(with_proposals, **FEW) == []
    assert measured(with_proposals) == ["msp", "knn"]
    assert content(with_proposals.results) == before


def test_a_method_that_was_scored_again_is_measured_with_proposals_again(with_proposals):
    measured(with_proposals)
    scores = Scores.read(with_proposals.scores("knn", "far"))
    scores.with_columns(score=scores.score / 2).write(with_proposals.scores("knn", "far"))
    assert evaluated(with_proposals, **FEW) == ["knn"]
    assert measured(with_proposals) == ["knn"]


def test_without_proposals_nothing_of_them_is_left(with_proposals):
    measured(with_proposals)
    shutil.rmtree(with_proposals.recovered.parent)
    assert measured(with_proposals) == []
    assert sorted(content(with_proposals.all_with_proposals)) == [Path(EMPTY)]
