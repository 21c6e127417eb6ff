"""Graphs as their own libraries export them, beside the same networks in PyTorch."""

import warnings

import numpy as np
import onnx
import pytest
import torch
from tests.detectors import demo
from tests.detectors.test_yolo import CLASSES, IMAGES, SIZE, THRESHOLD, ultralytics_file, untrained
from tests.support.cases import slow_but
from ultralytics import YOLO

from farther import detectors
from farther.errors import DataError, ParameterError

PETS = ("cat", "dog", "owl")


def create(file, **params):
    return detectors.create(
        "onnx", weights=file, **{"score_threshold": THRESHOLD, "device": "cpu", **params}
    )


def exported(network, inputs, file, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(), inputs, file, dynamo=False, opset_version=17, verbose=False, **options
        )
    return file


@pytest.fixture(scope="module")
def yolo(tmp_path_factory):
    """A checkpoint by "pt", and its exports, each made when first asked for.

    "varying" is with an input that varies, "fixed" with one size, and "nms" with NMS.
    """
    folder = tmp_path_factory.mktemp("yolo")
    files = {"pt": ultralytics_file(untrained("yolov8n"), folder / "net.pt")}
    options = {
        "varying": {"dynamic": True},
        "fixed": {},
        "nms": {"nms": True, "conf": THRESHOLD, "max_det": 30},
    }

    def file(kind):
        if kind not in files:
            made = YOLO(files["pt"], task="detect").export(
                format="onnx", imgsz=SIZE, verbose=False, **options[kind]
            )
            assert str(made).endswith("net.onnx")
            files[kind] = folder / f"{kind}.onnx"
            (folder / "net.onnx").rename(files[kind])
        return files[kind]

    return file


def test_a_graph_of_ultralytics_gives_what_its_checkpoint_gives(yolo):
    own = create(yolo("varying"), max_detections=30)
    theirs = detectors.create(
        "yolo", weights=yolo("pt"), score_threshold=THRESHOLD, max_detections=30, device="cpu"
    )
    assert own.header().known_classes == theirs.header().known_classes == CLASSES
    found, expected = own.detect(IMAGES, batch_size=1), theirs.detect(IMAGES, batch_size=1)
    assert found.image_id.tolist() == expected.image_id.tolist() and len(found) > 0
    np.testing.assert_allclose(found.box, expected.box, atol=1e-3 * SIZE)
    np.testing.assert_allclose(found.score, expected.score, atol=1e-4)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-3)
    np.testing.assert_array_equal(found.label, expected.label)


@pytest.mark.parametrize("kind", slow_but(("fixed",), ["fixed", "nms"]))
def test_graphs_of_one_size_give_what_predict_gives(yolo, kind, tmp_path):
    own = create(yolo(kind), max_detections=30)
    model = YOLO(yolo(kind), task="detect")
    asked = {
        "conf": THRESHOLD,
        "iou": 0.7,
        "max_det": 30,
        "imgsz": SIZE,
        "device": "cpu",
        "project": str(tmp_path),
    }
    for image in IMAGES:
        found, theirs = (
            own.detect(image),
            model.predict(image[..., ::-1], verbose=False, **asked)[0].boxes,
        )
        assert len(found) == len(theirs) > 0
        np.testing.assert_allclose(found.box, theirs.xyxy.numpy(), atol=1e-3)
        np.testing.assert_allclose(found.score, theirs.conf.numpy(), atol=1e-5)
    assert found.has("logits") == (kind == "fixed")


SCENES = [demo.scene(number) for number in range(3)]


def test_a_graph_of_torchvision_gives_what_its_network_gives(tmp_path):
    theirs = demo.fresh("faster_rcnn")
    names = {"input_names": ["image"], "output_names": ["boxes", "labels", "scores"]}
    axes = {
        "image": {1: "height", 2: "width"},
        **{name: {0: "n"} for name in names["output_names"]},
    }
    pixels = torch.from_numpy(SCENES[0].copy()).permute(2, 0, 1) / 255
    network = theirs.network.to(memory_format=torch.contiguous_format)
    file = exported(network, ([pixels],), tmp_path / "net.onnx", dynamic_axes=axes, **names)
    own = create(
        file, classes=theirs.header().known_classes, score_threshold=demo.LOW["faster_rcnn"]
    )
    found, expected = own.detect(SCENES, batch_size=1), theirs.detect(SCENES, batch_size=1)
    assert found.image_id.tolist() == expected.image_id.tolist() and len(found) > 0
    np.testing.assert_allclose(found.score, expected.score, atol=1e-3)
    np.testing.assert_allclose(found.box, expected.box, atol=0.1)
    assert [found.classes[one] for one in found.label] == [
        expected.classes[one] for one in expected.label
    ]


