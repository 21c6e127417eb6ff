"""Each score against another library's, or against its formula written out for one region at a time."""

import numpy as np
import pytest
import torch
from pytorch_ood import detector as peer

from farther import methods
from farther.tables import Regions

RTOL = 1e-5


@pytest.fixture(autouse=True)
def _double_precision():
    """The peers compute in torch's default type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def tensors(regions: Regions) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, labels and logits in double precision."""
    return (
        torch.from_numpy(regions.features.astype(np.float64)),
        torch.from_numpy(regions.label.astype(np.int64)),
        torch.from_numpy(regions.logits.astype(np.float64)),
    )


def logits_only(logits: np.ndarray, **header) -> Regions:
    count = len(logits)
    return Regions(
        image_id=["image"] * count,
        region_id=np.arange(count),
        box=np.zeros((count, 4)),
        score=np.ones(count),
        label=logits.argmax(axis=1),
        logits=logits,
        **header,
    )


def agrees(name, make, outlier_scores, **params) -> None:
    """The score of `name` is minus the peer's outlier score, which `outlier_scores(train, test)` computes."""
    train, test = make(400, seed=1), make(100, seed=2, shift=1.0)
    found = methods.create(name, **params).fit(train).score(test)
    np.testing.assert_allclose(found, -np.asarray(outlier_scores(train, test), np.float64), rtol=RTOL)


def test_msp_is_that_of_pytorch_ood(make):
    agrees("msp", make, lambda _, test: peer.MaxSoftmax(None).predict_logits(tensors(test)[2]))


def test_energy_is_that_of_pytorch_ood(make):
    for t in (1.0, 2.5):
        agrees("energy", make, lambda _, test, t=t: peer.EnergyBased.score(tensors(test)[2], t=t), temperature=t)


@pytest.mark.parametrize(("params", "gamma"), [({}, 0.5), ({"protocol": "published-code"}, 0.1), ({"gamma": 0.3}, 0.3)])
@pytest.mark.parametrize("m", [5, 3])
def test_gen_is_that_of_pytorch_ood(make, params, gamma, m):
    test = make(100, seed=2)
    logits = test.logits / 5  # the peer clamps probabilities at 1e-7
    unsure = Regions(header=test.header, **{**test.columns(), "logits": logits})
    # the peer takes the mean of the terms, the paper their sum
    expected = -m * peer.GEN.score(torch.from_numpy(logits.astype(np.float64)), gamma=gamma, M=m)
    np.testing.assert_allclose(methods.create("gen", m=m, **params).score(unsure), expected, rtol=RTOL)


def test_gen_still_ranks_regions_whose_probability_rounds_to_one():
    logits = np.array([[50.0, 0.0], [60.0, 0.0]], np.float32)
    scores = methods.create("gen").score(logits_only(logits))
    # (p (1 − p))^½ with 1 − p = e^−50, e^−60
    np.testing.assert_allclose(scores, [-2 * np.exp(-25.0), -2 * np.exp(-30.0)], rtol=RTOL)


@pytest.mark.parametrize(("protocol", "power"), [("paper", 1), ("published-code", 2)])
def test_knn_is_that_of_pytorch_ood(make, protocol, power):
    def distances(train, test):
        fitted = peer.KNN(None, k=7).fit_features(*tensors(train)[:2])
        return fitted.predict_features(tensors(test)[0]) ** power

    agrees("knn", make, distances, k=7, protocol=protocol)


def test_knn_without_faiss_finds_the_same(make, monkeypatch):
    train, test = make(400, seed=1), make(100, seed=2, shift=1.0)
    with_faiss = methods.create("knn", k=7).fit(train).score(test)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("farther.methods.neighbours.BLOCK", 1000)  # two rows at a time
    np.testing.assert_allclose(methods.create("knn", k=7).fit(train).score(test), with_faiss, rtol=1e-6)


def test_mahalanobis_is_that_of_pytorch_ood_but_for_its_scale(make):
    def distances(train, test):
        fitted = peer.Mahalanobis(None).fit_features(*tensors(train)[:2])
        # it neither divides the covariance by N nor leaves out the factor ½
        return fitted.predict_features(tensors(test)[0]) * 2 * len(train)

    agrees("mahalanobis", make, distances)


def test_mahalanobis_with_a_singular_covariance_is_that_of_scikit_learn(make):
    from sklearn.covariance import EmpiricalCovariance

    train, test = make(20, classes=1, dimensions=32, seed=1), make(30, classes=1, dimensions=32, seed=2)
    fitted = EmpiricalCovariance().fit(train.features.astype(np.float64))
    found = methods.create("mahalanobis").fit(train).score(test)
    np.testing.assert_allclose(found, -fitted.mahalanobis(test.features.astype(np.float64)), rtol=RTOL)
