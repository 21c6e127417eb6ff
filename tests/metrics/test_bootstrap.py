"""The bootstrap over images."""

import numpy as np
import pytest

from farther.errors import DataError, ParameterError
from farther.metrics import (
    bootstrap,
    bootstrap_closed,
    bootstrap_known,
    closed_set,
    ood,
    open_set,
    self_awareness,
    wilderness,
)

IMAGES = [f"{number:03d}" for number in range(12)]


def drawn(table, images, weights, unique=None):
    """The table of a replicate, written out: each image as often as it was drawn, under a name of its own."""
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
    # Where confidences are equal, the order of the rows decides, which is another one when images are written out.
    score = np.float32(0.5 + np.random.default_rng(0).permutation(len(regions)) / 500)
    regions = regions.with_columns(score=score, logits=np.stack([np.log(score), np.log(1 - score)], axis=1))
    unknown = np.random.default_rng(1).random(len(regions)) < 0.5
    return objects, regions, unknown, np.random.default_rng(2).normal(size=len(regions)).round(1)


@pytest.mark.parametrize("protocol", ["paper", "published-code"])
def test_weighted_open_set_figures_equal_those_of_the_drawn_images_written_out(case, protocol):
    objects, regions, unknown, score = case
    draws = bootstrap.ImageDraws(IMAGES, replicates=20)
    outcome = open_set.Split(objects, regions, protocol=protocol).judge(unknown)
    found = bootstrap.open_set_figures(draws, outcome, -score)
    for replicate, weights in enumerate(draws.weights):
        truth, _ = drawn(objects, draws.names, weights, "object_id")
        detections, rows = drawn(regions, draws.names, weights)
        expected = open_set.evaluate(truth, detections, unknown[rows], protocol=protocol, unknown_score=-score[rows])
        assert {name: values[replicate] for name, values in found.items()} == pytest.approx(
            {name: expected[name] for name in found}
        )


def test_weighted_figures_of_groups_and_over_ious_equal_those_of_the_drawn_images_written_out(case):
    objects, regions, unknown, score = case
    draws = bootstrap.ImageDraws(IMAGES, replicates=8)
    split = open_set.Split(objects, regions)
    outcome = split.judge(unknown)
    by_category = bootstrap.group_figures(draws, outcome, objects.category)
    by_size = bootstrap.group_figures(draws, outcome, split.sizes())
    over = bootstrap.open_set_figures_over(draws, split, [0.5, 0.75], unknown, -score)
    for replicate, weights in enumerate(draws.weights):
        truth, _ = drawn(objects, draws.names, weights, "object_id")
        detections, rows = drawn(regions, draws.names, weights)
        again = open_set.Split(truth, detections)
        expected = again.judge(unknown[rows])
        for found, groups in ((by_category, expected.by_category()), (by_size, expected.by_size())):
            for group, figures in groups.items():
                assert {name: values[replicate] for name, values in found[group].items()} == pytest.approx(figures)
        means = again.figures_over([0.5, 0.75], unknown[rows], -score[rows])
        assert {name: values[replicate] for name, values in over.items()} == pytest.approx(means)


@pytest.mark.parametrize("recall", [0.2, 0.8])
def test_weighted_figures_of_known_classes_equal_those_of_the_drawn_images_written_out(case, recall):
    objects, regions, unknown, score = case
    unknown = unknown & (np.arange(len(unknown)) % 4 == 0)  # most are kept
    draws = bootstrap.ImageDraws(IMAGES, replicates=20)
    classes = ("cat",)  # dogs are unknown
    found = bootstrap_known.known_figures(
        draws, objects, regions, unknown, classes, recall=recall, unknown_score=-score
    )
    for replicate, weights in enumerate(draws.weights):
        truth, _ = drawn(objects, draws.names, weights, "object_id")
        detections, rows = drawn(regions, draws.names, weights)
        arguments = (truth, detections, unknown[rows], classes)
        expected = open_set.evaluate_known(*arguments, recall=recall, unknown_score=-score[rows])
        given = {name: np.nan if value is None else value for name, value in expected.items()}
        assert {name: values[replicate] for name, values in found.items()} == pytest.approx(given, nan_ok=True)


