"""Time and memory of the methods, beside other libraries and the bare matrix products.

    python benchmarks/methods.py time
        fit and score on 20,000 × 1,024 training features, 20 classes, 7,000 test regions
    python benchmarks/methods.py few
        the score alone of 1, 10 and 100 test regions, as a monitor asks for it
    python benchmarks/methods.py torch
        the score alone of `to_torch` beside pytorch-ood's, on the same tensors
    python benchmarks/methods.py memory
        1,000,000 × 256 regions on disk, each method in a process of its own

`time` prints one row per method and peer: pytorch-ood, FAISS, scikit-learn with SciPy, and
"products", the bare matrix products of the same shapes and type by NumPy, which a method that reads
all of these numbers costs at least. Seconds are processor seconds on one thread. A method and its
peers take turns in each round; the ratio is that of the sums of fit and score, of the least seconds
of each, and its median over the rounds. On a CUDA device `torch` measures seconds by the clock.

Peers compute the same formula. Where they also fit something else or nothing, that is a row of its
own: pytorch-ood's ASH takes the largest values of each region, as `protocol: published-code` does;
`ash` by the paper also finds a percentile of the training features. Its VRA has limits for each
feature, as `protocol: published-code` has, its NACUE other bins.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from farther import methods
from farther.tables import Header, Regions, RegionsFolder, RegionsWriter

#: The methods of the benchmark's paper.
PAPER = (
    *("msp", "energy", "gen", "knn", "mahalanobis", "ddu", "vim", "ash", "dice", "react"),
    *("dice_react", "lard_knn", "lard_mahalanobis", "lard_gmm", "vos"),
)
LATENT = 256
SHARD = 50_000
#: Principal components of the latent activations in the peers of `lard_*`, farther's default.
COMPONENTS = 32
#: Parameters without a default, and what a method would otherwise take from detections whose true
#: class is known.
GIVEN: dict[str, dict[str, Any]] = {
    "temperature_scaling": {"temperature": 2.0},
    "gram": {"layer": ["layer1"]},
    "fused": {"of": ["energy", "mahalanobis"]},
    "cascade": {"first": "energy", "then": "mahalanobis"},
}
#: Further rows: the method, and its parameters.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ash, published code": ("ash", {"protocol": "published-code"}),
    "vra, published code": ("vra", {"protocol": "published-code", "below": "clip"}),
}
#: Methods that compute no score: they read a file, or the detector's label.
NOT_COMPUTED = ("imported", "native")
#: Shorter than this, the time of a call is that of Python: no ratio is reported.
SHORTEST = 1e-3
#: Numbers of test regions of `few`.
FEW = (1, 10, 100)


@dataclass(frozen=True)
class Peer:
    """A method in another library.

    Args:
        library: Its name.
        score: Scores the test regions; called with what `fit` returned.
        fit: Fits to the training regions; None if there is nothing to fit.
    """

    library: str
    score: Callable[[Any], object]
    fit: Callable[[], Any] | None = None


def make(count: int, dimensions: int, classes: int, seed: int) -> Regions:
    """Rectified features around one centre per class, and the logits of one last layer."""
    weight = np.random.default_rng(0).normal(scale=0.05, size=(classes, dimensions))
    weight = weight.astype(np.float32)
    bias = np.zeros(classes, np.float32)
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(count, dimensions)).astype(np.float32)
    features = np.maximum(noise + 5 * weight[rng.integers(classes, size=count)], 0)
    logits = features @ weight.T + bias

    names = tuple(f"class {number}" for number in range(classes))
    columns: dict[str, Any] = {
        "logits": logits,
        "features": features,
        "latent": rng.normal(size=(count, LATENT)).astype(np.float32),
        "gram.layer1": rng.normal(size=(count, 5 * LATENT)).astype(np.float32),
    }
    return Regions(
        header=Header(names, detector={"name": "drawn"}, weight=weight, bias=bias),
        image_id=[f"image{number // 5}" for number in range(count)],
        region_id=np.arange(count),
        box=np.zeros((count, 4)),
        score=np.ones(count),
        label=logits.argmax(axis=1),
        **columns,
    )


def column(regions: Regions, name: str) -> np.ndarray:
    """A column that the regions have."""
    values = regions.array(name)
    assert values is not None, name
    return values


def vim_dimension(width: int) -> int:
    """Number of principal dimensions that `vim` takes for features of a width."""
    vim: Any = methods.create("vim")
    return vim._dimension(width)


# --------------------------------------------------------------------------------------------------
# fit and score


def products(train: Regions, test: Regions) -> dict[str, Peer]:
    """For each method, the matrix products that it cannot avoid."""
    stored = column(train, "features")
    queries = column(test, "features")
    stored64 = stored.astype(np.float64)
    queries64 = queries.astype(np.float64)
    width = stored.shape[1]
    square = stored64[:width]
    residual = np.ascontiguousarray(square[:, : max(1, width - vim_dimension(width))])
    latent = column(train, "latent")

    def covariance() -> None:
        _ = stored64.T @ stored64

    def one_precision(_fitted: object) -> None:
        _ = queries64 @ square

    def precision_per_class(_fitted: object) -> None:
        for _ in train.classes:
            _ = queries64 @ square

    def vim_fit() -> None:
        _ = stored64.T @ stored64
        _ = stored64 @ residual

    def ensemble_fit() -> None:
        _ = stored64.T @ stored64
        _ = latent.T @ latent

    def relations(_fitted: object) -> None:
        _ = (queries @ stored.T) * (test.logits @ train.logits.T)

    name = "products"
    return {
        "knn": Peer(name, lambda _fitted: queries @ stored.T),
        "mahalanobis": Peer(name, one_precision, covariance),
        "ddu": Peer(name, precision_per_class, covariance),
        "vim": Peer(name, lambda _fitted: queries64 @ residual, vim_fit),
        "mds_ensemble": Peer(name, one_precision, ensemble_fit),
        "relation": Peer(name, relations),
    }


def pytorch_ood(train: Regions, test: Regions) -> dict[str, Peer]:
    """The methods of pytorch-ood."""
    import torch
    from pytorch_ood import detector as ood

    torch.set_num_threads(1)
    h = torch.from_numpy(np.array(column(train, "features")))
    z = torch.from_numpy(np.array(train.logits))
    y = torch.from_numpy(train.label.astype(np.int64))
    test_h = torch.from_numpy(np.array(column(test, "features")))
    test_z = torch.from_numpy(np.array(test.logits))
    layer = last_layer(train)
    maps = test_h[:, :, None, None]
    train_maps = h[:, :, None, None]
    dimension = vim_dimension(h.shape[1])

    def through(values: torch.Tensor) -> torch.Tensor:
        return layer(values.flatten(1))

    def of_features(fitted: Any) -> object:
        return fitted.predict_features(test_h)

    def of_logits(fitted: Any) -> object:
        return fitted.predict_logits(test_z)

    def of_maps(fitted: Any) -> object:
        return fitted.predict_feature_maps(maps)

    def fit_ensemble() -> Any:
        latent = torch.from_numpy(np.array(column(train, "latent")))
        return ood.MultiMahalanobis([None, None]).to("cpu").fit_structured([latent, h], y)

    def score_ensemble(fitted: Any) -> None:
        latent = torch.from_numpy(np.array(column(test, "latent")))
        # It computes a matrix of rows by rows: 500 at a time.
        for rows in zip(latent.split(500), test_h.split(500), strict=True):
            fitted.predict_structured([values[:, :, None, None] for values in rows])

    def gradnorm(_fitted: object) -> object:
        return ood.GradNorm(layer, param_filter=lambda name: name == "weight").predict(test_h)

    def grad_uncertainty(_fitted: object) -> object:
        return ood.GradUncertainty(layer).predict(test_h)

    def fit_nac() -> Any:
        inner = torch.nn.Identity()
        network = torch.nn.Sequential(inner, layer)
        return ood.NACUE(network, [inner]).fit(h.clone().requires_grad_().split(1000))

    def score_nac(fitted: Any) -> object:
        return fitted.predict(test_h.clone().requires_grad_())

    def fit_vra() -> Any:
        peer = ood.VRA(None, through, lower_percentile=0.6, upper_percentile=0.95)
        return peer.fit_feature_maps(train_maps, y)

    def ash(_fitted: object) -> object:
        return of_maps(ood.ASH(None, through, percentile=0.9))

    def vos(_fitted: object) -> object:
        return ood.WeightedEBO.score(test_z, torch.ones(test_z.shape[1]))

    name = "pytorch-ood"
    weight, bias = layer.weight, layer.bias
    return {
        "msp": Peer(name, lambda _fitted: ood.MaxSoftmax(None).predict_logits(test_z)),
        "energy": Peer(name, lambda _fitted: ood.EnergyBased.score(test_z)),
        "gen": Peer(name, lambda _fitted: ood.GEN.score(test_z)),
        "mls": Peer(name, lambda _fitted: ood.MaxLogit.score(test_z)),
        "entropy": Peer(name, lambda _fitted: ood.Entropy.score(test_z)),
        "gradnorm": Peer(name, gradnorm),
        "grad_uncertainty": Peer(name, grad_uncertainty),
        "mcm": Peer(name, lambda _fitted: ood.MCM(None, weight).predict_features(test_h)),
        "vos": Peer(name, vos),
        "lts": Peer(name, lambda _fitted: of_features(ood.LTS(None, layer))),
        "nci": Peer(name, of_features, lambda: ood.NCI(None, layer, alpha=0.0001).fit_features(h)),
        "pnml": Peer(name, of_features, lambda: ood.PNML(None, layer).fit_features(h, y)),
        "vra": Peer(name, of_maps, fit_vra),
        "vra, published code": Peer(name, of_maps, fit_vra),
        "nac_ue": Peer(name, score_nac, fit_nac),
        "ash": Peer(name, ash),
        "ash, published code": Peer(name, ash),
        "scale": Peer(name, lambda _fitted: of_maps(ood.SCALE(None, through, percentile=0.85))),
        "knn": Peer(name, of_features, lambda: ood.KNN(None, k=10).fit_features(h, y)),
        "mahalanobis": Peer(name, of_features, lambda: ood.Mahalanobis(None).fit_features(h, y)),
        "relative_mahalanobis": Peer(name, of_features, lambda: ood.RMD(None).fit_features(h, y)),
        "ddu": Peer(name, of_features, lambda: ood.GMM(None).fit_features(h, y)),
        "vim": Peer(
            name, of_features, lambda: ood.ViM(None, dimension, weight, bias).fit_features(h, y)
        ),
        "react": Peer(
            name, of_maps, lambda: ood.ReAct(None, through).fit_feature_maps(train_maps, y)
        ),
        "dice": Peer(
            name, of_features, lambda: ood.DICE(None, weight, bias, p=0.9).fit_features(h, y)
        ),
        "kl_matching": Peer(name, of_logits, lambda: ood.KLMatching(None).fit_logits(z)),
        "openmax": Peer(name, of_logits, lambda: ood.OpenMax(None, tailsize=20).fit_logits(z, y)),
        "she": Peer(name, of_features, lambda: ood.SHE(None, layer).fit_features(h, y)),
        "fdbd": Peer(name, of_features, lambda: ood.fDBD(None, layer).fit_features(h)),
        "nnguide": Peer(
            name, of_features, lambda: ood.NNGuide(None, layer, k=10).fit_features(h, y)
        ),
        "mds_ensemble": Peer(name, score_ensemble, fit_ensemble),
    }


def faiss_alone(train: Regions, test: Regions) -> dict[str, Peer]:
    """Nearest neighbours by FAISS.

    `knn`, `nnguide`, and `lard_knn` on scikit-learn's components.
    """
    import faiss
    from scipy.special import logsumexp
    from sklearn.decomposition import PCA

    faiss.omp_set_num_threads(1)

    def index_of(vectors: np.ndarray) -> Any:
        index = faiss.IndexFlatL2(vectors.shape[1])
        index.add(vectors)
        return index

    def fit() -> Any:
        vectors = column(train, "features").astype(np.float32)
        faiss.normalize_L2(vectors)
        return index_of(vectors)

    def score(index: Any) -> object:
        vectors = column(test, "features").astype(np.float32)
        faiss.normalize_L2(vectors)
        return index.search(vectors, 10)

    def fit_latent() -> Any:
        components = PCA(COMPONENTS).fit(column(train, "latent").astype(np.float64))
        vectors = components.transform(column(train, "latent").astype(np.float64)).astype(
            np.float32
        )
        return components, index_of(vectors)

    def score_latent(fitted: Any) -> object:
        components, index = fitted
        vectors = components.transform(column(test, "latent").astype(np.float64)).astype(np.float32)
        return index.search(vectors, 10)

    def fit_guides() -> Any:
        vectors = column(train, "features").astype(np.float32)
        faiss.normalize_L2(vectors)
        vectors *= logsumexp(train.logits, axis=1)[:, None]
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        return index

    def score_guides(index: Any) -> object:
        vectors = column(test, "features").astype(np.float32)
        faiss.normalize_L2(vectors)
        guidance, _ = index.search(vectors, 10)
        return guidance.mean(axis=1) * logsumexp(test.logits, axis=1)

    name = "FAISS"
    return {
        "knn": Peer(name, score, fit),
        "nnguide": Peer(name, score_guides, fit_guides),
        "lard_knn": Peer(name, score_latent, fit_latent),
    }


def scikit_learn(train: Regions, test: Regions) -> dict[str, Peer]:
    """Methods in scikit-learn and SciPy."""
    from scipy.special import logsumexp
    from scipy.stats import multivariate_normal
    from sklearn.covariance import EmpiricalCovariance
    from sklearn.decomposition import PCA
    from sklearn.metrics.pairwise import euclidean_distances
    from sklearn.neighbors import KernelDensity
    from sklearn.svm import OneClassSVM

    labels = train.label
    classes = np.unique(labels)
    oodl: Any = methods.create("oodl")

    def fit_mahalanobis(vectors: np.ndarray) -> Any:
        means = np.stack([vectors[labels == label].mean(axis=0) for label in classes])
        centred = vectors - means[np.searchsorted(classes, labels)]
        precision = EmpiricalCovariance(assume_centered=True).fit(centred).precision_
        return means, np.linalg.cholesky(precision)

    def distances(vectors: np.ndarray, fitted: Any) -> object:
        means, white = fitted
        return euclidean_distances(vectors @ white, means @ white, squared=True).min(axis=1)

    def fit_lard_mahalanobis() -> Any:
        components = PCA(COMPONENTS).fit(column(train, "latent").astype(np.float64))
        vectors = components.transform(column(train, "latent").astype(np.float64))
        return components, fit_mahalanobis(vectors)

    def score_lard_mahalanobis(fitted: Any) -> object:
        components, gaussians = fitted
        vectors = components.transform(column(test, "latent").astype(np.float64))
        return distances(vectors, gaussians)

    def fit_lard_gmm() -> Any:
        components = PCA(COMPONENTS).fit(column(train, "latent").astype(np.float64))
        vectors = components.transform(column(train, "latent").astype(np.float64))
        densities = []
        for label in classes:
            members = vectors[labels == label]
            density = multivariate_normal(members.mean(axis=0), np.cov(members.T, bias=True))
            densities.append((np.log(len(members) / len(vectors)), density))
        return components, densities

    def score_lard_gmm(fitted: Any) -> object:
        components, densities = fitted
        vectors = components.transform(column(test, "latent").astype(np.float64))
        terms = [prior + density.logpdf(vectors) for prior, density in densities]
        return logsumexp(terms, axis=0)

    def fit_lard_kde() -> Any:
        components = PCA(COMPONENTS).fit(column(train, "latent").astype(np.float64))
        vectors = components.transform(column(train, "latent").astype(np.float64))
        return components, KernelDensity().fit(vectors)

    def score_lard_kde(fitted: Any) -> object:
        components, density = fitted
        vectors = components.transform(column(test, "latent").astype(np.float64))
        return density.score_samples(vectors)

    def fit_kernel_machine() -> Any:
        features = column(train, "features")
        components = PCA(oodl.components).fit(features)
        machine = OneClassSVM(nu=oodl.nu).fit(components.transform(features[: oodl.sample]))
        return components, machine

    def score_kernel_machine(fitted: Any) -> object:
        components, machine = fitted
        return machine.decision_function(components.transform(column(test, "features")))

    name = "scikit-learn"
    return {
        "mahalanobis": Peer(
            name,
            lambda fitted: distances(column(test, "features").astype(np.float64), fitted),
            lambda: fit_mahalanobis(column(train, "features").astype(np.float64)),
        ),
        "lard_mahalanobis": Peer(name, score_lard_mahalanobis, fit_lard_mahalanobis),
        "lard_gmm": Peer(name, score_lard_gmm, fit_lard_gmm),
        "lard_kde": Peer(name, score_lard_kde, fit_lard_kde),
        "oodl": Peer(name, score_kernel_machine, fit_kernel_machine),
    }


def last_layer(train: Regions) -> Any:
    """The last linear layer of the regions' network as a PyTorch module."""
    import torch

    weight, bias = train.header.weight, train.header.bias
    assert weight is not None
    assert bias is not None
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0]).requires_grad_(False)
    layer.weight.copy_(torch.from_numpy(np.array(weight)))
    layer.bias.copy_(torch.from_numpy(np.array(bias)))
    return layer


