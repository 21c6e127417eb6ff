"""Graphs with the outputs of each exporter, compared with simple code for images and boxes."""

import json
import warnings

import cv2
import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

from farther import detectors
from farther.detectors.onnx import Onnx
from farther.detectors.recognition import IdClasses
from farther.errors import DataError, ParameterError

PETS = ("cat", "dog", "owl")
K = len(PETS)
HEIGHT, WIDTH = 64, 96
THRESHOLD = 0.3
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
GENERATOR = np.random.default_rng(0)
#: A wide, a high and a small image, smooth enough for resizing to matter little and be tested a
#: lot.
IMAGES = [
    cv2.GaussianBlur(GENERATOR.integers(0, 256, (*size, 3), np.uint8), (9, 9), 3)
    for size in ((120, 300), (170, 75), (40, 50))
]


def exported(network, inputs, file, names, outputs, **options):
    """Writes a graph, and returns its file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            inputs,
            file,
            input_names=names,
            output_names=outputs,
            dynamo=False,
            opset_version=17,
            **options,
        )
    return file


def create(file, **params):
    return detectors.create(
        "onnx",
        weights=file,
        **{"score_threshold": THRESHOLD, "device": "cpu", "classes": PETS, **params},
    )


def stretched(image, height=HEIGHT, width=WIDTH):
    """Pillow's resize, antialiased; (3, height, width) between 0 and 1."""
    resized = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(resized).transpose(2, 0, 1) / 255


def letterboxed(image):
    """The image in the middle of grey, and the scale and offset of boxes as YOLOv5 undoes them."""
    height, width = image.shape[:2]
    gain = min(HEIGHT / height, WIDTH / width)
    new_width = round(width * gain)
    new_height = round(height * gain)
    left = round((WIDTH - new_width) / 2 - 0.1)
    top = round((HEIGHT - new_height) / 2 - 0.1)
    resized = cv2.resize(image, (new_width, new_height), interpolation=cv2.INTER_LINEAR)
    pixels = np.full((HEIGHT, WIDTH, 3), 114, np.uint8)
    pixels[top : top + new_height, left : left + new_width] = resized
    offset = (WIDTH - width * gain) / 2, (HEIGHT - height * gain) / 2
    return pixels.transpose(2, 0, 1) / 255, gain, np.array([*offset, *offset])


def cornered(image):
    """The image in the upper left of grey, BGR between 0 and 255, and the scale, as in YOLOX."""
    height, width = image.shape[:2]
    gain = min(HEIGHT / height, WIDTH / width)
    new_width = int(width * gain)
    new_height = int(height * gain)
    blue_first = image[..., ::-1]
    resized = cv2.resize(blue_first, (new_width, new_height), interpolation=cv2.INTER_LINEAR)
    pixels = np.full((HEIGHT, WIDTH, 3), 114, np.uint8)
    pixels[:new_height, :new_width] = resized
    return pixels.transpose(2, 0, 1).astype(float), gain


def corners(boxes):
    x, y, w, h = np.asarray(boxes, dtype=float).T
    return np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], axis=1)


def area(box):
    return (box[2] - box[0]) * (box[3] - box[1])


