"""Choosing what to deploy: numbers worked out by hand, and properties of every choice."""

import json
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
from pydantic_core import to_jsonable_python
from scipy.stats import binomtest
from tests.evaluation.deployable import SPLITS, lay
from tests.support.evaluations import SEARCH
from tests.support.fitting import write_fitted

from farther.errors import DataError, ParameterError
from farther.evaluation.deploy import choose
from farther.evaluation.deploy.choose import (
    _AvailableMethods,
    _Chooser,
    choose_deployment,
    write_choice,
)
from farther.evaluation.deploy.knobs import NOTHING_FLAGGED
from farther.evaluation.deploy.method_costs import by_cost
from farther.evaluation.deploy.results import LIMITS, Budget, DeployChoices
from farther.evaluation.deploy.search import (
    Candidate,
    Comparison,
    Part,
    Picked,
    Point,
    SearchSteps,
    best_level,
    best_setting,
    first_of_each_image,
)
from farther.evaluation.deploy.steps import IdSteps, OodSteps, ThresholdSteps, halves
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.methods import FittedRun
from farther.evaluation.results import FittedMethod
from farther.evaluation.settings import EvaluationSettings
from farther.metrics.statistics.bootstrap import ImageDraws
from farther.naming.registry import build
from farther.tables import Objects, Scores
from farther.tables.documents import write_json


def inputs(artifacts, **settings):
    files = RunFiles("r", "b", artifacts)
    return RunInputs(files, files.roles, EvaluationSettings(**{"replicates": 100, **settings}))


def chosen(artifacts, methods=("one",), **budget):
    """The choice of a budget whose limits hold on the images that are chosen on."""
    return choose_deployment(inputs(artifacts), plain(**budget), methods)


def plain(**budget):
    return Budget(**{"guarantee": "none", **budget})


def test_false_alarms_are_limited_on_validation_images_and_measured_on_test_images(tmp_path):
    found = chosen(lay(tmp_path), max_false_alarms=0.25).choice
    # One of four validation detections may be flagged, so τ is the second lowest score there, 0.6.
    assert (found.method, found.operating, found.tau, found.reached) == ("one", 0.5, 0.6, True)
    assert found.chosen_on["false_alarms"].value == 0.25
    images = {name: cost.images for name, cost in found.chosen_on.items()}
    assert images == {"misclassified": 4, "found": 4, "false_alarms": 4, "recall_lost": 4}
    alarms = found.measured["false_alarms"]
    assert (alarms.value, alarms.count, alarms.of) == (0.5, 2, 4)  # test detections 0.1 and 0.5
    assert found.measured["alarms_per_image"].value == 0.5
    lost = found.measured["recall_lost"]
    assert (lost.value, lost.count, lost.of) == (
        0.5,
        2,
        4,
    )  # the fourth cat is not detected in any case
    # AP50 before: three of four cats at precision 1, that is 76 of COCO's 101 recalls; after: one
    # of four, 26 recalls.
    assert found.measured["map50_lost"].value == pytest.approx(50 / 101)
    outcomes = {name: found.measured[name].count for name in ("misclassified", "found", "missed")}
    assert outcomes == {
        "misclassified": 1,
        "found": 3,
        "missed": 0,
    }  # only the fox with 0.85 is taken for a cat
    assert found.measured["misclassified"].of == 4


def test_what_the_detector_labels_as_unknown_is_flagged_at_every_threshold(tmp_path):
    labelled = ("cat", 0.9, -1.9e30, -1.9e30)
    artifacts = lay(
        tmp_path,
        {
            "val": [labelled, *SPLITS["val"][1:]],
            "far": [("fox", 0.9, -1.9e30, 0.1), *SPLITS["far"][1:]],
        },
    )
    loose = chosen(artifacts, max_false_alarms=0.25).choice
    # The labelled detection is one of four: τ can flag no other, and is the next score of any
    # detection.
    assert (loose.tau, loose.reached, loose.chosen_on["false_alarms"].count) == (0.6, True, 1)
    strict = chosen(artifacts, max_false_alarms=0.1).choice
    assert (strict.tau, strict.reached, strict.chosen_on["false_alarms"].count) == (
        NOTHING_FLAGGED,
        False,
        1,
    )
    assert strict.measured["found"].count == 1  # the labelled fox
    assert -1.9e30 < NOTHING_FLAGGED < -9e29


def test_an_object_whose_score_is_tau_is_misclassified(tmp_path):
    artifacts = lay(
        tmp_path, {"near": [("elk", 0.9, 0.6, 0), ("elk", 0.9, 0.5, 0)]}, test=("far", "near")
    )
    found = chosen(artifacts, max_misclassified=0.25, choose_on="far").choice
    assert found.tau == 0.6
    counts = {name: found.measured[name].count for name in ("misclassified", "found", "missed")}
    assert counts == {"misclassified": 1, "found": 1, "missed": 0}


