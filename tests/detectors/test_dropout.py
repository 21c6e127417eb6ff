"""The pass `dropout` on the demo's detectors: its moments, whatever batches and workers."""

import numpy as np
import pytest
from PIL import Image
from scipy.special import expit, softmax
from scipy.stats import entropy
from tests.detectors.demo import DEMO, IDS, WEIGHTS, create, detected, passed, scene

from farther import detectors
from farther.detectors.inference import InferenceParams, infer_splits
from farther.detectors.networks.replay import Dropout
from farther.detectors.passes import infer_passes, read_passes
from farther.detectors.passes.moments import SMALLEST_VARIANCE
from farther.errors import ParameterError
from farther.tables import Images, Regions


@pytest.fixture(scope="module", params=WEIGHTS)
def detector(request):
    return create(request.param, score_threshold=0.002)


@pytest.fixture(scope="module")
def images():
    return [scene(1), scene(2)]


def test_moments_are_those_of_the_passes_collected_one_by_one(detector, images):
    """Each number is computed from all passes at once, with NumPy and SciPy."""
    regions = passed("dropout", detector, images, passes=7, rate=0.3, seed=5)
    replay = detector.replay([detector.prepare(image) for image in images])
    answers = [replay.again(dropout=Dropout(0.3, 5, number, IDS[:2])) for number in range(7)]
    z = np.stack([answer.logits.numpy() for answer in answers]).astype(np.float64)
    boxes = np.stack([answer.boxes.numpy() for answer in answers]).astype(np.float64)
    np.testing.assert_allclose(regions.logits, z.mean(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        regions.box_variance, boxes.var(0).clip(SMALLEST_VARIANCE), rtol=1e-3, atol=1e-6
    )
    if regions.header.activation == "softmax":
        p = softmax(z, axis=2)
        total, expected = entropy(p.mean(0), axis=1), entropy(p, axis=2).mean(0)
    else:
        p = expit(z)
        binary = lambda q: entropy(np.stack([q, 1 - q]), axis=0)  # noqa: E731
        total, expected = binary(p.mean(0)).sum(1), binary(p).sum(2).mean(0)
    np.testing.assert_allclose(regions.mean_probabilities, p.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(regions.predictive_entropy, total, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(regions.mutual_information, total - expected, rtol=1e-3, atol=1e-5)
    assert regions.mutual_information.max() > 0.01


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
    assert len(regions) == 0 and regions.has("mutual_information")


def test_mutual_information_grows_with_the_rate(detector, images):
    means = [
        passed("dropout", detector, images, rate=rate).mutual_information.mean()
        for rate in (0.05, 0.2, 0.5)
    ]
    assert means == sorted(means) and means[2] > 2 * means[0]


def test_a_named_module_is_masked_instead_of_the_usual_place(images):
    detector = create("faster_rcnn")
    usual = passed("dropout", detector, images, rate=0.3)
    early = passed("dropout", detector, images, rate=0.3, where=["backbone.steps.1"], passes=4)
    head = passed("dropout", detector, images, rate=0.3, where=["roi_heads.box_head.6"], passes=4)
    assert early.mutual_information.min() > 0 and head.mutual_information.min() > 0
    assert not np.allclose(usual.logits, head.logits, atol=0.1) and not np.allclose(
        usual.logits, early.logits, atol=0.1
    )


def test_an_unknown_module_is_refused_before_any_image_is_read(detector, images):
    with pytest.raises(
        ParameterError, match=r"parameter 'where': the network has no module 'head\.7'"
    ):
        passed("dropout", detector, images, where=["head.7"])


def test_a_detector_that_cannot_look_again_is_refused(images, tmp_path):
    class Other(detectors.get("faster_rcnn")):
        replay = detectors.Detector.replay

    other = Other(weights=DEMO / "voc-faster_rcnn.safetensors")
    with pytest.raises(
        ParameterError, match="pass 'dropout' does not work with detector 'faster_rcnn'"
    ):
        passed("dropout", other, images)


@pytest.fixture
def world(tmp_path):
    """Four images in one split, and a function from parameters of the pass to its files' bytes."""
    names = [f"{number}.png" for number in range(4)]
    for number, name in enumerate(names):
        Image.fromarray(scene(number)).save(tmp_path / name)
    table = Images(
        image_id=names,
        dataset=["d"] * 4,
        file=names,
        width=[160] * 4,
        height=[120] * 4,
        digest=names,
    )
    table.write(tmp_path / "splits/test/images.parquet")
    passes = read_passes("run", {"dropout": {"passes": 3, "rate": 0.3}})
    roots = {"d": tmp_path}

    def run(out, detector=None, **changed):
        params = InferenceParams(**{"batch_size": 2, "shard_images": 2, "workers": 0, **changed})
        own, detector = tmp_path / f"own-{params.batch_size}", detector or create("faster_rcnn")
        quiet = {"progress": False, "log": lambda _: None}
        if not own.exists():
            infer_splits(
                create("faster_rcnn"),
                tmp_path / "splits",
                roots,
                own,
                tmp_path / "w",
                params,
                **quiet,
            )
        infer_passes(
            detector,
            passes,
            tmp_path / "splits",
            roots,
            own,
            tmp_path / out,
            tmp_path / f".{out}",
            params,
            **quiet,
        )
        folder = tmp_path / out / "dropout/test"
        return Regions.read(folder), {file.name: file.read_bytes() for file in folder.iterdir()}

    return run


def test_a_killed_and_resumed_pass_and_worker_processes_give_the_same_bytes(world):
    _, whole = world("whole")
    stopping = create("faster_rcnn")
    replay, calls = type(stopping).replay, []

    class Stopping(type(stopping)):
        def replay(self, prepared):
            calls.append(len(prepared))
            if len(calls) > 1:
                raise KeyboardInterrupt
            return replay(self, prepared)

    stopping.__class__ = Stopping
    with pytest.raises(KeyboardInterrupt):
        world("killed", stopping)
    assert calls == [2, 2]
    assert world("killed")[1] == whole
    assert world("workers", workers=1)[1] == whole


def test_another_batch_size_changes_numbers_by_rounding_only(world):
    pairs, single = world("pairs")[0], world("single", batch_size=1)[0]
    for name in ("logits", "mutual_information", "box_variance"):
        np.testing.assert_allclose(pairs.array(name), single.array(name), rtol=1e-3, atol=1e-3)
