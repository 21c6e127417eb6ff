"""Sum of Mahalanobis scores of several layers, and its weights, beside other libraries."""

import numpy as np
import pytest
import torch
from pytorch_ood.detector import MultiMahalanobis as Peer
from sklearn.covariance import EmpiricalCovariance
from sklearn.linear_model import LogisticRegressionCV
from sklearn.preprocessing import StandardScaler

from farther import methods
from farther.errors import ParameterError
from farther.methods import FitError
from farther.scoring.entries import read_entry
from farther.scoring.fit import fit_method, fit_run
from farther.scoring.inputs import RunRegions
from farther.tables import Regions

CODE = {"protocol": "published-code"}

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning"
)  # of scikit-learn, used as it was when published


def per_layer(train: Regions, regions: Regions, columns=("latent", "features")) -> np.ndarray:
    """Minus the squared distance to the nearest class mean in each layer."""
    scores = []
    for column in columns:
        h, asked = (r.array(column).astype(np.float64) for r in (train, regions))
        means = {c: h[train.label == c].mean(axis=0) for c in set(train.label)}
        around = np.stack([v - means[c] for v, c in zip(h, train.label, strict=True)])
        shared = EmpiricalCovariance(assume_centered=True).fit(around)
        scores.append(
            -np.min([shared.mahalanobis(asked - mean) for mean in means.values()], axis=0)
        )
    return np.stack(scores, axis=1)


@pytest.fixture
def splits(make):
    """Training and validation regions, unknown ones, and further unknown ones to score."""
    return (
        make(400, seed=1),
        make(150, seed=2),
        make(100, seed=3, shift=3.0),
        make(60, seed=4, shift=2.0),
    )


def test_without_unknown_regions_it_is_the_sum_of_the_layers_as_in_pytorch_ood(splits):
    train, _, _, test = splits
    method = methods.create("mds_ensemble").fit(train)
    np.testing.assert_allclose(method.score(test), per_layer(train, test).sum(axis=1), rtol=1e-6)
    vectors = [
        [torch.from_numpy(r.array(c).astype(np.float64)) for c in ("latent", "features")]
        for r in (train, test)
    ]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    peer = Peer([torch.nn.Identity()] * 2).to("cpu")
    peer.fit_structured(vectors[0], torch.from_numpy(train.label.astype(np.int64)))
    half = peer.predict_structured([v[:, :, None, None] for v in vectors[1]]).numpy()
    torch.set_default_dtype(before)
    expected = -2 * len(train) * half  # it has the scatter in place of the covariance
    for scores in (method.score(test), method.to_torch().score_regions(test)):
        np.testing.assert_allclose(scores, expected, rtol=1e-4)


@pytest.mark.parametrize("learn", ["learn_split", "learn_pass"])
def test_weights_are_those_of_a_logistic_regression(splits, learn):
    train, known, unknown, test = splits
    method = methods.create(
        "mds_ensemble",
        **{"learn_split": {"ood_split": "s"}, "learn_pass": {"negatives": "p"}}[learn],
    )
    getattr(method.fit(train), learn)(known, unknown)
    both = np.concatenate([per_layer(train, known), per_layer(train, unknown)])
    scale = StandardScaler().fit(both)
    regression = LogisticRegressionCV(cv=5, scoring="accuracy").fit(
        scale.transform(both), [1] * 150 + [0] * 100
    )
    expected = regression.decision_function(scale.transform(per_layer(train, test)))
    found = method.score(test)
    np.testing.assert_allclose(
        found - found.mean(), expected - expected.mean(), rtol=1e-2, atol=1e-2
    )


def test_the_published_code_weighs_half_distances_and_takes_one_layer_alone_by_default(splits):
    train, known, unknown, test = splits
    alone = methods.create("mds_ensemble", **CODE).fit(train)
    assert alone.columns == ["latent"]
    np.testing.assert_allclose(
        alone.score(test), per_layer(train, test, ["latent"])[:, 0], rtol=1e-6
    )
    method = methods.create(
        "mds_ensemble", layer=["latent", "features"], ood_split="s", **CODE
    ).fit(train)
    method.learn_split(known, unknown)
    both = np.concatenate([per_layer(train, known), per_layer(train, unknown)]) / 2
    regression = LogisticRegressionCV(cv=5, scoring="accuracy").fit(both, [1] * 150 + [0] * 100)
    np.testing.assert_allclose(method.weights_, regression.coef_[0] / 2, rtol=1e-2)


@pytest.fixture
def run(splits, tmp_path):
    for name, regions in zip(("train", "val", "ood_val", "far"), splits, strict=True):
        regions.write(tmp_path / "regions" / name)
    splits[2].write(tmp_path / "passes/fgsm/train")
    return RunRegions(tmp_path / "regions", test_splits=("far",), passes=tmp_path / "passes")


@pytest.mark.parametrize(
    ("params", "known"), [({"ood_split": "ood_val"}, 1), ({"negatives": "fgsm"}, 0)]
)
def test_a_run_gives_it_the_split_or_the_pass_that_it_names(run, splits, params, known):
    method = methods.create("mds_ensemble", **params)
    fit_method(method, run)
    expected = methods.create("mds_ensemble", **params).fit(splits[0])
    (expected.learn_split if "ood_split" in params else expected.learn_pass)(
        splits[known], splits[2]
    )
    np.testing.assert_allclose(method.weights_, expected.weights_, rtol=1e-9)


def test_splits_that_results_are_reported_on_are_refused(run):
    for split, problem in {
        "far": "results are reported on 'far'",
        "val": "'val' is a split of the in-dist",
    }.items():
        with pytest.raises(ParameterError, match=problem):
            fit_method(methods.create("mds_ensemble", ood_split=split), run)


def test_it_is_fitted_again_when_the_split_changes_and_not_when_a_test_split_does(
    run, make, tmp_path
):
    entries = [read_entry("mds_ensemble", {"ood_split": "ood_val"})]

    def fit():
        fresh = RunRegions(run.folder, test_splits=("far",))
        return fit_run(entries, fresh, tmp_path / "fitted", {"mds_ensemble": ""}).fitted

    assert [fit(), fit()] == [["mds_ensemble"], []]
    make(50, seed=9, shift=4.0).write(run.folder / "far")
    assert fit() == []
    make(50, seed=9, shift=4.0).write(run.folder / "ood_val")
    assert fit() == ["mds_ensemble"]


def test_weights_that_were_not_learned_and_parameters_that_exclude_each_other_are_refused(splits):
    train, known, unknown, _ = splits
    method = methods.create("mds_ensemble", ood_split="s").fit(train)
    with pytest.raises(FitError, match="call learn_split"):
        method.score(known)
    with pytest.raises(FitError, match="150 known and 1 unknown regions"):
        method.learn_split(known, unknown[:1])
    with pytest.raises(ParameterError, match="not from both"):
        methods.create("mds_ensemble", ood_split="s", negatives="p")
