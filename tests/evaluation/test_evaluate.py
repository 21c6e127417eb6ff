"""All metrics of a run, from files to files."""

import csv
import itertools
import json
import shutil

import numpy as np
import pytest
from tests.evaluation.evaluated_runs import (
    FIRST,
    NOWHERE,
    SECOND,
    evaluate,
    evaluated,
    write_json,
    write_scores,
    write_split,
)

from farther.errors import DataError
from farther.evaluation.groups import GROUPS
from farther.evaluation.long_table import long_table, read_long_table
from farther.evaluation.results import FromBest, RunDescription, read_description
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.threshold import ThresholdSettings, choose_threshold
from farther.metrics import open_set
from farther.metrics.catalogue import COMPARED, METRICS
from farther.metrics.open_set import known_classes
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.tables import Objects, Regions, Scores


def test_metrics_of_a_case_worked_by_hand(evaluated_run):
    files, report = evaluated_run
    metrics = json.loads((files.metrics / "far" / "msp.json").read_text())
    # Above t* = 0.5: ID 0.9 and 0.7; OOD 0.8 (kept: misclassified) and 0.6 (unknown: found); "o2"
    # has nothing.
    assert metrics == {
        "auroc": 0.75,
        "fpr95": 0.5,
        "nose": 1 / 3,
        "ap_u": 1 / 3,
        "p_u": 1.0,
        "r_u": 1 / 3,
    }
    detector = json.loads((files.metrics / "detector.json").read_text())
    assert detector["threshold"] == 0.5
    assert (detector["map50"], detector["map"]) == (1, 1)
    # Of the images o1, o2, o3 only the first shows a detection.
    silent = {
        name: json.loads((files.metrics / name / "detector.json").read_text())
        for name in ("test", "far")
    }
    assert silent == {"test": {"no_detection": 0}, "far": {"no_detection": pytest.approx(2 / 3)}}
    assert report.classifier_type == "multi-class without background"
    assert report.methods["msp"].id_regions_kept == 1
    assert report.methods["msp"].splits["far"].by_category["bear"].values["fn_missed"] == 1
    assert read_long_table(files.long_table).equals(long_table(report))
    assert read_description(files.description) == RunDescription.of(report)


def test_a_method_that_does_not_apply_is_named_with_its_reason_and_has_no_metrics(evaluated_run):
    files, report = evaluated_run
    assert report.not_applicable == {"vim": "there are no features"}
    assert not (files.metrics / "far" / "vim.json").exists()


def test_a_method_that_is_asked_for_no_longer_leaves_nothing_behind(files):
    evaluate(files)
    evaluate(files, methods=["vim"])
    assert {path.name for path in files.metrics.rglob("*.json")} == {
        "detector.json",
        "methods.json",
    }
    assert json.loads((files.metrics / "methods.json").read_text()) == {}


def test_errors_on_known_objects_are_counted_with_what_correcting_them_adds(files, regions):
    wrong = regions(
        ("i1", FIRST, 0.9, "cat"), ("i2", FIRST, 0.7, "cat"), ("i2", NOWHERE, 0.1, "dog")
    )
    wrong.write(files.regions("test"))
    budget = evaluate(files).error_budget
    # The dog is taken for a cat, behind the true one: AP is 1 and 0. The detection of nothing ranks
    # last.
    assert budget.ap == pytest.approx(0.5)
    found = {name: (kind.count, kind.gain) for name, kind in budget.kinds.items() if kind.count}
    assert found == {"classification": (1, pytest.approx(0.5)), "background": (1, pytest.approx(0))}
    low, high = budget.kinds["classification"].interval
    assert low <= 0.5 <= high


def test_curves_have_a_row_a_point(evaluated_run):
    files, _ = evaluated_run
    with files.plot("roc").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["x"], row["y"]) for row in rows] == [
        ("0.0", "0.0"),
        ("0.0", "0.5"),
        ("0.5", "0.5"),
        ("0.5", "1.0"),
        ("1.0", "1.0"),
    ]
    assert {(row["split"], row["method"]) for row in rows} == {("far", "msp")}
    assert files.plot("pr").read_text() == "split,method,x,y\nfar,msp,0.333333,1.0\n"


