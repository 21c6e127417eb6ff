"""Each score beside that of another library, or beside its formula for one region at a time."""

import numpy as np
import pytest
import torch
from pytorch_ood import detector as peer

from farther import methods
from farther.errors import DataError
from farther.methods import FitError
from farther.methods.activations import largest
from farther.methods.openmax import fit_weibull
from farther.methods.temperature_scaling import fit_temperature
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


def head(regions: Regions) -> torch.nn.Linear:
    layer = torch.nn.Linear(*reversed(regions.weight.shape))
    layer.weight.data.copy_(torch.from_numpy(regions.weight))
    layer.bias.data.copy_(torch.from_numpy(regions.bias))
    return layer


def of_logits(score):
    """Outlier scores that the peer computes from logits alone."""
    return lambda train, test: score(tensors(test)[2])


def of_features(made, scale=1.0, power=1):
    """Those of a peer that is fitted to features and labels, `made` for the last layer."""

    def scores(train, test):
        fitted = made(head(train)).fit_features(*tensors(train)[:2])
        return fitted.predict_features(tensors(test)[0]).detach() ** power * (scale or len(train))

    return scores


def of_maps(made):
    """Those of a peer that changes feature maps before the last layer."""

    def scores(train, test):
        peer_of = made(lambda x: head(test)(x.flatten(1)))
        maps = [tensors(regions)[0][:, :, None, None] for regions in (train, test)]
        if isinstance(peer_of, peer.ReAct | peer.VRA):
            peer_of.fit_feature_maps(maps[0], tensors(train)[1])
        return peer_of.predict_feature_maps(maps[1]).detach()

    return scores


def of_density(column):
    def scores(train, test):
        stored, asked = (
            torch.from_numpy(getattr(r, column).astype(np.float64)) for r in (train, test)
        )
        # a rotation, as that of all principal components is, leaves densities alone
        return (
            peer.GMM(None, reg=0.01).fit_features(stored, tensors(train)[1]).predict_features(asked)
        )

    return scores


def of_dice(train, test):
    torch.set_default_dtype(torch.float32)  # this peer computes in it
    layer = head(test)
    fitted = peer.DICE(None, layer.weight, layer.bias, p=0.7).fit_features(*tensors(train)[:2])
    return fitted.predict_features(tensors(test)[0].float())


def of_nnguide(train, test):
    fitted = peer.NNGuide(None, head(test).float(), k=7).fit_features(*tensors(train)[:2])
    return fitted.predict_features(tensors(test)[0].float()).detach()


def of_klm(train, test):
    return (
        peer.KLMatching(None)
        .fit_logits(tensors(train)[2])
        .predict_logits(tensors(test)[2])
        .detach()
    )


def of_gradnorm(train, test):
    made = peer.GradNorm(head(test), param_filter=lambda name: name == "weight", temperature=2.0)
    return made.predict(tensors(test)[0])


def of_lts(train, test):
    return peer.LTS(None, head(test), p=0.3).predict_features(tensors(test)[0])


def in_single_precision(made):
    """Those of a peer that computes in it, `made` for the last layer."""

    def scores(train, test):
        fitted = made(head(train).float()).fit_features(*tensors(train)[:2])
        return fitted.predict_features(tensors(test)[0])

    return scores


def of_vra(layer):
    return peer.VRA(None, layer, lower_percentile=0.2, upper_percentile=0.8)


def ash(variant):
    return of_maps(lambda layer: peer.ASH(None, layer, variant=f"ash-{variant}", percentile=0.85))