def overlap(first, second):
    """Intersection over union of two boxes."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    intersection = max(width, 0) * max(height, 0)
    return intersection / (area(first) + area(second) - intersection)


def suppressed(boxes, scores, labels, iou):
    """Rows above the threshold that no better row of the same class overlaps, best first."""
    rows = []
    for row in np.argsort(-scores, kind="stable"):
        if scores[row] <= THRESHOLD:
            break
        same_class = [better for better in rows if labels[better] == labels[row]]
        if all(overlap(boxes[row], boxes[better]) <= iou for better in same_class):
            rows.append(row)
    return rows


def run(network, pixels, *inputs):
    """Outputs of a network for one image, as arrays."""
    with torch.no_grad():
        outputs = network(torch.from_numpy(pixels).float()[None], *inputs)
    if not isinstance(outputs, tuple):
        outputs = (outputs,)
    return [output.numpy() for output in outputs]


def assert_equal(regions, boxes, scores, labels):
    assert len(regions) == len(scores) > 0
    np.testing.assert_allclose(regions.score, scores, atol=1e-5)
    np.testing.assert_array_equal(regions.label, labels)
    np.testing.assert_allclose(regions.box, boxes, atol=0.01)


class Cells(nn.Module):
    """Objectness and classes of cells of 8, 16 and 32 pixels, as YOLOX and YOLOv5 give them."""

    def __init__(self, anchors=1, decodes=True, pixel_range=255, strength=30):
        super().__init__()
        torch.manual_seed(5)
        columns = 5 + K
        self.heads = nn.ModuleList(nn.Conv2d(3, anchors * columns, 1) for _ in range(3))
        for head in self.heads:
            head.weight.data *= strength / pixel_range
        self.anchors = anchors
        self.columns = columns
        self.decodes = decodes

    def forward(self, pixels):
        levels = []
        for head, stride in zip(self.heads, (8, 16, 32), strict=True):
            output = head(functional.avg_pool2d(pixels - pixels.mean(), stride))
            rows, columns = output.shape[2:]
            output = output.view(1, self.anchors, self.columns, rows, columns)
            output = output.permute(0, 1, 3, 4, 2)
            y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            centre = output[..., :2]
            size = output[..., 2:4] * 0.3
            if self.decodes:
                centre = (centre + torch.stack([x, y], dim=-1)) * stride
                size = size.exp() * stride
            output = torch.cat([centre, size, output[..., 4:].sigmoid()], dim=-1)
            levels.append(output.reshape(1, -1, self.columns))
        return torch.cat(levels, dim=1)


@pytest.mark.parametrize("form", ["decoded", "raw", "float16", "dynamic"])
def test_yolox_is_fed_blue_first_from_0_to_255_in_the_upper_left(tmp_path, form):
    network = Cells()
    written_network = Cells(decodes=form == "decoded")
    pixels = torch.rand(1, 3, HEIGHT, WIDTH) * 255
    if form == "float16":
        written_network = written_network.half()
        pixels = pixels.half()
    axes = {}
    if form == "dynamic":
        axes["dynamic_axes"] = {"images": {0: "batch"}, "output": {0: "batch"}}
    file = exported(written_network, pixels, tmp_path / "x.onnx", ["images"], ["output"], **axes)
    detector = create(file)
    for image in IMAGES:
        prepared, gain = cornered(image)
        (rows,) = run(network, prepared)
        boxes = corners(rows[0, :, :4])
        scores, labels = rows[0, :, 4] * rows[0, :, 5:].max(axis=1), rows[0, :, 5:].argmax(axis=1)
        best = suppressed(boxes, scores, labels, 0.65)
        regions = detector.detect(image)
        if form == "float16":
            assert len(regions) > 0
            np.testing.assert_allclose(regions.score[0], scores[best[0]], atol=0.01)
            np.testing.assert_allclose(regions.box[0], boxes[best[0]] / gain, atol=1)
            continue
        assert_equal(regions, boxes[best] / gain, scores[best], labels[best])
        logits = np.log(rows[0, best, 5:] / (1 - rows[0, best, 5:]))
        np.testing.assert_allclose(regions.logits, logits, atol=1e-3)


def named_by_metadata(file, **texts):
    model = onnx.load(file)
    for key, value in texts.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, file)
    return file


@pytest.mark.parametrize("has_metadata", [True, False])
def test_yolov5_has_three_anchors_per_cell_and_boxes_as_its_own_code_scales_them(
    tmp_path, has_metadata
):
    network = Cells(anchors=3, pixel_range=1, strength=8)
    file = exported(
        network, torch.rand(1, 3, HEIGHT, WIDTH), tmp_path / "x.onnx", ["images"], ["output0"]
    )
    if has_metadata:
        named_by_metadata(file, stride="32", names=str(dict(enumerate(PETS))))
    detector = create(file, classes=None if has_metadata else PETS)
    assert detector.header().classes == PETS
    for image in IMAGES:
        prepared, gain, offset = letterboxed(image)
        (rows,) = run(network, prepared)
        boxes = corners(rows[0, :, :4])
        scores, labels = rows[0, :, 4] * rows[0, :, 5:].max(axis=1), rows[0, :, 5:].argmax(axis=1)
        best = suppressed(boxes, scores, labels, 0.45)[:100]
        height, width = image.shape[:2]
        image_boxes = np.clip((boxes[best] - offset) / gain, 0, [width, height, width, height])
        assert_equal(detector.detect(image), image_boxes, scores[best], labels[best])


class Flat(nn.Module):
    """YOLOv7's detections after NMS: image, corners, class and score."""

    def forward(self, pixels):
        boxes = torch.tensor([[10.0, 12, 50, 40], [20, 20, 90, 60]]) + pixels.mean()
        image, label = torch.zeros(2, 1), torch.tensor([[2.0], [0]])
        score = pixels.amax(dim=(0, 1, 2, 3)) * torch.tensor([[0.9], [0.5]])
        return torch.cat([image, boxes, label, score], dim=1)