def test_the_same_inputs_give_the_same_bytes(files):
    evaluate(files)
    before = {path: path.read_bytes() for path in files.root.rglob("*") if path.is_file()}
    evaluate(files)
    assert {path: path.read_bytes() for path in files.root.rglob("*") if path.is_file()} == before


def test_the_inputs_are_named_by_their_content(files, objects):
    before = evaluate(files).splits["far"].inputs
    objects(("o1", FIRST, "fox")).write(files.objects("far"))
    after = evaluate(files).splits["far"].inputs
    assert before["objects"] != after["objects"]
    assert before["images"] == after["images"]


def test_images_that_the_detector_could_not_read_count_on_no_side(files, regions):
    folder = files.regions("far") / "regions.json"
    info = json.loads(folder.read_text())
    info["failures"] = [{"image_id": "o3", "reason": "truncated"}]
    folder.write_text(json.dumps(info))
    split = evaluate(files).splits["far"]
    assert (split.images, split.failed_images, split.no_detection) == (2, 1, 0.5)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([0, 1, 2], "3 scores, but 4 regions"),
        ([0, 1, 2, 2], "scored twice"),
        ([0, 1, 2, 9], "has no score"),
    ],
)
def test_scores_of_other_regions_are_refused(files, rows, problem):
    regions = Regions.read(files.regions("far"))
    images = np.array([*regions.image_id, *["zz"] * 6], dtype=object)
    numbers = np.array([*regions.region_id, *range(6)])
    Scores(image_id=images[rows], region_id=numbers[rows], score=np.zeros(len(rows))).write(
        files.scores("msp", "far")
    )
    if "no score" in problem:
        files.threshold.write_text('{"threshold": 0.1}')
    with pytest.raises(DataError, match=problem):
        evaluate(files)


def test_regions_of_an_image_outside_the_split_are_refused(files, regions):
    regions(("stranger", FIRST, 0.9)).write(files.regions("far"))
    with pytest.raises(DataError, match="'stranger' is not a readable image of split 'far'"):
        evaluate(files)


def test_a_detector_of_other_classes_is_refused(files, objects):
    objects(("i1", FIRST, "Cat"), ("i2", FIRST, "Dog")).write(files.objects("test"))
    with pytest.raises(DataError, match="names must agree"):
        evaluate(files)


def test_a_threshold_that_is_no_number_is_refused(files):
    files.threshold.write_text('{"threshold": null}')
    with pytest.raises(
        DataError, match=r"r\.json: field 'threshold': Input should be a valid number, found None"
    ):
        evaluate(files)


def test_the_operating_threshold_is_written_with_its_rule_and_inputs(files):
    choose_threshold(files, ThresholdSettings(rule="best_f1"))
    chosen = json.loads(files.threshold.read_text())
    assert chosen["threshold"] == pytest.approx((np.float32(0.9) + np.float32(0.7)) / 2)
    assert chosen["rule"] == "best_f1"
    assert set(chosen["inputs"]) == {"images", "objects", "readable", "regions"}


def test_splits_without_any_detection_or_object_give_nulls(files, regions):
    regions().write(files.regions("far"))
    Objects.empty().write(files.objects("far"))
    write_scores(files, "msp", "far", Regions.empty(), [])
    evaluate(files)
    metrics = json.loads((files.metrics / "far" / "msp.json").read_text())
    assert set(metrics.values()) == {None}


def test_intervals_hold_the_metrics_and_no_method_differs_from_the_best_by_being_it(evaluated_run):
    _, report = evaluated_run
    far = report.methods["msp"].splits["far"]
    for metric in COMPARED:
        value = (far.of_group("ood") | far.of_group("open_set"))[metric]
        low, high = far.interval(METRICS[metric])
        assert 0 <= low <= value <= high <= 1
        assert far.against_best[metric] == FromBest(best="msp", interval=None, p=1)


def test_every_metric_of_a_method_has_an_interval(evaluated_run):
    _, report = evaluated_run
    far = report.methods["msp"].splits["far"]
    every = {}
    for name, metric in METRICS.items():
        if metric.group in GROUPS and metric.key in far.of_group(metric.group):
            every[name] = far.value(metric)
    assert {"auroc", "nose", "images_as_known"} <= set(every)
    with_interval = {name for name, metric in METRICS.items() if far.interval(metric) is not None}
    without = {name for name, metric in METRICS.items() if far.why_no_interval(metric)}
    assert not with_interval & without
    assert with_interval | without <= set(every)
    ranked = {name for name, value in every.items() if METRICS[name].ranked and value is not None}
    assert ranked <= with_interval | without
    for name in with_interval:
        value = every[name]
        low, high = far.interval(METRICS[name])
        assert low < high
        assert low <= value <= high, name
    assert set(far.against_best) == ranked