def test_weighted_closed_set_figures_equal_those_of_the_drawn_images_written_out(case):
    objects, regions, _, _ = case
    draws = bootstrap.ImageDraws(IMAGES, replicates=10)
    found = bootstrap_closed.closed_set_figures(draws, closed_set.Labelled(objects, regions))
    for replicate, weights in enumerate(draws.weights):
        truth, _ = drawn(objects, draws.names, weights, "object_id")
        expected = closed_set.evaluate(truth, drawn(regions, draws.names, weights)[0])
        assert len(found) == 12
        assert {name: values[replicate] for name, values in found.items()} == pytest.approx(
            {name: expected[name] for name in found}
        )


def test_weighted_ood_figures_equal_those_of_the_drawn_images_written_out(case):
    _, regions, unknown, score = case
    inside, outside = ~unknown, unknown
    id_draws, ood_draws = bootstrap.ImageDraws(IMAGES, 20, seed=0), bootstrap.ImageDraws(IMAGES, 20, seed=1)
    found = bootstrap.ood_figures(
        id_draws, regions.image_id[inside], score[inside], ood_draws, regions.image_id[outside], score[outside]
    )
    for replicate in range(20):
        sides = []
        for draws, side in ((id_draws, inside), (ood_draws, outside)):
            times = draws.weights[replicate][draws.places(regions.image_id[side])]
            sides.append(np.repeat(score[side], times))
        assert {name: values[replicate] for name, values in found.items()} == pytest.approx(ood.evaluate(*sides))


def test_many_regions_of_equal_score_are_counted_exactly():
    draws = bootstrap.ImageDraws(["a", "b"], replicates=3)
    image = np.repeat(np.array(["a", "b"], dtype=object), 50_000)
    found = bootstrap.ood_figures(draws, image, np.ones(len(image)), draws, image, np.ones(len(image)))
    assert found["auroc"].tolist() == [0.5] * 3
    assert found["fpr95"].tolist() == [1.0] * 3


def test_memory_is_bounded_by_blocks_of_replicates_with_the_same_result(case, monkeypatch):
    objects, regions, unknown, score = case
    draws = bootstrap.ImageDraws(IMAGES, replicates=30)
    outcome = open_set.Split(objects, regions).judge(unknown)
    before = bootstrap.open_set_figures(draws, outcome)
    both = (draws, regions.image_id, score) * 2
    before_ood = bootstrap.ood_figures(*both)
    monkeypatch.setattr(bootstrap, "BLOCK", 500)
    assert len(list(draws.blocks(len(regions)))) > 1
    after, after_ood = bootstrap.open_set_figures(draws, outcome), bootstrap.ood_figures(*both)
    assert all((before[name] == after[name]).all() for name in before)
    assert all((before_ood[name] == after_ood[name]).all() for name in before_ood)


def test_the_drawn_images_can_be_written_out_for_any_figure(case):
    objects, regions, _, _ = case
    draws = bootstrap.ImageDraws(IMAGES, replicates=6)
    for replicate, weights in enumerate(draws.weights):
        expected, rows = drawn(regions, draws.names, weights)
        table, chosen = draws.written_out(replicate, regions)
        assert (chosen == rows).all()
        assert (table.image_id == expected.image_id).all()
        assert len(draws.written_out(replicate, objects)[0]) == weights[draws.places(objects.image_id)].sum()
    found = bootstrap.figures_of(draws, objects, regions, lambda o, r: closed_set.evaluate(o, r))
    expected = bootstrap_closed.closed_set_figures(draws, closed_set.Labelled(objects, regions))
    assert found["ap"] == pytest.approx(expected["ap"])
    assert "per_class" not in found
    lrp = bootstrap.figures_of(draws, objects, regions, self_awareness.evaluate)["lrp"]
    assert ((lrp > 0) & (lrp < 1)).all()