def once(peer: Peer) -> tuple[float, float]:
    """Processor seconds of fit and of score."""
    start = time.process_time()
    fitted = None
    if peer.fit is not None:
        fitted = peer.fit()
    middle = time.process_time()
    peer.score(fitted)
    return middle - start, time.process_time() - middle


def libraries_of(train: Regions, test: Regions) -> list[dict[str, Peer]]:
    """The peers of each library, by method."""
    libraries = []
    for library in (pytorch_ood, faiss_alone, scikit_learn, products):
        libraries.append(library(train, test))
    return libraries


def measured_methods(train: Regions, names: list[str] | None) -> dict[str, Any]:
    """The methods that apply to the regions, by the name of their row."""
    rows = {}
    for name in names or [*methods.names(), *VARIANTS]:
        if name in NOT_COMPUTED:
            continue
        method_name, parameters = VARIANTS.get(name, (name, GIVEN.get(name, {})))
        method: Any = methods.create(method_name, **parameters)
        if not method.wants_pass and not method.missing(train):
            rows[name] = method
    return rows


def measure_time(args: argparse.Namespace) -> None:
    train = make(args.train, args.dimensions, args.classes, seed=1)
    test = make(args.test, args.dimensions, args.classes, seed=2)
    libraries = libraries_of(train, test)
    print(
        f"{args.train} × {args.dimensions} training features, {args.classes} classes, "
        f"{args.test} test regions; processor seconds\n"
    )
    print(
        "| method | fit | score | beside | its fit | its score "
        "| fit ratio | score ratio | ratio | median |"
    )
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    paper_total = 0.0
    for name, method in measured_methods(train, args.names).items():
        own = Peer("farther", lambda fitted: fitted.score(test), partial(method.fit, train))
        peers = [library[name] for library in libraries if name in library]
        total = compare(name, own, peers, args.repeat)
        if name in PAPER:
            paper_total += total
    print(f"\nThe methods of the paper together: {paper_total:.3f}")