def test_sides_are_the_detections_on_unknown_objects_on_nothing_and_of_the_right_class(
    files, regions
):
    found = regions(("o1", FIRST, 0.8), ("o1", SECOND, 0.6), ("o2", NOWHERE, 0.9))
    found.write(files.regions("far"))
    write_scores(files, "msp", "far", found, [0.8, 0.6, 0.95])
    far = evaluate(files).methods["msp"].splits["far"]
    # ID: 0.9 and 0.7. All OOD: 3 of 6 pairs are in order, on objects 3 of 4, on nothing 0 of 2.
    assert (
        far.of_group("ood")["auroc"],
        far.of_group("gtu")["auroc"],
        far.of_group("uu")["auroc"],
    ) == (0.5, 0.75, 0)
    assert (
        far.of_group("gtu")["ood_regions"],
        far.of_group("uu")["ood_regions"],
        far.of_group("gtu")["id_regions"],
    ) == (2, 1, 2)
    wrong = regions(
        ("i1", FIRST, 0.9, "cat"), ("i2", FIRST, 0.7, "cat"), ("i2", NOWHERE, 0.1, "dog")
    )
    wrong.write(files.regions("test"))
    far = evaluate(files).methods["msp"].splits["far"]
    # The dog is detected as a cat: 0.9 alone against the three.
    assert (far.of_group("correct_id")["id_regions"], far.of_group("correct_id")["auroc"]) == (
        1,
        pytest.approx(2 / 3),
    )
    chosen = evaluated(
        files, ["msp"], ["far"], EvaluationSettings(replicates=0, separation=("uu",))
    )
    assert {"gtu", "uu", "correct_id"} & set(chosen.methods["msp"].splits["far"].groups) == {"uu"}


def test_open_world_metrics_mix_the_id_images_with_those_of_the_split_at_all_confidences(
    evaluated_run,
):
    _, report = evaluated_run
    far = report.methods["msp"].splits["far"]
    # Below τ = 0.65 are the detections of the second fox and of the bear: two of three objects, one
    # below t*.
    assert far.of_group("open_set")["r_u"] == pytest.approx(1 / 3)
    found = far.groups["open_world"]
    assert found.labels == {"task": "T2"}
    assert found.parts == {"a_ose_by_class": {"cat": 1}}
    assert found.values == {
        "unknown_objects": 3,
        "u_recall": pytest.approx(2 / 3),
        "a_ose": 1,
        # The first fox is less confident than the cat, at whose confidence all cats are found.
        "wi": 0,
        "ap_k_before": 1,
        "ap_k": 1,
    }


def test_parts_of_the_objects_have_intervals_too(files):
    names = {"fox": "canine", "bear": "other"}
    settings = EvaluationSettings(replicates=100, supercategories=names)
    far = evaluated(files, ["msp"], ["far"], settings).methods["msp"].splits["far"]
    for part in ("by_category", "by_size", "by_supercategory"):
        for found in getattr(far, part).values():
            assert set(found.intervals) == set(found.values)
            _has_sound_intervals(found)
            # One image with an object of the group: at most 97.5% if it is not found.
            if found.values["r_u"] == 0 and found.share_images["r_u"] == 1:
                assert found.intervals["r_u"] == pytest.approx((0, 0.975))
    _has_sound_intervals(far.over_iou)


def _has_sound_intervals(found):
    for name, value in found.values.items():
        interval = found.intervals[name]
        assert (interval is None) == bool(found.no_interval.get(name)) or value is None
        if interval is not None:
            low, high = interval
            assert low <= value <= high
            assert low < high


