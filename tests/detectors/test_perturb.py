"""The pass `perturb`, beside pytorch-ood and the formulas of OpenOOD's code."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from pytorch_ood.detector.mahalanobis import MahalanobisODIN
from pytorch_ood.detector.odin import ODIN, odin_preprocessing
from tests.support.cases import slow_but
from tests.support.clock import calls_take
from torch import nn

from farther import detectors, methods
from farther.detectors.classifier import ClassifierBlueprint, OpenOODResNet, save_checkpoint
from farther.detectors.inference import InferenceParams
from farther.detectors.networks.replay import Dropout, RowOutputs
from farther.detectors.passes import infer_passes, read_passes
from farther.detectors.passes.dropout import DropoutPass
from farther.detectors.passes.perturb import Perturb, class_gaussians
from farther.detectors.scaling import Scaled
from farther.detectors.split_inference import infer_splits
from farther.detectors.whole_images import ClassifierNetwork, ClassifierReplay
from farther.errors import ParameterError
from farther.evaluation.cost import CostParams, RunFolders, count_passes, time_network
from farther.images import job
from farther.tables import Header, Images, Regions, RegionsFolder

CLASSES = ("red", "green", "blue")
STD = (0.2, 0.3, 0.4)
PREPROCESSING = {
    "resize": 16,
    "crop": 16,
    "interpolation": "bilinear",
    "mean": (0.5, 0.4, 0.3),
    "std": STD,
}
PARAMS = InferenceParams(batch_size=4, shard_images=10, workers=0)


class Run:
    """A classifier's run over 40 training and 12 test images; `passes(entry)` runs its pass."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.network = random_network()
        file = folder / "it.safetensors"
        blueprint = ClassifierBlueprint("openood_resnet", CLASSES, PREPROCESSING)
        save_checkpoint(file, self.network.state_dict(), blueprint)
        self.detector = detectors.create("classifier", weights=file, device="cpu")
        self.images = {}
        rng = np.random.default_rng(5)
        for split, size in (("train", 40), ("test", 12)):
            self.images[split] = list(rng.integers(0, 256, (size, 16, 16, 3), np.uint8))
            self.write_split(split)
        self.places = (folder / "splits", {"drawn": folder}, folder / "regions")
        infer_splits(
            self.detector, *self.places, folder / "work", PARAMS, progress=False, log=lambda _: None
        )

    def write_split(self, split: str) -> None:
        size = len(self.images[split])
        names = [f"{split}{number}" for number in range(size)]
        for name, image in zip(names, self.images[split], strict=True):
            Image.fromarray(image).save(self.folder / f"{name}.png")
        table = Images(
            image_id=names,
            dataset=["drawn"] * size,
            file=[f"{name}.png" for name in names],
            width=[16] * size,
            height=[16] * size,
            digest=[""] * size,
        )
        table.write(self.folder / "splits" / split / "images.parquet")

    def inputs(self, split: str) -> torch.Tensor:
        prepared = [self.detector.prepare(image) for image in self.images[split]]
        return self.detector.network.inputs(prepared)

    def passes(
        self, entry: dict, params: InferenceParams = PARAMS, name: str = "again"
    ) -> RegionsFolder:
        out = self.folder / f"passes-{name}"
        infer_passes(
            self.detector,
            read_passes("run", {"again": {"kind": "perturb", **entry}}),
            *self.places,
            out,
            self.folder / f"work-{name}",
            params,
            progress=False,
        )
        return RegionsFolder(out / "again/test")

    def own(self, split: str) -> RegionsFolder:
        return RegionsFolder(self.folder / "regions" / split)

    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        features = []
        hook = self.network.fc.register_forward_pre_hook(
            lambda _layer, inputs: features.append(inputs[0])
        )
        self.network(pixels)
        hook.remove()
        return features[0]


def random_network() -> OpenOODResNet:
    torch.manual_seed(3)
    network = OpenOODResNet((6, 8, 10, 12), (1, 1, 1, 1), len(CLASSES))
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        network.train()(torch.randn(64, 3, 16, 16))  # activations of about 1
        network.fc.weight.normal_()
    # The precision of the file.
    state = {name: tensor.half().float() for name, tensor in network.state_dict().items()}
    network.load_state_dict(state)
    return network.eval()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("perturb"))


def column(folder: RegionsFolder, name: str) -> np.ndarray:
    return np.concatenate([batch.array(name) for batch in folder.batches() if len(batch)])


