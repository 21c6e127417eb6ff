"""Exported graphs beside the pipeline: equal detections, scores and decisions in onnxruntime."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from sklearn.preprocessing import normalize
from tests.detectors.test_detr import save_folder
from tests.monitor.conftest import Deployed, make, propose, scene
from tests.monitor.test_monitor import CLASSES, KINDS, use_small_networks, vit
from tests.support.cases import slow_but
from ultralytics.utils.ops import scale_boxes

from farther import detectors, methods
from farther.detectors.networks.yolo import letterbox
from farther.detectors.proposal_sources import read_sources
from farther.errors import DataError, ParameterError
from farther.methods import activations
from farther.methods.arrays import normalised
from farther.methods.base import METHODS
from farther.metrics import open_set
from farther.monitor import Bundle
from farther.monitor.bundle_proposals import BundledProposals
from farther.monitor.monitor import Monitored
from farther.monitor.onnx import proposal_graphs
from farther.monitor.onnx.compare import compare
from farther.monitor.onnx.export import (
    GRAPHS,
    OPSET,
    GraphThresholds,
    Scored,
    inputs_of,
    score_module,
    tracing,
    write_graph,
)
from farther.monitor.onnx.networks import YoloGraph
from farther.monitor.onnx.preprocessing import described
from farther.tables import Header, Regions

#: Of each adapter, a method that reads the most.
EXPORTED = {
    "faster_rcnn": "knn",
    "mask_rcnn": "msp",
    "yolo": "stage",
    "detr": "lard",
    "retinanet": "lard",
    "fcos": "lard",
    "classifier": "mds_ensemble",
    "transformers_classifier": "knn",
    "open_clip_classifier": "energy",
}


#: Source of proposals of each adapter that has one, τ_o, and a t* that leaves some beside the
#: detections.
PROPOSED = {
    "faster_rcnn": ("rpn", 0.02, 0.2),
    "mask_rcnn": ("rpn", 0.02, 0.2),
    "yolo": ("anchors", 1e-4, 0.01),
    "detr": ("queries", 1e-6, 0.15),
    "retinanet": ("anchors", 0.1, 0.4),
    "fcos": ("anchors", 0.1, 0.7),
}


def weights_of(kind: str, folder: Path, monkeypatch) -> str:
    """The checkpoint of an adapter's smallest network here."""
    use_small_networks(monkeypatch)
    return KINDS["faster_rcnn" if kind == "mask_rcnn" else kind].weights(folder)


def deployed_on(kind: str, folder: Path, monkeypatch) -> Deployed:
    """A small run of an adapter."""
    case = KINDS["faster_rcnn" if kind == "mask_rcnn" else kind]
    method, weights = EXPORTED[kind], weights_of(kind, folder, monkeypatch)
    entry = {
        "adapter": kind,
        "weights": weights,
        "params": {**case.params, "device": "cpu"},
        **case.more,
    }
    entry.pop("passes", None)
    source, threshold, operating = PROPOSED.get(kind, (None, None, case.operating))
    made = make(folder, entry, {method: case.methods[method]}, operating)
    if source is not None:
        entry["proposals"] = {source: {}}
        propose(made, source, threshold)
    return made