def test_known_objects_in_an_ood_split_are_counted_as_known(files, objects, regions):
    mixed = objects(("o1", FIRST, "cat"), ("o1", SECOND, "fox"))
    write_split(files, "far", mixed, regions(("o1", FIRST, 0.8, "cat"), ("o1", SECOND, 0.6, "cat")))
    write_scores(files, "msp", "far", regions(("o1", FIRST, 0.8), ("o1", SECOND, 0.6)), [0.8, 0.6])
    far = evaluate(files).methods["msp"].splits["far"]
    # The cat is kept, correctly; the fox is flagged and found.
    unknown = far.of_group("open_set")
    assert (unknown["unknown_objects"], unknown["aose"], unknown["r_u"]) == (1, 0, 1)
    # The cat is not out of distribution.
    assert (far.of_group("ood")["ood_regions"], far.of_group("ood_per_image")["ood_images"]) == (
        1,
        1,
    )
    assert far.of_group("known") == {"ap_k": 1, "p_k": 1, "r_k": 1, "map": 1, "wi": 0}
    # One image: all replicates are the split itself.
    known = far.groups["known"]
    assert set(known.intervals.values()) == {None}
    assert set(known.no_interval) == set(known.values)
    low, high = far.interval(METRICS["r_u"])
    assert (low, high) == pytest.approx((0.025, 1))
    assert far.why_no_interval(METRICS["auroc"]) == "there is a single image to resample"
    assert "known_wi" in far.against_best
    for name, difference in far.against_best.items():
        assert difference.p is None, name
        assert difference.interval is None
        assert difference.why_none == "there is a single image to resample"


def test_known_classes_are_measured_by_the_paper_whatever_the_protocol(files, objects, regions):
    # The second cat lies on a fox too, which the published code counts as misclassified.
    mixed = objects(("o1", FIRST, "cat"), ("o2", FIRST, "cat"), ("o2", [0, 0, 100, 90], "fox"))
    found = regions(("o1", FIRST, 0.8, "cat"), ("o2", FIRST, 0.9, "cat"))
    write_split(files, "far", mixed, found)
    write_scores(files, "msp", "far", found, [0.8, 0.9])
    paper, published = (
        evaluated(
            files, ["msp"], ["far"], EvaluationSettings(replicates=0, protocol=protocol)
        ).methods["msp"]
        for protocol in ("paper", "published-code")
    )
    known, of_unknown = (
        [each.splits["far"].of_group(group) for each in (paper, published)]
        for group in ("known", "open_set")
    )
    assert known[0] == known[1] and known[0]["wi"] == 0
    assert [one["aose"] for one in of_unknown] == [0, 1]


@pytest.mark.parametrize(
    ("tau", "kept", "found"),
    [
        (0.7, 1, 1),
        (0.9, 0.5, 2),
        pytest.param(0.6, 1, 0, marks=pytest.mark.slow),
        pytest.param(0.8, 0.5, 1, marks=pytest.mark.slow),
        pytest.param(0.95, 0, 2, marks=pytest.mark.slow),
    ],
)
def test_a_detection_whose_score_is_tau_is_kept(files, tau, kept, found):
    write_json(files.fitted("msp") / "method.json", {"name": "msp", "fixed_threshold": tau})
    result = evaluate(files).methods["msp"]
    # ID scores 0.9 and 0.7, those on unknown objects 0.8 and 0.6.
    assert result.id_regions_kept == kept
    assert result.splits["far"].of_group("open_set")["tp_u"] == found


def test_groups_hold_what_the_library_measures_on_the_same_tables(files, world):
    (known, found), (wild, wild_found) = world(0, images=10), world(1, images=10)
    category = np.where(np.arange(len(wild)) % 3 == 0, wild.category, "fox").astype(object)
    wild = wild.with_columns(category=category)
    scores = {}
    for split, objects, regions in (("test", known, found), ("far", wild, wild_found)):
        write_split(files, split, objects, regions, extra="unseen")
        scores[split] = np.random.default_rng(len(split)).normal(size=len(regions)).round(1)
        write_scores(files, "msp", split, regions, scores[split])
    far = evaluate(files, ["msp"]).methods["msp"].splits["far"]
    above, classes = wild_found.score >= 0.5, tuple(found.classes)
    regions, score = wild_found[above], scores["far"][above]
    rules = MatchingRules(known_classes=classes)
    outcome = OpenSetSplit.of(wild, regions, rules).match(score < 0.65)
    expected = open_set.metrics(outcome, -score)
    assert far.of_group("open_set") == pytest.approx(expected)
    assert far.ap_u_by_confidence == pytest.approx(open_set.metrics(outcome)["ap_u"])
    assert far.of_group("known") == pytest.approx(
        known_classes.metrics(outcome, regions, unknown_score=-score)
    )
    # Of the images of a split, those without a detection at or above t*.
    names = {*wild.image_id, "unseen"}
    detector = json.loads((files.metrics / "far" / "detector.json").read_text())
    assert detector["no_detection"] == pytest.approx(1 - len(set(regions.image_id)) / len(names))