CODE = {"protocol": "published-code"}
#: Name, parameters, and the outlier scores of pytorch-ood, from regions to fit to and regions to
#: score.
PEERS = [
    ("msp", {}, of_logits(peer.MaxSoftmax(None).predict_logits)),
    ("mls", {}, of_logits(peer.MaxLogit.score)),
    ("energy", {"temperature": 1.0}, of_logits(lambda z: peer.EnergyBased.score(z, t=1.0))),
    ("energy", {"temperature": 2.5}, of_logits(lambda z: peer.EnergyBased.score(z, t=2.5))),
    (
        "temperature_scaling",
        {"temperature": 2.5},
        of_logits(lambda z: peer.MaxSoftmax.score(z / 2.5)),
    ),
    ("kl_matching", {}, of_klm),
    ("knn", {"k": 7}, of_features(lambda _: peer.KNN(None, k=7))),
    ("knn", {"k": 7, **CODE}, of_features(lambda _: peer.KNN(None, k=7), power=2)),
    # It neither divides the covariance by N nor leaves out the factor ½.
    (
        "mahalanobis",
        {},
        lambda train, test: of_features(lambda _: peer.Mahalanobis(None), 2 * len(train))(
            train, test
        ),
    ),
    ("relative_mahalanobis", {}, of_features(lambda _: peer.RMD(None), scale=0)),
    ("ddu", {"jitter": 0.01}, of_density("features")),
    ("lard_gmm", {"jitter": 0.01}, of_density("latent")),
    *[("ash", {"variant": variant, "percentile": 85, **CODE}, ash(variant)) for variant in "spb"],
    ("scale", {"percentile": 65}, of_maps(lambda layer: peer.SCALE(None, layer, percentile=0.65))),
    ("react", {"percentile": 80}, of_maps(lambda layer: peer.ReAct(None, layer, percentile=0.8))),
    ("dice", {"percentile": 70}, of_dice),
    ("she", {}, of_features(lambda layer: peer.SHE(None, layer))),
    ("gradnorm", {"temperature": 2.0}, of_gradnorm),
    ("lts", {"percentile": 70}, of_lts),
    ("nci", {"alpha": 0.01}, in_single_precision(lambda layer: peer.NCI(None, layer, alpha=0.01))),
    ("pnml", {}, in_single_precision(lambda layer: peer.PNML(None, layer))),
    (
        "grad_uncertainty",
        {},
        lambda train, test: peer.GradUncertainty(head(test)).predict(tensors(test)[0]),
    ),
    ("vra", {"lower": 20, "upper": 80, "below": "clip", **CODE}, of_maps(of_vra)),
    ("nnguide", {"k": 7}, of_nnguide),
]


@pytest.mark.parametrize(
    ("name", "params", "outlier_scores"),
    PEERS,
    ids=[f"{name} {params}" for name, params, _ in PEERS],
)
def test_a_score_is_minus_that_of_pytorch_ood(make, name, params, outlier_scores):
    train, test = make(400, seed=1), make(100, seed=2, shift=1.0)
    method = methods.create(name, **params).fit(train)
    expected = -np.asarray(outlier_scores(train, test), np.float64)
    np.testing.assert_allclose(method.score(test), expected, rtol=RTOL)
    np.testing.assert_allclose(method.to_torch().score_regions(test), expected, rtol=RTOL)


@pytest.mark.parametrize("name", ["knn", "nnguide"])
def test_without_faiss_the_same_is_found(make, monkeypatch, name):
    train, test = make(400, seed=1), make(100, seed=2, shift=1.0)
    with_faiss = methods.create(name, k=7).fit(train).score(test)
    monkeypatch.setattr("farther.methods.neighbours.has_faiss", lambda: False)
    np.testing.assert_allclose(
        methods.create(name, k=7).fit(train).score(test), with_faiss, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("params", "gamma"), [({}, 0.5), ({"protocol": "published-code"}, 0.1), ({"gamma": 0.3}, 0.3)]
)
@pytest.mark.parametrize("m", [5, 3])
def test_gen_is_that_of_pytorch_ood(make, params, gamma, m):
    test = make(100, seed=2)
    logits = test.logits / 5  # the peer clamps probabilities at 1e-7
    unsure = Regions(header=test.header, **{**test.columns(), "logits": logits})
    # the peer takes the mean of the terms, the paper their sum
    expected = -m * peer.GEN.score(torch.from_numpy(logits.astype(np.float64)), gamma=gamma, M=m)
    method = methods.create("gen", m=m, **params)
    np.testing.assert_allclose(method.score(unsure), expected, rtol=RTOL)
    np.testing.assert_allclose(method.to_torch().score_regions(unsure), expected, rtol=RTOL)


def test_gen_still_ranks_regions_whose_probability_rounds_to_one():
    logits = np.array([[50.0, 0.0], [60.0, 0.0]], np.float32)
    scores = methods.create("gen").score(logits_only(logits))
    # (p (1 − p))^½ with 1 − p = e^−50, e^−60
    np.testing.assert_allclose(scores, [-2 * np.exp(-25.0), -2 * np.exp(-30.0)], rtol=RTOL)


