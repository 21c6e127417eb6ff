"""Files of detections of each library give the same table as the detections as COCO results."""

import json
import re
from dataclasses import dataclass

import numpy as np
import pytest
import supervision as sv
from scipy.special import softmax

from farther import detectors
from farther.detectors.imported import Scopes, check_import, import_splits
from farther.errors import DataError
from farther.tables import Images, Regions

CLASSES = ("cat", "dog")
FILES = ["street/001.jpg", "street/002.jpg", "park/003.png"]
WIDTH, HEIGHT = 200, 100
LOGITS = [[2.0, 1.0], [0.0, 3.0], [1.0, 1.5]]


@dataclass(frozen=True)
class Detection:
    """A detection: file, number of its class, score, and box (xmin, ymin, width, height)."""

    file: str
    label: int
    score: float
    box: tuple[int, int, int, int]

    @property
    def class_name(self):
        return CLASSES[self.label]

    @property
    def corners(self):
        x, y, width, height = self.box
        return [x, y, x + width, y + height]

    @property
    def fractions(self):
        """The box as fractions of the image's sides."""
        x, y, width, height = self.box
        return [x / WIDTH, y / HEIGHT, width / WIDTH, height / HEIGHT]

    @property
    def centre(self):
        """Centre and size as fractions, as in YOLO's files."""
        x, y, width, height = self.fractions
        return [x + width / 2, y + height / 2, width, height]


DETECTIONS = [
    Detection(FILES[0], 0, 0.75, (10, 20, 40, 50)),
    Detection(FILES[0], 1, 0.5, (0, 0, 200, 100)),
    Detection(FILES[2], 1, 0.25, (30, 40, 25, 10)),
]


def in_file(file):
    return [detection for detection in DETECTIONS if detection.file == file]


def stem(file):
    return file.split("/")[1].split(".")[0]


def coco(root):
    """https://cocodataset.org/#format-results"""
    records = []
    for detection in DETECTIONS:
        record = {
            "image_id": detection.file,
            "category_id": detection.class_name,
            "bbox": detection.box,
            "score": detection.score,
        }
        records.append(record)
    (root / "found.json").write_text(json.dumps(records))
    return root / "found.json"


def write_sink(sink, path):
    with sink as open_sink:
        for file in FILES:
            detections = in_file(file)
            boxes = [detection.corners for detection in detections]
            class_names = [detection.class_name for detection in detections]
            table = sv.Detections(
                xyxy=np.array(boxes, float).reshape(-1, 4),
                class_id=np.array([detection.label for detection in detections], int),
                confidence=np.array([detection.score for detection in detections], float),
                data={"class_name": np.array(class_names, str)},
            )
            open_sink.append(table, custom_data={"file_name": f"/data/{file}"})
    return path


def supervision_csv(root):
    return write_sink(sv.CSVSink(str(root / "found.csv")), root / "found.csv")


def supervision_json(root):
    return write_sink(sv.JSONSink(str(root / "sink.json")), root / "sink.json")


def semicolons(root):
    lines = ["Path;Left;Top;Width;Height;Label;Conf"]
    for detection in DETECTIONS:
        box = [decimal_comma(value) for value in detection.box]
        score = decimal_comma(detection.score)
        lines.append(";".join([detection.file, *box, detection.class_name, score]))
    (root / "found.csv").write_text("\r\n".join(lines), encoding="utf-8-sig")
    return root / "found.csv"


def decimal_comma(value):
    return str(float(value)).replace(".", ",")


def tabs_without_names(root):
    lines = []
    for detection in DETECTIONS:
        cells = [stem(detection.file), *detection.corners, detection.label, detection.score]
        lines.append("\t".join(map(str, cells)))
    (root / "found.tsv").write_text("\n".join(lines))
    return root / "found.tsv"


def ultralytics_text(root):
    """https://docs.ultralytics.com/reference/engine/results/#ultralytics.engine.results.Results.save_txt"""
    labels = root / "predict/labels"
    labels.mkdir(parents=True)
    for file in (FILES[0], FILES[2]):  # images without a detection have no file
        lines = []
        for detection in in_file(file):
            numbers = [detection.label, *detection.centre, detection.score]
            lines.append(" ".join(f"{number:g}" for number in numbers))
        (labels / f"{stem(file)}.txt").write_text("\n".join(lines) + "\n")
    (labels / "classes.txt").write_text("cat\ndog\n")
    return root / "predict"


