"""Time and memory of the methods, beside other libraries and the bare matrix products.

    python benchmarks/methods.py time
        20,000 × 1,024 training features, 20 classes, 7,000 test regions
    python benchmarks/methods.py torch
        the score alone of `to_torch` beside pytorch-ood's, on the same tensors
    python benchmarks/methods.py memory
        1,000,000 × 256 regions on disk, each method in a process of its own

"products" are the bare matrix products of the same shapes and type, by NumPy: the least that a
method costs that reads all of these numbers. Run it on an idle machine: the load is printed with
the results.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from farther import methods
from farther.tables import Regions, RegionsFolder, RegionsWriter

#: The methods of the benchmark's paper.
PAPER = [
    *(
        "msp",
        "energy",
        "gen",
        "knn",
        "mahalanobis",
        "ddu",
        "vim",
        "ash",
        "dice",
        "react",
        "dice_react",
    ),
    *("lard_knn", "lard_mahalanobis", "lard_gmm", "vos"),
]
LATENT = 256
SHARD = 50_000


def make(count: int, dimensions: int, classes: int, seed: int) -> Regions:
    """Rectified features around one centre a class, and the logits of one last layer."""
    weight = (
        np.random.default_rng(0).normal(scale=0.05, size=(classes, dimensions)).astype(np.float32)
    )
    bias = np.zeros(classes, np.float32)
    rng = np.random.default_rng(seed)
    features = (
        rng.normal(size=(count, dimensions)).astype(np.float32)
        + 5 * weight[rng.integers(classes, size=count)]
    )
    features = np.maximum(features, 0)
    logits = features @ weight.T + bias
    return Regions(
        image_id=[f"image{i // 5}" for i in range(count)],
        region_id=np.arange(count),
        box=np.zeros((count, 4)),
        score=np.ones(count),
        label=logits.argmax(axis=1),
        logits=logits,
        features=features,
        latent=rng.normal(size=(count, LATENT)).astype(np.float32),
        **{"gram.layer1": rng.normal(size=(count, 5 * LATENT)).astype(np.float32)},
        weight=weight,
        bias=bias,
    )


def seconds(work: Callable[[], object], repeat: int) -> float:
    """The shortest of several runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def products(train: Regions, test: Regions) -> dict[str, Callable[[], object]]:
    """For each method, the matrix products that it cannot avoid, fit and score together."""
    wide, asked = train.features.astype(np.float64), test.features.astype(np.float64)
    square = wide[: wide.shape[1]]
    rest = np.ascontiguousarray(
        square[:, : max(1, wide.shape[1] - methods.create("vim")._dimension(wide.shape[1]))]
    )
    classes = len(train.classes)

    def once_a_class() -> None:
        _ = wide.T @ wide
        for _ in range(classes):
            _ = asked @ square

    return {
        "knn": lambda: test.features @ train.features.T,
        "mahalanobis": lambda: (wide.T @ wide, asked @ square),
        "ddu": once_a_class,
        "vim": lambda: (wide.T @ wide, wide @ rest, asked @ rest),
        "mds_ensemble": lambda: (wide.T @ wide, asked @ square, train.latent.T @ train.latent),
        "relation": lambda: (test.features @ train.features.T) * (test.logits @ train.logits.T),
    }