def test_mahalanobis_with_a_singular_covariance_is_that_of_scikit_learn(make):
    from sklearn.covariance import EmpiricalCovariance

    train, test = (
        make(20, classes=1, dimensions=32, seed=1),
        make(30, classes=1, dimensions=32, seed=2),
    )
    fitted = EmpiricalCovariance().fit(train.features.astype(np.float64))
    found = methods.create("mahalanobis").fit(train).score(test)
    np.testing.assert_allclose(
        found, -fitted.mahalanobis(test.features.astype(np.float64)), rtol=RTOL
    )


def test_a_feature_that_never_varied_in_training_is_ignored(make):
    regions = make(200)
    features = regions.features.copy()
    features[:, 3] = 1.0
    train = Regions(header=regions.header, **{**regions.columns(), "features": features})
    fitted = methods.create("mahalanobis").fit(train)
    np.testing.assert_allclose(fitted.score(regions), fitted.score(train), rtol=1e-9)


def test_ddu_of_the_published_code_leaves_the_class_weights_out(make):
    from scipy.stats import multivariate_normal

    train, test = make(400, seed=1), make(100, seed=2)
    features, asked = train.features.astype(np.float64), test.features.astype(np.float64)
    densities = 0.0
    for k in range(5):
        members = features[train.label == k]
        covariance = np.cov(members.T) + 0.01 * np.eye(members.shape[1])
        densities = densities + multivariate_normal(members.mean(axis=0), covariance).pdf(asked)
    found = (
        methods.create("ddu", protocol="published-code", jitter=0.01, precision="float64")
        .fit(train)
        .score(test)
    )
    np.testing.assert_allclose(found, np.log(densities), rtol=RTOL)


def test_ddu_takes_the_smallest_jitter_that_factorises(make):
    assert methods.create("ddu").fit(make(2000)).jitter_ == 0.0
    # fewer detections than dimensions: rounding decides, but something as small as it is enough
    assert 0 < methods.create("ddu").fit(make(60, dimensions=64)).jitter_ < 1e-10


def test_ddu_says_when_covariances_do_not_factorise(make):
    with pytest.raises(FitError, match="does not factorise with the jitter 0"):
        methods.create("ddu", jitter=0.0).fit(make(60, dimensions=64))


def test_ddu_needs_a_class_with_two_detections(make):
    regions = make(100)
    firsts = np.unique(regions.label, return_index=True)[1]
    with pytest.raises(FitError, match="no class has two detections"):
        methods.create("ddu").fit(regions[firsts])


def test_ash_of_the_published_code_keeps_as_many_of_equal_activations_as_of_others(make):
    regions = make(20)
    columns = {**regions.columns(), "features": np.ones_like(regions.features)}
    equal = Regions(header=regions.header, **columns)
    mask = largest(np.vstack([np.ones((3, 12)), np.arange(12.0)]), 75)
    assert mask.sum(axis=1).tolist() == [3, 3, 3, 3]
    assert mask[3].nonzero()[0].tolist() == [9, 10, 11]
    assert largest(np.array([[1.0, 2, 3, 2, 2, 0]]), 50).nonzero()[1].tolist() == [1, 2, 3]
    scores = (
        methods.create("ash", variant="b", percentile=75, protocol="published-code")
        .fit(equal)
        .score(equal)
    )
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("variant", ["s", "p", "b"])
def test_ash_of_the_paper_prunes_below_a_percentile_of_the_training_set(make, variant):
    train, test = make(400, seed=1), make(100, seed=2)
    cut = np.percentile(train.features, 70)
    expected = []
    for z in test.features.astype(np.float64):
        kept = z >= cut
        shaped = np.where(kept, z, 0.0)
        if variant == "s":
            shaped = shaped * np.exp(z.sum() / shaped.sum())
        elif variant == "b":
            shaped = kept * z.sum() / kept.sum()
        expected.append(np.log(np.exp(test.weight @ shaped + test.bias).sum()))
    found = methods.create("ash", variant=variant, percentile=70).fit(train).score(test)
    np.testing.assert_allclose(found, expected, rtol=RTOL)