def ultralytics_json(root):
    """https://docs.ultralytics.com/reference/engine/results/#ultralytics.engine.results.Results.to_json"""
    (root / "json").mkdir()
    for file in FILES:
        records = []
        for detection in in_file(file):
            x1, y1, x2, y2 = detection.corners
            record = {
                "name": detection.class_name,
                "class": detection.label,
                "confidence": detection.score,
                "box": {"x1": x1, "y1": y1, "x2": x2, "y2": y2},
            }
            records.append(record)
        (root / "json" / f"{stem(file)}.json").write_text(json.dumps(records))
    return root / "json"


def fiftyone(root):
    """https://docs.voxel51.com/user_guide/export_datasets.html#fiftyonedataset"""
    samples = []
    for file in FILES:
        ground_truth = []
        predictions = []
        for detection in in_file(file):
            label = {
                "_cls": "Detection",
                "label": detection.class_name,
                "bounding_box": detection.fractions,
            }
            ground_truth.append({**label, "confidence": None})
            predictions.append({**label, "confidence": detection.score, "tags": []})
        sample = {
            "filepath": f"data/{file.split('/')[1]}",
            "metadata": {"_cls": "ImageMetadata", "width": WIDTH, "height": HEIGHT},
            "ground_truth": {"_cls": "Detections", "detections": ground_truth},
            "model": {"_cls": "Detections", "detections": predictions},
        }
        samples.append(sample)
    (root / "export").mkdir()
    (root / "export/metadata.json").write_text('{"name": "quickstart", "media_type": "image"}')
    (root / "export/samples.json").write_text(json.dumps({"samples": samples}))
    return root / "export"


def mmdetection(root):
    """`pred2dict` of mmdet/apis/det_inferencer.py, https://github.com/open-mmlab/mmdetection"""
    (root / "outputs/preds").mkdir(parents=True)
    for file in FILES:
        detections = in_file(file)
        content = {
            "labels": [detection.label for detection in detections],
            "scores": [detection.score for detection in detections],
            "bboxes": [list(map(float, detection.corners)) for detection in detections],
        }
        (root / "outputs/preds" / f"{stem(file)}.json").write_text(json.dumps(content))
    return root / "outputs"


def coco_annotations(root):
    """A COCODetectionDataset of a field of predictions.

    See https://docs.voxel51.com/user_guide/export_datasets.html#cocodetectiondataset.
    """
    annotations = []
    for number, detection in enumerate(DETECTIONS):
        annotation = {
            "id": number,
            "image_id": FILES.index(detection.file),
            "category_id": (7, 9)[detection.label],
            "bbox": detection.box,
            "score": detection.score,
        }
        annotations.append(annotation)
    content = {
        "images": [{"id": number, "file_name": file} for number, file in enumerate(FILES)],
        "categories": [{"id": 7, "name": "cat"}, {"id": 9, "name": "dog"}],
        "annotations": annotations,
    }
    (root / "labels.json").write_text(json.dumps(content))
    return root / "labels.json"


FORMATS = {
    supervision_csv: {},
    supervision_json: {},
    semicolons: {},
    tabs_without_names: {"columns": ["image", "x1", "y1", "x2", "y2", "class", "score"]},
    ultralytics_text: {"fractions": True},
    ultralytics_json: {},
    fiftyone: {"fractions": True},
    mmdetection: {},
    coco_annotations: {},
}


class World:
    """One split of three images."""

    def __init__(self, root):
        self.root = root
        self.roots = {}
        self.lines = []
        self.write_split("test", FILES, ["a", "b", "c"])

    def write_split(self, split, files, image_ids, dataset="d", digests=None):
        n = len(files)
        images = Images(
            image_id=image_ids,
            dataset=[dataset] * n,
            file=files,
            width=[WIDTH] * n,
            height=[HEIGHT] * n,
            digest=digests or [f"{dataset}/{file}" for file in files],
        )
        images.write(self.root / "splits" / split / "images.parquet")

    def run(self, weights, adapter="detections", **params):
        params = {
            "classes": CLASSES,
            "categories": dict(enumerate(CLASSES)),
            "weights": weights,
            **params,
        }
        import_splits(
            detectors.create(adapter, **params),
            self.root / "splits",
            self.root / "regions",
            self.root / "work",
            roots=self.roots,
            log=self.lines.append,
        )
        return Regions.read(self.root / "regions/test")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_each_format_gives_the_table_of_the_same_coco_results(world, write):
    expected = world.run(coco(world.root), "coco_results")
    assert expected.image_id.tolist() == ["a", "a", "c"]
    imported = world.run(write(world.root), **FORMATS[write])
    assert imported.columns().keys() == expected.columns().keys()
    for name, values in expected.columns().items():
        if name == "box":
            np.testing.assert_allclose(imported.box.astype(float), values.astype(float), atol=1e-4)
        else:
            np.testing.assert_array_equal(getattr(imported, name), values)