def test_wilderness_figures_equal_those_of_the_drawn_images_written_out(case, world):
    objects, regions, _, _ = case
    _, others = world(6, images=20)
    wild_images = [f"{number:03d}" for number in range(20)]
    closed = bootstrap.ImageDraws(IMAGES, 4)
    wild = bootstrap.ImageDraws(wild_images, 4, seed=1)
    found = bootstrap.wilderness_figures(closed, objects, regions, wild, others, recalls=(0.3,))
    for replicate in range(4):
        images = [
            f"{name}#{k}" for name, n in zip(closed.names, closed.weights[replicate], strict=True) for k in range(n)
        ]
        outside = [f"{name}#{k}" for name, n in zip(wild.names, wild.weights[replicate], strict=True) for k in range(n)]
        truth, _ = drawn(objects, closed.names, closed.weights[replicate], "object_id")
        detections, _ = drawn(regions, closed.names, closed.weights[replicate])
        wrong, _ = drawn(others, wild.names, wild.weights[replicate])
        made = wilderness.evaluate(truth, detections, images, wrong, outside, recalls=(0.3,))
        assert found["map_open"][replicate] == pytest.approx(made["map_open"])
        assert found["average_impact@0.3"][replicate] == pytest.approx(made["at_recall"]["0.3"]["average_impact"])
    with pytest.raises(ParameterError, match="same number of replicates"):
        bootstrap.wilderness_figures(closed, objects, regions, bootstrap.ImageDraws(wild_images, 5), others)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    random = np.random.default_rng(0)
    held = 0
    for trial in range(200):
        hits = random.random(80) < 0.3
        draws = bootstrap.ImageDraws([str(number) for number in range(80)], 300, seed=trial)
        low, high = bootstrap.interval(draws.weights @ hits / 80)
        held += low <= 0.3 <= high
    assert 0.90 <= held / 200 <= 0.98


def test_a_method_does_not_differ_from_itself_and_clearly_from_a_worse_one():
    random = np.random.default_rng(0)
    figure = random.normal(0.7, 0.05, 500)
    same = bootstrap.compare(figure, figure)
    assert same == {"interval": (0, 0), "p": 1}
    worse = bootstrap.compare(figure, figure - 0.01)
    # Paired: a small difference is clear although the figures themselves vary more.
    assert worse["interval"] == pytest.approx((0.01, 0.01))
    assert worse["p"] == pytest.approx(2 / 501)
    assert bootstrap.compare(figure, random.permutation(figure))["p"] > 0.5


def test_the_same_seed_gives_the_same_draws_of_as_many_images_as_there_are():
    first, second = bootstrap.ImageDraws(IMAGES, 50), bootstrap.ImageDraws(reversed(IMAGES), 50)
    assert (first.weights == second.weights).all()
    assert (first.weights.sum(axis=1) == len(IMAGES)).all()
    assert (first.weights != bootstrap.ImageDraws(IMAGES, 50, seed=1).weights).any()


def test_what_cannot_be_computed_is_none(objects, regions):
    draws = bootstrap.ImageDraws(IMAGES, 5)
    nothing = np.zeros(0, dtype=object)
    found = bootstrap.ood_figures(draws, nothing, np.zeros(0), draws, nothing, np.zeros(0))
    assert bootstrap.interval(found["auroc"]) is None
    assert bootstrap.compare(found["auroc"], found["auroc"]) == {"interval": None, "p": None}
    outcome = open_set.Split(objects(), regions()).judge(np.zeros(0, bool))
    assert np.isnan(bootstrap.open_set_figures(draws, outcome)["ap_u"]).all()
    empty = bootstrap_closed.closed_set_figures(draws, closed_set.Labelled(objects(), regions()))
    assert np.isnan(empty["ap"]).all()
    assert bootstrap.group_figures(draws, outcome, np.zeros(0, dtype=object)) == {}
    known = bootstrap_known.known_figures(draws, objects(), regions(), np.zeros(0, bool), ("cat",))
    assert np.isnan(list(known.values())).all()


def test_wrong_inputs_are_refused(case):
    _, regions, _, score = case
    with pytest.raises(ParameterError, match="found 0"):
        bootstrap.ImageDraws(IMAGES, 0)
    with pytest.raises(DataError, match="'011' is none of the images"):
        bootstrap.ImageDraws(IMAGES[:-1], 5).places(regions.image_id)
    with pytest.raises(ParameterError, match="same number of replicates"):
        few, many = bootstrap.ImageDraws(IMAGES, 5), bootstrap.ImageDraws(IMAGES, 6)
        bootstrap.ood_figures(few, regions.image_id, score, many, regions.image_id, score)
    with pytest.raises(ParameterError, match="same draws"):
        bootstrap.compare(np.zeros(3), np.zeros(4))
    with pytest.raises(ParameterError, match="level"):
        bootstrap.interval(np.zeros(3), 1.0)