@pytest.mark.parametrize("kind", slow_but(("classifier", "yolo"), sorted(EXPORTED), drawn=3))
def test_onnxruntime_gives_the_pipelines_detections_scores_and_decisions(
    kind, tmp_path, monkeypatch
):
    deployed = deployed_on(kind, tmp_path, monkeypatch)
    source = PROPOSED[kind][0] if kind in PROPOSED else None
    bundle = Bundle.load(deployed.bundle(EXPORTED[kind], source, onnx=True))
    info, graph = bundle.info, bundle.info.onnx
    assert graph.opset == OPSET
    session = onnxruntime.InferenceSession(
        bundle.folder / graph.file, providers=["CPUExecutionProvider"]
    )
    assert [port.name for port in graph.outputs] == [
        output.name for output in session.get_outputs()
    ]
    assert session.get_modelmeta().custom_metadata_map["farther.tau"] == json.dumps(info.tau)
    images = [scene(number) for number in range(200, 210)]  # not those whose scores τ is one of
    found = compare(bundle, images)
    path = tmp_path / "scene.png"
    Image.fromarray(images[0]).save(path)
    of_files = compare(bundle.folder, [path, str(path), Image.open(path)])
    assert of_files.detections == 3 * compare(bundle, images[:1]).detections
    assert found.detections > 5
    assert found.unmatched == 0
    assert found.unknown == 0
    if kind in PROPOSED:
        assert found.proposals > 5
        assert found.other_proposals <= 0.05 * found.proposals
        assert found.largest["proposal_box"] < 1e-3
        assert found.largest["proposal_objectness"] < 1e-5
    assert found.largest["relative"] < 1e-4
    assert found.largest["box"] < 1e-3
    assert found.largest["confidence"] < 1e-5


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("faster_rcnn", {}),
        pytest.param("faster_rcnn", {"latent": "levels"}, marks=pytest.mark.slow),
        ("yolo", {}),
        ("detr", {}),
        pytest.param("detr", {"nms_iou": 0.2}, marks=pytest.mark.slow),
        ("retinanet", {}),
        ("fcos", {}),
    ],
)
def test_the_network_that_is_traced_finds_the_detectors_boxes_columns_and_proposals(
    kind, params, tmp_path, monkeypatch
):
    case, (source, _, operating) = KINDS[kind], PROPOSED[kind]
    weights = weights_of(kind, tmp_path, monkeypatch)
    detector = detectors.create(kind, weights=weights, **{**case.params, **params, "device": "cpu"})
    columns = ["features", "latent"] if kind in ("faster_rcnn", "detr") else ["latent"]
    selection = read_sources("run", {source: {"candidates": 100}})[source].selection()
    network = GRAPHS[type(detector)](detector, columns, operating, selection).eval()
    # The last one is a pixel wider than a multiple of the strides.
    for image in (scene(200), scene(201), scene(202), scene(200)[:64, :65]):
        with torch.no_grad():
            found = {
                name: values.numpy()
                for name, values in network(*inputs_of(detector, image).values()).items()
            }
        regions, proposed = detector.forward_proposals(
            [detector.prepare(image)], ["a"], {source: selection}
        )
        detections = regions.above(operating)
        assert min(len(detections), len(proposed)) > 0
        np.testing.assert_array_equal(found["label"], detections.label)
        np.testing.assert_allclose(found["confidence"], detections.score, atol=1e-5)
        for name in ("box", "logits", *columns):
            np.testing.assert_allclose(found[name], detections.array(name), rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(found["proposal_objectness"], proposed.score, atol=1e-5)
        np.testing.assert_allclose(found["proposal_box"], proposed.box, atol=1e-2)


def test_yolo_is_traced_for_images_of_any_shape_although_it_has_seen_one_before():
    params = {"score_threshold": 0.001, "image_size": 96, "device": "cpu"}
    detector = detectors.create("yolo", weights=KINDS["yolo"].weights(None), **params)
    network = GRAPHS[type(detector)](detector, [], 0.0).eval()
    wide, upright = (tuple(inputs_of(detector, scene(number)).values()) for number in (201, 202))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network(*wide)
        traced = torch.jit.trace(network, wide, check_trace=False, strict=False)
        for given in (wide, upright):
            found, expected = traced(*given), network(*given)
            assert len(expected["box"]) > 0
            np.testing.assert_allclose(found["box"].numpy(), expected["box"].numpy(), atol=1e-3)


@pytest.mark.parametrize(
    "shape", [(64, 96), (80, 80), (64, 65), (333, 500), (7, 500), (1, 500), (900, 2), (1, 1)]
)
def test_boxes_of_padded_images_are_placed_as_ultralytics_does(shape):
    corners = np.random.default_rng(0).uniform(-10, 210, (50, 2, 2))
    boxes = torch.from_numpy(np.sort(corners, axis=1).reshape(50, 4).astype(np.float32))
    padded = letterbox(np.zeros((*shape, 3), np.uint8), 192, 32).pixels.shape[:2]
    found = YoloGraph._in_image(boxes, torch.tensor(padded), torch.tensor(shape))
    np.testing.assert_allclose(
        found, scale_boxes(padded, boxes.clone(), shape), rtol=1e-4, atol=1e-4
    )


def monitored(label, score, unknown, box=0.0, proposed=(), objectness=0.5):
    """Detections and proposals of an image; each box begins at the same number on both axes."""
    count = len(label)
    columns = {
        "box": np.add.outer(np.full(count, box), [0, 0, 1, 1]),
        "label": label,
        "score": np.full(count, 0.5),
    }
    of_image = {"image_id": ["a"] * count, "region_id": np.arange(count), "classes": ("x", "y")}
    regions = Regions(**of_image, **columns, logits=np.zeros((count, 2)))
    proposals = Regions(
        image_id=["a"] * len(proposed), region_id=np.arange(len(proposed)), classes=("object",),
        box=np.add.outer(np.asarray(proposed, float), [0, 0, 5, 5]),
        score=np.full(len(proposed), objectness),
        label=np.zeros(len(proposed), int), logits=np.zeros((len(proposed), 1)),
    )  # fmt: skip
    return Monitored(
        "a", regions, np.array(score), np.array(unknown, bool), regions.score, proposals=proposals
    )


def test_differences_of_a_graph_are_counted_and_the_largest_are_kept(monkeypatch):
    both = [  # the monitor's, and the graph's
        (
            monitored([0, 1], [10, 0.5], [0, 0], 0, [0, 100], 0.5),
            monitored([0, 1], [10.4, 0.4], [0, 1], 2, [0.008, 50, 70], 0.3),
        ),
        (monitored([0, 1], [0, 0], [0, 0]), monitored([0, 0], [99, 99], [1, 1], 99)),
        (monitored([], [], []), monitored([0], [99], [1], 99)),
        (monitored([], [], [], 0, [0]), monitored([], [], [])),
        (monitored([1], [-3], [1], 0, [0]), monitored([1], [-3], [1], 0, [0])),
    ]
    outputs = (
        "box",
        "label",
        "confidence",
        "logits",
        "score",
        "unknown",
        "proposal_box",
        "proposal_objectness",
    )

    class Session:
        def __init__(self, file, providers):
            pass

        def get_outputs(self):
            return [SimpleNamespace(name=name) for name in outputs]

        def run(self, names, given):
            found = both[int(given["image"])][1]
            regions, proposals = found.regions, found.proposals
            columns = (
                regions.box,
                regions.label,
                regions.score,
                regions.logits,
                found.score,
                found.unknown,
            )
            return [*columns, proposals.box, proposals.score]

    bundle = SimpleNamespace(
        info=SimpleNamespace(onnx=SimpleNamespace(file="f")), folder=Path(), detector=lambda _: None
    )
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(
        "farther.monitor.onnx.compare.Monitor", lambda *_: lambda image: both[image][0]
    )
    monkeypatch.setattr(
        "farther.monitor.onnx.compare.inputs_of", lambda _, image: {"image": torch.tensor(image)}
    )
    found = compare(bundle, range(len(both)))
    assert (found.images, found.detections, found.unmatched, found.unknown) == (5, 3, 2, 1)
    assert (found.proposals, found.other_proposals) == (4, 1 + 2 + 1)
    expected = {"box": 2, "confidence": 0, "logits": 0, "score": 0.4, "relative": 0.1}
    of_proposals = {"proposal_box": 0.008, "proposal_objectness": 0.2}
    assert found.largest == pytest.approx({**expected, **of_proposals}, abs=1e-6)


@pytest.mark.parametrize("iou", [0.3, 0.5])
def test_the_graph_drops_the_proposals_on_detections_that_the_pipeline_drops(iou):
    random = np.random.default_rng(0)
    corners = [
        random.integers(0, 30, (count, 2)) for count in (2000, 12)
    ]  # whole numbers: some are at a threshold
    boxes = [
        np.hstack([corner, corner + random.integers(0, 16, corner.shape)]) for corner in corners
    ]
    tables = [
        Regions(
            image_id=["image"] * len(box), region_id=np.arange(len(box)), box=box,
            score=np.ones(len(box)), label=np.zeros(len(box), int),
            logits=np.zeros((len(box), 1)), classes=("a",),
        )
        for box in boxes
    ]  # fmt: skip
    expected = open_set.proposals.apart_from_detections(*tables, iou)
    assert 200 < expected.sum() < 1800
    found = proposal_graphs.beside(*(torch.from_numpy(box.astype(float)) for box in boxes), iou)
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.fixture(scope="module")
def regions() -> Regions:
    """Detections with features, activations and a last layer."""
    rng = np.random.default_rng(0)
    count, width, classes = 300, 12, 5
    weight, bias = (
        rng.normal(size=(classes, width)).astype(np.float32),
        rng.normal(size=classes).astype(np.float32),
    )
    features = rng.gamma(1.0, size=(count, width)).astype(np.float32)
    logits = features @ weight.T + bias
    return Regions(
        image_id=["image"] * count,
        region_id=np.arange(count),
        box=np.tile([0.0, 0.0, 1.0, 1.0], (count, 1)),
        score=rng.random(count),
        label=logits[:, 1:].argmax(axis=1) + 1,
        logits=logits,
        features=features,
        latent=rng.normal(size=(count, 8)).astype(np.float32),
        **{f"gram.{layer}": rng.normal(size=(count, 6)).astype(np.float32) for layer in "ab"},
        classes=("background", "a", "b", "c", "d"),
        background_index=0,
        weight=weight,
        bias=bias,
        detector={
            "vos_head": {"energy_weight": [1, 0.5, 0, 2], "weight": [-0.2, 0.3], "bias": [0.1, 0.2]}
        },
    )


def test_a_graph_decides_as_the_monitor_does_where_a_value_is_its_threshold_too(regions):
    header = replace(regions.header, unknown_columns=(2, 3))
    names = ("image_id", "region_id", "score", "label", "logits")
    random, method = np.random.default_rng(1), methods.create("msp")
    low = random.uniform(0, 90, (100, 2))
    boxes = np.hstack([low, low + random.uniform(1, 40, (100, 2))])
    detections, others = (
        Regions(
            header=header, box=boxes[rows], **{name: regions[rows].array(name) for name in names}
        )
        for rows in (slice(0, 30), slice(30, 100))
    )
    found = {
        "box": detections.box,
        "label": detections.label.astype(int),
        "confidence": detections.score,
    }
    found |= {
        "logits": detections.logits,
        "proposal_box": others.box,
        "proposal_objectness": others.score,
    }
    given = {name: torch.from_numpy(np.array(values)) for name, values in found.items()}

    class Found(torch.nn.Module):
        detector = SimpleNamespace(features_dtype="float32")

        def forward(self):
            return dict(given)

    beside = open_set.proposals.apart_from_detections(others, detections)
    limit = float(np.sort(others.score[beside])[5])
    params = {"kind": "rpn"}
    bundled = BundledProposals(source="s", params=params, threshold=limit, iou=0.5)

    def decided(tau: float) -> dict[str, np.ndarray]:
        module = Scored(Found(), method, header, GraphThresholds(0.0, tau, bundled))
        return {name: values.numpy() for name, values in zip(module.outputs, module(), strict=True)}

    score = decided(0.0)["score"]
    np.testing.assert_allclose(score, method.score(detections), rtol=1e-12)
    assert 0 < (score < -1).sum() < 30  # detected as unknown
    for row in range(30):
        assert decided(float(score[row]))["unknown"].sum() == (score < score[row]).sum()
    called = bundled.called(others, detections)
    assert len(called) == beside.sum() - 6
    np.testing.assert_array_equal(
        decided(0.0)["proposal_objectness"], others.score[beside & (others.score > limit)]
    )
    np.testing.assert_allclose(np.sort(decided(0.0)["proposal_objectness"]), np.sort(called.score))


#: Parameters of a method's variants.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "temperature_scaling": [{"temperature": 3.0}],
    "energy": [{}, {"temperature": 2.0}, {"protocol": "published-code"}],
    "gen": [{}, {"protocol": "published-code"}, {"m": 2}, {"protocol": "published-code", "m": 2}],
    "vos": [{}, {"output": "logistic"}],
    "gradnorm": [{"temperature": 2.0}],
    "ash": [
        {"variant": variant, "percentile": 60, "protocol": protocol}
        for variant in "spb"
        for protocol in ("paper", "published-code")
    ],
    "knn": [{"k": 3}, {"protocol": "published-code"}, {"layer": "latent"}],
    "gram": [{"layer": ["a"]}, {"layer": ["a", "b"], "protocol": "published-code"}],
    "oodl": [{"components": 4}, {"kernel": "nystroem", "components": 4}],
    "openmax": [{}, {"alpha": 2}],
    "mcm": [{"temperature": 0.3}],
    "fused": [{"of": ["energy", "knn"], "by": by} for by in ("mean", "fisher", "simes")],
    "cascade": [
        {"first": "energy", "then": "knn"},
        {"first": "msp", "then": {"knn": {"k": 2}}, "share": 0.6, "around": 0.5},
    ],
    "vim": [{"dim": 6}],
    "residual": [{"dim": 6}],
    "mahalanobis": [{}, {"layer": "latent"}],
    "lard_mahalanobis": [{"components": 3}, {"components": None}, {"protocol": "published-code"}],
    "lard_knn": [{"components": 3}, {"protocol": "published-code"}],
    "lard_kde": [{"components": 3, "bandwidth": 0.7}],
    "relation": [{}, {"power": 2.0}],
}
#: Methods that are not exported, and why.
NOT_EXPORTED = {
    "box_uncertainty": "it reads variances of boxes",
    "joint_entropy": "it reads variances of boxes",
    "imported": "its scores were computed elsewhere",
    "ddu": "ONNX has no solution of triangular equations",
    "lard_gmm": "ONNX has no solution of triangular equations",
}
#: Methods that read columns which these regions lack, or learn from a pass: exported by tests of
#: their own.
OTHERS = {
    "uncertainty",
    "predictive_entropy",
    "mutual_information",
    "native",
    "neg_label",
    "gl_mcm",
    "safe",
    "conf_branch",
    "g_odin",
    "adascale",
}
CASES = [
    (name, params)
    for name in METHODS.names()
    if name not in NOT_EXPORTED and name not in OTHERS
    for params in VARIANTS.get(name, [{}])
]


