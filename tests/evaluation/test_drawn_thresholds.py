"""Intervals that include τ: replicates in which it is taken again from drawn validation images."""

from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
from tests.evaluation.evaluated_runs import write_json, write_scores, write_split
from tests.support.fitting import write_fitted

from farther.errors import DataError
from farther.evaluation import paired
from farther.evaluation.evaluate import EvaluationCode, evaluate_run
from farther.evaluation.files import RunFiles
from farther.evaluation.inputs import RunInputs
from farther.evaluation.replicates import read_replicates
from farther.evaluation.results import FittedMethod
from farther.evaluation.settings import EvaluationSettings
from farther.evaluation.summaries import flagging_costs
from farther.evaluation.tau import Calibration
from farther.evaluation.threshold import StoredTau, stored_tau
from farther.methods import threshold
from farther.methods.tau import weighted_thresholds
from farther.metrics import open_set
from farther.metrics.catalogue import METRICS
from farther.metrics.open_set import known_classes
from farther.metrics.open_set.drawn_thresholds import ImageCopies
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.statistics.bootstrap import ImageDraws, interval
from farther.scoring.inputs import TauSettings

REPLICATES = 100
OPERATING_THRESHOLD = 0.4

#: τ of `fixed` is its own.
METHODS = {"knn": {}, "msp": {}, "fixed": {"fixed_threshold": 0.3, "name": "energy"}}

#: Groups whose metrics compare scores with τ.
AT_TAU = ("open_set", "images", "known", "open_world")


@pytest.fixture(scope="module")
def run(tmp_path_factory, world):
    """A run evaluated with τ in the replicates, and the same run with a fixed τ."""
    runs = {}
    for name, replicates_tau in (("drawn", True), ("fixed", False)):
        files = written_run(tmp_path_factory.mktemp(name) / "artifacts", world)
        settings = EvaluationSettings(
            replicates=REPLICATES, confidences=(), kept=(), replicate_thresholds=replicates_tau
        )
        inputs = RunInputs(files, files.roles, settings)
        evaluation, _ = evaluate_run(inputs, TauSettings(keep=0.7), EvaluationCode(""))
        runs[name] = SimpleNamespace(files=files, inputs=inputs, evaluation=evaluation)
    return SimpleNamespace(**runs)


def written_run(root, world):
    """Files of a run with validation images, ID test images and OOD images, and three methods."""
    files = RunFiles("r", "voc", root)
    for seed, split in enumerate(("val", "test", "far")):
        objects, regions = world(seed, images=6 if split == "val" else 20)
        # Without ties, whose order decides about average precision.
        confidence = np.random.default_rng(seed).permutation(len(regions)) / len(regions)
        regions = regions.with_columns(score=confidence)
        if split == "far":
            category = np.where(objects.category == objects.category[0], "fox", objects.category)
            objects = objects.with_columns(category=category.tolist())
        write_split(files, split, objects, regions, extra="without regions")
        for number, method in enumerate(METHODS):
            scores = np.random.default_rng([seed, number]).random(len(regions))
            write_scores(files, method, split, regions, scores)
    write_fitted(files.all_fitted, METHODS)
    write_json(files.threshold, {"threshold": OPERATING_THRESHOLD, "rule": OPERATING_THRESHOLD})
    write_json(files.splits / "roles.json", {"test": ["far"]})
    return files


def replicates(run, method):
    return read_replicates(run.files.replicates(method, "far"))


# ----------------------------------------------------------------------
# the weighted formula


@pytest.mark.parametrize("rule", ["percentile", "gaussian"])
@pytest.mark.parametrize("keep", [0.07, 0.5, 0.95])
def test_a_weighted_threshold_is_that_of_the_repeated_scores(rule, keep):
    random = np.random.default_rng(0)
    scores = random.integers(0, 8, 40).astype(float)  # with ties
    weights = random.multinomial(40, np.full(40, 1 / 40), size=20)
    expected = [threshold(np.repeat(scores, counts), keep, rule) for counts in weights]
    taus = weighted_thresholds(scores, weights, keep, rule)
    if rule == "percentile":
        assert taus.tolist() == expected
    else:
        assert taus == pytest.approx(expected, rel=1e-12)