@pytest.mark.parametrize(
    ("epsilon", "temperature"), [(0.0014, 1000.0), pytest.param(0.02, 5.0, marks=pytest.mark.slow)]
)
def test_odin_is_that_of_pytorch_ood(run, epsilon, temperature):
    regions = run.passes({"epsilon": epsilon, "temperature": temperature})
    settings = {"eps": epsilon, "temperature": temperature, "norm_std": list(STD)}
    scaling = methods.create("temperature_scaling", temperature=temperature)
    expected = -ODIN(run.network, **settings).predict(run.inputs("test"))
    assert_allclose(scaling.score(regions), expected, rtol=0, atol=1e-5)
    moved = run.network(odin_preprocessing(run.network, run.inputs("test"), **settings)).detach()
    assert_allclose(column(regions, "logits"), moved, rtol=0, atol=1e-5)
    assert (scaling.score(regions) > scaling.score(run.own("test"))).all()


def test_odin_of_the_published_codes_is_openoods_formula():
    """A network that looks at every second row only: all other gradients are 0."""

    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Conv2d(3, 4, 1, stride=(2, 1))
            self.fc = nn.Linear(4, 3)

        def forward(self, pixels):
            return self.fc(self.rows(pixels).relu().mean((2, 3)))

    torch.manual_seed(1)
    network = Sparse().eval()
    classifier = ClassifierNetwork(network, (6, 6), normalisation=((0.0,) * 3, STD))
    image = np.random.default_rng(2).normal(size=(2, 3, 6, 6)).astype(np.float32)
    prepared = [Scaled(one, (6, 6)) for one in image]
    header = Header(classes=CLASSES, whole_images=True)

    data = torch.from_numpy(image).requires_grad_()
    output = network(data)
    nn.CrossEntropyLoss()(output / 10, output.argmax(1)).backward()
    gradient = (torch.ge(data.grad, 0).float() - 0.5) * 2
    assert (data.grad == 0).any() and (gradient[:, :, 1::2] == 1).all()
    expected = data.detach() - 0.1 * gradient / torch.tensor(STD)[:, None, None]

    moved = []
    network.register_forward_pre_hook(lambda _module, inputs: moved.append(inputs[0].detach()))
    published = Perturb(epsilon=0.1, temperature=10, protocol="published-code")
    replay = ClassifierReplay(classifier, header, prepared, "float32", "float32")
    published.after_step(replay, ["a", "b"], header)
    assert_allclose(moved[-1], expected, atol=1e-6)

    paper = Perturb(epsilon=0.1, temperature=10)
    replay = ClassifierReplay(classifier, header, prepared, "float32", "float32")
    paper.after_step(replay, ["a", "b"], header)
    # The paper's sign of 0 moves nothing.
    assert_array_equal(moved[-1][:, :, 1::2], image[:, :, 1::2])


@pytest.mark.parametrize(("moved", "share", "count"), [("largest", 0.0, 1), ("smallest", 0.05, 38)])
def test_a_step_of_some_values_is_openoods(run, moved, share, count):
    """i-ODIN moves the value with the largest gradient, AdaSCALE those with the smallest."""
    regions = run.passes({"epsilon": 0.1, "temperature": 1, "moved": moved, "share": share})
    data = run.inputs("test").clone().requires_grad_()
    output = run.network(data)
    nn.CrossEntropyLoss(reduction="sum")(output, output.argmax(1)).backward()
    flat = data.grad.abs().flatten(1)
    chosen = flat.topk(count, dim=1, largest=moved == "largest").indices
    mask = torch.zeros_like(flat).scatter_(1, chosen, 1).view_as(data)
    step = mask * data.grad.sign() / torch.tensor(STD)[:, None, None]
    expected = run.network(data.detach() - 0.1 * step).detach()
    assert_allclose(column(regions, "logits"), expected, rtol=0, atol=1e-5)
    assert (column(regions, "logits") != column(run.own("test"), "logits")).any()


def test_features_before_the_step_are_stored_for_adascale(run):
    regions = run.passes({"epsilon": 0.02, "loss": "max_logit", "before": True})
    np.testing.assert_allclose(
        column(regions, "latent.before"), column(run.own("test"), "features"), rtol=1e-5
    )
    assert (column(regions, "features") != column(run.own("test"), "features")).any()
    scores = methods.create("adascale").fit(regions).score(regions)
    assert np.isfinite(scores).all()


def test_mahalanobis_with_a_step_is_that_of_pytorch_ood(run):
    regions = run.passes({"loss": "mahalanobis", "epsilon": 0.01})
    train = Regions.read(run.own("train").path)
    peer = MahalanobisODIN(run.encode, eps=0.01, norm_std=list(STD))
    peer.fit_features(torch.tensor(train.features), torch.from_numpy(train.label.astype(np.int64)))
    moved = peer._odin_preprocess(run.inputs("test"), "cpu")
    assert_allclose(column(regions, "features"), run.encode(moved).detach(), atol=1e-5)
    scores = methods.create("mahalanobis").fit(train).score(regions)
    assert_allclose(scores, -2 * len(train) * peer.predict(run.inputs("test")).numpy(), rtol=1e-3)
    assert (scores > methods.create("mahalanobis").fit(train).score(run.own("test"))).all()