class Score(torch.nn.Module):
    """The score alone, as a graph."""

    def __init__(self, method: methods.Method, header: Any, names: list[str]):
        super().__init__()
        self.score, self.names = score_module(method, header), names

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return self.score(**dict(zip(self.names, values, strict=True)))


def in_onnxruntime(method: methods.Method, regions: Regions) -> np.ndarray:
    """The scores of a graph that was traced on other rows."""
    names = ["score", "label", "logits", *method.columns]
    arrays = {"score": regions.score, "label": regions.label.astype(np.int64)}
    arrays |= {name: regions.array(name) for name in names[2:]}
    file = io.BytesIO()
    sample = tuple(torch.from_numpy(np.array(arrays[name][:7])) for name in names)
    with torch.no_grad(), tracing():
        torch.onnx.export(
            Score(method, regions.header, names),
            sample,
            file,
            dynamo=False,
            opset_version=OPSET,
            input_names=names,
            output_names=["scores"],
            dynamic_axes={key: {0: "n"} for key in [*names, "scores"]},
        )
    session = onnxruntime.InferenceSession(file.getvalue())
    wanted = [value.name for value in session.get_inputs()]
    return session.run(None, {name: arrays[name] for name in wanted})[0]


@pytest.mark.parametrize(("name", "params"), CASES)
def test_the_score_of_a_graph_is_the_methods(name, params, regions):
    if name == "gram":  # some images are held out
        regions = regions.with_columns(image_id=[f"image{row // 5}" for row in range(len(regions))])
    method = methods.create(name, **params).fit(regions[:200])
    others = regions[200:]
    score = in_onnxruntime(method, others)
    assert score.dtype == np.float64
    # Products in float32 add up in another order.
    np.testing.assert_allclose(
        score,
        method.score(others),
        rtol=1e-5 if name in ("nnguide", "relation") else 1e-7,
        atol=1e-12,
    )


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_methods_that_read_further_columns_or_learn_from_a_pass_are_exported_too(name, regions):
    random = np.random.default_rng(2)
    values = random.random(len(regions)).astype(np.float32)
    of_passes = {"uncertainty": values, "predictive_entropy": values, "mutual_information": values}
    of_heads = {
        "latent.confidence": random.normal(size=(len(regions), 1)),
        "latent.numerator": random.normal(size=regions.logits.shape),
    }
    columns = {
        **regions.columns(),
        **of_passes,
        **of_heads,
        "latent.patch": random.random(regions.features.shape),
        "latent.before": random.random(regions.features.shape),
    }
    known = Regions(header=replace(regions.header, unknown_columns=(2, 3)), **columns)
    method = methods.create(name).fit(known[:200])
    if name == "safe":
        method.learn_pass(known[:200], known[:200].with_columns(latent=known[:200].latent + 1))
    expected = method.score(known[200:])
    assert 0 < (expected < -1e29).sum() < 100  # labelled as unknown
    np.testing.assert_allclose(in_onnxruntime(method, known[200:]), expected, rtol=1e-6)