def test_lists_in_cells_are_the_optional_columns(world):
    with sv.CSVSink(str(world.root / "found.csv")) as sink:
        for detection, logits in zip(DETECTIONS, LOGITS, strict=True):
            table = sv.Detections(
                xyxy=np.array([detection.corners], float),
                class_id=np.array([detection.label]),
                confidence=softmax(logits)[[detection.label]],
            )
            values = {
                "image": detection.file,
                "logits": np.array([logits]),
                "uncertainty": 0.5,
            }
            sink.append(table, custom_data=values)
    imported = world.run(world.root / "found.csv")
    np.testing.assert_array_equal(imported.logits, LOGITS)
    assert imported.uncertainty.tolist() == [0.5] * 3


def test_names_of_files_come_before_ids_and_ids_before_names_of_files(world):
    world.write_split("test", ["1.jpg", "2.jpg"], ["2", "1"])
    line = "0,0,1,1,cat,0.5"
    (world.root / "ids.csv").write_text(f"image_id,x1,y1,x2,y2,label,score\n1,{line}")
    (world.root / "files.csv").write_text(f"image,x1,y1,x2,y2,label,score\n1,{line}")
    assert world.run(world.root / "ids.csv").image_id.tolist() == ["1"]
    assert world.run(world.root / "files.csv").image_id.tolist() == ["2"]


def test_a_name_without_ending_that_fits_two_files_is_refused(world):
    world.write_split("test", ["a/1.jpg", "b/1.png"], ["x", "y"])
    (world.root / "found.csv").write_text("image,x1,y1,x2,y2,label,score\n1,0,0,1,1,cat,0.5")
    with pytest.raises(
        DataError, match=r"'1' may be 'a/1\.jpg' or 'b/1\.png': give its folders too"
    ):
        world.run(world.root / "found.csv")
    (world.root / "found.csv").write_text(
        "image,x1,y1,x2,y2,label,score\nC:\\pictures\\b\\1.png,0,0,1,1,cat,0.5"
    )
    assert world.run(world.root / "found.csv").image_id.tolist() == ["y"]


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_a_name_that_two_datasets_have_is_refused_with_both_images_and_what_to_write(world, write):
    world.write_split("far", FILES, ["u", "v", "w"], "ood")
    adapter = "coco_results" if write is coco else "detections"
    params = FORMATS.get(write, {})
    with pytest.raises(
        DataError, match=r"may be 'street/001\.jpg' of dataset ood \(split far\) or "
    ) as error:
        world.run(write(world.root), adapter, **params)
    assert re.search(
        r"or 'street/001\.jpg' of dataset d \(split test\): give one (file|folder) of detections "
        r"per dataset, called ood(\.\w+)? and d(\.\w+)?, in one folder",
        str(error.value),
    )


def test_a_file_of_detections_for_each_dataset_serves_its_images_alone(world):
    world.write_split("far", FILES, ["u", "v", "w"], "ood")
    head, line = "file,x1,y1,x2,y2,label,score", "0,0,1,1,cat"
    (world.root / "csv").mkdir()
    (world.root / "csv/d.csv").write_text(f"{head}\nstreet/001.jpg,{line},0.5")
    (world.root / "csv/ood.csv").write_text(
        f"{head}\nstreet/001.jpg,{line},0.25\npark/003.png,{line},0.25"
    )
    assert world.run(world.root / "csv").image_id.tolist() == ["a"]
    far = Regions.read(world.root / "regions/far")
    assert (far.image_id.tolist(), far.score.tolist()) == (["u", "w"], [0.25, 0.25])


def test_folders_of_the_datasets_tell_equal_names_apart(world):
    world.write_split("far", FILES, ["u", "v", "w"], "ood")
    world.roots = {"d": world.root / "pictures/id", "ood": world.root / "pictures/ood"}
    head, line = "file,x1,y1,x2,y2,label,score", "0,0,1,1,cat,0.5"
    names = [
        "id/street/001.jpg",
        f"{world.root}/pictures/ood/street/001.jpg",
        "C:\\ood\\park\\003.png",
    ]
    (world.root / "found.csv").write_text("\n".join([head, *(f"{name},{line}" for name in names)]))
    assert world.run(world.root / "found.csv").image_id.tolist() == ["a"]
    assert Regions.read(world.root / "regions/far").image_id.tolist() == ["u", "w"]