def test_misclassified_objects_are_limited_at_the_fewest_false_alarms(tmp_path):
    artifacts = lay(tmp_path, test=("far", "near"))
    found = chosen(artifacts, max_misclassified=0.25, choose_on="far").choice
    # One of the foxes 0.1, 0.3, 0.5, 0.85 may be kept: τ is above 0.5, and 0.6 is the next score of
    # any detection.
    assert (found.tau, found.reached) == (0.6, True)
    assert found.chosen_on["misclassified"].value == 0.25
    assert found.chosen_on["false_alarms"].value == 0.25
    # Measured on the other split: elk 0.95 is kept, 0.15 flagged, two are not detected.
    assert list(found.by_split) == ["near"]
    counts = {name: (value.count, value.of) for name, value in found.by_split["near"].items()}
    assert counts == {"misclassified": (1, 4), "found": (1, 4), "missed": (2, 4)}
    assert found.folds == ()


def test_the_method_with_fewer_false_alarms_is_chosen_for_a_limit_on_misclassified_objects(
    tmp_path,
):
    artifacts = lay(tmp_path, test=("far", "near"))
    found = chosen(artifacts, ("one", "two"), max_misclassified=0.25, choose_on="far")
    # Method two has to flag the foxes at 0.8 and with them all cats; method one only the cat at
    # 0.2.
    assert found.choice.method == "one"
    assert found.methods["two"].chosen_on["false_alarms"].value == 1
    assert found.methods["one"] == found.choice


def of_two_methods(tmp_path, scores_of_two):
    """A run whose method `one` keeps all foxes, and `two` those of a score above the cats'."""
    foxes = [("fox", 0.9, 0.99, score) for score in scores_of_two]
    cats = [("cat", 0.9, 0.95, 0.95)] * 20
    return lay(tmp_path, {"val": cats, "test": cats, "far": foxes})


def of_many_resamples(artifacts, **budget):
    return choose_deployment(inputs(artifacts, replicates=200), plain(**budget), ["one", "two"])


def test_a_cheaper_method_is_taken_where_the_best_one_is_not_significantly_better(tmp_path):
    artifacts = of_two_methods(tmp_path, [0.1] + [0.99] * 19)
    found = chosen(artifacts, ("one", "two"), max_false_alarms=0)
    assert found.choice.method == "one"
    # Of 20 foxes, `two` finds one more; about a third of all resamples do not have it.
    gain = found.passed_over
    assert (gain.method, gain.than, gain.axis) == ("two", "one", "found")
    assert gain.value == pytest.approx(0.05)
    assert gain.interval[0] < 0 < gain.interval[1]
    assert found.over_cheapest is None
    assert found.methods["two"].measured["found"].count == 1


def test_a_method_that_is_significantly_better_is_taken_over_the_cheapest(tmp_path):
    artifacts = of_two_methods(tmp_path, [0.1] * 15 + [0.99] * 5)
    found = of_many_resamples(artifacts, max_false_alarms=0)
    assert (found.choice.method, found.passed_over) == ("two", None)
    gain = found.over_cheapest
    assert (gain.method, gain.than, gain.axis) == ("two", "one", "found")
    assert gain.value == 0.75
    assert 0.3 < gain.interval[0] < 0.75 < gain.interval[1] <= 1
    assert gain.is_significant


def test_the_gain_over_the_cheapest_is_of_the_chosen_method_alone(tmp_path):
    # On one half of the images, the gain of `two` is not significant, and `one` is chosen.
    artifacts = of_two_methods(tmp_path, [0.1] * 5 + [0.99] * 15)
    found = of_many_resamples(artifacts, max_false_alarms=0)
    assert found.choice.method == "two"
    assert {setting.method for setting in found.choice.folds} == {"one", "two"}
    # What is measured is the method that is named, also on the half that prefers another one.
    assert found.choice.measured["found"].value == 0.25
    assert found.methods["two"].measured == found.choice.measured
    assert found.methods["two"].by_split == found.choice.by_split
    assert found.over_cheapest.value == 0.25


def test_without_resamples_the_best_method_is_taken(tmp_path):
    artifacts = of_two_methods(tmp_path, [0.1] + [0.99] * 19)
    found = choose_deployment(
        inputs(artifacts, replicates=0), plain(max_false_alarms=0), ["one", "two"]
    )
    assert (found.choice.method, found.passed_over) == ("two", None)
    assert (found.over_cheapest.interval, found.over_cheapest.is_significant) == (None, False)


def test_methods_within_a_limit_on_misclassified_objects_are_compared_by_false_alarms(tmp_path):
    cats = [("cat", 0.9, 0.2, 0.8)] * 15 + [("cat", 0.9, 0.8, 0.8)] * 5
    foxes = [("fox", 0.9, 0.5, 0.5)] * 10
    artifacts = lay(tmp_path, {"val": cats, "test": cats, "far": foxes})
    found = of_many_resamples(artifacts, max_misclassified=0)
    assert found.choice.method == "two"
    gain = found.over_cheapest
    assert (gain.axis, gain.value, gain.is_significant) == ("false_alarms", 0.75, True)