def test_a_column_that_the_graph_of_a_detector_does_not_give_is_named(tmp_path, regions):
    detector = detectors.create("transformers_classifier", weights=vit(tmp_path), device="cpu")
    known = regions.with_columns(uncertainty=np.zeros(len(regions)))
    method = methods.create("uncertainty").fit(known)
    with pytest.raises(
        ParameterError,
        match="'uncertainty' cannot be exported: the graph of this detector has no col",
    ):
        write_graph(detector, method, regions.header, GraphThresholds(0.0, 0.0), tmp_path)


@pytest.mark.parametrize("activation", ["sigmoid", "exp"])
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("msp", {}),
        ("energy", {"temperature": 2.0}),
        ("entropy", {}),
        ("entropy", {"sigmoids": "largest"}),
        ("gen", {}),
        ("temperature_scaling", {"temperature": 2.0}),
    ],
)
def test_sigmoid_heads_are_read_as_the_method_reads_them(name, params, activation, regions):
    logits = (
        -np.logaddexp(0, -regions.logits[:, 1:])
        if activation == "exp"
        else regions.logits[:, 1:].copy()
    )
    logits[-1] = 0  # as logarithms: sigmoids that float32 rounds to 1
    columns = {
        "box": regions.box,
        "score": regions.score,
        "label": regions.label - 1,
        "logits": logits,
    }
    header = {"classes": ("a", "b", "c", "d"), "activation": activation}
    sigmoid = Regions(image_id=regions.image_id, region_id=regions.region_id, **columns, **header)
    method = methods.create(name, activation="detector", **params)
    expected = method.score(sigmoid)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(in_onnxruntime(method, sigmoid), expected, rtol=1e-9, atol=1e-12)