def test_without_a_drawn_score_there_is_no_threshold():
    weights = np.array([[0, 0], [1, 0]])
    taus = weighted_thresholds(np.array([1.0, 2.0]), weights, 0.95, "percentile")
    assert np.isnan(taus[0])
    assert taus[1] == 1.0


# ----------------------------------------------------------------------
# replicates of a run


@pytest.mark.parametrize("replicate", [0, 57])
def test_a_replicate_is_the_metrics_of_its_images_at_the_threshold_of_its_validation_images(
    run, replicate
):
    inputs = run.drawn.inputs
    tau = tau_of_written_out(inputs, replicate)
    assert tau == stored_tau(run.drawn.files.tau("knn")).replicates[replicate]

    far = inputs.tested[0]
    detections, rows = far.draws.written_out(replicate, far.detections)
    objects, _ = far.draws.written_out(replicate, far.objects)
    scores = inputs.scores("knn", far)[far.above_threshold][rows]
    rules = MatchingRules(known_classes=far.known_classes)
    outcome = OpenSetSplit.of(objects, detections, rules).match(scores < tau)
    drawn = replicates(run.drawn, "knn")

    expected = open_set.metrics(outcome, -scores)
    of_known = known_classes.metrics(outcome, detections, unknown_score=-scores)
    expected |= {f"known_{name}": value for name, value in of_known.items()}
    compared = set(expected) & set(drawn)
    assert {"r_u", "p_u", "nose", "ap_u", "tp_u", "fp_u"} <= compared
    for name in compared:
        value = np.nan if expected[name] is None else expected[name]
        assert drawn[name][replicate] == pytest.approx(value, abs=1e-12, nan_ok=True), name


def test_false_alarms_of_a_replicate_are_at_its_threshold(run):
    inputs = run.drawn.inputs
    tau = stored_tau(run.drawn.files.tau("knn"))
    scores = inputs.scores("knn", inputs.id_split)[inputs.id_above_threshold]
    alarms = []
    for replicate, replicate_tau in enumerate(tau.replicates):
        _, rows = inputs.id_draws.written_out(replicate, inputs.id_regions)
        alarms.append(np.sum(scores[rows] < replicate_tau) / len(inputs.id_split.images))
    costs = run.drawn.evaluation.methods["knn"].costs
    expected = interval(np.array(alarms), value=costs.values["false_alarms"])
    assert costs.intervals["false_alarms"] == pytest.approx(expected)


def test_a_threshold_from_the_id_test_images_is_from_the_same_draws_of_them(run):
    """In each resample it keeps its share of that resample's own detections."""
    inputs = run.drawn.inputs
    settings = TauSettings(calibration_split=inputs.id_split.name, keep=0.7)
    tau = Calibration(inputs, settings).tau_of("knn", FittedMethod(name="knn"))
    scores = inputs.scores("knn", inputs.id_split)[inputs.id_above_threshold]
    weights = inputs.id_draws.rows(inputs.id_regions.image_id).in_block(slice(None))
    for replicate, replicate_tau in enumerate(tau.replicates):
        kept = weights[replicate] @ (scores >= replicate_tau)
        assert kept / weights[replicate].sum() == pytest.approx(0.7, abs=0.03)


def tau_of_written_out(inputs, replicate):
    """τ of `knn` from the written-out validation images of a replicate."""
    files = inputs.files
    val = type(inputs.id_split)(files, "val")
    draws = ImageDraws(val.images, REPLICATES, seed=2)
    _, rows = draws.written_out(replicate, val.regions(OPERATING_THRESHOLD))
    scores = inputs.scores("knn", val)[val.regions().score >= OPERATING_THRESHOLD]
    return threshold(scores[rows], 0.7)


