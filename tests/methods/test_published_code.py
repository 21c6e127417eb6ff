"""Scores under `protocol="published-code"`, beside the computation of that code.

The computation is written out with other libraries.
"""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA
from sklearn.neighbors import KernelDensity, NearestNeighbors
from sklearn.preprocessing import normalize

from farther import methods
from farther.errors import ParameterError
from farther.tables import Regions

CODE = {"protocol": "published-code"}


def double(regions: Regions, column: str) -> np.ndarray:
    return getattr(regions, column).astype(np.float64)


def _ash(train, test, weight, bias):
    expected = []
    for h in double(test, "features"):
        kept = np.where(h >= np.sort(h)[-3], h, 0.0)  # 25% of 12
        expected.append(logsumexp(weight @ (kept * np.exp(h.sum() / kept.sum())) + bias))
    return expected


def _dice(train, test, weight, bias, clip=np.inf):
    contribution = weight * double(train, "features").mean(axis=0)
    masked = weight * (contribution > np.percentile(contribution, 75))
    return logsumexp(np.minimum(double(test, "features"), clip) @ masked.T + bias, axis=1)


def _react(train, test, weight, bias):
    clip = np.percentile(train.features, 75)
    return logsumexp(np.minimum(double(test, "features"), clip) @ weight.T + bias, axis=1)


def _vim(train, test, weight, bias):
    origin = -np.linalg.pinv(weight) @ bias
    values, vectors = np.linalg.eig(
        EmpiricalCovariance(assume_centered=True).fit(train.features - origin).covariance_
    )
    rest = vectors[:, np.argsort(-values)[6:]]
    residual = [
        np.linalg.norm((double(r, "features") - origin) @ rest, axis=1) for r in (train, test)
    ]
    alpha = double(train, "logits").max(axis=1).mean() / residual[0].mean()
    return logsumexp(double(test, "logits"), axis=1) - alpha * residual[1]


def _gen(train, test, weight, bias):
    p = np.sort(softmax(double(test, "logits"), axis=1), axis=1)[:, 1:]  # 5 classes, 6 columns
    return -((p * (1 - p)) ** 0.1).sum(axis=1)


#: The scores with all columns of logits, the background's too: parameters, and the formula.
WITH_BACKGROUND = {
    "msp": ({}, lambda train, test, *_: softmax(double(test, "logits"), axis=1).max(axis=1)),
    "energy": ({}, lambda train, test, *_: logsumexp(double(test, "logits"), axis=1)),
    "gen": ({}, _gen),
    "vim": ({}, _vim),
    "ash": ({"percentile": 75}, _ash),
    "react": ({"percentile": 75}, _react),
    "dice": ({"percentile": 75}, _dice),
    "dice_react": (
        {"percentile": 75, "react_percentile": 75},
        lambda train, test, *layer: _dice(
            train, test, *layer, clip=np.percentile(train.features, 75)
        ),
    ),
}


@pytest.fixture
def with_background(make):
    # small logits, so that no probability is rounding only
    regions = (make(400, seed=1, background=True), make(100, seed=2, shift=1.0, background=True))
    small = []
    for r in regions:
        features = r.features / 4
        columns = {**r.columns(), "features": features, "logits": features @ r.weight.T + r.bias}
        small.append(Regions(header=r.header, **columns))
    return small