def test_a_name_with_the_folder_of_another_dataset_means_no_image_of_this_one(world):
    world.write_split(
        "far", FILES[1:], ["v", "w"], "ood"
    )  # without the first image, which rules removed
    world.roots = {"d": world.root / "pictures/id", "ood": world.root / "pictures/ood"}
    head, line = "file,x1,y1,x2,y2,label,score", "0,0,1,1,cat,0.5"
    names = ["ood/street/001.jpg", "id/street/002.jpg", "ood/street/002.jpg"]
    (world.root / "found.csv").write_text("\n".join([head, *(f"{name},{line}" for name in names)]))
    assert world.run(world.root / "found.csv").image_id.tolist() == ["b"]
    assert (
        world.lines[-1]
        == "1 detection ignored: not in any split (images: 1, as 'ood/street/001.jpg')"
    )


def test_one_picture_in_two_datasets_or_splits_has_its_detections_in_both(world):
    world.write_split("test", FILES, ["a", "b", "c"], "d", ["1", "2", "3"])
    world.write_split("far", FILES, ["u", "v", "w"], "ood", ["1", "2", "3"])
    world.write_split("mixed", FILES, ["a", "b", "c"], "d", ["1", "2", "3"])
    assert world.run(supervision_csv(world.root)).image_id.tolist() == ["a", "a", "c"]
    assert Regions.read(world.root / "regions/far").image_id.tolist() == ["u", "u", "w"]
    assert Regions.read(world.root / "regions/mixed").image_id.tolist() == ["a", "a", "c"]


def test_names_in_another_unicode_form_or_with_backslashes_are_found(world):
    world.write_split("test", ["stra\u00dfe/caf\u00e9.jpg"], ["a"])
    name = "stra\u00dfe\\cafe\u0301.jpg"
    (world.root / "found.csv").write_text(
        f"file,x1,y1,x2,y2,label,score\n{name},0,0,1,1,cat,0.5", encoding="utf-8"
    )
    assert world.run(world.root / "found.csv").image_id.tolist() == ["a"]


@pytest.mark.parametrize(
    ("classes", "separator"), [("0.0 1.0", ","), ("0 1.", ","), ("0,0 1,0", ";"), ("0 1.00", "\t")]
)
def test_classes_in_texts_are_numbers_however_they_are_written(world, classes, separator):
    rows = [["file", "x1", "y1", "x2", "y2", "label", "score"]]
    for file, number in zip(FILES, classes.split(), strict=False):
        rows.append([file, "0", "0", "1", "1", number, "1"])
    (world.root / "found.csv").write_text("\n".join(separator.join(row) for row in rows))
    assert world.run(world.root / "found.csv").label.tolist() == [0, 1]


def test_a_file_per_split_serves_that_split_and_unknown_images_are_counted(world):
    world.write_split("far", ["001.jpg"], ["z"])
    head, line = "file,x1,y1,x2,y2,label,score", "0,0,1,1,cat"
    (world.root / "csv").mkdir()
    (world.root / "csv/far.csv").write_text(f"{head}\n001.jpg,{line},0.5\nelsewhere.jpg,{line},0.5")
    (world.root / "csv/test.csv").write_text(f"{head}\n001.jpg,{line},0.25")
    assert world.run(world.root / "csv").score.tolist() == [0.25]
    assert Regions.read(world.root / "regions/far").score.tolist() == [0.5]
    assert (
        world.lines[-1] == "1 detection ignored: not in any split (images: 1, as 'elsewhere.jpg')"
    )


def test_the_check_of_doctor_counts_detections_of_no_split(world):
    world.write_split("test", FILES[:2], ["a", "b"])
    images = Images.read(world.root / "splits/test/images.parquet")
    made = detectors.create("detections", weights=supervision_csv(world.root), classes=CLASSES)
    scopes = Scopes(frozenset(["test"]), frozenset(["d"]))
    summary = check_import(made, {"test": images}, scopes, world.root / "rows")
    assert summary == (
        "3 detections; not read: 'class_id', 'tracker_id'; "
        "1 of 2 images of test have no detection, as 'street/002.jpg'; 1 detection "
        "ignored: not in any split (images: 1, as '/data/park/003.png')"
    )


