"""The pass `dropout` on the demo's detectors: its moments, whatever batches and workers."""

import numpy as np
import pytest
from PIL import Image
from scipy.special import expit, softmax
from scipy.stats import entropy
from tests.detectors.demo import IDS, WEIGHTS, create, detected, fresh, passed, scene
from tests.images.speckles import content
from tests.support.cases import slow_but

from farther.detectors.inference import InferenceParams
from farther.detectors.networks.replay import Dropout
from farther.detectors.passes import infer_passes, read_passes
from farther.detectors.passes.moments import SMALLEST_VARIANCE
from farther.detectors.split_inference import infer_splits
from farther.errors import ParameterError
from farther.tables import Images, Regions


@pytest.fixture(scope="module", params=slow_but(("faster_rcnn", "yolo"), WEIGHTS))
def detector(request):
    return create(request.param, score_threshold=0.002)


@pytest.fixture(scope="module")
def images():
    return [scene(1), scene(2)]


def test_moments_are_those_of_the_passes_collected_one_by_one(detector, images):
    """Each number is computed from all passes at once, with NumPy and SciPy."""
    regions = passed("dropout", detector, images, passes=7, rate=0.3, seed=5)
    replay = detector.replay([detector.prepare(image) for image in images])
    outputs = [replay.recompute(dropout=Dropout(0.3, 5, number, IDS[:2])) for number in range(7)]
    z = np.stack([output.logits.numpy() for output in outputs]).astype(np.float64)
    boxes = np.stack([output.boxes.numpy() for output in outputs]).astype(np.float64)
    np.testing.assert_allclose(regions.logits, z.mean(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        regions.box_variance, boxes.var(0).clip(SMALLEST_VARIANCE), rtol=1e-3, atol=1e-6
    )
    if regions.header.activation == "softmax":
        p = softmax(z, axis=2)
        total = entropy(p.mean(0), axis=1)
        expected = entropy(p, axis=2).mean(0)
    else:
        p = expit(z)
        total = binary_entropy(p.mean(0)).sum(1)
        expected = binary_entropy(p).sum(2).mean(0)
    np.testing.assert_allclose(regions.mean_probabilities, p.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(regions.predictive_entropy, total, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(regions.mutual_information, total - expected, rtol=1e-3, atol=1e-5)
    assert regions.mutual_information.max() > 0.01


def binary_entropy(p):
    return entropy(np.stack([p, 1 - p]), axis=0)


def test_rate_0_is_the_plain_run_without_mutual_information(detector, images):
    plain = detected(detector, images)
    regions = passed("dropout", detector, images, passes=3, rate=0)
    for name in ("image_id", "region_id", "box", "score", "label"):
        np.testing.assert_array_equal(regions.array(name), plain.array(name))
    np.testing.assert_allclose(regions.logits, plain.logits, rtol=1e-4, atol=1e-4)
    assert regions.mutual_information.max() < 1e-6
    assert regions.box_variance.max() <= SMALLEST_VARIANCE


def test_images_without_detections_give_no_rows(images):
    regions = passed("dropout", create("faster_rcnn", score_threshold=1.0), images)
    assert len(regions) == 0
    assert regions.has("mutual_information")


def test_mutual_information_grows_with_the_rate(detector, images):
    means = []
    for rate in (0.05, 0.2, 0.5):
        regions = passed("dropout", detector, images, rate=rate)
        means.append(regions.mutual_information.mean())
    assert means == sorted(means)
    assert means[2] > 2 * means[0]


def test_a_named_module_is_masked_instead_of_the_usual_place(images):
    detector = create("faster_rcnn")
    usual = passed("dropout", detector, images, rate=0.3)
    early = passed("dropout", detector, images, rate=0.3, where=["backbone.steps.1"], passes=4)
    head = passed("dropout", detector, images, rate=0.3, where=["roi_heads.box_head.6"], passes=4)
    for regions in (early, head):
        assert regions.mutual_information.min() > 0
        assert not np.allclose(usual.logits, regions.logits, atol=0.1)


def test_an_unknown_module_is_refused_before_any_image_is_read(detector, images):
    with pytest.raises(
        ParameterError, match=r"parameter 'where': the network has no module 'head\.7'"
    ):
        passed("dropout", detector, images, where=["head.7"])


class World:
    """Four images in one split, whose regions and passes are written."""

    def __init__(self, folder):
        self.folder = folder
        names = [f"{number}.png" for number in range(4)]
        for number, name in enumerate(names):
            Image.fromarray(scene(number)).save(folder / name)
        table = Images(
            image_id=names,
            dataset=["d"] * 4,
            file=names,
            width=[160] * 4,
            height=[120] * 4,
            digest=names,
        )
        table.write(folder / "splits/test/images.parquet")

    def run(self, name, detector=None, batch_size=2, workers=0):
        """Runs the pass into a folder of this name and returns the folder of its regions."""
        params = InferenceParams(batch_size=batch_size, shard_images=2, workers=workers)
        own = self.folder / f"own-{batch_size}"
        if not own.exists():
            infer_splits(
                create("faster_rcnn"),
                self.folder / "splits",
                {"d": self.folder},
                own,
                self.folder / "own-work",
                params,
                progress=False,
                log=lambda _: None,
            )
        infer_passes(
            detector or create("faster_rcnn"),
            read_passes("run", {"dropout": {"passes": 3, "rate": 0.3}}),
            self.folder / "splits",
            {"d": self.folder},
            own,
            self.folder / name,
            self.folder / f".{name}",
            params,
            progress=False,
            log=lambda _: None,
        )
        return self.folder / name / "dropout/test"


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_killed_and_resumed_pass_and_worker_processes_give_the_same_bytes(world):
    expected = content(world.run("whole"))
    stopping = fresh("faster_rcnn")
    replay = type(stopping).replay
    calls = []

    class Stopping(type(stopping)):
        def replay(self, prepared):
            calls.append(len(prepared))
            if len(calls) > 1:
                raise KeyboardInterrupt
            return replay(self, prepared)

    stopping.__class__ = Stopping
    with pytest.raises(KeyboardInterrupt):
        world.run("killed", stopping)
    assert calls == [2, 2]
    assert content(world.run("killed")) == expected
    assert content(world.run("workers", workers=1)) == expected


def test_another_batch_size_changes_numbers_by_rounding_only(world):
    pairs = Regions.read(world.run("pairs"))
    single = Regions.read(world.run("single", batch_size=1))
    for name in ("logits", "mutual_information", "box_variance"):
        np.testing.assert_allclose(pairs.array(name), single.array(name), rtol=1e-3, atol=1e-3)
