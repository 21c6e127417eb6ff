"""Methods that are fitted on annotated objects, beside OpenOOD's definitions.

The definitions are written out as loops over the training images.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from tests.support.fitting import fit_and_score

from farther import methods
from farther.scoring.entries import read_entry
from farther.scoring.fit import fit_entry
from farther.scoring.inputs import FitSettings, RunRegions
from farther.tables import Objects, Regions

CLASSES = ("ant", "bee", "cat")
COUNTS = {"train": 90, "val": 30, "far": 30}


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 5), torch.nn.Softplus(), torch.nn.Linear(5, 3)
    ).double()


def classified(count: int, seed: int) -> tuple[Regions, np.ndarray]:
    """Features and logits of images by a small network, and labels that it often predicts wrong."""
    generator, net = torch.Generator().manual_seed(seed), network()
    with torch.no_grad():
        features = net[:2](2 * torch.randn(count, 6, generator=generator, dtype=torch.float64))
        logits = net[2](features)
    annotated = np.random.default_rng(seed).integers(3, size=count)
    annotated = np.where(np.arange(count) % 2, annotated, logits.argmax(dim=1).numpy())
    regions = Regions(
        image_id=[f"{seed}/{i:03d}" for i in range(count)],
        region_id=[0] * count,
        box=[[0, 0, 32, 32]] * count,
        score=logits.softmax(dim=1).amax(dim=1).numpy(),
        label=logits.argmax(dim=1).numpy(),
        logits=logits.numpy().astype(np.float32),
        features=features.numpy().astype(np.float32),
        latent=features.square().numpy().astype(np.float32),
        classes=CLASSES,
        weight=net[2].weight.detach().numpy().astype(np.float32),
        bias=net[2].bias.detach().numpy().astype(np.float32),
    )
    return regions, annotated


def write_objects(path, regions: Regions, category: list[str], box=None) -> None:
    box = regions.box if box is None else box
    Objects(
        image_id=regions.image_id, object_id=np.arange(len(regions)), box=box, category=category
    ).write(path)


@pytest.fixture
def run(tmp_path):
    """Regions of three splits, and objects of the training split."""
    found = {split: classified(count, seed) for seed, (split, count) in enumerate(COUNTS.items())}
    for split, (regions, _) in found.items():
        regions.write(tmp_path / "regions" / split)
    train, annotated = found["train"]
    write_objects(tmp_path / "splits/train/objects.parquet", train, [CLASSES[k] for k in annotated])
    settings = FitSettings(labels="annotated")
    return (
        RunRegions(tmp_path / "regions", settings=settings, splits=tmp_path / "splits"),
        train,
        annotated,
    )


def by_class(vectors: np.ndarray, labels: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The mean of each class, and the inverse of the covariance that all classes have in common."""
    means = [vectors[labels == c].mean(axis=0) for c in range(3)]
    centred = [x - means[c] for x, c in zip(vectors, labels, strict=True)]
    return means, np.linalg.inv(sum(np.outer(x, x) for x in centred) / len(vectors))


def mds(column):
    def scores(train, labels, test):
        means, precision = by_class(getattr(train, column).astype(float), labels)
        return [
            max(-(x - m) @ precision @ (x - m) for m in means)
            for x in getattr(test, column).astype(float)
        ]

    return scores


def rmds(train, labels, test):
    whole = train.features.mean(axis=0, dtype=float)
    precision = np.linalg.inv(np.cov(train.features.astype(float).T, bias=True))
    background = [-(x - whole) @ precision @ (x - whole) for x in test.features.astype(float)]
    return np.subtract(mds("features")(train, labels, test), background)


def she(train, labels, test):
    pattern = []
    for c in range(3):
        correct = [
            x
            for x, y, z in zip(train.features, labels, train.logits, strict=True)
            if y == c == z.argmax()
        ]
        pattern.append(np.mean(correct, axis=0, dtype=float))
    return [x @ pattern[z.argmax()] for x, z in zip(test.features, test.logits, strict=True)]


