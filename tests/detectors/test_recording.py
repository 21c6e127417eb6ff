"""What `farther.record` hooks out of a user's own network, beside the adapters."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from tests.detectors.test_faster_rcnn import blotches
from tests.detectors.torchvision_models import CLASSES, MAX_DETECTIONS, SCORE_THRESHOLD, model
from torch import nn

import farther
from farther import detectors
from farther.errors import DataError, ParameterError
from farther.tables import Regions, RegionsFolder

COLUMNS = ("background", *CLASSES)


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(3)
    return {"a.jpg": blotches(rng, 90, 120), "b.jpg": blotches(rng, 130, 100)}


def as_input(image):
    return torch.from_numpy(image).permute(2, 0, 1) / 255


def by_hooks(network, images, **hooks):
    """What a user's loop records of torchvision's own network."""
    with farther.record(network, **hooks) as recorder:
        for name, image in images.items():
            with torch.inference_mode():
                (detections,) = network([as_input(image)])
            recorder.add(name, detections["boxes"], detections["scores"], detections["labels"])
    return recorder


def adapter_of(network, path, name, **params):
    torch.save(network.state_dict(), path)
    usual = {
        "classes": CLASSES,
        "score_threshold": SCORE_THRESHOLD,
        "max_detections": MAX_DETECTIONS,
        "device": "cpu",
    }
    return detectors.create(name, weights=path, min_size=64, max_size=96, **usual, **params)


def assert_same_rows(recorded, expected):
    assert len(recorded) == len(expected) > 20
    assert_array_equal(recorded.image_id, expected.image_id)
    assert_array_equal(recorded.label, expected.label)
    assert_allclose(recorded.box, expected.box, atol=1e-2)
    assert_allclose(recorded.score, expected.score, atol=1e-5)
    assert_allclose(recorded.logits, expected.logits, atol=1e-4)


def test_a_faster_rcnn_by_hooks_alone_has_the_logits_features_and_last_layer_of_the_adapter(
    images, tmp_path
):
    network = model("fasterrcnn_mobilenet_v3_large_320_fpn", min_size=64, max_size=96).to(
        memory_format=torch.channels_last
    )
    recorder = by_hooks(
        network,
        images,
        logits="roi_heads.box_predictor.cls_score",
        classes=COLUMNS,
        background_index=0,
        folder=tmp_path / "recorded",
    )
    detector = adapter_of(
        network, tmp_path / "w.pth", "faster_rcnn", architecture="mobilenet_v3_large_320_fpn"
    )
    parts = [detector.detect(image, name) for name, image in images.items()]
    expected = Regions.concatenate(parts)
    assert_same_rows(recorder.regions, expected)
    assert_allclose(recorder.regions.features, expected.features, atol=1e-4)
    assert_array_equal(recorder.regions.weight, expected.weight)
    assert_array_equal(recorder.regions.bias, expected.bias)
    # The adapter `parquet` takes the folder as it is.
    imported = detectors.create("parquet", weights=tmp_path / "recorded")
    assert imported.header().known_classes == CLASSES
    (source,) = imported.sources()
    assert sum(len(batch.regions) for batch in imported.batches(source)) == len(expected)
    assert RegionsFolder(tmp_path / "recorded").info["images"] == 2


@pytest.fixture(scope="module")
def retinanet(images, tmp_path_factory):
    """A network of torchvision, and what the adapter of its weights finds."""
    network = model("retinanet_resnet50_fpn", columns=3).to(memory_format=torch.channels_last)
    detector = adapter_of(network, tmp_path_factory.mktemp("retinanet") / "w.pth", "retinanet")
    parts = [detector.detect(image, name) for name, image in images.items()]
    return network, Regions.concatenate(parts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["head.classification_head", "head.classification_head.cls_logits"]
)
def test_a_retinanet_by_hooks_alone_has_the_logits_of_the_adapter(module, retinanet, images):
    """Of the head, whose output is all anchors' rows, or of its convolution, once per level."""
    network, expected = retinanet
    recorder = by_hooks(network, images, logits=module, classes=CLASSES, activation="sigmoid")
    assert_same_rows(recorder.regions, expected)
    assert (recorder.regions.features, recorder.regions.weight) == (None, None)


# --------------------------------------------------------------------------------------- a small
# network


class Head(nn.Module):
    """Logits of R candidates from their features, optionally in several calls per image."""

    def __init__(self, calls=1):
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Linear(4, 6)
        self.last = nn.Linear(6, 3)
        self.unused = nn.Linear(6, 3)
        self.wide = nn.Linear(6, 5)
        self.calls = calls

    def forward(self, candidates):
        hidden = self.body(candidates)
        for _ in range(self.calls):
            logits = self.last(hidden)
            hidden = hidden * 0.5
        self.wide(hidden[:-1])
        return logits


def candidates(count=5, seed=0):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def boxes(count):
    return np.tile([1.0, 2, 3, 4], (count, 1))