def test_dice_react_is_dice_on_cut_activations(make):
    train, test = make(400, seed=1), make(100, seed=2)
    columns = {
        **test.columns(),
        "features": np.minimum(test.features, np.float32(np.percentile(train.features, 80))),
    }
    cut = Regions(header=test.header, **columns)
    expected = methods.create("dice", percentile=70).fit(train).score(cut)
    found = methods.create("dice_react", percentile=70, react_percentile=80).fit(train).score(test)
    np.testing.assert_allclose(found, expected, rtol=RTOL)


def test_vim_is_that_of_pytorch_ood(make):
    train, test = make(400, seed=1), make(100, seed=2, shift=1.0)
    layer = head(test)
    fitted = peer.ViM(None, 7, layer.weight, layer.bias).fit_features(*tensors(train)[:2])
    expected = -fitted.predict_features(tensors(test)[0]).numpy()
    method = methods.create("vim", dim=7).fit(train)
    for scores in (method.score(test), method.to_torch().score_regions(test)):
        np.testing.assert_allclose(scores, expected, atol=1e-3)  # it computes in single precision


def test_vim_is_its_formula(make):
    train, test = make(400, seed=1), make(100, seed=2, shift=1.0)
    weight, bias = test.weight.astype(np.float64), test.bias.astype(np.float64)
    origin = -np.linalg.pinv(weight) @ bias
    directions = np.linalg.svd(train.features - origin)[2][7:]
    residual = lambda regions: np.linalg.norm((regions.features - origin) @ directions.T, axis=1)  # noqa: E731
    alpha = train.logits.max(axis=1).sum(dtype=np.float64) / residual(train).sum()
    expected = np.log(np.exp(test.logits.astype(np.float64)).sum(axis=1)) - alpha * residual(test)
    np.testing.assert_allclose(
        methods.create("vim", dim=7).fit(train).score(test), expected, rtol=RTOL
    )


def test_residual_is_the_length_of_the_smallest_principal_directions(make):
    train, test = make(400, seed=1), make(100, seed=2)
    origin = np.linalg.lstsq(
        train.weight.astype(np.float64), -train.bias.astype(np.float64), rcond=None
    )[0]
    directions = np.linalg.svd(train.features - origin)[2][7:]
    expected = [-np.linalg.norm(directions @ (z - origin)) for z in test.features]
    np.testing.assert_allclose(
        methods.create("residual", dim=7).fit(train).score(test), expected, rtol=RTOL
    )


@pytest.mark.parametrize(
    ("features", "paper", "published_code"),
    [
        (12, 6, 6),
        (512, 256, 256),
        (767, 512, 383),
        (768, 512, 512),
        (1001, 1000, 512),
        (2047, 1000, 512),
        (2048, 1000, 1000),
    ],
)
def test_vim_keeps_as_many_dimensions_as_the_protocol_says(features, paper, published_code):
    assert methods.create("vim")._dimension(features) == paper
    assert methods.create("vim", protocol="published-code")._dimension(features) == published_code


@pytest.mark.parametrize("whiten", [False, True])
def test_lard_distances_are_those_of_principal_components(make, whiten):
    from sklearn.decomposition import PCA

    train, test = make(400, seed=1), make(100, seed=2)
    analysis = PCA(4, svd_solver="full", whiten=whiten).fit(train.latent.astype(np.float64))
    swapped = [
        Regions(
            header=type(r.header)(classes=r.classes),
            **{**r.columns(), "features": analysis.transform(r.latent.astype(np.float64))},
        )
        for r in (train, test)
    ]
    for name, params in (("knn", {"k": 3, "protocol": "published-code"}), ("mahalanobis", {})):
        found = (
            methods.create(f"lard_{name}", components=4, whiten=whiten, **params)
            .fit(train)
            .score(test)
        )
        expected = methods.create(name, **params).fit(swapped[0]).score(swapped[1])
        np.testing.assert_allclose(found, expected, rtol=RTOL)


@pytest.mark.parametrize(("protocol", "whiten"), [("paper", False), ("published-code", True)])
def test_lard_whitens_as_the_protocol_says(make, protocol, whiten):
    train, test = make(400, seed=1), make(100, seed=2)
    found = methods.create("lard_knn", k=3, components=4, protocol=protocol).fit(train).score(test)
    said = (
        methods.create("lard_knn", k=3, components=4, protocol=protocol, whiten=whiten)
        .fit(train)
        .score(test)
    )
    np.testing.assert_array_equal(found, said)