def test_yolov7_with_nms_has_the_class_before_the_score(tmp_path):
    file = exported(
        Flat(), torch.rand(1, 3, HEIGHT, WIDTH), tmp_path / "x.onnx", ["images"], ["output"]
    )
    image = IMAGES[0]
    prepared, gain, offset = letterboxed(image)
    (rows,) = run(Flat(), prepared)
    image_boxes = np.clip((rows[:, 1:5] - offset) / gain, 0, [300, 120, 300, 120])
    assert_equal(create(file).detect(image), image_boxes, rows[:, 6], [2, 0])


class Queries(nn.Module):
    """Boxes and logits of queries: one per 16 × 16 pixels."""

    def __init__(self, columns):
        super().__init__()
        torch.manual_seed(6)
        self.boxes, self.logits = nn.Linear(3, 4), nn.Linear(3, columns)
        self.logits.weight.data *= 9

    def forward(self, pixels):
        cells = functional.avg_pool2d(pixels, 16).flatten(2).transpose(1, 2)
        return self.boxes(cells).sigmoid(), self.logits(cells - cells.mean())


@pytest.mark.parametrize("columns", [K, K + 1])
@pytest.mark.parametrize(
    "batch", [{}, {"dynamic_axes": {"input": {0: "n"}, "dets": {0: "n"}, "labels": {0: "n"}}}]
)
def test_rfdetr_scales_without_antialiasing_and_has_a_sigmoid_without_the_last_column(
    tmp_path, columns, batch
):
    network = Queries(columns)
    pixels = torch.rand(1, 3, HEIGHT, WIDTH)
    file = exported(network, pixels, tmp_path / "x.onnx", ["input"], ["dets", "labels"], **batch)
    detector = create(file)
    for image in IMAGES:
        values = torch.from_numpy(image).permute(2, 0, 1)[None] / 255
        prepared = functional.interpolate(values, (HEIGHT, WIDTH), mode="bilinear")[0].numpy()
        boxes, logits = run(network, (prepared - MEAN[:, None, None]) / STD[:, None, None])
        scores = 1 / (1 + np.exp(-logits[0, :, :K]))
        query, label = np.nonzero(scores > THRESHOLD)
        order = np.argsort(-scores[query, label], kind="stable")[:100]
        query, label = query[order], label[order]
        height, width = image.shape[:2]
        image_boxes = np.clip(corners(boxes[0]), 0, 1)[query] * [width, height, width, height]
        regions = detector.detect(image)
        assert_equal(regions, image_boxes, scores[query, label], label)
        np.testing.assert_allclose(regions.logits, logits[0, query, :K], atol=1e-4)
        assert regions.header.background_index is None


