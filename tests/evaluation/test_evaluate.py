"""All metrics of a run, from files to files."""

import csv
import itertools
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.support.fitting import list_methods, write_fitted

from farther.errors import DataError, ParameterError
from farther.evaluation import evaluate as evaluation
from farther.evaluation import files as run
from farther.evaluation import methods, paired
from farther.evaluation.inputs import RunInputs
from farther.evaluation.results import FittedMethod, FromBest
from farther.evaluation.settings import EvaluationSettings, ProposalSettings, SelfAwarenessSettings
from farther.evaluation.threshold import ThresholdSettings, choose_threshold
from farther.evaluation.wilderness import WildImages
from farther.metrics import open_set, weighting
from farther.metrics.catalogue import COMPARED, METRICS
from farther.metrics.closed_set import ClosedSet
from farther.metrics.errors import error_diagnosis
from farther.metrics.open_set import known_classes
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.statistics import bootstrap
from farther.registry import build
from farther.scoring.inputs import TauSettings
from farther.tables import Header, Images, Objects, Regions, Scores

FIRST, SECOND, NOWHERE = [0, 0, 100, 100], [200, 0, 300, 100], [700, 700, 800, 800]


@pytest.fixture
def files(tmp_path, objects, regions):
    """A run with an ID split and an OOD split, where method `msp` applies and `vim` does not."""
    files = run.RunFiles("r", "voc", tmp_path)
    id_objects = objects(("i1", FIRST, "cat"), ("i2", FIRST, "dog"))
    id_regions = regions(
        ("i1", FIRST, 0.9, "cat"), ("i2", FIRST, 0.7, "dog"), ("i2", NOWHERE, 0.1, "dog")
    )
    ood_objects = objects(("o1", FIRST, "fox"), ("o1", SECOND, "fox"), ("o2", FIRST, "bear"))
    ood_regions = regions(
        ("o1", FIRST, 0.8), ("o1", SECOND, 0.6), ("o2", FIRST, 0.2), ("o2", NOWHERE, 0.3)
    )
    for split, table, found in (("val", id_objects, id_regions), ("test", id_objects, id_regions)):
        write_split(files, split, table, found)
    write_split(files, "far", ood_objects, ood_regions, extra="o3")
    write_json(files.threshold, {"threshold": 0.5, "rule": 0.5})
    write_fitted(
        files.all_fitted,
        {"msp": {"fixed_threshold": 0.65}, "vim": {"not_applicable": "there are no features"}},
    )
    write_scores(files, "msp", "test", id_regions, [0.9, 0.7, 0.1])
    # Shuffled rows: the join is by image and region, not by place.
    write_scores(files, "msp", "far", ood_regions[[3, 1, 0, 2]], [0.3, 0.6, 0.8, 0.2])
    return files


def write_split(files, split, objects, regions, extra=None):
    names = sorted({*objects.image_id, *([extra] if extra else [])})
    count = len(names)
    Images(
        image_id=names,
        dataset=["d"] * count,
        file=names,
        width=np.full(count, 900),
        height=np.full(count, 900),
        digest=["0"] * count,
    ).write(files.images(split))
    objects.write(files.objects(split))
    regions.write(files.regions(split))


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_scores(files, method, split, regions, scores):
    table = Scores(image_id=regions.image_id, region_id=regions.region_id, score=scores)
    table.write(files.scores(method, split))


def evaluated(files, methods, splits, settings):
    list_methods(files.all_fitted, methods)
    return evaluated_inputs(RunInputs(files, run.Roles(splits), settings))


def evaluated_inputs(inputs):
    results, _ = evaluation.evaluate_run(inputs, TauSettings(), evaluation.EvaluationCode(""))
    return results


def evaluate(files, methods=("msp", "vim")):
    return evaluated(files, methods, ["far"], EvaluationSettings(replicates=20))