def peers(train: Regions, test: Regions) -> dict[str, Callable[[], object]]:
    """For each method that pytorch-ood or scikit-learn has: fit and score."""
    import torch
    from pytorch_ood import detector as ood

    z, y, c = (
        torch.from_numpy(np.asarray(a))
        for a in (train.features, train.label.astype(np.int64), train.logits)
    )
    tz, tc = torch.from_numpy(test.features), torch.from_numpy(test.logits)
    layer = torch.nn.Linear(*reversed(train.weight.shape)).requires_grad_(False)
    layer.weight.copy_(torch.from_numpy(train.weight))
    layer.bias.copy_(torch.from_numpy(train.bias))
    dim = methods.create("vim")._dimension(train.features.shape[1])
    maps, train_maps = tz[:, :, None, None], z[:, :, None, None]

    def through(x: torch.Tensor) -> torch.Tensor:
        return layer(x.flatten(1))

    def kernel_machine() -> None:
        from sklearn.decomposition import PCA
        from sklearn.pipeline import make_pipeline
        from sklearn.svm import OneClassSVM

        sample = train.features[: methods.create("oodl").sample]
        make_pipeline(PCA(64), OneClassSVM(nu=0.1)).fit(sample).decision_function(test.features)

    def several_layers() -> None:
        latents = [torch.from_numpy(regions.latent) for regions in (train, test)]
        fitted = ood.MultiMahalanobis([None, None]).to("cpu").fit_structured([latents[0], z], y)
        for some in zip(
            latents[1].split(500), tz.split(500), strict=True
        ):  # it computes a matrix of rows by rows
            fitted.predict_structured([values[:, :, None, None] for values in some])

    return {
        "msp": lambda: ood.MaxSoftmax(None).predict_logits(tc),
        "energy": lambda: ood.EnergyBased.score(tc),
        "gen": lambda: ood.GEN.score(tc),
        "mls": lambda: ood.MaxLogit.score(tc),
        "entropy": lambda: ood.Entropy.score(tc),
        "knn": lambda: ood.KNN(None, k=10).fit_features(z, y).predict_features(tz),
        "mahalanobis": lambda: ood.Mahalanobis(None).fit_features(z, y).predict_features(tz),
        "relative_mahalanobis": lambda: ood.RMD(None).fit_features(z, y).predict_features(tz),
        "ddu": lambda: ood.GMM(None).fit_features(z, y).predict_features(tz),
        "vim": lambda: (
            ood.ViM(None, dim, layer.weight, layer.bias).fit_features(z, y).predict_features(tz)
        ),
        "ash": lambda: ood.ASH(None, through, percentile=0.9).predict_feature_maps(maps),
        "scale": lambda: ood.SCALE(None, through, percentile=0.85).predict_feature_maps(maps),
        "react": lambda: (
            ood.ReAct(None, through).fit_feature_maps(train_maps, y).predict_feature_maps(maps)
        ),
        "dice": lambda: (
            ood.DICE(None, layer.weight, layer.bias, p=0.9).fit_features(z, y).predict_features(tz)
        ),
        "kl_matching": lambda: ood.KLMatching(None).fit_logits(c).predict_logits(tc),
        "openmax": lambda: ood.OpenMax(None, tailsize=20).fit_logits(c, y).predict_logits(tc),
        "she": lambda: ood.SHE(None, layer).fit_features(z, y).predict_features(tz),
        "gradnorm": lambda: ood.GradNorm(layer, param_filter=lambda name: name == "weight").predict(
            tz
        ),
        "fdbd": lambda: ood.fDBD(None, layer).fit_features(z).predict_features(tz),
        "nnguide": lambda: ood.NNGuide(None, layer, k=10).fit_features(z, y).predict_features(tz),
        "mds_ensemble": several_layers,
        "oodl": kernel_machine,
    }


#: Parameters without a default, and what a method would otherwise take from detections whose true
#: class is known.
GIVEN = {"temperature_scaling": {"temperature": 2.0}, "gram": {"layer": ["layer1"]}}