class Sized(nn.Module):
    """D-FINE's detections: labels, boxes in pixels of the sizes that are given, scores."""

    def __init__(self):
        super().__init__()
        self.queries = Queries(K)

    def forward(self, images, orig_target_sizes):
        boxes, logits = self.queries(images)
        scores, index = logits.sigmoid().flatten(1).topk(10)
        query = index // K
        sides = orig_target_sizes.repeat(1, 2)[:, None]
        x, y, w, h = boxes.unbind(-1)
        all_corners = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], dim=-1) * sides
        return index - query * K, all_corners.gather(1, query[..., None].repeat(1, 1, 4)), scores


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_dfine_is_given_width_and_height_of_the_image(tmp_path, dtype):
    network, sizes = Sized(), torch.tensor([[WIDTH, HEIGHT]], dtype=dtype)
    axes = {"dynamic_axes": {"images": {0: "N"}, "orig_target_sizes": {0: "N"}}}
    inputs = (torch.rand(1, 3, HEIGHT, WIDTH), sizes)
    names = ["images", "orig_target_sizes"]
    file = exported(
        network, inputs, tmp_path / "x.onnx", names, ["labels", "boxes", "scores"], **axes
    )
    for image in IMAGES:
        height, width = image.shape[:2]
        labels, boxes, scores = run(network, stretched(image), torch.tensor([[width, height]]))
        above = scores[0] > THRESHOLD
        assert_equal(
            create(file).detect(image), boxes[0, above], scores[0, above], labels[0, above]
        )


class Normalised(nn.Module):
    """A network that subtracts the mean and divides by the deviation itself."""

    def __init__(self, network, mean, std):
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, pixels):
        return self.network((pixels - self.mean) / self.std)


class Padded(nn.Module):
    """MMDeploy's detections: corners with a score, and labels; the last rows only fill."""

    def forward(self, pixels):
        strength = pixels.mean(dim=(2, 3))[0].tanh().abs()
        boxes = torch.tensor([[4.0, 5, 40, 50], [30, 3, 80, 60], [1, 2, 9, 9], [0, 0, 0, 0]])
        scores = torch.cat([strength * 0.5 + 0.4, torch.zeros(1)])
        order = scores.argsort(descending=True)
        return torch.cat([boxes, scores[:, None]], dim=1)[order][None], torch.tensor(
            [[0, 2, 1, 0]]
        )[:, order]


RTMDET = ([103.53, 116.28, 123.675], [57.375, 57.12, 58.395])


def as_mmdetection(image, blue_first=True):
    """The scaled image in the upper left of grey, between 0 and 255, and the scale in x and y."""
    height, width = image.shape[:2]
    gain = min(HEIGHT / height, WIDTH / width)
    new_width = int(width * gain + 0.5)
    new_height = int(height * gain + 0.5)
    resized = cv2.resize(image, (new_width, new_height), interpolation=cv2.INTER_LINEAR)
    pixels = np.full((HEIGHT, WIDTH, 3), 114, np.uint8)
    pixels[:new_height, :new_width] = resized
    if blue_first:
        pixels = pixels[..., ::-1]
    scale = np.array([new_width / width, new_height / height] * 2)
    return pixels.transpose(2, 0, 1).astype(np.float32), scale