def compare(name: str, own: Peer, peers: list[Peer], rounds: int) -> float:
    """Prints one row per peer; returns the method's least seconds of fit and score."""
    own_seconds = []
    measured = [peer for peer in peers if works(name, peer)]
    seconds_by_peer: list[list[tuple[float, float]]] = [[] for _ in measured]
    for _ in range(rounds):
        own_seconds.append(once(own))
        for peer, seconds in zip(measured, seconds_by_peer, strict=True):
            seconds.append(once(peer))

    fit = min(seconds[0] for seconds in own_seconds)
    score = min(seconds[1] for seconds in own_seconds)
    for peer, seconds in zip(measured, seconds_by_peer, strict=True):
        peer_fit = min(pair[0] for pair in seconds)
        peer_score = min(pair[1] for pair in seconds)
        row = f"| {name} | {fit:.3f} | {score:.3f} | {peer.library} "
        row += f"| {peer_fit:.3f} | {peer_score:.3f} "
        row += f"| {ratio(fit, peer_fit)} | {ratio(score, peer_score)} "
        row += f"| {ratio(fit + score, peer_fit + peer_score)} "
        totals = zip(own_seconds, seconds, strict=True)
        ratios = [sum(mine) / max(sum(theirs), 1e-9) for mine, theirs in totals]
        print(row + f"| {statistics.median(ratios):.2f} |", flush=True)
    if not measured:
        print(f"| {name} | {fit:.3f} | {score:.3f} | | | | | | | |", flush=True)
    return fit + score


