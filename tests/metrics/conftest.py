"""Small tables, written by hand."""

import contextlib
import io

import faster_coco_eval
import numpy as np
import pycocotools.coco
import pycocotools.cocoeval
import pytest

from farther.tables import Objects, Regions

#: Libraries that compute COCO's metrics: their tables and their evaluation.
PEERS = {
    "pycocotools": (pycocotools.coco.COCO, pycocotools.cocoeval.COCOeval),
    "faster-coco-eval": (faster_coco_eval.COCO, faster_coco_eval.COCOeval_faster),
}

CLASSES = ("cat", "dog")


def make_objects(*rows):
    """Objects from (image, box, category[, is_crowd]) rows."""
    image_id, boxes, category, is_crowd = [], [], [], []
    for image, box, name, *crowd in rows:
        image_id.append(image)
        boxes.append(box)
        category.append(name)
        is_crowd.append(bool(crowd and crowd[0]))
    return Objects(
        image_id=image_id,
        object_id=np.arange(len(rows)),
        box=np.array(boxes, dtype=np.float32).reshape(-1, 4),
        category=category,
        is_crowd=np.array(is_crowd, dtype=bool),
    )


def make_regions(*rows, classes=CLASSES):
    """Regions from (image, box, score[, class]) rows.

    The logits are those of a softmax that gives the score.
    """
    image_id, boxes, scores, labels = [], [], [], []
    for image, box, confidence, *name in rows:
        image_id.append(image)
        boxes.append(box)
        scores.append(confidence)
        labels.append(classes.index(name[0]) if name else 0)
    score = np.array(scores, dtype=np.float64)
    label = np.array(labels, dtype=np.int16)
    rest = (1 - score) / (len(classes) - 1)
    logits = np.log(np.repeat(rest[:, None], len(classes), axis=1).clip(1e-9))
    logits[np.arange(len(rows)), label] = np.log(score.clip(1e-9))
    return Regions(
        image_id=image_id,
        region_id=np.arange(len(rows)),
        box=np.array(boxes, dtype=np.float32).reshape(-1, 4),
        score=score,
        label=label,
        logits=logits.reshape(-1, len(classes)),
        classes=classes,
    )


def make_world(seed, images=40, objects=6, regions=20, classes=CLASSES):
    """Random objects and random regions around them: (objects, regions).

    Scores have ties, some objects are crowds.
    """
    random = np.random.default_rng(seed)
    count = images * objects
    image = np.sort(random.integers(0, images, count))
    corner = random.uniform(0, 400, (count, 2))
    size = np.exp(random.uniform(np.log(8), np.log(250), (count, 2)))
    box = np.concatenate([corner, corner + size], axis=1).round(1)
    category = random.integers(0, len(classes), count)
    names = np.array([f"{number:03d}" for number in range(images)], dtype=object)
    table = Objects(
        image_id=names[image],
        object_id=np.arange(count),
        box=box,
        category=np.array(classes, dtype=object)[category],
        is_crowd=random.random(count) < 0.05,
    )
    total = images * regions
    source = random.integers(0, count, total)
    moved = box[source] + random.normal(0, 0.08, (total, 4)) * np.tile(size[source], 2)
    moved = np.concatenate(
        [np.minimum(moved[:, :2], moved[:, 2:]), np.maximum(moved[:, :2], moved[:, 2:])], axis=1
    )
    elsewhere = random.random(total) < 0.3
    label = np.where(
        random.random(total) < 0.8, category[source], random.integers(0, len(classes), total)
    )
    detections = Regions(
        image_id=names[np.where(elsewhere, random.integers(0, images, total), image[source])],
        region_id=np.arange(total),
        box=moved.round(1),
        score=random.random(total).round(2),
        label=label,
        logits=random.normal(0, 2, (total, len(classes))).round(1),
        classes=classes,
    )
    return table, detections


def as_coco(table, objects, regions):
    """The same rows as COCO's tables: ground truth and detections."""
    image_names = sorted({*objects.image_id, *regions.image_id})
    class_names = dict.fromkeys([*regions.classes, *objects.category])
    number_of_image = {name: number for number, name in enumerate(image_names, start=1)}
    number_of_class = {name: number for number, name in enumerate(class_names, start=1)}
    annotations = []
    for row in range(len(objects)):
        box = xywh(objects.box[row])
        annotation = {
            "id": row + 1,
            "image_id": number_of_image[objects.image_id[row]],
            "category_id": number_of_class[objects.category[row]],
            "bbox": box,
            "area": float(np.prod(box[2:])),
            "iscrowd": int(objects.is_crowd[row]),
        }
        annotations.append(annotation)
    detections = []
    for row in range(len(regions)):
        detection = {
            "image_id": number_of_image[regions.image_id[row]],
            "category_id": number_of_class[regions.classes[regions.label[row]]],
            "bbox": xywh(regions.box[row]),
            "score": float(regions.score[row]),
        }
        detections.append(detection)

    truth = table()
    truth.dataset = {
        "images": [{"id": number} for number in number_of_image.values()],
        "categories": [{"id": number} for number in number_of_class.values()],
        "annotations": annotations,
    }
    truth.createIndex()
    return truth, truth.loadRes(detections)


def xywh(box):
    xmin, ymin, xmax, ymax = box.astype(float).tolist()
    return [xmin, ymin, xmax - xmin, ymax - ymin]


@pytest.fixture(params=PEERS)
def coco(request):
    """Another library's evaluation of two tables, with parameters of COCO's evaluation."""

    def run(objects, regions, **params):
        table, evaluation_class = PEERS[request.param]
        with contextlib.redirect_stdout(io.StringIO()):
            evaluation = evaluation_class(*as_coco(table, objects, regions), "bbox")
            for name, value in params.items():
                setattr(evaluation.params, name, value)
            evaluation.evaluate()
            evaluation.accumulate()
            if not params:
                evaluation.summarize()
        return evaluation

    return run


@pytest.fixture(scope="session")
def objects():
    return make_objects


@pytest.fixture(scope="session")
def regions():
    return make_regions


@pytest.fixture(scope="session")
def world():
    return make_world


@pytest.fixture(scope="session")
def coco_tables():
    return as_coco