def test_methods_are_ordered_by_inference_state_and_what_they_read(tmp_path):
    names = ["crops", "stored", "small", "logits", "energy", "confidence"]
    write_fitted(
        tmp_path / "fitted/r",
        {name: {"needs": ["score" if name == "confidence" else "logits"]} for name in names},
    )
    entries = [{"name": name} for name in names]
    entries[0]["pass_name"] = "crop"
    content = {"entries": entries, "not_scored": []}
    (tmp_path / "fitted/r/methods.json").write_text(json.dumps(content))
    for name, size in (("stored", 900), ("small", 90)):
        (tmp_path / "fitted/r" / name / "state.safetensors").write_bytes(b"0" * size)
    files = RunFiles("r", "b", tmp_path)
    fitted = FittedRun.read(files).applicable
    for entries_order in (names, names[::-1]):
        order = by_cost(files, entries_order, fitted)
        assert order == ["confidence", "energy", "logits", "small", "stored", "crops"]


def test_of_equal_methods_the_first_by_name_is_chosen_in_any_order_of_the_entries(tmp_path):
    foxes = [("fox", 0.9, score, score) for score in (0.1, 0.99)]
    cats = [("cat", 0.9, 0.95, 0.95)] * 20
    artifacts = lay(tmp_path, {"val": cats, "test": cats, "far": foxes})
    found = chosen(artifacts, ("one", "two"), max_false_alarms=0)
    assert (found.choice.method, found.cheapest) == ("one", "one")
    assert chosen(artifacts, ("two", "one"), max_false_alarms=0) == found


def test_what_no_setting_reaches_is_said_and_the_nearest_is_within_the_other_limits(tmp_path):
    artifacts = lay(tmp_path, test=("far", "near"))
    found = chosen(
        artifacts, ("one", "two"), max_misclassified=0.1, max_false_alarms=0, choose_on="far"
    )
    assert not found.choice.reached
    assert found.choice.chosen_on["false_alarms"].value == 0
    # Without a false alarm, both methods flag the fox at 0.1 and keep the other three.
    assert found.choice.chosen_on["misclassified"].value == 0.75
    assert set(found.alone) == {"misclassified", "false_alarms"}
    assert all(choice.reached for choice in found.alone.values())
    assert chosen(artifacts, max_false_alarms=0).alone == {}
    assert found.choice.status("misclassified", 0.1) in ("exceeded", "open")


def test_each_half_is_measured_with_what_was_chosen_on_the_other(tmp_path):
    images = 60
    random = np.random.default_rng(0)
    far = [("fox", 0.9, score, 0.5) for score in random.random(images)]
    artifacts = lay(tmp_path, splits={"far": far})
    found = chosen(artifacts, max_misclassified=0.5).choice
    scores = np.array([row[2] for row in far])
    names = np.array(sorted(f"far{n}" for n in range(images)), dtype=object)
    first = halves(names, np.zeros(images, dtype=int), seed=0)
    by_name = scores[[int(name[3:]) for name in names]]
    assert first.sum() == images / 2
    kept = 0
    for setting, on in zip(found.folds, (first, ~first), strict=True):
        # Of the scores of that half and of the validation images, the smallest that keeps no more
        # than half of it.
        tried = {*by_name[on], *(row[2] for row in SPLITS["val"])}
        assert setting.tau == min(tau for tau in tried if np.mean(by_name[on] >= tau) <= 0.5)
        kept += np.sum(by_name[~on] >= setting.tau)
    assert (found.measured["misclassified"].count, found.measured["misclassified"].of) == (
        kept,
        images,
    )
    assert np.mean(scores >= found.tau) <= 0.5


def test_no_unknown_object_is_misclassified_above_the_highest_score_of_all(tmp_path):
    artifacts = lay(
        tmp_path, {"far": [*SPLITS["far"][:3], ("fox", 0.9, 0.99, 0)]}, test=("far", "near")
    )
    found = chosen(artifacts, max_misclassified=0.0, choose_on="far").choice
    assert (
        found.reached,
        found.chosen_on["misclassified"].count,
        found.chosen_on["false_alarms"].count,
    ) == (
        True,
        0,
        4,
    )
    assert found.tau == pytest.approx(0.99)


def test_all_detections_that_the_detector_labels_as_unknown_exceed_a_limit_of_no_false_alarm(
    tmp_path,
):
    found = chosen(
        lay(tmp_path, {"val": [("cat", 0.9, -1.9e30, 0)] * 4}), max_false_alarms=0
    ).choice
    assert (found.reached, found.chosen_on["false_alarms"].count) == (False, 4)


def test_a_single_validation_image_and_a_half_without_one_are_chosen_on(tmp_path):
    artifacts = lay(tmp_path, {"val": SPLITS["val"][:1]})
    found = chosen(artifacts, max_false_alarms=0.6).choice
    # One false alarm in one image would be 1 per image.
    assert (found.reached, found.chosen_on["false_alarms"].value, found.tau <= 0.2) == (
        True,
        0,
        True,
    )
    half = chosen(artifacts, ("one", "two"), max_false_alarms=0.6, guarantee="expected").choice
    assert (half.chosen_on["false_alarms"].value, half.chosen_on["false_alarms"].of) == (None, 0)