@pytest.mark.parametrize("place", ["outside", "inside", "pipeline.json"])
def test_mmdeploy_is_normalised_as_rtmdet_once(tmp_path, place):
    mean, std = RTMDET
    if place == "pipeline.json":
        mean = [123.675, 116.28, 103.53]
        std = [58.395, 57.12, 57.375]
    network = Normalised(Padded(), mean, std)
    written_network = network if place == "inside" else Padded()
    pixels = torch.rand(1, 3, HEIGHT, WIDTH)
    file = exported(
        written_network, pixels, tmp_path / "end2end.onnx", ["input"], ["dets", "labels"]
    )
    if place == "pipeline.json":
        transforms = [
            {"type": "Resize", "keep_ratio": True, "size": [WIDTH, HEIGHT]},
            {"type": "Pad", "size": [WIDTH, HEIGHT], "pad_val": {"img": [114, 114, 114]}},
            {"type": "Normalize", "to_rgb": True, "mean": mean, "std": std},
            {"type": "Pad", "size_divisor": 1},
        ]
        tasks = [
            {"type": "Task", "name": "Preprocess", "transforms": transforms},
            {"name": "rtmdet"},
        ]
        (tmp_path / place).write_text(json.dumps({"pipeline": {"tasks": tasks}}))
    detector = create(file)
    assert (tmp_path / "pipeline.json" in detector.content()) == (place == "pipeline.json")
    for image in IMAGES:
        prepared, scale = as_mmdetection(image, blue_first=place != "pipeline.json")
        rows, labels = run(network, prepared)
        above = rows[0, :, 4] > THRESHOLD
        assert_equal(
            detector.detect(image), rows[0, above, :4] / scale, rows[0, above, 4], labels[0, above]
        )


class Inverted(nn.Module):
    """A box whose right side is left of its left one, as heads without exp() may give it."""

    def forward(self, pixels):
        rows = torch.tensor([[[40.0, 5, 10, 50, 0.9]]]) + 0 * pixels.mean()
        return rows, torch.tensor([[1]])


def test_an_inverted_box_is_an_empty_one_and_not_lost(tmp_path):
    file = exported(
        Inverted(),
        torch.rand(1, 3, HEIGHT, WIDTH),
        tmp_path / "x.onnx",
        ["input"],
        ["dets", "labels"],
    )
    (box,) = create(file).detect(np.zeros((HEIGHT, WIDTH, 3), np.uint8)).box
    np.testing.assert_allclose(box, [40, 5, 40, 50], atol=1e-4)


class Instances(nn.Module):
    """Detectron2's traced detections: corners, classes, scores, and the size of the image."""

    def forward(self, pixels):
        strength = (pixels.mean(dim=(1, 2)) / 255).clamp(0, 1)
        boxes = torch.tensor([[4.0, 5, 40, 50], [30, 3, 80, 60], [1, 2, 9, 9]])
        return boxes, torch.tensor([2, 1, 0]), strength, torch.tensor(pixels.shape[1:])


def test_detectron2_is_fed_blue_first_from_0_to_255(tmp_path):
    file = exported(
        Instances(), torch.rand(3, HEIGHT, WIDTH), tmp_path / "x.onnx", ["image"], list("bcsi")
    )
    image = cv2.resize(IMAGES[0], (3 * WIDTH, 3 * HEIGHT))
    scaled = np.asarray(Image.fromarray(image).resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR))
    boxes, labels, scores, _ = (
        output.numpy()
        for output in Instances()(
            torch.from_numpy(scaled[..., ::-1].transpose(2, 0, 1).astype(np.float32))
        )
    )
    order = np.argsort(-scores)
    order = order[scores[order] > THRESHOLD]
    assert_equal(create(file).detect(image), 3 * boxes[order], scores[order], labels[order])


def test_a_softmax_with_no_object_is_normalised_as_imagenet_and_a_sigmoid_is_not(tmp_path):
    for columns, mean, std in ((K, 0 * MEAN, MEAN / MEAN), (K + 1, MEAN, STD)):
        network = Queries(columns)
        file = exported(
            network,
            torch.rand(1, 3, HEIGHT, WIDTH),
            tmp_path / "x.onnx",
            ["pixel_values"],
            ["pred_boxes", "logits"],
        )
        image = IMAGES[1]
        boxes, logits = run(network, (stretched(image) - mean[:, None, None]) / std[:, None, None])
        scores = 1 / (1 + np.exp(-logits[0]))
        if columns > K:
            scores = np.exp(logits[0]) / np.exp(logits[0]).sum(axis=1, keepdims=True)
            best = scores[:, :K].argmax(axis=1)
            scores = np.where(np.arange(columns) == best[:, None], scores, 0)[:, :K]
        query, label = np.nonzero(scores > THRESHOLD)
        order = np.argsort(-scores[query, label], kind="stable")[:100]
        image_boxes = corners(boxes[0])[query[order]] * [75, 170, 75, 170]
        assert_equal(
            create(file).detect(image), image_boxes, scores[query, label][order], label[order]
        )