def test_the_gaussians_are_those_of_the_method_mahalanobis(run):
    gaussians = class_gaussians(run.own("train"))
    train = Regions.read(run.own("train").path)
    centred = train.features[:, None].astype(np.float64) - gaussians.means
    nearest = np.einsum("ncd,de,nce->nc", centred, gaussians.precision, centred).min(axis=1)
    assert_allclose(-nearest, methods.create("mahalanobis").fit(train).score(train), rtol=1e-6)


def test_the_other_direction_makes_the_network_less_certain(run):
    own = column(run.own("test"), "logits")
    entry = {"loss": "max_logit", "epsilon": 0.002}
    down = column(run.passes({**entry, "direction": "down"}), "logits")
    up = column(run.passes({**entry, "direction": "up"}), "logits")
    assert (down.max(axis=1) > own.max(axis=1)).all()
    assert (up.max(axis=1) < own.max(axis=1)).all()


def test_batches_and_worker_processes_do_not_change_the_rows(run):
    first = run.passes({"epsilon": 0.01})
    other = run.passes(
        {"epsilon": 0.01}, InferenceParams(batch_size=7, shard_images=10, workers=1), name="other"
    )
    for name in ("logits", "features", "latent"):
        assert_allclose(column(first, name), column(other, name), atol=1e-5)
    for name in ("image_id", "region_id", "score", "label"):
        assert_array_equal(column(first, name), column(run.own("test"), name))


def test_where_workers_can_compute_no_gradients_this_process_does(run, monkeypatch):
    first = run.passes({"epsilon": 0.01})
    processes = []
    forward = Perturb.losses

    def recorded(self, *arguments):
        processes.append(os.getpid())
        return forward(self, *arguments)

    monkeypatch.setattr(Perturb, "losses", recorded)
    monkeypatch.setattr(job, "workers_compute_gradients", lambda: False)
    workers = InferenceParams(batch_size=4, shard_images=10, workers=1)
    other = run.passes({"epsilon": 0.01}, workers, name="in this process")
    assert set(processes) == {os.getpid()}
    assert_allclose(column(first, "logits"), column(other, "logits"), atol=1e-5)


def test_a_pass_without_regions_to_learn_from_says_so(run):
    with pytest.raises(
        ParameterError, match=r"'mahalanobis' needs regions to learn from: none in .*train"
    ):
        run.passes({"loss": "mahalanobis", "min_score": 1.0})
    with pytest.raises(ParameterError, match="call `learn` first"):
        Perturb(loss="mahalanobis").losses(
            RowOutputs(torch.zeros(1, 3), torch.zeros(1, 4)), run.detector.header()
        )


def test_a_pass_that_learns_has_a_cost(run, monkeypatch):
    # Two tries each, of which the faster one counts: the detector takes 1 s, then the pass 3 s, for
    # four images.
    calls_take(monkeypatch, [1.0, 2.0, 3.0, 4.0])
    passes = read_passes("run", {"nearer": {"kind": "perturb", "loss": "mahalanobis"}})
    images = Images.read(run.folder / "splits/test/images.parquet")
    folders = RunFolders(*(run.folder / name for name in ("regions", "passes-again", "fitted")))
    times = time_network(
        run.detector,
        passes,
        {},
        images,
        run.places[1],
        folders,
        CostParams(images=4),
        InferenceParams(),
    )
    assert times["detector"] == 1000 * 1.0 / 4
    assert times["passes"] == {"nearer": 1000 * (3.0 - 1.0) / 4}
    assert count_passes(passes)["nearer"] == {"forward": 1, "backward": 1}


def test_dropout_of_a_classifier_masks_the_input_of_its_last_layer(run):
    prepared = [run.detector.prepare(image) for image in run.images["test"][:2]]
    replay = run.detector.replay(prepared)
    usual = Dropout(0.5, 0, 0, ["a", "b"], ())
    inner = Dropout(0.5, 0, 0, ["a", "b"], ("layer4",))
    masked = replay.recompute().features * torch.stack(usual.masks([(12,)] * 2, "features"))
    expected = run.network.fc(masked).detach()
    assert_allclose(replay.recompute(dropout=usual).logits, expected, atol=1e-5)
    assert np.abs(replay.recompute(dropout=inner).logits - expected).max() > 0.1
    for where in (), ("layer4",):
        dropped = DropoutPass(passes=2, rate=0.5, seed=0, where=where)
        dropped.check(run.detector)
        assert (dropped.forward(run.detector, prepared, ["a", "b"]).mutual_information > 0).all()