HEAD = "file,xmin,ymin,xmax,ymax,class,score\n"
SAMPLE_WITHOUT_CONFIDENCE = {"filepath": "1.jpg", "gt": {"detections": [{"label": "cat"}]}}
PREDICTIONS = {"detections": [{"label": "cat", "confidence": 1.0, "bounding_box": [0, 0, 1, 1]}]}
SAMPLE_OF_TWO_MODELS = {"filepath": "1.jpg", "a": PREDICTIONS, "b": PREDICTIONS}
#: File, content, and the expected message.
WRONG = {
    "no header": (
        "f.csv",
        "1.jpg,0,0,1,1,cat,0.5",
        r"first line names no columns \(found: '1\.jpg.* Write one like f",
    ),
    "long head": (
        "f.csv",
        "x" * 200_000,
        r"f\.csv: row 1: not readable CSV: field larger than field limit",
    ),
    "no score": (
        "f.csv",
        "file,x1,y1,x2,y2,label\n",
        r"no column is known as score \(found: 'file', 'x1'.* line",
    ),
    "no image": (
        "f.json",
        '[{"x_min": 0, "y_min": 0, "x_max": 1, "y_max": 1, "class_id": 0, "confidence": 1}]',
        r"no column is known as image .*custom_data=\{'file': path\}",
    ),
    "no box": ("f.csv", "file,class,score\na,cat,1", r"no column is known as box"),
    "twice": (
        "f.csv",
        "file,x1,y1,x2,y2,class,score,score\n",
        r"two columns are called 'score'",
    ),
    "text": (
        "f.csv",
        f"{HEAD}1.jpg,0,0,1,1,cat,much",
        r"f\.csv: row 2: field 'score': expected a number",
    ),
    "empty": (
        "f.csv",
        f"{HEAD}1.jpg,0,0,1,1,cat,0.5\n1.jpg,0,0,1,1,,0.5",
        r"row 3: field 'class': there is no",
    ),
    "negative": (
        "f.csv",
        f"{HEAD}1.jpg,5,0,1,1,cat,0.5",
        r"row 2: field 'xmin, ymin, xmax, ymax': .*no size negative",
    ),
    "ragged": ("f.csv", f"{HEAD}1.jpg,0,0,1,1,cat,0.5,7,8", r"f\.csv: not readable CSV"),
    "class": (
        "f.csv",
        f"{HEAD}1.jpg,0,0,1,1,cow,0.5",
        r"row 2: field 'class': unknown category 'cow'\. Known: cat",
    ),
    "percent": (
        "f.csv",
        f"{HEAD}1.jpg,0,0,1,1,cat,93",
        r"row 2: field 'score': expected 0 to 1, found 93",
    ),
    "labels": (
        "1.txt",
        "0 0.5 0.5 0.1 0.1\n",
        r"1\.txt: row 1: 5 numbers: the confidence is missing.*save_conf=True",
    ),
    "polygon": ("1.txt", "0 " + "0.5 " * 12, r"1\.txt: row 1: 13 numbers: .* without a confidence"),
    "fiftyone": (
        "s.json",
        json.dumps({"samples": [SAMPLE_WITHOUT_CONFIDENCE]}),
        r"no field of the samples has detections with a confidence",
    ),
    "two models": (
        "s.json",
        json.dumps({"samples": [SAMPLE_OF_TWO_MODELS]}),
        r"confidences are in 'a' and 'b': export one of them, with `dataset\.select_fields\('a'\)`",
    ),
    "mmdetection": (
        "1.json",
        '{"labels": [0], "scores": [0.5, 0.5], "bboxes": [[0, 0, 1, 1]]}',
        r"1 labels, 2 scores and 1 bboxes",
    ),
    "box of 3": (
        "1.json",
        '{"labels": [0], "scores": [0.5], "bboxes": [[0]]}',
        r"row 0: field 'bboxes': expected 4",
    ),
    "oriented": (
        "1.json",
        '[{"name": "cat", "confidence": 1, "box": {"x1": 0, "x3": 1}}]',
        r"row 0: field 'y1': there is no value",
    ),
    "coco": (
        "c.json",
        '{"images": [], "categories": [], "annotations": [{"image_id": 1, "score": 1}]}',
        r"row 0: field 'image_id': 1 is not in the file",
    ),
    "sample": ("s.json", '{"samples": [3]}', r"row samples\[0\]: expected an object, found 3"),
    "other": (
        "o.json",
        '{"a": 1}',
        r"no detections that are known: expected a list of objects",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_read_is_told_with_what_to_write(world, name):
    file, content, message = WRONG[name]
    (world.root / file).write_text(content)
    with pytest.raises(DataError, match=message):
        world.run(world.root / file)