def test_transformers_settings_beside_the_graph_give_size_mean_and_classes(tmp_path):
    network = Queries(K)
    axes = {
        "dynamic_axes": {
            "pixel_values": {2: "h", 3: "w"},
            "logits": {1: "q"},
            "pred_boxes": {1: "q"},
        }
    }
    file = exported(
        network,
        torch.rand(1, 3, HEIGHT, WIDTH),
        tmp_path / "x.onnx",
        ["pixel_values"],
        ["pred_boxes", "logits"],
        **axes,
    )
    with pytest.raises(ParameterError, match="the graph's input varies: give its 'size' in pixels"):
        create(file).detect(IMAGES[0])
    settings = {
        "do_normalize": True,
        "image_mean": list(MEAN),
        "image_std": list(STD),
        "size": {"height": HEIGHT, "width": WIDTH},
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"id2label": dict(enumerate(PETS))}))
    detector = create(file, classes=None)
    assert detector.header().classes == PETS
    _, logits = run(network, (stretched(IMAGES[0]) - MEAN[:, None, None]) / STD[:, None, None])
    assert detector.detect(IMAGES[0]).score[0] == pytest.approx(
        1 / (1 + np.exp(-logits.max())), abs=1e-5
    )
    before = detector.identity["weights_digest"]
    settings["size"] = {"shortest_edge": 48, "longest_edge": 100}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    detector = create(file)
    assert detector.identity["weights_digest"] != before
    assert detector.prepare(IMAGES[0]).pixels.shape == (3, 40, 100)
    (tmp_path / "preprocessor_config.json").write_text('{"size": {"shortest_edge": "many"}}')
    with pytest.raises(DataError, match="not as its exporter writes it"):
        create(file).detect(IMAGES[0])


class Bytes(nn.Module):
    """A network of 8-bit pixels whose channels are last."""

    def __init__(self):
        super().__init__()
        self.network = Cells(pixel_range=1)

    def forward(self, pixels):
        return self.network(pixels.float().permute(0, 3, 1, 2) / 255)


def test_a_graph_of_bytes_is_given_pixels_as_they_are(tmp_path):
    pixels = torch.zeros(1, HEIGHT, WIDTH, 3, dtype=torch.uint8)
    file = exported(Bytes(), pixels, tmp_path / "x.onnx", ["images"], ["output"])
    image = IMAGES[0]
    prepared, gain = cornered(image)
    (rows,) = run(Cells(pixel_range=1), prepared / 255)
    boxes = corners(rows[0, :, :4])
    scores, labels = rows[0, :, 4] * rows[0, :, 5:].max(axis=1), rows[0, :, 5:].argmax(axis=1)
    best = suppressed(boxes, scores, labels, 0.65)
    assert_equal(create(file).detect(image), boxes[best] / gain, scores[best], labels[best])


def test_parameters_override_what_the_layout_says(tmp_path):
    file = exported(
        Cells(), torch.rand(1, 3, HEIGHT, WIDTH), tmp_path / "x.onnx", ["images"], ["output"]
    )
    image = IMAGES[0]
    params = {"resize": "stretch", "interpolation": "pillow", "channels": "rgb", "pixel_range": 1}
    prepared = create(file, **params, mean=tuple(MEAN), std=tuple(STD)).prepare(image)
    np.testing.assert_allclose(
        prepared.pixels, (stretched(image) - MEAN[:, None, None]) / STD[:, None, None], atol=1e-5
    )
    prepared = create(file, resize="letterbox", padding=0, channels="rgb").prepare(image)
    assert prepared.pixels[:, 0].max() == 0
    with pytest.raises(
        ParameterError,
        match=r"'mean': 123\.675 is of pixels between 0 and 255, .* add pixel_range: 255",
    ):
        create(file, pixel_range=1, mean=tuple(RTMDET[0])).prepare(image)