def test_metrics_of_a_case_worked_by_hand(files):
    report = evaluate(files)
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
    stored = json.loads(files.evaluation.read_text())
    assert stored.pop("digest")
    assert stored == report.model_dump(mode="json")


def test_a_method_that_does_not_apply_is_named_with_its_reason_and_has_no_metrics(files):
    report = evaluate(files)
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


def test_curves_have_a_row_a_point(files):
    evaluate(files)
    with (files.plots / "roc.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["x"], row["y"]) for row in rows] == [
        ("0.0", "0.0"),
        ("0.0", "0.5"),
        ("0.5", "0.5"),
        ("0.5", "1.0"),
        ("1.0", "1.0"),
    ]
    assert {(row["split"], row["method"]) for row in rows} == {("far", "msp")}
    assert (files.plots / "pr.csv").read_text() == "split,method,x,y\nfar,msp,0.333333,1.0\n"


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


@pytest.mark.parametrize(
    ("field", "wrong", "right"),
    [
        ("iou", [0, 1.1], [0.01, 1]),
        ("replicates", [-1], [0]),
        ("drawn_images", [0], [1]),
        ("memory", [0], [0.5]),
    ],
)
def test_settings_have_a_range(field, wrong, right):
    for value in wrong:
        with pytest.raises(ParameterError, match=f"parameter '{field}': Input should be"):
            build(EvaluationSettings, "section 'evaluate'", {field: value})
    for value in right:
        assert (
            getattr(build(EvaluationSettings, "section 'evaluate'", {field: value}), field) == value
        )


@pytest.mark.parametrize(
    ("settings", "field", "wrong", "right"),
    [
        (SelfAwarenessSettings, "iou", [0, 1], [0.01, 0.99]),
        (ProposalSettings, "alarms", [0], [0.01]),
        (ThresholdSettings, "tolerance", [-0.1, 1.1], [0.1, 1]),
        (ProposalSettings, "rates", [(), (-0.1,), (np.inf,)], [(0.0, 2.0)]),
    ],
)
def test_settings_of_sections_have_a_range(settings, field, wrong, right):
    for value in wrong:
        with pytest.raises(ParameterError, match=f"parameter '{field}.*': .* should"):
            build(settings, "section", {field: value})
    for value in right:
        assert getattr(build(settings, "section", {field: value}), field) == value


@pytest.mark.parametrize(
    ("proposals", "message"),
    [
        (
            {"learn_from": None},
            "`learn_from` was removed, .*: delete `learn_from` from `evaluate.prop",
        ),
        ({"methods": ["knn"], "alarms": 0.1}, "`methods` was removed, .*: delete `methods` from"),
        (
            {"methods": [], "learn_from": "pasted_far"},
            "`methods` and `learn_from` were removed, .*: delete `methods` and `learn_from` from",
        ),
    ],
)
def test_keys_of_removed_rules_of_proposals_are_to_be_deleted(proposals, message):
    with pytest.raises(ParameterError, match=f"^params.yaml: evaluate: .* {message}"):
        build(EvaluationSettings, "params.yaml: evaluate", {"proposals": proposals})


def test_200_replicates_of_all_images_are_drawn_by_default():
    drawn = EvaluationSettings().draws(["a", "b", "c"]).weights
    assert drawn.shape == (200, 3)
    assert EvaluationSettings(replicates=0).draws(["a"]) is None


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


def test_intervals_hold_the_metrics_and_no_method_differs_from_the_best_by_being_it(files):
    far = evaluate(files).methods["msp"].splits["far"]
    for metric in COMPARED:
        value = (far.of_group("ood") | far.of_group("open_set"))[metric]
        low, high = far.interval(METRICS[metric])
        assert 0 <= low <= value <= high <= 1
        assert far.against_best[metric] == FromBest(best="msp", interval=(0, 0), p=1)


