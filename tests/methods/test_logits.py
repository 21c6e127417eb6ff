"""The one rule for background columns and sigmoid heads."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from farther import methods
from farther.methods.logits import class_logits, energy, log_sum_exp
from farther.metrics import ood
from farther.tables import Regions

ROOT = Path(__file__).parents[2]
SOFTMAX_OF_1_2 = np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum()


def one_region(logits: list[float], label: int = 0, **header) -> Regions:
    return Regions(
        image_id=["image"],
        region_id=[0],
        box=[[0, 0, 1, 1]],
        score=[0.5],
        label=[label],
        logits=np.array([logits], np.float32),
        **header,
    )


def test_the_background_column_is_left_out_by_default():
    regions = one_region([1.0, 2.0, 9.0], background_index=2)
    assert methods.create("msp").score(regions) == pytest.approx(SOFTMAX_OF_1_2.max())
    assert methods.create("energy").score(regions) == pytest.approx(
        np.log(np.exp([1.0, 2.0]).sum())
    )


def test_the_background_column_may_stand_anywhere():
    first = one_region([9.0, 1.0, 2.0], label=2, background_index=0)
    assert methods.create("msp").score(first) == pytest.approx(SOFTMAX_OF_1_2.max())


def test_a_kept_background_column_is_one_more_class():
    regions = one_region([1.0, 2.0, 9.0], background_index=2)
    expected = np.log(np.exp([1.0, 2.0, 9.0]).sum())
    assert methods.create("energy", background="keep").score(regions) == pytest.approx(expected)


def test_a_head_without_background_keeps_all_columns_either_way():
    regions = one_region([1.0, 2.0])
    for background in ("drop", "keep"):
        assert methods.create("msp", background=background).score(regions) == pytest.approx(
            SOFTMAX_OF_1_2.max()
        )


def test_sigmoid_heads_get_a_softmax_as_in_the_published_code():
    regions = one_region([1.0, 2.0], activation="sigmoid")
    assert methods.create("msp").score(regions) == pytest.approx(SOFTMAX_OF_1_2.max())


def test_sigmoid_heads_may_be_taken_at_their_word():
    regions = one_region([0.0, np.log(3.0)], activation="sigmoid")  # probabilities ½ and ¾
    params: dict[str, dict] = {
        "msp": {},
        "energy": {},
        "gen": {},
        "temperature_scaling": {"temperature": 1000.0},
    }
    scores = {
        n: methods.create(n, activation="detector", **p).score(regions)[0]
        for n, p in params.items()
    }
    assert scores["msp"] == pytest.approx(0.75)
    assert scores["temperature_scaling"] == pytest.approx(1 / (1 + 3 ** (-1 / 1000)))
    assert scores["energy"] == pytest.approx(np.log(2.0) + np.log(4.0))
    assert scores["gen"] == pytest.approx(-(np.sqrt(1 / 4) + np.sqrt(3 / 16)))


def test_stored_logarithms_of_sigmoids_are_logits_to_a_softmax():
    """The published MSP of YOLOv8: the softmax of log p is p / Σ p."""
    regions = one_region(np.log([0.5, 0.75]), activation="exp")
    assert methods.create("msp").score(regions) == pytest.approx(0.75 / 1.25)
    assert methods.create("energy").score(regions) == pytest.approx(np.log(1.25))


@pytest.mark.parametrize("name", ["msp", "energy", "gen", "entropy"])
def test_stored_logarithms_of_sigmoids_taken_at_their_word_give_the_scores_of_the_logits(name):
    logits = np.array([-60.0, -2.0, 0.0, 3.0, 40.0])
    method = methods.create(name, activation="detector")
    expected = method.score(one_region(logits, activation="sigmoid"))
    stored = one_region(-np.logaddexp(0, -logits), activation="exp")
    assert method.score(stored) == pytest.approx(expected, rel=1e-5)


def test_softmax_heads_stay_softmax_when_taken_at_their_word():
    regions = one_region([1.0, 2.0])
    assert methods.create("msp", activation="detector").score(regions) == pytest.approx(
        SOFTMAX_OF_1_2.max()
    )


def test_a_sure_sigmoid_probability_keeps_its_digits():
    regions = one_region([50.0], activation="sigmoid")
    found = methods.create("gen", gamma=1.0, activation="detector").score(regions)
    assert found == pytest.approx(-np.exp(-50.0), rel=1e-6)


@pytest.mark.parametrize("largest", [0.0, 499.0, 501.0, 1e4, 1e300])
def test_the_logarithm_of_summed_exponentials_is_that_of_scipy_however_large_they_are(largest):
    from scipy.special import logsumexp

    values = np.random.default_rng(0).normal(scale=3, size=(50, 7))
    for extreme in (largest, -largest):
        values[:10] = extreme
        values[10:20, 0] = extreme
        np.testing.assert_allclose(log_sum_exp(values), logsumexp(values, axis=1), rtol=1e-13)
        np.testing.assert_allclose(
            log_sum_exp(np.asfortranarray(values)), logsumexp(values, axis=1), rtol=1e-13
        )
    assert log_sum_exp(values[:0]).shape == (0,)


@pytest.mark.parametrize("background", ["drop", "keep"])
def test_energies_are_those_of_the_logits_that_count(make, background):
    regions = make(40, background=True, seed=3)
    np.testing.assert_allclose(
        energy(regions, background), log_sum_exp(class_logits(regions, background)), rtol=1e-14
    )


@pytest.mark.parametrize("profile", ["realistic-wordnet", "realistic-facets"])
def test_the_temperature_of_the_realistic_profiles_ranks_as_the_largest_logit(profile):
    # Recalcati et al., Table VI: AUROC of TS and of MLV agree within 0.02 points in all rows, and
    # MSP's is another.
    settings = yaml.safe_load((ROOT / f"profiles/{profile}.yaml").read_text())["methods"][
        "temperature_scaling"
    ]
    random = np.random.default_rng(0)
    id_logits = random.normal(size=(400, 365))
    id_logits[np.arange(400), random.integers(0, 365, 400)] += random.uniform(3, 9, 400)
    ood_logits = random.normal(size=(400, 365))
    for _ in range(5):  # several classes are likely, as of a near scene
        ood_logits[np.arange(400), random.integers(0, 365, 400)] += random.uniform(2, 8, 400)

    # The mean logit of a network hardly differs between images.
    id_logits -= id_logits.mean(axis=1, keepdims=True)
    ood_logits -= ood_logits.mean(axis=1, keepdims=True)

    def auroc(name, **parameters):
        method = methods.create(name, **parameters)
        return ood.auroc(*(method.score(of_logits(logits)) for logits in (id_logits, ood_logits)))

    assert auroc("temperature_scaling", **settings) == pytest.approx(auroc("mls"), abs=0.0002)
    assert abs(auroc("msp") - auroc("mls")) > 0.02


def of_logits(logits: np.ndarray) -> Regions:
    count, classes = logits.shape
    return Regions(
        image_id=[str(number) for number in range(count)],
        region_id=np.zeros(count, np.int64),
        box=np.tile([0, 0, 1, 1], (count, 1)),
        score=np.full(count, 0.5),
        label=logits.argmax(axis=1),
        logits=logits.astype(np.float32),
        classes=tuple(f"scene {number}" for number in range(classes)),
    )