def measure_time(args: argparse.Namespace) -> None:
    train = make(args.train, args.dimensions, args.classes, seed=1)
    test = make(args.test, args.dimensions, args.classes, seed=2)
    others, bare = peers(train, test), products(train, test)
    print(
        f"{args.train} × {args.dimensions} training features, {args.classes} classes, "
        f"{args.test} test regions"
    )
    print(
        f"{'method':22}{'fit s':>9}{'score s':>9}{'peer s':>9}{'÷ peer':>9}{'products s':>12}"
        f"{'÷ products':>12}"
    )
    total = 0.0
    for name in args.names or methods.names():
        method = methods.create(name, **GIVEN.get(name, {}))
        if method.wants_pass or method.missing(train):
            continue
        fit = seconds(lambda method=method: method.fit(train), args.repeat)
        score = seconds(lambda method=method: method.score(test), args.repeat)
        total += fit + score if name in PAPER else 0.0
        row = f"{name:22}{fit:9.3f}{score:9.3f}"
        for width, found in ((9, others.get(name)), (12, bare.get(name))):
            other = seconds(found, args.repeat) if found else None
            row += (
                f"{other:{width}.3f}{(fit + score) / other:{width}.2f}"
                if other
                else " " * 2 * width
            )
        print(row, flush=True)
    print(f"{'the paper’s together':22}{total:18.3f}")


def modules(
    train: Regions, test: Regions, device: str, dtype: Any
) -> dict[str, tuple[Callable, Callable]]:
    """Scores of farther's module and of the peer's, both fitted, for each method of pytorch-ood."""
    import torch
    from pytorch_ood import detector as ood

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(array)).to(device, dtype)

    h, y = tensor(train.features), torch.from_numpy(train.label.astype(np.int64)).to(device)
    columns = {"features": tensor(test.features), "logits": tensor(test.logits)}
    columns["label"] = torch.from_numpy(test.label.astype(np.int64)).to(device)
    asked, asked_logits = columns["features"], columns["logits"]
    layer = torch.nn.Linear(
        *reversed(train.weight.shape), device=device, dtype=dtype
    ).requires_grad_(False)
    layer.weight.copy_(tensor(train.weight))
    layer.bias.copy_(tensor(train.bias))
    maps = asked[:, :, None, None]

    def through(x: torch.Tensor) -> torch.Tensor:
        return layer(x.flatten(1))

    knn = ood.KNN(None, k=10).fit_features(h, y)
    mahalanobis = ood.Mahalanobis(None).fit_features(h, y)
    vim = ood.ViM(
        None, methods.create("vim")._dimension(h.shape[1]), layer.weight, layer.bias
    ).fit_features(h, y)
    ash, scale = ood.ASH(None, through, percentile=0.9), ood.SCALE(None, through, percentile=0.85)
    react = ood.ReAct(None, through).fit_feature_maps(h[:, :, None, None], y)
    nnguide = ood.NNGuide(None, layer, k=10).fit_features(h, y)
    she = ood.SHE(None, layer).fit_features(h, y)
    relative = ood.RMD(None).fit_features(h, y)
    ddu = ood.GMM(None).fit_features(h, y)
    dice = ood.DICE(None, layer.weight, layer.bias, p=0.9).fit_features(h, y)
    fdbd = ood.fDBD(None, layer).fit_features(h)
    mcm = ood.MCM(None, layer.weight)
    train_logits = tensor(train.logits)
    kl_matching = ood.KLMatching(None).fit_logits(train_logits, y)
    openmax = ood.OpenMax(None, tailsize=20).fit_logits(train_logits, y)
    theirs = {
        "msp": lambda: ood.MaxSoftmax(None).predict_logits(asked_logits),
        "energy": lambda: ood.EnergyBased.score(asked_logits),
        "gen": lambda: ood.GEN.score(asked_logits),
        "mls": lambda: ood.MaxLogit.score(asked_logits),
        "entropy": lambda: ood.Entropy.score(asked_logits),
        "knn": lambda: knn.predict_features(asked),
        "mahalanobis": lambda: mahalanobis.predict_features(asked),
        "vim": lambda: vim.predict_features(asked),
        "ash": lambda: ash.predict_feature_maps(maps),
        "scale": lambda: scale.predict_feature_maps(maps),
        "react": lambda: react.predict_feature_maps(maps),
        "she": lambda: she.predict_features(asked),
        "nnguide": lambda: nnguide.predict_features(asked),
        "relative_mahalanobis": lambda: relative.predict_features(asked),
        "ddu": lambda: ddu.predict_features(asked),
        "dice": lambda: dice.predict_features(asked),
        "fdbd": lambda: fdbd.predict_features(asked),
        "mcm": lambda: mcm.predict_features(asked),
        "kl_matching": lambda: kl_matching.predict_logits(asked_logits),
        "openmax": lambda: openmax.predict_logits(asked_logits),
    }
    both = {}
    for name, peer in theirs.items():
        method = methods.create(name).fit(train)
        module = method.to_torch(device, torch.float64 if method.only_float64 else dtype)
        own = {column: columns[column] for column in columns if column in {*method.inputs, "label"}}
        both[name] = (lambda module=module, own=own: module(**own), peer)
    return both