def test_every_metric_of_a_method_has_an_interval(files):
    far = evaluate(files).methods["msp"].splits["far"]
    counts = ("id_regions", "ood_regions")
    every = {**far.of_group("ood"), **far.of_group("open_set")}
    every |= {f"per_image_{name}": v for name, v in far.of_group("ood_per_image").items()}
    every |= {
        f"{side}_{name}": v
        for side in ("gtu", "correct_id")
        for name, v in far.of_group(side).items()
    }
    every |= {
        f"open_world_{name}": far.of_group("open_world")[name] for name in ("u_recall", "a_ose")
    }
    every |= {"images_as_known": far.of_group("images")["as_known"]}
    every = {
        name: value for name, value in every.items() if not name.endswith(("_images", *counts))
    }
    assert set(every) == {
        name for name, metric in METRICS.items() if far.interval(metric) is not None
    }
    for name, value in every.items():
        low, high = far.interval(METRICS[name])
        assert low <= value <= high, name
    assert set(far.against_best) == {
        name
        for name, metric in METRICS.items()
        if metric.ranked
        and metric.group in ("ood", "ood_per_image", "open_set", "gtu", "correct_id", "open_world")
    }


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


def test_open_world_metrics_mix_the_id_images_with_those_of_the_split_at_all_confidences(files):
    far = evaluate(files).methods["msp"].splits["far"]
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
    settings = EvaluationSettings(replicates=50, supercategories=names)
    far = evaluated(files, ["msp"], ["far"], settings).methods["msp"].splits["far"]
    for part in ("by_category", "by_size", "by_supercategory"):
        for group, found in getattr(far, part).items():
            assert set(found.intervals) == set(found.values)
            for name, value in found.values.items():
                low, high = found.intervals[name]
                assert low <= value <= high, (part, group, name)
    for name, value in far.over_iou.values.items():
        low, high = far.over_iou.intervals[name]
        assert low <= value <= high


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
    assert far.groups["known"].intervals == {
        name: (value, value) for name, value in far.of_group("known").items()
    }
    assert far.against_best["known_wi"] == FromBest(best="msp", interval=(0, 0), p=1)


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
    ("tau", "kept", "found"), [(0.6, 1, 0), (0.7, 1, 1), (0.8, 0.5, 1), (0.9, 0.5, 2), (0.95, 0, 2)]
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


def test_wilderness_has_intervals_where_they_are_asked_for(files):
    settings = EvaluationSettings(replicates=0, recomputed_replicates=8)
    found = evaluated(files, ["msp"], ["far"], settings).wilderness
    low, high = found.intervals["map_closed"]
    assert low <= found.map_closed <= high
    assert evaluate(files).wilderness.intervals == {}


def test_the_protocol_of_the_evaluation_is_that_of_wilderness(files, objects, regions):
    found = regions(
        ("i1", NOWHERE, 0.9), ("i1", FIRST, 0.8), ("i1", SECOND, 0.7), classes=("cat", "dog")
    )
    write_split(files, "test", objects(("i1", FIRST, "cat"), ("i1", SECOND, "cat")), found)
    write_split(files, "far", objects(("o1", FIRST, "fox")), regions(("o1", FIRST, 0.75)))
    impact = {}
    for protocol in ("paper", "published-code"):
        settings = EvaluationSettings(replicates=0, recomputed_replicates=4, protocol=protocol)
        wild = WildImages(RunInputs(files, run.Roles(["far"]), settings)).metrics()
        impact[protocol] = wild.at_recall["0.5"].impact_by_precision[-1]
        low, high = wild.intervals["average_impact_by_precision@0.5"]
        assert low <= wild.at_recall["0.5"].average_impact_by_precision <= high
    # Precision 1/2 at the recall, and 2/3 further on; with the wild one 1/2 and 2/4.
    assert impact == {"paper": 0, "published-code": pytest.approx((2 / 3) / (1 / 2) - 1)}