def test_metrics_over_ious_and_by_supercategory(files):
    settings = EvaluationSettings(replicates=0, supercategories={"fox": "canine", "bear": "other"})
    far = evaluated(files, ["msp"], ["far"], settings).methods["msp"].splits["far"]
    assert {name: group.values["r_u"] for name, group in far.by_supercategory.items()} == {
        "canine": 0.5,
        "other": 0,
    }
    # What is found lies exactly on its object.
    assert far.over_iou.values["r_u"] == pytest.approx(1 / 3)
    assert "known" not in far.groups


def test_without_replicates_there_are_no_intervals(files):
    settings = EvaluationSettings(replicates=0, confidences=(), kept=())
    report = evaluated(files, ["msp"], ["far"], settings)
    assert report.methods["msp"].splits["far"].groups["ood"].intervals == {}
    assert report.closed_set.intervals == {}
    assert files.plot("tau").read_text().count("\n") == 1
    assert files.plot("confidence").read_text().count("\n") == 1


def test_metrics_over_both_thresholds_are_plotted(evaluated_run):
    files, _ = evaluated_run
    with files.plot("tau").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["tau"] for row in rows] == ["0.9"] * 1 + ["0.7"] * 10
    # From 0.7 on, only 0.6 is unknown; with 0.9, 0.8 is too.
    assert [row["r_u"] for row in rows][:2] == ["0.666667", "0.333333"]
    with files.plot("confidence").open() as file:
        rows = {row["t"]: row for row in csv.DictReader(file)}
    assert list(rows) == [f"0.{tenth}" for tenth in range(1, 10)]
    assert rows["0.5"]["auroc"] == "0.75"
    # Of the known objects, the dog's confidence is 0.7.
    assert [rows[t]["map50"] for t in ("0.6", "0.8")] == ["1.0", "0.5"]
    assert rows["0.1"]["no_detection"] == "0.333333"
    assert rows["0.9"]["no_detection"] == "1.0"


def test_curves_over_confidence_are_ordered_by_split_threshold_and_method_as_asked_for(files):
    splits, names = ["far", "again"], ["msp", "b", "a"]
    for kind in ("images", "objects", "regions"):
        path = getattr(files, kind)
        path("again").parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if kind == "regions" else shutil.copyfile)(path("far"), path("again"))
    shutil.copyfile(files.scores("msp", "far"), files.scores("msp", "again"))
    for name in names[1:]:
        shutil.copytree(files.fitted("msp"), files.fitted(name))
        shutil.copytree(files.scores("msp", "far").parent, files.scores(name, "far").parent)
    evaluated(files, names, splits, EvaluationSettings(replicates=0, kept=()))
    with files.plot("confidence").open() as file:
        rows = [(row["split"], row["t"], row["method"]) for row in csv.DictReader(file)]
    assert rows == list(itertools.product(splits, [f"0.{tenth}" for tenth in range(1, 10)], names))


def test_the_per_image_score_is_that_of_the_least_familiar_region(evaluated_run):
    _, report = evaluated_run
    far = report.methods["msp"].splits["far"]
    # i1 0.9, i2 0.7; o1 the smaller of 0.8 and 0.6.
    assert far.of_group("ood_per_image")["auroc"] == 1
    assert (
        far.of_group("ood_per_image")["id_images"],
        far.of_group("ood_per_image")["ood_images"],
    ) == (2, 1)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_benchmark_without_ood_splits_has_the_detectors_metrics(files):
    report = evaluated(files, ["msp"], [], EvaluationSettings(replicates=100))
    assert report.closed_set.values["ap"] > 0
    assert report.methods["msp"].splits == {}
    assert report.gains.methods == {"msp": {}}
