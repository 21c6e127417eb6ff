"""The adapter `repeated`: merged detections of passes with dropout, or of several networks."""

import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, softmax
from tests.detectors.demo import DEMO, LOW, WEIGHTS, create, scene
from tests.support.cases import slow_but

from farther import detectors
from farther.detectors.repeated import ImageDetections, clusters, merge_clusters, merged_regions
from farther.errors import DataError, ParameterError
from farther.tables import Header


def low(of):
    return {"score_threshold": LOW.get(of, 0.05), "nms_iou": 0.5}


def repeated(of="faster_rcnn", weights=None, **params):
    weights = weights or DEMO / f"{WEIGHTS[of]}.safetensors"
    return detectors.create(
        "repeated", weights=weights, of=of, params=low(of), device="cpu", **{"passes": 4, **params}
    )


@pytest.fixture(scope="module")
def images():
    """Discs on grey, and nothing but grey."""
    return [scene(), np.full((120, 160, 3), 200, np.uint8)]


@pytest.mark.parametrize("merge", ["clusters", "candidates"])
@pytest.mark.parametrize("of", slow_but(("faster_rcnn", "yolo"), WEIGHTS))
def test_rate_0_gives_the_plain_detections_once_per_pass(of, merge, images):
    plain = create(of, nms_iou=0.5).detect(images)
    regions = repeated(of, rate=0, merge=merge).detect(images)
    assert len(regions) == len(plain) > 0
    assert_array_equal(regions.image_id, plain.image_id)
    assert_array_equal(regions.label, plain.label)
    assert_allclose(regions.score, plain.score, rtol=1e-3)
    assert_allclose(regions.box, plain.box, atol=0.01)
    assert set(regions.detections) == {4}
    assert regions.mutual_information.max() < 1e-6
    activation = expit if plain.header.activation == "sigmoid" else lambda z: softmax(z, axis=1)
    assert_allclose(activation(regions.logits), activation(plain.logits), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("merge", ["clusters", "candidates"])
def test_passes_with_dropout_differ_and_are_the_same_again(merge, images):
    regions, again = (
        repeated(rate=0.3, merge=merge, iou=0.7).detect(images, batch_size=size) for size in (2, 2)
    )
    assert_array_equal(regions.logits, again.logits)
    assert regions.mutual_information.max() > 0.01 and regions.box_variance.max() > 0.01
    assert 1 <= regions.detections.min() <= regions.detections.max() <= 4
    rows = np.arange(len(regions))
    assert_allclose(softmax(regions.logits, axis=1)[rows, regions.label], regions.score, rtol=1e-4)
    for name in regions.image_id:
        assert (np.diff(regions.score[regions.image_id == name]) <= 0).all()


def test_few_detections_are_left_out(images):
    every = repeated(rate=0.3, iou=0.7).detect(images)
    some = repeated(rate=0.3, iou=0.7, min_detections=3).detect(images)
    assert 0 < len(some) < len(every)
    assert_array_equal(some.score, every.score[every.detections >= 3])


def test_clusters_are_mutual_overlaps_of_one_label():
    """IoU of neighbours is 0.9/1.1 = 0.82, of the outer two 0.8/1.2 = 0.67: no cluster of three."""
    boxes = np.array([[0, 0, 1, 1], [0.1, 0, 1.1, 1], [0.2, 0, 1.2, 1], [0, 0, 1, 1]])
    labels = np.array([3, 3, 3, 5])
    at = lambda iou: clusters(boxes, labels, iou).tolist()  # noqa: E731
    assert len(set(at(0.95))) == 4
    assert len(set(at(0.8))) == 3
    loose = at(0.6)
    assert loose[0] == loose[1] == loose[2] != loose[3]


def test_a_cluster_has_the_mean_box_and_the_mean_probabilities():
    header = Header(classes=("none", "cat", "dog"), background_index=0)
    first = ImageDetections(
        logits=np.log([[0.1, 0.8, 0.1], [0.3, 0.1, 0.6]]),
        boxes=np.array([[0.0, 0, 10, 10], [50, 50, 60, 60]]),
        labels=np.array([1, 2]),
    )
    second = ImageDetections(
        logits=np.log([[0.3, 0.4, 0.3]]),
        boxes=np.array([[0.0, 0, 10, 12]]),
        labels=np.array([1]),
    )
    empty = ImageDetections(np.zeros((0, 3)), np.zeros((0, 4)), np.zeros(0, np.int64))
    merged = merge_clusters(header, [first, empty, second], 0.8, 1)
    regions = merged_regions(header, [merged], ["a"])
    order = np.argsort(regions.label)
    assert_allclose(regions.box[order], [[0, 0, 10, 11], [50, 50, 60, 60]])
    assert_allclose(
        softmax(regions.logits, axis=1)[order], [[0.2, 0.6, 0.2], [0.3, 0.1, 0.6]], rtol=1e-5
    )
    assert_allclose(regions.box_variance[order][0], [1e-6, 1e-6, 1e-6, 1])
    assert regions.detections[order].tolist() == [2, 1]


def test_an_ensemble_of_two_copies_finds_everything_twice(images, tmp_path):
    for name in ("one", "two"):
        shutil.copy(DEMO / "voc-faster_rcnn.safetensors", tmp_path / f"{name}.safetensors")
    plain = detectors.create(
        "faster_rcnn", weights=tmp_path / "one.safetensors", device="cpu", **low("faster_rcnn")
    ).detect(images)
    regions = repeated(weights=tmp_path, kind="ensemble", iou=0.5).detect(images)
    assert_allclose(regions.score, plain.score, rtol=1e-5)
    assert_allclose(regions.box, plain.box, rtol=1e-5)
    assert set(regions.detections) == {2}


def test_what_cannot_be_repeated_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="'retinanet' cannot detect in several passes"):
        repeated("retinanet", DEMO / "voc-faster_rcnn.safetensors")
    with pytest.raises(ParameterError, match="an ensemble has only clusters"):
        repeated(kind="ensemble", merge="candidates")
    with pytest.raises(ParameterError, match="unknown parameter 'score'"):
        detectors.create(
            "repeated", weights=DEMO / "x.safetensors", of="yolo", params={"score": 1}
        ).header()
    with pytest.raises(DataError, match="a folder with its members' checkpoints"):
        repeated(weights=tmp_path, kind="ensemble").header()
    with pytest.raises(ParameterError, match="passes that detect again repeat only roi_heads"):
        repeated(where=["backbone"]).detect([np.zeros((50, 50, 3), np.uint8)])