class Outputs(torch.nn.Module):
    """What exports of detection transformers have: their logits and boxes."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, pixel_values):
        found = self.network(pixel_values=pixel_values)
        return found.logits, found.pred_boxes, found.last_hidden_state


@pytest.fixture(scope="module")
def rt_detr(tmp_path_factory):
    """The demo's RT-DETR, and its export with one more output, the queries' vectors."""
    file = tmp_path_factory.mktemp("rt_detr") / "net.onnx"
    adapter = demo.create("detr")
    side = adapter.prepare(np.zeros((50, 60, 3), np.uint8)).pixels.shape[1]
    names = {"input_names": ["pixel_values"], "output_names": ["logits", "pred_boxes", "vectors"]}
    return adapter, exported(
        Outputs(adapter.network), (torch.rand(1, 3, side, side),), file, **names
    )


def test_a_graph_of_a_detection_transformer_gives_what_its_network_gives(rt_detr):
    theirs, file = rt_detr
    params = {
        "classes": theirs.header().known_classes,
        "score_threshold": demo.LOW["detr"],
        "features": "vectors",
    }
    params |= {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    found, expected = create(file, **params).detect(SCENES), theirs.detect(SCENES)
    assert found.image_id.tolist() == expected.image_id.tolist() and len(found) > 0
    np.testing.assert_allclose(found.score, expected.score, atol=1e-3)
    np.testing.assert_allclose(found.box, expected.box, atol=0.1)
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-2)
    np.testing.assert_allclose(found.features, expected.features, atol=1e-2)


def changed(file, path, change):
    """A copy of a graph after a change."""
    model = onnx.load(file)
    change(model)
    path.write_bytes(model.SerializeToString())  # onnx.save refuses some of the changes
    return path


def without_names(model):
    kept = [one for one in model.metadata_props if one.key != "names"]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)


def as_segmentation(model):
    next(one for one in model.metadata_props if one.key == "task").value = "segment"


def custom_operator(model):
    model.graph.node[0].op_type, model.graph.node[0].domain = "Mine", "mine"
    model.opset_import.add(domain="mine", version=1)


def weights_elsewhere(model):
    tensor = next(one for one in model.graph.initializer if len(one.dims) == 4)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../secret")
    tensor.ClearField("raw_data")


@pytest.mark.parametrize(
    ("change", "params", "problem"),
    [
        (without_names, {}, "the graph does not name its classes: list them in its order"),
        (as_segmentation, {}, "a graph for 'segment', not for detection"),
        (
            custom_operator,
            {},
            r"operators that ONNX Runtime does not have: Mine \('mine'\). .*: export it for ONNX",
        ),
        (weights_elsewhere, {}, "secret"),
        (
            lambda model: None,
            {"classes": PETS},
            r"3 classes are named \(cat, dog, owl\), but the graph scores 4: its output is output0",
        ),
        (
            lambda model: None,
            {"layout": "detr"},
            r"the outputs are not of layout 'detr': output0 \(1, 8, ",
        ),
        (lambda model: None, {"features": "x"}, "features: the graph has no output 'x'"),
    ],
)
def test_graphs_that_do_not_fit_are_refused_in_one_sentence(
    yolo, tmp_path, change, params, problem
):
    file = changed(yolo("fixed"), tmp_path / "x.onnx", change)
    with pytest.raises((DataError, ParameterError), match=problem) as error:
        create(file, **params).detect(IMAGES[:1])
    assert "\n" not in str(error.value)


def test_a_damaged_file_and_an_input_of_unknown_size_are_refused(yolo, rt_detr, tmp_path):
    (tmp_path / "cut.onnx").write_bytes(yolo("fixed").read_bytes()[:5000])
    with pytest.raises(DataError, match="not an ONNX graph, or a damaged one"):
        create(tmp_path / "cut.onnx").header()

    def varying(model):
        for side in model.graph.input[0].type.tensor_type.shape.dim[2:]:
            side.dim_param = "side"

    file, classes = (
        changed(rt_detr[1], tmp_path / "varying.onnx", varying),
        rt_detr[0].header().known_classes,
    )
    with pytest.raises(ParameterError, match="the graph's input varies: give its 'size' in pixels"):
        create(file, classes=classes).detect(IMAGES[:1])
    found = create(file, classes=classes, size=192, score_threshold=0.001).detect(IMAGES[:1])
    assert len(found) > 0
