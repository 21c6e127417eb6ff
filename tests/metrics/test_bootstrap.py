"""The bootstrap over images."""

import numpy as np
import pytest
from scipy.stats import binomtest

from farther.errors import DataError, ParameterError
from farther.metrics import closed_set, ood, open_set, self_awareness, weighting
from farther.metrics.ood import two_sides
from farther.metrics.open_set import known_classes
from farther.metrics.open_set.outcomes import MatchingRules, OpenSetSplit
from farther.metrics.precision_recall import FALSE, IGNORED, TRUE, average_precision
from farther.metrics.self_awareness.matches import match
from farther.metrics.statistics import bootstrap

IMAGES = [f"{number:03d}" for number in range(12)]


def drawn(table, images, weights, unique=None):
    """The table of a replicate: each image as often as it was drawn, under different names."""
    rows, names = [], []
    for image, times in zip(images, weights, strict=True):
        own = np.flatnonzero(table.image_id == image)
        for time in range(times):
            rows.append(own)
            names.extend([f"{image}#{time}"] * len(own))
    rows = np.concatenate(rows)
    columns = {name: values[rows] for name, values in table.columns().items()}
    columns["image_id"] = np.array(names, dtype=object)
    if unique:
        columns[unique] = np.arange(len(rows))
    shared = {"header": table.header} if hasattr(table, "header") else {}
    return type(table)(**columns, **shared), rows


@pytest.fixture(scope="module")
def case(world):
    objects, regions = world(5, images=len(IMAGES), objects=5, regions=15)
    # Where confidences are equal, the order of the rows decides, which is another one when images
    # are written out.
    score = np.float32(0.5 + np.random.default_rng(0).permutation(len(regions)) / 500)
    regions = regions.with_columns(
        score=score, logits=np.stack([np.log(score), np.log(1 - score)], axis=1)
    )
    unknown = np.random.default_rng(1).random(len(regions)) < 0.5
    return objects, regions, unknown, np.random.default_rng(2).normal(size=len(regions)).round(1)


def each_once(images):
    return None


def of_open_set(protocol):
    def compute(objects, regions, unknown, score, weigh):
        outcome = OpenSetSplit.of(objects, regions, MatchingRules(protocol=protocol)).match(unknown)
        return open_set.metrics(outcome, -score, weigh(outcome.split.images))

    return compute


def of_groups(objects, regions, unknown, score, weigh):
    split = OpenSetSplit.of(objects, regions)
    outcome, weights = split.match(unknown), weigh(split.images)
    found = {}
    for group in (objects.category, split.sizes()):
        for name, values in open_set.by_group(outcome, group, weights).items():
            found |= {f"{name} {key}": value for key, value in values.items()}
    return found


def over_ious(objects, regions, unknown, score, weigh):
    split = OpenSetSplit.of(objects, regions)
    return open_set.metrics_over(split, [0.5, 0.75], unknown, -score, weigh(split.images))


def of_known(recall):
    """Metrics of cats, where dogs are unknown; most regions are kept."""

    def compute(objects, regions, unknown, score, weigh):
        outcome = OpenSetSplit.of(objects, regions, MatchingRules(known_classes=("cat",))).match(
            unknown & (score > 0.5)
        )
        return known_classes.metrics(outcome, regions, recall, -score, weigh(outcome.split.images))

    return compute


def of_closed_set(objects, regions, unknown, score, weigh):
    known = closed_set.ClosedSet.of(objects, regions)
    return closed_set.Matches.of(known).metrics(weigh(known.images))


def of_self_awareness(objects, regions, unknown, score, weigh):
    matched = match(objects, regions)
    found = self_awareness.means(self_awareness.by_class(matched, weights=weigh(matched.images)))
    return found if weigh is not each_once else weighting.plain(found)