def test_errors_and_background_have_intervals(files, objects, regions):
    def with_background(*rows):
        found = regions(*rows)
        logits = np.column_stack([found.logits, np.log(0.25 * np.exp(found.logits).sum(axis=1))])
        header = {"classes": (*found.classes, "nothing"), "background_index": 2}
        same = {
            name: getattr(found, name)
            for name in ("image_id", "region_id", "box", "score", "label")
        }
        return Regions(**same, logits=logits, **header)

    for split in ("val", "test"):
        write_split(
            files, split, objects(("a", FIRST, "cat")), with_background(("a", FIRST, 0.9, "cat"))
        )
    wild = objects(("o1", FIRST, "fox"), ("o2", FIRST, "elk"))
    write_split(
        files, "far", wild, with_background(("o1", FIRST, 0.95, "dog"), ("o2", SECOND, 0.1, "dog"))
    )
    write_scores(files, "msp", "test", regions(("a", FIRST, 0.9)), [0.9])
    write_scores(files, "msp", "far", regions(("o1", FIRST, 0.95), ("o2", SECOND, 0.1)), [0.9, 0.1])
    found = evaluated(files, ["msp"], ["far"], EvaluationSettings(replicates=5)).wilderness
    background = found.background
    # Background: 0.2 of all, so that the cat has 0.72 and the fox 0.76; the other dog lies on
    # nothing.
    assert (background.values["rejected_known"], background.values["rejected_unknown"]) == (0, 0)
    assert background.known.classes["cat"]["mean"] == pytest.approx(0.72 - 0.2, abs=1e-6)
    assert background.unknown.classes["dog"]["mean"] == pytest.approx(0.76 - 0.2, abs=1e-6)
    assert background.unknown.classes["dog"]["detections"] == 1
    assert background.intervals["rejected_known"] == (0, 0)
    for name, each in found.errors.intervals.items():
        for value, interval in zip(found.errors.shares[name], each, strict=True):
            assert interval[0] <= value <= interval[1]


def test_errors_are_those_of_one_table_of_closed_and_wild_images(files, world):
    def renamed(tables, prefix):
        return [
            table.with_columns(image_id=[f"{prefix}{name}" for name in table.image_id])
            for table in tables
        ]

    closed, wild = renamed(world(0, images=12), "i"), world(1, images=12)
    fox = wild[0].with_columns(category=["fox"] * len(wild[0]))
    for split, tables in {"val": closed, "test": closed, "far": (fox, wild[1])}.items():
        write_split(files, split, *tables)
    inputs = RunInputs(files, run.Roles(("far",)), EvaluationSettings(replicates=5))
    found = WildImages(inputs).errors()

    named = renamed((fox, wild[1]), "far/")
    objects, regions = (
        type(one).concatenate([one, other]) for one, other in zip(closed, named, strict=True)
    )
    settings = error_diagnosis.Diagnosis(wild_images=set(named[1].image_id))
    cause = error_diagnosis.diagnose(
        objects, regions, dict.fromkeys(regions.classes, -np.inf), settings
    )
    known = ClosedSet.of(objects, regions, max_detections=len(regions))
    number = np.array([error_diagnosis.CAUSES.index(name) for name in cause])[known.detections.row]
    names = settings.wild_images, set(closed[1].image_id)  # in the order of the images of `known`
    weights = np.concatenate(
        [bootstrap.ImageDraws(of, 5, 1 - k).weights for k, of in enumerate(names)], axis=1
    )
    matched, recalls = known.match([0.5]), found.recalls
    counts, classes = error_diagnosis.counts_at_recalls(matched, number, recalls)
    drawn, _ = error_diagnosis.counts_at_recalls(matched, number, recalls, weights)
    assert found.classes == classes[:, 0].tolist()
    assert found.detections == counts[:, :, 0].sum(axis=0).tolist()
    for name, shares in error_diagnosis.shares(counts).items():
        assert found.shares[name] == [weighting.value(share) for share in shares[:, 0]]
    for name, shares in error_diagnosis.shares(drawn).items():
        assert found.intervals[name] == [bootstrap.interval(at) for at in shares]