def test_relations_at_the_threshold_do_not_count_in_a_graph_either(regions):
    logits = np.zeros((12, 5), np.float32)  # four classes, equally likely: relations of 0 and 1/4
    rows = regions[:12].with_columns(features=np.eye(12, dtype=np.float32), logits=logits)
    for threshold, expected in ((0.25, 0.0), (0.2, 0.25)):
        method = methods.create("relation", threshold=threshold).fit(rows)
        np.testing.assert_allclose(method.score(rows), expected)
        np.testing.assert_allclose(in_onnxruntime(method, rows), expected)


def test_rows_have_norm_1_unless_they_are_zero():
    rows = np.random.default_rng(0).normal(size=(20, 6)) * np.geomspace(1e-6, 1e6, 20)[:, None]
    rows[3] = 0
    np.testing.assert_allclose(
        normalised(torch.from_numpy(rows)).numpy(), normalize(rows), rtol=1e-12
    )


def test_activations_are_sharpened_as_the_methods_do():
    before = np.array([2.0, 2.0, 2.0, 3.0, 0.0, 1e3])
    after = np.array(
        [0.0, 1.0, -1.0, 2.0, 0.0, 1.0]
    )  # a sum of 0 is a ratio of 0, and ratios are bounded
    expected = np.exp([0.0, 2.0, -2.0, 1.5, 0.0, 80.0])[:, None]
    np.testing.assert_allclose(activations.sharpening(before, after), expected, rtol=1e-12)
    found = activations.sharpening(torch.from_numpy(before), torch.from_numpy(after))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def export_function(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, file: io.BytesIO
) -> None:
    class Function(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Function(), (x,), file, dynamo=False, opset_version=OPSET, input_names=["x"]
        )


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (torch.expm1, [-20.0, -1.5, -1e-7, 0.0, 1e-7, 0.3, 2.0]),
        (torch.special.entr, [0.0, 1e-30, 0.2, 1.0, 3.0]),
    ],
)
def test_functions_that_onnx_has_not_are_computed_by_those_that_it_has(function, values):
    x, file, name = torch.tensor(values), io.BytesIO(), f"aten::{function.__name__}"
    torch.onnx.register_custom_op_symbolic(name, proposal_graphs.SYMBOLICS[name], OPSET)
    try:
        export_function(function, x, file)
    finally:
        torch.onnx.unregister_custom_op_symbolic(name, OPSET)
    (found,) = onnxruntime.InferenceSession(file.getvalue()).run(None, {"x": x.numpy()})
    np.testing.assert_allclose(found, function(x.double()).numpy(), rtol=1e-5)