def ddu(train, labels, test):
    densities = []
    for c in range(3):
        of_class = train.features[labels == c].astype(float)
        normal = multivariate_normal(of_class.mean(axis=0), np.cov(of_class.T, bias=True))
        densities.append(normal.logpdf(test.features) + np.log(len(of_class) / len(train)))
    return logsumexp(densities, axis=0)


LOOPS = {
    "mahalanobis": ({}, mds("features")),
    "relative_mahalanobis": ({}, rmds),
    "mds_ensemble": ({"layer": ["latent"]}, mds("latent")),
    "she": ({}, she),
    "ddu": ({}, ddu),
}


@pytest.mark.parametrize("name", LOOPS)
def test_annotated_classes_are_learned_as_openood_does(run, tmp_path, name):
    regions, train, annotated = run
    assert 0.4 < (annotated == train.label).mean() < 0.8
    params, loop = LOOPS[name]
    assert fit_entry(read_entry(name, params), regions, tmp_path / "fitted") is None
    test, _ = classified(40, 9)
    expected = np.asarray(loop(train, annotated, test), dtype=float)
    scores = methods.load(tmp_path / "fitted").score(test)
    np.testing.assert_allclose(scores, expected, atol=1e-6 * expected.std())
    of_predicted = methods.create(name, **params).fit(train).score(test)
    assert np.abs(of_predicted - expected).max() > 1e-2 * expected.std()


def test_openmax_learns_from_correctly_classified_regions(run):
    regions, train, annotated = run
    method = methods.create("openmax")
    regions.fit(method)
    of_correct = methods.create("openmax").fit(train[annotated == train.label])
    np.testing.assert_allclose(method.score(train), of_correct.score(train), rtol=1e-12)


def test_methods_without_classes_learn_from_all_regions(run):
    regions, train, _ = run
    method = methods.create("knn", k=3)
    regions.fit(method)
    np.testing.assert_allclose(
        method.score(train), methods.create("knn", k=3).fit(train).score(train), rtol=1e-9
    )


def test_regions_that_match_no_known_object_are_left_out(run, tmp_path):
    regions, train, annotated = run
    category = [
        "dog" if i % 5 == 0 else CLASSES[k] for i, k in enumerate(annotated)
    ]  # no class of the network
    box = np.where(np.arange(len(train))[:, None] % 5 == 1, [40.0, 40, 60, 60], train.box)
    write_objects(tmp_path / "splits/train/objects.parquet", train, category, box)
    method = methods.create("mahalanobis")
    regions.fit(method)
    matched = np.arange(len(train)) % 5 > 1
    assert method.fitted_on_["regions"] == matched.sum()
    test, _ = classified(40, 9)
    expected = mds("features")(train[matched], annotated[matched], test)
    np.testing.assert_allclose(method.score(test), expected, atol=1e-6 * np.std(expected))


def test_without_any_match_the_reason_says_what_to_write(run, tmp_path):
    regions, train, _ = run
    write_objects(tmp_path / "splits/train/objects.parquet", train, ["dog"] * len(train))
    reason = fit_entry(read_entry("she", {}), regions, tmp_path / "fitted")
    assert "no region of split 'train' matches an annotated object" in reason
    assert "fit.labels: predicted" in reason


def test_other_annotations_score_those_methods_again_that_learn_from_them(run, tmp_path):
    regions, train, annotated = run

    def process():
        read_anew = replace(regions, known_digests={})
        return fit_and_score({"she": {}, "msp": {}}, read_anew, tmp_path)

    process()
    assert process().fit.fitted == []
    write_objects(
        tmp_path / "splits/train/objects.parquet", train, [CLASSES[k] for k in annotated[::-1]]
    )
    done = process()
    assert done.fit.fitted == ["she", "msp"]
    assert done.score.scored == ["she/far", "she/val"]