@pytest.mark.parametrize("name", WITH_BACKGROUND)
def test_the_published_code_counts_the_background_as_a_class(with_background, name):
    train, test = with_background
    params, formula = WITH_BACKGROUND[name]
    found = methods.create(name, **params, **CODE).fit(train).score(test)
    expected = formula(train, test, train.weight.astype(np.float64), train.bias.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", [*WITH_BACKGROUND, "entropy", "dempster_shafer"])
def test_the_background_can_be_asked_for_alone(with_background, name):
    train, test = with_background
    params = WITH_BACKGROUND.get(name, ({},))[0]

    def scores(**more):
        return methods.create(name, **params, **more).fit(train).score(test)

    np.testing.assert_array_equal(scores(), scores(background="drop"))
    np.testing.assert_array_equal(scores(**CODE), scores(**CODE, background="keep"))
    assert not np.allclose(scores(), scores(background="keep"))
    assert not np.allclose(scores(**CODE), scores(**CODE, background="drop"))


def test_mahalanobis_and_ddu_read_no_logits_and_so_no_background():
    assert {"logits", "last_layer"}.isdisjoint(
        methods.get("mahalanobis").needs | methods.get("ddu").needs
    )


def components(make, count, *, whiten):
    train, test = make(400, seed=1), make(100, seed=2, shift=1.0)
    vectors = [double(r, "latent") for r in (train, test)]
    if count is not None:
        analysis = PCA(count, svd_solver="full", whiten=whiten).fit(vectors[0])
        vectors = [analysis.transform(v) for v in vectors]
    return train, test, *vectors


@pytest.mark.parametrize("count", [4, None])
@pytest.mark.parametrize("asked", [CODE, {"gaussian": "single"}])
def test_lard_mahalanobis_of_the_published_code_has_one_gaussian_for_all_classes(
    make, count, asked
):
    train, test, stored, queries = components(make, count, whiten=False)
    found = methods.create("lard_mahalanobis", components=count, **asked).fit(train).score(test)
    np.testing.assert_allclose(
        found, -EmpiricalCovariance().fit(stored).mahalanobis(queries), rtol=1e-5
    )


def test_lard_mahalanobis_per_class_can_be_asked_for_under_the_published_code(make):
    train, test = make(400, seed=1), make(100, seed=2, shift=1.0)
    found = (
        methods.create("lard_mahalanobis", components=4, gaussian="per_class", **CODE)
        .fit(train)
        .score(test)
    )
    expected = methods.create("lard_mahalanobis", components=4).fit(train).score(test)
    np.testing.assert_allclose(
        found, expected, rtol=1e-9
    )  # whitening leaves the distances as they are


@pytest.mark.parametrize(
    ("count", "params", "whiten"), [(4, {}, False), (4, CODE, True), (None, {}, False)]
)
@pytest.mark.parametrize("bandwidth", [1.0, 0.4])
def test_lard_kde_is_the_kernel_density_of_scikit_learn(make, count, params, whiten, bandwidth):
    train, test, stored, queries = components(make, count, whiten=whiten)
    found = (
        methods.create("lard_kde", components=count, bandwidth=bandwidth, **params)
        .fit(train)
        .score(test)
    )
    peer = KernelDensity(bandwidth=bandwidth).fit(stored).score_samples(queries)
    np.testing.assert_allclose(found, peer, atol=1e-3)  # its trees lose digits
    width = stored.shape[1] * np.log(bandwidth * np.sqrt(2 * np.pi))
    exponents = -cdist(queries, stored, "sqeuclidean") / (2 * bandwidth**2)
    np.testing.assert_allclose(
        found, logsumexp(exponents, axis=1) - np.log(len(stored)) - width, rtol=1e-9
    )


@pytest.mark.parametrize("k", [8, 10, 12])
def test_lard_knn_without_components_is_the_squared_distance_of_latents_at_unit_norm(make, k):
    train, test, stored, queries = components(make, None, whiten=False)
    peer = (
        NearestNeighbors(n_neighbors=k)
        .fit(normalize(stored))
        .kneighbors(normalize(queries))[0][:, -1]
    )
    found = methods.create("lard_knn", k=k, components=None, **CODE).fit(train).score(test)
    np.testing.assert_allclose(found, -(peer**2), rtol=1e-5)


def test_latents_without_components_cannot_be_whitened():
    with pytest.raises(ParameterError, match="components=null takes none"):
        methods.create("lard_knn", components=None, whiten=True)


def published_gmm(
    features: torch.Tensor, label: torch.Tensor
) -> tuple[torch.distributions.MultivariateNormal, float]:
    """One Gaussian per class in single precision, with the smallest jitter that torch accepts."""
    of_class = [features[label == k] for k in range(int(label.max()) + 1)]
    means = torch.stack([h.mean(0) for h in of_class])
    scatters = [(h - m).T @ (h - m) / (len(h) - 1) for h, m in zip(of_class, means, strict=True)]
    for jitter in (0.0, *(10.0**power for power in range(-20, 1))):
        try:
            covariances = torch.stack(scatters) + jitter * torch.eye(features.shape[1])
            return torch.distributions.MultivariateNormal(
                means, covariance_matrix=covariances
            ), jitter
        except (ValueError, torch.linalg.LinAlgError):
            continue
    raise AssertionError


@pytest.mark.parametrize(("count", "dimensions", "singular"), [(600, 8, False), (90, 48, True)])
def test_ddu_of_the_published_code_is_torchs_mixture_in_single_precision(
    make, count, dimensions, singular
):
    train, test = (
        make(count, dimensions=dimensions, seed=1),
        make(100, dimensions=dimensions, seed=2),
    )
    gmm, jitter = published_gmm(
        torch.tensor(train.features), torch.tensor(train.label.astype(np.int64))
    )
    peer = logsumexp(gmm.log_prob(torch.tensor(test.features)[:, None]).numpy(), axis=1)
    fitted = methods.create("ddu", **CODE).fit(train)
    if singular:  # rounding decides, so the two agree in the order of magnitude only
        assert 1e-9 < fitted.jitter_ < 1e-4
        assert abs(np.log10(fitted.jitter_ / jitter)) < 1.5
        assert methods.create("ddu").fit(train).jitter_ < 1e-12
        regularised = methods.create("ddu", **CODE, jitter=0.1).fit(train)
        doubled = methods.create("ddu", **CODE, jitter=0.1, precision="float64").fit(train)
        np.testing.assert_allclose(regularised.score(test), doubled.score(test), rtol=1e-3)
    else:
        assert fitted.jitter_ == jitter == 0
        np.testing.assert_allclose(fitted.score(test), peer, rtol=1e-3)
    assert fitted.factors_.dtype == np.float32


@pytest.mark.parametrize("name", ["ddu", "lard_gmm"])
@pytest.mark.parametrize("params", [{}, {"precision": "float32"}, {"jitter": 0.1}])
def test_a_singular_covariance_is_named(make, tmp_path, name, params):
    few = make(600)
    few = few[
        (few.label != 3) | (np.cumsum(few.label == 3) <= 6)
    ]  # 6 detections of class 3 in 12 or 16 dimensions
    fitted = methods.create(name, **params).fit(few)
    assert fitted.singular_ == ["class3"]
    assert fitted.remarks()[0].startswith("singular covariance of class3")
    fitted.save(tmp_path / "state")
    assert methods.load(tmp_path / "state").remarks() == fitted.remarks()
    assert methods.create(name, **params).fit(make(600)).remarks() == []


def test_features_that_depend_on_each_other_make_every_covariance_singular(make):
    regions = make(600)
    features = np.concatenate([regions.features, 2 * regions.features[:, :1]], axis=1)
    double_ones = Regions(
        header=type(regions.header)(classes=regions.classes),
        **{**regions.columns(), "features": features},
    )
    assert methods.create("ddu").fit(double_ones).singular_ == list(regions.classes)


def test_openoods_gradnorm_is_ours_times_the_number_of_classes(make):
    test = make(20, seed=2)
    layer = torch.nn.Linear(12, 5)
    layer.weight.data, layer.bias.data = torch.tensor(test.weight), torch.tensor(test.bias)
    summed = []
    for h in torch.tensor(test.features):
        layer.zero_grad()
        (-torch.log_softmax(layer(h), dim=-1)).sum().backward()  # ones as targets, not 1 / C
        summed.append(layer.weight.grad.abs().sum().item())
    np.testing.assert_allclose(5 * methods.create("gradnorm").score(test), summed, rtol=1e-4)


def test_openoods_fdbd_is_ours_times_the_number_of_other_classes(make):
    train, test = make(400, seed=1), make(20, seed=2)
    weight, features, logits = (torch.tensor(a) for a in (test.weight, test.features, test.logits))
    largest, label = logits.max(dim=1)
    gaps = torch.cdist(weight, weight) + torch.eye(
        5
    )  # the class itself counts with a distance of 0
    distances = ((largest[:, None] - logits) / gaps[label]).sum(dim=1)
    summed = distances / (features - torch.tensor(train.features).mean(dim=0)).norm(dim=1)
    np.testing.assert_allclose(4 * methods.create("fdbd").fit(train).score(test), summed, rtol=1e-4)