def test_a_larger_t_is_chosen_where_a_limit_on_recall_allows_it(tmp_path):
    artifacts = lay(
        tmp_path,
        splits={
            "val": [
                ("cat", 0.9, 0.6, 0),
                ("cat", 0.9, 0.7, 0),
                ("cat", 0.9, 0.8, 0),
                ("cat", 0.6, 0.9, 0),
            ],
            "far": [("fox", 0.6, 0.9, 0)] * 4,
        },
    )
    found = chosen(artifacts, max_recall_loss=0.25).choice
    assert (
        0.6 < found.operating <= 0.9
    )  # the unsure foxes are discarded, and with them one of four cats
    assert found.measured["missed"].value == 1
    assert found.chosen_on["recall_lost"].value == 0.25
    assert chosen(artifacts, max_recall_loss=0.2).choice.operating < 0.6
    assert (
        chosen(artifacts, max_false_alarms=0.25).choice.operating == 0.5
    )  # without that limit t* is the run's own


def test_no_t_that_is_tried_by_default_discards_every_detection(tmp_path):
    artifacts = lay(
        tmp_path, splits={"val": [("cat", 0.97, 0.2, 0)] * 4, "far": [("fox", 0.97, 0.9, 0)] * 4}
    )
    # All known objects may be lost: a t* of 1 would leave no unknown object misclassified, and
    # raise no false alarm.
    found = chosen(artifacts, max_recall_loss=1.0, max_false_alarms=0).choice
    assert (found.chosen_on["misclassified"].value, found.operating < 0.97) == (1, True)


def exact(count, images):
    return tuple(binomtest(count, images).proportion_ci(0.95, method="exact"))


def test_a_count_of_zero_has_the_exact_interval_of_a_proportion_of_images(tmp_path):
    artifacts = lay(tmp_path, test=("far", "near"))
    found = chosen(artifacts, max_misclassified=1.0, choose_on="far").choice
    assert found.measured["false_alarms"].count == 0
    assert found.measured["false_alarms"].interval == pytest.approx(exact(0, 4))
    assert found.status("false_alarms", 0.02) == "open"
    assert found.status("false_alarms", 0.61) == "met"


def test_the_share_of_all_has_the_exact_interval_and_others_that_of_the_draws():
    weights = ImageDraws([f"{n:02}" for n in range(30)], 400, 0).weights
    once = np.ones(30, dtype=np.int64)
    assert choose._share(once, once, weights).interval == pytest.approx(exact(30, 30))
    for count in (
        once - np.arange(30) % 2,
        once + (-1) ** np.arange(30),
    ):  # half; 30 in 15 of the images, 2 in each
        found = choose._share(count, once, weights)
        drawn = (weights @ count) / 30
        assert found.interval == pytest.approx(np.quantile(drawn, (0.025, 0.975)), rel=0.02)
        assert found.interval[0] < found.value < found.interval[1]


@pytest.mark.parametrize("replicates", [0, 100])
def test_a_setting_that_flags_nothing_loses_no_precision_in_any_replicate(tmp_path, replicates):
    artifacts = lay(tmp_path, test=("far", "near"))
    budget = plain(max_misclassified=1.0, choose_on="far")
    found = choose_deployment(inputs(artifacts, replicates=replicates), budget, ["one"]).choice
    lost = found.measured["map50_lost"]
    assert (lost.value, lost.interval) == (0, None)


def test_methods_whose_parameters_were_chosen_on_test_data_and_those_that_do_not_apply_are_left_out(
    tmp_path,
):
    artifacts = lay(tmp_path)
    (artifacts / "fitted/r/one/method.json").write_text(
        json.dumps({"name": "msp", "choice": asdict(replace(SEARCH, oracle=True))})
    )
    found = chosen(artifacts, ("one", "two"), max_false_alarms=0.25)
    assert list(found.methods) == ["two"]
    assert found.left_out == {"one": "its parameters were chosen on test data"}
    (artifacts / "fitted/r/two/method.json").write_text(
        json.dumps({"name": "msp", "not_applicable": "no logits"})
    )
    found = chosen(artifacts, ("one", "two"), max_false_alarms=0.25)
    assert found.choice is None
    assert found.notes == ["Nothing can be chosen: no method applies."]


def test_without_unknown_objects_nothing_is_chosen(tmp_path):
    found = chosen(
        lay(tmp_path, splits={"far": [("cat", 0.9, 0.5, 0.5)] * 4}), max_false_alarms=0.25
    )
    assert (found.choice, found.methods) == (None, {})
    assert found.notes == [
        "Nothing can be chosen: the OOD splits have no unknown objects, or only crowds and "
        "difficult ones."
    ]