def test_methods_are_compared_by_the_replicates_that_an_evaluation_stored(files):
    settings = EvaluationSettings(replicates=50, confidences=(), kept=())
    far = evaluated(files, ["msp"], ["far"], settings).methods["msp"].splits["far"]
    found = paired.StoredEvaluation(files.root, "r").replicates("msp", "far")
    with pytest.raises(DataError, match="no replicates of knn: run `farther repro evaluate@r`"):
        paired.StoredEvaluation(files.root, "r").replicates("knn", "far")
    for name in ("nose", "r_u", "auroc"):
        assert bootstrap.interval(found.metrics[name]) == far.interval(METRICS[name])
    more = replace(found, metrics={name: of + 0.25 for name, of in found.metrics.items()})
    low, high = paired.compare(found, more)["r_u"]["interval"]
    assert (low, high) == pytest.approx((0.25, 0.25))  # paired: images make no difference
    other = replace(found, draws={**found.draws, "seed": 1, "number of replicates": 20})
    with pytest.raises(
        DataError, match="differ in number of replicates and seed, so they are not paired"
    ):
        paired.compare(found, other)


def test_without_replicates_there_are_no_intervals(files):
    settings = EvaluationSettings(replicates=0, confidences=(), kept=())
    report = evaluated(files, ["msp"], ["far"], settings)
    assert report.methods["msp"].splits["far"].groups["ood"].intervals == {}
    assert report.closed_set.intervals == {}
    assert (files.plots / "tau.csv").read_text().count("\n") == 1
    assert (files.plots / "confidence.csv").read_text().count("\n") == 1


def test_the_images_of_all_ood_splits_are_the_wild_ones(files, objects, regions):
    # A second split shows an image of the same name.
    write_split(files, "near", objects(("o1", FIRST, "wolf")), regions(("o1", FIRST, 0.95, "dog")))
    write_scores(files, "msp", "near", regions(("o1", FIRST, 0.95, "dog")), [0.95])
    report = evaluated(files, ["msp"], ["far", "near"], EvaluationSettings(replicates=0))
    # Three images and one, to two of the ID split.
    assert report.wilderness.ratio == 2
    # At recall 0.3 the operating points are 0.9 and 0.7: a cat, a dog, and the wolf.
    errors = report.wilderness.errors
    at = errors.recalls.index(0.3)
    assert (errors.ratio, errors.classes[at]) == (1, 2)  # as many wild images as closed ones
    assert errors.shares["correct"][at] * errors.detections[at] == pytest.approx(2)
    assert report.wilderness.operating_points.ratios[-1] == 2
    assert report.wilderness.background is None  # the detector has no such column
    assert report.wilderness.confusion["wolf"] == {"dog": 1}
    assert report.wilderness.at_recall["0.3"].impact[-1] == 1 / 2
    with (files.plots / "wilderness.csv").open() as file:
        assert {row["recall"] for row in csv.DictReader(file)} == {"0.1", "0.3", "0.5"}