def recording(network, **params):
    usual = {"logits": "last", "classes": ("background", "cat", "dog"), "background_index": 0}
    return farther.record(network, **{**usual, **params})


def scores_of(logits, rows, labels):
    return logits.softmax(dim=1)[rows, labels]


def test_rows_that_the_post_processing_gives_are_taken():
    network = Head()
    with recording(network) as recorder, torch.no_grad():
        logits = network(candidates())
        recorder.add("a", boxes(2), [0.5, 0.25], [1, 2], rows=[4, 0])
    regions = recorder.regions
    assert_array_equal(regions.logits, logits[[4, 0]])
    assert_allclose(regions.features, network.body(candidates())[[4, 0]].detach(), atol=1e-6)
    assert (regions.region_id.tolist(), regions.score.tolist()) == ([0, 1], [0.5, 0.25])


def test_images_of_a_batch_are_told_apart():
    network = Head()
    batch = torch.stack([candidates(seed=1), candidates(seed=2)])
    with recording(network) as recorder, torch.no_grad():
        logits = network(batch)
        scores = [scores_of(of_image, [3, 1], [1, 2]) for of_image in logits]
        recorder.add(["a", "b"], [boxes(2)] * 2, scores, [[1, 2]] * 2)
    assert recorder.images == 2
    assert_array_equal(recorder.regions.image_id, ["a", "a", "b", "b"])
    assert_array_equal(
        recorder.regions.logits, torch.cat([of_image[[3, 1]] for of_image in logits])
    )


def test_half_precision_is_matched_with_a_larger_tolerance():
    network = Head()
    with torch.no_grad():
        logits = network(candidates())
        rounded = scores_of(logits, [2], [1]).half()
    assert abs(rounded.float() - scores_of(logits, [2], [1])) > 1e-5
    refused(network, "1 of 1 detections fit no candidate", add={"scores": rounded})
    with recording(network, tolerance=1e-3) as recorder, torch.no_grad():
        network(candidates())
        recorder.add("a", boxes(1), rounded, [1])
    assert_array_equal(recorder.regions.logits, logits[[2]])


def test_images_without_detections_count_and_the_folder_is_written(tmp_path):
    network = Head()
    with recording(network, folder=tmp_path / "r") as recorder, torch.no_grad():
        network(candidates())
        recorder.add("a", np.zeros((0, 4)), [], [])
    folder = RegionsFolder(tmp_path / "r")
    assert (len(folder), folder.info["images"], folder.classes) == (
        0,
        1,
        ("background", "cat", "dog"),
    )


def test_a_loop_that_fails_writes_no_folder_and_leaves_no_hooks(tmp_path):
    network = Head()
    with pytest.raises(ZeroDivisionError), recording(network, folder=tmp_path / "r"):
        _ = 1 / 0
    assert not (tmp_path / "r").exists()
    assert not network.last._forward_hooks


def test_two_candidates_of_one_score_are_refused_with_their_number_unless_their_logits_are_equal():
    network = Head()
    twice = candidates()[[0, 1, 2, 3, 3]]
    with recording(network) as recorder, torch.no_grad():
        logits = network(twice)
        recorder.add("a", boxes(1), scores_of(logits, [4], [2]), [2])  # equal in all columns
    assert_array_equal(recorder.regions.logits, logits[[4]])
    # Columns that are swapped give equal scores of the third.
    swapped = nn.Identity()
    z = torch.tensor([[1.0, 2.0, 3.0], [2.0, 1.0, 3.0], [0.0, 0.0, 0.0]])
    with farther.record(swapped, logits=swapped, classes=("a", "b", "c")) as recorder:
        swapped(z)
        with pytest.raises(
            DataError, match=r"image 'x': 1 of 2 detections fit several candidates \(c 0\.665241\)"
        ) as e:
            recorder.add("x", boxes(2), z.softmax(1)[[0, 2], [2, 0]], [2, 0])
        assert "give `rows`" in str(e.value)
        swapped(z)
        recorder.add("x", boxes(2), z.softmax(1)[[0, 2], [2, 0]], [2, 0], rows=[0, 2])
    assert_array_equal(recorder.regions.logits, z[[0, 2]])


def refused(network, message, *, add=None, runs=1, seen=None, **params):
    with recording(network, **params) as recorder, torch.no_grad():
        for _ in range(runs):
            logits = network(candidates() if seen is None else seen)
        given = {"image": "a", "boxes": boxes(1), "scores": [0.5], "labels": [1]}
        if runs:
            given["scores"] = scores_of(logits.reshape(-1, 3), [2], [1])
        with pytest.raises(DataError, match=message):
            recorder.add(**{**given, **(add or {})})
    assert len(recorder.regions) == 0


def test_a_module_that_never_ran_is_refused():
    refused(
        Head(), r"image 'a': module 'unused' did not run since the image before", logits="unused"
    )
    refused(Head(), r"image 'a': module 'last' did not run since", runs=0)