def test_a_limit_finer_than_the_data_and_a_guarantee_of_too_few_images_are_noted(tmp_path):
    artifacts = lay(tmp_path)
    assert (
        "One of the 4 unknown objects is 25.0%"
        in chosen(artifacts, max_misclassified=0.01).notes[0]
    )
    assert chosen(artifacts, max_misclassified=0.25).notes == []
    found = chosen(artifacts, max_false_alarms=0.1, guarantee="expected")
    assert found.too_few == (
        "4 ID validation images cannot show a limit of 0.1: 9 are needed; 0.2 is the smallest that "
        "they can show."
    )
    assert (found.choice.tau, found.choice.measured["false_alarms"].count) == (NOTHING_FLAGGED, 0)
    assert found.choice.reached  # nothing is flagged, on any image
    with_confidence = choose_deployment(inputs(artifacts), Budget(max_false_alarms=0.1), ["one"])
    assert "29 are needed; 0.53 is the smallest" in with_confidence.too_few
    assert with_confidence.choice.tau == NOTHING_FLAGGED
    assert chosen(artifacts, max_false_alarms=0.1).too_few == ""


def test_a_budget_of_one_axis_has_its_limit_alone():
    budget = Budget(max_misclassified=0.1, max_false_alarms=0.05, max_recall_loss=0.2)
    assert {axis: budget.only(axis).limits for axis in budget.limits} == {
        axis: {axis: limit} for axis, limit in budget.limits.items()
    }


def test_settings_are_ranked_by_false_alarms_only_where_a_limit_on_misclassified_objects_is_met():
    def points(reached):
        return [
            Point(None, reached, None, *values)
            for values in ((0.3, 0.7, 0.1, 0.0), (0.1, 0.9, 0.5, 0.0))
        ]

    def best(budget, reached):
        return min(points(reached), key=lambda point: point.rank(budget)).misclassified

    limited, free = Budget(max_misclassified=0.3), Budget(max_false_alarms=0.05)
    assert [best(limited, True), best(limited, False), best(free, True), best(free, False)] == [
        0.3,
        0.1,
        0.1,
        0.1,
    ]


def test_a_choice_is_the_same_after_json_and_a_damaged_one_names_its_field(tmp_path):
    found = chosen(lay(tmp_path), ("one", "two"), max_misclassified=0.1, max_false_alarms=0.1)
    file = tmp_path / "c.json"
    write_json(file, to_jsonable_python(found))
    assert DeployChoices.read(file) == found
    file.write_text(file.read_text().replace(f'"tau": {found.choice.tau}', '"tau": "high"', 1))
    with pytest.raises(DataError, match=r"c\.json: field 'choice\.tau'.*found 'high'"):
        DeployChoices.read(file)


def test_the_choice_is_written_and_follows_the_budget(tmp_path):
    artifacts = lay(tmp_path)
    file = RunFiles("r", "b", artifacts).choice
    assert file == artifacts / "choices/r.json"

    def stored(**budget):
        written = write_choice(inputs(artifacts), plain(**budget))
        assert DeployChoices.read(file) == written
        return written

    first = stored(max_false_alarms=0.25)
    assert list(first.methods) == ["one", "two"]
    assert first.methods["one"].tau == 0.6
    assert stored(max_false_alarms=0.5).methods["one"].tau == 0.8
    assert stored(max_false_alarms=0.25) == first


def test_choosing_twice_writes_the_same_bytes(tmp_path):
    files = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        artifacts = lay(tmp_path / name)
        write_choice(inputs(artifacts), plain(max_misclassified=0.25, max_false_alarms=0.25))
        files.append(RunFiles("r", "b", artifacts).choice.read_bytes())
    assert files[0] == files[1]


def test_a_setting_that_several_choices_come_to_is_measured_once(tmp_path, monkeypatch, measured):
    monkeypatch.setattr(choose, "count_cores", lambda: 1)
    write_choice(inputs(lay(tmp_path)), plain(max_misclassified=0.25, max_false_alarms=0.25))
    assert len(measured) == len(set(measured))


BUDGET = {"max_misclassified": 0.25, "max_false_alarms": 0.25}


@pytest.fixture
def measured(monkeypatch):
    """Settings whose costs were measured on the ID test split, since the list was cleared."""
    settings = []

    def recording(self, setting, of=_Chooser._measured):
        settings.append(setting)
        return of(self, setting)

    monkeypatch.setattr(_Chooser, "_measured", recording)
    return settings


def methods_measured(artifacts, measured, code="1", names=None, budget=None, **settings):
    """Chooses with kept costs; returns the methods whose costs were measured.

    The choice is the one that is found without kept costs.
    """
    measured.clear()
    found = choose_deployment(
        inputs(artifacts, **settings), plain(**(budget or BUDGET)), names, code
    )
    methods = sorted({setting.method for setting in measured})
    assert found == choose_deployment(
        inputs(artifacts, **settings), plain(**(budget or BUDGET)), names
    )
    return methods