def test_lard_knn_of_the_paper_is_the_distance_between_principal_components(make):
    from sklearn.decomposition import PCA
    from sklearn.neighbors import NearestNeighbors

    train, test = make(400, seed=1), make(100, seed=2)
    analysis = PCA(4, svd_solver="full").fit(train.latent.astype(np.float64))
    stored, asked = (analysis.transform(r.latent.astype(np.float64)) for r in (train, test))
    expected = NearestNeighbors(n_neighbors=3).fit(stored).kneighbors(asked)[0][:, -1]
    found = methods.create("lard_knn", k=3, components=4).fit(train).score(test)
    np.testing.assert_allclose(found, -expected, rtol=RTOL)


VOS_HEAD = {
    "energy_weight": [1.0, 0.5, -2.0, 3.0, 1.0],
    "weight": [[-0.5], [1.5]],
    "bias": [0.25, -0.25],
}


def test_vos_is_the_energy(make):
    regions = make(background=True)
    expected = methods.create("energy").score(regions)
    np.testing.assert_allclose(
        methods.create("vos").fit(regions).score(regions), expected, rtol=1e-12
    )


def test_vos_with_its_head_gives_the_log_odds_of_known(make):
    regions = make(background=True, detector={"vos_head": VOS_HEAD})
    found = methods.create("vos", output="logistic").fit(regions).score(regions)
    for score, logits in zip(found[:20], regions.logits.astype(np.float64), strict=False):
        energy = np.log(
            sum(
                max(e, 0) * np.exp(c)
                for e, c in zip(VOS_HEAD["energy_weight"], logits, strict=False)
            )
        )
        unknown, known = (
            w * energy + b for w, b in zip([-0.5, 1.5], VOS_HEAD["bias"], strict=True)
        )
        assert score == pytest.approx(known - unknown, rel=RTOL)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {**VOS_HEAD, "weight": [1.0]},
        {**VOS_HEAD, "bias": ["a", 1]},
        {**VOS_HEAD, "energy_weight": [0] * 5},
    ],
)
def test_vos_says_what_its_head_lacks(make, wrong):
    regions = make(detector={} if wrong is None else {"vos_head": wrong})
    with pytest.raises(FitError, match=r"vos_head|energy_weight"):
        methods.create("vos", output="logistic").fit(regions)


def test_entropy_is_that_of_scipy(make):
    from scipy.special import entr, expit, softmax

    test = make(100, seed=2, activation="sigmoid")
    logits = test.logits.astype(np.float64)
    expected = -entr(softmax(logits, axis=1)).sum(axis=1)
    np.testing.assert_allclose(methods.create("entropy").score(test), expected, rtol=RTOL)
    expected = -(entr(expit(logits)) + entr(expit(-logits))).mean(axis=1)
    np.testing.assert_allclose(
        methods.create("entropy", activation="detector").score(test), expected, rtol=RTOL
    )
    largest = expit(logits.max(axis=1))
    expected = -(entr(largest) + entr(1 - largest))
    scores = methods.create("entropy", activation="detector", sigmoids="largest").score(test)
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_dempster_shafer_is_its_formula(make):
    test = make(100, background=True)
    evidence = np.exp(test.logits.astype(np.float64))
    np.testing.assert_allclose(
        methods.create("dempster_shafer").score(test),
        -5 / (5 + evidence[:, :5].sum(axis=1)),
        rtol=RTOL,
    )
    np.testing.assert_allclose(
        methods.create("dempster_shafer", background="keep").score(test),
        -6 / (6 + evidence.sum(axis=1)),
        rtol=RTOL,
    )


def test_the_fitted_temperature_is_that_of_greatest_likelihood(make):
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    regions = make(400)
    truth = np.where(
        np.arange(400) % 5 == 0, (regions.label + 1) % 5, regions.label
    )  # every fifth is wrong
    logits = regions.logits.astype(np.float64)
    best = minimize_scalar(
        lambda t: -log_softmax(logits / t, axis=1)[np.arange(400), truth].mean(),
        bounds=(0.1, 50),
        method="bounded",
    )
    assert fit_temperature(logits, truth) == pytest.approx(best.x, rel=1e-4)