def test_several_calls_per_image_are_refused_unless_one_is_chosen():
    message = (
        r"image 'a': module 'last' ran 2 times, and gave \(5, 3\), \(5, 3\): .*call=-1 \(the last\)"
    )
    refused(Head(calls=2), message)
    refused(Head(), message, runs=2)
    refused(Head(calls=2), "ran 2 times for the image, but call 5 is asked for", call=5)
    network = Head(calls=2)
    with recording(network, call=-1) as recorder, torch.no_grad():
        logits = network(candidates())
        recorder.add("a", boxes(1), scores_of(logits, [2], [1]), [1])
    assert_array_equal(recorder.regions.logits, logits[[2]])


def test_numbers_of_rows_that_do_not_fit_are_refused():
    refused(Head(), r"4 rows of module 'wide', but 5 of 'last'", features="wide")
    refused(Head(), r"image 'a': 1 scores, but 2 boxes", add={"boxes": boxes(2)})
    refused(Head(), r"image 'a': 1 scores, but 3 labels", add={"labels": [1, 1, 2]})
    refused(Head(), r"image 'a': row 9, but there are 5 candidates", add={"rows": [9]})
    refused(Head(), r"image 'a': 3 is not a column of the 3 logits", add={"labels": [3]})
    message = r"'last' gives rows of 2 images, but 1 are added"
    refused(Head(), message, seen=torch.stack([candidates(), candidates(seed=1)]))
    several = {"image": ["a", "b"], "scores": [[0.5], [0.5]], "labels": [[1], [1]]}
    refused(Head(), r"2 images, but boxes of 1", add={**several, "boxes": [boxes(1)]})


def test_scores_that_no_candidate_gives_are_refused_with_the_nearest():
    message = (
        r"1 of 1 detections fit no candidate \(cat 0\.9999, the nearest is .* away\): a score must "
        "be the softmax"
    )
    refused(Head(), message, add={"scores": [0.9999]})


def test_an_image_is_added_once():
    network = Head()
    with recording(network) as recorder, torch.no_grad():
        for expected in (None, "image 'a' was added before"):
            logits = network(candidates())
            given = (boxes(1), scores_of(logits, [2], [1]), [1])
            if expected is None:
                recorder.add("a", *given)
                continue
            with pytest.raises(DataError, match=expected):
                recorder.add("a", *given)


def test_modules_and_classes_that_do_not_fit_are_refused_at_once():
    with pytest.raises(
        ParameterError, match=r"'logits': the model has no module 'head\.last'\. Some are .*last"
    ):
        recording(Head(), logits="head.last")
    with pytest.raises(ParameterError, match="this Linear is not a module of the model"):
        recording(Head(), logits=nn.Linear(2, 3))
    with pytest.raises(
        DataError, match=r"2 names, but module 'last' gives 3 logits; the background's column has"
    ):
        recording(Head(), classes=("cat", "dog"), background_index=None)
    with pytest.raises(DataError, match="the class 'cat' is listed twice"):
        recording(Head(), classes=("cat", "cat", "dog"))


def test_maps_have_the_classes_of_an_anchor_next_to_each_other():
    """As in torchvision and MMDetection: channel a · K + k; rows by height, width and anchor."""
    network = nn.Conv2d(2, 6, 1)
    levels = [torch.randn(1, 2, 3, 4), torch.randn(1, 2, 1, 2)]
    with (
        farther.record(network, logits=network, classes=("a", "b", "c")) as recorder,
        torch.no_grad(),
    ):
        maps = [network(level) for level in levels]
        expected = maps[0][0, 3:, 2, 1]  # the second anchor of the cell in row 2 and column 1
        recorder.add("x", boxes(1), expected.softmax(0)[[1]], [1])
        for level in levels:
            network(level)
        recorder.add("y", boxes(1), [0.5], [1], rows=[2 * (4 * 2 + 1) + 1])
    assert_array_equal(recorder.regions.logits, torch.stack([expected, expected]))
    with (
        farther.record(network, logits=network, classes=("a", "b", "c", "d")) as recorder,
        torch.no_grad(),
    ):
        network(levels[0])
        with pytest.raises(
            DataError, match="maps of 6 channels, which is not a multiple of the 4 classes"
        ):
            recorder.add("x", boxes(1), [0.5], [1])


def test_outputs_in_other_containers_are_read_by_a_function():
    class Wrapped(nn.Module):
        def forward(self, z):
            return {"deltas": z, "logits": [z + 1]}

    network, z = Wrapped(), candidates()
    columns = ("a", "b", "c", "d")
    with farther.record(
        network, logits="", classes=columns, read=lambda output: output["logits"][0]
    ) as recorder:
        network(z)
        recorder.add("x", boxes(1), (z + 1).softmax(1)[[3], [2]], [2])
    assert_array_equal(recorder.regions.logits, z[[3]] + 1)
    with farther.record(network, logits="", classes=columns) as recorder:
        network(z)
        with pytest.raises(DataError, match=r"gives dict, but expected \(rows, values\)"):
            recorder.add("x", boxes(1), [0.5], [2])
