"""SAFE: a network of clean against perturbed regions."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from farther import methods
from farther.methods import FitError
from farther.tables import Regions


def fitted(make, shift=4.0, **params):
    clean, moved = make(200, seed=1), make(200, seed=1, shift=shift)
    safe = methods.create("safe", **{"epochs": 40, "seed": 3, **params}).fit(clean)
    safe.learn_pass(clean, moved)
    return safe


@pytest.mark.parametrize("activation", ["relu", "identity"])
def test_regions_further_along_the_step_than_the_negatives_score_lower(make, activation):
    safe = fitted(make, activation=activation)
    clean, far = safe.score(make(seed=2)), safe.score(make(seed=3, shift=8.0))
    assert roc_auc_score([1] * len(clean) + [0] * len(far), np.concatenate([clean, far])) > 0.95
    assert clean.mean() > 0 > far.mean()


def test_the_score_is_the_log_odds_of_the_stored_network(make):
    safe, test = fitted(make, hidden=(7, 5)), make(seed=2)
    assert safe.sizes_ == [16, 7, 5, 1]
    layers, parts = [], np.split(safe.weights_, np.cumsum([16 * 7, 7, 7 * 5, 5, 5 * 1]))
    for inputs, outputs, weight, bias in zip(
        (16, 7, 5), (7, 5, 1), parts[::2], parts[1::2], strict=True
    ):
        layer = torch.nn.Linear(inputs, outputs)
        layer.weight.data, layer.bias.data = (
            torch.tensor(weight.reshape(inputs, outputs).T),
            torch.tensor(bias),
        )
        layers += [layer, torch.nn.ReLU()]
    train = make(200, seed=1).latent
    inputs = (test.latent - train.mean(axis=0)) / train.std(axis=0)
    with torch.inference_mode():
        expected = torch.nn.Sequential(*layers[:-1])(torch.tensor(inputs))[:, 0]
    np.testing.assert_allclose(safe.score(test), expected, rtol=1e-3, atol=1e-4)


def test_without_functions_between_its_layers_the_network_is_linear(make):
    safe, test = fitted(make, activation="identity"), make(90, seed=2)
    a, b = test.latent[:30], test.latent[30:60]
    mean = Regions(header=test.header, **{**test[:30].columns(), "latent": (a + b) / 2})
    np.testing.assert_allclose(
        safe.score(mean), (safe.score(test[:30]) + safe.score(test[30:60])) / 2, atol=1e-5
    )


def test_a_loaded_one_scores_alike_and_seeds_give_the_same_files(make, tmp_path):
    fitted(make).save(tmp_path / "a")
    fitted(make).save(tmp_path / "b")
    for file in ("method.json", "state.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    test = make(seed=2)
    np.testing.assert_allclose(
        methods.load(tmp_path / "a").score(test), fitted(make).score(test), rtol=1e-9
    )
    assert not np.array_equal(fitted(make, seed=4).score(test), fitted(make).score(test))


def test_several_layers_are_read_side_by_side(make):
    def layered(regions):
        both = regions.latent
        changed = {"latent.a": both[:, :6], "latent.b": both[:, 6:], "latent": both[:, ::-1]}
        return Regions(header=regions.header, **{**regions.columns(), **changed})

    clean, moved, test = make(200, seed=1), make(200, seed=1, shift=4.0), make(seed=2)
    safe = methods.create("safe", layer=("a", "b"), epochs=40, seed=3).fit(layered(clean))
    safe.learn_pass(layered(clean), layered(moved))
    np.testing.assert_array_equal(safe.score(layered(test)), fitted(make).score(test))


def test_it_learns_from_a_sample(make):
    assert not np.array_equal(
        fitted(make, sample=50).score(make(seed=2)), fitted(make).score(make(seed=2))
    )


def test_what_it_lacks_is_said(make):
    clean = make(seed=1)
    safe = methods.create("safe", negatives="fgsm").fit(clean)
    with pytest.raises(FitError, match="learns from the pass 'fgsm' too: call learn_pass"):
        safe.score(clean)
    with pytest.raises(FitError, match="the regions of the pass 'fgsm' are those of the run"):
        safe.learn_pass(clean, clean)
    columns = clean.columns()
    del columns["latent"]
    with pytest.raises(FitError, match="the pass 'fgsm' lacks latent"):
        safe.learn_pass(clean, Regions(header=clean.header, **columns))