def test_costs_are_kept_and_measured_again_where_what_they_are_made_from_changed(
    tmp_path, measured
):
    artifacts = lay(tmp_path)
    files = RunFiles("r", "b", artifacts)
    assert methods_measured(artifacts, measured, names=["one"]) == ["one"]
    assert methods_measured(artifacts, measured) == ["two"]
    assert sorted(file.name for file in files.id_costs.iterdir()) == ["one.json", "two.json"]
    assert methods_measured(artifacts, measured) == []

    of_unknowns = Scores.read(files.scores("two", "far"))
    of_unknowns.with_columns(score=of_unknowns.score / 2).write(files.scores("two", "far"))
    again = methods_measured(artifacts, measured)
    assert "one" not in again

    scores = Scores.read(files.scores("two", "test"))
    scores.with_columns(score=scores.score / 2).write(files.scores("two", "test"))
    assert methods_measured(artifacts, measured) == ["two"]
    assert methods_measured(artifacts, measured, code="2") == ["one", "two"]
    assert methods_measured(artifacts, measured, code="2", replicates=120) == ["one", "two"]

    objects = Objects.read(files.objects("test"))
    objects[:-1].write(files.objects("test"))
    assert methods_measured(artifacts, measured, code="2", replicates=120) == ["one", "two"]


def test_another_budget_measures_other_settings_and_keeps_no_costs_of_the_earlier_ones(
    tmp_path, measured
):
    artifacts = lay(tmp_path)
    methods_measured(artifacts, measured, budget={"max_false_alarms": 0.25})
    file = RunFiles("r", "b", artifacts).id_costs / "one.json"
    assert [entry["setting"]["tau"] for entry in json.loads(file.read_text())["settings"]] == [0.6]
    methods_measured(artifacts, measured, budget={"max_false_alarms": 0.5})
    assert measured
    assert [entry["setting"]["tau"] for entry in json.loads(file.read_text())["settings"]] == [0.8]


def test_the_costs_of_a_method_that_is_no_more_are_deleted(tmp_path, measured):
    artifacts = lay(tmp_path)
    files = RunFiles("r", "b", artifacts)
    methods_measured(artifacts, measured)
    methods_measured(artifacts, measured, names=["two"])
    assert [file.name for file in files.id_costs.iterdir()] == ["two.json"]
    methods_measured(artifacts, measured, names=[])
    assert [file.name for file in files.id_costs.iterdir()] == ["empty.txt"]


def test_the_methods_to_choose_from_may_be_named(tmp_path):
    found = choose_deployment(inputs(lay(tmp_path)), plain(max_false_alarms=0.25), ["two"])
    assert list(found.methods) == ["two"]
    assert found.choice.method == "two"


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        (
            {},
            "a budget limits something: give max_misclassified, max_false_alarms, max_recall_loss",
        ),
        (
            {"max_recall_loss": 0.0, "guarantee": "expected"},
            "max_recall_loss is 0, which no number of images can show: write a limit above 0",
        ),
    ],
)
def test_a_budget_without_a_limit_or_a_guarantee_of_zero_is_refused(budget, problem):
    with pytest.raises(ParameterError, match=problem):
        Budget(**budget)


@pytest.mark.parametrize("limit", LIMITS.values())
@pytest.mark.parametrize("value", [-0.1, np.inf, np.nan])
def test_a_limit_is_a_finite_number_from_0_on(limit, value):
    with pytest.raises(
        ParameterError, match=f"section 'deploy': parameter '{limit}': Input should be"
    ):
        build(Budget, "section 'deploy'", {limit: value})


@pytest.mark.parametrize("limit", ["max_misclassified", "max_recall_loss"])
def test_a_limit_on_a_share_is_at_most_1(limit):
    with pytest.raises(
        ParameterError, match=f"parameter '{limit}': Input should be less than or equal to 1"
    ):
        build(Budget, "section 'deploy'", {limit: 1.5})
    budget = build(Budget, "section 'deploy'", {limit: 1, "max_false_alarms": 0.99})
    assert budget.limits["false_alarms"] == 0.99


@pytest.mark.parametrize(("rate", "to_write"), [(1, "0.01"), (5.0, "0.05"), (99, "0.99")])
def test_a_limit_of_false_alarms_per_100_images_is_refused_with_what_to_write(rate, to_write):
    message = (
        "params.yaml: deploy: parameter 'max_false_alarms': it is a share of the ID images, below "
        f"1: for {rate:g} of 100 ID images write {to_write}, found {rate}"
    )
    with pytest.raises(ParameterError, match=message):
        build(Budget, "params.yaml: deploy", {"max_false_alarms": rate})
    with pytest.raises(ParameterError, match="below 1, found 150"):
        build(Budget, "params.yaml: deploy", {"max_false_alarms": 150})


def test_an_unknown_split_to_choose_on_is_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"unknown OOD split 'fra'\. Did you mean 'far'"):
        chosen(lay(tmp_path), max_false_alarms=0.02, choose_on="fra")