def works(name: str, peer: Peer) -> bool:
    """True if the peer scores; what is wrong with it otherwise is a line on stderr.

    pytorch-ood's SHE, for one, wants detections of each class.
    """
    try:
        once(peer)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        print(f"{name}: {peer.library}: not measured: {problem}", file=sys.stderr)
        return False
    return True


def ratio(seconds: float, peer_seconds: float) -> str:
    """A ratio, or a dash where both are too short, or the peer has nothing to do."""
    if max(seconds, peer_seconds) < SHORTEST or peer_seconds < SHORTEST / 100:
        return "–"
    return f"{seconds / peer_seconds:.2f}"


# --------------------------------------------------------------------------------------------------
# few regions at a time


def measure_few(args: argparse.Namespace) -> None:
    """Prints a row per method and peer: microseconds of a call, by number of regions."""
    train = make(args.train, args.dimensions, args.classes, seed=1)
    test = make(max(FEW), args.dimensions, args.classes, seed=2)
    libraries_by_count = [libraries_of(train, test[:count]) for count in FEW]
    print(
        f"{args.train} × {args.dimensions} training features, {args.classes} classes; "
        "processor microseconds of a call that scores some regions\n"
    )
    print("| method | beside |" + "".join(f" {count} | its {count} | ratio |" for count in FEW))
    print("| --- | --- |" + " ---: |" * 3 * len(FEW))
    for name, method in measured_methods(train, args.names).items():
        method.fit(train)
        for library in range(len(libraries_by_count[0])):
            peers = [libraries[library].get(name) for libraries in libraries_by_count]
            if peers[0] is None or peers[0].library == "products":
                continue
            if not works(name, peers[0]):
                continue
            fitted = None
            if peers[0].fit is not None:
                fitted = peers[0].fit()
            row = f"| {name} | {peers[0].library} |"
            for count, peer in zip(FEW, peers, strict=True):
                assert peer is not None
                own = partial(method.score, test[:count])
                row += few(own, partial(peer.score, fitted), args)
            print(row, flush=True)