DEMO = Path(__file__).parents[2] / "data/demo"
DETECTORS = {"faster_rcnn": "voc-faster_rcnn", "yolo": "voc-yolov8"}


@pytest.fixture(scope="module", params=slow_but(("yolo",), DETECTORS))
def scene(request):
    """A detector, and its input for two images, of discs and of squares: six detections at most."""
    weights = DEMO / f"{DETECTORS[request.param]}.safetensors"
    params = {"score_threshold": 0.0005, "max_detections": 6, "device": "cpu"}
    detector = detectors.create(request.param, weights=weights, **params)
    images = np.full((2, 120, 160, 3), 200, np.uint8)
    y, x = np.mgrid[:120, :160]
    for column, radius, colour in (
        (55, 22, (200, 40, 40)),
        (108, 17, (250, 220, 40)),
        (55, 9, (20, 20, 20)),
    ):
        images[0, (y - 60) ** 2 + (x - column) ** 2 < radius**2] = colour
        images[1, np.maximum(abs(y - 50), abs(x - column)) < radius] = colour[::-1]
    return detector, [detector.prepare(image) for image in images]


def certainty(regions):
    return regions.logits.max(axis=1)


def test_a_step_for_the_image_changes_the_sum_of_its_losses_by_the_norm_of_the_gradient(scene):
    detector, prepared = scene
    own = detector.forward(prepared, ["a", "b"])
    replay = detector.replay(prepared)
    images = [image.clone().requires_grad_() for image in replay.images]
    gradients = torch.autograd.grad(replay.recompute(images).logits.amax(1).sum(), images)
    norm = sum(float((replay.unit * gradient.abs()).sum()) for gradient in gradients)
    regions = Perturb(loss="max_logit", background="keep", epsilon=2e-6).forward(
        detector, prepared, ["a", "b"]
    )
    assert (certainty(regions) - certainty(own)).sum() == pytest.approx(2e-6 * norm, rel=0.1)
    for name in ("image_id", "region_id", "box", "score", "label"):
        assert_array_equal(regions.array(name), own.array(name))
    for name in {"features", "latent"} & set(own.frame.columns):
        assert not np.array_equal(regions.array(name), own.array(name))


def test_a_step_for_each_region_helps_that_region_more_than_a_step_for_all(scene):
    detector, prepared = scene
    params = {"loss": "max_logit", "background": "keep", "epsilon": 2e-5}
    own = detector.forward(prepared, ["a", "b"])
    per_image = Perturb(per="image", **params).forward(detector, prepared, ["a", "b"])
    per_region = Perturb(per="region", **params).forward(detector, prepared, ["a", "b"])
    assert len(own) > 3
    assert (certainty(per_region) > certainty(own)).all()
    assert certainty(per_region).sum() > certainty(per_image).sum()


def test_only_detections_above_the_smallest_score_have_a_loss(scene):
    detector, prepared = scene
    own = detector.forward(prepared, ["a", "b"])
    best = own.score >= np.sort(own.score)[-1]
    params = {
        "loss": "max_logit",
        "background": "keep",
        "epsilon": 2e-5,
        "min_score": float(own.score.max()),
    }
    per_image = Perturb(per="image", **params).forward(detector, prepared, ["a", "b"])
    per_region = Perturb(per="region", **params).forward(detector, prepared, ["a", "b"])
    assert_allclose(per_image.logits[best], per_region.logits[best], atol=1e-6)
    assert_array_equal(per_region.logits[~best], own.logits[~best])
    assert not np.array_equal(per_image.logits[~best], own.logits[~best])


def test_a_batch_without_detections_stays_one(scene):
    detector, prepared = scene
    blind = detectors.create(
        detector.name, weights=detector.weights, score_threshold=1.0, device="cpu"
    )
    own = blind.forward(prepared, ["a", "b"])
    regions = Perturb().forward(blind, prepared, ["a", "b"])
    assert len(regions) == 0
    assert regions.frame.columns == own.frame.columns


def test_a_detector_that_cannot_look_again_is_refused():
    class Once(detectors.Detector):
        name = "once"
        network = property(lambda self: None)
        prepare = forward = header = lambda self, *_: None

    with pytest.raises(
        ParameterError,
        match="'perturb' does not work with detector 'once': its rows cannot be recomputed",
    ):
        Perturb().check(Once(weights="nowhere"))