def measure_torch(args: argparse.Namespace) -> None:
    import torch

    train = make(args.train, args.dimensions, args.classes, seed=1)
    test = make(args.test, args.dimensions, args.classes, seed=2)
    print(
        f"{args.train} × {args.dimensions} training features, {args.test} test regions, "
        f"{args.device}, {args.dtype}"
    )
    print(f"{'method':22}{'farther ms':>12}{'peer ms':>12}{'÷ peer':>9}")

    def milliseconds(work: Callable[[], object]) -> float:
        start = time.perf_counter()
        work()
        if args.device == "cuda":
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)

    with torch.no_grad():
        for name, pair in modules(train, test, args.device, getattr(torch, args.dtype)).items():
            if args.names and name not in args.names:
                continue
            times: list[list[float]] = [[], []]
            for _ in range(max(5, args.repeat)):  # interleaved: a load of the machine slows both
                for of_module, work in zip(times, pair, strict=True):
                    of_module.append(milliseconds(work))
            own, peer = (float(np.median(of_module)) for of_module in times)
            print(f"{name:22}{own:12.2f}{peer:12.2f}{own / peer:9.2f}", flush=True)


def measure_memory(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "regions"
        write_large(path, args.large, 256, args.classes)
        names = args.names or PAPER
        print(
            f"{args.large} × 256 regions\n{'method':22}{'fit s':>9}{'score s':>9}{'peak GiB':>10}"
        )
        for name in names:
            command = [
                sys.executable,
                __file__,
                "one",
                "--names",
                name,
                "--folder",
                str(path),
                "--test",
                str(args.test),
            ]
            print(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout,
                end="",
                flush=True,
            )


def write_large(path: Path, count: int, dimensions: int, classes: int) -> None:
    first = make(1, dimensions, classes, seed=0)
    writer = RegionsWriter(path, first.header)
    shards = [min(SHARD, count - start) for start in range(0, count, SHARD)]
    for shard, size in enumerate(shards):
        writer.write_shard(shard, make(size, dimensions, classes, seed=shard))
    writer.close(len(shards))


def measure_one(args: argparse.Namespace) -> None:
    """One method on a folder, in this process, so that its peak memory is its own."""
    (name,) = args.names
    folder = RegionsFolder(args.folder)
    method = methods.create(name, **GIVEN.get(name, {}))
    fit = seconds(lambda: method.fit(folder), 1)
    test = next(folder.batches())[: args.test]
    score = seconds(lambda: method.score(test), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{name:22}{fit:9.2f}{score:9.2f}{peak:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        choices=["time", "torch", "memory", "one"],
        help="'one' is what 'memory' runs for each method",
    )
    parser.add_argument("--names", nargs="*", help="methods; all when absent")
    parser.add_argument("--train", type=int, default=20_000)
    parser.add_argument("--test", type=int, default=7_000)
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="for 'torch'")
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "float64"], help="for 'torch'"
    )
    parser.add_argument("--folder", help="for 'one'")
    args = parser.parse_args()
    if args.what != "one":
        print(f"load before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} processors")
    measures = {
        "time": measure_time,
        "torch": measure_torch,
        "memory": measure_memory,
        "one": measure_one,
    }
    measures[args.what](args)
    if args.what != "one":
        print(f"load after: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