def test_a_temperature_at_the_end_of_its_range_is_remarked_and_the_score_still_ranks(make):
    regions = make(500)
    rng = np.random.default_rng(0)
    logits = regions.logits * 3
    regions = regions.with_columns(logits=logits)
    method = methods.create("temperature_scaling").fit(regions)

    method.learn_truth(regions, logits.argmax(axis=1))
    assert method.temperature_ == 1
    (remark,) = method.remarks()
    assert "below 0.001" in remark
    assert np.array_equal(method.score(regions), methods.create("msp").score(regions))

    method.learn_truth(regions, np.argsort(logits, axis=1)[:, 0])  # the smallest logit
    assert method.temperature_ == 1000
    assert "above 1000" in method.remarks()[0]

    wrong = rng.random(500) < 0.2
    method.learn_truth(regions, np.where(wrong, 0, logits.argmax(axis=1)))
    assert 0.1 < method.temperature_ < 10
    assert method.remarks() == []


def test_a_fitted_temperature_that_makes_many_scores_1_is_remarked(make):
    regions = make(500)
    logits = regions.logits * 1000
    truth = logits.argmax(axis=1)
    nearly_right = np.argsort(logits, axis=1)[0, -2]
    logits[0, truth[0]] = logits[0, nearly_right] + 0.1
    truth[0] = nearly_right
    regions = regions.with_columns(logits=logits)
    method = methods.create("temperature_scaling").fit(regions)
    method.learn_truth(regions, truth)
    assert 0.001 < method.temperature_ < 1000
    (remark,) = method.remarks()
    assert "is exactly 1" in remark


def test_a_class_whose_distances_are_equal_has_no_weibull_distribution(make):
    regions = make(200)
    logits = regions.logits.copy()
    alone = np.zeros_like(logits[0])
    alone[3] = 9.0
    is_class3 = logits.argmax(axis=1) == 3
    logits[is_class3] = alone
    fitted = methods.create("openmax").fit(regions.with_columns(logits=logits))
    (remark,) = fitted.remarks()
    assert remark.startswith("no Weibull distribution can be fitted to class3")
    assert methods.create("openmax").fit(regions).remarks() == []


def test_true_classes_without_a_column_are_refused(make):
    for truth in ([0, 5], [-1, 0], [0]):
        with pytest.raises(DataError, match="expected"):
            fit_temperature(make(2).logits, np.array(truth))


def test_openmax_is_that_of_pytorch_ood_given_the_same_weibull_distributions(make):
    train, test = make(400, seed=1), make(100, seed=2, shift=1.0)
    fitted = methods.create("openmax", tail=20, alpha=3).fit(train)
    other = peer.OpenMax(None, tailsize=20, alpha=3).fit_logits(
        tensors(train)[2], tensors(train)[1]
    )
    for k, distribution in other._openmax.distributions.items():
        assert distribution.min_val == pytest.approx(fitted.smallest_[k], rel=RTOL)
        # its simplex search stops early: take the distribution from us
        distribution.c, distribution.scale = fitted.shape_[k], np.exp(fitted.log_scale_[k])
    unknown = other.predict_logits(tensors(test)[2]).numpy()
    for scores in (fitted.score(test), fitted.to_torch().score_regions(test)):
        np.testing.assert_allclose(1 / (1 + np.exp(scores)), unknown, rtol=RTOL)


@pytest.mark.parametrize(("shape", "scale"), [(0.7, 2.0), (3.0, 10.0), (5000.0, 10_000.0)])
def test_weibull_distributions_are_fitted_by_maximum_likelihood(shape, scale):
    from scipy.stats import weibull_min

    values = weibull_min.rvs(shape, scale=scale, size=200, random_state=0)
    found, log_scale = fit_weibull(values)

    def likelihood(k: float, log_s: float) -> float:
        return weibull_min.logpdf(values, k, scale=np.exp(log_s)).sum()

    best = likelihood(found, log_scale)
    assert found == pytest.approx(shape, rel=0.2)
    for k, log_s in ((1.001, 0), (0.999, 0), (1, 1e-3 / shape), (1, -1e-3 / shape)):
        assert likelihood(found * k, log_scale + log_s) < best


def test_she_gives_a_class_without_detections_the_mean_of_all(make):
    regions = make(100)
    seen = regions[regions.label != 2]
    expected = regions.features @ seen.features.astype(np.float64).mean(axis=0)
    unseen = regions.label == 2
    np.testing.assert_allclose(
        methods.create("she").fit(seen).score(regions)[unseen], expected[unseen], rtol=RTOL
    )