def test_one_image_is_always_in_one_half_and_every_split_is_halved():
    names = np.array([f"{n}" for n in range(40)] + [f"{n}" for n in range(20)], dtype=object)
    split = np.repeat([0, 1], [40, 20])
    first = halves(names, split, seed=3)
    assert np.array_equal(first[:20], first[40:])
    assert first[split == 0].sum() == 20
    assert first[split == 1].sum() == 10
    assert not np.array_equal(first, halves(names, split, seed=4))


@pytest.mark.parametrize("seed", range(5))
def test_the_images_of_every_split_that_are_chosen_on_are_halved_for_a_guarantee(tmp_path, seed):
    splits = {name: [("fox", 0.9, 0.5, 0.5)] * 20 for name in ("far", "near", "odd")}
    artifacts = lay(tmp_path, {"val": [("cat", 0.9, 0.5, 0.5)] * 20, **splits}, test=tuple(splits))
    available = _AvailableMethods({"one": FittedMethod(name="msp")}, {}, ["one"])
    chooser = _Chooser(inputs(artifacts), available, Budget(max_false_alarms=0.25))
    random = np.random.default_rng(seed)
    of_ood = np.concatenate([random.permutation(np.arange(20) < 10) for _ in splits])
    part = Part(np.ones(20, dtype=bool), of_ood)
    first, second = chooser._halved(part)
    for name in ("id", "ood"):
        assert np.array_equal(getattr(first, name) ^ getattr(second, name), getattr(part, name))
        assert not np.any(getattr(first, name) & getattr(second, name))
    assert (first.id.sum(), second.id.sum()) == (10, 10)
    assert [half.ood.reshape(3, 20).sum(axis=1).tolist() for half in (first, second)] == [
        [5] * 3
    ] * 2


def draw(random, images):
    """Costs in ID and OOD images whose scores depend on their image; images have 0 to 3 units."""

    def units(centre):
        image = np.sort(random.integers(0, images, 2 * images))
        return ThresholdSteps(
            random.normal(centre, 1, images)[image] + random.normal(0, 0.5, len(image)), image
        )

    flagged = units(1.0)
    unknown = units(0.0)
    id_steps = IdSteps(
        flagged,
        ThresholdSteps(
            np.where(random.random(len(flagged.at)) < 0.8, flagged.at, np.inf), flagged.image
        ),
    )
    nothing = ThresholdSteps.concatenate([])
    recovered = ThresholdSteps(np.full(len(unknown.at), -np.inf), unknown.image)
    return id_steps, OodSteps(unknown, unknown, unknown, nothing, recovered)


def everything(images, **options):
    return Part(np.ones(images, dtype=bool), np.ones(images, dtype=bool), **options)


@pytest.mark.parametrize("seed", range(5))
def test_the_chosen_threshold_meets_its_budget_and_a_looser_one_never_costs_more(
    seed,
):
    steps, part = draw(np.random.default_rng(seed), 80), everything(80)
    points = []
    for most in (0.0, 0.01, 0.05, 0.2, 0.5, 1.0):
        point = best_level(Candidate("m", 0.5), steps, part, plain(max_misclassified=most))
        assert point.reached and point.misclassified <= most
        points.append(point)
    assert all(tight.false_alarms >= loose.false_alarms for tight, loose in pairwise(points))
    points = []
    for most in (0.0, 0.01, 0.05, 0.5):
        budget = plain(max_false_alarms=most, max_recall_loss=0.2)
        point = best_level(Candidate("m", 0.5), steps, part, budget)
        assert point.reached and point.false_alarms <= most and point.recall_lost <= 0.2
        points.append(point)
        both = best_level(Candidate("m", 0.5), steps, part, replace(budget, max_misclassified=0.3))
        assert both.reached == (point.misclassified <= 0.3)
    assert all(tight.misclassified >= loose.misclassified for tight, loose in pairwise(points))


def test_conformal_thresholds_keep_their_limits_in_expectation_on_new_images():
    random, images = np.random.default_rng(0), 40
    losses = {"misclassified": [], "false_alarms": [], "recall_lost": []}
    budgets = {axis: Budget(**{limit: most, "guarantee": "expected"}) for axis, limit, most in (
        ("misclassified", "max_misclassified", 0.1),
        ("false_alarms", "max_false_alarms", 0.1),
        ("recall_lost", "max_recall_loss", 0.1),
    )}  # fmt: skip
    for _ in range(400):
        steps, (new_id, new_ood) = draw(random, images), draw(random, 100)
        for axis, budget in budgets.items():
            tau = best_level(
                Candidate("m", 0.5), steps, everything(images, guarantee="expected"), budget
            ).setting.tau
            units, wrong = {
                "misclassified": (new_ood.misclassified, new_ood.misclassified.at >= tau),
                "false_alarms": (new_id.flagged, new_id.flagged.at < tau),
                "recall_lost": (new_id.lost, new_id.lost.at < tau),
            }[axis]
            total, lost = units.counts(100), units[wrong].counts(100)
            shown = total > 0
            each = lost > 0 if axis == "false_alarms" else lost[shown] / total[shown]
            losses[axis].append(np.mean(each))
    for axis, of in losses.items():
        error = 3 * np.std(of) / np.sqrt(len(of))
        assert 0.03 < np.mean(of) <= 0.1 + error, axis