def test_metrics_over_both_thresholds_are_plotted(files):
    evaluate(files)
    with (files.plots / "tau.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["tau"] for row in rows] == ["0.9"] * 1 + ["0.7"] * 10
    # From 0.7 on, only 0.6 is unknown; with 0.9, 0.8 is too.
    assert [row["r_u"] for row in rows][:2] == ["0.666667", "0.333333"]
    with (files.plots / "confidence.csv").open() as file:
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
    with (files.plots / "confidence.csv").open() as file:
        rows = [(row["split"], row["t"], row["method"]) for row in csv.DictReader(file)]
    assert rows == list(itertools.product(splits, [f"0.{tenth}" for tenth in range(1, 10)], names))


def test_the_per_image_score_is_that_of_the_least_familiar_region(files):
    far = evaluate(files).methods["msp"].splits["far"]
    # i1 0.9, i2 0.7; o1 the smaller of 0.8 and 0.6.
    assert far.of_group("ood_per_image")["auroc"] == 1
    assert (
        far.of_group("ood_per_image")["id_images"],
        far.of_group("ood_per_image")["ood_images"],
    ) == (2, 1)


def test_negative_prompts_that_name_a_test_category_are_remarked_on():
    classes = ["cat", "Fire hydrant", "cloud", "Traffic light"]
    state = {"fitted_on_": {"classes": classes, "unknown_columns": [1, 2]}}
    fitted = FittedMethod(name="neg_label", state=state)
    split = SimpleNamespace(
        objects=SimpleNamespace(category=np.array(["fire_hydrant", "traffic light", "cup"]))
    )
    folder = SimpleNamespace(header=Header(classes=("cat", "thing"), unknown_columns=(1,)))
    inputs = SimpleNamespace(id_split=SimpleNamespace(folder=folder), tested=[split])
    expected = "negative prompts name 1 of the 3 categories of the test splits: fire_hydrant"
    assert methods._leaks(fitted, inputs) == [expected]
    assert methods._leaks(FittedMethod(name="knn", state=state), inputs) == []


@pytest.mark.parametrize("count", [10, 11])
def test_a_remark_names_ten_categories_and_says_that_there_are_more(count):
    names = [f"c{number:02}" for number in range(count)]
    header = Header(classes=("cat", *names), unknown_columns=tuple(range(1, count + 1)))
    split = SimpleNamespace(objects=SimpleNamespace(category=np.array(names)))
    inputs = SimpleNamespace(
        id_split=SimpleNamespace(folder=SimpleNamespace(header=header)), tested=[split]
    )
    (remark,) = methods._leaks(FittedMethod(name="knn"), inputs)
    assert remark.endswith(": " + ", ".join(names[:10]) + " and more" * (count > 10))


def test_images_are_compared_with_those_that_they_were_made_from(files):
    list_methods(files.all_fitted, ["msp"])

    def pairs():
        roles = run.Roles(["far"], pairs={"far": {"of": "val", "name": "([0-9])", "by": "file"}})
        report = evaluated_inputs(RunInputs(files, roles, EvaluationSettings(replicates=20)))
        split = report.methods["msp"].splits["far"]
        return split.groups["pairs"]

    val = Regions.concatenate(
        list(RunInputs(files, run.Roles(), EvaluationSettings()).id_split.folder.batches())
    )
    write_scores(files, "msp", "val", val, [0.9, 0.7, 0.1])
    found = pairs()
    assert (found.values["images"], found.values["scenes"]) == (2, 2)
    assert found.values["without_partner"] == 1  # o3
    # One fox is misclassified and one found; at both first places something is detected without
    # them, too.
    assert found.parts["with"] == {"found": 1 / 3, "misclassified": 1 / 3, "known": None}
    assert found.parts["without"] == {"found": 0, "misclassified": 2 / 3, "known": None}
    assert (found.values["found"], found.values["misclassified"]) == (1 / 3, -1 / 3)
    assert found.intervals["found"] == (0, 0.5)
    write_scores(files, "msp", "val", val, [0.1, 0.7, 0.1])  # flagged in the image without the fox
    assert pairs().parts["without"] == {"found": 1 / 3, "misclassified": 1 / 3, "known": None}
    with pytest.raises(
        DataError,
        match=r"no image of split 'far' has a partner in split 'val' by the pattern '\(.\*\)'",
    ):
        roles = run.Roles(["far"], pairs={"far": {"of": "val", "name": "(.*)", "by": "image_id"}})
        evaluated_inputs(RunInputs(files, roles, EvaluationSettings(replicates=0)))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_benchmark_without_ood_splits_has_the_detectors_metrics(files):
    report = evaluated(files, ["msp"], [], EvaluationSettings(replicates=20))
    assert report.closed_set.values["ap"] > 0
    assert report.methods["msp"].splits == {}
    assert report.gains.methods == {"msp": {}}