def refused(file, **params):
    with pytest.raises((DataError, ParameterError)) as error:
        create(file, **params).detect(IMAGES[:1])
    assert "\n" not in str(error.value)
    return str(error.value)


class Given(nn.Module):
    """Outputs of given shapes."""

    def __init__(self, *shapes):
        super().__init__()
        self.shapes = shapes

    def forward(self, pixels, *others):
        total = pixels.mean() + sum(other.sum() for other in others)
        return tuple(total * torch.ones(shape) for shape in self.shapes)


def test_outputs_of_no_layout_are_listed_with_the_layouts(tmp_path):
    pixels = torch.rand(1, 3, HEIGHT, WIDTH)
    file = exported(
        Given((1, 7, 9), (1, 7, 2)), pixels, tmp_path / "x.onnx", ["images"], ["a", "b"]
    )
    message = refused(file)
    assert "the outputs are of no known layout: a (1, 7, 9), b (1, 7, 2)" in message
    for layout in (
        "yolo",
        "yolov5",
        "yolox",
        "rfdetr",
        "dfine",
        "mmdeploy",
        "detectron2",
        "torchvision",
        "detr",
    ):
        assert f"{layout}: " in message
    file = exported(Given((1, 500, K + 5)), pixels, tmp_path / "x.onnx", ["images"], ["a"])
    assert "a (1, 500, 8). If one of these is meant, name it with layout" in refused(file)
    detector = create(file, layout="yolov5")
    assert len(detector.detect(IMAGES[:1]).score) >= 0
    assert detector.header().detector["objectness"] is True
    assert "it is not a graph of YOLOX without decoding" in refused(file, layout="yolox")
    heads = [(1, 3, 8, 12, 8), (1, 3, 4, 6, 8), (1, 3, 2, 3, 8)]
    file = exported(Given(*heads), pixels, tmp_path / "x.onnx", ["images"], ["a", "b", "c"])
    assert "heads without boxes: a (1, 3, 8, 12, 8)" in refused(file)


def test_inputs_that_are_not_one_image_are_refused(tmp_path):
    outputs = Given((1, 9, 4), (1, 9, K))
    pixels = torch.rand(4, 3, HEIGHT, WIDTH)
    file = exported(outputs, pixels, tmp_path / "x.onnx", ["images"], ["pred_boxes", "logits"])
    assert (
        "images (4, 3, 64, 96) takes 4 images at once: export the graph with batch size 1"
        in refused(file)
    )
    inputs = (pixels[:1], torch.rand(1, 5, 5))
    file = exported(
        outputs, inputs, tmp_path / "x.onnx", ["images", "prior"], ["pred_boxes", "logits"]
    )
    assert "besides the image, the graph takes prior (1, 5, 5), which is not known" in refused(file)
    file = exported(
        outputs,
        torch.rand(1, 1, HEIGHT, WIDTH),
        tmp_path / "x.onnx",
        ["grey"],
        ["pred_boxes", "logits"],
    )
    assert "expected one input with the pixels of an image" in refused(file)


def test_classes_that_do_not_fit_are_counted(tmp_path):
    file = exported(
        Queries(7),
        torch.rand(1, 3, HEIGHT, WIDTH),
        tmp_path / "x.onnx",
        ["input"],
        ["dets", "labels"],
    )
    assert (
        "3 classes are named (cat, dog, owl), but the graph scores 7: "
        "its output is labels (1, 24, 7)" in refused(file)
    )
    file = exported(
        Padded(),
        torch.rand(1, 3, HEIGHT, WIDTH),
        tmp_path / "x.onnx",
        ["input"],
        ["dets", "labels"],
    )
    assert "the graph gives class 2, but 2 classes are named, 0 to 1" in refused(
        file, classes=PETS[:2]
    )