def test_with_a_fixed_threshold_replicates_are_weighted_metrics_at_it(run):
    inputs = run.fixed.inputs
    tau = stored_tau(run.fixed.files.tau("knn"))
    assert tau.replicates == []
    far = inputs.tested[0]
    scores = inputs.scores("knn", far)[far.above_threshold]
    outcome = far.open_set.match(scores < tau.threshold)
    expected = open_set.metrics(outcome, -scores, far.draws.of(outcome.split.images))
    fixed = replicates(run.fixed, "knn")
    for name, values in expected.items():
        assert np.array_equal(fixed[name], values, equal_nan=True)


def test_only_metrics_at_the_threshold_change(run):
    drawn = replicates(run.drawn, "knn")
    fixed = replicates(run.fixed, "knn")
    changed = {name for name in drawn if not np.array_equal(drawn[name], fixed[name], True)}
    assert {"r_u", "nose", "p_u", "known_map", "open_world_u_recall"} <= changed
    assert {METRICS[name].group for name in changed if name in METRICS} <= set(AT_TAU)
    for name in ("auroc", "fpr95", "aupr_in"):
        assert name not in changed
    results = [run.drawn.evaluation, run.fixed.evaluation]
    first, second = [evaluation.methods["knn"].splits["far"] for evaluation in results]
    assert first.groups["open_set"].values == second.groups["open_set"].values


def test_a_threshold_of_a_methods_own_stays_fixed(run):
    drawn = replicates(run.drawn, "fixed")
    fixed = replicates(run.fixed, "fixed")
    for name, values in drawn.items():
        assert np.array_equal(values, fixed[name], equal_nan=True)
    assert stored_tau(run.drawn.files.tau("fixed")).replicates == []


def test_all_methods_draw_the_same_validation_images(run, tmp_path, world):
    """Two methods with the same scores differ in no replicate."""
    files = written_run(tmp_path / "artifacts", world)
    for split in ("val", "test", "far"):
        source = files.scores("knn", split)
        files.scores("msp", split).write_bytes(source.read_bytes())
    settings = EvaluationSettings(replicates=REPLICATES, confidences=(), kept=())
    inputs = RunInputs(files, files.roles, settings)
    evaluation, _ = evaluate_run(inputs, TauSettings(keep=0.7), EvaluationCode(""))
    taus = [stored_tau(files.tau(method)).replicates for method in ("knn", "msp")]
    assert taus[0] == taus[1]
    assert len(set(taus[0])) > 3
    assert evaluation.methods["msp"].splits["far"].against_best["r_u"].p == 1.0


def test_replicates_with_and_without_the_threshold_are_not_paired(run):
    first, second = [
        paired.StoredEvaluation(side.files.root, "r").replicates("knn", "far")
        for side in (run.drawn, run.fixed)
    ]
    with pytest.raises(DataError, match="differ in images that τ is taken from"):
        paired.compare(first, second)
    assert paired.compare(first, first)["r_u"]["p"] == 1.0


def test_parts_of_the_objects_and_the_error_budget_include_the_threshold(run):
    drawn = run.drawn.evaluation.methods["knn"].splits["far"]
    fixed = run.fixed.evaluation.methods["knn"].splits["far"]
    assert drawn.by_size != fixed.by_size
    assert drawn.over_iou.intervals != fixed.over_iou.intervals
    assert drawn.error_budget != fixed.error_budget
    assert drawn.over_iou.values == fixed.over_iou.values


# ----------------------------------------------------------------------
# copies of images