def test_the_steps_that_a_bundle_describes_prepare_an_image_as_the_detector_does(tmp_path):
    detector = detectors.create("yolo", weights=KINDS["yolo"].weights(tmp_path), device="cpu")
    numbers = described(detector).numbers
    for image in (scene(0), scene(1), scene(0)[:40], scene(1)[:70, :37]):
        height, width = image.shape[:2]
        factor = numbers["longer_side"] / max(height, width)
        scaled = cv2.resize(
            image, (round(width * factor), round(height * factor)), interpolation=cv2.INTER_LINEAR
        )
        missing = [-side % numbers["multiple"] for side in scaled.shape[:2]]
        sides = [(side // 2, side - side // 2) for side in missing]
        expected = np.pad(scaled, [*sides, (0, 0)], constant_values=numbers["value"])
        np.testing.assert_array_equal(detector.prepare(image).pixels, expected)


def test_what_cannot_be_exported_is_refused_by_name_with_the_reason(tmp_path, regions):
    for name, reason in NOT_EXPORTED.items():
        with pytest.raises(ParameterError, match=f"method '{name}' cannot be exported: {reason}"):
            score_module(
                methods.create(name, **{"imported": {"file": "a.csv"}}.get(name, {})),
                regions.header,
            )
    approximate = methods.create("knn", index="approximate").fit(regions)
    with pytest.raises(
        ParameterError, match="method 'knn' cannot be exported: an approximate index"
    ):
        in_onnxruntime(approximate, regions)
    features = regions.features.copy()
    features[:, 0] = 1 + 1e-6 * features[:, 0]  # nearly constant: float32 rounds most of it away
    singular = methods.create("mahalanobis").fit(regions.with_columns(features=features))
    with pytest.raises(
        ParameterError, match="method 'mahalanobis' cannot be exported: the covariance is so nearly"
    ):
        in_onnxruntime(singular, regions)
    kind = KINDS["classifier"]
    params = {"device": "cpu", "precision": "bfloat16"}
    entry = {
        "adapter": "classifier",
        "weights": kind.weights(tmp_path),
        "params": params,
        **kind.more,
    }
    deployed = make(tmp_path, entry, {"msp": {}, "odin": kind.methods["odin"]}, 0.0)
    with pytest.raises(
        ParameterError, match="detector 'classifier' cannot be exported: its precision is bfloat16"
    ):
        deployed.bundle("msp", onnx=True)
    with pytest.raises(
        ParameterError, match="method 'odin' cannot be exported: it scores the pass 'perturbed'"
    ):
        deployed.bundle("odin", onnx=True)


def resized(kind: str, folder: Path, *, one_shape: bool) -> Deployed:
    """A small detection transformer whose processor resizes images to one shape, or does not."""
    save_folder(folder, kind)
    if one_shape:
        file = folder / "preprocessor_config.json"
        processor = json.loads(file.read_text())
        file.write_text(
            json.dumps({**processor, "size": {"height": 64, "width": 96}, "do_pad": False})
        )
    params = {"device": "cpu", "score_threshold": 0.01}
    return make(
        folder,
        {"adapter": "detr", "weights": str(folder), "params": params},
        {"knn": {"k": 2}},
        0.05,
    )


def test_detr_is_exported_where_its_processor_gives_images_one_shape(tmp_path):
    bundle = Bundle.load(resized("detr", tmp_path, one_shape=True).bundle("knn", onnx=True))
    found = compare(bundle, [scene(number) for number in range(200, 204)])
    assert found.detections > 5
    assert (found.unmatched, found.unknown) == (0, 0)
    assert found.largest["score"] < 1e-4


@pytest.mark.parametrize(
    ("kind", "one_shape", "reason"),
    [
        ("detr", False, "its images have many shapes"),
        pytest.param(
            "deformable_detr",
            True,
            "onnxruntime .* cannot run its graph",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_transformers_that_cannot_be_exported_are_refused_by_name(
    kind, one_shape, reason, tmp_path
):
    deployed = resized(kind, tmp_path, one_shape=one_shape)
    with pytest.raises(ParameterError, match=f"detector 'detr' cannot be exported: {reason}"):
        deployed.bundle("knn", onnx=True)


def test_detectron2s_networks_are_refused_by_name(tmp_path):
    weights = tmp_path / "network.pth"
    torch.save({"roi_heads.box_predictor.cls_score.weight": torch.zeros(4, 8)}, weights)
    detector = detectors.create(
        "faster_rcnn", weights=weights, classes=CLASSES, architecture="resnet50_fpn_msra"
    )
    header = Header(classes=("background", *CLASSES), background_index=0)
    with pytest.raises(
        ParameterError, match="'faster_rcnn' cannot be exported: resnet50_fpn_msra computes anchors"
    ):
        write_graph(detector, methods.create("msp"), header, GraphThresholds(0.5, 0.5), tmp_path)


def test_a_graph_of_more_than_a_file_of_protocol_buffers_holds_is_refused(
    tmp_path, monkeypatch, regions
):
    detector = detectors.create("transformers_classifier", weights=vit(tmp_path), device="cpu")
    method = methods.create("knn", k=3).fit(regions)
    size = sum(values.nbytes for values in detector.network.network.parameters())
    monkeypatch.setattr("farther.monitor.onnx.export.LARGEST", size)
    with pytest.raises(
        ParameterError, match=r"'knn' cannot be exported .* 0\.0 GiB, and an ONNX file at most 2"
    ):
        write_graph(detector, method, regions.header, GraphThresholds(0.0, 0.0), tmp_path)
    assert not (tmp_path / "model.onnx").exists()


def test_writing_a_graph_leaves_the_exporter_of_others_as_it_was(tmp_path):
    detector = detectors.create("transformers_classifier", weights=vit(tmp_path), device="cpu")
    before = torch.backends.mha.get_fastpath_enabled()
    write_graph(
        detector, methods.create("msp"), detector.header(), GraphThresholds(0.0, 0.0), tmp_path
    )
    assert torch.backends.mha.get_fastpath_enabled() == before
    for function in (torch.expm1, torch.special.entr):
        with pytest.raises(
            (torch.onnx.errors.UnsupportedOperatorError, ValueError)
        ):  # no steps, or no longer any
            export_function(function, torch.ones(3), io.BytesIO())


def test_a_graph_that_was_changed_is_not_loaded(tmp_path):
    kind = KINDS["classifier"]
    entry = {
        "adapter": "classifier",
        "weights": kind.weights(tmp_path),
        "params": {"device": "cpu"},
    }
    folder = make(tmp_path, entry, {"msp": {}}, 0.0).bundle("msp", onnx=True)
    with (folder / "model.onnx").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(DataError, match="the graph is not the one that was written"):
        Bundle.load(folder)