def test_the_guarantee_holds_although_the_best_of_many_methods_is_chosen():
    random, images, limit = np.random.default_rng(1), 60, 0.15
    even = np.arange(images) % 2 == 0

    def halved(part):
        return Part(part.id & even, part.ood & even), Part(part.id & ~even, part.ood & ~even)

    def best_of(points, budget):
        return Picked(min(points, key=lambda point: point.rank(budget)))

    budget = Budget(max_misclassified=limit, guarantee="expected")
    found, without = [], []
    for _ in range(200):
        # Equally good methods.
        held_out = {Candidate(str(n), 0.5): draw(random, images) for n in range(12)}
        _, new = draw(random, 100)

        def steps_of(method, operating, held_out=held_out):
            return held_out[Candidate(method, operating)]

        for into, asked in ((found, budget), (without, replace(budget, guarantee="none"))):
            search = SearchSteps(steps_of, best_of, halved)
            point = best_setting(list(held_out), everything(images), asked, search).point
            setting = point.setting
            objects = new.misclassified
            lost, total = objects[objects.at >= setting.tau].counts(100), objects.counts(100)
            into.append(np.mean(lost[total > 0] / total[total > 0]))
    error = 3 * np.std(found) / np.sqrt(len(found))
    assert np.mean(found) <= limit + error
    assert np.mean(without) > limit + error


def test_with_confidence_the_best_of_many_methods_exceeds_its_limit_in_few_draws():
    random, images, limit, draws = np.random.default_rng(2), 80, 0.15, 300
    budget = Budget(max_false_alarms=limit)
    candidates = [Candidate(str(n), 0.5) for n in range(8)]
    comparison = Comparison.of(candidates, images, budget)
    assert (len(comparison.candidates), comparison.level) == (8, budget.level(8))
    exceeding = {"confidence": 0, "none": 0}

    def best_of(points, budget):
        return Picked(min(points, key=lambda point: point.rank(budget)))

    for _ in range(draws):
        held_out = {str(n): draw(random, images) for n in range(8)}
        new, _ = draw(random, 5_000)
        of_new = first_of_each_image(new.flagged).at

        def steps_of(method, operating, held_out=held_out):
            return held_out[method]

        for guarantee in exceeding:
            asked = replace(budget, guarantee=guarantee)
            part = everything(images, confidence=comparison.level)
            search = SearchSteps(steps_of, best_of, None)
            picked = best_setting(comparison.candidates, part, asked, search)
            exceeding[guarantee] += np.sum(of_new < picked.point.setting.tau) / 5_000 > limit
    assert exceeding["confidence"] <= 0.05 * draws < exceeding["none"]


def test_a_larger_t_that_loses_more_than_its_limit_is_never_within_it():
    images = 80
    image = np.arange(images)
    each = ThresholdSteps(np.zeros(images), image)
    nothing = ThresholdSteps.concatenate([])
    undetected = ThresholdSteps(np.full(images, -np.inf), image)
    found_by_none = ThresholdSteps(np.full(images, np.inf), image)

    def steps_of(method, operating):
        # At the larger t* nothing is detected: no object is misclassified, and all are lost.
        if operating == 0.9:
            ood_steps = OodSteps(undetected, found_by_none, nothing, nothing, undetected)
            return IdSteps(nothing, undetected), ood_steps
        return IdSteps(each, each), OodSteps(each, each, each, nothing, undetected)

    def best_of(points, budget):
        return Picked(min(points, key=lambda point: point.rank(budget)))

    budget = Budget(max_false_alarms=0.1, max_recall_loss=0.1)
    candidates = [Candidate("m", 0.5), Candidate("m", 0.9)]
    search = SearchSteps(steps_of, best_of, None)
    point = best_setting(candidates, everything(images), budget, search).point
    assert (point.setting.operating, point.reached, point.recall_lost) == (0.5, True, 0)
    point = best_setting(candidates[1:], everything(images), budget, search).point
    assert (point.reached, point.recall_lost) == (False, 1)


def test_of_few_images_as_many_settings_are_compared_as_they_can_show_a_limit_for():
    budget = Budget(max_false_alarms=0.05)
    candidates = [Candidate(str(n), 0.5) for n in range(20)]
    for images, count in ((21, 1), (59, 1), (73, 2), (118, 20)):
        comparison = Comparison.of(candidates, images, budget)
        assert len(comparison.candidates) == count
        assert comparison.level == pytest.approx(budget.level(count))
    assert len(Comparison.of(candidates, 21, replace(budget, guarantee="none")).candidates) == 20
    both = Budget(max_false_alarms=0.05, max_recall_loss=0.05)
    assert both.level() == pytest.approx(0.975)