def few(own: Callable[[], object], theirs: Callable[[], object], args: argparse.Namespace) -> str:
    """Cells of a row: the least microseconds of a call, those of the peer, and the ratio."""
    seconds: list[list[float]] = [[], []]
    for _ in range(args.repeat):
        for work, times in zip((own, theirs), seconds, strict=True):
            times.append(seconds_per_call(work, args.seconds))
    least, peer_least = min(seconds[0]), min(seconds[1])
    return f" {1e6 * least:.0f} | {1e6 * peer_least:.0f} | {least / peer_least:.2f} |"


def seconds_per_call(work: Callable[[], object], least: float) -> float:
    """Processor seconds of a call, after one that is not counted.

    The mean of as many calls as take `least` seconds together, one at least.
    """
    work()
    calls = 0
    start = time.process_time()
    passed = 0.0
    while calls == 0 or passed < least:
        work()
        calls += 1
        passed = time.process_time() - start
    return passed / calls


# --------------------------------------------------------------------------------------------------
# the score alone, as a PyTorch module


def modules(
    train: Regions, test: Regions, device: str, dtype: Any
) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Scores of farther's module and of the peer's, both fitted, for each method of pytorch-ood."""
    import torch
    from pytorch_ood import detector as ood

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(array)).to(device, dtype)

    h = tensor(column(train, "features"))
    y = torch.from_numpy(train.label.astype(np.int64)).to(device)
    columns = {"features": tensor(column(test, "features")), "logits": tensor(test.logits)}
    columns["label"] = torch.from_numpy(test.label.astype(np.int64)).to(device)
    test_h, test_z = columns["features"], columns["logits"]
    layer = last_layer(train).to(device, dtype)
    maps = test_h[:, :, None, None]
    dimension = vim_dimension(h.shape[1])

    def through(values: torch.Tensor) -> torch.Tensor:
        return layer(values.flatten(1))

    knn = ood.KNN(None, k=10).fit_features(h, y)
    mahalanobis = ood.Mahalanobis(None).fit_features(h, y)
    vim = ood.ViM(None, dimension, layer.weight, layer.bias).fit_features(h, y)
    ash = ood.ASH(None, through, percentile=0.9)
    scale = ood.SCALE(None, through, percentile=0.85)
    react = ood.ReAct(None, through).fit_feature_maps(h[:, :, None, None], y)
    nnguide = ood.NNGuide(None, layer, k=10).fit_features(h, y)
    she = ood.SHE(None, layer).fit_features(h, y)
    relative = ood.RMD(None).fit_features(h, y)
    ddu = ood.GMM(None).fit_features(h, y)
    dice = ood.DICE(None, layer.weight, layer.bias, p=0.9).fit_features(h, y)
    fdbd = ood.fDBD(None, layer).fit_features(h)
    mcm = ood.MCM(None, layer.weight)
    lts = ood.LTS(None, layer)
    nci = ood.NCI(None, layer, alpha=0.0001).fit_features(h)
    pnml = ood.PNML(None, layer).fit_features(h, y)
    vra = ood.VRA(None, through).fit_feature_maps(h[:, :, None, None], y)
    z = tensor(train.logits)
    kl_matching = ood.KLMatching(None).fit_logits(z, y)
    openmax = ood.OpenMax(None, tailsize=20).fit_logits(z, y)
    theirs: dict[str, Callable[[], object]] = {
        "msp": lambda: ood.MaxSoftmax(None).predict_logits(test_z),
        "energy": lambda: ood.EnergyBased.score(test_z),
        "gen": lambda: ood.GEN.score(test_z),
        "mls": lambda: ood.MaxLogit.score(test_z),
        "entropy": lambda: ood.Entropy.score(test_z),
        "knn": lambda: knn.predict_features(test_h),
        "mahalanobis": lambda: mahalanobis.predict_features(test_h),
        "vim": lambda: vim.predict_features(test_h),
        "ash": lambda: ash.predict_feature_maps(maps),
        "scale": lambda: scale.predict_feature_maps(maps),
        "react": lambda: react.predict_feature_maps(maps),
        "she": lambda: she.predict_features(test_h),
        "nnguide": lambda: nnguide.predict_features(test_h),
        "relative_mahalanobis": lambda: relative.predict_features(test_h),
        "ddu": lambda: ddu.predict_features(test_h),
        "dice": lambda: dice.predict_features(test_h),
        "fdbd": lambda: fdbd.predict_features(test_h),
        "mcm": lambda: mcm.predict_features(test_h),
        "lts": lambda: lts.predict_features(test_h),
        "nci": lambda: nci.predict_features(test_h),
        "pnml": lambda: pnml.predict_features(test_h),
        "vra": lambda: vra.predict_feature_maps(maps),
        "kl_matching": lambda: kl_matching.predict_logits(test_z),
        "openmax": lambda: openmax.predict_logits(test_z),
    }
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}
    for name, peer in theirs.items():
        method = methods.create(name).fit(train)
        module = method.to_torch(device, torch.float64 if method.only_float64 else dtype)
        inputs = {name: columns[name] for name in columns if name in {*method.inputs, "label"}}

        def score(module: Any = module, inputs: dict[str, torch.Tensor] = inputs) -> object:
            return module(**inputs)

        pairs[name] = (score, peer)
    return pairs


def measure_torch(args: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(1)
    train = make(args.train, args.dimensions, args.classes, seed=1)
    test = make(args.test, args.dimensions, args.classes, seed=2)
    print(
        f"{args.train} × {args.dimensions} training features, {args.test} test regions, "
        f"{args.device}, {args.dtype}\n"
    )
    print("| method | farther ms | pytorch-ood ms | ratio | median |")
    print("| --- | ---: | ---: | ---: | ---: |")
    clock = time.process_time if args.device == "cpu" else time.perf_counter

    def milliseconds(work: Callable[[], object]) -> float:
        start = clock()
        work()
        if args.device == "cuda":
            torch.cuda.synchronize()
        return 1e3 * (clock() - start)

    with torch.no_grad():
        pairs = modules(train, test, args.device, getattr(torch, args.dtype))
        for name, (score, peer) in pairs.items():
            if args.names and name not in args.names:
                continue
            own_times = []
            peer_times = []
            for _ in range(args.repeat + 1):
                own_times.append(milliseconds(score))
                peer_times.append(milliseconds(peer))
            # The first round warms up.
            own_times, peer_times = own_times[1:], peer_times[1:]
            own, other = min(own_times), min(peer_times)
            ratios = [a / max(b, 1e-6) for a, b in zip(own_times, peer_times, strict=True)]
            print(
                f"| {name} | {own:.2f} | {other:.2f} | {ratio(own / 1e3, other / 1e3)} "
                f"| {statistics.median(ratios):.2f} |",
                flush=True,
            )


# --------------------------------------------------------------------------------------------------
# memory


def measure_memory(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "regions"
        write_large(path, args.large, 256, args.classes)
        print(f"{args.large} × 256 regions\n")
        print("| method | fit s | score s | peak GiB |\n| --- | ---: | ---: | ---: |", flush=True)
        for name in args.names or PAPER:
            command = [sys.executable, __file__, "one", "--names", name]
            command += ["--folder", str(path), "--test", str(args.test)]
            subprocess.run(command, check=True)


def write_large(path: Path, count: int, dimensions: int, classes: int) -> None:
    first = make(1, dimensions, classes, seed=0)
    writer = RegionsWriter(path, first.header)
    sizes = [min(SHARD, count - start) for start in range(0, count, SHARD)]
    for shard, size in enumerate(sizes):
        writer.write_shard(shard, make(size, dimensions, classes, seed=shard))
    writer.close(len(sizes))


def measure_one(args: argparse.Namespace) -> None:
    """One method on a folder, in this process, so that its peak memory is its own."""
    (name,) = args.names
    folder = RegionsFolder(args.folder)
    method = methods.create(name, **GIVEN.get(name, {}))
    test = next(folder.batches())[: args.test]
    fit, score = once(Peer("farther", lambda m: m.score(test), lambda: method.fit(folder)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"| {name} | {fit:.2f} | {score:.2f} | {peak:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        choices=["time", "few", "torch", "memory", "one"],
        help="'one' is what 'memory' runs for each method",
    )
    parser.add_argument("--names", nargs="*", help="methods; all when absent")
    parser.add_argument("--train", type=int, default=20_000)
    parser.add_argument("--test", type=int, default=7_000)
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3, help="rounds")
    parser.add_argument(
        "--seconds", type=float, default=0.02, help="of a measurement of 'few', at least"
    )
    parser.add_argument("--device", default="cpu", help="for 'torch'")
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "float64"], help="for 'torch'"
    )
    parser.add_argument("--folder", help="for 'one'")
    args = parser.parse_args()
    measures = {
        "time": measure_time,
        "few": measure_few,
        "torch": measure_torch,
        "memory": measure_memory,
        "one": measure_one,
    }
    measures[args.what](args)


if __name__ == "__main__":
    main()