def test_a_graph_that_refuses_the_size_that_its_input_allows_says_what_to_give(tmp_path):
    axes = {"dynamic_axes": {"images": {2: "h", 3: "w"}}}
    file = exported(
        Queries(K),
        torch.rand(1, 3, HEIGHT, WIDTH),
        tmp_path / "x.onnx",
        ["images"],
        ["pred_boxes", "logits"],
        **axes,
    )
    model = onnx.load(file)
    node = next(node for node in model.graph.node if node.op_type == "AveragePool")
    shape = onnx.numpy_helper.from_array(np.array([1, 3, HEIGHT * WIDTH]), "shape")
    model.graph.initializer.append(shape)
    model.graph.node.insert(0, onnx.helper.make_node("Reshape", ["images", "shape"], ["flat"]))
    shape = onnx.numpy_helper.from_array(np.array([1, 3, HEIGHT, WIDTH]), "whole")
    model.graph.initializer.append(shape)
    model.graph.node.insert(1, onnx.helper.make_node("Reshape", ["flat", "whole"], ["again"]))
    node.input[0] = "again"
    onnx.save(model, file)
    assert len(create(file, size=(HEIGHT, WIDTH)).detect(IMAGES[:1])) > 0
    message = refused(file, size=128)
    assert (
        "images (1, 3, ?, ?) says that its sides vary, but (3, 128, 128) was refused: "
        "give the parameter" in message
    )


def test_tensorrt_operators_missing_weights_and_cut_files_are_named(tmp_path):
    file = exported(
        Queries(K),
        torch.rand(1, 3, HEIGHT, WIDTH),
        tmp_path / "x.onnx",
        ["images"],
        ["pred_boxes", "logits"],
    )
    model = onnx.load(file)
    onnx.save(
        model,
        tmp_path / "big.onnx",
        save_as_external_data=True,
        location="big.data",
        size_threshold=0,
    )
    assert len(create(tmp_path / "big.onnx").detect(IMAGES[:1])) > 0
    (tmp_path / "big.data").unlink()
    assert "big.data: does not exist, but big.onnx has its weights there" in refused(
        tmp_path / "big.onnx"
    )
    content = file.read_bytes()
    for count in (0, 9, len(content) // 2, len(content) - 3):
        file.write_bytes(content[:count])
        assert "not an ONNX graph" in refused(file) or "ONNX Runtime refuses the graph" in refused(
            file
        )
    file.write_bytes(content)
    model = onnx.load(file)
    node = onnx.helper.make_node("TRTBatchedNMS", ["images"], ["kept"], domain="mmdeploy")
    model.graph.node.append(node)
    model.opset_import.add(domain="mmdeploy", version=1)
    file.write_bytes(model.SerializeToString())
    assert "operators that ONNX Runtime does not have: TRTBatchedNMS ('mmdeploy')" in refused(file)


def test_init_takes_the_id_classes_and_a_size_where_the_graph_says_neither(tmp_path):
    axes = {"dynamic_axes": {"images": {2: "h", 3: "w"}}}
    pixels = torch.rand(1, 3, HEIGHT, WIDTH)
    file = exported(
        Queries(K), pixels, tmp_path / "x.onnx", ["images"], ["pred_boxes", "logits"], **axes
    )
    recognised = Onnx.recognises(file, IdClasses(list(PETS)))
    assert recognised.params == {"classes": list(PETS), "size": 640}
    assert "it names no classes" in recognised.assumed
    assert "its input varies: images are given 640 pixels" in recognised.assumed
    with pytest.raises(
        DataError,
        match="names no classes, and they cannot be the ID dataset's: 1 classes are named",
    ):
        Onnx.recognises(file, IdClasses(["cat"]))
    named_by_metadata(file, names=str(list(PETS)))
    assert Onnx.recognises(file, IdClasses(["cat"])).params == {"size": 640}