#: Metrics of two tables, flags, scores, and weights of images (`weigh`): by name, plain values with
#: `each_once`.
FORMULAS = {
    "open set": of_open_set("paper"),
    "open set, published code": of_open_set("published-code"),
    "groups of objects": of_groups,
    "over IoUs": over_ious,
    "known classes, recall 0.2": of_known(0.2),
    "known classes": of_known(0.8),
    "closed set": of_closed_set,
    "self-awareness": of_self_awareness,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_weighted_metrics_equal_those_of_the_drawn_images_written_out(case, name):
    objects, regions, unknown, score = case
    draws = bootstrap.ImageDraws(IMAGES, replicates=8)
    found = FORMULAS[name](*case, draws.of)
    for replicate, weights in enumerate(draws.weights):
        truth, _ = drawn(objects, draws.names, weights, "object_id")
        detections, rows = drawn(regions, draws.names, weights)
        expected = FORMULAS[name](truth, detections, unknown[rows], score[rows], each_once)
        assert len(expected) >= 5
        values = {key: np.nan if value is None else value for key, value in expected.items()}
        assert {key: found[key][replicate] for key in values} == pytest.approx(values, nan_ok=True)


@pytest.mark.parametrize("name", FORMULAS)
def test_weights_of_one_give_the_plain_values(case, name):
    weighted = FORMULAS[name](*case, lambda images: np.ones((3, len(images)), dtype=np.int32))
    plain = FORMULAS[name](*case, each_once)
    assert set(weighted) == set(plain)
    for key, values in weighted.items():
        assert values.astype(float) == pytest.approx(
            weighting.defined([plain[key]] * 3), rel=1e-12, nan_ok=True
        ), key


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", FORMULAS)
def test_groups_that_are_drawn_give_what_their_images_give(case, name):
    groups = weighting.GroupWeights(
        np.random.default_rng(0).multinomial(4, [0.25] * 4, 20), np.arange(12) % 4
    )
    grouped, single = (
        FORMULAS[name](*case, lambda _, w=w: w) for w in (groups, groups.of_groups[:, groups.group])
    )
    # As many levels as there are different scores and correct detections: nothing is left out.
    for key, values in grouped.items():
        assert values == pytest.approx(single[key], nan_ok=True), key


@pytest.mark.parametrize("name", FORMULAS)
def test_memory_is_bounded_by_blocks_of_replicates_with_the_same_result(case, monkeypatch, name):
    draws = bootstrap.ImageDraws(IMAGES, replicates=30)
    before = FORMULAS[name](*case, draws.of)
    monkeypatch.setattr(weighting, "BLOCK", 500)
    assert len(list(weighting.blocks(30, len(case[1])))) > 1
    after = FORMULAS[name](*case, draws.of)
    for key, values in before.items():
        np.testing.assert_allclose(after[key], values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("aupr", ["step", "trapezoid"])
def test_weighted_ood_metrics_equal_those_of_the_drawn_images_written_out(case, aupr):
    _, regions, unknown, score = case
    inside, outside = ~unknown, unknown
    id_draws, ood_draws = (
        bootstrap.ImageDraws(IMAGES, 20, seed=0),
        bootstrap.ImageDraws(IMAGES, 20, seed=1),
    )
    rows = id_draws.rows(regions.image_id[inside]), ood_draws.rows(regions.image_id[outside])
    found = ood.evaluate(score[inside], score[outside], *rows, aupr=aupr)
    for replicate in range(20):
        sides = []
        for draws, side in ((id_draws, inside), (ood_draws, outside)):
            times = draws.weights[replicate][draws.places(regions.image_id[side])]
            sides.append(np.repeat(score[side], times))
        expected = ood.evaluate(*sides, aupr=aupr)
        assert {name: values[replicate] for name, values in found.items()} == pytest.approx(
            expected
        )


def test_separation_with_weights_of_one_of_groups_and_in_blocks_is_the_same(case, monkeypatch):
    _, regions, unknown, score = case
    images = np.searchsorted(IMAGES, regions.image_id.astype(str))
    inside, outside = score[~unknown], score[unknown]
    plain = ood.evaluate(inside, outside)
    ones = weighting.RowWeights(np.ones((3, len(IMAGES)), dtype=np.int32), images)
    for name, values in ood.evaluate(inside, outside, ones[~unknown], ones[unknown]).items():
        assert values == pytest.approx([plain[name]] * 3, rel=1e-12)
    drawn_groups = np.random.default_rng(0).multinomial(4, [0.25] * 4, 20)
    each = []
    for weights in (
        weighting.GroupWeights(drawn_groups, np.arange(12) % 4),
        drawn_groups[:, np.arange(12) % 4],
    ):
        rows = weighting.row_weights(weights, images, len(IMAGES))
        each.append(ood.evaluate(score, score**2, rows, rows))
    monkeypatch.setattr(weighting, "BLOCK", 500)
    each.append(ood.evaluate(score, score**2, rows, rows))
    for name, values in each[1].items():
        assert each[0][name] == pytest.approx(values)
        np.testing.assert_allclose(each[2][name], values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("grouped", [False, True])
def test_one_row_on_each_side_is_enough_and_a_side_without_rows_has_no_value(grouped):
    # 2 against 1; 0 against 1; a side of nothing.
    sides = np.array([[1, 0], [0, 1], [2, 1], [0, 0]]), np.array([[1, 0], [1, 0], [0, 0], [1, 1]])
    rows = (weighting.RowWeights(weights, np.arange(2), grouped) for weights in sides)
    found = ood.evaluate([2.0, 0.0], [1.0, 3.0], *rows)["auroc"]
    assert found == pytest.approx([1, 0, np.nan, np.nan], nan_ok=True)


def test_a_few_levels_give_fractions_near_those_of_all_regions(monkeypatch):
    monkeypatch.setattr(two_sides, "LEVELS", 8)
    for seed in range(20):
        random = np.random.default_rng(seed)
        inside, outside = random.normal(4, 1, 300), random.normal(0, 1, 300)  # an FPR95 of nearly 0
        drawn_groups = np.concatenate([weighting.once(6), random.multinomial(6, [1 / 6] * 6, 20)])
        groups, image = weighting.GroupWeights(drawn_groups, np.arange(6)), np.arange(300) % 6
        rows = (weighting.row_weights(of, image, 6) for of in (groups, groups.of_groups))
        found, expected = (ood.evaluate(inside, outside, of, of) for of in rows)
        for name, values in found.items():
            assert ((values >= 0) & (values <= 1)).all()
            np.testing.assert_allclose(values, expected[name], atol=0.1)
            assert values[0] == pytest.approx(expected[name][0])  # each image once


@pytest.mark.parametrize(("points", "near"), [(None, 1e-4), (11, 5e-4), (101, 1e-4)])
def test_many_true_regions_in_groups_have_nearly_the_average_precision_of_their_images(
    points, near
):
    random = np.random.default_rng(0)
    kind = np.where(
        random.random(4000) < np.linspace(0.9, 0.1, 4000), TRUE, FALSE
    )  # more true ones than levels
    kind[random.random(4000) < 0.1] = IGNORED
    groups = weighting.GroupWeights(random.multinomial(20, [1 / 20] * 20, 6), np.arange(200) % 20)
    image, positives = random.integers(0, 200, 4000), np.full(6, 2500)
    found, expected = (
        average_precision(kind, positives, points, weighting.row_weights(of, image, 200))
        for of in (groups, groups.of_groups[:, groups.group])
    )
    assert np.sum(kind == TRUE) > weighting.LEVELS
    np.testing.assert_allclose(found, expected, atol=near)


def test_many_regions_of_equal_score_are_counted_exactly():
    draws = bootstrap.ImageDraws(["a", "b"], replicates=3)
    rows = draws.rows(np.repeat(np.array(["a", "b"], dtype=object), 50_000))
    found = ood.evaluate(np.ones(len(rows)), np.ones(len(rows)), rows, rows)
    assert found["auroc"].tolist() == [0.5] * 3
    assert found["fpr95"].tolist() == [1.0] * 3


def test_the_drawn_images_can_be_written_out_for_any_metric(case):
    objects, regions, _, _ = case
    draws = bootstrap.ImageDraws(IMAGES, replicates=6)
    for replicate, weights in enumerate(draws.weights):
        expected, rows = drawn(regions, draws.names, weights)
        table, chosen = draws.written_out(replicate, regions)
        assert (chosen == rows).all()
        assert (table.image_id == expected.image_id).all()
        assert set(table.image_id) <= set(draws.drawn_names(replicate))
        assert (
            len(draws.written_out(replicate, objects)[0])
            == weights[draws.places(objects.image_id)].sum()
        )

    def of_replicate(compute):
        return bootstrap.recomputed(
            6,
            lambda replicate: compute(
                *(draws.written_out(replicate, table)[0] for table in (objects, regions))
            ),
        )

    known = closed_set.ClosedSet.of(objects, regions)
    found = of_replicate(closed_set.evaluate)
    assert found["ap"] == pytest.approx(
        closed_set.Matches.of(known).metrics(draws.of(known.images))["ap"]
    )
    assert "per_class" not in found
    lrp = of_replicate(self_awareness.evaluate)["lrp"]
    assert ((lrp > 0) & (lrp < 1)).all()


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    random = np.random.default_rng(0)
    held = 0
    for trial in range(200):
        hits = random.random(80) < 0.3
        draws = bootstrap.ImageDraws([str(number) for number in range(80)], 300, seed=trial)
        low, high = bootstrap.interval(draws.weights @ hits / 80)
        held += low <= 0.3 <= high
    assert 0.90 <= held / 200 <= 0.98


@pytest.mark.parametrize("count", [100, 101, 200, 1000])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_an_interval_is_that_of_numpy_to_the_last_bit(count, level):
    random = np.random.default_rng(count)
    plain = random.random(count)
    for values in (plain, np.round(plain, 1), random.normal(size=count) * 1e9):
        low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
        assert bootstrap.interval(values, level) == (low, high)
        with_undefined = np.append(values, np.nan)
        assert bootstrap.interval(with_undefined, level) == (low, high)


@pytest.mark.parametrize("images", [1, 12, 1000])
def test_a_share_of_none_or_all_has_the_exact_interval_of_a_proportion_of_images(images):
    for value in (0, 1):
        exact = binomtest(value * images, images).proportion_ci(0.95, method="exact")
        found = bootstrap.interval(np.full(200, float(value)), value=value, images=images)
        assert found == pytest.approx(tuple(exact))


def test_an_exact_interval_covers_the_share_of_clustered_objects():
    """Objects of one image share its outcome: their number is no sample size."""
    random = np.random.default_rng(0)
    share = 0.02
    covered = 0
    for _ in range(300):
        outcome_of_images = random.random(40) < share
        value = float(outcome_of_images.mean())  # five objects in each image
        draws = bootstrap.ImageDraws([str(n) for n in range(40)], 100)
        replicates = draws.weights @ outcome_of_images / 40
        interval = bootstrap.interval(replicates, value=value, images=40)
        if value == 0:
            covered += interval[0] <= share <= interval[1]
            assert interval[1] > 0.05
        else:
            covered += 1
    assert covered == 300


@pytest.mark.parametrize(
    ("values", "value", "reason"),
    [
        (np.linspace(0, 1, 99), 0.5, "fewer than 100 resamples"),
        (np.full(200, 0.674), 0.674, "the same in nearly all"),
        (np.r_[np.zeros(198), 1, 1], 0.0, "the same in nearly all"),
        (np.r_[np.full(110, np.nan), np.linspace(0, 1, 90)], 0.5, "not defined in most"),
        (np.linspace(0.4, 0.6, 200), 0.3, "does not contain it"),
    ],
)
def test_what_gives_no_interval_has_a_reason(values, value, reason):
    assert bootstrap.interval(values, value=value) is None
    assert reason in bootstrap.why_no_interval(values, value)


def test_what_has_an_interval_has_no_reason_for_none():
    values = np.linspace(0, 1, 200)
    low, high = bootstrap.interval(values, value=0.5)
    assert low < 0.5 < high
    assert bootstrap.why_no_interval(values, 0.5) == ""


def test_a_method_does_not_differ_from_itself_and_clearly_from_a_worse_one():
    random = np.random.default_rng(0)
    values = random.normal(0.7, 0.05, 500)
    same = bootstrap.compare(values, values)
    assert same == {"interval": None, "p": 1}
    worse = bootstrap.compare(values, values - random.uniform(0.009, 0.011, 500))
    # Paired: a small difference is clear although the values themselves vary more.
    assert worse["interval"] == pytest.approx((0.01, 0.01), abs=0.001)
    assert worse["p"] == pytest.approx(2 / 501)
    assert bootstrap.compare(values, random.permutation(values))["p"] > 0.5


def test_replicates_that_differ_by_round_off_are_ties():
    first = np.repeat([0.1 + 0.2, 0.9], 100)
    second = np.repeat([0.3, 0.8], 100)
    compared = bootstrap.compare(first, second)
    assert compared["p"] > 0.9
    assert compared["interval"][0] == 0


def test_the_same_seed_gives_the_same_draws_of_as_many_images_as_there_are():
    first, second = bootstrap.ImageDraws(IMAGES, 50), bootstrap.ImageDraws(reversed(IMAGES), 50)
    assert (first.weights == second.weights).all()
    assert (first.weights.sum(axis=1) == len(IMAGES)).all()
    assert (first.weights != bootstrap.ImageDraws(IMAGES, 50, seed=1).weights).any()


def test_images_beyond_the_limit_are_drawn_in_groups_whose_intervals_are_as_wide():
    images = [f"{number:05d}" for number in range(5_000)]
    values = np.random.default_rng(0).normal(size=5_000)
    single, grouped = (
        bootstrap.ImageDraws(images, 2_000, seed=1, max_images=most) for most in (5_000, 4_999)
    )
    assert grouped.facts() == {"drawn": "groups of images", "units": 1_024, "replicates": 2_000}
    assert single.facts()["drawn"] == "images"
    first, second = (
        draws.of(np.array(images, dtype=object)) @ values for draws in (single, grouped)
    )
    # Standard errors of 1.6% from the replicates of either side and 2.2% from the groups.
    assert np.std(second) / np.std(first) == pytest.approx(1, abs=0.1)


def test_what_is_not_defined_is_nan_and_has_no_interval(objects, regions):
    draws = bootstrap.ImageDraws(IMAGES, 5)
    nothing = draws.rows(np.zeros(0, dtype=object))
    found = ood.evaluate(np.zeros(0), np.zeros(0), nothing, nothing)
    assert bootstrap.interval(found["auroc"]) is None
    assert bootstrap.compare(found["auroc"], found["auroc"]) == {"interval": None, "p": None}
    outcome = OpenSetSplit.of(objects(), regions(), MatchingRules(known_classes=("cat",))).match(
        np.zeros(0, bool)
    )
    none = draws.of(outcome.split.images)
    assert np.isnan(open_set.metrics(outcome, weights=none)["ap_u"]).all()
    assert np.isnan(
        closed_set.Matches.of(closed_set.ClosedSet.of(objects(), regions())).metrics(none)["ap"]
    ).all()
    assert open_set.by_group(outcome, np.zeros(0, dtype=object), none) == {}
    known = known_classes.metrics(outcome, regions(), weights=none)
    assert np.isnan(list(known.values())).all()


def test_wrong_inputs_are_refused(case):
    _, regions, _, score = case
    with pytest.raises(ParameterError, match="found 0"):
        bootstrap.ImageDraws(IMAGES, 0)
    with pytest.raises(DataError, match="'011' is not one of the images"):
        bootstrap.ImageDraws(IMAGES[:-1], 5).places(regions.image_id)
    with pytest.raises(ParameterError, match="same number of replicates"):
        few, many = bootstrap.ImageDraws(IMAGES, 5), bootstrap.ImageDraws(IMAGES, 6)
        ood.evaluate(score, score, few.rows(regions.image_id), many.rows(regions.image_id))
    with pytest.raises(ParameterError, match="same draws"):
        bootstrap.compare(np.zeros(3), np.zeros(4))
    with pytest.raises(ParameterError, match="level"):
        bootstrap.interval(np.zeros(3), 1.0)