def test_fdbd_is_the_distance_to_each_decision_boundary(make):
    train, test = make(400, seed=1), make(100, seed=2)
    centre = train.features.astype(np.float64).mean(axis=0)
    weight, bias = test.weight.astype(np.float64), test.bias.astype(np.float64)
    expected = []
    for z in test.features.astype(np.float64):
        logits = weight @ z + bias
        y = logits.argmax()
        others = [c for c in range(5) if c != y]
        distances = [
            (logits[y] - logits[c]) / np.linalg.norm(weight[y] - weight[c]) for c in others
        ]
        expected.append(np.mean(distances) / np.linalg.norm(z - centre))
    np.testing.assert_allclose(methods.create("fdbd").fit(train).score(test), expected, rtol=RTOL)


@pytest.mark.parametrize("kernel", ["rbf", "nystroem"])
def test_oodl_is_the_decision_function_of_scikit_learn(make, kernel):
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import SGDOneClassSVM
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import OneClassSVM

    train, test = make(400, seed=1), make(100, seed=2)
    machine = OneClassSVM(nu=0.2, gamma=0.05)
    if kernel == "nystroem":
        approximation = Nystroem(gamma=0.05, n_components=50, random_state=0)
        machine = make_pipeline(approximation, SGDOneClassSVM(nu=0.2, random_state=0))
    params = {"components": 6, "nu": 0.2, "gamma": 0.05, "kernel": kernel, "landmarks": 50}
    fitted = methods.create("oodl", **params).fit(train)
    # the signs of principal directions are arbitrary, and the draws of landmarks see them
    project = lambda r: (r.features.astype(np.float64) - fitted.mean_) @ fitted.components_  # noqa: E731
    analysis = PCA(6, svd_solver="full").fit(train.features.astype(np.float64))
    np.testing.assert_allclose(
        np.abs(project(test)), np.abs(analysis.transform(test.features)), rtol=1e-4, atol=1e-4
    )
    expected = machine.fit(project(train)).decision_function(project(test))
    np.testing.assert_allclose(fitted.score(test), expected, rtol=1e-4, atol=1e-5)


def test_nnguide_needs_as_many_regions_as_neighbours(make):
    with pytest.raises(FitError, match="4 regions to fit on, but k is 5"):
        methods.create("nnguide", k=5).fit(make(4))


def test_oodl_learns_from_a_sample(make):
    fitted = methods.create("oodl", sample=50, nu=0.99).fit(make(300))
    assert 45 < len(fitted.vectors_) <= 50


@pytest.mark.parametrize("params", [{}, {"power": 3.0, "threshold": 0.2, "background": "keep"}])
def test_relation_sums_the_edges_above_its_threshold(make, params):
    train, test = make(200, seed=1, background=True), make(40, seed=2, background=True)

    def nodes(regions):
        logits = tensors(regions)[2][:, : 6 if params else 5]
        return torch.nn.functional.normalize(tensors(regions)[0]), logits.softmax(1)

    (h, p), (stored, known) = nodes(test), nodes(train)
    edges = (h @ stored.T).clamp(min=0) * (p @ known.T)
    kept = torch.where(edges > params.get("threshold", 0.03), edges, 0.0) ** params.get("power", 1)
    found = methods.create("relation", **params).fit(train).score(test)
    np.testing.assert_allclose(
        found, kept.sum(1), rtol=1e-3
    )  # an edge near the threshold may fall on either side


def test_float32_does_not_decide_whether_a_relation_counts(make):
    train, test = (
        make(60, classes=1, dimensions=1024, seed=seed) for seed in (1, 2)
    )  # p · p_i is 1
    for n in range(60):
        relation = np.float32(np.vecdot(*(_unit(each.features[n]) for each in (train, test))))
        for threshold, counts in ((np.nextafter(relation, np.float32(0)), True), (relation, False)):
            fitted = methods.create("relation", threshold=float(threshold)).fit(train[[n]])
            assert (fitted.score(test[[n]]) > 0) == counts


def _unit(vector):
    """At length 1, rounded to float32 as it is stored."""
    vector = vector.astype(np.float64)
    return (vector / np.linalg.norm(vector)).astype(np.float32).astype(np.float64)
