"""Scores that OpenOOD and pytorch-ood have, by hand and beside gradients and loops."""

import numpy as np
import pytest
import torch
from pytorch_ood import detector as peer
from pytorch_ood.detector import nac
from tests.methods.test_formulas import VOS_HEAD, head, tensors

from farther import methods
from farther.errors import ParameterError
from farther.methods import FitError
from farther.methods.cf_ood import neighbourhoods
from farther.methods.examples import toy_regions
from farther.tables import Regions

RTOL = 1e-9


@pytest.fixture(autouse=True)
def _double_precision():
    """The peers compute in torch's default type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def unsure(regions: Regions) -> Regions:
    """Regions with a fourth of the features, so that no probability is rounding only."""
    features = regions.features / 4
    logits = features @ regions.weight.T + regions.bias
    columns = {**regions.columns(), "features": features, "logits": logits}
    return Regions(header=regions.header, **columns)


# --------------------------------------------------------------------------------------------------
# LTS


def test_lts_counts_negative_activations_as_zero():
    # Of three activations one is among the largest half: (3 + 1) / 3, squared.
    regions = toy_regions(features=[[3.0, 1.0, -8.0]], logits=[[9.0, -1000.0, -1000.0]])
    np.testing.assert_allclose(methods.create("lts", percentile=50).score(regions), [16.0])


def test_lts_leaves_logits_alone_where_no_activation_is_positive():
    regions = toy_regions(features=[[0.0, -1.0]], logits=[[2.0, -1000.0]])
    np.testing.assert_allclose(methods.create("lts").score(regions), [2.0])


# --------------------------------------------------------------------------------------------------
# AdaSCALE


@pytest.mark.parametrize("scaled", ["activations", "logits"])
def test_adascale_is_its_formula_for_one_region_at_a_time(make, scaled):
    rng = np.random.default_rng(3)
    moved = []
    for regions in (make(60, seed=1, dimensions=40), make(20, seed=2, dimensions=40, shift=2.0)):
        before = unsure(regions).features
        after = before + rng.normal(scale=0.1, size=before.shape).astype(np.float32)
        columns = {**regions.columns(), "features": after, "latent.before": before}
        moved.append(Regions(header=regions.header, **columns))
    train, test = moved
    weight, bias = train.weight.astype(np.float64), train.bias.astype(np.float64)

    def shift(before: np.ndarray, after: np.ndarray) -> float:
        order = np.argsort(-before)  # 10% and 5% of 40
        active = np.maximum(after[order[:4]], 0).sum()
        return active + 3 * np.abs(before - after)[order[:2]].sum()

    def pairs(regions: Regions):
        before = regions.array("latent.before").astype(np.float64)
        return list(zip(before, regions.features.astype(np.float64), strict=True))

    of_training = np.array([shift(*pair) for pair in pairs(train)])
    expected = []
    percentages = set()
    for before, after in pairs(test):
        percent = 60 + 30 * (1 - np.mean(of_training <= shift(before, after)))
        percentages.add(percent)
        count = 40 - round(40 * percent / 100)
        positive = np.sort(np.maximum(before, 0))[::-1]
        ratio = positive.sum() / positive[:count].sum()
        if scaled == "activations":
            z = weight @ (before * np.exp(ratio)) + bias
        else:
            z = (weight @ before + bias) * ratio**2
        expected.append(np.log(np.exp(z - z.max()).sum()) + z.max())
    assert len(percentages) > 5
    params = {"lowest": 60, "highest": 90, "k1": 10, "k2": 5, "weight": 3, "scaled": scaled}
    method = methods.create("adascale", **params).fit(train)
    np.testing.assert_allclose(method.score(test), expected, rtol=RTOL)
    np.testing.assert_allclose(method.to_torch().score_regions(test), expected, rtol=RTOL)


# --------------------------------------------------------------------------------------------------
# NCI, pNML, GradUncertainty, weighted energy


def test_nci_takes_the_weights_of_the_predicted_class():
    weight = np.array([[2.0, 0.0], [0.0, 1.0]])
    train = toy_regions(features=[[1.0, 1.0]], weight=weight, bias=np.zeros(2))
    test = toy_regions(features=[[1.0, 4.0]], weight=weight, bias=np.zeros(2))
    # Logits 2 and 4; h − μ is (0, 3), so (0, 1) · (0, 1) + 0.5 · 5.
    np.testing.assert_allclose(methods.create("nci", alpha=0.5).fit(train).score(test), [3.5])


def test_pnml_is_zero_where_no_label_could_be_learned():
    # All training features lie on the first axis; the other directions count as seen a lot.
    train = toy_regions(features=[[1.0, 0.0]] * 3)
    fitted = methods.create("pnml").fit(train)
    # p = (e, 1) / (e + 1) and s = 1 / (1 + 1/3) along the axis.
    p = np.array([np.e, 1.0]) / (np.e + 1)
    learned = p / (p + (1 - p) * p**0.25)
    expected = -np.log(learned.sum()) / np.log(2)
    np.testing.assert_allclose(fitted.score(toy_regions(features=[[7.0, 0.0]])), [expected])


def test_pnml_of_certain_regions_is_a_number():
    weight = np.array([[1000.0, 0.0], [0.0, 1000.0]])
    regions = toy_regions(features=[[1.0, 0.0], [0.0, 1.0]], weight=weight, bias=np.zeros(2))
    np.testing.assert_allclose(
        methods.create("pnml").fit(regions).score(regions), [0.0, 0.0], atol=1e-12
    )


def test_pnml_needs_two_classes(make):
    with pytest.raises(FitError, match="pnml: one class"):
        methods.create("pnml").fit(make(classes=1))


def test_grad_uncertainty_is_the_gradient_of_weights_and_biases(make):
    test = unsure(make(20, seed=2))
    layer = head(test)
    expected = []
    for h in tensors(test)[0]:
        layer.zero_grad()
        (-torch.log_softmax(layer(h), dim=-1)).sum().backward()
        squares = [parameter.grad.square().sum().item() for parameter in layer.parameters()]
        expected.append(sum(squares))
    found = methods.create("grad_uncertainty").score(test)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_weighted_energy_of_vos_is_that_of_pytorch_ood(make):
    test = make(50, detector={"vos_head": VOS_HEAD})
    weights = torch.tensor(VOS_HEAD["energy_weight"])
    expected = -peer.WeightedEBO.score(tensors(test)[2], weights)
    method = methods.create("vos", output="weighted_energy").fit(test)
    np.testing.assert_allclose(method.score(test), expected, rtol=RTOL)
    np.testing.assert_allclose(method.to_torch().score_regions(test), expected, rtol=RTOL)


# --------------------------------------------------------------------------------------------------
# VRA


def vra(train: Regions, activations: list[list[float]], **params) -> np.ndarray:
    """Scores of activations, through a last layer that adds them up."""
    width = len(activations[0])
    layer = {"weight": np.ones((1, width)), "bias": np.zeros(1)}
    columns = {**train.columns(), "logits": train.features.sum(axis=1, keepdims=True)}
    columns["label"] = np.zeros(len(train), int)
    fitted = methods.create("vra", **params).fit(
        Regions(header=type(train.header)(classes=("0",), **layer), **columns)
    )
    return fitted.score(toy_regions(features=activations, **layer))


#: Features 0 … 10 and 0 … 100.
SPREAD = toy_regions(features=[[float(step), 10.0 * step] for step in range(11)])


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        # Limits of each feature: 2 and 8, 20 and 80.
        ({"protocol": "published-code"}, [0.0, 2 + 20, 5 + 50, 8 + 80]),
        ({"protocol": "published-code", "below": "clip"}, [22.0, 2 + 20, 5 + 50, 8 + 80]),
        ({"protocol": "published-code", "gamma": 0.5}, [0.0, 2.5 + 20.5, 5.5 + 50.5, 8 + 80]),
    ],
)
def test_vra_zeroes_low_activations_and_clips_high_ones(params, expected):
    found = vra(
        SPREAD, [[1.0, 10.0], [2.0, 20.0], [5.0, 50.0], [9.0, 90.0]], lower=20, upper=80, **params
    )
    np.testing.assert_allclose(found, expected)


def test_vra_of_the_paper_has_one_pair_of_limits():
    # 0, 0, 1 … 9, 10, 10, 20 … 100: 22 values, the median 9.5, three quarters of the way 47.5.
    found = vra(SPREAD, [[9.0, 10.0], [30.0, 60.0]], lower=50, upper=75)
    np.testing.assert_allclose(found, [10.0, 30.0 + 47.5])


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("vra", {"lower": 90, "upper": 80}, "lower is 90, but must be at most upper, 80"),
        ("adascale", {"lowest": 90}, "lowest is 90, but must be at most highest, 85"),
    ],
)
def test_limits_in_the_wrong_order_are_refused(name, params, message):
    with pytest.raises(ParameterError, match=message):
        methods.create(name, **params)


# --------------------------------------------------------------------------------------------------
# NAC-UE


def nac_network(regions: Regions) -> tuple[torch.nn.Module, list[torch.nn.Module]]:
    """A network whose inner layer gives the stored features, and that layer."""
    features = torch.nn.Identity()
    return torch.nn.Sequential(features, head(regions)), [features]


def test_nac_ue_is_that_of_pytorch_ood_with_bins_of_equal_width(make, monkeypatch):
    train, test = unsure(make(400, seed=1)), unsure(make(100, seed=2, shift=1.0))
    monkeypatch.setattr(nac, "_bin_indices_geometric", nac._bin_indices)
    network, layers = nac_network(train)
    fitted = peer.NACUE(network, layers, m_bins=20, alpha=30.0, o_star=15)
    fitted.fit(tensors(train)[0].requires_grad_().split(100))
    expected = -fitted.predict(tensors(test)[0].requires_grad_())
    method = methods.create("nac_ue", bins=20, alpha=30.0, enough=15).fit(train)
    # It counts in float32, of logits that are not rounded to it: a state may be in another bin.
    np.testing.assert_allclose(method.score(test), expected, atol=2 / 12 / 15)
    assert np.mean(np.abs(method.score(test) - expected.numpy()) < 1e-6) > 0.9
    np.testing.assert_allclose(method.to_torch().score_regions(test), method.score(test), rtol=RTOL)


def test_nac_ue_of_the_published_code_has_its_edges(make):
    train, test = unsure(make(400, seed=1)), unsure(make(100, seed=2, shift=1.0))
    lower = np.emath.logn(1e3, np.linspace(1, np.sqrt(1e3), 10))
    edges = np.concatenate([lower[:-1], (1 - lower)[::-1]])
    edges[-1] += 1e-2
    edges = np.append(edges, 1.2)
    assert len(edges) == 20

    def states(regions: Regions) -> np.ndarray:
        p = torch.softmax(tensors(regions)[2], dim=1).numpy()
        gradient = (p - 0.2) @ regions.weight.astype(np.float64)
        product = regions.features.astype(np.float64) * gradient
        return 1 / (1 + np.exp(-30 * product))

    covered = np.zeros((19, 12))
    for low, high, place in zip(edges[:-1], edges[1:], range(19), strict=True):
        in_bin = (states(train) >= low) & (states(train) < high)
        covered[place] = np.minimum(in_bin.sum(axis=0) / 15, 1)
    places = np.searchsorted(edges, states(test), side="right") - 1
    expected = covered[places, np.arange(12)].mean(axis=1)
    params = {"bins": 20, "alpha": 30.0, "enough": 15, "protocol": "published-code"}
    method = methods.create("nac_ue", **params).fit(train)
    np.testing.assert_allclose(method.score(test), expected, rtol=RTOL)


def test_nac_ue_counts_features_of_zero_in_the_bin_that_begins_at_a_half(make):
    zero = toy_regions(features=[[0.0, 0.0]])
    for protocol, place in (("paper", 2), ("published-code", 1)):
        fitted = methods.create("nac_ue", bins=4, enough=1, protocol=protocol).fit(zero)
        assert fitted.coverage_.reshape(2, 4).argmax(axis=1).tolist() == [place, place]
        np.testing.assert_allclose(fitted.score(zero), [1.0], rtol=1e-12)


# --------------------------------------------------------------------------------------------------
# GROOD


def test_grood_is_the_gradient_of_its_loss(make):
    train, test = unsure(make(200, seed=1)), unsure(make(30, seed=2, shift=2.0))
    method = methods.create("grood").fit(train)
    unknown = torch.tensor(method.unknown_)
    prototypes = torch.tensor(method.prototypes_ + method.unknown_)
    expected_unknown = np.zeros(12)
    for row, logits in zip(tensors(train)[0].numpy(), train.logits, strict=True):
        second = np.argsort(logits)[-2]
        expected_unknown += (row + prototypes[second].numpy()) / 2 / len(train)
    np.testing.assert_allclose(method.unknown_, expected_unknown, rtol=1e-6)

    def gradients(regions: Regions) -> np.ndarray:
        found = []
        for h, logits in zip(tensors(regions)[0], tensors(regions)[2], strict=True):
            moved = unknown.clone().requires_grad_()
            scores = -torch.linalg.norm(h - torch.vstack([prototypes, moved]), dim=1)
            loss = torch.nn.functional.cross_entropy(scores, logits.argmax())
            found.append(torch.autograd.grad(loss, moved)[0].numpy())
        return np.stack(found)

    correct = train.logits.argmax(axis=1) == train.label
    stored = gradients(train)[correct]
    expected = [-np.linalg.norm(stored - g, axis=1).min() for g in gradients(test)]
    np.testing.assert_allclose(method.score(test), expected, rtol=1e-4)


def test_grood_learns_no_gradients_of_regions_with_another_label(make):
    regions = make(200)
    label = np.where(np.arange(200) < 50, (regions.label + 1) % 5, regions.label)
    wrong = Regions(header=regions.header, **{**regions.columns(), "label": label})
    assert len(methods.create("grood").fit(wrong).gradients_) == 150
    none = Regions(header=regions.header, **{**regions.columns(), "label": (regions.label + 1) % 5})
    with pytest.raises(FitError, match="grood: no region"):
        methods.create("grood").fit(none)


def test_grood_needs_two_classes(make):
    with pytest.raises(FitError, match="grood: one class"):
        methods.create("grood").fit(make(classes=1))


# --------------------------------------------------------------------------------------------------
# CF-OOD


@pytest.mark.parametrize("share", [0.01, 0.2, 1.0])
def test_cf_ood_counts_the_training_regions_that_have_a_region_as_neighbour(make, share):
    train, test = make(150, seed=1), make(40, seed=2, shift=2.0)
    stored, queries = (tensors(regions)[0].numpy() for regions in (train, test))
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    sizes, ranks = neighbourhoods(len(train))
    between = np.linalg.norm(stored[:, None] - stored, axis=2)
    radii = np.sort(between, axis=1)[:, ranks]
    expected = []
    for query in queries:
        distances = np.linalg.norm(stored - query, axis=1)
        # Features without a common axis are all as far from each other, up to rounding.
        shares = (distances[:, None] <= radii + 1e-9).mean(axis=0)
        enough = np.flatnonzero(shares >= share)
        expected.append(-sizes[enough[0]] if len(enough) else -1.0)
    method = methods.create("cf_ood", share=share).fit(train)
    np.testing.assert_allclose(method.score(test), expected)
    np.testing.assert_allclose(method.to_torch().score_regions(test), expected)


def test_neighbourhoods_of_few_regions_are_each_size_once():
    shares, ranks = neighbourhoods(4)
    np.testing.assert_allclose(shares, [0.001, 0.5, 0.75])
    assert ranks.tolist() == [1, 2, 3]