def test_a_replicate_counts_one_copy_of_each_image_the_one_with_its_flags():
    random = np.random.default_rng(1)
    image = random.integers(0, 6, 30)
    scores = random.integers(0, 10, 30).astype(float)
    taus = random.integers(2, 8, 40).astype(float)
    weights = random.multinomial(6, np.full(6, 1 / 6), size=40)
    copies = ImageCopies.of(image, scores, 6, taus)
    copy_weights = copies.weights(weights)
    for replicate, tau in enumerate(taus):
        is_counted = copy_weights[replicate] > 0
        assert np.array_equal(copies.images.row[is_counted], np.flatnonzero(weights[replicate]))
        flagged = copy_weights[replicate] @ copies.flagged(image, scores)
        assert flagged == np.sum(weights[replicate][image] * (scores < tau))


def test_images_are_copied_only_where_a_replicate_flags_others_of_their_regions():
    image = np.array([0, 0, 1, 2])
    scores = np.array([0.1, 0.5, 0.9, 0.55])
    copies = ImageCopies.of(image, scores, 4, taus=np.array([0.4, 0.6, 0.52, 0.6]))
    assert copies.images.row.tolist() == [0, 0, 1, 2, 2, 3]
    assert copies.flagged(image, scores).tolist() == [1, 2, 0, 0, 1, 0]


def test_copies_of_images_that_are_drawn_in_groups_have_the_weights_of_their_images():
    random = np.random.default_rng(2)
    image = np.arange(2000) % 1500
    scores = random.random(2000)
    taus = random.uniform(0.4, 0.5, 30)
    draws = ImageDraws([f"{number:04}" for number in range(1500)], 30, 0, max_images=1024)
    copies = ImageCopies.of(image, scores, 1500, taus)
    flagged = copies.weights(draws.weights) @ copies.flagged(image, scores)
    for replicate, tau in enumerate(taus):
        assert flagged[replicate] == np.sum(draws.times(replicate)[image] * (scores < tau))


# ----------------------------------------------------------------------
# what intervals promise


def test_intervals_with_the_threshold_cover_the_populations_share_more_often():
    """Scores of ID and OOD detections are normal: the share found at the 5% quantile is known."""
    true_share = float(population_share())
    covered = {"with": 0, "without": 0}
    for seed in range(60):
        random = np.random.default_rng(seed)
        val_scores = image_scores(random, mean=2.0)
        ood_scores = image_scores(random, mean=0.5)
        tau = threshold(val_scores)
        draws = ImageDraws(IMAGES, 200, seed)
        val_draws = ImageDraws(IMAGES, 200, seed + 1000)
        val_weights = val_draws.rows(IMAGE_OF_ROW).in_block(slice(None))
        taus = weighted_thresholds(val_scores, val_weights, 0.95, "percentile")
        fixed = StoredTau(threshold=tau, rule="percentile", keep=0.95, regions=len(val_scores))
        drawn = fixed.model_copy(update={"replicates": taus.tolist()})
        for name, stored in (("with", drawn), ("without", fixed)):
            share = found_share(ood_scores, draws, stored)
            low, high = share.intervals["id_flagged"]
            covered[name] += low <= true_share <= high
    assert covered["with"] > covered["without"] + 5
    assert covered["with"] >= 54


IMAGES = [f"{number:03}" for number in range(100)]
IMAGE_OF_ROW = np.repeat(np.array(IMAGES, dtype=object), 2)


def image_scores(random, mean):
    """Scores of two detections in each image, which depend on the image."""
    of_image = random.normal(mean, 0.7, len(IMAGES))
    return np.repeat(of_image, 2) + random.normal(0, 0.7, len(IMAGE_OF_ROW))


def population_share():
    """Share of OOD detections below the 5% quantile of the ID detections."""
    deviation = np.hypot(0.7, 0.7)
    tau = NormalDist(2.0, deviation).inv_cdf(0.05)
    return NormalDist(0.5, deviation).cdf(tau)


def found_share(scores, draws, tau):
    """The share of detections that are flagged, with its interval."""
    inputs = SimpleNamespace(
        id_split=SimpleNamespace(images=IMAGES),
        id_regions=SimpleNamespace(image_id=IMAGE_OF_ROW),
        id_draws=draws,
    )
    return flagging_costs(inputs, scores, tau)
